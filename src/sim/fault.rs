//! Faults: calls that are made to fail.

use std::fmt;

use crate::code::Code;
use crate::sys::{CUresult, Call};

/// A call that is to fail, instead of being made: which, when, with what code, and how often.
///
/// Calls are counted from the moment the fault is injected. The failing call has no effect: it never reaches the
/// driver, and its outputs stay as they were.
///
/// ```
/// # use cuda_vmm::{sim::{Fault, Simulation}, sys::{CUresult, Call}};
/// # let sim = Simulation::new();
/// // The second cuMemMap from now on fails once; the third goes through.
/// sim.inject(Fault::on(Call::cuMemMap).nth(2).code(CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
/// # Ok::<(), cuda_vmm::sim::FaultError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    pub(super) target: Option<Call>,
    nth: u64,
    code: CUresult,
    times: Option<u64>,
}

impl Fault {
    /// The next call of this kind fails, once, with `CUDA_ERROR_UNKNOWN`; the other methods change each of these.
    pub fn on(call: Call) -> Self {
        Fault {
            target: Some(call),
            nth: 1,
            code: CUresult::CUDA_ERROR_UNKNOWN,
            times: Some(1),
        }
    }

    /// The `n`-th call of any kind, counted from 1.
    pub fn any_nth(n: u64) -> Self {
        Fault {
            target: None,
            nth: n,
            code: CUresult::CUDA_ERROR_UNKNOWN,
            times: Some(1),
        }
    }

    /// The first call to fail, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.nth = n;
        self
    }

    /// What the failing call answers.
    pub fn code(mut self, code: CUresult) -> Self {
        self.code = code;
        self
    }

    /// Fail one call, then let all through.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Fail this many calls in a row.
    pub fn times(mut self, k: u64) -> Self {
        self.times = Some(k);
        self
    }

    /// Fail every call from the `n`-th on, until the faults are cleared.
    pub fn forever(mut self) -> Self {
        self.times = None;
        self
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            target,
            nth,
            code,
            times,
        } = self;
        f.debug_struct("Fault")
            .field("target", target)
            .field("nth", nth)
            .field("code", &Code::from(*code))
            .field("times", times)
            .finish()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Some(call) => write!(f, "call {} of {call}", self.nth)?,
            None => write!(f, "call {} of any kind", self.nth)?,
        }
        match self.times {
            Some(1) => {}
            Some(0) => f.write_str(" (at no time)")?,
            Some(k) => write!(f, " and the {} after it", k - 1)?,
            None => f.write_str(" and all after it")?,
        }
        write!(f, " answers {}", super::log::code_name(self.code))
    }
}

/// Why a fault was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The driver lacks the call, so the fault could never strike.
    #[error("{0} is not provided by this driver, so it cannot be made to fail: inject the fault on a call that it has")]
    NotProvided(Call),
    /// Calls are counted from 1.
    #[error("the 0-th call does not exist: calls are counted from 1, as in nth(1) and any_nth(1)")]
    ZerothCall,
    /// A fault that strikes no call.
    #[error("times(0) strikes no call: leave the fault out instead")]
    NoTimes,
    /// Success is no failure, and the caller would read outputs that nobody wrote.
    #[error("a fault cannot answer CUDA_SUCCESS: nothing would have written the call's outputs")]
    Success,
}

/// The faults that have yet to strike.
#[derive(Debug, Default)]
pub(super) struct Pending(Vec<(Fault, u64)>);

