//! Copies of rows: `cuMemcpy2DAsync`.
//!
//! Nothing of this was measured yet. Where the documentation leaves the answer open, the case says that it is assumed.

use std::ffi::c_void;

use cuda_vmm::sys::{CUdeviceptr, CUmemorytype, CUDA_MEMCPY2D};

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::READ;
use crate::streams::Stream;

const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;
const UNIFIED: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_UNIFIED;

pub const SECTION: Section = Section {
    name: "rows",
    cases: &[
        case("device_to_device", MOVED, |gpu| {
            let (from, _from) = counted(gpu);
            let (to, _to) = blank(gpu);
            // Over the seam of two mappings, from rows 16 bytes apart to rows 8 bytes apart.
            let copy = CUDA_MEMCPY2D {
                dstXInBytes: 2,
                ..between(to.at(1) - 8, 8, from.base, 16, 3, 3)
            };
            succeeds(gpu, &copy);
            let rows = [
                [0, 0, 0, 1, 2, 0, 0, 0],
                [0, 0, 16, 17, 18, 0, 0, 0],
                [0, 0, 32, 33, 34, 0, 0, 0],
            ];
            assert_eq!(gpu.bytes(to.at(1) - 8, 24), rows.concat());
        }),
        case("host_to_device_and_back", MOVED, |gpu| {
            let (range, _memory) = blank(gpu);
            let bytes: Vec<u8> = (0..64).collect();
            let copy = CUDA_MEMCPY2D {
                srcMemoryType: HOST,
                srcHost: bytes.as_ptr().cast(),
                srcXInBytes: 4,
                srcY: 1,
                ..between(range.base, 4, 0, 16, 4, 3)
            };
            succeeds(gpu, &copy);
            let packed = [20, 21, 22, 23, 36, 37, 38, 39, 52, 53, 54, 55];
            assert_eq!(gpu.bytes(range.base, 12), packed);

            let mut back = [0_u8; 24];
            let copy = CUDA_MEMCPY2D {
                dstMemoryType: HOST,
                dstHost: back.as_mut_ptr().cast::<c_void>(),
                dstY: 1,
                dstXInBytes: 2,
                ..between(0, 8, range.base, 4, 4, 2)
            };
            succeeds(gpu, &copy);
            let rows = [
                [0; 8],
                [0, 0, 20, 21, 22, 23, 0, 0],
                [0, 0, 36, 37, 38, 39, 0, 0],
            ];
            assert_eq!(back, *rows.concat());
        }),
        case(
            "host_to_host",
            "rows go from host to host, too (assumed)",
            |gpu| {
                let from: Vec<u8> = (0..16).collect();
                let mut to = [0_u8; 8];
                let copy = CUDA_MEMCPY2D {
                    srcMemoryType: HOST,
                    srcHost: from.as_ptr().cast(),
                    dstMemoryType: HOST,
                    dstHost: to.as_mut_ptr().cast::<c_void>(),
                    ..between(0, 4, 0, 8, 4, 2)
                };
                succeeds(gpu, &copy);
                assert_eq!(to, [0, 1, 2, 3, 8, 9, 10, 11]);
            },
        ),
        case(
            "unified",
            "an address that says by itself where it lies can be of either kind",
            |gpu| {
                let (range, _memory) = blank(gpu);
                let bytes: Vec<u8> = (0..16).collect();
                let copy = CUDA_MEMCPY2D {
                    srcMemoryType: UNIFIED,
                    dstMemoryType: UNIFIED,
                    ..between(range.base, 4, bytes.as_ptr() as CUdeviceptr, 8, 4, 2)
                };
                succeeds(gpu, &copy);
                assert_eq!(gpu.bytes(range.base, 8), [0, 1, 2, 3, 8, 9, 10, 11]);
            },
        ),
        case(
            "nothing",
            "a copy of no bytes or no rows is accepted (assumed)",
            |gpu| {
                let (from, _from) = counted(gpu);
                let (to, _to) = blank(gpu);
                succeeds(gpu, &between(to.base, 16, from.base, 16, 0, 4));
                succeeds(gpu, &between(to.base, 16, from.base, 16, 4, 0));
                assert_eq!(gpu.bytes(to.base, 16), [0; 16]);
            },
        ),
        case("pitch_of_the_source_too_small", PITCH, |gpu| {
            refused(gpu, |to, from| between(to, 8, from, 7, 8, 2));
        }),
        case("pitch_of_the_target_too_small", PITCH, |gpu| {
            refused(gpu, |to, from| between(to, 7, from, 8, 8, 2));
        }),
        case("pitch_too_small_for_the_offset", PITCH, |gpu| {
            refused(gpu, |to, from| CUDA_MEMCPY2D {
                srcXInBytes: 1,
                ..between(to, 8, from, 8, 8, 2)
            });
            refused(gpu, |to, from| CUDA_MEMCPY2D {
                dstXInBytes: 1,
                ..between(to, 8, from, 8, 8, 2)
            });
        }),
        case("pitch_of_0", "a pitch of 0 is too small (assumed)", |gpu| {
            refused(gpu, |to, from| between(to, 0, from, 8, 8, 1));
            refused(gpu, |to, from| between(to, 8, from, 0, 8, 1));
        }),
        case(
            "pitch_over_the_maximum",
            "a pitch above the device's maximum, 2^31 - 1, is refused, even of one row",
            |gpu| refused(gpu, |to, from| between(to, 1 << 31, from, 8, 8, 1)),
        ),
        case(
            "memory_types_that_do_not_exist",
            "a memory type that does not exist is refused (assumed)",
            |gpu| {
                for kind in [0, 5] {
                    refused(gpu, |to, from| CUDA_MEMCPY2D {
                        dstMemoryType: CUmemorytype(kind),
                        ..between(to, 8, from, 8, 8, 2)
                    });
                    refused(gpu, |to, from| CUDA_MEMCPY2D {
                        srcMemoryType: CUmemorytype(kind),
                        ..between(to, 8, from, 8, 8, 2)
                    });
                }
            },
        ),
        case("last_row_past_the_mapping", CHECKED, |gpu| {
            let granule = gpu.granularity;
            refused(gpu, |to, from| between(to, granule, from, 8, 8, 3));
            refused(gpu, |to, from| between(to, 8, from, granule, 8, 3));
        }),
        case("rows_to_a_read_only_mapping", CHECKED, |gpu| {
            let (from, _from) = counted(gpu);
            let (to, _to) = blank(gpu);
            gpu.grant(to.base, gpu.granules(2), READ);
            let stream = Stream::new(gpu);
            let copy = between(to.base, 8, from.base, 8, 8, 2);
            call!(gpu, cuMemcpy2DAsync_v2(&copy, stream.raw) => INVALID_VALUE);
            assert_eq!(gpu.bytes(to.base, 16), [0; 16]);
        }),
    ],
};

