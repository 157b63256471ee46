//! One allocation, exported and imported.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cuda_vmm::share::FabricHandle;
use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::{
    Access, Allocation, BadFd, Code, Error, HandleTypes, Location, Origin, Reservation, What,
};

use crate::pair::{leads_to, Pair};
use crate::rig::{same, says, Rig, G};

fn first_byte(rig: &Rig, page: &Allocation) -> u8 {
    let mut kv = rig.reserve(page.size() / G);
    kv.map_existing(0, page).unwrap();
    let mut byte = [0];
    kv.read(0, &mut byte).unwrap();
    kv.close().unwrap();
    byte[0]
}

fn write_first_byte(rig: &Rig, page: &Allocation, byte: u8) {
    let mut kv = rig.reserve(page.size() / G);
    kv.map_existing(0, page).unwrap();
    kv.write(0, &[byte]).unwrap();
    kv.close().unwrap();
}

#[test]
fn a_descriptor_keeps_the_memory_and_is_the_callers() {
    let pair = Pair::new();
    let all = pair.maker.device().free_memory().unwrap();
    let page = pair.props().create(2 * G).unwrap();
    write_first_byte(&pair.maker, &page, 42);
    let fd = page.export_fd().unwrap();
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
    page.release().unwrap();
    assert_eq!(pair.maker.device().free_memory().unwrap(), all - 2 * G);

    let import = Allocation::import_fd(&pair.taker.driver, fd.as_fd(), 2 * G).unwrap();
    assert_eq!(import.size(), 2 * G);
    assert_eq!(import.origin(), Origin::Imported);
    assert_eq!(import.location(), Location::Device(0));
    assert_eq!(import.handle_types(), HandleTypes::NONE);
    assert_eq!(import.offered(), Access::ReadWrite);
    assert!(leads_to(&fd).contains("memfd"), "it is still open");
    drop(fd);
    assert_eq!(first_byte(&pair.taker, &import), 42);
    import.release().unwrap();
    assert_eq!(pair.maker.device().free_memory().unwrap(), all);
    pair.leaves_nothing();
}

#[test]
fn imported_twice_it_is_two_allocations() {
    let pair = Pair::new();
    let page = pair.props().create(G).unwrap();
    let fd = page.export_fd().unwrap();
    let import = || Allocation::import_fd(&pair.taker.driver, fd.as_fd(), G).unwrap();
    let (one, two) = (import(), import());
    assert_ne!(one.raw(), two.raw());
    one.release().unwrap();
    write_first_byte(&pair.maker, &page, 7);
    assert_eq!(first_byte(&pair.taker, &two), 7);
}

#[test]
fn a_fabric_export_holds_the_memory() {
    let pair = Pair::new();
    let page = pair.props().create(G).unwrap();
    write_first_byte(&pair.maker, &page, 9);
    let export = page.export_fabric().unwrap();
    assert_eq!(export.size(), G);
    page.release().unwrap();
    let import = Allocation::import_fabric(&pair.taker.driver, export.handle(), G).unwrap();
    assert_eq!(first_byte(&pair.taker, &import), 9);
    import.release().unwrap();
    let handle = *export.handle();
    drop(export);
    assert!(pair.maker.sim.snapshot().holds_no_memory());
    // The handle alone keeps nothing.
    let late = Allocation::import_fabric(&pair.taker.driver, &handle, G).unwrap_err();
    assert_eq!(late.code(), Some(Code::ERROR_INVALID_HANDLE));
    pair.leaves_nothing();
}

#[test]
fn what_was_not_asked_for_cannot_be_exported() {
    let rig = Rig::with(Simulation::builder().imex_channel(true));
    let before = |page: &Allocation| (rig.sim.calls(), rig.sim.snapshot(), page.to_string());
    let plain = rig.props().create(G).unwrap();
    let fabric = rig.props().shareable_as(HandleTypes::FABRIC);
    let fabric = fabric.create(G).unwrap();
    let state = before(&plain);
    says(
        &plain.export_fd().unwrap_err(),
        &Error::NotExportable {
            asked: HandleTypes::NONE,
            needed: HandleTypes::POSIX_FD,
        },
        "the allocation was not created shareable: create it with shareable_as(HandleTypes::POSIX_FD)",
    );
    same(
        &fabric.export_fd().unwrap_err(),
        &Error::NotExportable {
            asked: HandleTypes::FABRIC,
            needed: HandleTypes::POSIX_FD,
        },
    );
    same(
        &plain.export_fabric().unwrap_err(),
        &Error::NotExportable {
            asked: HandleTypes::NONE,
            needed: HandleTypes::FABRIC,
        },
    );
    assert_eq!(before(&plain), state, "no driver call was made");
}

#[test]
fn an_import_cannot_be_exported_again() {
    let pair = Pair::new();
    let fd = pair.props().create(G).unwrap().export_fd().unwrap();
    let import = Allocation::import_fd(&pair.taker.driver, fd.as_fd(), G).unwrap();
    let calls = pair.taker.sim.calls();
    same(
        &import.export_fd().unwrap_err(),
        &Error::ImportNotExportable,
    );
    same(
        &import.export_fabric().unwrap_err(),
        &Error::ImportNotExportable,
    );
    assert_eq!(pair.taker.sim.calls(), calls);
}

