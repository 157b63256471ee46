//! Which kind of handle: every refusal that means "not here" falls back, and nothing else does.

use cuda_vmm::share::{Choice, Unavailable};
use cuda_vmm::sim::{Fault, SimDevice, Simulation, SimulationBuilder};
use cuda_vmm::sys::{CUmemAllocationHandleType, CUresult, Call};
use cuda_vmm::{Code, Device, Error, HandleType};

use crate::rig::Rig;

const FABRIC: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
const POSIX: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn with_imex() -> SimulationBuilder {
    Simulation::builder().imex_channel(true)
}

/// The call answers this once, where all kinds of handles are to be had.
fn failing_once(call: Call, code: CUresult) -> Rig {
    let rig = Rig::with(with_imex());
    rig.sim.inject(Fault::on(call).code(code)).unwrap();
    rig
}

fn choose(device: &Device) -> Result<Choice, Error> {
    device.choose_handle_type(&HandleType::DEFAULT_ORDER)
}

fn is_clean(rig: &Rig) {
    assert!(
        rig.sim.snapshot().holds_no_memory(),
        "{}",
        rig.sim.snapshot()
    );
    assert_eq!(rig.driver.quarantined(), 0);
}

#[test]
fn the_first_that_works_is_taken() {
    let rig = Rig::with(with_imex());
    let choice = choose(rig.device()).unwrap();
    assert_eq!(choice.handle_type(), Some(HandleType::Fabric));
    assert_eq!(choice.refusals(), []);
    assert_eq!(choice.to_string(), "FABRIC handle");
    is_clean(&rig);

    let order = [HandleType::PosixFd, HandleType::Fabric];
    let choice = rig.device().choose_handle_type(&order).unwrap();
    assert_eq!(choice.handle_type(), Some(HandleType::PosixFd));
    rig.leaves_nothing();
}

#[test]
fn without_an_imex_channel_although_the_device_claims_it() {
    let rig = Rig::new();
    assert_eq!(rig.device().capabilities().unwrap().fabric, Some(true));
    let choice = choose(rig.device()).unwrap();
    assert_eq!(choice.handle_type(), Some(HandleType::PosixFd));
    let [refusal] = choice.refusals() else {
        panic!("{choice}");
    };
    assert_eq!(refusal.handle_type, HandleType::Fabric);
    assert_eq!(refusal.call, Call::cuMemCreate);
    assert_eq!(refusal.code, Code::ERROR_NOT_PERMITTED);
    assert_eq!(refusal.meaning, Unavailable::NotHere);

    let error = rig
        .device()
        .require_handle_type(HandleType::Fabric)
        .unwrap_err();
    assert!(error.is_not_permitted() && !error.is_not_ready());
    assert_eq!(
        error.to_string(),
        "memory of this device cannot be shared: FABRIC handle: cuMemCreate answered \
         CUDA_ERROR_NOT_PERMITTED (800), there is no IMEX channel in this container"
    );
    is_clean(&rig);
}

#[test]
fn codes_that_mean_not_here() {
    for (code, call) in [
        (CUresult::CUDA_ERROR_NOT_PERMITTED, Call::cuMemCreate),
        (CUresult::CUDA_ERROR_NOT_SUPPORTED, Call::cuMemCreate),
        (
            CUresult::CUDA_ERROR_INVALID_VALUE,
            Call::cuMemExportToShareableHandle,
        ),
        (
            CUresult::CUDA_ERROR_INVALID_DEVICE,
            Call::cuMemExportToShareableHandle,
        ),
        (
            CUresult::CUDA_ERROR_NOT_SUPPORTED,
            Call::cuMemImportFromShareableHandle,
        ),
    ] {
        let rig = failing_once(call, code);
        let choice = choose(rig.device()).unwrap();
        assert_eq!(choice.handle_type(), Some(HandleType::PosixFd));
        let [refusal] = choice.refusals() else {
            panic!("{choice}");
        };
        assert_eq!((refusal.call, refusal.code), (call, Code::from(code)));
        assert_eq!(refusal.meaning, Unavailable::NotHere);
        rig.leaves_nothing();
    }
}

