//! The simulated driver itself: its state, and the door every call goes through.
//!
//! Each file holds the calls of one subject, under the calls' own names, as methods of [`State`]. They are written
//! without `unsafe` and without locks: the door turns pointers into checked arguments, refuses what comes before
//! `cuInit`, after the end or in a forked child, and holds the one lock, as the real driver has one for all of its
//! threads.
//!
//! # Safety
//!
//! The door vouches to [`abi::Checked`] for what the caller of a driver call vouches for to the door.
#![allow(unsafe_code, non_snake_case)]

mod abi;
mod access;
mod address;
mod allocate;
mod arenas;
mod backend;
mod contexts;
mod copy;
mod devices;
mod fabric;
mod host_function;
mod kernels;
mod ledger;
mod map;
mod memory;
mod ordinary;
mod queues;
mod register;
mod reserve;
mod rows;
mod share;
mod store;
mod streams;
mod survey;
mod work;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::PoisonError;

use crate::fork;
use crate::space::Space;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::sys::{
    for_each_call, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUhostFn, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemRangeHandleType,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUuuid, Call, DriverCalls, CUDA_MEMCPY2D,
};

use super::builder::SimulationBuilder;
use super::misuse::{Misuse, MisuseKind};
use super::snapshot::Snapshot;

use abi::{Checked, Token};
use allocate::{Handle, Physical};
use backend::Backend;
use contexts::Context;
use kernels::Module;
use map::Mapping;
use ordinary::Ordinary;
use queues::Stream;
use register::Registered;
use store::Identity;
use streams::Event;

/// What a call comes to: nothing more to say, or why not.
type Answer<T = ()> = Result<T, Refusal>;

/// Why a call did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The code that is answered.
    Code(CUresult),
    /// The call blocks: it is tried again when something has moved.
    NotYet,
}

fn refuse<T>(code: CUresult) -> Answer<T> {
    Err(Refusal::Code(code))
}

