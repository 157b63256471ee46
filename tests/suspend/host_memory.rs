//! The host's memory: made, registered, kept, given back.

use cuda_vmm::sim::Fault;
use cuda_vmm::suspend::{Backup, Group, Key, Select};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Code, Error, Reservation};

use crate::ground::Ground;
use crate::scene::pattern;
use crate::Case;

pub const CASES: &[Case] = &[
    ("host memory goes with each resume", goes_with_each_resume),
    ("host memory is kept between cycles", is_kept_between_cycles),
    ("kept host memory is trimmed", is_trimmed),
    (
        "kept host memory serves members of other sizes",
        serves_other_sizes,
    ),
    (
        "what the driver says to registering twice",
        registering_twice,
    ),
];

pub const SIMULATED: &[Case] = &[
    (
        "a second cycle registers nothing",
        a_second_cycle_registers_nothing,
    ),
    (
        "memory that is not registered is an error",
        not_registered_is_an_error,
    ),
    (
        "or is copied to, if that was allowed",
        not_registered_is_allowed,
    ),
    (
        "what cannot be unregistered stays for a trim",
        stays_for_a_trim,
    ),
    ("more than the host can have", more_than_the_host_can_have),
    (
        "a reset of the context loses the registration alone",
        a_reset_context,
    ),
];

fn group(ground: &Ground, granules: usize) -> (Group, Key<Reservation>) {
    let mut kv = ground.reserve(granules);
    let size = granules * ground.g;
    kv.map(0, size, &ground.props()).unwrap();
    kv.write(0, &pattern(6, 0, size)).unwrap();
    let mut group = Group::new(&ground.driver).host_block(4 * ground.g);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    (group, key)
}

fn intact(ground: &Ground, group: &Group, key: &Key<Reservation>) {
    let kv = group.get(key).unwrap();
    let mut seen = vec![0; kv.size()];
    kv.read(0, &mut seen).unwrap();
    assert!(seen == pattern(6, 0, kv.size()));
    assert_eq!(kv.quarantined(), 0, "{}", ground.g);
}

fn goes_with_each_resume(ground: &Ground) {
    let (mut group, key) = group(ground, 6);
    for _ in 0..2 {
        assert_eq!(group.host_bytes(), 0);
        group.suspend(&key).unwrap();
        assert_eq!(group.host_bytes(), 6 * ground.g);
        group.resume(&key).unwrap();
    }
    assert_eq!(group.trim().unwrap(), 0);
    intact(ground, &group, &key);
    group.close().unwrap();
}

fn is_kept_between_cycles(ground: &Ground) {
    let (group, key) = group(ground, 6);
    let mut group = group.keep_host_memory(true);
    for _ in 0..3 {
        group.suspend(&key).unwrap();
        assert_eq!(group.host_bytes(), 6 * ground.g);
        group.resume(&key).unwrap();
        assert_eq!(group.host_bytes(), 6 * ground.g);
        intact(ground, &group, &key);
    }
    group.close().unwrap();
}

fn is_trimmed(ground: &Ground) {
    let (group, key) = group(ground, 6);
    let mut group = group.keep_host_memory(true);
    group.suspend(&key).unwrap();
    assert_eq!(group.trim().unwrap(), 0, "contents are not trimmed");
    group.resume(&key).unwrap();
    assert_eq!(group.trim().unwrap(), 6 * ground.g);
    assert_eq!(group.host_bytes(), 0);
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    intact(ground, &group, &key);
    group.close().unwrap();
}

fn serves_other_sizes(ground: &Ground) {
    let g = ground.g;
    let (group, key) = group(ground, 6);
    let mut group = group.keep_host_memory(true);
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let mut kv = ground.reserve(9);
    kv.map(0, 9 * g, &ground.props()).unwrap();
    kv.write(0, &pattern(6, 0, 9 * g)).unwrap();
    let larger = group.add(kv, "larger", Backup::Host).unwrap();
    // The blocks of 4 and 2 granules serve, and one of 3 is made.
    group.suspend(&larger).unwrap();
    assert_eq!(group.host_bytes(), 9 * g);
    group.resume(&larger).unwrap();
    intact(ground, &group, &larger);
    group.suspend(Select::All).unwrap();
    group.resume(Select::All).unwrap();
    intact(ground, &group, &key);
    intact(ground, &group, &larger);
    group.close().unwrap();
}

fn a_second_cycle_registers_nothing(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let (group, key) = group(ground, 6);
    let mut group = group.keep_host_memory(true);
    group.suspend(&key).unwrap();
    assert_eq!(sim.calls_of(Call::cuMemHostRegister_v2), 2);
    let registered = sim.snapshot().registered;
    let sizes: Vec<_> = registered.iter().map(|one| one.size).collect();
    assert_eq!(sizes.iter().sum::<u64>(), 6 * ground.g as u64);
    group.resume(&key).unwrap();
    assert_eq!(sim.snapshot().registered, registered);
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    assert_eq!(sim.calls_of(Call::cuMemHostRegister_v2), 2);
    assert_eq!(sim.calls_of(Call::cuMemHostUnregister), 0);
    group.trim().unwrap();
    assert_eq!(sim.calls_of(Call::cuMemHostUnregister), 2);
    assert_eq!(sim.snapshot().registered, []);
    group.close().unwrap();
}

fn refuse_registering(ground: &Ground) {
    let refusal = Fault::on(Call::cuMemHostRegister_v2).code(CUresult::CUDA_ERROR_NOT_PERMITTED);
    let sim = ground.sim.as_ref().unwrap();
    sim.inject(refusal.forever()).unwrap();
}

