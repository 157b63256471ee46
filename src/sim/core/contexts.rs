//! Primary contexts, and the stack of current ones that each thread has.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::{CUcontext, CUresult, Call};

use super::super::misuse::MisuseKind;
use super::abi::{Out, Token};
use super::{demand, refuse, Answer, State};

/// Contexts are numbered from here, so that none is mistaken for a stream or an event.
const FIRST: u64 = 0xc0_0000_1000;
const STEP: u64 = 0x100;

/// A device's primary context.
#[derive(Debug, Clone, Default)]
pub(super) struct Context {
    /// How often it was retained and not yet released. Without a count it does not exist.
    pub(super) retained: u32,
    /// The error that everything in it answers from now on.
    pub(super) failed: Option<CUresult>,
}

impl State {
    pub(super) fn cuDevicePrimaryCtxRetain(
        &mut self,
        context: Out<CUcontext>,
        device: c_int,
    ) -> Answer {
        let device = self.device(device)?;
        context.put(token(device).pointer())?;
        self.contexts[device].retained += 1;
        Ok(())
    }

    pub(super) fn cuDevicePrimaryCtxRelease_v2(&mut self, device: c_int) -> Answer {
        let device = self.device(device)?;
        match self.contexts[device].retained {
            0 => return refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            1 => self.clear_context(device),
            _ => {}
        }
        self.contexts[device].retained -= 1;
        Ok(())
    }

    /// What belongs to the context goes, a sticky error with it. Reservations, handles and mappings do not belong to
    /// it.
    pub(super) fn cuDevicePrimaryCtxReset_v2(&mut self, device: c_int) -> Answer {
        let device = self.device(device)?;
        self.clear_context(device);
        Ok(())
    }

    fn clear_context(&mut self, device: usize) {
        self.contexts[device].failed = None;
        self.clear_streams(device);
        self.clear_ordinary(device);
        self.clear_registered(device);
        self.clear_modules(device);
    }

    pub(super) fn cuCtxPushCurrent_v2(&mut self, context: Token) -> Answer {
        demand(context != Token::NULL)?;
        self.known_context(Call::cuCtxPushCurrent_v2, context)?;
        self.stacks.entry(thread()).or_default().push(context);
        Ok(())
    }

    pub(super) fn cuCtxPopCurrent_v2(&mut self, context: Out<CUcontext>) -> Answer {
        let Some(popped) = self.change_stack(Vec::pop) else {
            return refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        };
        context.put_if_wanted(popped.pointer());
        Ok(())
    }

    /// Replaces the top of the stack; null takes it off.
    pub(super) fn cuCtxSetCurrent(&mut self, context: Token) -> Answer {
        if context != Token::NULL {
            self.known_context(Call::cuCtxSetCurrent, context)?;
        }
        self.change_stack(|stack| {
            stack.pop();
            if context != Token::NULL {
                stack.push(context);
            }
        });
        Ok(())
    }

    pub(super) fn cuCtxGetCurrent(&mut self, context: Out<CUcontext>) -> Answer {
        let current = self.current().unwrap_or(Token::NULL);
        context.put(current.pointer())
    }

    pub(super) fn cuCtxGetDevice(&mut self, device: Out<c_int>) -> Answer {
        let current = self.current_device()?;
        device.put(current as c_int)
    }

    pub(super) fn cuCtxSynchronize(&mut self) -> Answer {
        let device = self.working_device()?;
        self.wait_for_device(device)?;
        self.healthy(device)
    }

    /// How many contexts the calling thread has on its stack.
    pub(super) fn depth(&self) -> usize {
        self.stacks.get(&thread()).map_or(0, Vec::len)
    }

    /// The device of the calling thread's current context.
    pub(super) fn current_device(&self) -> Answer<usize> {
        match self.current().map(device_of) {
            Some(Some(device)) if self.contexts[device].retained > 0 => Ok(device),
            Some(_) => refuse(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            None => refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// The same, if work can still be done in that context.
    pub(super) fn working_device(&self) -> Answer<usize> {
        let device = self.current_device()?;
        self.healthy(device)?;
        Ok(device)
    }

    pub(super) fn healthy(&self, device: usize) -> Answer {
        match self.contexts[device].failed {
            Some(code) => refuse(code),
            None => Ok(()),
        }
    }

    /// Breaks a context the way a fault on the device does. `false` if there is no such device.
    pub(super) fn poison(&mut self, device: usize) -> bool {
        if device >= self.contexts.len() {
            return false;
        }
        self.lose_context(device);
        self.run_streams();
        true
    }

    /// The same for a device that exists. The caller lets the other streams run afterwards.
    pub(super) fn lose_context(&mut self, device: usize) {
        self.contexts[device].failed = Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        self.drop_pending_work(device);
    }

    fn current(&self) -> Option<Token> {
        self.stacks.get(&thread())?.last().copied()
    }

    fn known_context(&mut self, call: Call, context: Token) -> Answer {
        match device_of(context) {
            Some(device) if device < self.contexts.len() => {
                if self.contexts[device].retained == 0 {
                    return refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT);
                }
                Ok(())
            }
            _ => {
                if context != Token::NULL {
                    self.misuse(call, MisuseKind::NoSuchContext, context.0);
                }
                refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT)
            }
        }
    }

    /// Changes the calling thread's stack, and keeps none that is empty: threads come and go.
    fn change_stack<R>(&mut self, change: impl FnOnce(&mut Vec<Token>) -> R) -> R {
        let thread = thread();
        let stack = self.stacks.entry(thread).or_default();
        let result = change(stack);
        if stack.is_empty() {
            self.stacks.remove(&thread);
        }
        result
    }
}

fn token(device: usize) -> Token {
    Token(FIRST + STEP * device as u64)
}

fn device_of(context: Token) -> Option<usize> {
    let steps = context.0.checked_sub(FIRST)?;
    (steps % STEP == 0).then_some((steps / STEP) as usize)
}

/// The calling thread's number. Unlike the standard library's it can be had while a thread's locals are being
/// destroyed.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    crate::sync::thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    })
}
