//! Memory that others hold: exports, holds, imports.

use std::os::fd::AsFd;

use cuda_vmm::share::SpanImport;
use cuda_vmm::sim::Simulation;
use cuda_vmm::suspend::{Backup, Group};
use cuda_vmm::{Access, Allocation, Error, HandleType, HandleTypes};

use crate::ground::Ground;
use crate::Case;

pub const CASES: &[Case] = &[
    (
        "exported memory is counted as held, and exported anew",
        exported_memory,
    ),
    (
        "a count that nobody knows of keeps the memory alone",
        a_foreign_count,
    ),
    ("an imported allocation sleeps and wakes", an_import),
];

/// Of a real driver fabric handles need an IMEX channel, and nothing else holds memory in the exporter.
pub const SIMULATED: &[Case] = &[("what holds the memory here refuses the sleep", held_here)];

fn exported_memory(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(4);
    let props = ground.props().shareable_as(HandleTypes::POSIX_FD);
    kv.map(0, g, &props).unwrap();
    kv.map(g, g, &props).unwrap();
    kv.write(0, b"first").unwrap();
    let span = kv
        .export_span(0, g, HandleType::PosixFd, Access::ReadWrite)
        .unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::Host).unwrap();
    let done = group.suspend(&key).unwrap();
    assert_eq!(
        (done.given_back, done.still_held, done.copied),
        (g, g, 2 * g)
    );
    let (bytes, fds, kept) = span.into_parts();
    group.resume(&key).unwrap();
    // The importer has the memory of before the sleep, and the member other memory with the same contents.
    let import = SpanImport::new(&bytes, fds).unwrap();
    drop(kept);
    let mut theirs = import
        .attach(&ground.driver, [(ground.device(), Access::ReadWrite)])
        .unwrap();
    let mut seen = [0; 5];
    theirs.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"first");
    theirs.write(0, b"third").unwrap();
    let kv = group.get(&key).unwrap();
    kv.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"first");
    theirs.close().unwrap();
    // It has another name by now, and is given back whole when it was not exported again.
    let done = group.suspend(&key).unwrap();
    assert_eq!((done.given_back, done.still_held), (2 * g, 0));
    group.resume(&key).unwrap();
    group.close().unwrap();
}

fn held_here(_: &Ground) {
    let sim = Simulation::builder().imex_channel(true).build().unwrap();
    let ground = &Ground::on(sim);
    let g = ground.g;
    let mut kv = ground.reserve(4);
    let props = ground.props().shareable_as(HandleTypes::FABRIC);
    kv.map(0, g, &props).unwrap();
    kv.map(2 * g, g, &props).unwrap();
    let span = kv
        .export_span(2 * g, g, HandleType::Fabric, Access::Read)
        .unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    let (calls, before) = (ground.calls(), ground.snapshot());
    let refused = group.suspend(&key).unwrap_err();
    match refused.error {
        Error::Held { tag, mapping } => assert_eq!((&*tag, mapping), ("cache", 2 * g..3 * g)),
        other => panic!("{other:?}"),
    }
    assert_eq!((ground.calls(), ground.snapshot()), (calls, before));
    drop(span);
    let done = group.suspend(&key).unwrap();
    assert_eq!((done.given_back, done.still_held), (g, g));
    group.resume(&key).unwrap();
    group.close().unwrap();
}

fn a_foreign_count(ground: &Ground) {
    let g = ground.g;
    let mut kv = ground.reserve(1);
    kv.map(0, g, &ground.props()).unwrap();
    kv.write(0, b"old").unwrap();
    let old = Allocation::retain(&ground.driver, kv.base()).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    group.suspend(&key).unwrap();
    group.resume(&key).unwrap();
    let mut seen = [1; 3];
    group.get(&key).unwrap().read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 3]);
    let mut other = ground.reserve(1);
    other.map_existing(0, &old).unwrap();
    other.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"old");
    other.close().unwrap();
    old.release().unwrap();
    group.close().unwrap();
}

fn an_import(ground: &Ground) {
    let g = ground.g;
    let props = ground.props().shareable_as(HandleTypes::POSIX_FD);
    let page = props.create(g).unwrap();
    let fd = page.export_fd().unwrap();
    let import = Allocation::import_fd(&ground.driver, fd.as_fd(), g).unwrap();
    drop(fd);
    let mut kv = ground.reserve(2);
    kv.map_existing(g, &import).unwrap();
    drop(import);
    kv.write(g, b"shared").unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "import", Backup::None).unwrap();
    let done = group.suspend(&key).unwrap();
    assert_eq!((done.given_back, done.still_held), (0, g));
    group.resume(&key).unwrap();
    let mut seen = [0; 6];
    group.get(&key).unwrap().read(g, &mut seen).unwrap();
    assert_eq!(&seen, b"shared");
    group.close().unwrap();
    page.release().unwrap();
}
