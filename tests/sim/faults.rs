//! Faults: struck when due, without effect on the driver, refused where they could not strike.

use std::sync::Arc;

use cuda_vmm::sim::{Fault, FaultError, Interposer, Simulation};
use cuda_vmm::sys::{CUresult, Call, DriverCalls};

use crate::rig::*;

#[test]
fn the_failing_call_has_no_effect() {
    for rig in Rig::both() {
        let handle = rig.create(G).unwrap();
        let address = rig.reserve(2 * G).unwrap();
        let second = address + G as u64;
        rig.0
            .inject(Fault::on(Call::cuMemMap).nth(2).code(OOM))
            .unwrap();
        rig.map(address, G, handle).unwrap();
        let before = rig.snapshot();
        assert_eq!(rig.map(second, G, handle), Err(OOM));
        assert_eq!(rig.snapshot(), before);
        assert_eq!(rig.0.pending_faults(), []);
        rig.map(second, G, handle).unwrap();
    }
}

#[test]
fn forever_lasts_until_it_is_cleared() {
    let rig = Rig::new();
    let fault = Fault::on(Call::cuMemAddressReserve).code(OOM).forever();
    rig.0.inject(fault).unwrap();
    for _ in 0..3 {
        assert_eq!(rig.reserve(G), Err(OOM));
    }
    assert_eq!(rig.0.pending_faults(), [fault]);
    rig.0.clear_faults();
    rig.reserve(G).unwrap();
}

#[test]
fn the_nth_call_of_any_kind() {
    let rig = Rig::new();
    rig.0.inject(Fault::any_nth(3).code(INVALID)).unwrap();
    let address = rig.reserve(G).unwrap();
    let handle = rig.create(G).unwrap();
    assert_eq!(rig.map(address, G, handle), Err(INVALID));
    rig.map(address, G, handle).unwrap();
}

#[test]
fn a_fault_that_cannot_strike_is_refused() {
    let rig = Rig::with(Simulation::builder().without(Call::cuMemGetAccess));
    let refused = rig.0.inject(Fault::on(Call::cuMemGetAccess)).unwrap_err();
    assert_eq!(refused, FaultError::NotProvided(Call::cuMemGetAccess));
    assert_eq!(
        refused.to_string(),
        "cuMemGetAccess is not provided by this driver, so it cannot be made to fail: \
         inject the fault on a call that it has"
    );
    let success = Fault::on(Call::cuMemMap).code(CUresult::CUDA_SUCCESS);
    assert_eq!(rig.0.inject(success), Err(FaultError::Success));
}

#[test]
fn every_call_can_be_made_to_fail() {
    let sim = Simulation::new();
    for &call in Call::ALL {
        sim.inject(Fault::on(call)).unwrap();
    }
    assert_eq!(sim.pending_faults().len(), Call::ALL.len());
}

#[test]
fn an_interposer_wraps_any_driver() {
    let inner = Simulation::new();
    let outer = Interposer::new(inner.clone());
    outer.inject(Fault::on(Call::cuInit).code(OOM)).unwrap();
    let driver: Arc<dyn DriverCalls> = Arc::new(outer);
    assert_eq!(unsafe { driver.cuInit(0) }, OOM);
    assert_eq!(inner.calls_of(Call::cuInit), 0, "it never got so far");
    assert_eq!(unsafe { driver.cuInit(0) }, CUresult::CUDA_SUCCESS);
    assert_eq!(inner.calls_of(Call::cuInit), 1);
}
