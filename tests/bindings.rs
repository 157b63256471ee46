//! The declarations against numbers written down by hand, from the driver's ABI: a generator that goes wrong goes wrong
//! in code and layout checks alike, so neither may be the other's witness.

use std::mem::{align_of, offset_of, size_of};

use cuda_vmm::sys::{
    CUdevice_attribute as Attribute, CUevent_wait_flags, CUfunction, CUhostFn, CUmemAccessDesc,
    CUmemAccess_flags as Flags, CUmemAllocationCompType,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType as HandleType,
    CUmemAllocationProp, CUmemAllocationType as Type, CUmemFabricHandle,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType as LocationType,
    CUmemRangeHandleType, CUmemorytype, CUmodule, CUpointer_attribute as Pointer, CUresult,
    CUstreamWriteValue_flags, CUuuid, Call, CallTable, DriverCalls, CUDA_MEMCPY2D,
};

#[test]
fn structs_have_the_layout_of_the_abi() {
    assert_eq!(size_of::<CUmemLocation>(), 8);
    assert_eq!(offset_of!(CUmemLocation, type_), 0);
    assert_eq!(offset_of!(CUmemLocation, id), 4);

    assert_eq!(size_of::<CUmemAccessDesc>(), 12);
    assert_eq!(align_of::<CUmemAccessDesc>(), 4);
    assert_eq!(offset_of!(CUmemAccessDesc, location), 0);
    assert_eq!(offset_of!(CUmemAccessDesc, flags), 8);

    assert_eq!(size_of::<CUmemAllocationProp>(), 32);
    assert_eq!(align_of::<CUmemAllocationProp>(), 8);
    assert_eq!(offset_of!(CUmemAllocationProp, type_), 0);
    assert_eq!(offset_of!(CUmemAllocationProp, requestedHandleTypes), 4);
    assert_eq!(offset_of!(CUmemAllocationProp, location), 8);
    assert_eq!(offset_of!(CUmemAllocationProp, win32HandleMetaData), 16);
    assert_eq!(
        offset_of!(CUmemAllocationProp, allocFlags.compressionType),
        24
    );
    assert_eq!(
        offset_of!(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable),
        25
    );
    assert_eq!(offset_of!(CUmemAllocationProp, allocFlags.usage), 26);
    assert_eq!(offset_of!(CUmemAllocationProp, allocFlags.reserved), 28);

    assert_eq!(size_of::<CUDA_MEMCPY2D>(), 128);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, srcXInBytes), 0);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, srcMemoryType), 16);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, srcHost), 24);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, srcDevice), 32);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, srcPitch), 48);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstXInBytes), 56);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstMemoryType), 72);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstHost), 80);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstDevice), 88);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstPitch), 104);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, WidthInBytes), 112);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, Height), 120);

    assert_eq!(size_of::<CUhostFn>(), size_of::<usize>());
    assert_eq!(size_of::<CUmodule>(), size_of::<usize>());
    assert_eq!(size_of::<CUfunction>(), size_of::<usize>());
    assert_eq!(size_of::<CUmemFabricHandle>(), 64);
    assert_eq!(size_of::<CUmemGenericAllocationHandle>(), 8);
    assert_eq!(size_of::<CUuuid>(), 16);
}

#[test]
fn the_table_is_one_pointer_a_call() {
    assert_eq!(size_of::<CallTable>(), Call::ALL.len() * size_of::<usize>());
    assert_eq!(offset_of!(CallTable, cuInit), 0);
}

#[test]
fn an_enumerator_is_an_int() {
    assert_eq!(size_of::<CUresult>(), 4);
    assert_eq!(size_of::<LocationType>(), 4);
    assert_eq!(size_of::<HandleType>(), 4);
    assert_eq!(size_of::<Attribute>(), 4);
    assert_eq!(size_of::<CUmemorytype>(), 4);
}

#[test]
fn enumerators_have_the_values_of_the_abi() {
    assert_eq!(LocationType::CU_MEM_LOCATION_TYPE_INVALID.0, 0);
    assert_eq!(LocationType::CU_MEM_LOCATION_TYPE_DEVICE.0, 1);
    assert_eq!(Type::CU_MEM_ALLOCATION_TYPE_INVALID.0, 0);
    assert_eq!(Type::CU_MEM_ALLOCATION_TYPE_PINNED.0, 1);
    assert_eq!(HandleType::CU_MEM_HANDLE_TYPE_NONE.0, 0);
    assert_eq!(HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0, 1);
    assert_eq!(HandleType::CU_MEM_HANDLE_TYPE_WIN32.0, 2);
    assert_eq!(HandleType::CU_MEM_HANDLE_TYPE_WIN32_KMT.0, 4);
    assert_eq!(HandleType::CU_MEM_HANDLE_TYPE_FABRIC.0, 8);
    assert_eq!(Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE.0, 0);
    assert_eq!(Flags::CU_MEM_ACCESS_FLAGS_PROT_READ.0, 1);
    assert_eq!(Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0, 3);
    assert_eq!(Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM.0, 0);
    assert_eq!(Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED.0, 1);
    assert_eq!(CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_GENERIC.0, 1);
    assert_eq!(
        CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.0,
        1
    );
}

