//! Copies and fills of odd lengths at odd places.

use std::ptr;

use cuda_vmm::sys::CUdeviceptr;

use crate::case::{case, Section};
use crate::codes::call;
use crate::gpu::Gpu;
use crate::owned::{Handle, Range};
use crate::props::NO_ACCESS;

pub const SECTION: Section = Section {
    name: "lengths",
    cases: &[
        case(
            "one_byte_at_the_end",
            "the last byte of a mapping can be copied alone",
            |gpu| {
                let (range, _memory) = seams(gpu, 1);
                call!(gpu, cuMemcpyHtoD_v2(range.end() - 1, [0x5d_u8].as_ptr().cast(), 1) => SUCCESS);
                assert_eq!(gpu.bytes(range.end() - 2, 2), [0, 0x5d]);
            },
        ),
        case(
            "one_byte_too_many",
            "a copy that ends one byte behind the mapping is refused",
            |gpu| {
                let range = gpu.reserve(2);
                let _memory = gpu.back(range.base, 1);
                let mut bytes = [0xa5_u8; 2];
                call!(gpu, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), range.at(1) - 1, 2) => INVALID_VALUE);
                assert_eq!(bytes, [0xa5; 2]);
            },
        ),
        case("odd_length_at_an_odd_address", EVERY, |gpu| {
            written(gpu, 1, 4097, 12_345)
        }),
        case("over_one_seam", EVERY, |gpu| {
            written(gpu, 2, gpu.granularity - 3, 5)
        }),
        case("over_three_seams", EVERY, |gpu| {
            written(gpu, 4, 7, gpu.granules(3) + 11);
        }),
        case("fill_1", FILLS, |gpu| filled(gpu, 1, 1)),
        case("fill_3", FILLS, |gpu| filled(gpu, 3, 3)),
        case("fill_17", FILLS, |gpu| filled(gpu, 7, 17)),
        case("fill_4097", FILLS, |gpu| filled(gpu, 4095, 4097)),
        case("fill_over_three_seams", FILLS, |gpu| {
            filled(gpu, gpu.granularity - 1, gpu.granules(2) + 2);
        }),
        case(
            "between_odd_addresses",
            "bytes are copied between odd addresses, over seams on both sides",
            |gpu| {
                let (range, _memory) = seams(gpu, 4);
                let bytes = pattern(1001);
                let (from, to) = (range.at(1) - 500, range.at(3) - 77);
                call!(gpu, cuMemcpyHtoD_v2(from, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
                call!(gpu, cuMemcpyDtoD_v2(to, from, bytes.len()) => SUCCESS);
                call!(gpu, cuCtxSynchronize() => SUCCESS);
                assert_eq!(gpu.bytes(to, bytes.len()), bytes);
                assert_eq!(gpu.byte(to - 1), 0, "before");
                assert_eq!(gpu.byte(to + 1001), 0, "behind");
            },
        ),
        case(
            "with_an_ordinary_allocation",
            "bytes are copied to memory of cuMemAlloc and back",
            |gpu| {
                let (range, _memory) = seams(gpu, 2);
                let bytes = pattern(301);
                let mut ordinary = 0;
                call!(gpu, cuMemAlloc_v2(&mut ordinary, gpu.granularity) => SUCCESS);
                call!(gpu, cuMemcpyHtoD_v2(range.at(1) - 9, bytes.as_ptr().cast(), bytes.len()) => SUCCESS);
                call!(gpu, cuMemcpyDtoD_v2(ordinary + 3, range.at(1) - 9, bytes.len()) => SUCCESS);
                call!(gpu, cuMemcpyDtoD_v2(range.base, ordinary + 3, bytes.len()) => SUCCESS);
                call!(gpu, cuCtxSynchronize() => SUCCESS);
                assert_eq!(gpu.bytes(range.base, bytes.len()), bytes);
                call!(gpu, cuMemFree_v2(ordinary) => SUCCESS);
            },
        ),
        case("nothing_from_a_mapping", NOTHING, |gpu| {
            let (range, _memory) = seams(gpu, 1);
            nothing_read(gpu, range.base);
        }),
        case("nothing_from_unmapped", NOTHING, |gpu| {
            let range = gpu.reserve(1);
            nothing_read(gpu, range.base);
        }),
        case("nothing_from_zero", NOTHING, |gpu| nothing_read(gpu, 0)),
        case("nothing_without_access", NOTHING, |gpu| {
            let (range, _memory) = seams(gpu, 1);
            gpu.grant(range.base, range.size, NO_ACCESS);
            nothing_read(gpu, range.base);
        }),
        case("nothing_to_a_mapping", NOTHING, |gpu| {
            let (range, _memory) = seams(gpu, 1);
            call!(gpu, cuMemcpyHtoD_v2(range.base, [1_u8].as_ptr().cast(), 0) => SUCCESS);
            assert_eq!(gpu.byte(range.base), 0);
        }),
        case("nothing_to_unmapped", NOTHING, |gpu| {
            let range = gpu.reserve(1);
            call!(gpu, cuMemcpyHtoD_v2(range.base, [1_u8].as_ptr().cast(), 0) => SUCCESS);
        }),
        case("nothing_between", NOTHING, |gpu| {
            let range = gpu.reserve(2);
            let _memory = gpu.back(range.base, 1);
            call!(gpu, cuMemcpyDtoD_v2(range.base, range.at(1), 0) => SUCCESS);
        }),
        case("fill_nothing", NOTHING, |gpu| {
            let (range, _memory) = seams(gpu, 1);
            call!(gpu, cuMemsetD8_v2(range.base, 1, 0) => SUCCESS);
            assert_eq!(gpu.byte(range.base), 0);
        }),
        case("fill_nothing_unmapped", NOTHING, |gpu| {
            let range = gpu.reserve(1);
            call!(gpu, cuMemsetD8_v2(range.base, 1, 0) => SUCCESS);
        }),
        case("async_from_unmapped", ASYNC, |gpu| {
            let range = gpu.reserve(1);
            let mut byte = 0xa5_u8;
            let to = (&raw mut byte).cast();
            call!(gpu, cuMemcpyDtoHAsync_v2(to, range.base, 1, ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
            assert_eq!(byte, 0xa5);
        }),
        case("async_to_unmapped", ASYNC, |gpu| {
            let range = gpu.reserve(1);
            let from = [1_u8];
            call!(gpu, cuMemcpyHtoDAsync_v2(range.base, from.as_ptr().cast(), 1, ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
        }),
        case("async_fill_unmapped", ASYNC, |gpu| {
            let range = gpu.reserve(1);
            call!(gpu, cuMemsetD8Async(range.base, 1, 16, ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
        }),
        case("async_between_from_unmapped", ASYNC, |gpu| {
            let range = gpu.reserve(2);
            let _memory = gpu.back(range.base, 1);
            call!(gpu, cuMemcpyDtoDAsync_v2(range.base, range.at(1), 16, ptr::null_mut()) => INVALID_VALUE);
            call!(gpu, cuCtxSynchronize() => SUCCESS);
            assert_eq!(gpu.byte(range.base), 0);
        }),
    ],
};

const EVERY: &str = "any length is copied to and from any address, over any number of seams";
const FILLS: &str = "a fill of any length at any address changes those bytes and no others";
const NOTHING: &str = "a copy of no bytes succeeds wherever it points, and does nothing";
const ASYNC: &str = "a copy on a stream is refused when it is enqueued; the context stays sound";

/// A reservation full of mappings of one granule each, all zero.
fn seams(gpu: &Gpu, granules: usize) -> (Range<'_>, Vec<Handle<'_>>) {
    let range = gpu.reserve(granules);
    let each = (0..granules).map(|granule| gpu.back(range.at(granule), 1));
    let memory = each.collect();
    gpu.fill(range.base, 0, range.size);
    (range, memory)
}

/// Bytes that differ from their neighbours, and repeat at no power of two.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte % 251) as u8 + 1).collect()
}

/// Bytes are copied in and out again at an offset; those around them stay zero.
fn written(gpu: &Gpu, granules: usize, offset: usize, length: usize) {
    let (range, _memory) = seams(gpu, granules);
    let bytes = pattern(length);
    let at = range.base + offset as CUdeviceptr;
    call!(gpu, cuMemcpyHtoD_v2(at, bytes.as_ptr().cast(), length) => SUCCESS);
    demand_only(gpu, at, &bytes);
}

/// As [`written`], by a fill over four mappings.
fn filled(gpu: &Gpu, offset: usize, length: usize) {
    let (range, _memory) = seams(gpu, 4);
    let at = range.base + offset as CUdeviceptr;
    gpu.fill(at, 0xc7, length);
    demand_only(gpu, at, &vec![0xc7; length]);
}

/// These bytes are there, and a zero on either side.
#[track_caller]
fn demand_only(gpu: &Gpu, at: CUdeviceptr, bytes: &[u8]) {
    let found = gpu.bytes(at - 1, bytes.len() + 2);
    assert_eq!(found[0], 0, "the byte before");
    assert!(found[1..=bytes.len()] == *bytes, "the bytes themselves");
    assert_eq!(found[bytes.len() + 1], 0, "the byte behind");
}

fn nothing_read(gpu: &Gpu, at: CUdeviceptr) {
    let mut byte = 0xa5_u8;
    call!(gpu, cuMemcpyDtoH_v2((&raw mut byte).cast(), at, 0) => SUCCESS);
    assert_eq!(byte, 0xa5);
}
