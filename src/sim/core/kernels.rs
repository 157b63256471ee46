//! Modules and launches: of all kernels the one that `pool` copies with.
//!
//! There is no compiler here, and no device to run its output. The one kernel is recognised by the name of its entry,
//! and what it does is done instead: copies in the order of the stream, as the device, which checks nothing beforehand.
//! Assumed from the documentation and not measured: all answers but those to what the crate itself does.

use std::ffi::{c_uint, c_void};

use crate::sys::{CUdevice_attribute, CUfunction, CUmodule, CUresult, Call};

use super::super::misuse::MisuseKind;
use super::abi::{In, Out, Raw, Token};
use super::queues::Item;
use super::work::{Spot, Work};
use super::{demand, refuse, Answer, State};

/// The entry of the kernel that copies pieces.
const GATHER: &str = "cuda_vmm_gather";
/// The bytes of its parameter: for each block where to, from where, how many bytes, as words of 8 bytes.
const PARAMETER: usize = 3840;
const PIECE: usize = 24;

/// What a block may have in shared memory without asking for more.
const SHARED: c_uint = 48 << 10;

/// A module that was loaded. It belongs to a context and goes with it.
#[derive(Debug)]
pub(super) struct Module {
    device: usize,
    /// Its one function.
    function: Token,
}

impl State {
    pub(super) fn cuModuleLoadData(&mut self, module: Out<CUmodule>, image: Raw) -> Answer {
        module.wanted()?;
        image.wanted()?;
        let device = self.working_device()?;
        let entry = format!(".entry {GATHER}(");
        let known = find(&image.text()?, entry.as_bytes());
        if !known || !self.config.devices[device].jit_compiler {
            return refuse(CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
        }
        let (token, function) = (self.new_token(), self.new_token());
        self.modules.insert(token, Module { device, function });
        module.put(token.pointer())
    }

    pub(super) fn cuModuleGetFunction(
        &mut self,
        function: Out<CUfunction>,
        module: Token,
        name: Raw,
    ) -> Answer {
        function.wanted()?;
        let name = name.text()?;
        self.working_device()?;
        let module = self.known_module(Call::cuModuleGetFunction, module)?;
        let (device, found) = (module.device, module.function);
        self.healthy(device)?;
        match name == GATHER.as_bytes() {
            true => function.put(found.pointer()),
            false => refuse(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    }

    /// What was launched goes on: its copies stand in their streams.
    pub(super) fn cuModuleUnload(&mut self, module: Token) -> Answer {
        self.current_device()?;
        self.known_module(Call::cuModuleUnload, module)?;
        self.modules.remove(&module);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn cuLaunchKernel(
        &mut self,
        function: Token,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Token,
        parameters: In<*mut c_void>,
        extra: In<*mut c_void>,
    ) -> Answer {
        const CALL: Call = Call::cuLaunchKernel;
        let of_device = self.known_function(CALL, function)?;
        let (stream, device) = self.working_stream(CALL, stream)?;
        if device != of_device {
            return refuse(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        let most = self.config.devices[device].attribute_of(most, device);
        let threads = [block_y, block_z]
            .iter()
            .try_fold(block_x, |all, &more| all.checked_mul(more));
        demand([grid_x, grid_y, grid_z].iter().all(|&size| size != 0))?;
        demand(threads.is_some_and(|all| all != 0 && u64::from(all) <= most.unwrap_or(0) as u64))?;
        demand(shared <= SHARED)?;
        if extra.get().is_ok() {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let parameter = Raw::of(parameters.nth(0)?);
        parameter.wanted()?;
        let mut bytes = [0; PARAMETER];
        parameter.read_at(0, &mut bytes);
        // A block without a piece of its own reads beyond the parameter; one of them tells as much as many.
        let pieces =
            (0..=PARAMETER / PIECE).map(|block| bytes.get(block * PIECE..(block + 1) * PIECE));
        for piece in pieces.take(grid_x as usize) {
            let work = piece.map_or(BEYOND, copy);
            match self.defers(stream) {
                true => self.enqueue(stream, Item::Work(work)),
                false if self.execute(device, work).is_ok() => {}
                false => {
                    self.lose_context(device);
                    self.run_streams();
                    break;
                }
            }
        }
        Ok(())
    }

    fn known_module(&mut self, call: Call, module: Token) -> Answer<&Module> {
        if !self.modules.contains_key(&module) {
            self.misuse(call, MisuseKind::NoSuchModule, module.0);
        }
        match self.modules.get(&module) {
            Some(module) => Ok(module),
            None => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The device of a function.
    fn known_function(&mut self, call: Call, function: Token) -> Answer<usize> {
        let mut modules = self.modules.values();
        match modules.find(|module| module.function == function) {
            Some(module) => Ok(module.device),
            None => {
                self.misuse(call, MisuseKind::NoSuchFunction, function.0);
                refuse(CUresult::CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// Forgets what a context leaves behind.
    pub(super) fn clear_modules(&mut self, device: usize) {
        self.modules.retain(|_, module| module.device != device);
    }
}

/// Work that no device can do.
const BEYOND: Work = Work::Fill {
    to: 0,
    value: 0,
    size: 1,
};

/// The copy of one piece.
fn copy(piece: &[u8]) -> Work {
    let word = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&piece[index * 8..index * 8 + 8]);
        u64::from_ne_bytes(bytes)
    };
    Work::Move {
        to: Spot::Device(word(0)),
        from: Spot::Device(word(1)),
        size: word(2),
    }
}

fn find(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
