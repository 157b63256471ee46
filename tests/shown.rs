//! What people are shown: words for what is left, what a fault does, what was wrong; and fields for whoever debugs.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::ptr::null_mut;

use cuda_vmm::sim::{Fault, Interposer, MisuseKind, Simulation};
use cuda_vmm::sys::{CUcontext, CUmemLocation, CUmemLocationType, CUresult, Call, DriverCalls};
use cuda_vmm::{Access, AllocationProps, Code, Fence, HandleTypes, Location};

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "support/rig.rs"]
mod rig;

use rig::{Rig, G};

const REFUSED: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

#[test]
fn a_close_that_failed_says_what_is_held() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    for granule in 0..4 {
        kv.map(granule * G, G, &rig.props()).unwrap();
    }
    let forever = |call| Fault::on(call).code(REFUSED).forever();
    rig.sim.inject(forever(Call::cuMemUnmap)).unwrap();
    let failed = kv.close().unwrap_err();
    let text = failed.to_string();
    assert!(
        text.starts_with(
            "the reservation is not closed (still held: 4 mappings, the addresses): cuMemUnmap "
        ),
        "{text}"
    );
    assert_eq!(
        text.matches("failed with CUDA_ERROR_UNKNOWN (999)").count(),
        4
    );
    assert_eq!(failed.further.len(), 3);

    rig.sim.clear_faults();
    rig.sim.inject(forever(Call::cuMemRelease)).unwrap();
    let failed = failed.reservation.into_inner().close().unwrap_err();
    let text = failed.to_string();
    let held =
        "the reservation is not closed (still held: 4 handles, the addresses): cuMemRelease ";
    assert!(text.starts_with(held), "{text}");
    let shown = format!("{failed:?}");
    assert!(shown.starts_with("CloseError { error: Driver("), "{shown}");
    assert!(shown.contains("mappings: 0, quarantined: 4"), "{shown}");

    rig.sim.clear_faults();
    rig.sim
        .inject(Fault::on(Call::cuMemRelease).code(REFUSED))
        .unwrap();
    let failed = failed.reservation.into_inner().close().unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("(still held: 1 handle, the addresses)"),
        "{text}"
    );
    failed.reservation.into_inner().close().unwrap();
    rig.leaves_nothing();
}

#[test]
fn a_failed_close_as_an_error_keeps_every_failure() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    kv.map(G, G, &rig.props()).unwrap();
    rig.sim
        .inject(Fault::on(Call::cuMemUnmap).code(REFUSED).times(2))
        .unwrap();
    // The reservation goes with it, and is undone in its drop.
    let error = kv.close().unwrap_err().into_error();
    assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(error.undo_failures().len(), 1);
    rig.leaves_nothing();
}

#[test]
fn faults_say_what_they_will_do() {
    let fault = Fault::on(Call::cuMemMap).code(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    for (fault, text) in [
        (fault, "call 1 of cuMemMap answers CUDA_ERROR_OUT_OF_MEMORY"),
        (
            fault.nth(3).times(4),
            "call 3 of cuMemMap and the 3 after it answers CUDA_ERROR_OUT_OF_MEMORY",
        ),
        (
            Fault::any_nth(2).forever(),
            "call 2 of any kind and all after it answers CUDA_ERROR_UNKNOWN",
        ),
    ] {
        assert_eq!(fault.to_string(), text);
    }
    assert_eq!(fault.forever().once(), fault);
}

#[test]
fn misuses_say_what_was_wrong() {
    let sim = Simulation::default();
    let made_up = 0xdead_0000usize;
    unsafe {
        assert_eq!(sim.cuInit(0), CUresult::CUDA_SUCCESS);
        let mut context: CUcontext = null_mut();
        assert_eq!(
            sim.cuDevicePrimaryCtxRetain(&mut context, 0),
            CUresult::CUDA_SUCCESS
        );
        let push = sim.cuCtxPushCurrent_v2(made_up as CUcontext);
        assert_eq!(push, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(sim.cuCtxPushCurrent_v2(context), CUresult::CUDA_SUCCESS);
        let invalid = CUresult::CUDA_ERROR_INVALID_HANDLE;
        assert_eq!(sim.cuStreamQuery(made_up as _), invalid);
        assert_eq!(sim.cuEventQuery(made_up as _), invalid);
    }
    let kinds = [
        MisuseKind::NoSuchContext,
        MisuseKind::NoSuchStream,
        MisuseKind::NoSuchEvent,
    ];
    assert_eq!(
        sim.misuses()
            .iter()
            .map(|misuse| misuse.kind)
            .collect::<Vec<_>>(),
        kinds
    );
    let words: Vec<String> = sim.misuses().iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "cuCtxPushCurrent_v2: 0xdead0000 is no primary context of a device",
            "cuStreamQuery: 0xdead0000 is no live stream",
            "cuEventQuery: 0xdead0000 is no live event",
        ]
    );
}

