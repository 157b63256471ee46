//! The driver's status codes.

use std::fmt;

use crate::sys::CUresult;

/// A status code of the driver, known or not.
///
/// Codes are kept as the number the driver gave, so that one newer than this crate survives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(u32);

impl Code {
    /// The code with this number.
    pub const fn new(number: u32) -> Self {
        Code(number)
    }

    /// The number, as `cuda.h` has it.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl From<CUresult> for Code {
    fn from(status: CUresult) -> Self {
        Code(status.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `CUDA_ERROR_OUT_OF_MEMORY (2)`; a code without a name is `unknown CUDA status (4711)`.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({})",
            self.name().unwrap_or("unknown CUDA status"),
            self.0
        )
    }
}

macro_rules! codes {
    ($($number:literal $name:ident),* $(,)?) => {
        #[allow(missing_docs)]
        impl Code {
            $(pub const $name: Code = Code($number);)*

            /// The code's name in `cuda.h`, if this crate knows it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(concat!("CUDA_", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    0 SUCCESS,
    1 ERROR_INVALID_VALUE,
    2 ERROR_OUT_OF_MEMORY,
    3 ERROR_NOT_INITIALIZED,
    4 ERROR_DEINITIALIZED,
    5 ERROR_PROFILER_DISABLED,
    6 ERROR_PROFILER_NOT_INITIALIZED,
    7 ERROR_PROFILER_ALREADY_STARTED,
    8 ERROR_PROFILER_ALREADY_STOPPED,
    34 ERROR_STUB_LIBRARY,
    46 ERROR_DEVICE_UNAVAILABLE,
    100 ERROR_NO_DEVICE,
    101 ERROR_INVALID_DEVICE,
    102 ERROR_DEVICE_NOT_LICENSED,
    200 ERROR_INVALID_IMAGE,
    201 ERROR_INVALID_CONTEXT,
    202 ERROR_CONTEXT_ALREADY_CURRENT,
    205 ERROR_MAP_FAILED,
    206 ERROR_UNMAP_FAILED,
    207 ERROR_ARRAY_IS_MAPPED,
    208 ERROR_ALREADY_MAPPED,
    209 ERROR_NO_BINARY_FOR_GPU,
    210 ERROR_ALREADY_ACQUIRED,
    211 ERROR_NOT_MAPPED,
    212 ERROR_NOT_MAPPED_AS_ARRAY,
    213 ERROR_NOT_MAPPED_AS_POINTER,
    214 ERROR_ECC_UNCORRECTABLE,
    215 ERROR_UNSUPPORTED_LIMIT,
    216 ERROR_CONTEXT_ALREADY_IN_USE,
    217 ERROR_PEER_ACCESS_UNSUPPORTED,
    218 ERROR_INVALID_PTX,
    219 ERROR_INVALID_GRAPHICS_CONTEXT,
    220 ERROR_NVLINK_UNCORRECTABLE,
    221 ERROR_JIT_COMPILER_NOT_FOUND,
    222 ERROR_UNSUPPORTED_PTX_VERSION,
    223 ERROR_JIT_COMPILATION_DISABLED,
    224 ERROR_UNSUPPORTED_EXEC_AFFINITY,
    300 ERROR_INVALID_SOURCE,
    301 ERROR_FILE_NOT_FOUND,
    302 ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    303 ERROR_SHARED_OBJECT_INIT_FAILED,
    304 ERROR_OPERATING_SYSTEM,
    400 ERROR_INVALID_HANDLE,
    401 ERROR_ILLEGAL_STATE,
    500 ERROR_NOT_FOUND,
    600 ERROR_NOT_READY,
    700 ERROR_ILLEGAL_ADDRESS,
    701 ERROR_LAUNCH_OUT_OF_RESOURCES,
    702 ERROR_LAUNCH_TIMEOUT,
    703 ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
    704 ERROR_PEER_ACCESS_ALREADY_ENABLED,
    705 ERROR_PEER_ACCESS_NOT_ENABLED,
    708 ERROR_PRIMARY_CONTEXT_ACTIVE,
    709 ERROR_CONTEXT_IS_DESTROYED,
    710 ERROR_ASSERT,
    711 ERROR_TOO_MANY_PEERS,
    712 ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    713 ERROR_HOST_MEMORY_NOT_REGISTERED,
    714 ERROR_HARDWARE_STACK_ERROR,
    715 ERROR_ILLEGAL_INSTRUCTION,
    716 ERROR_MISALIGNED_ADDRESS,
    717 ERROR_INVALID_ADDRESS_SPACE,
    718 ERROR_INVALID_PC,
    719 ERROR_LAUNCH_FAILED,
    720 ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    800 ERROR_NOT_PERMITTED,
    801 ERROR_NOT_SUPPORTED,
    802 ERROR_SYSTEM_NOT_READY,
    803 ERROR_SYSTEM_DRIVER_MISMATCH,
    804 ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    805 ERROR_MPS_CONNECTION_FAILED,
    806 ERROR_MPS_RPC_FAILURE,
    807 ERROR_MPS_SERVER_NOT_READY,
    808 ERROR_MPS_MAX_CLIENTS_REACHED,
    809 ERROR_MPS_MAX_CONNECTIONS_REACHED,
    810 ERROR_MPS_CLIENT_TERMINATED,
    900 ERROR_STREAM_CAPTURE_UNSUPPORTED,
    901 ERROR_STREAM_CAPTURE_INVALIDATED,
    902 ERROR_STREAM_CAPTURE_MERGE,
    903 ERROR_STREAM_CAPTURE_UNMATCHED,
    904 ERROR_STREAM_CAPTURE_UNJOINED,
    905 ERROR_STREAM_CAPTURE_ISOLATION,
    906 ERROR_STREAM_CAPTURE_IMPLICIT,
    907 ERROR_CAPTURED_EVENT,
    908 ERROR_STREAM_CAPTURE_WRONG_THREAD,
    909 ERROR_TIMEOUT,
    910 ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    911 ERROR_EXTERNAL_DEVICE,
    912 ERROR_INVALID_CLUSTER_SIZE,
    999 ERROR_UNKNOWN,
}
