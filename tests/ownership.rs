//! The ownership invariants, one test each, by number: who owns what, and when it is given back.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::sync::{Arc, Mutex};

use cuda_vmm::sim::{CallRecord, Fault, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{
    Allocation, AllocationProps, Code, Error, Leak, Location, Mapping, Origin, Reservation,
};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/rig.rs"]
mod rig;

use rig::{Rig, G};

/// Does not compile for a type that is `Clone` (as every `Copy` type is): the item is then ambiguous.
macro_rules! cannot_be_cloned {
    ($($type:ty),*) => {$({
        trait Ambiguous<A> {
            fn item() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + Clone> Ambiguous<u8> for T {}
        <$type as Ambiguous<_>>::item();
    })*};
}

fn word(record: &CallRecord, name: &str) -> u64 {
    match record.arg(name) {
        Some(Value::Word(word)) => *word,
        Some(Value::Size(size)) => *size as u64,
        other => panic!("{name} of {record} is {other:?}"),
    }
}

/// The calls that give something back, each with what: an address or a handle.
fn given_back(log: &[CallRecord]) -> Vec<(Call, u64)> {
    log.iter()
        .filter_map(|record| match record.call {
            Call::cuMemUnmap | Call::cuMemAddressFree => {
                Some((record.call, word(record, "address")))
            }
            Call::cuMemRelease => Some((record.call, word(record, "handle"))),
            _ => None,
        })
        .collect()
}

/// Three mappings, made in another order than that of their offsets: own, of a page that is dropped, own.
fn three(rig: &Rig) -> (Reservation, [(u64, u64); 3]) {
    let mut kv = rig.reserve(8);
    let page = rig.props().create(G).unwrap();
    kv.map(4 * G, 2 * G, &rig.props()).unwrap();
    kv.map_existing(0, &page).unwrap();
    kv.map(2 * G, G, &rig.props()).unwrap();
    let snapshot = rig.sim.snapshot();
    let made = [4 * G, 0, 2 * G].map(|offset| {
        let at = kv.base() + offset as u64;
        let mapping = snapshot
            .mappings
            .iter()
            .find(|mapping| mapping.address == at);
        (at, mapping.expect("it is mapped").handle)
    });
    (kv, made)
}

/// What gives those three back: the last first, each unmapped and then released, the addresses at the end.
fn in_reverse(base: u64, made: [(u64, u64); 3]) -> Vec<(Call, u64)> {
    let both = |(at, handle)| [(Call::cuMemUnmap, at), (Call::cuMemRelease, handle)];
    let mut calls: Vec<_> = made.into_iter().rev().flat_map(both).collect();
    calls.push((Call::cuMemAddressFree, base));
    calls
}

#[test]
fn invariant_1_an_allocation_is_one_count_released_once() {
    cannot_be_cloned!(Allocation, Mapping, Reservation, cuda_vmm::MappingId);
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let created = rig.props().create(G).unwrap();
    let handle = created.raw();
    kv.map_existing(0, &created).unwrap();
    kv.map_existing(G, &created).unwrap();
    let retained = Allocation::retain(&rig.driver, kv.base()).unwrap();
    assert_eq!(retained.raw(), handle, "the driver gives the same handle");
    let other = rig.props().create(2 * G).unwrap().into_raw().unwrap();
    let raw = unsafe { Allocation::from_raw(&rig.driver, other, 2 * G) }.unwrap();
    let known = [&created, &retained, &raw].map(|page| (page.origin(), page.size()));
    assert_eq!(
        known,
        [
            (Origin::Created, G),
            (Origin::Retained, G),
            (Origin::Raw, 2 * G)
        ]
    );
    let counts: Vec<_> = rig
        .sim
        .snapshot()
        .handles
        .iter()
        .map(|of| of.count)
        .collect();
    assert_eq!(counts, [2, 1], "created and retained; the raw one");

    rig.sim.clear_log();
    drop(created);
    raw.release().unwrap();
    kv.close().unwrap();
    drop(retained);
    let released: Vec<_> = given_back(&rig.sim.log())
        .into_iter()
        .filter(|(call, _)| *call == Call::cuMemRelease)
        .map(|(_, handle)| handle)
        .collect();
    assert_eq!(released, [other, handle, handle], "once for each count");
    rig.leaves_nothing();
}

#[test]
fn invariant_2_addresses_are_freed_as_they_were_reserved_and_only_when_empty() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    kv.map(0, 8 * G, &rig.props()).unwrap();
    let (base, size) = (kv.base(), kv.size());
    rig.sim.clear_log();
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let failed = kv.close().unwrap_err();
    let freed = || {
        let log = rig.sim.log();
        let frees = log
            .iter()
            .filter(|record| record.call == Call::cuMemAddressFree);
        frees
            .map(|record| (word(record, "address"), word(record, "size") as usize))
            .collect::<Vec<_>>()
    };
    assert_eq!(freed(), [], "a mapping is left");
    failed.reservation.into_inner().close().unwrap();
    assert_eq!(freed(), [(base, size)]);
    rig.leaves_nothing();
}

#[test]
fn invariant_3_mappings_go_in_reverse_unmapped_then_released_then_the_addresses() {
    let rig = Rig::new();
    let (kv, made) = three(&rig);
    let base = kv.base();
    rig.sim.clear_log();
    kv.close().unwrap();
    assert_eq!(given_back(&rig.sim.log()), in_reverse(base, made));

    // A share of the caller's allocation is given back to the caller.
    let mut kv = rig.reserve(1);
    let page = rig.props().create(G).unwrap();
    kv.map_existing(0, &page).unwrap();
    let base = kv.base();
    rig.sim.clear_log();
    kv.close().unwrap();
    let calls = [(Call::cuMemUnmap, base), (Call::cuMemAddressFree, base)];
    assert_eq!(given_back(&rig.sim.log()), calls);
    page.release().unwrap();
    rig.leaves_nothing();
}

#[test]
fn invariant_4_a_failed_close_gives_the_reservation_back_with_what_is_still_mapped() {
    let rig = Rig::new();
    let (kv, made) = three(&rig);
    let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
    rig.sim
        .inject(Fault::on(Call::cuMemUnmap).nth(2).code(code))
        .unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap).nth(3)).unwrap();
    let failed = kv.close().unwrap_err();
    let codes = [&failed.error, &failed.further[0]].map(Error::code);
    assert_eq!(
        codes,
        [Some(Code::ERROR_NOT_PERMITTED), Some(Code::ERROR_UNKNOWN)]
    );
    assert_eq!(failed.further.len(), 1);
    let left = failed.reservation.into_inner();
    let addresses: Vec<_> = left.mappings().map(Mapping::address).collect();
    assert_eq!(addresses, [made[1].0, made[0].0]);

    // The other form of the end hands over instead of releasing.
    let kept = left.close_keeping().unwrap();
    let handles: Vec<_> = kept
        .iter()
        .map(|(offset, page)| (*offset, page.raw()))
        .collect();
    assert_eq!(handles, [(4 * G, made[0].1), (0, made[1].1)]);
    drop(kept);
    rig.leaves_nothing();
}

