//! The driver's answers, and the one way in which a case makes a call: naming the answer it must get.

use cuda_vmm::sys::CUresult;

use crate::transcript;

macro_rules! codes {
    ($($name:ident = $constant:ident;)*) => {
        $(pub const $name: CUresult = CUresult::$constant;)*

        /// The answer's name, or its number if no case expects it.
        pub fn name(code: CUresult) -> String {
            match code {
                $($name => stringify!($name).into(),)*
                CUresult(number) => number.to_string(),
            }
        }

        /// The answer's name and number, for a person.
        pub fn spell(code: CUresult) -> String {
            match code {
                $($name => format!("{} ({})", stringify!($name), code.0),)*
                CUresult(number) => format!("an answer no case expects ({number})"),
            }
        }
    };
}

codes! {
    SUCCESS = CUDA_SUCCESS;
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED;
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED;
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    NOT_FOUND = CUDA_ERROR_NOT_FOUND;
    NOT_READY = CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    UNKNOWN = CUDA_ERROR_UNKNOWN;
}

/// Panics unless the call answered as it must.
#[track_caller]
pub fn demand(call: &str, got: CUresult, wanted: CUresult) {
    hear(call, got);
    assert!(
        got == wanted,
        "{call} answered {}, not {}",
        spell(got),
        spell(wanted)
    );
}

/// Notes a refusal for the transcript of the case.
pub fn hear(call: &str, got: CUresult) {
    if got != SUCCESS {
        transcript::hear(call, name(got));
    }
}

/// Makes a driver call and demands the one answer that was measured: `call!(gpu, cuMemUnmap(at, 0) => INVALID_VALUE)`.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?) => $wanted:ident) => {
        $crate::codes::demand(
            stringify!($name($($argument),*)),
            unsafe { $driver.calls().$name($($argument),*) },
            $crate::codes::$wanted,
        )
    };
}
pub(crate) use call;
