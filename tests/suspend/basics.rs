//! What suspending and resuming do, and what they say of it.

use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::Error;

use crate::ground::Ground;
use crate::scene::{pattern, Pair, OWN, PAGE, SIZE};
use crate::Case;

pub const CASES: &[Case] = &[
    ("memory goes and comes back", memory_goes_and_comes_back),
    ("the free bytes rise and fall", the_free_bytes_rise_and_fall),
    ("by tag, by key, by list", by_tag_by_key_by_list),
    (
        "all or a tag passes over what is done",
        passes_over_what_is_done,
    ),
    (
        "asleep, only the outline is reachable",
        only_the_outline_is_reachable,
    ),
    ("a member is taken out and used", a_member_is_taken_out),
    (
        "a member is changed between two sleeps",
        a_member_is_changed,
    ),
    ("empty members and groups", empty_members_and_groups),
];

pub const SIMULATED: &[Case] = &[("out of memory half-way", out_of_memory_half_way)];

fn memory_goes_and_comes_back(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let (kept, dropped) = (pair.kept.id(), pair.dropped.id());
    let done = pair.group.suspend(Select::All).unwrap();
    assert_eq!(done.members, [kept, dropped]);
    assert_eq!(done.already, []);
    assert_eq!(done.given_back, 2 * OWN * ground.g);
    assert_eq!(done.still_held, 2 * PAGE * ground.g);
    assert_eq!(done.copied, OWN * ground.g);
    if let Some(snapshot) = ground.snapshot() {
        assert_eq!(snapshot.mappings, []);
        assert_eq!(snapshot.handles.len(), 2, "the caller's two pages");
        assert_eq!(snapshot.reservations.len(), 2);
    }
    let done = pair.group.resume(Select::All).unwrap();
    assert_eq!(done.members, [kept, dropped]);
    assert_eq!(done.created, 2 * OWN * ground.g);
    assert_eq!(done.copied, OWN * ground.g);
    assert_eq!(pair.group.host_bytes(), 0);
    if let Some(snapshot) = ground.snapshot() {
        assert_eq!((snapshot.registered.len(), snapshot.streams), (0, 0));
    }
    pair.intact(ground, true);
    pair.end(ground, true);
}

fn the_free_bytes_rise_and_fall(ground: &Ground) {
    // Large enough not to be hidden by what the driver takes for itself.
    let size = 32 * ground.g;
    let mut kv = ground.reserve(32);
    kv.map(0, size, &ground.props()).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    let awake = ground.free();
    let done = group.suspend(&key).unwrap();
    let asleep = ground.free();
    assert_eq!(done.given_back, size);
    group.resume(&key).unwrap();
    let again = ground.free();
    match ground.sim {
        Some(_) => assert_eq!((asleep - awake, again), (size, awake)),
        // Other programs may take a little meanwhile.
        None => {
            assert!(asleep + ground.g >= awake + size, "{awake}, {asleep}");
            assert!(again.abs_diff(awake) <= ground.g, "{awake}, {again}");
        }
    }
    group.close().unwrap();
}

fn by_tag_by_key_by_list(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let (kept, dropped) = (pair.kept.id(), pair.dropped.id());
    assert_eq!(pair.group.suspend("cache").unwrap().members, [dropped]);
    assert!(!pair.group.is_suspended(kept).unwrap());
    assert!(pair.group.is_suspended(dropped).unwrap());
    let key = pair.kept;
    assert_eq!(pair.group.suspend(&key).unwrap().members, [kept]);
    assert_eq!(pair.group.resume("weights").unwrap().members, [kept]);
    assert_eq!(pair.group.resume(&[dropped]).unwrap().members, [dropped]);
    // Named twice is named.
    let twice = [dropped, kept, dropped];
    assert_eq!(pair.group.suspend(&twice).unwrap().members, [kept, dropped]);
    pair.end(ground, true);
}

fn passes_over_what_is_done(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let (kept, dropped) = (pair.kept.id(), pair.dropped.id());
    pair.group.suspend("cache").unwrap();
    let done = pair.group.suspend(Select::All).unwrap();
    assert_eq!((done.members, done.already), (vec![kept], vec![dropped]));
    let calls = ground.calls();
    let done = pair.group.suspend(Select::All).unwrap();
    assert_eq!((done.members, done.already), (vec![], vec![kept, dropped]));
    assert_eq!((done.given_back, done.still_held, done.copied), (0, 0, 0));
    assert_eq!(ground.calls(), calls);
    pair.group.resume("weights").unwrap();
    let done = pair.group.resume(Select::All).unwrap();
    assert_eq!((done.members, done.already), (vec![dropped], vec![kept]));
    let calls = ground.calls();
    let done = pair.group.resume(Select::All).unwrap();
    assert_eq!((done.members, done.already), (vec![], vec![kept, dropped]));
    assert_eq!(ground.calls(), calls);
    pair.end(ground, true);
}