#[test]
fn a_size_that_is_not_true() {
    let pair = Pair::new();
    let fd = pair.props().create(2 * G).unwrap().export_fd().unwrap();
    let before = pair.taker.sim.snapshot();
    let import = |size| Allocation::import_fd(&pair.taker.driver, fd.as_fd(), size).unwrap_err();
    for claimed in [G, 4 * G] {
        same(&import(claimed), &Error::WrongSize { claimed });
        assert_eq!(pair.taker.sim.snapshot(), before);
    }
    same(
        &import(0),
        &Error::ZeroSize {
            what: What::AllocationSize,
        },
    );
    same(
        &import(G + 1),
        &Error::Misaligned {
            what: What::AllocationSize,
            value: G + 1,
            granularity: G,
        },
    );
    assert_eq!(pair.taker.sim.snapshot(), before);
    assert_eq!(pair.taker.sim.misuses(), []);
}

#[test]
fn a_descriptor_that_is_no_export_is_diagnosed() {
    let rig = Rig::new();
    let before = rig.sim.snapshot();
    let import = |fd: BorrowedFd<'_>| {
        let error = Allocation::import_fd(&rig.driver, fd, G).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN));
        assert_eq!(rig.sim.snapshot(), before);
        error
    };
    let null = File::open("/dev/null").unwrap();
    let number = null.as_raw_fd();
    says(
        &import(null.as_fd()),
        &Error::NotAnExport {
            fd: number,
            why: BadFd::Other {
                leads_to: "/dev/null".into(),
            },
        },
        &format!("file descriptor {number} is no exported allocation: it leads to /dev/null, which is nothing of CUDA's"),
    );

    // A number far beyond any limit, so that no other test's file takes it.
    let closed = unsafe { BorrowedFd::borrow_raw(i32::MAX) };
    says(
        &import(closed),
        &Error::NotAnExport {
            fd: i32::MAX,
            why: BadFd::Closed,
        },
        "file descriptor 2147483647 is no exported allocation: it is not open; the numbers mean nothing in another process",
    );
}

#[test]
fn memory_of_a_device_that_is_not_seen_here() {
    let pair = Pair::new();
    let fd: OwnedFd = pair.props().create(G).unwrap().export_fd().unwrap();
    let stranger = Rig::with(Simulation::builder().device(SimDevice::new().uuid([5; 16])));
    let error = Allocation::import_fd(&stranger.driver, fd.as_fd(), G).unwrap_err();
    let Error::NotAnExport { why, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        *why,
        BadFd::Unknown {
            leads_to: Some(leads_to(&fd).into())
        }
    );
    assert!(stranger.sim.snapshot().is_empty());
}

#[test]
fn an_all_zero_fabric_handle() {
    let pair = Pair::new();
    let zero = FabricHandle([0; 64]);
    let error = Allocation::import_fabric(&pair.taker.driver, &zero, G).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuMemImportFromShareableHandle (2097152 bytes (2 MiB) as a FABRIC handle) failed with CUDA_ERROR_NOT_SUPPORTED (801)"
    );
    assert!(pair.taker.sim.snapshot().is_empty());
}

/// How many descriptors this process has of the same memory: other tests open and close others meanwhile.
fn descriptors_of(fd: &OwnedFd) -> usize {
    let number = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let own = number(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd()))).unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        number(&path).is_ok_and(|number| number == own)
    })
    .count()
}

#[test]
fn a_thousand_rounds_leave_nothing_behind() {
    let pair = Pair::new();
    let page = pair.props().create(G).unwrap();
    let free = pair.maker.device().free_memory().unwrap();
    let first = page.export_fd().unwrap();
    let descriptors = descriptors_of(&first);
    for _ in 0..1000 {
        let fd = page.export_fd().unwrap();
        let import = Allocation::import_fd(&pair.taker.driver, fd.as_fd(), G).unwrap();
        drop(fd);
        import.release().unwrap();
    }
    assert_eq!(descriptors_of(&first), descriptors);
    drop(first);
    assert_eq!(pair.maker.device().free_memory().unwrap(), free);
    page.release().unwrap();
    pair.leaves_nothing();
}

#[test]
fn an_allocation_has_one_name_while_it_lives() {
    let rig = Rig::with(Simulation::builder().imex_channel(true));
    let mut kv: Reservation = rig.reserve(2);
    let page = rig.props().create(G).unwrap();
    let id = page.id();
    assert!(id.is_of_this_process());
    assert_eq!(page.id(), id);
    kv.map_existing(0, &page).unwrap();
    let found = Allocation::retain(&rig.driver, kv.base()).unwrap();
    assert_eq!(found.id(), id, "the same memory, however it was come by");
    let other = rig.props().create(G).unwrap();
    assert_ne!(other.id(), id);
    assert_eq!(rig.sim.calls_of(Call::cuMemExportToShareableHandle), 0);
}

#[test]
fn a_mapping_that_stays_behind_is_kept_by_the_driver() {
    let pair = Pair::new();
    let fd = pair.props().create(G).unwrap().export_fd().unwrap();
    let (taker, before) = (&pair.taker, pair.taker.sim.snapshot());
    // The unmap after the size was checked, and the second try.
    let fault = Fault::on(Call::cuMemUnmap).times(2);
    taker.sim.inject(fault).unwrap();
    let error = Allocation::import_fd(&taker.driver, fd.as_fd(), G).unwrap_err();
    assert_eq!(error.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(error.undo_failures().len(), 1);
    assert_eq!(taker.driver.quarantined(), 1);
    assert_eq!(taker.sim.snapshot().mappings.len(), 1);
    assert_eq!(taker.driver.reclaim().unwrap(), 1);
    drop(fd);
    assert_eq!(taker.sim.snapshot(), before);
    pair.leaves_nothing();
}
