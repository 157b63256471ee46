//! Elastic ranges as members: what is committed stays so, the cache goes.

use cuda_vmm::sim::Fault;
use cuda_vmm::suspend::{Backup, Group, Key};
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, ElasticRange, Error};

use crate::ground::Ground;
use crate::scene::pattern;
use crate::Case;

pub const CASES: &[Case] = &[
    (
        "an elastic range wakes with what is committed",
        wakes_with_what_is_committed,
    ),
    (
        "an elastic range without a backup reads as zero",
        without_a_backup,
    ),
    (
        "an elastic range grows and shrinks after a sleep",
        grows_and_shrinks,
    ),
    ("ranges and reservations sleep together", together),
];

pub const SIMULATED: &[Case] = &[(
    "a cache that is not released keeps the range awake",
    a_stuck_cache,
)];

fn range(ground: &Ground) -> ElasticRange {
    let g = ground.g;
    let mut range = ElasticRange::builder(32 * g, &ground.props())
        .access(ground.device(), Access::ReadWrite)
        .blocks(g..=4 * g)
        .cache(8 * g)
        .reserve()
        .unwrap();
    // Blocks of 4 and 2 granules, 1 granule apart, and one of 4 in the cache.
    range.commit(0, 6 * g).unwrap();
    range.commit(9 * g, g).unwrap();
    range.commit(16 * g, 4 * g).unwrap();
    range.decommit(16 * g, 4 * g).unwrap();
    assert_eq!(
        (range.committed_bytes(), range.cached_bytes()),
        (7 * g, 4 * g)
    );
    range.write(0, &pattern(1, 0, 6 * g)).unwrap();
    range.write(9 * g, &pattern(1, 9, g)).unwrap();
    range
}

fn grouped(ground: &Ground, backup: Backup) -> (Group, Key<ElasticRange>) {
    let mut group = Group::new(&ground.driver);
    let key = group.add(range(ground), "kv", backup).unwrap();
    (group, key)
}

fn read(range: &ElasticRange, at: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![1; size];
    range.read(at, &mut bytes).unwrap();
    bytes
}

fn wakes_with_what_is_committed(ground: &Ground) {
    let g = ground.g;
    let (mut group, key) = grouped(ground, Backup::Host);
    let runs: Vec<_> = group.get(&key).unwrap().runs().collect();
    assert_eq!(runs, [0..6 * g, 9 * g..10 * g]);
    for cycle in 0..3 {
        let done = group.suspend(&key).unwrap();
        // The cache goes with the first sleep.
        let cached = if cycle == 0 { 4 * g } else { 0 };
        assert_eq!((done.given_back, done.copied), (7 * g + cached, 7 * g));
        let refused = group.get(&key).map(drop);
        assert!(matches!(refused, Err(Error::Suspended { .. })));
        assert_eq!(group.outline(key.id()).unwrap().mapped_bytes(), 7 * g);
        if let Some(snapshot) = ground.snapshot() {
            assert_eq!((snapshot.mappings, snapshot.handles), (vec![], vec![]));
        }
        group.resume(&key).unwrap();
        let range = group.get(&key).unwrap();
        assert_eq!(range.runs().collect::<Vec<_>>(), runs);
        assert_eq!((range.retained_bytes(), range.cached_bytes()), (7 * g, 0));
        assert!(read(range, 0, 6 * g) == pattern(1, 0, 6 * g));
        assert!(read(range, 9 * g, g) == pattern(1, 9, g));
    }
    group.close().unwrap();
}

fn without_a_backup(ground: &Ground) {
    let g = ground.g;
    let (mut group, key) = grouped(ground, Backup::None);
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let range = group.get(&key).unwrap();
    assert_eq!(range.committed_bytes(), 7 * g);
    assert!(read(range, 0, 6 * g) == vec![0; 6 * g]);
    group.close().unwrap();
}

fn grows_and_shrinks(ground: &Ground) {
    let g = ground.g;
    let (mut group, key) = grouped(ground, Backup::Host);
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let range = group.get_mut(&key).unwrap();
    range.decommit(0, 4 * g).unwrap();
    assert_eq!(range.cached_bytes(), 4 * g);
    range.commit(20 * g, 4 * g).unwrap();
    assert_eq!(
        range.cached_bytes(),
        0,
        "a block that woke is cached and used again"
    );
    range.resize(10 * g).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let range = group.get(&key).unwrap();
    assert_eq!(range.len(), 10 * g);
    assert!(read(range, 9 * g, g) == pattern(1, 9, g));
    let range = group.remove(&key).unwrap();
    range.close().unwrap();
    group.close().unwrap();
}

fn together(ground: &Ground) {
    let g = ground.g;
    let (mut group, range) = grouped(ground, Backup::Host);
    let mut kv = ground.reserve(4);
    kv.map(g, 2 * g, &ground.props()).unwrap();
    kv.write(g, &pattern(2, 1, 2 * g)).unwrap();
    let kv = group.add(kv, "kv", Backup::Host).unwrap();
    let done = group.suspend("kv").unwrap();
    assert_eq!(done.members, [range.id(), kv.id()]);
    assert_eq!((done.given_back, done.copied), (13 * g, 9 * g));
    group.resume(&[kv.id()]).unwrap();
    group.resume("kv").unwrap();
    let mut seen = vec![0; 2 * g];
    group.get(&kv).unwrap().read(g, &mut seen).unwrap();
    assert!(seen == pattern(2, 1, 2 * g));
    let seen = read(group.get(&range).unwrap(), 0, 6 * g);
    assert!(seen == pattern(1, 0, 6 * g));
    group.close().unwrap();
}

fn a_stuck_cache(ground: &Ground) {
    let g = ground.g;
    let sim = ground.sim.as_ref().unwrap();
    let (mut group, key) = grouped(ground, Backup::Host);
    // Its contexts and the like are there.
    group
        .get_mut(&key)
        .unwrap()
        .write(0, &pattern(1, 0, g))
        .unwrap();
    let before = sim.snapshot();
    sim.inject(Fault::on(Call::cuMemRelease)).unwrap();
    let stopped = group.suspend(&key).unwrap_err();
    assert_eq!(stopped.left, [key.id()]);
    assert_eq!(stopped.error.code(), Some(cuda_vmm::Code::ERROR_UNKNOWN));
    assert_eq!(sim.snapshot(), before);
    assert_eq!(group.get(&key).unwrap().cached_bytes(), 4 * g);
    assert_eq!(group.suspend(&key).unwrap().given_back, 11 * g);
    group.resume(&key).unwrap();
    assert!(read(group.get(&key).unwrap(), 0, 6 * g) == pattern(1, 0, 6 * g));
    group.close().unwrap();
}