/// `INVALID_VALUE`, the driver's answer to nearly everything.
fn invalid<T>() -> Answer<T> {
    refuse(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn demand(holds: bool) -> Answer {
    if holds {
        Ok(())
    } else {
        invalid()
    }
}

/// A simulated driver without an interposer.
#[derive(Debug)]
pub(super) struct Core {
    missing: [bool; Call::ALL.len()],
    /// 0 before `cuInit`; afterwards one more than the [generation](fork::current) it was called in.
    initialized: AtomicU64,
    deinitialized: AtomicBool,
    state: Mutex<State>,
    moved: Condvar,
}

/// Everything the driver knows.
#[derive(Debug)]
struct State {
    config: SimulationBuilder,
    backend: Backend,
    space: Space,
    /// Base to size.
    reservations: BTreeMap<u64, u64>,
    reserved_bytes: u64,
    mappings: BTreeMap<u64, Mapping>,
    handles: BTreeMap<u64, Handle>,
    physicals: BTreeMap<u64, Physical>,
    /// The allocations that can be shared.
    identities: HashMap<Identity, u64>,
    /// Allocations without a handle, which an exported descriptor may still keep.
    lingering: Vec<u64>,
    issued_handles: u64,
    issued_physicals: u64,
    used_on_device: Vec<u64>,
    used_on_host: u64,
    contexts: Vec<Context>,
    /// The current contexts of each thread that has any, top last.
    stacks: HashMap<u64, Vec<Token>>,
    ordinary: BTreeMap<u64, Ordinary>,
    registered: BTreeMap<u64, Registered>,
    streams: BTreeMap<Token, Stream>,
    events: BTreeMap<Token, Event>,
    modules: BTreeMap<Token, Module>,
    issued_tokens: u64,
    /// The streams that have a host function to call, for the thread that holds the lock to call.
    due: VecDeque<Token>,
    misuses: Vec<Misuse>,
    /// Threads in a call that blocks.
    waiting: usize,
}

impl Core {
    pub(super) fn new(config: SimulationBuilder) -> Self {
        let mut missing = [false; Call::ALL.len()];
        for &call in &config.missing {
            missing[call as usize] = true;
        }
        if !config.ledger_only {
            fork::join();
        }
        Core {
            missing,
            initialized: AtomicU64::new(0),
            deinitialized: AtomicBool::new(false),
            state: Mutex::new(State::new(config)),
            moved: Condvar::new(),
        }
    }

    /// Whether a call may go on; no lock is taken to find out.
    fn gate(&self, call: Call) -> Answer {
        if self.missing[call as usize] {
            return refuse(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        if self.deinitialized.load(Ordering::Acquire) {
            return refuse(CUresult::CUDA_ERROR_DEINITIALIZED);
        }
        if host_function::is_inside() {
            return refuse(CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        match (call, self.initialized.load(Ordering::Acquire)) {
            (Call::cuInit | Call::cuDriverGetVersion, 0) => Ok(()),
            (_, since) if since == u64::from(fork::current()) + 1 => Ok(()),
            _ => refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        }
    }

    /// Makes a call, again and again while it blocks.
    fn enter(&self, call: Call, mut body: impl FnMut(&mut State) -> Answer) -> CUresult {
        if let Err(Refusal::Code(code)) = self.gate(call) {
            return code;
        }
        let mut state = self.state();
        let code = loop {
            let answer = body(&mut state);
            let waits = answer == Err(Refusal::NotYet) && state.due.is_empty();
            state = match waits {
                true => self.wait(state),
                false => self.call_due(state),
            };
            match answer {
                Ok(()) => break CUresult::CUDA_SUCCESS,
                Err(Refusal::Code(code)) => break code,
                Err(Refusal::NotYet) => {}
            }
            if let Err(Refusal::Code(code)) = self.gate(call) {
                break code;
            }
        };
        if call == Call::cuInit && code == CUresult::CUDA_SUCCESS {
            let since = u64::from(fork::current()) + 1;
            self.initialized.store(since, Ordering::Release);
        }
        if state.waiting > 0 {
            self.moved.notify_all();
        }
        code
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let woken = self.moved.wait(state);
        let mut state = woken.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Calls the host functions that became due under this lock, without the lock, and lets their streams go on.
    fn call_due<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // Taken before the lock is let go, so that each thread calls what it has made due, and nothing else.
        let mut due = std::mem::take(&mut state.due);
        while let Some(stream) = due.pop_front() {
            if let Some(function) = state.take_function(stream) {
                self.moved.notify_all();
                drop(state);
                function.call();
                state = self.state();
            }
            state.function_returned(stream);
            due.append(&mut state.due);
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No call panics by intent; after a panic the books are still the best account there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that a blocked call may be waiting for.
    fn stir<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let result = change(&mut state);
        drop(self.call_due(state));
        self.moved.notify_all();
        result
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.state().snapshot()
    }

    pub(super) fn misuses(&self) -> Vec<Misuse> {
        self.state().misuses.clone()
    }

    pub(super) fn clear_misuses(&self) {
        self.state().misuses.clear();
    }

    pub(super) fn poison(&self, device: usize) -> bool {
        self.stir(|state| state.poison(device))
    }

    pub(super) fn deinitialize(&self) {
        self.deinitialized.store(true, Ordering::Release);
        self.stir(|_| ());
    }

    pub(super) fn hold_stream(&self, stream: CUstream) -> bool {
        let stream = Token(stream as usize as u64);
        self.state().hold_stream(stream)
    }

    pub(super) fn release_stream(&self, stream: CUstream) -> bool {
        let stream = Token(stream as usize as u64);
        self.stir(|state| state.release_stream(stream))
    }
}

impl State {
    fn new(config: SimulationBuilder) -> Self {
        let backend = Backend::new(config.ledger_only);
        let mut space = Space::default();
        space.give(backend.first_addresses());
        let devices = config.devices.len();
        let mut state = State {
            backend,
            space,
            reservations: BTreeMap::new(),
            reserved_bytes: 0,
            mappings: BTreeMap::new(),
            handles: BTreeMap::new(),
            physicals: BTreeMap::new(),
            identities: HashMap::new(),
            lingering: Vec::new(),
            issued_handles: 0,
            issued_physicals: 0,
            used_on_device: vec![0; devices],
            used_on_host: 0,
            contexts: vec![Context::default(); devices],
            stacks: HashMap::new(),
            ordinary: BTreeMap::new(),
            registered: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            issued_tokens: 0,
            due: VecDeque::new(),
            misuses: Vec::new(),
            waiting: 0,
            config,
        };
        state.make_default_streams();
        state
    }

    /// Notes what a real driver would have died of.
    fn misuse(&mut self, call: Call, kind: MisuseKind, value: u64) {
        self.misuses.push(Misuse { call, kind, value });
    }
}

macro_rules! dispatch {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        // SAFETY: outputs are written through `Out` and `Raw` alone, within the lengths the caller gave; host pointers
        // are kept only with work on a stream, until the stream has passed it.
        unsafe impl DriverCalls for Core {
            fn provides(&self, call: Call) -> bool {
                !self.missing[call as usize]
            }

            $(
                unsafe fn $name(&self, $($arg: $ty),*) -> CUresult {
                    // SAFETY: the caller vouches for the arguments.
                    $(let $arg = unsafe { Checked::checked($arg) };)*
                    self.enter(Call::$name, |state| state.$name($($arg),*))
                }
            )*
        }
    };
}
for_each_call!(dispatch);
