//! What becomes of a group that ends, whoever sleeps: closed, dropped, forked, at the end of the process.

use std::sync::Mutex;

use cuda_vmm::sim::Fault;
use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::sys::Call;
use cuda_vmm::{reset_leak_hook, set_leak_hook, Access, ElasticRange, Error};

use crate::ground::Ground;
use crate::scene::Pair;
use crate::support;
use crate::Case;

pub const CASES: &[Case] = &[
    ("dropped asleep, addresses and contents go", dropped_asleep),
    ("closed asleep, addresses and contents go", closed_asleep),
    (
        "the caller's page outlives a group asleep",
        the_page_outlives,
    ),
    ("a forked child is told so, and drops in silence", forked),
    ("the process ends with a group asleep", ends_asleep),
];

pub const SIMULATED: &[Case] = &[
    (
        "what close is refused comes back and is closed again",
        refused_close,
    ),
    (
        "contents do not outlive a close that was refused",
        half_closed,
    ),
    (
        "host memory that stays registered is told of",
        host_memory_that_stays,
    ),
    ("a driver that is gone is silent", a_driver_that_is_gone),
    (
        "a key that fits no longer takes nothing out",
        a_key_that_fits_no_longer,
    ),
];

fn asleep(ground: &Ground) -> Pair {
    let mut pair = Pair::new(ground);
    pair.group.suspend(Select::All).unwrap();
    pair
}

fn dropped_asleep(ground: &Ground) {
    let pair = asleep(ground);
    drop(pair.group);
    if let Some(snapshot) = ground.snapshot() {
        assert_eq!(
            (snapshot.reservations, snapshot.registered),
            (vec![], vec![])
        );
        assert_eq!(snapshot.handles.len(), 2);
    }
}

fn closed_asleep(ground: &Ground) {
    let mut pair = asleep(ground);
    pair.group.resume("cache").unwrap();
    pair.group.close().unwrap();
    if let Some(snapshot) = ground.snapshot() {
        assert_eq!(
            (snapshot.reservations, snapshot.registered),
            (vec![], vec![])
        );
    }
}

fn the_page_outlives(ground: &Ground) {
    let Pair { group, pages, .. } = asleep(ground);
    drop(group);
    let mut kv = ground.reserve(2);
    kv.map_existing(0, &pages[0]).unwrap();
    let mut seen = vec![0; ground.g];
    kv.read(0, &mut seen).unwrap();
    assert!(seen == crate::scene::pattern(1, 7, ground.g));
    kv.close().unwrap();
}

/// What is played in a process of its own, by its name and whether on a real driver.
pub fn play(role: &str) {
    let ground = match role.strip_suffix(" real") {
        Some(_) => Ground::real(),
        None => Ground::simulated(),
    };
    set_leak_hook(|leak| panic!("{leak}"));
    match role.strip_suffix(" real").unwrap_or(role) {
        "fork" => play_fork(ground),
        "exit" => play_exit(ground),
        "cycles" => crate::cycles::play(&ground),
        other => panic!("no part is named {other:?}"),
    }
}

fn start(part: &str, ground: &Ground) {
    let kind = if ground.sim.is_some() { "" } else { " real" };
    support::play(&format!("{part}{kind}")).unwrap();
}

fn forked(ground: &Ground) {
    start("fork", ground);
}

fn ends_asleep(ground: &Ground) {
    start("exit", ground);
}

fn play_fork(ground: Ground) {
    let mut pair = asleep(&ground);
    let before = ground.snapshot();
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let error = pair.group.resume(Select::All).unwrap_err();
            let said = matches!(error.error.first(), Error::ForkedChild);
            let left = error.left == [pair.kept.id(), pair.dropped.id()];
            drop(pair);
            std::process::exit(i32::from(!(said && left)));
        }
        child => {
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert_eq!(ground.snapshot(), before);
    pair.end(&ground, true);
}

/// Nothing is dropped before the process ends: the group is a static's.
fn play_exit(ground: Ground) {
    static KEPT: Mutex<Option<(Pair, Ground)>> = Mutex::new(None);
    let pair = asleep(&ground);
    *KEPT.lock().unwrap() = Some((pair, ground));
}

