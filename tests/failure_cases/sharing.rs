//! F. Export, import, file descriptors; and what of A and C is about imports.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuda_vmm::share::{ExportedSpan, SpanImport, SpanSource};
use cuda_vmm::sim::{Fault, Simulation, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Allocation, AllocationProps, Error, HandleType, Reservation};

use crate::case::{Case, Machine};
use crate::rig::{same, Rig, G};

pub const CASES: &[Case] = &[
    Case::both(
        "an import that is dropped half-way leaves nothing",
        half_way,
    ),
    Case::sim(
        "one of several peers that fails leaves the others",
        one_of_several_peers,
    ),
    Case::both(
        "a buffer shorter than its allocation is shared whole",
        a_short_buffer,
    ),
    Case::both(
        "a descriptor keeps the memory until its last copy is closed",
        descriptors_keep,
    ),
    Case::both(
        "files opened beside imports are left alone",
        files_beside_imports,
    ),
    Case::sim("the kind of handle is the sender's", the_senders_kind),
    Case::both(
        "one import dropped while another of the same is made",
        dropped_while_imported,
    ),
    Case::sim(
        "a descriptor goes by value, a fabric handle by address",
        by_value_or_address,
    ),
];

/// Memory that can be shared by descriptors.
fn props(on: &Machine) -> AllocationProps {
    AllocationProps::on(&on.device).shareable_as(HandleType::PosixFd.into())
}

/// Two granules, a hole, one granule; their first bytes are 1 and 2.
fn furnished(on: &Machine) -> Reservation {
    let mut kv = on.reserve(4);
    kv.map(0, 2 * on.g, &props(on)).unwrap();
    kv.map(3 * on.g, on.g, &props(on)).unwrap();
    kv.write(0, &[1]).unwrap();
    kv.write(3 * on.g, &[2]).unwrap();
    kv
}

fn exported(kv: &Reservation) -> ExportedSpan {
    kv.export_span(0, kv.size(), HandleType::PosixFd, Access::ReadWrite)
        .unwrap()
}

fn received(exported: ExportedSpan) -> SpanImport {
    let (bytes, fds, _) = exported.into_parts();
    SpanImport::new(&bytes, fds).unwrap()
}

fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Failure case 19: whatever is dropped instead of being ended in good order.
fn half_way(on: &Machine) {
    let kv = furnished(on);
    let (fds, free) = (open_fds(), on.free());
    let policy = || [(&on.device, Access::ReadWrite)];
    drop(exported(&kv));
    drop(received(exported(&kv)));
    drop(
        received(exported(&kv))
            .attach(&on.driver, policy())
            .unwrap(),
    );
    drop(
        received(exported(&kv))
            .attach_read_only(&on.driver, [&on.device])
            .unwrap(),
    );
    // In the midst of setting up: some of it attached, some only received.
    let mut pool = on.reserve(16);
    received(exported(&kv)).attach_into(&mut pool, 0).unwrap();
    received(exported(&kv))
        .attach_into(&mut pool, 8 * on.g)
        .unwrap();
    let waiting = received(exported(&kv));
    drop((pool, waiting));
    on.returned(free);
    assert_eq!(open_fds(), fds);
    kv.close().unwrap();
}

/// Failure cases 27 and 126: four peers' spans in one reservation, the third of which cannot be attached. The first two
/// stay, nothing of it is there, and the next goes in its place.
fn one_of_several_peers() {
    let peers: Vec<Rig> = (0..4).map(|_| Rig::new()).collect();
    let shared: Vec<Reservation> = peers
        .iter()
        .map(|peer| {
            let mut kv = peer.reserve(2);
            let props = peer.props().shareable_as(HandleType::PosixFd.into());
            kv.map(0, G, &props).unwrap();
            kv.map(G, G, &props).unwrap();
            kv
        })
        .collect();
    let here = Rig::new();
    let mut kv = here.reserve(8);
    let export = |peer: usize| received(exported(&shared[peer]));
    for peer in 0..2 {
        export(peer).attach_into(&mut kv, 2 * peer * G).unwrap();
    }
    for call in [
        Call::cuMemImportFromShareableHandle,
        Call::cuMemMap,
        Call::cuMemSetAccess,
    ] {
        for nth in [1, 2] {
            let before = (here.sim.snapshot(), kv.to_string());
            let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
            here.sim
                .inject(Fault::on(call).nth(nth).code(code))
                .unwrap();
            let error = export(2).attach_into(&mut kv, 4 * G).unwrap_err();
            assert!(error.is_not_permitted(), "{error}");
            assert_eq!((here.sim.snapshot(), kv.to_string()), before);
        }
    }
    for peer in 2..4 {
        export(peer).attach_into(&mut kv, 2 * peer * G).unwrap();
    }
    assert_eq!(kv.mapping_count(), 8);
    kv.close().unwrap();
    here.leaves_nothing();
    shared.into_iter().for_each(|kv| kv.close().unwrap());
    peers.into_iter().for_each(Rig::leaves_nothing);
}

