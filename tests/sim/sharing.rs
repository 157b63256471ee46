//! Exported memory: how long it lives, and who else can have it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cuda_vmm::sim::{Place, SimDevice, Simulation};
use cuda_vmm::sys::*;

use crate::rig::*;

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn an_exported_descriptor_keeps_the_memory() {
    let rig = Rig::new();
    let all = rig.free_bytes();
    let handle = rig.create(4 * G).unwrap();
    let fd = rig.export(handle).unwrap();
    let copy = fd.try_clone().unwrap();
    rig.release(handle).unwrap();
    drop(fd);
    assert_eq!(rig.free_bytes(), all - 4 * G as u64);
    assert_eq!(rig.snapshot().exports.len(), 1);
    drop(copy);
    assert_eq!(rig.free_bytes(), all);
    assert!(rig.snapshot().holds_no_memory());
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_create_finds_what_a_closed_descriptor_left() {
    let rig = Rig::small(4);
    let handle = rig.create(2 * G).unwrap();
    let fd = rig.export(handle).unwrap();
    rig.release(handle).unwrap();
    assert_eq!(rig.create(2 * G), Err(OOM));
    drop(fd);
    rig.create(2 * G).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_dma_buf_is_of_whole_pages_of_exportable_memory() {
    let rig = Rig::new();
    let (address, _) = rig.block(2);
    let dma_buf = |address: u64, size: usize| -> Result<OwnedFd> {
        let mut fd = -1;
        let to = std::ptr::from_mut(&mut fd).cast();
        let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        check(unsafe {
            rig.0
                .cuMemGetHandleForAddressRange(to, address, size, kind, 0)
        })?;
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    assert!(dma_buf(address + 4096, G).is_ok());
    assert_eq!(dma_buf(address, 100).err(), Some(INVALID));
    assert_eq!(dma_buf(address + 100, 4096).err(), Some(INVALID));
    assert_eq!(dma_buf(address, 3 * G).err(), Some(INVALID));
    let private = rig.create_with(G, &props(0)).unwrap();
    let elsewhere = rig.reserve(G).unwrap();
    rig.map(elsewhere, G, private).unwrap();
    let refused = dma_buf(elsewhere, G).err();
    assert_eq!(refused, Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn imports_lead_to_the_same_memory() {
    let rig = Rig::new();
    let (address, handle) = rig.block(1);
    rig.write(address, b"shared").unwrap();
    let fd = rig.export(handle).unwrap();
    let imports = [(); 2].map(|()| rig.import(fd.as_raw_fd()).unwrap());
    assert_ne!(imports[0], imports[1]);
    drop(fd);
    let there = rig.reserve(G).unwrap();
    rig.map(there, G, imports[0]).unwrap();
    rig.access(there, G, 1).unwrap();
    assert_eq!(rig.read(there, 6), Ok(b"shared".to_vec()));
    let handles = rig.snapshot().handles;
    assert!(handles.iter().all(|of| of.memory == handles[0].memory));
    assert_eq!(rig.export(imports[0]).err(), Some(INVALID));
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_released_allocation_can_be_had_back_through_its_descriptor() {
    let rig = Rig::new();
    let block = rig.block(1);
    rig.write(block.0, b"back").unwrap();
    let fd = rig.export(block.1).unwrap();
    rig.drop_block(block, 1);
    let handle = rig.import(fd.as_raw_fd()).unwrap();
    drop(fd);
    rig.free_bytes(); // looks for memory that no descriptor keeps any more
    let address = rig.reserve(G).unwrap();
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 3).unwrap();
    assert_eq!(rig.read(address, 4), Ok(b"back".to_vec()));
    rig.drop_block((address, handle), 1);
    assert!(rig.snapshot().holds_no_memory(), "{}", rig.snapshot());
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn the_importers_account_is_the_exporters() {
    let (maker, taker) = (Rig::new(), Rig::new());
    let (address, handle) = maker.block(1);
    let all = maker.free_bytes() + G as u64;
    let fd = maker.export(handle).unwrap();
    let import = taker.import(fd.as_raw_fd()).unwrap();
    drop(fd);
    maker.drop_block((address, handle), 1);
    assert_eq!(maker.free_bytes(), all - G as u64, "the import keeps it");
    taker.release(import).unwrap();
    assert_eq!(maker.free_bytes(), all);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_device_is_known_by_its_uuid() {
    let uuid = [0xd0; 16];
    let maker = Rig::with(Simulation::builder().device(SimDevice::new().uuid(uuid)));
    let other = SimDevice::new().uuid([0xd1; 16]);
    let taker = Simulation::builder()
        .device(other.clone())
        .device(SimDevice::new().uuid(uuid));
    let taker = Rig::with(taker);
    let stranger = Rig::with(Simulation::builder().device(other));
    let handle = maker.create(G).unwrap();
    let fd = maker.export(handle).unwrap();
    taker.import(fd.as_raw_fd()).unwrap();
    assert_eq!(taker.snapshot().handles[0].place, Place::Device(1));
    let unknown = Err(CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(stranger.import(fd.as_raw_fd()), unknown);
}

#[test]
fn fabric_handles_name_and_do_not_keep() {
    let builder = || Simulation::builder().imex_channel(true);
    for rig in [Rig::with(builder()), Rig::with(builder().ledger_only())] {
        let handle = rig.create_with(G, &props(8)).unwrap();
        let fabric = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
        let mut name = CUmemFabricHandle { data: [0; 64] };
        let at = std::ptr::from_mut(&mut name).cast();
        check(unsafe { rig.0.cuMemExportToShareableHandle(at, handle, fabric, 0) }).unwrap();
        let mut import = 0;
        check(unsafe {
            rig.0
                .cuMemImportFromShareableHandle(&mut import, at, fabric)
        })
        .unwrap();
        assert_eq!(
            rig.snapshot().handles[1].memory,
            rig.snapshot().handles[0].memory
        );
        rig.release(import).unwrap();
        rig.release(handle).unwrap();
        let gone = unsafe {
            rig.0
                .cuMemImportFromShareableHandle(&mut import, at, fabric)
        };
        assert_eq!(gone, CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert!(rig.snapshot().holds_no_memory());
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn an_import_over_the_fabric_keeps_the_memory() {
    let builder = || Simulation::builder().imex_channel(true);
    let (maker, taker) = (Rig::with(builder()), Rig::with(builder()));
    let all = maker.free_bytes();
    let handle = maker.create_with(G, &props(8)).unwrap();
    let fabric = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
    let mut name = CUmemFabricHandle { data: [0; 64] };
    let at = std::ptr::from_mut(&mut name).cast();
    check(unsafe { maker.0.cuMemExportToShareableHandle(at, handle, fabric, 0) }).unwrap();
    let mut import = 0;
    let code = unsafe {
        taker
            .0
            .cuMemImportFromShareableHandle(&mut import, at, fabric)
    };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    maker.release(handle).unwrap();
    assert_eq!(maker.free_bytes(), all - G as u64);
    taker.release(import).unwrap();
    assert_eq!(maker.free_bytes(), all);
}

#[test]
fn the_ledger_has_no_descriptors() {
    let rig = Rig::ledger_only();
    let handle = rig.create(G).unwrap();
    let refused = rig.export(handle).err();
    assert_eq!(refused, Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}