impl Pending {
    pub(super) fn add(&mut self, fault: Fault) -> Result<(), FaultError> {
        if fault.nth == 0 {
            return Err(FaultError::ZerothCall);
        }
        if fault.times == Some(0) {
            return Err(FaultError::NoTimes);
        }
        if fault.code == CUresult::CUDA_SUCCESS {
            return Err(FaultError::Success);
        }
        self.0.push((fault, 0));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn list(&self) -> Vec<Fault> {
        self.0.iter().map(|(fault, _)| *fault).collect()
    }

    /// Counts a call against every fault; the code, if one of them strikes.
    ///
    /// Where several are due the oldest strikes, and the others strike the calls after it.
    pub(super) fn strike(&mut self, call: Call) -> Option<CUresult> {
        let mut struck = None;
        for (index, (fault, seen)) in self.0.iter_mut().enumerate() {
            if fault.target.is_some_and(|target| target != call) {
                continue;
            }
            *seen += 1;
            if struck.is_none() && *seen >= fault.nth {
                struck = Some(index);
            }
        }
        let index = struck?;
        let fault = &mut self.0[index].0;
        let code = fault.code;
        match &mut fault.times {
            None => {}
            Some(1) => drop(self.0.remove(index)),
            Some(left) => *left -= 1,
        }
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

    #[test]
    fn counts_from_injection_and_only_its_own_kind() {
        let mut pending = Pending::default();
        pending
            .add(Fault::on(Call::cuMemMap).nth(2).code(OOM))
            .unwrap();
        assert_eq!(pending.strike(Call::cuMemUnmap), None);
        assert_eq!(pending.strike(Call::cuMemMap), None);
        assert_eq!(pending.strike(Call::cuMemMap), Some(OOM));
        assert!(pending.is_empty());
    }

    #[test]
    fn strikes_a_run_of_calls() {
        let mut pending = Pending::default();
        pending.add(Fault::any_nth(2).times(2).code(OOM)).unwrap();
        let struck: Vec<bool> = (0..5)
            .map(|_| pending.strike(Call::cuMemMap).is_some())
            .collect();
        assert_eq!(struck, [false, true, true, false, false]);
    }

    #[test]
    fn two_faults_due_at_once_strike_one_after_the_other() {
        let mut pending = Pending::default();
        pending.add(Fault::on(Call::cuMemMap).code(OOM)).unwrap();
        pending.add(Fault::any_nth(1)).unwrap();
        assert_eq!(pending.strike(Call::cuMemMap), Some(OOM));
        assert_eq!(
            pending.strike(Call::cuMemUnmap),
            Some(CUresult::CUDA_ERROR_UNKNOWN)
        );
        assert!(pending.is_empty());
    }

    #[test]
    fn says_when_it_strikes() {
        let fault = Fault::on(Call::cuMemMap).nth(2).code(OOM);
        let says = |fault: Fault| fault.to_string();
        let oom = "answers CUDA_ERROR_OUT_OF_MEMORY";
        assert_eq!(says(fault), format!("call 2 of cuMemMap {oom}"));
        assert_eq!(
            says(fault.times(3)),
            format!("call 2 of cuMemMap and the 2 after it {oom}")
        );
        assert_eq!(
            says(fault.forever()),
            format!("call 2 of cuMemMap and all after it {oom}")
        );
        // No such fault is taken, but it can be asked for, and shown.
        assert_eq!(
            says(fault.times(0)),
            format!("call 2 of cuMemMap (at no time) {oom}")
        );
    }

    #[test]
    fn is_shown_with_the_name_of_its_code() {
        let fault = Fault::on(Call::cuMemMap).nth(2).code(OOM).forever();
        let shown = "Fault { target: Some(cuMemMap), nth: 2, code: CUDA_ERROR_OUT_OF_MEMORY (2), times: None }";
        assert_eq!(format!("{fault:?}"), shown);
    }

    #[test]
    fn refuses_what_could_not_strike() {
        let mut pending = Pending::default();
        let fault = Fault::on(Call::cuMemMap);
        assert_eq!(pending.add(fault.nth(0)), Err(FaultError::ZerothCall));
        assert_eq!(pending.add(fault.times(0)), Err(FaultError::NoTimes));
        let any = pending.add(Fault::any_nth(0)).unwrap_err().to_string();
        assert!(any.ends_with("counted from 1, as in nth(1) and any_nth(1)"));
        let success = fault.code(CUresult::CUDA_SUCCESS);
        assert_eq!(pending.add(success), Err(FaultError::Success));
    }
}
