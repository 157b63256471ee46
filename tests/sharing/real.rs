//! The same on the driver of this machine, where there is one.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use cuda_vmm::share::{SpanImport, SpanSource};
use cuda_vmm::{
    Access, Allocation, AllocationProps, BadFd, Device, Driver, Error, HandleType, Origin,
    Reservation,
};

use crate::rig::same;
use crate::support;

/// The driver's first device; or nothing, which is said, and fails where a GPU is required.
fn device() -> Option<Device> {
    match support::devices() {
        Ok(_) => Some(Driver::load().unwrap().device(0).unwrap()),
        Err(why) if support::gpu_required() => panic!("{why}"),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn props(device: &Device) -> (AllocationProps, usize) {
    let props = AllocationProps::on(device).shareable_as(HandleType::PosixFd.into());
    let granule = props.granularity().unwrap().minimum();
    (props, granule)
}

/// Two granules, a hole, a page, a hole, the page again, one whose handle was given up.
fn furnished(device: &Device) -> Reservation {
    let (props, g) = props(device);
    let mut kv = Reservation::builder(8 * g)
        .access(device, Access::ReadWrite)
        .reserve(device.driver())
        .unwrap();
    let page = props.create(g).unwrap();
    kv.map(0, 2 * g, &props).unwrap();
    kv.map_existing(3 * g, &page).unwrap();
    kv.map_existing(5 * g, &page).unwrap();
    kv.map_releasing(6 * g, g, &props).unwrap();
    for at in [0, 3, 6] {
        kv.fill(at * g, g, at as u8 + 1).unwrap();
    }
    kv
}

#[test]
fn a_span_with_holes_a_mirror_and_a_handle_given_up() {
    let Some(device) = device() else { return };
    let (_, g) = props(&device);
    let mut kv = furnished(&device);
    let export = || kv.export_span(0, 8 * g, HandleType::PosixFd, Access::ReadWrite);
    let (bytes, fds, _) = export().unwrap().into_parts();
    assert_eq!(export().unwrap().descriptor().encode(), bytes);
    let import = SpanImport::new(&bytes, fds).unwrap();
    assert!(import.descriptor().is_of_this_process());
    let policy = [(&device, Access::ReadWrite)];
    let mut there = import.attach(device.driver(), policy).unwrap();
    let byte = |kv: &Reservation, at: usize| {
        let mut byte = [0];
        kv.read(at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 3, 5, 6].map(|at| byte(&there, at * g)), [1, 4, 4, 7]);
    there.fill(5 * g, g, 99).unwrap();
    assert_eq!(byte(&there, 4 * g - 1), 99);
    assert_eq!(byte(&kv, 3 * g), 99);
    kv.fill(0, 1, 11).unwrap();
    kv.close().unwrap();
    assert_eq!(byte(&there, 0), 11, "it outlives what it came from");
    there.close().unwrap();
}

#[test]
fn read_only_and_by_address() {
    let Some(device) = device() else { return };
    let (_, g) = props(&device);
    let kv = furnished(&device);
    let address = kv.base() + 5 * g as u64 + 100;
    let found = SpanSource::of_addresses(device.driver(), address, g).unwrap();
    assert_eq!((found.lead(), found.size()), (100, 2 * g));
    let exported = found.export(HandleType::PosixFd, Access::Read).unwrap();
    found.release().unwrap();
    let (bytes, fds, _) = exported.into_parts();
    let import = SpanImport::new(&bytes, fds).unwrap();
    let span = import.attach_read_only(device.driver(), [&device]).unwrap();
    kv.close().unwrap();
    let mut byte = [0];
    span.read(g, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(span.access_of(0, &device).unwrap(), Access::Read);
    span.close().unwrap();
}

#[test]
fn one_allocation_its_size_and_what_is_none() {
    let Some(device) = device() else { return };
    let (props, g) = props(&device);
    let free = device.free_memory().unwrap();
    let page = props.create(2 * g).unwrap();
    let fd = page.export_fd().unwrap();
    page.release().unwrap();
    let import = |size| Allocation::import_fd(device.driver(), fd.as_fd(), size);
    for claimed in [g, 4 * g] {
        same(&import(claimed).unwrap_err(), &Error::WrongSize { claimed });
    }
    let page = import(2 * g).unwrap();
    assert_eq!(page.origin(), Origin::Imported);
    assert_eq!(page.location().device(), Some(0));
    same(&page.export_fd().unwrap_err(), &Error::ImportNotExportable);
    page.release().unwrap();
    drop(fd);

    let null = File::open("/dev/null").unwrap();
    let error = Allocation::import_fd(device.driver(), null.as_fd(), g).unwrap_err();
    let why = BadFd::Other {
        leads_to: "/dev/null".into(),
    };
    let fd = null.as_raw_fd();
    same(&error, &Error::NotAnExport { fd, why });
    // Other tests of this program have memory of the device meanwhile: no more than theirs is gone.
    assert!(device.free_memory().unwrap() + 64 * g > free);
}

#[test]
fn a_kind_of_handle_is_found() {
    let Some(device) = device() else { return };
    let choice = device
        .choose_handle_type(&HandleType::DEFAULT_ORDER)
        .unwrap();
    println!("this machine shares memory by {choice}");
    let chosen = choice.handle_type().expect("POSIX fds at least");
    device.require_handle_type(chosen).unwrap();
    assert_eq!(device.driver().quarantined(), 0);
}