const MOVED: &str = "rows are copied, and the bytes between them stay";
const PITCH: &str = "a pitch must be as large as a row with what is before it";
const CHECKED: &str =
    "a row that cannot be reached has the copy refused before anything runs (assumed)";

/// A reservation of four granules of which two are mapped; the memory is blank.
fn blank(gpu: &Gpu) -> (Range<'_>, [Handle<'_>; 2]) {
    let range = gpu.reserve(4);
    let memory = [gpu.back(range.base, 1), gpu.back(range.at(1), 1)];
    gpu.fill(range.base, 0, gpu.granules(2));
    (range, memory)
}

/// The same; each of the first 256 bytes has its number.
fn counted(gpu: &Gpu) -> (Range<'_>, [Handle<'_>; 2]) {
    let (range, memory) = blank(gpu);
    let bytes: Vec<u8> = (0..=255).collect();
    call!(gpu, cuMemcpyHtoD_v2(range.base, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
    (range, memory)
}

fn between(
    to: CUdeviceptr,
    to_pitch: usize,
    from: CUdeviceptr,
    from_pitch: usize,
    width: usize,
    rows: usize,
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: DEVICE,
        srcDevice: from,
        srcPitch: from_pitch,
        dstMemoryType: DEVICE,
        dstDevice: to,
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: rows,
        ..Default::default()
    }
}

fn succeeds(gpu: &Gpu, copy: &CUDA_MEMCPY2D) {
    let stream = Stream::new(gpu);
    call!(gpu, cuMemcpy2DAsync_v2(copy, stream.raw) => SUCCESS);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
}

/// The copy between two such reservations is refused, writes nothing, and the context stays sound.
fn refused(gpu: &Gpu, copy: impl Fn(CUdeviceptr, CUdeviceptr) -> CUDA_MEMCPY2D) {
    let (from, _from) = counted(gpu);
    let (to, _to) = blank(gpu);
    let stream = Stream::new(gpu);
    let copy = copy(to.base, from.base);
    call!(gpu, cuMemcpy2DAsync_v2(&copy, stream.raw) => INVALID_VALUE);
    call!(gpu, cuStreamSynchronize(stream.raw) => SUCCESS);
    call!(gpu, cuCtxSynchronize() => SUCCESS);
    assert_eq!(gpu.bytes(to.base, 32), [0; 32]);
}
