//! The simulated driver as a library: the CUDA driver's own C symbols over one [`Simulation`] for the whole process.
//!
//! Put into a folder as `libcuda.so.1`, it is what any program finds that looks for the driver, this crate's loader
//! included, whatever language it is written in:
//!
//! ```sh
//! scripts/build-simcuda /tmp/simcuda
//! LD_LIBRARY_PATH=/tmp/simcuda python3 a_program_of_yours.py
//! ```
//!
//! # What it exports
//!
//! Every call of [`cuda_vmm::sys::Call`] under its symbol's name and, where that ends in a version, also under the
//! plain name; `cuGetProcAddress` of both versions, `cuGetErrorName` and `cuGetErrorString`; and controls of its own.
//!
//! # How it is set up
//!
//! By the environment, which is read once, when the first driver call is made:
//!
//! | variable | value | left out |
//! |---|---|---|
//! | `SIMCUDA_DEVICES` | how many devices, all alike | 1 |
//! | `SIMCUDA_MEMORY` | memory of each: bytes, or a number with `KiB`, `MiB`, `GiB` or `TiB` | 139 GiB |
//! | `SIMCUDA_LEDGER` | `1`: books only, no real memory and no file descriptors | 0 |
//! | `SIMCUDA_IMEX` | `1`: there is an IMEX channel, so fabric handles are permitted | 0 |
//! | `SIMCUDA_FAULT` | `CALL[:N[:CODE[:TIMES]]]`, several with commas between | no fault |
//!
//! A fault makes the `N`-th `CALL` (counted from 1) answer the number `CODE`, and the `TIMES - 1` calls of that kind
//! after it too; `TIMES` may be `forever`. What is left out is the first call, `CUDA_ERROR_UNKNOWN`, once. So
//! `SIMCUDA_FAULT=cuMemMap:2:2` has the second `cuMemMap` run out of memory.
//!
//! A value that makes no sense, or a variable `SIMCUDA_...` that is none of these, is told on standard error, and every
//! call answers `CUDA_ERROR_SYSTEM_NOT_READY`.
//!
//! # Controls
//!
//! For a program that knows what it runs on. Text is written as C does it: at most `capacity` bytes, a closing zero
//! included, and the answer is the length that all of it has without the zero.
//!
//! | symbol | what it does |
//! |---|---|
//! | `size_t simcuda_snapshot(char *text, size_t capacity)` | all that the driver holds, one fact a line |
//! | `size_t simcuda_misuses(char *text, size_t capacity)` | what a real driver would have died of, one a line |
//! | `int simcuda_fault(const char *fault)` | adds faults, written as in `SIMCUDA_FAULT`; 0, or 1 and the reason on standard error |
//! | `void simcuda_clear_faults(void)` | forgets the faults that have yet to strike |
//! | `int simcuda_hold_stream(CUstream)` | what is enqueued stays pending; 0, or 1 if there is no such stream |
//! | `int simcuda_release_stream(CUstream)` | lets it run; likewise |
//!
//! # Where it differs from the driver's library
//!
//! Beside what the [simulated driver](cuda_vmm::sim) says of itself: a call has one version, the newest, whatever
//! version `cuGetProcAddress` is asked for, and a plain name means that one; streams per thread are the legacy default
//! stream; calls that this crate does not use are not there.
//!
//! # Safety
//!
//! The symbols have the signatures of `cuda.h`, because they come from the crate's one list of calls, which is held to
//! that header. What a C caller passes is vouched for by the caller, as it is to the real driver.
#![allow(unsafe_code)]

mod aliases;
mod calls;
mod config;
mod control;
mod errors;
mod lookup;
mod process;

#[allow(unused_imports)] // For the documentation above.
use cuda_vmm::sim::Simulation;