/// Failure case 37: a thousand bytes somewhere in an allocation. The whole of it is mapped, and the thousand are found.
fn a_short_buffer(on: &Machine) {
    let mut kv = furnished(on);
    let text: Vec<u8> = (0..1000).map(|byte| (byte % 251) as u8).collect();
    let at = on.g + 512;
    kv.write(at, &text).unwrap();
    let found = SpanSource::of_addresses(&on.driver, kv.base() + at as u64, text.len()).unwrap();
    let import = received(found.export(HandleType::PosixFd, Access::Read).unwrap());
    let (lead, size) = (found.lead(), found.size());
    assert_eq!((lead, size), (at, 2 * on.g));
    found.release().unwrap();
    let span = import.attach_read_only(&on.driver, [&on.device]).unwrap();
    assert_eq!(span.size(), size);
    assert_eq!(span.view(lead, text.len()).unwrap().size(), 1000);
    let mut back = vec![0; text.len()];
    span.read(lead, &mut back).unwrap();
    assert_eq!(back, text);
    span.close().unwrap();
    // What the user's length is not: a size to import with.
    let page = props(on).create(on.g).unwrap();
    let fd = page.export_fd().unwrap();
    let error = Allocation::import_fd(&on.driver, fd.as_fd(), 1000).unwrap_err();
    assert!(
        matches!(error, Error::Misaligned { value: 1000, .. }),
        "{error:?}"
    );
    page.release().unwrap();
    kv.close().unwrap();
}

/// Failure case 67.
fn descriptors_keep(on: &Machine) {
    let size = 32 * on.g;
    let free = on.free();
    let page = props(on).create(size).unwrap();
    let fd = page.export_fd().unwrap();
    let copy = fd.try_clone().unwrap();
    page.release().unwrap();
    on.returned(free - size);
    drop(fd);
    on.returned(free - size);
    drop(copy);
    on.returned(free);
    // A span's, which are the parcel's own: the reservation goes first.
    let mut kv = on.reserve(32);
    kv.map(0, size, &props(on)).unwrap();
    let parcel = exported(&kv);
    kv.close().unwrap();
    on.returned(free - size);
    let import = received(parcel);
    on.returned(free - size);
    let span = import.attach_read_only(&on.driver, [&on.device]).unwrap();
    on.returned(free - size);
    span.close().unwrap();
    on.returned(free);
}

/// Failure cases 71 and 120: other threads open files all the time, so that every number that an import might close
/// once too often is another file's at once.
fn files_beside_imports(on: &Machine) {
    let kv = furnished(on);
    let done = AtomicBool::new(false);
    let known = fs::metadata("/etc/passwd").unwrap().ino();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let files: Vec<File> =
                        (0..8).map(|_| File::open("/etc/passwd").unwrap()).collect();
                    thread::yield_now();
                    for file in files {
                        assert_eq!(file.metadata().unwrap().ino(), known);
                    }
                }
            });
        }
        for _ in 0..200 {
            let policy = [(&on.device, Access::Read)];
            let span = received(exported(&kv)).attach(&on.driver, policy).unwrap();
            span.close().unwrap();
            let null = File::open("/dev/null").unwrap();
            Allocation::import_fd(&on.driver, null.as_fd(), on.g).unwrap_err();
            assert!(
                null.metadata().is_ok(),
                "it stays the caller's, also after a failure"
            );
        }
        done.store(true, Ordering::Relaxed);
    });
    kv.close().unwrap();
}

