//! The shape comes back: backings, mirrors, rights, ids, kinds of memory.

use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::{Access, AllocationProps, BackingKind, HandleTypes, Location, Reservation};

use crate::ground::Ground;
use crate::scene::{pattern, Pair};
use crate::Case;

pub const CASES: &[Case] = &[
    ("every kind of mapping wakes as it was", every_kind),
    ("a ring stays a ring", a_ring_stays_a_ring),
    ("ids unmap what they name", ids_unmap_what_they_name),
    (
        "rights of the policy changed asleep to awake",
        rights_beyond_the_policy,
    ),
    (
        "memory is made with the same properties",
        the_same_properties,
    ),
    ("memory of the host sleeps too", memory_of_the_host),
    ("a page in two members wakes in both", a_page_in_two_members),
];

fn every_kind(ground: &Ground) {
    let mut pair = Pair::new(ground);
    for _ in 0..3 {
        pair.group.suspend(Select::All).unwrap();
        pair.group.resume(Select::All).unwrap();
        pair.intact(ground, true);
    }
    // What was given up is given up again: the driver alone keeps it, by the mapping.
    if let Some(snapshot) = ground.snapshot() {
        let by_mapping = snapshot.handles.iter().filter(|handle| handle.count == 0);
        assert_eq!(by_mapping.count(), 2);
    }
    pair.end(ground, true);
}

fn a_ring_stays_a_ring(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(4);
    let page = ground.props().create(g).unwrap();
    kv.map_existing(0, &page).unwrap();
    kv.map_existing(g, &page).unwrap();
    drop(page);
    kv.write(g - 4, b"seamless").unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "ring", Backup::None).unwrap();
    let done = group.suspend(&key).unwrap();
    // The page is the caller's kind of memory, although nobody but the mappings holds it.
    assert_eq!((done.given_back, done.still_held), (0, g));
    group.resume(&key).unwrap();
    let kv = group.get_mut(&key).unwrap();
    let mut start = [0; 4];
    kv.read(0, &mut start).unwrap();
    assert_eq!(&start, b"less");
    kv.write(2 * g - 4, b"next").unwrap();
    kv.read(g - 4, &mut start).unwrap();
    assert_eq!(&start, b"next");
    group.close().unwrap();
}

fn ids_unmap_what_they_name(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(8);
    let props = ground.props();
    let first = kv.map(0, g, &props).unwrap();
    let second = kv.map(2 * g, 2 * g, &props).unwrap();
    let given_up = kv.map_releasing(5 * g, g, &props).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let kv = group.get_mut(&key).unwrap();
    kv.unmap(second).unwrap();
    assert_eq!(kv.mapping(&first).unwrap().range(), 0..g);
    assert_eq!(
        kv.mapping(&given_up).unwrap().backing(),
        BackingKind::GivenUp
    );
    kv.unmap(given_up).unwrap();
    kv.unmap(first).unwrap();
    assert_eq!(kv.mapping_count(), 0);
    group.close().unwrap();
}

fn rights_beyond_the_policy(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(4);
    kv.map(0, g, &ground.props()).unwrap();
    kv.map(g, g, &ground.props()).unwrap();
    kv.write(0, &pattern(3, 0, 2 * g)).unwrap();
    kv.set_access(g, g, ground.device(), Access::Read).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::Host).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let kv = group.get_mut(&key).unwrap();
    let device = ground.device();
    assert_eq!(kv.access_of(0, device).unwrap(), Access::ReadWrite);
    assert_eq!(kv.access_of(g, device).unwrap(), Access::Read);
    // The policy is what it was, for what is mapped later and for a grant.
    kv.map(3 * g, g, &ground.props()).unwrap();
    assert_eq!(kv.access_of(3 * g, device).unwrap(), Access::ReadWrite);
    if let Some(peer) = ground.peer() {
        kv.set_policy(peer, Access::Read).unwrap();
        group.suspend(&key).unwrap();
        group.resume(&key).unwrap();
        let kv = group.get(&key).unwrap();
        for at in [0, g, 3 * g] {
            assert_eq!(kv.access_of(at, peer).unwrap(), Access::Read);
        }
        assert_eq!(kv.access_of(g, device).unwrap(), Access::Read);
    }
    let mut seen = vec![0; 2 * g];
    group.get(&key).unwrap().read(0, &mut seen).unwrap();
    assert!(seen == pattern(3, 0, 2 * g));
    group.close().unwrap();
}