fn refused_close(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let mut pair = asleep(ground);
    pair.group.resume("cache").unwrap();
    let asleep = pair.kept.id();
    for call in [Call::cuMemAddressFree, Call::cuMemUnmap] {
        sim.inject(Fault::on(call).forever()).unwrap();
    }
    let unclosed = pair.group.close().unwrap_err();
    let code = cuda_vmm::Code::ERROR_UNKNOWN;
    assert_eq!(unclosed.error.code(), Some(code));
    // Eight unmaps of the one that is awake; of the one asleep the addresses.
    assert_eq!(unclosed.further.len(), 8);
    let mut group = unclosed.group;
    assert_eq!(group.members().count(), 2);
    assert!(group.is_suspended(asleep).unwrap());
    sim.clear_faults();
    // What still sleeps can still wake.
    group.resume(&[asleep]).unwrap();
    group.close().unwrap();
}

/// What a failed close leaves of a member that sleeps is not the member any more: contents kept for all of it fit no
/// longer, and must not come up elsewhere.
fn half_closed(ground: &Ground) {
    let (sim, g) = (ground.sim.as_ref().unwrap(), ground.g);
    let mut kv = ground.reserve(3);
    for granule in 0..3 {
        kv.map(granule * g, g, &ground.props()).unwrap();
        kv.fill(granule * g, g, granule as u8 + 1).unwrap();
    }
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    group.suspend(&key).unwrap();
    // Two mappings are back when the third cannot be made, and the second of them cannot be taken out again.
    sim.inject(Fault::on(Call::cuMemCreate).nth(3)).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    group.resume(&key).unwrap_err();
    assert_eq!(group.quarantined(), 1);
    // Nor by the close, which takes the others out.
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let mut group = group.close().unwrap_err().group;
    assert_eq!(group.outline(key.id()).unwrap().mapping_count(), 1);
    assert_eq!(group.host_bytes(), 0);
    group.resume(&key).unwrap();
    let mut seen = vec![9; g];
    group.get(&key).unwrap().read(g, &mut seen).unwrap();
    assert!(
        seen == vec![0; g],
        "another mapping's contents came up: {}",
        seen[0]
    );
    group.close().unwrap();
}

fn host_memory_that_stays(ground: &Ground) {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let sim = ground.sim.as_ref().unwrap();
    let pair = asleep(ground);
    let registered = sim.snapshot().registered;
    sim.inject(Fault::on(Call::cuMemHostUnregister)).unwrap();
    set_leak_hook(|leak| TOLD.lock().unwrap().push(leak.to_string()));
    drop(pair);
    reset_leak_hook();
    let left = sim.snapshot().registered;
    assert_eq!(
        (registered.len() - left.len(), left.len()),
        (registered.len() - 1, 1)
    );
    let told = std::mem::take(&mut *TOLD.lock().unwrap());
    assert_eq!(told.len(), 1);
    let expected = format!(
        "leaked {} bytes ({} MiB) of the host's memory, registered at {:#x}: ",
        left[0].size,
        left[0].size >> 20,
        left[0].address
    );
    assert!(told[0].starts_with(&expected), "{}", told[0]);
}

fn a_driver_that_is_gone(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    // A driver of its own: this one is needed for what is left.
    let sim_too = cuda_vmm::sim::Simulation::builder().build().unwrap();
    let other = Ground::on(sim_too.clone());
    let pair = asleep(&other);
    sim_too.deinitialize();
    set_leak_hook(|leak| panic!("{leak}"));
    drop(pair);
    reset_leak_hook();
    assert_eq!(sim.misuses(), []);
}

/// Half closed, an elastic range is a reservation.
fn a_key_that_fits_no_longer(ground: &Ground) {
    let (sim, g) = (ground.sim.as_ref().unwrap(), ground.g);
    let mut range = ElasticRange::builder(8 * g, &ground.props())
        .access(ground.device(), Access::ReadWrite)
        .reserve()
        .unwrap();
    range.commit(0, 2 * g).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(range, "cache", Backup::None).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let mut unclosed = group.close().unwrap_err();
    let before = sim.snapshot();
    let error = unclosed.group.remove(&key).unwrap_err();
    assert!(matches!(error, Error::NoSuchMember), "{error:?}");
    assert_eq!(sim.snapshot(), before);
    assert_eq!(unclosed.group.members().count(), 1);
    unclosed.group.close().unwrap();
}