/// Failure case 73: the description says what kind of handle is in it, whatever the receiver is used to.
fn the_senders_kind() {
    let rig = || Rig::with(Simulation::builder().imex_channel(true));
    let (maker, taker) = (rig(), rig());
    let mut kv = maker.reserve(1);
    let props = maker.props().shareable_as(HandleType::PosixFd.into());
    kv.map(0, G, &props).unwrap();
    let by_fd = exported(&kv);
    let page = maker
        .props()
        .shareable_as(HandleType::Fabric.into())
        .create(G)
        .unwrap();
    let mut other = maker.reserve(1);
    other.map_existing(0, &page).unwrap();
    let by_fabric = other
        .export_span(0, G, HandleType::Fabric, Access::Read)
        .unwrap();
    let (fd_bytes, fds, _) = by_fd.into_parts();
    let (fabric_bytes, none, _kept) = by_fabric.into_parts();
    assert!(none.is_empty());
    // Each with what belongs to the other.
    let error = SpanImport::new(&fd_bytes, none).unwrap_err();
    same(&error, &Error::WrongFdCount { needed: 1, got: 0 });
    let error = SpanImport::new(&fabric_bytes, fds).unwrap_err();
    same(&error, &Error::WrongFdCount { needed: 0, got: 1 });
    let import = SpanImport::new(&fabric_bytes, Vec::new()).unwrap();
    assert_eq!(import.descriptor().handle_type(), HandleType::Fabric);
    let span = import
        .attach_read_only(&taker.driver, [taker.device()])
        .unwrap();
    span.close().unwrap();
    // Where there is no fabric, its handle is refused, and not read as something else.
    let without = Rig::new();
    let import = SpanImport::new(&fabric_bytes, Vec::new()).unwrap();
    let refused = import.attach_read_only(&without.driver, [without.device()]);
    assert!(refused.unwrap_err().is_not_supported());
    without.leaves_nothing();
    drop((kv, other, page, _kept));
    taker.leaves_nothing();
    maker.leaves_nothing();
}

/// Failure case 87.
fn dropped_while_imported(on: &Machine) {
    let kv = furnished(on);
    let page = props(on).create(on.g).unwrap();
    let fd = page.export_fd().unwrap();
    let stays = Allocation::import_fd(&on.driver, fd.as_fd(), on.g).unwrap();
    let mut mine = on.reserve(1);
    mine.map_existing(0, &stays).unwrap();
    mine.write(0, b"stays").unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let import = Allocation::import_fd(&on.driver, fd.as_fd(), on.g).unwrap();
                    assert_ne!(import.raw(), stays.raw());
                    import.release().unwrap();
                }
            });
        }
    });
    let mut bytes = [0; 5];
    mine.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"stays");
    mine.close().unwrap();
    stays.release().unwrap();
    page.release().unwrap();
    kv.close().unwrap();
}

/// Failure case 91: an export is written to a place that is there, and an import gets what it is to get.
fn by_value_or_address() {
    let rig = Rig::with(
        Simulation::builder()
            .imex_channel(true)
            .log(cuda_vmm::sim::LogMode::All),
    );
    let passed = |call: Call| -> Vec<Value> {
        let log = rig.sim.log();
        let calls = log.iter().filter(|record| record.call == call);
        calls
            .map(|record| record.arg("shareable").unwrap().clone())
            .collect()
    };
    let both = cuda_vmm::HandleTypes::POSIX_FD | cuda_vmm::HandleTypes::FABRIC;
    let page = rig.props().shareable_as(both).create(G).unwrap();
    let fd = page.export_fd().unwrap();
    let fabric = page.export_fabric().unwrap();
    let export = passed(Call::cuMemExportToShareableHandle);
    assert_eq!(export.len(), 2);
    assert!(
        export.iter().all(|value| *value != Value::Null),
        "{export:?}"
    );
    drop(Allocation::import_fd(&rig.driver, fd.as_fd(), G).unwrap());
    drop(Allocation::import_fabric(&rig.driver, fabric.handle(), G).unwrap());
    let import = passed(Call::cuMemImportFromShareableHandle);
    assert_eq!(import[0], Value::Pointer(fd.as_raw_fd() as usize));
    // An address is no number of a descriptor.
    assert!(
        matches!(import[1], Value::Pointer(address) if address > 1 << 20),
        "{import:?}"
    );
    drop((page, fd, fabric));
    rig.leaves_nothing();
}
