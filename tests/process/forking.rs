//! A forked child: the driver is the parent's. Everything says so, nothing is called, nothing is said at the end.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuda_vmm::sim::Simulation;
use cuda_vmm::{
    Access, Allocation, AllocationProps, Closing, Driver, Error, Fence, Location, Reservation,
};

use crate::scene::{Scene, FILLED};
use crate::support::which::Which;
use crate::Case;

pub const CASES: &[Case] = &[
    Case::silent(
        "a forked child is answered ForkedChild, without a driver call",
        everything_says_so,
    ),
    Case::silent(
        "a forked child drops in silence and ends with 0",
        dropping_is_silent,
    ),
    Case::silent(
        "a forked child waits for no lock of its parent's threads",
        locks_are_not_waited_for,
    ),
    Case::silent(
        "what a background close left is the parent's, too",
        a_failed_close_is_the_parents,
    ),
    Case::silent(
        "a forked child may simulate a driver of its own",
        a_driver_of_its_own,
    ),
];

/// Forks; the child runs the closure and ends as a program does, destructors of the process included. Gives how it
/// ended and what it wrote on standard error.
fn in_child(run: impl FnOnce()) -> (i32, String) {
    let mut pipe = [0; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [reading, writing] = pipe;
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            unsafe {
                // An alarm is not inherited, and nobody should wait for ever for a child that hangs.
                libc::alarm(60);
                libc::dup2(writing, 2);
                libc::close(reading);
                libc::close(writing);
            }
            run();
            std::process::exit(0)
        }
        child => {
            unsafe { libc::close(writing) };
            let mut said = String::new();
            let mut reader = unsafe { File::from_raw_fd(reading) };
            reader.read_to_string(&mut said).unwrap();
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            (status, said)
        }
    }
}

/// The child ended with 0 and said nothing; the parent's memory is as it was.
fn unharmed(scene: Scene, run: impl FnOnce(&mut Option<Scene>)) {
    let (before, picture) = (scene.snapshot(), scene.kv.to_string());
    let mut scene = Some(scene);
    let (status, said) = in_child(|| run(&mut scene));
    assert_eq!((status, said.as_str()), (0, ""));
    let scene = scene.expect("the child took a copy");
    assert_eq!(scene.snapshot(), before);
    assert_eq!(scene.kv.to_string(), picture);
    assert_eq!(scene.contents(), vec![FILLED; 5 * scene.g]);
    scene.close();
}

/// That the process is a forked child, and nothing else.
#[track_caller]
fn forked<T>(result: Result<T, Error>) {
    match result {
        Err(Error::ForkedChild) => {}
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it went through"),
    }
}

fn everything_says_so(which: Which) {
    unharmed(Scene::open(which), |scene| {
        let mut scene = scene.take().unwrap();
        let calls = scene.watch.calls();
        ask(&mut scene);
        assert_eq!(scene.watch.calls(), calls, "the driver was called");

        let failed = scene.kv.close().unwrap_err();
        assert!(matches!(failed.error, Error::ForkedChild));
        assert_eq!(failed.reservation.mapping_count(), 4);
        let failed = failed.reservation.into_inner().close_keeping().unwrap_err();
        assert!(matches!(failed.error, Error::ForkedChild));
        assert_eq!(failed.kept.len(), 0);
        drop(failed);
        let failed = scene.page.release();
        assert!(failed.is_err_and(|failed| matches!(failed.error, Error::ForkedChild)));
        assert_eq!(scene.watch.calls(), calls, "the driver was called");

        // Loading it anew can only be refused by the driver, which the parent initialised.
        forked(Driver::from_calls(scene.watch.clone()));
        assert_eq!(scene.watch.calls(), calls + 1);
    });
}

