//! Contents: kept over any number of blocks and seams, or gone without a trace.

use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::{Access, Error, Reservation};

use crate::ground::Ground;
use crate::scene::pattern;
use crate::Case;

pub const CASES: &[Case] = &[
    (
        "contents cross the seams of blocks and mappings",
        across_seams,
    ),
    ("what is dropped reads as zero", dropped_reads_as_zero),
    ("what is to become of contents can be said anew", said_anew),
    ("contents of two devices in one member", of_two_devices),
    ("many small mappings", many_small_mappings),
    ("contents of several members at once", several_members),
];

fn said_anew(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(2);
    kv.map(0, 2 * g, &ground.props()).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    let mut seen = [1; 4];
    for (backup, copied, expected) in [
        (Backup::Host, 2 * g, *b"kept"),
        (Backup::None, 0, [0; 4]),
        (Backup::Host, 2 * g, *b"kept"),
    ] {
        group.set_backup(key.id(), backup).unwrap();
        group.get_mut(&key).unwrap().write(0, b"kept").unwrap();
        assert_eq!(group.suspend(&key).unwrap().copied, copied);
        // Asleep it is too late to say, and nothing is changed.
        for other in [Backup::None, Backup::Host] {
            let calls = ground.calls();
            let refused = group.set_backup(key.id(), other).unwrap_err();
            assert!(matches!(refused, Error::Suspended { .. }), "{refused:?}");
            assert_eq!(ground.calls(), calls);
        }
        group.resume(&key).unwrap();
        group.get(&key).unwrap().read(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
    }
    group.close().unwrap();
}

fn across_seams(ground: &Ground) {
    let g = ground.g;
    // Blocks of 2, 4 and 128 MiB, over mappings of 1, 2, 3 and 5 granules.
    for block in [1, 3 << 20, 128 << 20] {
        let mut kv = ground.reserve(16);
        let mut at = 0;
        for size in [1, 2, 3, 5] {
            kv.map(at * g, size * g, &ground.props()).unwrap();
            at += size + usize::from(size == 2);
        }
        let bytes = [pattern(1, 0, 3 * g), pattern(2, 4, 8 * g)];
        kv.write(0, &bytes[0]).unwrap();
        kv.write(4 * g, &bytes[1]).unwrap();
        let mut group = Group::new(&ground.driver).host_block(block);
        let key = group.add(kv, "weights", Backup::Host).unwrap();
        for _ in 0..2 {
            group.suspend(&key).unwrap();
            group.resume(&key).unwrap();
            let kv = group.get(&key).unwrap();
            let mut seen = [vec![0; 3 * g], vec![0; 8 * g]];
            kv.read(0, &mut seen[0]).unwrap();
            kv.read(4 * g, &mut seen[1]).unwrap();
            assert!(seen == bytes, "blocks of {block}");
        }
        group.close().unwrap();
    }
}

fn dropped_reads_as_zero(ground: &Ground) {
    let size = 4 * ground.g;
    let mut kv = ground.reserve(4);
    kv.map(0, size, &ground.props()).unwrap();
    kv.fill(0, size, 0xa5).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    for _ in 0..8 {
        group.suspend(&key).unwrap();
        group.resume(&key).unwrap();
        let kv = group.get_mut(&key).unwrap();
        let mut seen = vec![1; size];
        kv.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0));
        kv.fill(0, size, 0x5a).unwrap();
    }
    group.close().unwrap();
}

fn of_two_devices(ground: &Ground) {
    let [first, second] = ground.devices.as_slice() else {
        println!("SKIPPED: this machine has one device");
        return;
    };
    let g = ground.g;
    let mut kv = Reservation::builder(8 * g).reserve(&ground.driver).unwrap();
    for (at, device) in [(0, first), (1, second), (2, first), (4, second)] {
        let props = cuda_vmm::AllocationProps::on(device);
        kv.map(at * g, g, &props).unwrap();
        kv.set_access(at * g, g, device, Access::ReadWrite).unwrap();
        kv.write(at * g, &pattern(7, at, g)).unwrap();
    }
    let mut group = Group::new(&ground.driver).host_block(3 * g);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    for _ in 0..2 {
        assert_eq!(group.suspend(&key).unwrap().copied, 4 * g);
        group.resume(&key).unwrap();
        let kv = group.get(&key).unwrap();
        for (at, device) in [(0, first), (1, second), (2, first), (4, second)] {
            let mut seen = vec![0; g];
            kv.read(at * g, &mut seen).unwrap();
            assert!(seen == pattern(7, at, g), "granule {at}");
            let granted = kv.access_of(at * g, device).unwrap();
            assert_eq!(granted, Access::ReadWrite);
        }
    }
    group.close().unwrap();
}

fn many_small_mappings(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(64);
    for at in (0..64).filter(|at| at % 5 != 4) {
        kv.map(at * g, g, &ground.props()).unwrap();
        kv.write(at * g + at, &[at as u8 + 1; 9]).unwrap();
    }
    let mut group = Group::new(&ground.driver).host_block(8 * g);
    let key = group.add(kv, "weights", Backup::Host).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let kv = group.get(&key).unwrap();
    for at in (0..64).filter(|at| at % 5 != 4) {
        let mut seen = [0; 11];
        kv.read(at * g + at.max(1) - 1, &mut seen).unwrap();
        let filled = &seen[usize::from(at > 0)..][..9];
        assert_eq!(filled, [at as u8 + 1; 9], "granule {at}");
    }
    group.close().unwrap();
}

fn several_members(ground: &Ground) {
    let g = ground.g;
    let mut group = Group::new(&ground.driver).host_block(2 * g);
    let keys: Vec<_> = (1..5)
        .map(|granules| {
            let mut kv = ground.reserve(granules);
            kv.map(0, granules * g, &ground.props()).unwrap();
            kv.write(0, &pattern(4, granules, granules * g)).unwrap();
            group.add(kv, format!("{granules}"), Backup::Host).unwrap()
        })
        .collect();
    assert_eq!(group.suspend(Select::All).unwrap().copied, 10 * g);
    // They wake in another order than they slept in.
    for granules in [3, 1, 4, 2] {
        assert_eq!(
            group.resume(&keys[granules - 1]).unwrap().copied,
            granules * g
        );
    }
    for (key, granules) in keys.iter().zip(1..) {
        let mut seen = vec![0; granules * g];
        group.get(key).unwrap().read(0, &mut seen).unwrap();
        assert!(seen == pattern(4, granules, granules * g));
    }
    // And all at once.
    group.suspend(Select::All).unwrap();
    let done = group.resume(Select::All).unwrap();
    assert_eq!((done.created, done.copied), (10 * g, 10 * g));
    group.close().unwrap();
}