#[test]
fn invariant_5_drop_does_the_same_and_tells_of_what_it_leaks() {
    let rig = Rig::new();
    let (kv, made) = three(&rig);
    let base = kv.base();
    rig.sim.clear_log();
    drop(kv);
    assert_eq!(given_back(&rig.sim.log()), in_reverse(base, made));

    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = told.clone();
    cuda_vmm::set_leak_hook(move |leak: &Leak| telling.lock().unwrap().push(leak.to_string()));
    let (kv, made) = three(&rig);
    let unmap = Fault::on(Call::cuMemUnmap).nth(2);
    rig.sim
        .inject(unmap.code(CUresult::CUDA_ERROR_NOT_PERMITTED))
        .unwrap();
    rig.sim.clear_log();
    drop(kv);
    let at = made[1].0;
    assert_eq!(
        *told.lock().unwrap(),
        [format!(
            "leaked the mapping of 2097152 bytes (2 MiB) at {at:#x} and the addresses around it: \
             cuMemUnmap (2097152 bytes (2 MiB) at {at:#x}) failed with CUDA_ERROR_NOT_PERMITTED (800)"
        )]
    );
    // Tried once; its handle released, since that frees nothing that is mapped; the addresses left alone.
    assert_eq!(
        given_back(&rig.sim.log()),
        [
            (Call::cuMemUnmap, made[2].0),
            (Call::cuMemRelease, made[2].1),
            (Call::cuMemUnmap, made[1].0),
            (Call::cuMemUnmap, made[0].0),
            (Call::cuMemRelease, made[0].1),
            (Call::cuMemRelease, made[1].1),
        ]
    );

    // A driver that is gone is no leak; tests/process has the forked child.
    let (kv, _) = three(&rig);
    told.lock().unwrap().clear();
    rig.sim.deinitialize();
    drop(kv);
    assert_eq!(*told.lock().unwrap(), [""; 0]);
    cuda_vmm::reset_leak_hook();
}

