//! What cannot be meant: each mistake an error of its own, before any driver call, with nothing changed.

use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::suspend::{Backup, Group, Select};
use cuda_vmm::sys::Call;
use cuda_vmm::{Driver, Error, Reservation};

use crate::ground::Ground;
use crate::scene::{Pair, Scene};
use crate::Case;

pub const CASES: &[Case] = &[
    ("suspending twice by name", suspending_twice),
    (
        "resuming what was never suspended",
        resuming_what_was_never_suspended,
    ),
    (
        "keys of another group, and of members taken out",
        keys_that_name_nothing,
    ),
    ("a tag that nobody has", a_tag_that_nobody_has),
];

pub const SIMULATED: &[Case] = &[
    ("a member of another driver", a_member_of_another_driver),
    (
        "a member swapped for one of another driver",
        a_member_swapped_for_one_of_another_driver,
    ),
    ("a member with a quarantined mapping", a_quarantined_mapping),
];

/// Runs what must be refused, and gives the error as it is shown and as it is.
fn refused<T, E>(ground: &Ground, run: impl FnOnce() -> Result<T, E>) -> E {
    let before = (ground.calls(), ground.snapshot());
    let Err(error) = run() else {
        panic!("it was not refused");
    };
    assert_eq!((ground.calls(), ground.snapshot()), before);
    error
}

fn suspending_twice(ground: &Ground) {
    let mut pair = Pair::new(ground);
    pair.group.suspend("cache").unwrap();
    let outline = pair.group.outline(pair.dropped.id()).unwrap();
    let (base, size) = (outline.base(), outline.size());
    // Not even the other one is suspended, whichever is named first.
    let both = [pair.kept.id(), pair.dropped.id()];
    let error = refused(ground, || pair.group.suspend(&both));
    let tag = String::from("cache");
    let expected = Error::AlreadySuspended { tag, base, size };
    assert_eq!(format!("{:?}", error.error), format!("{expected:?}"));
    assert_eq!((error.left.len(), error.done.members.len()), (0, 0));
    let key = pair.dropped;
    let error = refused(ground, || pair.group.suspend(&key));
    assert_eq!(format!("{:?}", error.error), format!("{expected:?}"));
    assert_eq!(
        error.error.to_string(),
        format!(
            "\"cache\", {} MiB at {base:#x}, is suspended already",
            size >> 20
        )
    );
    pair.end(ground, true);
}

fn resuming_what_was_never_suspended(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let outline = pair.group.outline(pair.kept.id()).unwrap();
    let (base, size) = (outline.base(), outline.size());
    let key = pair.kept;
    let error = refused(ground, || pair.group.resume(&key));
    let tag = String::from("weights");
    let expected = Error::NotSuspended { tag, base, size };
    assert_eq!(format!("{:?}", error.error), format!("{expected:?}"));
    assert_eq!(
        error.error.to_string(),
        format!(
            "\"weights\", {} MiB at {base:#x}, is not suspended: there is nothing to resume",
            size >> 20
        )
    );
    pair.group.suspend("cache").unwrap();
    let both = [pair.dropped.id(), pair.kept.id()];
    let error = refused(ground, || pair.group.resume(&both));
    assert_eq!(format!("{:?}", error.error), format!("{expected:?}"));
    assert!(pair.group.is_suspended(pair.dropped.id()).unwrap());
    pair.end(ground, true);
}

fn keys_that_name_nothing(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let mut other = Group::new(&ground.driver);
    let theirs = other.add(ground.reserve(1), "cache", Backup::None).unwrap();
    let nobody = |error: &Error| assert!(matches!(error, Error::NoSuchMember), "{error:?}");
    nobody(&refused(ground, || pair.group.suspend(&theirs)).error);
    nobody(&refused(ground, || pair.group.resume(&theirs)).error);
    nobody(&refused(ground, || pair.group.get(&theirs).map(drop)));
    nobody(&refused(ground, || pair.group.get_mut(&theirs).map(drop)));
    nobody(&refused(ground, || pair.group.remove(&theirs).map(drop)));
    nobody(&refused(ground, || {
        pair.group.outline(theirs.id()).map(drop)
    }));
    nobody(&refused(ground, || pair.group.is_suspended(theirs.id())));
    nobody(&refused(ground, || {
        pair.group.set_backup(theirs.id(), Backup::Host)
    }));
    let kv = other.remove(&theirs).unwrap();
    nobody(&refused(ground, || other.get(&theirs).map(drop)));
    // Taken in again it is another member.
    let again = other.add(kv, "cache", Backup::None).unwrap();
    assert_ne!(again.id(), theirs.id());
    nobody(&refused(ground, || other.suspend(&theirs)).error);
    other.close().unwrap();
    pair.group.suspend(Select::All).unwrap();
    pair.end(ground, true);
}

fn a_tag_that_nobody_has(ground: &Ground) {
    let mut pair = Pair::new(ground);
    let error = refused(ground, || pair.group.suspend("weight"));
    assert_eq!(
        error.to_string(),
        "no member of the group has the tag \"weight\""
    );
    let error = refused(ground, || pair.group.resume("weight"));
    assert_eq!(
        error.to_string(),
        "no member of the group has the tag \"weight\""
    );
    // What `?` makes of it.
    let error = Error::from(error);
    assert!(matches!(error, Error::NoSuchTag { tag } if tag == "weight"));
    pair.end(ground, false);
}

fn a_member_of_another_driver(ground: &Ground) {
    let other = Driver::simulated(&Simulation::new()).unwrap();
    let mut group = Group::new(&other);
    let kv = ground.reserve(1);
    let base = kv.base();
    let error = refused(ground, || group.add(kv, "cache", Backup::None));
    assert!(matches!(error.error, Error::ForeignDriver));
    assert_eq!(error.member.base(), base);
    assert_eq!(group.members().count(), 0);
    error.member.close().unwrap();
}

fn a_member_swapped_for_one_of_another_driver(ground: &Ground) {
    let other = Driver::simulated(&Simulation::new()).unwrap();
    let mut foreign = Reservation::builder(ground.g).reserve(&other).unwrap();
    let mut group = Group::new(&ground.driver);
    let key = group
        .add(Scene::new(ground, 1).kv, "cache", Backup::Host)
        .unwrap();
    std::mem::swap(group.get_mut(&key).unwrap(), &mut foreign);
    let error = refused(ground, || group.suspend(&key));
    assert!(matches!(error.error, Error::ForeignDriver));
    assert!(!group.is_suspended(key.id()).unwrap());
    std::mem::swap(group.get_mut(&key).unwrap(), &mut foreign);
    group.suspend(&key).unwrap();
    group.close().unwrap();
    foreign.close().unwrap();
}

fn a_quarantined_mapping(ground: &Ground) {
    let sim = ground.sim.as_ref().unwrap();
    let g = ground.g;
    let mut kv = Scene::new(ground, 1).kv;
    for call in [Call::cuMemSetAccess, Call::cuMemUnmap] {
        sim.inject(Fault::on(call)).unwrap();
    }
    kv.map(14 * g, g, &ground.props()).unwrap_err();
    assert_eq!(kv.quarantined(), 1);
    let mut group = Group::new(&ground.driver);
    let key = group.add(kv, "cache", Backup::None).unwrap();
    let error = refused(ground, || group.suspend(&key));
    match error.error {
        Error::Quarantined { mapping } => assert_eq!(mapping, 14 * g..15 * g),
        other => panic!("{other:?}"),
    }
    group.get_mut(&key).unwrap().unmap_range(14 * g, g).unwrap();
    group.suspend(&key).unwrap();
    group.close().unwrap();
}
