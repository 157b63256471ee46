//! Memory is real, or as good as real in the ledger.

use cuda_vmm::sys::{CUmemLocationType, CUresult, DriverCalls};

use crate::rig::*;

#[test]
fn what_is_written_reads_back_in_both_modes() {
    for rig in Rig::both() {
        let block = rig.block(2);
        let (address, _) = block;
        assert_eq!(rig.read(address, 8), Ok(vec![0; 8]), "new pages read zero");
        let text = b"across the seam of two pages";
        let seam = address + (64 << 10) - 5;
        rig.write(seam, text).unwrap();
        assert_eq!(rig.read(seam, text.len()), Ok(text.to_vec()));
        rig.fill(address, 7, 2 * G).unwrap();
        assert_eq!(rig.read(seam, 3), Ok(vec![7; 3]));
        rig.drop_block(block, 2);
        rig.leave(0);
        assert!(rig.snapshot().is_empty(), "{}", rig.snapshot());
    }
}

#[test]
fn a_mirror_shows_the_same_bytes() {
    for rig in Rig::both() {
        let address = rig.reserve(4 * G).unwrap();
        let handle = rig.create(G).unwrap();
        let mirror = address + 2 * G as u64;
        for at in [address, mirror] {
            rig.map(at, G, handle).unwrap();
            rig.access(at, G, 3).unwrap();
        }
        rig.write(address + 3, b"twice").unwrap();
        assert_eq!(rig.read(mirror + 3, 5), Ok(b"twice".to_vec()));
    }
}

#[test]
fn contents_survive_an_unmap_and_rights_do_not() {
    for rig in Rig::both() {
        let (address, handle) = rig.block(1);
        rig.write(address, b"kept").unwrap();
        rig.unmap(address, G).unwrap();
        rig.map(address, G, handle).unwrap();
        assert_eq!(rig.rights(address), Ok(0));
        assert_eq!(rig.read(address, 4), Err(INVALID));
        rig.access(address, G, 1).unwrap();
        assert_eq!(rig.read(address, 4), Ok(b"kept".to_vec()));
        assert_eq!(rig.write(address, b"no"), Err(INVALID));
    }
}

