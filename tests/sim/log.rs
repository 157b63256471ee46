//! The log and the counters.

use cuda_vmm::sim::{Fault, LogMode, Simulation, Value};
use cuda_vmm::sys::{CUresult, Call, DriverCalls};

use crate::rig::*;

#[test]
fn a_record_reads_like_the_call() {
    let rig = Rig::new();
    let (address, handle) = (rig.reserve(G).unwrap(), rig.create(G).unwrap());
    rig.0.clear_log();
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 3).unwrap();
    rig.rights(address).unwrap();
    assert_eq!(rig.release(0), Err(INVALID));
    let lines: Vec<String> = rig.0.log().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            format!("cuMemMap(address={address:#x}, size=2097152, offset=0, handle={handle:#x}, flags=0) = CUDA_SUCCESS"),
            format!("cuMemSetAccess(address={address:#x}, size=2097152, descriptors={{device 0, flags 3}}, count=1) = CUDA_SUCCESS"),
            format!("cuMemGetAccess(rights=0x3, location={{device 0}}, address={address:#x}) = CUDA_SUCCESS"),
            "cuMemRelease(handle=0) = CUDA_ERROR_INVALID_VALUE".to_owned(),
        ]
    );
}

#[test]
fn outputs_are_shown_after_success_alone() {
    let rig = Rig::new();
    rig.0.clear_log();
    let address = rig.reserve(G).unwrap();
    assert_eq!(rig.reserve(1), Err(INVALID));
    let null = std::ptr::null_mut();
    let code = unsafe { rig.0.cuMemAddressReserve(null, G, 0, 0, 0) };
    assert_eq!(code, INVALID);
    let log = rig.0.log();
    let shown: Vec<_> = log.iter().map(|record| record.arg("address")).collect();
    assert_eq!(
        shown,
        [
            Some(&Value::Word(address)),
            Some(&Value::Unread),
            Some(&Value::Null)
        ]
    );
}

#[test]
fn an_injected_failure_is_recorded_and_counted() {
    let rig = Rig::new();
    rig.0
        .inject(Fault::on(Call::cuMemAddressReserve).code(OOM))
        .unwrap();
    assert_eq!(rig.reserve(G), Err(OOM));
    let last = rig.0.log().pop().unwrap();
    assert_eq!((last.call, last.result), (Call::cuMemAddressReserve, OOM));
    assert_eq!(rig.0.calls_of(Call::cuMemAddressReserve), 1);
}

#[test]
fn the_log_keeps_what_it_was_told_to() {
    for (mode, kept) in [
        (LogMode::Off, 0),
        (LogMode::Last(0), 0),
        (LogMode::Last(2), 2),
        (LogMode::All, 5),
    ] {
        let sim = Simulation::builder().log(mode).build().unwrap();
        for flags in 0..5 {
            let code = unsafe { sim.cuInit(flags) };
            assert_eq!(code == CUresult::CUDA_SUCCESS, flags == 0);
        }
        let log = sim.log();
        assert_eq!(log.len(), kept, "{mode:?}");
        if let Some(last) = log.last() {
            assert_eq!(last.arg("flags"), Some(&Value::Number(4)));
        }
        assert_eq!(sim.calls_of(Call::cuInit), 5);
        assert_eq!(sim.calls(), 5);
    }
}