#[test]
fn codes_that_do_not() {
    for code in [
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        CUresult::CUDA_ERROR_NOT_INITIALIZED,
        CUresult::CUDA_ERROR_DEINITIALIZED,
        CUresult::CUDA_ERROR_NO_DEVICE,
        CUresult::CUDA_ERROR_INVALID_CONTEXT,
        CUresult::CUDA_ERROR_UNKNOWN,
    ] {
        for call in [
            Call::cuMemCreate,
            Call::cuMemExportToShareableHandle,
            Call::cuMemImportFromShareableHandle,
        ] {
            let rig = failing_once(call, code);
            let error = choose(rig.device()).unwrap_err();
            assert_eq!(error.code(), Some(code.into()), "{call}: {error}");
            assert!(!matches!(error, Error::Unshareable { .. }), "{error:?}");
            is_clean(&rig);
            // Nothing was concluded from it.
            rig.device()
                .require_handle_type(HandleType::Fabric)
                .unwrap();
            rig.leaves_nothing();
        }
    }
}

#[test]
fn a_fabric_that_is_not_ready_is_asked_again() {
    for code in [
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
        CUresult::CUDA_ERROR_ILLEGAL_STATE,
    ] {
        let rig = failing_once(Call::cuMemExportToShareableHandle, code);
        let error = rig
            .device()
            .require_handle_type(HandleType::Fabric)
            .unwrap_err();
        assert!(error.is_not_ready(), "{error:?}");
        rig.device()
            .require_handle_type(HandleType::Fabric)
            .unwrap();
        rig.leaves_nothing();
    }
}

#[test]
fn created_but_never_exported() {
    let device = SimDevice::new()
        .refuse_export(FABRIC, CUresult::CUDA_ERROR_INVALID_VALUE)
        .refuse_create(POSIX, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let rig = Rig::with(with_imex().device(device));
    let choice = choose(rig.device()).unwrap();
    assert_eq!(choice.handle_type(), None);
    assert_eq!(
        choice.to_string(),
        "nothing (FABRIC handle: cuMemExportToShareableHandle answered CUDA_ERROR_INVALID_VALUE (1), not to be had here; \
         POSIX fd: cuMemCreate answered CUDA_ERROR_NOT_SUPPORTED (801), not to be had here)"
    );
    let refusals = choice.refusals().to_vec();
    match choice.required() {
        Err(Error::Unshareable { refusals: told }) => assert_eq!(told, refusals),
        other => panic!("{other:?}"),
    }
    is_clean(&rig);
}

#[test]
fn what_was_found_out_is_kept_until_it_is_forgotten() {
    let rig = Rig::with(
        with_imex()
            .device(SimDevice::new())
            .device(SimDevice::new()),
    );
    let created = || rig.sim.calls_of(Call::cuMemCreate);
    let choose = |device: usize| choose(&rig.devices[device]).unwrap();
    let first = choose(0);
    assert_eq!(created(), 1);
    assert_eq!(choose(0), first);
    assert_eq!(created(), 1);
    choose(1);
    assert_eq!(created(), 2, "each device by itself");
    rig.devices[0].forget_handle_types().unwrap();
    choose(1);
    assert_eq!(created(), 2);
    choose(0);
    assert_eq!(created(), 3);
}

#[test]
fn a_driver_without_the_call() {
    let export = Call::cuMemExportToShareableHandle;
    let rig = Rig::with(with_imex().without(export));
    let choice = rig
        .device()
        .choose_handle_type(&[HandleType::PosixFd])
        .unwrap();
    assert_eq!(choice.handle_type(), None);
    assert_eq!(
        choice.to_string(),
        "nothing (POSIX fd: cuMemExportToShareableHandle answered CUDA_ERROR_NOT_FOUND (500), the driver is too old)"
    );
    is_clean(&rig);
}
