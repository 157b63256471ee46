//! Handles, and what they lead to.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{
    Access, Allocation, AllocationProps, Code, HandleType, HandleTypes, Location, Reservation,
};

use crate::case::Case;
use crate::contradictions::disagrees;
use crate::liar::{furnished, Liar, G};

use super::ends_well;

pub const CASES: &[Case] = &[
    Case::sim("a created handle that is none", create_gives_no_handle),
    Case::sim("a retained handle that is none", retain_gives_no_handle),
    Case::sim(
        "another handle at a mapping than was mapped",
        retain_gives_another_handle,
    ),
    Case::sim(
        "another handle than was mapped, of what is to be exported",
        export_gets_another_handle,
    ),
    Case::sim("memory on a device that is not there", memory_on_no_device),
    Case::sim(
        "memory in a place that only a newer driver knows",
        memory_in_an_unknown_place,
    ),
];

fn create_gives_no_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    let props = AllocationProps::on(&driver.device(0).unwrap());
    liar.answers(Call::cuMemCreate, 0);
    let (ours, theirs) = (
        "cuMemCreate gives a handle when it succeeds",
        "says SUCCESS and gives 0",
    );
    disagrees(&props.create(G).unwrap_err(), ours, theirs);
    disagrees(&kv.map(G, G, &props).unwrap_err(), ours, theirs);
    // There is nothing to release, and nothing was mapped.
    assert_eq!(
        (
            liar.sim.calls_of(Call::cuMemRelease),
            liar.sim.calls_of(Call::cuMemMap)
        ),
        (0, 1)
    );
    assert_eq!((kv.mapping_count(), driver.quarantined()), (1, 0));
    liar.tells_the_truth();
    kv.map(G, G, &props).unwrap();
    kv.close().unwrap();
}

fn retain_gives_no_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let kv = furnished(&driver);
    liar.answers(Call::cuMemRetainAllocationHandle, 0);
    let (ours, theirs) = (
        "cuMemRetainAllocationHandle gives a handle when it succeeds",
        "says SUCCESS and gives 0",
    );
    disagrees(
        &Allocation::retain(&driver, kv.base()).unwrap_err(),
        ours,
        theirs,
    );
    disagrees(&driver.is_vmm(kv.base()).unwrap_err(), ours, theirs);
    assert_eq!(liar.sim.calls_of(Call::cuMemRelease), 0);
    kv.close().unwrap();
}

fn retain_gives_another_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let mut kv = furnished(&driver);
    let props = AllocationProps::on(&driver.device(0).unwrap());
    let (mapped, other) = (
        liar.sim.snapshot().handles[0].handle,
        props.create(G).unwrap(),
    );
    let other = other.into_raw().unwrap();
    liar.sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    liar.answers(Call::cuMemRetainAllocationHandle, other.into());
    let error = kv.unmap(kv.id_at(0).unwrap()).unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN));
    let [undo] = error.undo_failures() else {
        panic!("{error:?}");
    };
    disagrees(
        undo,
        &format!("handle {mapped:#x} is mapped at {:#x}", kv.base()),
        &format!("gives {other:#x} for that address"),
    );
    assert_eq!(kv.quarantined(), 1);
    // The count that was given is the mapping's own now, and goes with it.
    liar.sim.clear_log();
    kv.close().unwrap();
    let snapshot = liar.sim.snapshot();
    let counts: Vec<_> = snapshot
        .handles
        .iter()
        .map(|of| (of.handle, of.count))
        .collect();
    assert_eq!(
        counts,
        [(mapped, 1)],
        "the one that the driver took and did not tell of"
    );
}

fn export_gets_another_handle() {
    let liar = Liar::new();
    let driver = liar.driver();
    let props = AllocationProps::on(&driver.device(0).unwrap()).shareable_as(HandleTypes::POSIX_FD);
    let mut kv = Reservation::builder(G).reserve(&driver).unwrap();
    kv.map(0, G, &props).unwrap();
    let mapped = liar.sim.snapshot().handles[0].handle;
    let other = props.create(G).unwrap().into_raw().unwrap();
    liar.answers(Call::cuMemRetainAllocationHandle, other.into());
    let error = kv
        .export_span(0, G, HandleType::PosixFd, Access::Read)
        .unwrap_err();
    disagrees(
        &error,
        &format!("handle {mapped:#x} is mapped at {:#x}", kv.base()),
        &format!("gives {other:#x} for that address"),
    );
    // Nothing was exported, and the count that was given is given back.
    let exported = Call::cuMemExportToShareableHandle;
    assert_eq!(liar.sim.calls_of(exported), 0);
    let handles = liar.sim.snapshot().handles;
    let counts: Vec<_> = handles.iter().map(|of| (of.handle, of.count)).collect();
    assert_eq!(counts, [(mapped, 2)]);
    kv.close().unwrap();
}

fn memory_on_no_device() {
    for id in [1, 99, -1] {
        let liar = Liar::new();
        let driver = liar.driver();
        let kv = furnished(&driver);
        let before = liar.sim.snapshot();
        liar.answers_in(Call::cuMemGetAllocationPropertiesFromHandle, 1, id);
        let error = Allocation::retain(&driver, kv.base()).unwrap_err();
        disagrees(
            &error,
            "there are 1 devices",
            &format!("says that the memory lies on device {id}"),
        );
        assert_eq!((liar.sim.snapshot(), driver.quarantined()), (before, 0));
        let page = AllocationProps::on(&driver.device(0).unwrap())
            .create(G)
            .unwrap();
        let error = page.granted().unwrap_err();
        disagrees(
            &error,
            "there are 1 devices",
            &format!("says that the memory lies on device {id}"),
        );
        page.release().unwrap();
        kv.close().unwrap();
        ends_well(&liar, driver);
    }
}

fn memory_in_an_unknown_place() {
    let liar = Liar::new();
    let driver = liar.driver();
    let page = AllocationProps::on(&driver.device(0).unwrap())
        .create(G)
        .unwrap();
    liar.answers_in(Call::cuMemGetAllocationPropertiesFromHandle, 0, 77);
    let granted = page.granted().unwrap();
    assert_eq!(granted.location(), Location::Other { kind: 77, id: 0 });
    assert_eq!(granted.handle_types(), HandleTypes::NONE);
    page.release().unwrap();
    drop(granted);
    ends_well(&liar, driver);
}
