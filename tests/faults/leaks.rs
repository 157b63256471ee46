//! What `Drop` reported, thread by thread: trials run side by side, and the hook is one for the process.

use std::cell::RefCell;

use cuda_vmm::sys::Call;
use cuda_vmm::{Code, Leak};

use crate::expect;

/// A leak, without its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Memory(usize),
    Mapping(u64, usize),
    Addresses(u64, usize),
    Context(u32),
    CurrentContext,
}

/// A leak as it was reported: what, and the failed calls that its error names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub what: What,
    pub because: Vec<(Call, Code)>,
}

thread_local! {
    static TOLD: RefCell<Vec<Told>> = const { RefCell::new(Vec::new()) };
}

/// Sets the hook.
pub fn listen() {
    cuda_vmm::set_leak_hook(|leak| {
        let told = told(leak);
        TOLD.with_borrow_mut(|all| all.push(told));
    });
}

/// What was reported on this thread since the last time this was asked.
pub fn take() -> Vec<Told> {
    TOLD.take()
}

fn told(leak: &Leak) -> Told {
    let what = match leak {
        Leak::Memory { size, .. } => What::Memory(*size),
        Leak::Mapping { address, size, .. } => What::Mapping(*address, *size),
        Leak::Addresses { base, size, .. } => What::Addresses(*base, *size),
        Leak::Context { device, .. } => What::Context(*device),
        Leak::CurrentContext { .. } => What::CurrentContext,
        other => panic!("a leak that this test does not know: {other}"),
    };
    let error = leak.error();
    let errors = std::iter::once(error.first()).chain(error.undo_failures());
    let because = errors.filter_map(expect::failed).collect();
    Told { what, because }
}
