//! Small copies of one call as one kernel launch: each copy that is enqueued by itself takes the driver longer than the
//! device takes for all of them.
//!
//! The kernel reads and writes without the checks of a copy by the driver: an address that the device may not read loses
//! the context. So it is given only what is known to be readable, see [`piece`]. Where the driver cannot compile it, or
//! refuses to launch it, the copies go out one by one.

use std::ffi::CStr;

use super::payload::{Kind, Transfer};
use crate::code::Code;
use crate::device::Device;
use crate::driver::{Calls, Function, Module};
use crate::error::{Error, Result};
use crate::sync::{lock, Mutex};
use crate::sys::CUstream;

/// The kernel's text, which the driver compiles for the device at hand.
const TEXT: &str = concat!(include_str!("gather.ptx"), "\0");
const IMAGE: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
    Ok(image) => image,
    Err(_) => panic!("the text contains a zero"),
};
const ENTRY: &CStr = c"cuda_vmm_gather";

/// Three words for each piece: to, from, and the number of bytes.
const PIECE: usize = 3 * size_of::<u64>();
/// The most pieces of a launch. All drivers pass parameters of up to 4 KiB.
const MOST: usize = 160;
/// The bytes of the parameter, whether all pieces are used or not.
const PARAMETER: usize = MOST * PIECE;
/// The threads of each block, and so of each piece.
const THREADS: u32 = 1024;

/// From so many pieces on one launch takes less time than the copies.
const FEWEST: usize = 4;
/// The largest piece: of more bytes one block takes longer than the driver takes for another copy.
const LARGEST: usize = 32 << 10;
/// The same, where the addresses are aligned so badly that each thread copies single bytes.
const LARGEST_BYTEWISE: usize = 4 << 10;

/// A copy that the kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its index among the transfers.
    pub(super) index: usize,
    to: u64,
    from: u64,
    size: usize,
}

/// The kernel, loaded when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Gather {
    state: Mutex<State>,
    /// Modules that are of no more use, and not unloaded.
    left: Mutex<Vec<Module>>,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Not loaded; the next call that needs it tries to.
    #[default]
    Absent,
    /// A thread loads it. Others do without meanwhile.
    Loading,
    Ready {
        module: Module,
        function: Function,
    },
    /// The driver cannot have it, and is not asked again.
    Unable,
}

/// The transfers that the kernel can do; none where they are too few.
pub(super) fn pieces(transfers: &[Transfer<'_>], device: &Device) -> Vec<Piece> {
    if transfers.len() < FEWEST {
        return Vec::new();
    }
    let transfers = transfers.iter().enumerate();
    let pieces: Vec<Piece> = transfers
        .filter_map(|(index, transfer)| piece(index, transfer, device))
        .collect();
    match pieces.len() {
        FEWEST.. => pieces,
        _ => Vec::new(),
    }
}

/// The transfer as a piece, if it is small and its source is known to be readable: by the rights of the mappings beneath
/// a view, or by the promise that comes with an address. A view that says less is left to the driver, which refuses what
/// cannot be read and loses nothing.
fn piece(index: usize, transfer: &Transfer<'_>, device: &Device) -> Option<Piece> {
    let (from, size) = match transfer.source.0 {
        Kind::View(view) => (view.address(), view.size()),
        Kind::Device { address, size } => (address, size),
        Kind::Host(_) | Kind::Rows { .. } => return None,
    };
    let to = transfer.to;
    let largest = match (to | from) % 4 {
        0 => LARGEST,
        _ => LARGEST_BYTEWISE,
    };
    let readable = match transfer.source.0 {
        _ if size > largest => false,
        Kind::View(view) => view.is_readable_by(device),
        _ => true,
    };
    readable.then_some(Piece {
        index,
        to,
        from,
        size,
    })
}

impl Gather {
    /// Takes every lock that there is, and lets go of it.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(super) fn go_through_locks(&self) {
        drop(lock(&self.state));
        drop(lock(&self.left));
    }

    /// Launches the kernel for as many pieces as the driver lets it; how many, from the first on. The context of the
    /// pool's device is current.
    pub(super) fn launch(&self, calls: &Calls, pieces: &[Piece], stream: CUstream) -> usize {
        if pieces.is_empty() {
            return 0;
        }
        let Some(function) = self.function(calls) else {
            return 0;
        };
        let mut done = 0;
        for some in pieces.chunks(MOST) {
            let parameter = parameter(some);
            let blocks = some.len() as u32;
            if let Err(error) = calls.launch(function, blocks, THREADS, stream, &parameter) {
                // A driver may compile only now.
                if is_for_good(&error) {
                    self.abandon();
                }
                break;
            }
            done += some.len();
        }
        done
    }

    fn function(&self, calls: &Calls) -> Option<Function> {
        {
            let mut state = lock(&self.state);
            match *state {
                State::Ready { function, .. } => return Some(function),
                State::Loading | State::Unable => return None,
                State::Absent => *state = State::Loading,
            }
        }
        let (next, function) = match self.load(calls) {
            Ok((module, function)) => (State::Ready { module, function }, Some(function)),
            Err(error) if is_for_good(&error) => (State::Unable, None),
            Err(_) => (State::Absent, None),
        };
        *lock(&self.state) = next;
        function
    }

    fn load(&self, calls: &Calls) -> Result<(Module, Function)> {
        let module = calls.module_load(IMAGE)?;
        let function = calls.module_function(module, ENTRY);
        if function.is_err() && calls.module_unload(module).is_err() {
            lock(&self.left).push(module);
        }
        function.map(|function| (module, function))
    }

    /// Stops using the kernel. Its module stays until the end, since another thread may be about to launch it.
    fn abandon(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Unable);
        if let State::Ready { module, .. } = before {
            lock(&self.left).push(module);
        }
    }

    /// The modules that are to be unloaded. No launch comes after this.
    pub(super) fn take_modules(&self) -> Vec<Module> {
        self.abandon();
        std::mem::take(&mut *lock(&self.left))
    }

    /// Keeps modules that the driver did not unload.
    pub(super) fn keep_modules(&self, modules: Vec<Module>) {
        lock(&self.left).extend(modules);
    }
}

