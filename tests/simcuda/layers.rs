//! The safe layers on a driver that was loaded, not built in.

use std::ffi::{c_char, c_int, c_void, CString};
use std::mem::transmute;

use cuda_vmm::sys::Library;
use cuda_vmm::{Access, AllocationProps, Driver, HandleTypes, Reservation};

use crate::support::simcuda::Simcuda;
use crate::{symbols, Test};

pub const TESTS: &[Test] = &[
    ("a_driver_is_loaded", a_driver_is_loaded),
    ("a_reservation", || leaves_nothing(a_reservation)),
    ("a_failed_map_is_undone", || {
        leaves_nothing(a_failed_map_is_undone)
    }),
    ("one_allocation_at_two_addresses", || {
        leaves_nothing(one_allocation_at_two_addresses)
    }),
];

fn held() -> String {
    Simcuda::find().expect("found before").snapshot()
}

/// Runs with a driver of its own, which takes with it the context that copies need, and demands that nothing is left.
fn leaves_nothing(run: fn(Driver)) {
    let before = held();
    run(Driver::load().unwrap());
    assert_eq!(held(), before);
}

/// Makes calls fail, as `SIMCUDA_FAULT` does.
fn inject(fault: &str) {
    let fault = CString::new(fault).expect("a fault");
    let inject = symbols::symbol("simcuda_fault");
    let inject =
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(inject) };
    assert_eq!(unsafe { inject(fault.as_ptr()) }, 0);
}

fn a_driver_is_loaded() {
    let driver = Driver::load().unwrap();
    assert_eq!(driver.path(), Some(Library::open().unwrap().path()));
    assert_eq!(driver.version(), 13_000);
    let device = driver.device(0).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA H200 (simulated)");
}

fn a_reservation(driver: Driver) {
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let g = props.granularity().unwrap().recommended();
    let mut kv = Reservation::builder(8 * g)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    let block = kv.map(0, g, &props).unwrap();
    kv.map(g, 4 * g, &props).unwrap();
    kv.write(g - 4, b"across the edge").unwrap();
    let mut read = [0; 15];
    kv.read(g - 4, &mut read).unwrap();
    assert_eq!(&read, b"across the edge");
    let past_the_end = kv.map(7 * g, 2 * g, &props).unwrap_err();
    assert_eq!(
        past_the_end.code(),
        None,
        "asked of the driver: {past_the_end}"
    );
    kv.unmap(block).unwrap();
    kv.close().unwrap();
}

fn a_failed_map_is_undone(driver: Driver) {
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device);
    let g = props.granularity().unwrap().recommended();
    let mut kv = Reservation::builder(4 * g)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    let before = held();
    for (call, code) in [("cuMemCreate", 2), ("cuMemMap", 1), ("cuMemSetAccess", 999)] {
        inject(&format!("{call}:1:{code}"));
        let error = kv.map(0, g, &props).unwrap_err();
        assert_eq!(
            error.code().map(|code| code.number()),
            Some(code),
            "{error}"
        );
        assert!(error.undo_failures().is_empty(), "{error}");
        assert_eq!(held(), before, "{call}");
    }
    kv.map(0, g, &props).unwrap();
    kv.close().unwrap();
}

fn one_allocation_at_two_addresses(driver: Driver) {
    let device = driver.device(0).unwrap();
    let props = AllocationProps::on(&device).shareable_as(HandleTypes::POSIX_FD);
    let g = props.granularity().unwrap().recommended();
    let page = props.create(g).unwrap();
    let mut ring = Reservation::builder(2 * g)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    ring.map_existing(0, &page).unwrap();
    ring.map_existing(g, &page).unwrap();
    ring.fill(0, 16, 0x2f).unwrap();
    let mut mirrored = [0; 16];
    ring.read(g, &mut mirrored).unwrap();
    assert_eq!(mirrored, [0x2f; 16]);
    ring.close().unwrap();
    page.release().unwrap();
}
