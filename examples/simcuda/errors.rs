//! `cuGetErrorName` and `cuGetErrorString`.

use std::collections::BTreeMap;
use std::ffi::{c_char, CString};
use std::ptr::null;
use std::sync::OnceLock;

use cuda_vmm::sys::CUresult;
use cuda_vmm::Code;

/// No code of the headers lies above.
const LAST: u32 = 999;

struct Texts {
    name: CString,
    /// The name in words, where the real driver has a sentence.
    words: CString,
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorName(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller vouches for the output.
    unsafe { answer(code, text, |texts| &texts.name) }
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller vouches for the output.
    unsafe { answer(code, text, |texts| &texts.words) }
}

/// Writes the text, or null for a code that is not known.
///
/// # Safety
///
/// `text` must be null or an output.
unsafe fn answer(
    code: CUresult,
    text: *mut *const c_char,
    pick: fn(&Texts) -> &CString,
) -> CUresult {
    if text.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    let known = texts().get(&code.0).map(pick);
    // SAFETY: not null, and the caller vouches for it.
    unsafe { text.write(known.map_or(null(), |known| known.as_ptr())) };
    match known {
        Some(_) => CUresult::CUDA_SUCCESS,
        None => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}

/// By code. Built once, because C wants strings that live for ever.
fn texts() -> &'static BTreeMap<u32, Texts> {
    static TEXTS: OnceLock<BTreeMap<u32, Texts>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let named = (0..=LAST).filter_map(|code| Some((code, Code::new(code).name()?)));
        named.map(|(code, name)| (code, Texts::of(name))).collect()
    })
}

impl Texts {
    fn of(name: &str) -> Self {
        let words = name
            .trim_start_matches("CUDA_")
            .trim_start_matches("ERROR_");
        let words = words.to_ascii_lowercase().replace('_', " ");
        Texts {
            name: CString::new(name).unwrap_or_default(),
            words: CString::new(words).unwrap_or_default(),
        }
    }
}