#[test]
fn a_copy_crosses_mappings_and_no_hole() {
    for rig in Rig::both() {
        let size = G as u64;
        let address = rig.reserve(4 * G).unwrap();
        for at in [address, address + size, address + 3 * size] {
            let handle = rig.create(G).unwrap();
            rig.map(at, G, handle).unwrap();
            rig.access(at, G, 3).unwrap();
        }
        rig.write(address + size - 2, b"seam").unwrap();
        assert_eq!(rig.read(address + size - 2, 4), Ok(b"seam".to_vec()));
        assert_eq!(rig.fill(address + size, 1, 2 * G), Err(INVALID));
        assert_eq!(rig.read(address + size, 2), Ok(b"am".to_vec()));
        let copy = unsafe {
            rig.0
                .cuMemcpyDtoD_v2(address + 3 * size, address + size - 2, 4)
        };
        assert_eq!(copy, CUresult::CUDA_SUCCESS);
        assert_eq!(rig.read(address + 3 * size, 4), Ok(b"seam".to_vec()));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn memory_of_a_node_is_the_processors_too() {
    let rig = Rig::new();
    let mut props = props(1);
    props.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
    let handle = rig.create_with(G, &props).unwrap();
    let address = rig.reserve(G).unwrap();
    rig.map(address, G, handle).unwrap();
    let mut host = grant(0, 3);
    host.location = props.location;
    rig.access_of(address, G, &[grant(0, 3), host]).unwrap();
    rig.fill(address, 7, G).unwrap();
    let byte = address as *mut u8;
    assert_eq!(unsafe { byte.read_volatile() }, 7);
    unsafe { byte.write_volatile(9) };
    assert_eq!(rig.read(address, 1), Ok(vec![9]));
}

#[test]
fn two_to_the_46_bytes_can_be_reserved_and_come_back() {
    for rig in Rig::both() {
        for _ in 0..3 {
            let size = 1 << 46;
            let address = rig.reserve(size).unwrap();
            assert_eq!(rig.reserve(2 * size), Err(OOM));
            rig.address_free(address, size).unwrap();
        }
    }
}

#[test]
fn hints_are_honoured_where_they_can_be() {
    for rig in Rig::both() {
        let far = 0x2000_0000_0000;
        assert_eq!(rig.reserve_at(G, far), Ok(far));
        let behind = far + G as u64;
        assert_eq!(rig.reserve_at(G, behind), Ok(behind));
        let elsewhere = rig.reserve_at(G, far).unwrap();
        assert_ne!(elsewhere, far);
        rig.address_free(far, G).unwrap();
        assert_eq!(rig.reserve_at(G, far), Ok(far));
    }
}

#[test]
fn a_mapping_over_the_end_harms_nobody() {
    for rig in Rig::both() {
        let size = 4 * G;
        let address = rig.reserve(size).unwrap();
        let last = address + 3 * G as u64;
        let handle = rig.create(2 * G).unwrap();
        rig.map(last, 2 * G, handle).unwrap();
        rig.access(last, 2 * G, 3).unwrap();
        rig.fill(last, 5, 2 * G).unwrap();
        assert_eq!(rig.address_free(address, size), Err(INVALID));
        let behind = address + size as u64;
        assert_ne!(rig.reserve_at(G, behind), Ok(behind), "it is mapped there");
        rig.unmap(last, 2 * G).unwrap();
        assert_eq!(rig.reserve_at(G, behind), Ok(behind));
        rig.address_free(address, size).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_host_buffer_that_nobody_can_touch_is_refused() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let reserved = rig.reserve(G).unwrap() as *const std::ffi::c_void;
    let upload = unsafe { rig.0.cuMemcpyHtoD_v2(address, reserved, 8) };
    assert_eq!(upload, INVALID);
    let download = unsafe { rig.0.cuMemcpyDtoH_v2(reserved.cast_mut(), address, 8) };
    assert_eq!(download, INVALID);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memfd")]
fn a_hint_that_cannot_be_had_keeps_nobody_out() {
    let (first, second) = (Rig::new(), Rig::new());
    let far = 0x2100_0000_0000;
    let before = far - G as u64;
    assert_eq!(first.reserve_at(G, far), Ok(far));
    assert_ne!(first.reserve_at(2 * G, before), Ok(before));
    assert_eq!(second.reserve_at(G, before), Ok(before));
}

#[test]
fn the_last_granule_of_a_device_cannot_be_had() {
    let rig = Rig::small(4);
    assert_eq!(rig.create(4 * G), Err(OOM));
    let handles = [(); 3].map(|()| rig.create(G).unwrap());
    assert_eq!(rig.create(G), Err(OOM));
    assert_eq!(rig.alloc(1), Err(OOM));
    for handle in handles {
        rig.release(handle).unwrap();
    }
    assert_eq!(rig.free_bytes(), 4 * G as u64);
}

#[test]
fn ordinary_memory_goes_with_its_context() {
    for rig in Rig::both() {
        let address = rig.alloc(100).unwrap();
        rig.write(address + 90, b"0123456789").unwrap();
        assert_eq!(rig.read(address + 90, 10), Ok(b"0123456789".to_vec()));
        assert_eq!(rig.fill(address + 90, 0, 11), Err(INVALID));
        assert_eq!(rig.address_free(address, G), Err(INVALID));
        rig.leave(0);
        assert!(rig.snapshot().is_empty(), "{}", rig.snapshot());
    }
}

#[test]
fn a_hundred_thousand_mappings_in_the_ledger() {
    const COUNT: usize = if cfg!(miri) { 200 } else { 100_000 };
    let rig = Rig::ledger_only();
    let address = rig.reserve(COUNT * G).unwrap();
    let handle = rig.create(G).unwrap();
    let at = |index: usize| address + (index * G) as u64;
    for index in 0..COUNT {
        rig.map(at(index), G, handle).unwrap();
    }
    rig.access(address, COUNT * G, 3).unwrap();
    rig.write(at(COUNT - 1), b"all the same").unwrap();
    assert_eq!(rig.read(at(1), 12), Ok(b"all the same".to_vec()));
    rig.unmap(address, COUNT * G).unwrap();
    rig.release(handle).unwrap();
    rig.address_free(address, COUNT * G).unwrap();
    assert!(rig.snapshot().holds_no_memory());
}