#[test]
fn invariant_6_what_a_call_made_is_owned_before_the_next_call() {
    // (what makes something, what is called next): the next fails, and what was made is given back.
    type Made = fn(&Rig, &mut Reservation) -> Result<(), Error>;
    let cases: [(Call, Call, Made); 4] = [
        (Call::cuMemCreate, Call::cuMemMap, |rig, kv| {
            kv.map(G, G, &rig.props()).map(drop)
        }),
        (Call::cuMemMap, Call::cuMemSetAccess, |rig, kv| {
            kv.map(G, G, &rig.props()).map(drop)
        }),
        (
            Call::cuMemRetainAllocationHandle,
            Call::cuMemGetAllocationPropertiesFromHandle,
            |rig, kv| Allocation::retain(&rig.driver, kv.base()).map(drop),
        ),
        (
            Call::cuDevicePrimaryCtxRetain,
            Call::cuCtxPushCurrent_v2,
            |rig, _| rig.device().make_current().map(drop),
        ),
    ];
    for (makes, next, run) in cases {
        let rig = Rig::new();
        let mut kv = rig.reserve(2);
        kv.map(0, G, &rig.props()).unwrap();
        let before = rig.sim.snapshot();
        rig.sim.clear_log();
        rig.sim.inject(Fault::on(next)).unwrap();
        let error = run(&rig, &mut kv).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN), "{next}");
        let calls: Vec<_> = rig.sim.log().iter().map(|record| record.call).collect();
        let made = calls
            .iter()
            .position(|call| *call == makes)
            .expect("it was made");
        assert_eq!(calls[made + 1], next);
        assert_eq!(rig.sim.snapshot(), before, "{makes} was lost");
        kv.close().unwrap();
        rig.leaves_nothing();
    }
}

#[test]
fn invariant_7_all_or_nothing_undone_in_reverse_and_what_cannot_be_undone_is_kept() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    let before = rig.sim.snapshot();
    rig.sim.clear_log();
    let refused = Fault::on(Call::cuMemSetAccess).code(CUresult::CUDA_ERROR_NOT_PERMITTED);
    rig.sim.inject(refused).unwrap();
    kv.map(0, G, &rig.props()).unwrap_err();
    let calls: Vec<_> = rig.sim.log().iter().map(|record| record.call).collect();
    assert_eq!(
        calls,
        [
            Call::cuMemCreate,
            Call::cuMemMap,
            Call::cuMemSetAccess,
            Call::cuMemUnmap,
            Call::cuMemRelease,
        ]
    );
    assert_eq!(rig.sim.snapshot(), before);

    rig.sim.inject(refused).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let error = kv.map(0, G, &rig.props()).unwrap_err();
    assert_eq!(
        error.code(),
        Some(Code::ERROR_NOT_PERMITTED),
        "the first stays the first"
    );
    let undo: Vec<_> = error.undo_failures().iter().map(Error::code).collect();
    assert_eq!(undo, [Some(Code::ERROR_UNKNOWN)]);
    let left = kv.mapping_at(0).expect("what could not be undone is kept");
    assert!(left.is_quarantined());
    assert_eq!(kv.quarantined(), 1);
    // It is in the way, and of no use.
    let error = kv.map(0, G, &rig.props()).unwrap_err();
    assert!(matches!(error, Error::Overlap { existing, .. } if existing == (0..G)));
    let error = kv.write(0, &[1]).unwrap_err();
    assert!(matches!(error, Error::Quarantined { mapping } if mapping == (0..G)));
    // Unmapped by hand, or by the close.
    kv.unmap_range(0, G).unwrap();
    assert_eq!((kv.quarantined(), rig.sim.snapshot()), (0, before));
    kv.close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn invariant_8_no_error_is_reported_by_a_later_call() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    let props: AllocationProps = rig.props();
    kv.map(7 * G, G, &props).unwrap();
    // An operation fails, and so does its undoing, as badly as can be.
    rig.sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
    rig.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    kv.map(6 * G, G, &props).unwrap_err();
    rig.sim
        .inject(Fault::on(Call::cuMemRelease).times(2))
        .unwrap();
    rig.driver.is_vmm(kv.base() + 7 * G as u64).unwrap_err();

    // Everything else goes on as if nothing had been.
    let here = Location::Device(0);
    let id = kv.map(0, G, &props).unwrap();
    kv.map_releasing(G, G, &props).unwrap();
    let page = props.create(G).unwrap();
    kv.map_existing(2 * G, &page).unwrap();
    kv.write(0, b"fine").unwrap();
    kv.copy_within(G, 0, 4).unwrap();
    kv.set_access(G, G, here, cuda_vmm::Access::Read).unwrap();
    kv.set_policy(here, cuda_vmm::Access::ReadWrite).unwrap();
    kv.access_of(0, here).unwrap();
    assert!(rig.driver.is_vmm(kv.base()).unwrap());
    kv.unmap(id).unwrap();
    kv.unmap_range(G, 2 * G).unwrap();
    rig.reserve(1).close().unwrap();
    page.release().unwrap();
    kv.close().unwrap();
    assert_eq!(rig.driver.reclaim().unwrap(), 1);
    drop(props);
    rig.leaves_nothing();
}