fn not_registered_is_an_error(ground: &Ground) {
    let (mut group, key) = group(ground, 6);
    let before = ground.snapshot();
    refuse_registering(ground);
    let refused = group.suspend(&key).unwrap_err();
    assert_eq!(refused.error.code(), Some(Code::ERROR_NOT_PERMITTED));
    assert_eq!(refused.error.undo_failures().len(), 0);
    assert_eq!(
        (refused.left, refused.done.members),
        (vec![key.id()], vec![])
    );
    assert_eq!(ground.snapshot(), before);
    assert_eq!(group.host_bytes(), 0);
    ground.sim.as_ref().unwrap().clear_faults();
    intact(ground, &group, &key);
    group.close().unwrap();
}

fn not_registered_is_allowed(ground: &Ground) {
    let (group, key) = group(ground, 6);
    let mut group = group.unregistered_copies(true).keep_host_memory(true);
    refuse_registering(ground);
    for _ in 0..2 {
        assert_eq!(group.suspend(&key).unwrap().copied, 6 * ground.g);
        assert_eq!(ground.snapshot().unwrap().registered, []);
        group.resume(&key).unwrap();
        intact(ground, &group, &key);
    }
    ground.sim.as_ref().unwrap().clear_faults();
    group.close().unwrap();
}

fn stays_for_a_trim(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let (mut group, key) = group(ground, 6);
    group.suspend(&key).unwrap();
    sim.inject(Fault::on(Call::cuMemHostUnregister).forever())
        .unwrap();
    // The member is awake: that the host's memory stays is no reason to fail it.
    group.resume(&key).unwrap();
    intact(ground, &group, &key);
    assert_eq!(group.host_bytes(), 6 * ground.g);
    let refused = group.trim().unwrap_err();
    assert_eq!(refused.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(refused.undo_failures().len(), 1, "of two blocks");
    assert_eq!(group.host_bytes(), 6 * ground.g);
    let unclosed = group.close().unwrap_err();
    assert_eq!(unclosed.further.len(), 1);
    let group = unclosed.group;
    assert_eq!(
        (group.members().count(), group.host_bytes()),
        (0, 6 * ground.g)
    );
    sim.clear_faults();
    group.close().unwrap();
}

fn more_than_the_host_can_have(_: &Ground) {
    // The books alone: as much memory as addresses.
    let huge = Ground::on(
        cuda_vmm::sim::Simulation::builder()
            .ledger_only()
            .build()
            .unwrap(),
    );
    let size = 1 << 30;
    let mut kv = Reservation::builder(size)
        .access(huge.device(), cuda_vmm::Access::ReadWrite)
        .reserve(&huge.driver)
        .unwrap();
    kv.map(0, size, &huge.props()).unwrap();
    let mut group = Group::new(&huge.driver).host_block(usize::MAX);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    let before = huge.snapshot();
    let refused = with_little_room(size / 2, || group.suspend(&key)).unwrap_err();
    match &refused.error {
        Error::NoHostMemory { size: asked, why } => {
            assert_eq!((*asked, why.raw_os_error()), (size, Some(libc::ENOMEM)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(refused.left, [key.id()]);
    assert_eq!(huge.snapshot(), before);
    group.close().unwrap();
    huge.leaves_nothing().unwrap();
}

/// Lets the process have only so many bytes of addresses more while something runs. A system may give out memory that it
/// does not have, and then end the process that uses it: of a limit of addresses it tells at once.
fn with_little_room<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let mut usual = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut usual) }, 0);
    let less = libc::rlimit {
        rlim_cur: pages * 4096 + bytes as u64,
        ..usual
    };
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &less) }, 0);
    let result = run();
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &usual) }, 0);
    result
}

fn a_reset_context(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let (mut group, key) = group(ground, 6);
    group.suspend(&key).unwrap();
    let device = 0;
    let reset = unsafe { cuda_vmm::sys::DriverCalls::cuDevicePrimaryCtxReset_v2(sim, device) };
    assert_eq!(reset, CUresult::CUDA_SUCCESS);
    assert_eq!(sim.snapshot().registered, []);
    // The memory is there all the same, and so are the contents.
    group.resume(&key).unwrap();
    intact(ground, &group, &key);
    assert_eq!(group.host_bytes(), 0);
    group.close().unwrap();
}

/// As documented; of a real driver the answers are printed, not demanded.
fn registering_twice(ground: &Ground) {
    let _current = ground.device().make_current().unwrap();
    let calls = ground.driver.calls_raw();
    let mut memory = vec![0_u8; 8 << 20];
    let at = memory.as_mut_ptr().cast();
    let other = unsafe { memory.as_mut_ptr().add(4 << 20) }.cast();
    let answers = unsafe {
        [
            calls.cuMemHostRegister_v2(at, 8 << 20, 1),
            calls.cuMemHostRegister_v2(at, 8 << 20, 1),
            calls.cuMemHostRegister_v2(other, 4 << 20, 1),
            calls.cuMemHostUnregister(other),
            calls.cuMemHostUnregister(at),
            calls.cuMemHostUnregister(at),
        ]
    };
    let codes = answers.map(Code::from);
    println!("register, again, a part; unregister the part, all, again: {codes:?}");
    assert_eq!((codes[0], codes[4]), (Code::SUCCESS, Code::SUCCESS));
    if ground.sim.is_some() {
        let again = Code::ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        let not = Code::ERROR_HOST_MEMORY_NOT_REGISTERED;
        assert_eq!(codes[1..4], [again, again, not]);
        assert_eq!(codes[5], not);
    }
}