#[test]
fn calls_are_shown_with_their_arguments() {
    let rig = Rig::new();
    rig.sim.clear_log();
    let location = CUmemLocation {
        type_: CUmemLocationType(77),
        id: 5,
    };
    let mut rights = 0;
    unsafe {
        let _unknown = rig.sim.cuMemGetAccess(&mut rights, &location, 0x1000);
        let _no_output = rig.sim.cuCtxPopCurrent_v2(null_mut());
    }
    let device = rig.device().uuid().unwrap();
    let hex: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
    let shown: Vec<String> = rig.sim.log().iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "cuMemGetAccess(rights=?, location={location type 77}, address=0x1000) = CUDA_ERROR_INVALID_VALUE".to_owned(),
            "cuCtxPopCurrent_v2(context=null) = CUDA_ERROR_INVALID_CONTEXT".to_owned(),
            format!("cuDeviceGetUuid_v2(uuid={hex}, device=0) = CUDA_SUCCESS"),
        ]
    );
}

#[test]
fn places_rights_and_codes_are_named() {
    let other = Location::Other { kind: 9, id: 4 };
    assert_eq!(other.to_string(), "location of type 9, id 4");
    assert_eq!(
        (HandleTypes::POSIX_FD | HandleTypes::FABRIC).to_string(),
        "POSIX fd or FABRIC handle"
    );
    assert_eq!(Code::new(999).number(), 999);
    assert_eq!(Code::new(123_456).name(), None);
    assert_eq!(format!("{:?}", Code::new(999)), Code::new(999).to_string());
}

#[test]
fn whoever_debugs_sees_the_fields_that_matter() {
    let rig = Rig::new();
    let mut kv = rig.reserve(2);
    kv.map(0, G, &rig.props()).unwrap();
    kv.set_access(0, G, rig.device(), Access::None).unwrap();
    let mapping = kv.mapping_at(0).unwrap();
    assert_eq!(
        format!("{mapping:?}"),
        format!(
            "Mapping {{ address: {:#x}, range: 0..2097152, location: Device(0), backing: Owned, quarantined: false, .. }}",
            kv.base()
        )
    );
    let guard = rig.device().make_current().unwrap();
    assert_eq!(
        format!("{guard:?}"),
        format!("CurrentContext {{ context: {:?} }}", guard.raw())
    );
    drop(guard);
    let fences = [
        Fence::default_stream(rig.device()),
        Fence::closure(|_| Ok::<(), String>(())),
        unsafe { Fence::event(rig.device(), null_mut()) },
    ];
    let kinds = ["stream", "closure", "event"];
    for (fence, kind) in fences.iter().zip(kinds) {
        let shown = format!("Fence {{ kind: {kind:?}, deadline: None }}");
        assert_eq!(format!("{fence:?}"), shown);
    }
    drop(fences);
    let interposer = Interposer::new(Simulation::new());
    assert!(interposer.inner().provides(Call::cuInit));
    assert_eq!(
        format!("{interposer:?}"),
        "Interposer { calls: 0, pending_faults: [], .. }"
    );
    assert_eq!(
        format!("{:?}", Simulation::new()),
        "Simulation { calls: 0, .. }"
    );
    assert_eq!(
        AllocationProps::on_host(kv.driver()).location(),
        Location::Host
    );
    kv.close().unwrap();
    rig.leaves_nothing();
}