/// The parameter of a launch for these pieces.
fn parameter(pieces: &[Piece]) -> [u8; PARAMETER] {
    let mut bytes = [0; PARAMETER];
    for (piece, into) in pieces.iter().zip(bytes.chunks_exact_mut(PIECE)) {
        let words = [piece.to, piece.from, piece.size as u64];
        for (word, into) in words.iter().zip(into.chunks_exact_mut(size_of::<u64>())) {
            into.copy_from_slice(&word.to_ne_bytes());
        }
    }
    bytes
}

/// Whether the driver will answer the same the next time: it has no compiler for the text, or lacks the calls.
fn is_for_good(error: &Error) -> bool {
    match error {
        Error::MissingCall { .. } | Error::Disagreement { .. } => true,
        error => matches!(
            error.code(),
            Some(
                Code::ERROR_INVALID_IMAGE
                    | Code::ERROR_NO_BINARY_FOR_GPU
                    | Code::ERROR_INVALID_PTX
                    | Code::ERROR_JIT_COMPILER_NOT_FOUND
                    | Code::ERROR_UNSUPPORTED_PTX_VERSION
                    | Code::ERROR_JIT_COMPILATION_DISABLED
                    | Code::ERROR_NOT_FOUND
                    | Code::ERROR_NOT_SUPPORTED
            )
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_declares_what_is_passed_to_it() {
        let entry = ENTRY.to_str().unwrap();
        let head =
            format!(".visible .entry {entry}(\n    .param .align 8 .b8 pieces[{PARAMETER}]\n)\n");
        assert_eq!(TEXT.matches(&head).count(), 1);
        assert!(TEXT.contains(&format!("\n.maxntid {THREADS}, 1, 1\n")));
        assert!(TEXT.contains(&format!("mul.wide.u32 %at, %block, {PIECE};")));
        // What a driver of CUDA 11.8 compiles, for every device that such a driver knows.
        assert!(TEXT.contains("\n.version 6.0\n.target sm_50\n.address_size 64\n"));
        assert!(TEXT.is_ascii());
        const { assert!(PARAMETER <= 4000 && MOST >= FEWEST && LARGEST_BYTEWISE <= LARGEST) };
    }

    #[test]
    fn pieces_are_packed_as_words_and_the_rest_is_zero() {
        let piece = |index: usize| Piece {
            index,
            to: 0x1122_3344_5566_7788 + index as u64,
            from: 0x99 << 40,
            size: 5,
        };
        let packed = parameter(&[piece(0), piece(1)]);
        let words: Vec<u64> = packed
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let expected = [
            0x1122_3344_5566_7788,
            0x99 << 40,
            5,
            0x1122_3344_5566_7789,
            0x99 << 40,
            5,
        ];
        assert_eq!(words[..6], expected);
        assert!(words[6..].iter().all(|word| *word == 0));
        assert_eq!(words.len(), 480);
    }
}
