// Generated from cuda.h by build.rs. Do not edit: run scripts/update-declarations.

pub type CUdeviceptr_v2 = ::std::os::raw::c_ulonglong;
pub type CUdeviceptr = CUdeviceptr_v2;
pub type CUdevice_v1 = ::std::os::raw::c_int;
pub type CUdevice = CUdevice_v1;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUctx_st {
    _unused: [u8; 0],
}
pub type CUcontext = *mut CUctx_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmod_st {
    _unused: [u8; 0],
}
pub type CUmodule = *mut CUmod_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUfunc_st {
    _unused: [u8; 0],
}
pub type CUfunction = *mut CUfunc_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUarray_st {
    _unused: [u8; 0],
}
pub type CUarray = *mut CUarray_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUevent_st {
    _unused: [u8; 0],
}
pub type CUevent = *mut CUevent_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
pub type CUstream = *mut CUstream_st;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUuuid_st {
    pub bytes: [::std::os::raw::c_char; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUuuid_st"][::std::mem::size_of::<CUuuid_st>() - 16usize];
    ["Alignment of CUuuid_st"][::std::mem::align_of::<CUuuid_st>() - 1usize];
    ["Offset of field: CUuuid_st::bytes"][::std::mem::offset_of!(CUuuid_st, bytes) - 0usize];
};
pub type CUuuid = CUuuid_st;
impl CUstream_flags_enum {
    pub const CU_STREAM_DEFAULT: CUstream_flags_enum = CUstream_flags_enum(0);
    pub const CU_STREAM_NON_BLOCKING: CUstream_flags_enum = CUstream_flags_enum(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUstream_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUstream_flags_enum as CUstream_flags;
impl CUevent_flags_enum {
    pub const CU_EVENT_DEFAULT: CUevent_flags_enum = CUevent_flags_enum(0);
    pub const CU_EVENT_BLOCKING_SYNC: CUevent_flags_enum = CUevent_flags_enum(1);
    pub const CU_EVENT_DISABLE_TIMING: CUevent_flags_enum = CUevent_flags_enum(2);
    pub const CU_EVENT_INTERPROCESS: CUevent_flags_enum = CUevent_flags_enum(4);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUevent_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUevent_flags_enum as CUevent_flags;
impl CUevent_wait_flags_enum {
    pub const CU_EVENT_WAIT_DEFAULT: CUevent_wait_flags_enum = CUevent_wait_flags_enum(0);
    pub const CU_EVENT_WAIT_EXTERNAL: CUevent_wait_flags_enum = CUevent_wait_flags_enum(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUevent_wait_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUevent_wait_flags_enum as CUevent_wait_flags;
impl CUstreamWriteValue_flags_enum {
    pub const CU_STREAM_WRITE_VALUE_DEFAULT: CUstreamWriteValue_flags_enum =
        CUstreamWriteValue_flags_enum(0);
    pub const CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER: CUstreamWriteValue_flags_enum =
        CUstreamWriteValue_flags_enum(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUstreamWriteValue_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUstreamWriteValue_flags_enum as CUstreamWriteValue_flags;
impl CUdevice_attribute_enum {
    pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(1);
    pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: CUdevice_attribute_enum =
        CUdevice_attribute_enum(2);
    pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: CUdevice_attribute_enum =
        CUdevice_attribute_enum(3);
    pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: CUdevice_attribute_enum =
        CUdevice_attribute_enum(4);
    pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: CUdevice_attribute_enum =
        CUdevice_attribute_enum(5);
    pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: CUdevice_attribute_enum =
        CUdevice_attribute_enum(6);
    pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: CUdevice_attribute_enum =
        CUdevice_attribute_enum(7);
    pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(8);
    pub const CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(8);
    pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: CUdevice_attribute_enum =
        CUdevice_attribute_enum(9);
    pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: CUdevice_attribute_enum = CUdevice_attribute_enum(10);
    pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute_enum = CUdevice_attribute_enum(11);
    pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(12);
    pub const CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(12);
    pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: CUdevice_attribute_enum = CUdevice_attribute_enum(13);
    pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(14);
    pub const CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: CUdevice_attribute_enum =
        CUdevice_attribute_enum(15);
    pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(16);
    pub const CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(17);
    pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: CUdevice_attribute_enum = CUdevice_attribute_enum(18);
    pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: CUdevice_attribute_enum =
        CUdevice_attribute_enum(19);
    pub const CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(20);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(21);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(22);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(23);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(24);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(25);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(26);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(27);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(28);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(29);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(27);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(28);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES: CUdevice_attribute_enum =
        CUdevice_attribute_enum(29);
    pub const CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(30);
    pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(31);
    pub const CU_DEVICE_ATTRIBUTE_ECC_ENABLED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(32);
    pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: CUdevice_attribute_enum = CUdevice_attribute_enum(33);
    pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: CUdevice_attribute_enum =
        CUdevice_attribute_enum(34);
    pub const CU_DEVICE_ATTRIBUTE_TCC_DRIVER: CUdevice_attribute_enum = CUdevice_attribute_enum(35);
    pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(36);
    pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(37);
    pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(38);
    pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(39);
    pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(40);
    pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: CUdevice_attribute_enum =
        CUdevice_attribute_enum(41);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(42);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(43);
    pub const CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER: CUdevice_attribute_enum =
        CUdevice_attribute_enum(44);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(45);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(46);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(47);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(48);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(49);
    pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: CUdevice_attribute_enum =
        CUdevice_attribute_enum(50);
    pub const CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(51);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(52);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(53);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(54);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(55);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(56);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(57);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(58);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(59);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(60);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(61);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(62);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(63);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(64);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(65);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(66);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(67);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(68);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(69);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(70);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(71);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(72);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(73);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT: CUdevice_attribute_enum =
        CUdevice_attribute_enum(74);
    pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(75);
    pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(76);
    pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(77);
    pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(78);
    pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(79);
    pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(80);
    pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(81);
    pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(82);
    pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute_enum =
        CUdevice_attribute_enum(83);
    pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: CUdevice_attribute_enum =
        CUdevice_attribute_enum(84);
    pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: CUdevice_attribute_enum =
        CUdevice_attribute_enum(85);
    pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(86);
    pub const CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: CUdevice_attribute_enum =
        CUdevice_attribute_enum(87);
    pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(88);
    pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(89);
    pub const CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(90);
    pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: CUdevice_attribute_enum =
        CUdevice_attribute_enum(91);
    pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(95);
    pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(96);
    pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute_enum =
        CUdevice_attribute_enum(97);
    pub const CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: CUdevice_attribute_enum =
        CUdevice_attribute_enum(98);
    pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(99);
    pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        CUdevice_attribute_enum = CUdevice_attribute_enum(100);
    pub const CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: CUdevice_attribute_enum =
        CUdevice_attribute_enum(101);
    pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(102);
    pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(102);
    pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        CUdevice_attribute_enum = CUdevice_attribute_enum(103);
    pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(104);
    pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(105);
    pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: CUdevice_attribute_enum =
        CUdevice_attribute_enum(106);
    pub const CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(107);
    pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(108);
    pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: CUdevice_attribute_enum =
        CUdevice_attribute_enum(109);
    pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(110);
    pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum =
        CUdevice_attribute_enum(111);
    pub const CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(112);
    pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(113);
    pub const CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(114);
    pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(115);
    pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(116);
    pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: CUdevice_attribute_enum =
        CUdevice_attribute_enum(117);
    pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUdevice_attribute_enum =
        CUdevice_attribute_enum(118);
    pub const CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: CUdevice_attribute_enum =
        CUdevice_attribute_enum(119);
    pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: CUdevice_attribute_enum =
        CUdevice_attribute_enum(120);
    pub const CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(121);
    pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: CUdevice_attribute_enum =
        CUdevice_attribute_enum(124);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUdevice_attribute_enum(pub ::std::os::raw::c_uint);
pub use self::CUdevice_attribute_enum as CUdevice_attribute;
impl CUpointer_attribute_enum {
    pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute_enum = CUpointer_attribute_enum(1);
    pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(2);
    pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: CUpointer_attribute_enum =
        CUpointer_attribute_enum(3);
    pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: CUpointer_attribute_enum =
        CUpointer_attribute_enum(4);
    pub const CU_POINTER_ATTRIBUTE_P2P_TOKENS: CUpointer_attribute_enum =
        CUpointer_attribute_enum(5);
    pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUpointer_attribute_enum =
        CUpointer_attribute_enum(6);
    pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: CUpointer_attribute_enum =
        CUpointer_attribute_enum(7);
    pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute_enum =
        CUpointer_attribute_enum(8);
    pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute_enum =
        CUpointer_attribute_enum(9);
    pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(10);
    pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute_enum =
        CUpointer_attribute_enum(11);
    pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(12);
    pub const CU_POINTER_ATTRIBUTE_MAPPED: CUpointer_attribute_enum = CUpointer_attribute_enum(13);
    pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: CUpointer_attribute_enum =
        CUpointer_attribute_enum(14);
    pub const CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(15);
    pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: CUpointer_attribute_enum =
        CUpointer_attribute_enum(16);
    pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(17);
    pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: CUpointer_attribute_enum =
        CUpointer_attribute_enum(18);
    pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: CUpointer_attribute_enum =
        CUpointer_attribute_enum(19);
    pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: CUpointer_attribute_enum =
        CUpointer_attribute_enum(20);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUpointer_attribute_enum(pub ::std::os::raw::c_uint);
pub use self::CUpointer_attribute_enum as CUpointer_attribute;
impl CUmemorytype_enum {
    pub const CU_MEMORYTYPE_HOST: CUmemorytype_enum = CUmemorytype_enum(1);
    pub const CU_MEMORYTYPE_DEVICE: CUmemorytype_enum = CUmemorytype_enum(2);
    pub const CU_MEMORYTYPE_ARRAY: CUmemorytype_enum = CUmemorytype_enum(3);
    pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype_enum = CUmemorytype_enum(4);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemorytype_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemorytype_enum as CUmemorytype;
pub type CUhostFn =
    ::std::option::Option<unsafe extern "C" fn(userData: *mut ::std::os::raw::c_void)>;
impl cudaError_enum {
    pub const CUDA_SUCCESS: cudaError_enum = cudaError_enum(0);
    pub const CUDA_ERROR_INVALID_VALUE: cudaError_enum = cudaError_enum(1);
    pub const CUDA_ERROR_OUT_OF_MEMORY: cudaError_enum = cudaError_enum(2);
    pub const CUDA_ERROR_NOT_INITIALIZED: cudaError_enum = cudaError_enum(3);
    pub const CUDA_ERROR_DEINITIALIZED: cudaError_enum = cudaError_enum(4);
    pub const CUDA_ERROR_PROFILER_DISABLED: cudaError_enum = cudaError_enum(5);
    pub const CUDA_ERROR_PROFILER_NOT_INITIALIZED: cudaError_enum = cudaError_enum(6);
    pub const CUDA_ERROR_PROFILER_ALREADY_STARTED: cudaError_enum = cudaError_enum(7);
    pub const CUDA_ERROR_PROFILER_ALREADY_STOPPED: cudaError_enum = cudaError_enum(8);
    pub const CUDA_ERROR_STUB_LIBRARY: cudaError_enum = cudaError_enum(34);
    pub const CUDA_ERROR_DEVICE_UNAVAILABLE: cudaError_enum = cudaError_enum(46);
    pub const CUDA_ERROR_NO_DEVICE: cudaError_enum = cudaError_enum(100);
    pub const CUDA_ERROR_INVALID_DEVICE: cudaError_enum = cudaError_enum(101);
    pub const CUDA_ERROR_DEVICE_NOT_LICENSED: cudaError_enum = cudaError_enum(102);
    pub const CUDA_ERROR_INVALID_IMAGE: cudaError_enum = cudaError_enum(200);
    pub const CUDA_ERROR_INVALID_CONTEXT: cudaError_enum = cudaError_enum(201);
    pub const CUDA_ERROR_CONTEXT_ALREADY_CURRENT: cudaError_enum = cudaError_enum(202);
    pub const CUDA_ERROR_MAP_FAILED: cudaError_enum = cudaError_enum(205);
    pub const CUDA_ERROR_UNMAP_FAILED: cudaError_enum = cudaError_enum(206);
    pub const CUDA_ERROR_ARRAY_IS_MAPPED: cudaError_enum = cudaError_enum(207);
    pub const CUDA_ERROR_ALREADY_MAPPED: cudaError_enum = cudaError_enum(208);
    pub const CUDA_ERROR_NO_BINARY_FOR_GPU: cudaError_enum = cudaError_enum(209);
    pub const CUDA_ERROR_ALREADY_ACQUIRED: cudaError_enum = cudaError_enum(210);
    pub const CUDA_ERROR_NOT_MAPPED: cudaError_enum = cudaError_enum(211);
    pub const CUDA_ERROR_NOT_MAPPED_AS_ARRAY: cudaError_enum = cudaError_enum(212);
    pub const CUDA_ERROR_NOT_MAPPED_AS_POINTER: cudaError_enum = cudaError_enum(213);
    pub const CUDA_ERROR_ECC_UNCORRECTABLE: cudaError_enum = cudaError_enum(214);
    pub const CUDA_ERROR_UNSUPPORTED_LIMIT: cudaError_enum = cudaError_enum(215);
    pub const CUDA_ERROR_CONTEXT_ALREADY_IN_USE: cudaError_enum = cudaError_enum(216);
    pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: cudaError_enum = cudaError_enum(217);
    pub const CUDA_ERROR_INVALID_PTX: cudaError_enum = cudaError_enum(218);
    pub const CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: cudaError_enum = cudaError_enum(219);
    pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: cudaError_enum = cudaError_enum(220);
    pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: cudaError_enum = cudaError_enum(221);
    pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: cudaError_enum = cudaError_enum(222);
    pub const CUDA_ERROR_JIT_COMPILATION_DISABLED: cudaError_enum = cudaError_enum(223);
    pub const CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: cudaError_enum = cudaError_enum(224);
    pub const CUDA_ERROR_INVALID_SOURCE: cudaError_enum = cudaError_enum(300);
    pub const CUDA_ERROR_FILE_NOT_FOUND: cudaError_enum = cudaError_enum(301);
    pub const CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: cudaError_enum = cudaError_enum(302);
    pub const CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: cudaError_enum = cudaError_enum(303);
    pub const CUDA_ERROR_OPERATING_SYSTEM: cudaError_enum = cudaError_enum(304);
    pub const CUDA_ERROR_INVALID_HANDLE: cudaError_enum = cudaError_enum(400);
    pub const CUDA_ERROR_ILLEGAL_STATE: cudaError_enum = cudaError_enum(401);
    pub const CUDA_ERROR_NOT_FOUND: cudaError_enum = cudaError_enum(500);
    pub const CUDA_ERROR_NOT_READY: cudaError_enum = cudaError_enum(600);
    pub const CUDA_ERROR_ILLEGAL_ADDRESS: cudaError_enum = cudaError_enum(700);
    pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: cudaError_enum = cudaError_enum(701);
    pub const CUDA_ERROR_LAUNCH_TIMEOUT: cudaError_enum = cudaError_enum(702);
    pub const CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: cudaError_enum = cudaError_enum(703);
    pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: cudaError_enum = cudaError_enum(704);
    pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: cudaError_enum = cudaError_enum(705);
    pub const CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: cudaError_enum = cudaError_enum(708);
    pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: cudaError_enum = cudaError_enum(709);
    pub const CUDA_ERROR_ASSERT: cudaError_enum = cudaError_enum(710);
    pub const CUDA_ERROR_TOO_MANY_PEERS: cudaError_enum = cudaError_enum(711);
    pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: cudaError_enum = cudaError_enum(712);
    pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: cudaError_enum = cudaError_enum(713);
    pub const CUDA_ERROR_HARDWARE_STACK_ERROR: cudaError_enum = cudaError_enum(714);
    pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: cudaError_enum = cudaError_enum(715);
    pub const CUDA_ERROR_MISALIGNED_ADDRESS: cudaError_enum = cudaError_enum(716);
    pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: cudaError_enum = cudaError_enum(717);
    pub const CUDA_ERROR_INVALID_PC: cudaError_enum = cudaError_enum(718);
    pub const CUDA_ERROR_LAUNCH_FAILED: cudaError_enum = cudaError_enum(719);
    pub const CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: cudaError_enum = cudaError_enum(720);
    pub const CUDA_ERROR_NOT_PERMITTED: cudaError_enum = cudaError_enum(800);
    pub const CUDA_ERROR_NOT_SUPPORTED: cudaError_enum = cudaError_enum(801);
    pub const CUDA_ERROR_SYSTEM_NOT_READY: cudaError_enum = cudaError_enum(802);
    pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: cudaError_enum = cudaError_enum(803);
    pub const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: cudaError_enum = cudaError_enum(804);
    pub const CUDA_ERROR_MPS_CONNECTION_FAILED: cudaError_enum = cudaError_enum(805);
    pub const CUDA_ERROR_MPS_RPC_FAILURE: cudaError_enum = cudaError_enum(806);
    pub const CUDA_ERROR_MPS_SERVER_NOT_READY: cudaError_enum = cudaError_enum(807);
    pub const CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: cudaError_enum = cudaError_enum(808);
    pub const CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: cudaError_enum = cudaError_enum(809);
    pub const CUDA_ERROR_MPS_CLIENT_TERMINATED: cudaError_enum = cudaError_enum(810);
    pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: cudaError_enum = cudaError_enum(900);
    pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: cudaError_enum = cudaError_enum(901);
    pub const CUDA_ERROR_STREAM_CAPTURE_MERGE: cudaError_enum = cudaError_enum(902);
    pub const CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: cudaError_enum = cudaError_enum(903);
    pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: cudaError_enum = cudaError_enum(904);
    pub const CUDA_ERROR_STREAM_CAPTURE_ISOLATION: cudaError_enum = cudaError_enum(905);
    pub const CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: cudaError_enum = cudaError_enum(906);
    pub const CUDA_ERROR_CAPTURED_EVENT: cudaError_enum = cudaError_enum(907);
    pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: cudaError_enum = cudaError_enum(908);
    pub const CUDA_ERROR_TIMEOUT: cudaError_enum = cudaError_enum(909);
    pub const CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: cudaError_enum = cudaError_enum(910);
    pub const CUDA_ERROR_EXTERNAL_DEVICE: cudaError_enum = cudaError_enum(911);
    pub const CUDA_ERROR_INVALID_CLUSTER_SIZE: cudaError_enum = cudaError_enum(912);
    pub const CUDA_ERROR_UNKNOWN: cudaError_enum = cudaError_enum(999);
}
#[repr(transparent)]
#[must_use]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct cudaError_enum(pub ::std::os::raw::c_uint);
pub use self::cudaError_enum as CUresult;
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUDA_MEMCPY2D_st {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const ::std::os::raw::c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut ::std::os::raw::c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUDA_MEMCPY2D_st"][::std::mem::size_of::<CUDA_MEMCPY2D_st>() - 128usize];
    ["Alignment of CUDA_MEMCPY2D_st"][::std::mem::align_of::<CUDA_MEMCPY2D_st>() - 8usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcXInBytes"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcXInBytes) - 0usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcY"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcY) - 8usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcMemoryType"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcMemoryType) - 16usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcHost"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcHost) - 24usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcDevice"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcDevice) - 32usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcArray"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcArray) - 40usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcPitch"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, srcPitch) - 48usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstXInBytes"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstXInBytes) - 56usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstY"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstY) - 64usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstMemoryType"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstMemoryType) - 72usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstHost"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstHost) - 80usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstDevice"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstDevice) - 88usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstArray"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstArray) - 96usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstPitch"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, dstPitch) - 104usize];
    ["Offset of field: CUDA_MEMCPY2D_st::WidthInBytes"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, WidthInBytes) - 112usize];
    ["Offset of field: CUDA_MEMCPY2D_st::Height"]
        [::std::mem::offset_of!(CUDA_MEMCPY2D_st, Height) - 120usize];
};
impl Default for CUDA_MEMCPY2D_st {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type CUDA_MEMCPY2D_v2 = CUDA_MEMCPY2D_st;
pub type CUDA_MEMCPY2D = CUDA_MEMCPY2D_v2;
pub type CUmemGenericAllocationHandle_v1 = ::std::os::raw::c_ulonglong;
pub type CUmemGenericAllocationHandle = CUmemGenericAllocationHandle_v1;
impl CUmemAllocationHandleType_enum {
    pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType_enum =
        CUmemAllocationHandleType_enum(0);
    pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType_enum =
        CUmemAllocationHandleType_enum(1);
    pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType_enum =
        CUmemAllocationHandleType_enum(2);
    pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType_enum =
        CUmemAllocationHandleType_enum(4);
    pub const CU_MEM_HANDLE_TYPE_MAX: CUmemAllocationHandleType_enum =
        CUmemAllocationHandleType_enum(2147483647);
}
impl ::std::ops::BitOr<CUmemAllocationHandleType_enum> for CUmemAllocationHandleType_enum {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        CUmemAllocationHandleType_enum(self.0 | other.0)
    }
}
impl ::std::ops::BitOrAssign for CUmemAllocationHandleType_enum {
    #[inline]
    fn bitor_assign(&mut self, rhs: CUmemAllocationHandleType_enum) {
        self.0 |= rhs.0;
    }
}
impl ::std::ops::BitAnd<CUmemAllocationHandleType_enum> for CUmemAllocationHandleType_enum {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        CUmemAllocationHandleType_enum(self.0 & other.0)
    }
}
impl ::std::ops::BitAndAssign for CUmemAllocationHandleType_enum {
    #[inline]
    fn bitand_assign(&mut self, rhs: CUmemAllocationHandleType_enum) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationHandleType_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemAllocationHandleType_enum as CUmemAllocationHandleType;
impl CUmemAccess_flags_enum {
    pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: CUmemAccess_flags_enum = CUmemAccess_flags_enum(0);
    pub const CU_MEM_ACCESS_FLAGS_PROT_READ: CUmemAccess_flags_enum = CUmemAccess_flags_enum(1);
    pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags_enum =
        CUmemAccess_flags_enum(3);
    pub const CU_MEM_ACCESS_FLAGS_PROT_MAX: CUmemAccess_flags_enum =
        CUmemAccess_flags_enum(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAccess_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemAccess_flags_enum as CUmemAccess_flags;
impl CUmemLocationType_enum {
    pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType_enum = CUmemLocationType_enum(0);
    pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType_enum = CUmemLocationType_enum(1);
    pub const CU_MEM_LOCATION_TYPE_MAX: CUmemLocationType_enum = CUmemLocationType_enum(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemLocationType_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemLocationType_enum as CUmemLocationType;
impl CUmemAllocationType_enum {
    pub const CU_MEM_ALLOCATION_TYPE_INVALID: CUmemAllocationType_enum =
        CUmemAllocationType_enum(0);
    pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType_enum = CUmemAllocationType_enum(1);
    pub const CU_MEM_ALLOCATION_TYPE_MAX: CUmemAllocationType_enum =
        CUmemAllocationType_enum(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationType_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemAllocationType_enum as CUmemAllocationType;
impl CUmemAllocationGranularity_flags_enum {
    pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags_enum =
        CUmemAllocationGranularity_flags_enum(0);
    pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: CUmemAllocationGranularity_flags_enum =
        CUmemAllocationGranularity_flags_enum(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationGranularity_flags_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemAllocationGranularity_flags_enum as CUmemAllocationGranularity_flags;
impl CUmemRangeHandleType_enum {
    pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: CUmemRangeHandleType_enum =
        CUmemRangeHandleType_enum(1);
    pub const CU_MEM_RANGE_HANDLE_TYPE_MAX: CUmemRangeHandleType_enum =
        CUmemRangeHandleType_enum(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemRangeHandleType_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemRangeHandleType_enum as CUmemRangeHandleType;
pub type CUmemLocation_v1 = CUmemLocation_st;
pub type CUmemLocation = CUmemLocation_v1;
impl CUmemAllocationCompType_enum {
    pub const CU_MEM_ALLOCATION_COMP_NONE: CUmemAllocationCompType_enum =
        CUmemAllocationCompType_enum(0);
    pub const CU_MEM_ALLOCATION_COMP_GENERIC: CUmemAllocationCompType_enum =
        CUmemAllocationCompType_enum(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationCompType_enum(pub ::std::os::raw::c_uint);
pub use self::CUmemAllocationCompType_enum as CUmemAllocationCompType;
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationProp_st {
    pub type_: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut ::std::os::raw::c_void,
    pub allocFlags: CUmemAllocationProp_st__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAllocationProp_st__bindgen_ty_1 {
    pub compressionType: ::std::os::raw::c_uchar,
    pub gpuDirectRDMACapable: ::std::os::raw::c_uchar,
    pub usage: ::std::os::raw::c_ushort,
    pub reserved: [::std::os::raw::c_uchar; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAllocationProp_st__bindgen_ty_1"]
        [::std::mem::size_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 8usize];
    ["Alignment of CUmemAllocationProp_st__bindgen_ty_1"]
        [::std::mem::align_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 2usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::compressionType"]
        [::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, compressionType) - 0usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::gpuDirectRDMACapable"][::std::mem::offset_of!(
        CUmemAllocationProp_st__bindgen_ty_1,
        gpuDirectRDMACapable
    ) - 1usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::usage"]
        [::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, usage) - 2usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::reserved"]
        [::std::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, reserved) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAllocationProp_st"][::std::mem::size_of::<CUmemAllocationProp_st>() - 32usize];
    ["Alignment of CUmemAllocationProp_st"]
        [::std::mem::align_of::<CUmemAllocationProp_st>() - 8usize];
    ["Offset of field: CUmemAllocationProp_st::type_"]
        [::std::mem::offset_of!(CUmemAllocationProp_st, type_) - 0usize];
    ["Offset of field: CUmemAllocationProp_st::requestedHandleTypes"]
        [::std::mem::offset_of!(CUmemAllocationProp_st, requestedHandleTypes) - 4usize];
    ["Offset of field: CUmemAllocationProp_st::location"]
        [::std::mem::offset_of!(CUmemAllocationProp_st, location) - 8usize];
    ["Offset of field: CUmemAllocationProp_st::win32HandleMetaData"]
        [::std::mem::offset_of!(CUmemAllocationProp_st, win32HandleMetaData) - 16usize];
    ["Offset of field: CUmemAllocationProp_st::allocFlags"]
        [::std::mem::offset_of!(CUmemAllocationProp_st, allocFlags) - 24usize];
};
impl Default for CUmemAllocationProp_st {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type CUmemAllocationProp_v1 = CUmemAllocationProp_st;
pub type CUmemAllocationProp = CUmemAllocationProp_v1;
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct CUmemAccessDesc_st {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAccessDesc_st"][::std::mem::size_of::<CUmemAccessDesc_st>() - 12usize];
    ["Alignment of CUmemAccessDesc_st"][::std::mem::align_of::<CUmemAccessDesc_st>() - 4usize];
    ["Offset of field: CUmemAccessDesc_st::location"]
        [::std::mem::offset_of!(CUmemAccessDesc_st, location) - 0usize];
    ["Offset of field: CUmemAccessDesc_st::flags"]
        [::std::mem::offset_of!(CUmemAccessDesc_st, flags) - 8usize];
};
impl Default for CUmemAccessDesc_st {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type CUmemAccessDesc_v1 = CUmemAccessDesc_st;
pub type CUmemAccessDesc = CUmemAccessDesc_v1;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct CallTable {
    pub cuInit:
        ::std::option::Option<unsafe extern "C" fn(arg1: ::std::os::raw::c_uint) -> cudaError_enum>,
    pub cuDriverGetVersion: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_int) -> cudaError_enum,
    >,
    pub cuDeviceGetCount: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_int) -> cudaError_enum,
    >,
    pub cuDeviceGet: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_int,
            arg2: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDeviceGetName: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_char,
            arg2: ::std::os::raw::c_int,
            arg3: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDeviceGetUuid_v2: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut CUuuid_st, arg2: ::std::os::raw::c_int) -> cudaError_enum,
    >,
    pub cuDeviceGetAttribute: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_int,
            arg2: CUdevice_attribute_enum,
            arg3: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDeviceTotalMem_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulong,
            arg2: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDeviceCanAccessPeer: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_int,
            arg2: ::std::os::raw::c_int,
            arg3: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDevicePrimaryCtxRetain: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut *mut CUctx_st,
            arg2: ::std::os::raw::c_int,
        ) -> cudaError_enum,
    >,
    pub cuDevicePrimaryCtxRelease_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: ::std::os::raw::c_int) -> cudaError_enum>,
    pub cuDevicePrimaryCtxReset_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: ::std::os::raw::c_int) -> cudaError_enum>,
    pub cuCtxPushCurrent_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUctx_st) -> cudaError_enum>,
    pub cuCtxPopCurrent_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut *mut CUctx_st) -> cudaError_enum>,
    pub cuCtxSetCurrent:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUctx_st) -> cudaError_enum>,
    pub cuCtxGetCurrent:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut *mut CUctx_st) -> cudaError_enum>,
    pub cuCtxGetDevice: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_int) -> cudaError_enum,
    >,
    pub cuCtxSynchronize: ::std::option::Option<unsafe extern "C" fn() -> cudaError_enum>,
    pub cuMemAddressReserve: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
            arg3: ::std::os::raw::c_ulong,
            arg4: ::std::os::raw::c_ulonglong,
            arg5: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemAddressFree: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemCreate: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
            arg3: *const CUmemAllocationProp_st,
            arg4: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemRelease: ::std::option::Option<
        unsafe extern "C" fn(arg1: ::std::os::raw::c_ulonglong) -> cudaError_enum,
    >,
    pub cuMemMap: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
            arg3: ::std::os::raw::c_ulong,
            arg4: ::std::os::raw::c_ulonglong,
            arg5: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemUnmap: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemSetAccess: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
            arg3: *const CUmemAccessDesc_st,
            arg4: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemGetAccess: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: *const CUmemLocation_st,
            arg3: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemExportToShareableHandle: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: CUmemAllocationHandleType_enum,
            arg4: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemImportFromShareableHandle: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: *mut ::std::os::raw::c_void,
            arg3: CUmemAllocationHandleType_enum,
        ) -> cudaError_enum,
    >,
    pub cuMemGetAllocationGranularity: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulong,
            arg2: *const CUmemAllocationProp_st,
            arg3: CUmemAllocationGranularity_flags_enum,
        ) -> cudaError_enum,
    >,
    pub cuMemGetAllocationPropertiesFromHandle: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut CUmemAllocationProp_st,
            arg2: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemRetainAllocationHandle: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: *mut ::std::os::raw::c_void,
        ) -> cudaError_enum,
    >,
    pub cuMemGetAddressRange_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: *mut ::std::os::raw::c_ulong,
            arg3: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuPointerGetAttribute: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: CUpointer_attribute_enum,
            arg3: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemGetHandleForAddressRange: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_ulong,
            arg4: CUmemRangeHandleType_enum,
            arg5: ::std::os::raw::c_ulonglong,
        ) -> cudaError_enum,
    >,
    pub cuMemGetInfo_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulong,
            arg2: *mut ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemAlloc_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemFree_v2: ::std::option::Option<
        unsafe extern "C" fn(arg1: ::std::os::raw::c_ulonglong) -> cudaError_enum,
    >,
    pub cuMemcpyHtoD_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: *const ::std::os::raw::c_void,
            arg3: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemcpyDtoH_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemcpyDtoD_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemsetD8_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_uchar,
            arg3: ::std::os::raw::c_ulong,
        ) -> cudaError_enum,
    >,
    pub cuMemcpyHtoDAsync_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: *const ::std::os::raw::c_void,
            arg3: ::std::os::raw::c_ulong,
            arg4: *mut CUstream_st,
        ) -> cudaError_enum,
    >,
    pub cuMemcpyDtoHAsync_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_ulong,
            arg4: *mut CUstream_st,
        ) -> cudaError_enum,
    >,
    pub cuMemcpyDtoDAsync_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_ulong,
            arg4: *mut CUstream_st,
        ) -> cudaError_enum,
    >,
    pub cuMemsetD8Async: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: ::std::os::raw::c_ulonglong,
            arg2: ::std::os::raw::c_uchar,
            arg3: ::std::os::raw::c_ulong,
            arg4: *mut CUstream_st,
        ) -> cudaError_enum,
    >,
    pub cuMemcpy2DAsync_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *const CUDA_MEMCPY2D_st,
            arg2: *mut CUstream_st,
        ) -> cudaError_enum,
    >,
    pub cuMemHostRegister_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_void,
            arg2: ::std::os::raw::c_ulong,
            arg3: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuMemHostUnregister: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void) -> cudaError_enum,
    >,
    pub cuMemHostGetDevicePointer_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut ::std::os::raw::c_ulonglong,
            arg2: *mut ::std::os::raw::c_void,
            arg3: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuStreamCreate: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut *mut CUstream_st,
            arg2: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuStreamDestroy_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUstream_st) -> cudaError_enum>,
    pub cuStreamSynchronize:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUstream_st) -> cudaError_enum>,
    pub cuStreamQuery:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUstream_st) -> cudaError_enum>,
    pub cuEventCreate: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut *mut CUevent_st,
            arg2: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuEventDestroy_v2:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUevent_st) -> cudaError_enum>,
    pub cuEventRecord: ::std::option::Option<
        unsafe extern "C" fn(arg1: *mut CUevent_st, arg2: *mut CUstream_st) -> cudaError_enum,
    >,
    pub cuEventSynchronize:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUevent_st) -> cudaError_enum>,
    pub cuEventQuery:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUevent_st) -> cudaError_enum>,
    pub cuStreamWaitEvent: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut CUstream_st,
            arg2: *mut CUevent_st,
            arg3: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuStreamWriteValue32_v2: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut CUstream_st,
            arg2: ::std::os::raw::c_ulonglong,
            arg3: ::std::os::raw::c_uint,
            arg4: ::std::os::raw::c_uint,
        ) -> cudaError_enum,
    >,
    pub cuLaunchHostFunc: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut CUstream_st,
            arg2: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
            arg3: *mut ::std::os::raw::c_void,
        ) -> cudaError_enum,
    >,
    pub cuModuleLoadData: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut *mut CUmod_st,
            arg2: *const ::std::os::raw::c_void,
        ) -> cudaError_enum,
    >,
    pub cuModuleGetFunction: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut *mut CUfunc_st,
            arg2: *mut CUmod_st,
            arg3: *const ::std::os::raw::c_char,
        ) -> cudaError_enum,
    >,
    pub cuModuleUnload:
        ::std::option::Option<unsafe extern "C" fn(arg1: *mut CUmod_st) -> cudaError_enum>,
    pub cuLaunchKernel: ::std::option::Option<
        unsafe extern "C" fn(
            arg1: *mut CUfunc_st,
            arg2: ::std::os::raw::c_uint,
            arg3: ::std::os::raw::c_uint,
            arg4: ::std::os::raw::c_uint,
            arg5: ::std::os::raw::c_uint,
            arg6: ::std::os::raw::c_uint,
            arg7: ::std::os::raw::c_uint,
            arg8: ::std::os::raw::c_uint,
            arg9: *mut CUstream_st,
            arg10: *mut *mut ::std::os::raw::c_void,
            arg11: *mut *mut ::std::os::raw::c_void,
        ) -> cudaError_enum,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CallTable"][::std::mem::size_of::<CallTable>() - 520usize];
    ["Alignment of CallTable"][::std::mem::align_of::<CallTable>() - 8usize];
    ["Offset of field: CallTable::cuInit"][::std::mem::offset_of!(CallTable, cuInit) - 0usize];
    ["Offset of field: CallTable::cuDriverGetVersion"]
        [::std::mem::offset_of!(CallTable, cuDriverGetVersion) - 8usize];
    ["Offset of field: CallTable::cuDeviceGetCount"]
        [::std::mem::offset_of!(CallTable, cuDeviceGetCount) - 16usize];
    ["Offset of field: CallTable::cuDeviceGet"]
        [::std::mem::offset_of!(CallTable, cuDeviceGet) - 24usize];
    ["Offset of field: CallTable::cuDeviceGetName"]
        [::std::mem::offset_of!(CallTable, cuDeviceGetName) - 32usize];
    ["Offset of field: CallTable::cuDeviceGetUuid_v2"]
        [::std::mem::offset_of!(CallTable, cuDeviceGetUuid_v2) - 40usize];
    ["Offset of field: CallTable::cuDeviceGetAttribute"]
        [::std::mem::offset_of!(CallTable, cuDeviceGetAttribute) - 48usize];
    ["Offset of field: CallTable::cuDeviceTotalMem_v2"]
        [::std::mem::offset_of!(CallTable, cuDeviceTotalMem_v2) - 56usize];
    ["Offset of field: CallTable::cuDeviceCanAccessPeer"]
        [::std::mem::offset_of!(CallTable, cuDeviceCanAccessPeer) - 64usize];
    ["Offset of field: CallTable::cuDevicePrimaryCtxRetain"]
        [::std::mem::offset_of!(CallTable, cuDevicePrimaryCtxRetain) - 72usize];
    ["Offset of field: CallTable::cuDevicePrimaryCtxRelease_v2"]
        [::std::mem::offset_of!(CallTable, cuDevicePrimaryCtxRelease_v2) - 80usize];
    ["Offset of field: CallTable::cuDevicePrimaryCtxReset_v2"]
        [::std::mem::offset_of!(CallTable, cuDevicePrimaryCtxReset_v2) - 88usize];
    ["Offset of field: CallTable::cuCtxPushCurrent_v2"]
        [::std::mem::offset_of!(CallTable, cuCtxPushCurrent_v2) - 96usize];
    ["Offset of field: CallTable::cuCtxPopCurrent_v2"]
        [::std::mem::offset_of!(CallTable, cuCtxPopCurrent_v2) - 104usize];
    ["Offset of field: CallTable::cuCtxSetCurrent"]
        [::std::mem::offset_of!(CallTable, cuCtxSetCurrent) - 112usize];
    ["Offset of field: CallTable::cuCtxGetCurrent"]
        [::std::mem::offset_of!(CallTable, cuCtxGetCurrent) - 120usize];
    ["Offset of field: CallTable::cuCtxGetDevice"]
        [::std::mem::offset_of!(CallTable, cuCtxGetDevice) - 128usize];
    ["Offset of field: CallTable::cuCtxSynchronize"]
        [::std::mem::offset_of!(CallTable, cuCtxSynchronize) - 136usize];
    ["Offset of field: CallTable::cuMemAddressReserve"]
        [::std::mem::offset_of!(CallTable, cuMemAddressReserve) - 144usize];
    ["Offset of field: CallTable::cuMemAddressFree"]
        [::std::mem::offset_of!(CallTable, cuMemAddressFree) - 152usize];
    ["Offset of field: CallTable::cuMemCreate"]
        [::std::mem::offset_of!(CallTable, cuMemCreate) - 160usize];
    ["Offset of field: CallTable::cuMemRelease"]
        [::std::mem::offset_of!(CallTable, cuMemRelease) - 168usize];
    ["Offset of field: CallTable::cuMemMap"]
        [::std::mem::offset_of!(CallTable, cuMemMap) - 176usize];
    ["Offset of field: CallTable::cuMemUnmap"]
        [::std::mem::offset_of!(CallTable, cuMemUnmap) - 184usize];
    ["Offset of field: CallTable::cuMemSetAccess"]
        [::std::mem::offset_of!(CallTable, cuMemSetAccess) - 192usize];
    ["Offset of field: CallTable::cuMemGetAccess"]
        [::std::mem::offset_of!(CallTable, cuMemGetAccess) - 200usize];
    ["Offset of field: CallTable::cuMemExportToShareableHandle"]
        [::std::mem::offset_of!(CallTable, cuMemExportToShareableHandle) - 208usize];
    ["Offset of field: CallTable::cuMemImportFromShareableHandle"]
        [::std::mem::offset_of!(CallTable, cuMemImportFromShareableHandle) - 216usize];
    ["Offset of field: CallTable::cuMemGetAllocationGranularity"]
        [::std::mem::offset_of!(CallTable, cuMemGetAllocationGranularity) - 224usize];
    ["Offset of field: CallTable::cuMemGetAllocationPropertiesFromHandle"]
        [::std::mem::offset_of!(CallTable, cuMemGetAllocationPropertiesFromHandle) - 232usize];
    ["Offset of field: CallTable::cuMemRetainAllocationHandle"]
        [::std::mem::offset_of!(CallTable, cuMemRetainAllocationHandle) - 240usize];
    ["Offset of field: CallTable::cuMemGetAddressRange_v2"]
        [::std::mem::offset_of!(CallTable, cuMemGetAddressRange_v2) - 248usize];
    ["Offset of field: CallTable::cuPointerGetAttribute"]
        [::std::mem::offset_of!(CallTable, cuPointerGetAttribute) - 256usize];
    ["Offset of field: CallTable::cuMemGetHandleForAddressRange"]
        [::std::mem::offset_of!(CallTable, cuMemGetHandleForAddressRange) - 264usize];
    ["Offset of field: CallTable::cuMemGetInfo_v2"]
        [::std::mem::offset_of!(CallTable, cuMemGetInfo_v2) - 272usize];
    ["Offset of field: CallTable::cuMemAlloc_v2"]
        [::std::mem::offset_of!(CallTable, cuMemAlloc_v2) - 280usize];
    ["Offset of field: CallTable::cuMemFree_v2"]
        [::std::mem::offset_of!(CallTable, cuMemFree_v2) - 288usize];
    ["Offset of field: CallTable::cuMemcpyHtoD_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyHtoD_v2) - 296usize];
    ["Offset of field: CallTable::cuMemcpyDtoH_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyDtoH_v2) - 304usize];
    ["Offset of field: CallTable::cuMemcpyDtoD_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyDtoD_v2) - 312usize];
    ["Offset of field: CallTable::cuMemsetD8_v2"]
        [::std::mem::offset_of!(CallTable, cuMemsetD8_v2) - 320usize];
    ["Offset of field: CallTable::cuMemcpyHtoDAsync_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyHtoDAsync_v2) - 328usize];
    ["Offset of field: CallTable::cuMemcpyDtoHAsync_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyDtoHAsync_v2) - 336usize];
    ["Offset of field: CallTable::cuMemcpyDtoDAsync_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpyDtoDAsync_v2) - 344usize];
    ["Offset of field: CallTable::cuMemsetD8Async"]
        [::std::mem::offset_of!(CallTable, cuMemsetD8Async) - 352usize];
    ["Offset of field: CallTable::cuMemcpy2DAsync_v2"]
        [::std::mem::offset_of!(CallTable, cuMemcpy2DAsync_v2) - 360usize];
    ["Offset of field: CallTable::cuMemHostRegister_v2"]
        [::std::mem::offset_of!(CallTable, cuMemHostRegister_v2) - 368usize];
    ["Offset of field: CallTable::cuMemHostUnregister"]
        [::std::mem::offset_of!(CallTable, cuMemHostUnregister) - 376usize];
    ["Offset of field: CallTable::cuMemHostGetDevicePointer_v2"]
        [::std::mem::offset_of!(CallTable, cuMemHostGetDevicePointer_v2) - 384usize];
    ["Offset of field: CallTable::cuStreamCreate"]
        [::std::mem::offset_of!(CallTable, cuStreamCreate) - 392usize];
    ["Offset of field: CallTable::cuStreamDestroy_v2"]
        [::std::mem::offset_of!(CallTable, cuStreamDestroy_v2) - 400usize];
    ["Offset of field: CallTable::cuStreamSynchronize"]
        [::std::mem::offset_of!(CallTable, cuStreamSynchronize) - 408usize];
    ["Offset of field: CallTable::cuStreamQuery"]
        [::std::mem::offset_of!(CallTable, cuStreamQuery) - 416usize];
    ["Offset of field: CallTable::cuEventCreate"]
        [::std::mem::offset_of!(CallTable, cuEventCreate) - 424usize];
    ["Offset of field: CallTable::cuEventDestroy_v2"]
        [::std::mem::offset_of!(CallTable, cuEventDestroy_v2) - 432usize];
    ["Offset of field: CallTable::cuEventRecord"]
        [::std::mem::offset_of!(CallTable, cuEventRecord) - 440usize];
    ["Offset of field: CallTable::cuEventSynchronize"]
        [::std::mem::offset_of!(CallTable, cuEventSynchronize) - 448usize];
    ["Offset of field: CallTable::cuEventQuery"]
        [::std::mem::offset_of!(CallTable, cuEventQuery) - 456usize];
    ["Offset of field: CallTable::cuStreamWaitEvent"]
        [::std::mem::offset_of!(CallTable, cuStreamWaitEvent) - 464usize];
    ["Offset of field: CallTable::cuStreamWriteValue32_v2"]
        [::std::mem::offset_of!(CallTable, cuStreamWriteValue32_v2) - 472usize];
    ["Offset of field: CallTable::cuLaunchHostFunc"]
        [::std::mem::offset_of!(CallTable, cuLaunchHostFunc) - 480usize];
    ["Offset of field: CallTable::cuModuleLoadData"]
        [::std::mem::offset_of!(CallTable, cuModuleLoadData) - 488usize];
    ["Offset of field: CallTable::cuModuleGetFunction"]
        [::std::mem::offset_of!(CallTable, cuModuleGetFunction) - 496usize];
    ["Offset of field: CallTable::cuModuleUnload"]
        [::std::mem::offset_of!(CallTable, cuModuleUnload) - 504usize];
    ["Offset of field: CallTable::cuLaunchKernel"]
        [::std::mem::offset_of!(CallTable, cuLaunchKernel) - 512usize];
};