/// Asks everything that would call the driver.
fn ask(scene: &mut Scene) {
    let Scene {
        kv,
        page,
        props,
        device,
        driver,
        g,
        ..
    } = scene;
    let g = *g;
    let here = Location::Device(0);
    forked(driver.device(0));
    forked(driver.device_by_uuid([0; 16]));
    forked(driver.is_vmm(kv.base()));
    forked(device.name());
    forked(device.uuid());
    forked(device.total_memory());
    forked(device.free_memory());
    forked(device.can_access_peer(device));
    forked(device.capabilities());
    forked(device.make_current());
    forked(props.clone().rdma(true).granularity());
    forked(props.create(g));
    forked(Allocation::retain(driver, kv.base()));
    forked(page.granted());
    forked(Reservation::builder(g).reserve(driver));
    forked(kv.map(6 * g, g, props));
    forked(kv.map_releasing(6 * g, g, props));
    forked(kv.map_existing(6 * g, page));
    forked(kv.unmap_range(0, 2 * g));
    forked(kv.unmap_range(0, 5 * g));
    forked(kv.set_access(0, 2 * g, here, Access::Read));
    forked(kv.set_policy(here, Access::Read));
    forked(kv.access_of(0, here));
    forked(kv.write(0, b"child"));
    forked(kv.read(0, &mut [0; 5]));
    forked(kv.fill(0, g, 1));
    forked(kv.copy_within(0, g, 16));
}

fn dropping_is_silent(which: Which) {
    let scene = Scene::open(which);
    let calls = scene.watch.calls();
    let watch = scene.watch.clone();
    unharmed(scene, |scene| {
        drop(scene.take());
        assert_eq!(watch.calls(), calls, "the driver was called");
    });
}

/// Threads of the parent hold each lock for most of the time, and are not there in the child to give it back.
fn locks_are_not_waited_for(which: Which) {
    let scene = Scene::open(which);
    let (driver, device) = (&scene.driver, &scene.device);
    let over = AtomicBool::new(false);
    let work: [&(dyn Fn() + Sync); 3] = [
        &|| assert_eq!(driver.quarantined(), 0),
        &|| assert!(AllocationProps::on(device).granularity().is_ok()),
        &|| assert!(device.free_memory().is_ok()),
    ];
    thread::scope(|scope| {
        let over = &over;
        for work in work {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        let ended: Vec<_> = (0..60)
            .map(|_| {
                in_child(|| {
                    assert_eq!(driver.quarantined(), 0);
                    forked(driver.reclaim());
                    forked(AllocationProps::on(device).granularity());
                    forked(device.free_memory());
                    forked(device.make_current());
                    let _name = scene.page.id();
                })
            })
            .find(|(status, said)| *status != 0 || !said.is_empty())
            .into_iter()
            .collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended, []);
    });
    scene.close();
}

/// A reservation that stays mapped since its wait failed is the parent's to leak, and to close.
fn a_failed_close_is_the_parents(which: Which) {
    let Scene {
        kv,
        page,
        props,
        device,
        driver,
        ..
    } = Scene::open(which);
    let fence = Fence::closure(|_| Err::<(), _>("the work is not done"));
    let closing = kv.close_in_background(fence).unwrap();
    while !closing.is_finished() {
        thread::yield_now();
    }
    let mut closing = Some(closing);
    assert_eq!(in_child(|| drop(closing.take())), (0, String::new()));
    let failed = closing.take().map(Closing::join).unwrap().unwrap_err();
    assert_eq!(failed.reservation.mapping_count(), 4);
    failed.reservation.into_inner().close().unwrap();
    page.release().unwrap();
    drop((props, device, driver));
}

fn a_driver_of_its_own(which: Which) {
    unharmed(Scene::open(which), |scene| {
        let own = Scene::open(Which::Sim);
        assert_eq!(own.contents(), vec![FILLED; 5 * own.g]);
        own.close();
        let sim = Simulation::new();
        assert_eq!(Driver::simulated(&sim).unwrap().device_count(), 1);
        drop(scene.take());
    });
}
