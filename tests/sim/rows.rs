//! Copies of rows: in both modes, and with numbers that reach nowhere.

use cuda_vmm::sys::*;

use crate::rig::*;

/// A copy between addresses of devices.
pub fn rows(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    count: usize,
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: from_pitch,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: count,
        ..Default::default()
    }
}

#[test]
fn rows_are_copied_in_both_modes() {
    for rig in Rig::both() {
        let (address, _) = rig.block(2);
        let numbers: Vec<u8> = (0..32).collect();
        rig.write(address, &numbers).unwrap();
        let to = address + G as u64 - 4;
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 1,
            srcY: 1,
            ..rows(to, 5, address, 8, 3, 3)
        };
        let stream = rig.stream();
        check(unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) }).unwrap();
        let copied = [9, 10, 11, 0, 0, 17, 18, 19, 0, 0, 25, 26, 27];
        assert_eq!(rig.read(to, 13), Ok(copied.to_vec()));

        let unified = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcDevice: numbers.as_ptr() as u64,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            ..rows(to, 2, 0, 16, 2, 2)
        };
        check(unsafe { rig.0.cuMemcpy2DAsync_v2(&unified, stream) }).unwrap();
        assert_eq!(rig.read(to, 5), Ok(vec![0, 1, 16, 17, 0]));
    }
}

#[test]
fn numbers_of_rows_that_reach_nowhere() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let stream = rig.stream();
        let refused = |copy: CUDA_MEMCPY2D| {
            let code = unsafe { rig.0.cuMemcpy2DAsync_v2(&copy, stream) };
            assert_eq!(code, INVALID, "{copy:?}");
        };
        let good = rows(address, 8, address + 64, 8, 8, 2);
        let huge = usize::MAX;
        refused(CUDA_MEMCPY2D {
            Height: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D { srcY: huge, ..good });
        refused(CUDA_MEMCPY2D {
            dstY: huge / 8,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            srcXInBytes: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            WidthInBytes: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            srcPitch: huge,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            dstPitch: 1 << 31,
            ..good
        });
        refused(CUDA_MEMCPY2D {
            dstDevice: u64::MAX - 8,
            ..good
        });
        let null = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            ..good
        };
        refused(null);
        let array = CUDA_MEMCPY2D {
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            ..good
        };
        let code = unsafe { rig.0.cuMemcpy2DAsync_v2(&array, stream) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        let code = unsafe { rig.0.cuMemcpy2DAsync_v2(std::ptr::null(), stream) };
        assert_eq!(code, INVALID);
        assert_eq!(rig.read(address, 128), Ok(vec![0; 128]));
        assert_eq!(rig.0.misuses(), []);
    }
}
