//! The operations that share memory with other processes. By fabric handles in both modes, by descriptors where memory
//! is real.

use std::os::fd::AsFd;

use cuda_vmm::share::{SpanImport, SpanSource};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Allocation, Error, HandleType, HandleTypes};

use crate::operations::Operation;
use crate::stage::{Stage, G};

fn shareable_page(stage: &mut Stage) {
    let both = HandleTypes::POSIX_FD | HandleTypes::FABRIC;
    let page = stage.props().shareable_as(both).create(2 * G).unwrap();
    stage.pages.push(page);
}

fn with_fd(stage: &mut Stage) {
    shareable_page(stage);
    let fd = stage.pages[0].export_fd().unwrap();
    stage.fds.push(fd);
}

pub fn with_fabric(stage: &mut Stage) {
    shareable_page(stage);
    let export = stage.pages[0].export_fabric().unwrap();
    stage.fabric.push(export);
}

/// Every backing, a mirror, and holes, in twelve granules; the device's context is retained.
fn shareable_span(stage: &mut Stage) {
    stage.reserve(12);
    stage.devices[0].free_memory().unwrap();
    shareable_page(stage);
    let both = HandleTypes::POSIX_FD | HandleTypes::FABRIC;
    let props = stage.props().shareable_as(both);
    stage.kv().map(0, 2 * G, &props).unwrap();
    stage.map_page(3, 0);
    stage.map_page(6, 0);
    stage.kv().map_releasing(8 * G, G, &props).unwrap();
    stage.number = stage.kv().base();
}

fn parcel(stage: &mut Stage, handle_type: HandleType) {
    shareable_span(stage);
    let exported = stage
        .kv()
        .export_span(0, 10 * G, handle_type, Access::ReadWrite)
        .unwrap();
    stage.other = stage.kv.take();
    stage.parcel = Some(exported.into_parts());
}

fn parcel_of_fds(stage: &mut Stage) {
    parcel(stage, HandleType::PosixFd);
}

fn parcel_of_fabric(stage: &mut Stage) {
    parcel(stage, HandleType::Fabric);
}

fn parcel_and_room(stage: &mut Stage) {
    parcel_of_fabric(stage);
    stage.reserve(16);
    stage.map(0, 1);
}

/// What was sent, received: with descriptors of its own.
fn received(stage: &Stage) -> SpanImport {
    let (bytes, fds, _) = stage.parcel.as_ref().expect("the preparation exports");
    let copies = fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
    SpanImport::new(bytes, copies).unwrap()
}

fn attach(stage: &mut Stage) -> Result<(), Error> {
    let policy = [(&stage.devices[0], Access::ReadWrite)];
    let span = received(stage).attach(stage.driver(), policy)?;
    assert_eq!((span.size(), span.mapping_count()), (10 * G, 4));
    stage.kv = Some(span);
    Ok(())
}

fn export(stage: &mut Stage, handle_type: HandleType) -> Result<(), Error> {
    let exported = stage
        .kv()
        .export_span(0, 12 * G, handle_type, Access::Read)?;
    assert_eq!(exported.descriptor().allocations().len(), 3);
    assert_eq!(exported.descriptor().pieces().len(), 4);
    stage.spans.push(exported);
    Ok(())
}

/// Refused for what a handle type is, and not for what was done.
fn not_here(call: Call, code: CUresult) -> bool {
    let tried = matches!(
        call,
        Call::cuMemGetAllocationGranularity
            | Call::cuMemCreate
            | Call::cuMemExportToShareableHandle
            | Call::cuMemImportFromShareableHandle
    );
    let means_so = matches!(
        code,
        CUresult::CUDA_ERROR_INVALID_VALUE
            | CUresult::CUDA_ERROR_NOT_PERMITTED
            | CUresult::CUDA_ERROR_NOT_SUPPORTED
    );
    tried && means_so
}

fn gap(call: Call, code: CUresult) -> bool {
    call == Call::cuMemRetainAllocationHandle && code == CUresult::CUDA_ERROR_INVALID_VALUE
}

fn whole_or_nothing(call: Call, code: CUresult) -> bool {
    call == Call::cuMemMap && code == CUresult::CUDA_ERROR_NOT_SUPPORTED
}