fn only_the_outline_is_reachable(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let id = pair.kept.id();
    let kv = pair.group.get(&pair.kept).unwrap();
    let (base, size) = (kv.base(), kv.size());
    let seen = |pair: &Pair| {
        let outline = pair.group.outline(id).unwrap();
        assert_eq!((outline.base(), outline.size()), (base, size));
        assert_eq!(outline.mapped_bytes(), (OWN + 2 * PAGE) * ground.g);
        assert_eq!(outline.mapping_count(), 8);
        outline.mappings().collect::<Vec<_>>()
    };
    let awake = seen(&pair);
    pair.group.suspend(Select::All).unwrap();
    assert_eq!(seen(&pair), awake);
    let calls = ground.calls();
    let tag = String::from("weights");
    let asleep = format!("{:?}", Error::Suspended { tag, base, size });
    let refused = pair.group.get(&pair.kept).map(drop).unwrap_err();
    assert_eq!(format!("{refused:?}"), asleep);
    let refused = pair.group.get_mut(&pair.kept).map(drop).unwrap_err();
    assert_eq!(format!("{refused:?}"), asleep);
    let refused = pair.group.remove(&pair.kept).map(drop).unwrap_err();
    assert_eq!(format!("{refused:?}"), asleep);
    assert_eq!(ground.calls(), calls);
    assert_eq!(
        refused.to_string(),
        format!(
            "\"weights\", {} MiB at {base:#x}, is suspended: resume it first",
            size >> 20
        )
    );
    pair.end(ground, true);
}

fn a_member_is_taken_out(ground: &Ground) {
    let mut pair = Pair::new(ground);
    pair.group.suspend(Select::All).unwrap();
    pair.group.resume(Select::All).unwrap();
    pair.intact(ground, true);
    let mut kv = pair.group.remove(&pair.kept).unwrap();
    let props = ground.props();
    kv.map(14 * ground.g, 2 * ground.g, &props).unwrap();
    kv.write(15 * ground.g, b"by itself").unwrap();
    kv.close().unwrap();
    let gone = pair.group.get(&pair.kept).map(drop).unwrap_err();
    assert!(matches!(gone, Error::NoSuchMember), "{gone:?}");
    let gone = pair.group.suspend(&pair.kept).unwrap_err();
    assert!(matches!(gone.error, Error::NoSuchMember), "{gone:?}");
    assert_eq!(pair.group.members().count(), 1);
    pair.group.close().unwrap();
}

fn a_member_is_changed(ground: &Ground) {
    let g = ground.g;
    let mut group = Group::new(&ground.driver);
    let key = group
        .add(ground.reserve(SIZE), "cache", Backup::Host)
        .unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        let kv = group.get_mut(&key).unwrap();
        if round == 3 {
            kv.unmap_range(0, g).unwrap();
            expected.remove(0);
        }
        let (at, bytes) = (2 * round * g, pattern(9, round, g));
        kv.map(at, g, &ground.props()).unwrap();
        kv.write(at, &bytes).unwrap();
        expected.push((at, bytes));
        group.suspend(&key).unwrap();
        group.resume(&key).unwrap();
        let kv = group.get(&key).unwrap();
        assert_eq!(kv.mapping_count(), expected.len());
        for (at, bytes) in &expected {
            let mut seen = vec![0; g];
            kv.read(*at, &mut seen).unwrap();
            assert!(seen == *bytes, "round {round}, offset {at}");
        }
    }
    group.close().unwrap();
}

fn empty_members_and_groups(ground: &Ground) {
    let mut group = Group::new(&ground.driver);
    assert_eq!(group.suspend(Select::All).unwrap(), Default::default());
    assert_eq!(group.resume(Select::All).unwrap(), Default::default());
    for contents in [Backup::Host, Backup::None] {
        let key = group.add(ground.reserve(1), "empty", contents).unwrap();
        let calls = ground.calls();
        let done = group.suspend(&key).unwrap();
        assert_eq!((done.given_back, done.still_held, done.copied), (0, 0, 0));
        assert!(group.get(&key).is_err());
        group.resume(&key).unwrap();
        assert_eq!(ground.calls(), calls, "nothing is there to be moved");
        assert!(group.get(&key).is_ok());
    }
    group.close().unwrap();
}

/// Somebody else takes the memory while the group sleeps.
fn out_of_memory_half_way(ground: &Ground) {
    let g = ground.g;
    let mut group = Group::new(&ground.driver);
    let keys = [1, 2, 3].map(|number| {
        let mut kv = ground.reserve(8);
        kv.map(0, 4 * g, &ground.props()).unwrap();
        kv.map(4 * g, 4 * g, &ground.props()).unwrap();
        kv.write(0, &pattern(number, 0, 8 * g)).unwrap();
        group.add(kv, "engine", Backup::Host).unwrap()
    });
    let [first, second, third] = keys.map(|key| key.id());
    group.suspend("engine").unwrap();
    // What is left is enough for the first, and for a half of the second.
    let free = ground.free();
    let taken = ground.props().create(free - 13 * g).unwrap();
    let before = ground.snapshot().unwrap();
    for _ in 0..2 {
        let stopped = group.resume(Select::All).unwrap_err();
        match &stopped.error {
            Error::OutOfMemory { size, .. } => assert_eq!(*size, 4 * g),
            other => panic!("{other:?}"),
        }
        assert_eq!(stopped.left, [second, third]);
        assert!(group.get(&keys[0]).is_ok());
        assert!(matches!(group.get(&keys[1]), Err(Error::Suspended { .. })));
    }
    let after = ground.snapshot().unwrap();
    assert_eq!(after.mappings.len(), before.mappings.len() + 2);
    assert_eq!(after.handles.len(), before.handles.len() + 2);
    taken.release().unwrap();
    let done = group.resume(Select::All).unwrap();
    assert_eq!(
        (done.members, done.already),
        (vec![second, third], vec![first])
    );
    for (key, number) in keys.iter().zip(1..) {
        let mut seen = vec![0; 8 * g];
        group.get(key).unwrap().read(0, &mut seen).unwrap();
        assert!(seen == pattern(number, 0, 8 * g));
    }
    group.close().unwrap();
}
