//! What `Drop` reported, thread by thread: trials run side by side, and the hook is one for the process.

use std::cell::RefCell;

use crate::verdict::{failed, Failed};

thread_local! {
    static TOLD: RefCell<Vec<Failed>> = const { RefCell::new(Vec::new()) };
}

/// Sets the hook.
pub fn listen() {
    cuda_vmm::set_leak_hook(|leak| {
        let error = leak.error();
        let errors = std::iter::once(error.first()).chain(error.undo_failures());
        let because: Vec<Failed> = errors.filter_map(failed).collect();
        TOLD.with_borrow_mut(|all| all.extend(because));
    });
}

/// The failed calls of the leaks that were reported on this thread since the last time this was asked.
pub fn take() -> Vec<Failed> {
    TOLD.take()
}
