//! An interposer with nothing to do does nothing but count: no call allocates.
//!
//! A program of its own, because the allocator that counts is the whole program's.

#[path = "support/counting.rs"]
mod counting;

use cuda_vmm::sim::{Fault, Interposer, LogMode};
use cuda_vmm::sys::{CUresult, Call, CallTable, DriverCalls};

use counting::allocations;

/// How often a thousand calls allocate, of a driver that has none of them and does nothing.
fn unmap_often(mode: LogMode, fault: Option<Fault>) -> u64 {
    let driver = Interposer::with_log(CallTable::default(), mode);
    if let Some(fault) = fault {
        assert!(driver.inject(fault).is_err(), "the driver has no call");
    }
    let before = allocations();
    for _ in 0..1000 {
        // SAFETY: the driver has no such call, and touches nothing.
        let code = unsafe { driver.cuMemUnmap(0x1000, 0x1000) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
    }
    assert_eq!(driver.calls_of(Call::cuMemUnmap), 1000);
    allocations() - before
}

#[test]
fn only_a_log_allocates() {
    assert_eq!(unmap_often(LogMode::Off, None), 0);
    let refused = Some(Fault::on(Call::cuMemUnmap));
    assert_eq!(unmap_often(LogMode::Off, refused), 0);
    assert!(unmap_often(LogMode::Last(10), None) >= 1000);
}
