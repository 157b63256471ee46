//! The end of a process, with reservations that nobody closed.

use std::io::Write;
use std::sync::Mutex;

use cuda_vmm::sim::Fault;

use crate::scene::Scene;
use crate::support::which::Which;
use crate::Case;

pub const CASES: &[Case] = &[
    Case {
        name: "dropped at exit, after the driver is gone: silent, and the process ends with 0",
        part: after_the_driver,
        wrote: |wrote| wrote.only("dropped at exit"),
    },
    Case {
        name: "dropped at exit, before the driver goes: everything is given back",
        part: before_the_driver,
        wrote: |wrote| wrote.only("dropped at exit"),
    },
    Case::silent("never dropped: the process ends with 0", never),
    Case::silent(
        "dropped by the end of a thread that it is local to",
        with_a_thread,
    ),
    Case {
        name: "a leak that nobody listens to is one line on standard error",
        part: unheard,
        wrote: |wrote| {
            let leaked = "cuda-vmm: leaked the mapping of ";
            let lines: Vec<_> = wrote.err.lines().collect();
            wrote.out.is_empty()
                && lines.len() == 1
                && lines[0].starts_with(leaked)
                && lines[0].ends_with("failed with CUDA_ERROR_UNKNOWN (999)")
        },
    },
    Case::silent(
        "a leak with standard error closed harms nobody",
        unheard_and_closed,
    ),
];

/// What a program with a global reservation has.
static GLOBAL: Mutex<Option<Scene>> = Mutex::new(None);

extern "C" fn at_exit() {
    let scene = GLOBAL.lock().unwrap().take();
    if let Some(sim) = scene.as_ref().and_then(|scene| scene.sim.as_ref()) {
        sim.deinitialize();
    }
    drop(scene);
    say_dropped();
}

extern "C" fn at_exit_in_time() {
    let scene = GLOBAL.lock().unwrap().take();
    let sim = scene.as_ref().and_then(|scene| scene.sim.clone());
    drop(scene);
    if let Some(sim) = sim {
        assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
    }
    say_dropped();
}

/// The standard library's own standard output may be gone by then.
fn say_dropped() {
    let text = "dropped at exit";
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
}

fn after_the_driver(which: Which) {
    // Handlers run in reverse order: this one after those that the machine's own driver registers when it starts.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    *GLOBAL.lock().unwrap() = Some(Scene::open(which));
}

fn before_the_driver(which: Which) {
    *GLOBAL.lock().unwrap() = Some(Scene::open(which));
    assert_eq!(unsafe { libc::atexit(at_exit_in_time) }, 0);
}

fn never(which: Which) {
    std::mem::forget(Scene::open(which));
}

fn with_a_thread(which: Which) {
    thread_local! {
        static LOCAL: Mutex<Option<Scene>> = const { Mutex::new(None) };
    }
    let thread = std::thread::spawn(move || {
        let scene = Scene::open(which);
        let sim = scene.sim.clone();
        LOCAL.with(|local| *local.lock().unwrap() = Some(scene));
        sim
    });
    if let Some(sim) = thread.join().unwrap() {
        assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
    }
}

fn leak_one_mapping(which: Which) {
    let scene = Scene::open(which);
    scene
        .watch
        .inject(Fault::on(cuda_vmm::sys::Call::cuMemUnmap))
        .unwrap();
    drop(scene);
}

fn unheard(which: Which) {
    leak_one_mapping(which);
}

fn unheard_and_closed(which: Which) {
    std::io::stderr().flush().unwrap();
    unsafe { libc::close(2) };
    leak_one_mapping(which);
}