#[test]
fn what_goes_with_streams_has_the_values_of_the_abi() {
    assert_eq!(CUmemorytype::CU_MEMORYTYPE_HOST.0, 1);
    assert_eq!(CUmemorytype::CU_MEMORYTYPE_DEVICE.0, 2);
    assert_eq!(CUmemorytype::CU_MEMORYTYPE_ARRAY.0, 3);
    assert_eq!(CUmemorytype::CU_MEMORYTYPE_UNIFIED.0, 4);
    assert_eq!(CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT.0, 0);
    assert_eq!(CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0, 1);
    type Write = CUstreamWriteValue_flags;
    assert_eq!(Write::CU_STREAM_WRITE_VALUE_DEFAULT.0, 0);
    assert_eq!(Write::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0, 1);
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1.0,
        92
    );
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V2.0,
        122
    );
}

#[test]
fn results_have_the_values_of_the_abi() {
    assert_eq!(CUresult::CUDA_SUCCESS.0, 0);
    assert_eq!(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU.0, 209);
    assert_eq!(CUresult::CUDA_ERROR_INVALID_PTX.0, 218);
    assert_eq!(CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND.0, 221);
    assert_eq!(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION.0, 222);
    assert_eq!(CUresult::CUDA_ERROR_INVALID_VALUE.0, 1);
    assert_eq!(CUresult::CUDA_ERROR_OUT_OF_MEMORY.0, 2);
    assert_eq!(CUresult::CUDA_ERROR_NOT_INITIALIZED.0, 3);
    assert_eq!(CUresult::CUDA_ERROR_DEINITIALIZED.0, 4);
    assert_eq!(CUresult::CUDA_ERROR_STUB_LIBRARY.0, 34);
    assert_eq!(CUresult::CUDA_ERROR_NO_DEVICE.0, 100);
    assert_eq!(CUresult::CUDA_ERROR_INVALID_DEVICE.0, 101);
    assert_eq!(CUresult::CUDA_ERROR_INVALID_CONTEXT.0, 201);
    assert_eq!(CUresult::CUDA_ERROR_INVALID_HANDLE.0, 400);
    assert_eq!(CUresult::CUDA_ERROR_NOT_FOUND.0, 500);
    assert_eq!(CUresult::CUDA_ERROR_NOT_READY.0, 600);
    assert_eq!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0, 700);
    assert_eq!(CUresult::CUDA_ERROR_NOT_PERMITTED.0, 800);
    assert_eq!(CUresult::CUDA_ERROR_NOT_SUPPORTED.0, 801);
    assert_eq!(CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.0, 803);
    assert_eq!(CUresult::CUDA_ERROR_UNKNOWN.0, 999);
}

#[test]
fn attributes_have_the_values_of_the_abi() {
    assert_eq!(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID.0, 33);
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0,
        75
    );
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.0,
        102
    );
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED.0,
        103
    );
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED.0,
        107
    );
    assert_eq!(
        Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED.0,
        110
    );
    assert_eq!(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED.0, 124);
    assert_eq!(Pointer::CU_POINTER_ATTRIBUTE_MEMORY_TYPE.0, 2);
    assert_eq!(Pointer::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.0, 9);
    assert_eq!(Pointer::CU_POINTER_ATTRIBUTE_RANGE_SIZE.0, 12);
    assert_eq!(Pointer::CU_POINTER_ATTRIBUTE_MAPPED.0, 13);
}

#[test]
fn handle_types_are_asked_for_together() {
    let both = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        | HandleType::CU_MEM_HANDLE_TYPE_FABRIC;
    assert_eq!(both.0, 9);
    assert_eq!(
        both & HandleType::CU_MEM_HANDLE_TYPE_FABRIC,
        HandleType::CU_MEM_HANDLE_TYPE_FABRIC
    );
}

/// A driver newer than the header may answer with a number that has no name here.
#[test]
fn a_code_without_a_name_is_a_value_like_any_other() {
    let unknown = CUresult(12345);
    assert_ne!(unknown, CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(format!("{unknown:?}"), "cudaError_enum(12345)");
}

#[test]
fn defaults_are_zeroes() {
    let props = CUmemAllocationProp::default();
    assert_eq!(props.type_, Type::CU_MEM_ALLOCATION_TYPE_INVALID);
    assert_eq!(
        props.requestedHandleTypes,
        HandleType::CU_MEM_HANDLE_TYPE_NONE
    );
    assert_eq!(props.location, CUmemLocation::default());
    assert_eq!(props.location.id, 0);
    assert!(props.win32HandleMetaData.is_null());
    assert_eq!(props.allocFlags, Default::default());
    assert_eq!(
        CUmemAccessDesc::default().flags,
        Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
    );
}

#[test]
fn an_empty_table_has_no_call() {
    let table = CallTable::default();
    for &call in Call::ALL {
        assert!(!table.provides(call), "{call}");
    }
    // SAFETY: the table is empty, so no function is called.
    let answer = unsafe { table.cuMemMap(0, 0, 0, 0, 0) };
    assert_eq!(answer, CUresult::CUDA_ERROR_NOT_FOUND);
}