pub const OPERATIONS: &[Operation] = &[
    Operation::new(
        "Device::choose_handle_type",
        "",
        |_| {},
        |stage| {
            stage.devices[0]
                .choose_handle_type(&HandleType::DEFAULT_ORDER)
                .map(drop)
        },
    )
    .understanding(not_here)
    .or_refusing(|error| matches!(error, Error::Unshareable { .. })),
    Operation::new(
        "Device::require_handle_type",
        "FABRIC",
        |_| {},
        |stage| stage.devices[0].require_handle_type(HandleType::Fabric),
    ),
    Operation::new(
        "Device::require_handle_type",
        "POSIX fd",
        |_| {},
        |stage| stage.devices[0].require_handle_type(HandleType::PosixFd),
    )
    .in_memory(),
    Operation::new(
        "Device::forget_handle_types",
        "",
        |_| {},
        |stage| stage.devices[0].forget_handle_types(),
    ),
    Operation::new("Allocation::export_fd", "", shareable_page, |stage| {
        let fd = stage.pages[0].export_fd()?;
        stage.fds.push(fd);
        Ok(())
    })
    .in_memory(),
    Operation::new("Allocation::export_fabric", "", shareable_page, |stage| {
        let export = stage.pages[0].export_fabric()?;
        stage.fabric.push(export);
        Ok(())
    }),
    Operation::new("Allocation::import_fd", "", with_fd, |stage| {
        let fd = stage.fds[0].as_fd();
        let page = Allocation::import_fd(stage.driver(), fd, 2 * G)?;
        stage.pages.push(page);
        Ok(())
    })
    .in_memory(),
    Operation::new("Allocation::import_fabric", "", with_fabric, |stage| {
        let handle = *stage.fabric[0].handle();
        let page = Allocation::import_fabric(stage.driver(), &handle, 2 * G)?;
        stage.pages.push(page);
        Ok(())
    }),
    Operation::new(
        "Allocation::import_fabric",
        "of a wrong size",
        with_fabric,
        |stage| {
            let handle = *stage.fabric[0].handle();
            Allocation::import_fabric(stage.driver(), &handle, 3 * G).map(drop)
        },
    )
    .understanding(whole_or_nothing)
    .refusing(|error| matches!(error, Error::WrongSize { claimed } if *claimed == 3 * G)),
    Operation::new(
        "Reservation::export_span",
        "by fabric handles",
        shareable_span,
        |stage| export(stage, HandleType::Fabric),
    ),
    Operation::new(
        "Reservation::export_span",
        "by descriptors",
        shareable_span,
        |stage| export(stage, HandleType::PosixFd),
    )
    .in_memory(),
    Operation::new("SpanSource::of_addresses", "", shareable_span, |stage| {
        let address = stage.number + 3 * G as u64 + 5;
        let source = SpanSource::of_addresses(stage.driver(), address, G)?;
        stage.sources.push(source);
        Ok(())
    }),
    Operation::new(
        "SpanSource::of_sparse_addresses",
        "",
        shareable_span,
        |stage| {
            let source = SpanSource::of_sparse_addresses(stage.driver(), stage.number, 10 * G)?;
            stage.sources.push(source);
            Ok(())
        },
    )
    .understanding(gap),
    Operation::new(
        "SpanSource::export",
        "by fabric handles",
        with_source,
        |stage| {
            let exported = stage.sources[0].export(HandleType::Fabric, Access::Read)?;
            stage.spans.push(exported);
            Ok(())
        },
    ),
    Operation::new(
        "SpanSource::export",
        "by descriptors",
        with_source,
        |stage| {
            let exported = stage.sources[0].export(HandleType::PosixFd, Access::Read)?;
            stage.spans.push(exported);
            Ok(())
        },
    )
    .in_memory(),
    Operation::new(
        "SpanImport::attach",
        "where the device is not seen",
        parcel_of_fabric,
        |stage| {
            let (bytes, ..) = stage.parcel.as_mut().expect("the preparation exports");
            // The UUID of the first allocation's device.
            bytes[28 + 25..28 + 41].fill(7);
            attach(stage)
        },
    )
    .refusing(|error| matches!(error, Error::NoSuchUuid { uuid: [7, ..] })),
    Operation::new(
        "SpanImport::attach",
        "of a wrong size",
        parcel_of_fabric,
        |stage| {
            let (bytes, ..) = stage.parcel.as_mut().expect("the preparation exports");
            // The second allocation's size: one granule, of two.
            bytes[28 + 105 + 16..28 + 105 + 24].copy_from_slice(&(G as u64).to_le_bytes());
            attach(stage)
        },
    )
    .understanding(whole_or_nothing)
    .refusing(|error| matches!(error, Error::WrongSize { claimed: G })),
    Operation::new(
        "SpanImport::attach",
        "by fabric handles",
        parcel_of_fabric,
        attach,
    ),
    Operation::new(
        "SpanImport::attach",
        "by descriptors",
        parcel_of_fds,
        attach,
    )
    .in_memory(),
    Operation::new(
        "SpanImport::attach_read_only",
        "",
        parcel_of_fabric,
        |stage| {
            let readers = [&stage.devices[0], &stage.devices[1]];
            let span = received(stage).attach_read_only(stage.driver(), readers)?;
            stage.read_only = Some(span);
            Ok(())
        },
    ),
    Operation::new("SpanImport::attach_into", "", parcel_and_room, |stage| {
        let import = received(stage);
        let ids = import.attach_into(stage.kv(), 2 * G)?;
        assert_eq!(ids.len(), 4);
        stage.ids.extend(ids);
        Ok(())
    }),
];

pub fn with_source(stage: &mut Stage) {
    shareable_span(stage);
    let source = SpanSource::of_sparse_addresses(stage.driver(), stage.number, 10 * G).unwrap();
    stage.sources.push(source);
}
