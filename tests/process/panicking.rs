//! Panics: of the program while reservations are dropped, and of the leak hook itself.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use cuda_vmm::sim::Fault;
use cuda_vmm::{reset_leak_hook, set_leak_hook, Leak};

use crate::scene::Scene;
use crate::support::which::Which;
use crate::Case;

pub const CASES: &[Case] = &[
    Case {
        name: "dropped while unwinding, with a driver that refuses everything",
        part: refused_while_unwinding,
        wrote: |wrote| wrote.out.is_empty() && wrote.err.contains("the program's own panic"),
    },
    Case {
        name: "a leak hook that panics, while unwinding and otherwise",
        part: panicking_hook,
        wrote: |wrote| wrote.out.is_empty() && wrote.err.contains("the program's own panic"),
    },
    Case::silent(
        "a leak hook that sets another, and drops a reservation",
        hook_that_drops,
    ),
];

/// Panics with a scene on the stack, and gives what the panic was.
fn unwind(scene: Scene) -> &'static str {
    let panic = catch_unwind(AssertUnwindSafe(move || {
        let _scene = scene;
        panic!("the program's own panic");
    }));
    panic.unwrap_err().downcast_ref::<&str>().copied().unwrap()
}

fn refused_while_unwinding(which: Which) {
    let told = [const { AtomicUsize::new(0) }; 4].map(Arc::new);
    let counts = told.clone();
    set_leak_hook(move |leak| {
        let kind = match leak {
            Leak::Mapping { .. } => 0,
            Leak::Memory { .. } => 1,
            Leak::Context { .. } => 2,
            _ => 3,
        };
        counts[kind].fetch_add(1, Ordering::Relaxed);
    });
    let scene = Scene::open(which);
    scene.watch.inject(Fault::any_nth(1).forever()).unwrap();
    assert_eq!(unwind(scene), "the program's own panic");
    // Four mappings; the own handle and the page; the context that the fill retained; addresses beneath live mappings
    // are not even tried.
    let told = told.map(|count| count.load(Ordering::Relaxed));
    assert_eq!(told, [4, 2, 1, 0]);
}

fn panicking_hook(which: Which) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    set_leak_hook(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("the hook's panic");
    });
    let scene = Scene::open(which);
    scene.watch.inject(Fault::any_nth(1).forever()).unwrap();
    assert_eq!(unwind(scene), "the program's own panic");
    assert_eq!(calls.swap(0, Ordering::Relaxed), 7);

    let scene = Scene::open(which);
    scene.watch.inject(Fault::any_nth(1).forever()).unwrap();
    drop(scene);
    assert_eq!(
        calls.load(Ordering::Relaxed),
        7,
        "every leak was told, whatever the hook did"
    );
}

fn hook_that_drops(which: Which) {
    let scene = Scene::open(which);
    let other = Scene::open(which);
    let kept = std::sync::Mutex::new(Some(other));
    set_leak_hook(move |_| {
        // No lock of the crate is held here.
        reset_leak_hook();
        set_leak_hook(|leak| panic!("nothing else leaks: {leak}"));
        let other = kept.lock().unwrap().take();
        if let Some(other) = other {
            other.close();
        }
    });
    scene
        .watch
        .inject(Fault::on(cuda_vmm::sys::Call::cuMemUnmap))
        .unwrap();
    drop(scene);
}