fn the_same_properties(ground: &Ground) {
    let g = ground.g;
    let all = [
        ground.props().shareable_as(HandleTypes::POSIX_FD),
        ground.props().compression(true),
        ground.props().rdma(true),
    ];
    let mut kv = ground.reserve(4);
    for (at, props) in all.iter().enumerate() {
        kv.map(at * g, g, props).unwrap();
    }
    let granted = |kv: &Reservation| {
        let ask = |at: usize| {
            let address = kv.base() + (at * g) as u64;
            let memory = cuda_vmm::Allocation::retain(&ground.driver, address).unwrap();
            let granted = memory.granted().unwrap();
            let (rdma, compression) = (granted.is_rdma(), granted.is_compressible());
            (granted.handle_types(), rdma, compression)
        };
        [ask(0), ask(1), ask(2)]
    };
    let before = granted(&kv);
    assert_eq!(before[0].0, HandleTypes::POSIX_FD);
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    assert_eq!(granted(group.get(&key).unwrap()), before);
    group.close().unwrap();
}

fn memory_of_the_host(ground: &Ground) {
    let g = ground.g;
    let props = AllocationProps::on_host_numa(&ground.driver, 0);
    if props.create(g).is_err() {
        println!("SKIPPED: this machine has no host memory to create");
        return;
    }
    // The host may do everything, only read, or nothing; the device reads and writes.
    for host in [Access::ReadWrite, Access::Read, Access::None] {
        let mut kv = Reservation::builder(4 * g)
            .access(ground.device(), Access::ReadWrite)
            .reserve(&ground.driver)
            .unwrap();
        for at in 0..3 {
            kv.map(at * g, g, &props).unwrap();
        }
        kv.write(0, &pattern(5, 0, 3 * g)).unwrap();
        if host.reads() {
            kv.set_access(0, 3 * g, Location::HostNuma(0), host)
                .unwrap();
        }
        let mut group = Group::new(&ground.driver).host_block(4 << 20);
        let key = group.add(kv, "host", Backup::Host).unwrap();
        let done = group.suspend(&key).unwrap();
        assert_eq!((done.given_back, done.copied), (3 * g, 3 * g));
        group.resume(&key).unwrap();
        let kv = group.get(&key).unwrap();
        let mut seen = vec![0; 3 * g];
        kv.read(0, &mut seen).unwrap();
        assert!(seen == pattern(5, 0, 3 * g), "the host has {host}");
        let granted = kv.access_of(2 * g, Location::HostNuma(0)).unwrap();
        assert_eq!(granted, host);
        let granted = kv.access_of(2 * g, ground.device()).unwrap();
        assert_eq!(granted, Access::ReadWrite);
        group.close().unwrap();
    }
}

fn a_page_in_two_members(ground: &Ground) {
    let g = ground.g;
    let page = ground.props().create(g).unwrap();
    let mut group = Group::new(&ground.driver);
    let keys = ["first", "second"].map(|tag| {
        let mut kv = ground.reserve(2);
        kv.map_existing(g, &page).unwrap();
        group.add(kv, tag, Backup::Host).unwrap()
    });
    let first = group.get_mut(&keys[0]).unwrap();
    first.write(g, b"both").unwrap();
    let done = group.suspend(&keys[0]).unwrap();
    assert_eq!((done.given_back, done.still_held, done.copied), (0, g, 0));
    // The other member sees the page all the while.
    let mut seen = [0; 4];
    group.get(&keys[1]).unwrap().read(g, &mut seen).unwrap();
    assert_eq!(&seen, b"both");
    let second = group.get_mut(&keys[1]).unwrap();
    second.write(g, b"seen").unwrap();
    group.resume(&keys[0]).unwrap();
    group.get(&keys[0]).unwrap().read(g, &mut seen).unwrap();
    assert_eq!(&seen, b"seen");
    group.close().unwrap();
}
