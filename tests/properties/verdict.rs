//! Whether an operation answered as it had to: the model's expectation, the driver's log and the error must say the
//! same.

use std::fmt::Debug;

use cuda_vmm::sim::{CallRecord, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Code, Error};

use crate::world::World;

/// Why the model says that an operation cannot be.
#[derive(Debug)]
pub enum Refusal {
    /// Before the driver is called, with this very error.
    Check(Error),
    /// By the driver.
    Driver(Call, Code),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it was asked.
    Done,
    /// It was refused, as it should be, and nothing may have changed.
    Refused,
    /// The driver failed: nothing may have changed but what could not be undone, which the log tells.
    Failed,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Check(error)
    }
}

/// A failed call, as the log and the error must both name it.
pub type Failed = (Call, Code);

impl World {
    /// Judges an operation that has just been made.
    pub fn judge<T: Debug, E: Debug>(
        &mut self,
        expected: &Result<E, Refusal>,
        result: &Result<T, Error>,
    ) -> Verdict {
        self.look();
        let verdict = self.weigh(expected, result);
        self.verdict = Some(verdict);
        verdict
    }

    fn weigh<T: Debug, E: Debug>(
        &self,
        expected: &Result<E, Refusal>,
        result: &Result<T, Error>,
    ) -> Verdict {
        let failures = self.failures();
        match (expected, result) {
            (Ok(_), Ok(_)) => {
                assert_eq!(failures, [], "failures were passed over: {}", self.calls());
                Verdict::Done
            }
            (Err(Refusal::Check(error)), Err(answer)) => {
                assert_eq!(format!("{answer:?}"), format!("{error:?}"));
                assert_eq!(self.log, [], "refused only after the driver was called");
                Verdict::Refused
            }
            (Err(Refusal::Driver(call, code)), Err(answer)) => {
                self.told(answer);
                if !self.disturbed {
                    assert_eq!(failures, [(*call, *code)]);
                }
                Verdict::Failed
            }
            (Ok(_), Err(answer)) => {
                assert!(
                    self.disturbed,
                    "{answer:?} is uncalled for: {}",
                    self.calls()
                );
                self.told(answer);
                Verdict::Failed
            }
            (Err(expected), Ok(_)) => panic!("it should have been refused: {expected:?}"),
        }
    }

    /// The error names the failed calls, all of them in their order, and there are some.
    fn told(&self, error: &Error) {
        let errors = std::iter::once(error.first()).chain(error.undo_failures());
        let named: Vec<_> = errors.map(failed).collect();
        let failures: Vec<_> = self.failures().into_iter().map(Some).collect();
        assert_eq!(
            named,
            failures,
            "left: the error; right: the log: {}",
            self.calls()
        );
        assert!(!named.is_empty());
    }

    /// The calls that failed, in their order.
    pub fn failures(&self) -> Vec<Failed> {
        let failed = self.failed().into_iter();
        failed
            .map(|record| (record.call, Code::from(record.result)))
            .collect()
    }

    /// The records of the calls that failed. That work is not done yet is no failure.
    pub fn failed(&self) -> Vec<&CallRecord> {
        let log = self.log.iter();
        log.filter(|record| record.result != CUresult::CUDA_SUCCESS)
            .filter(|record| record.result != CUresult::CUDA_ERROR_NOT_READY)
            .collect()
    }

    /// The calls of a kind that succeeded.
    pub fn succeeded(&self, call: Call) -> impl Iterator<Item = &CallRecord> {
        let log = self.log.iter();
        log.filter(move |record| record.call == call && record.result == CUresult::CUDA_SUCCESS)
    }

    /// Whether a call of this kind failed at this address.
    pub fn failed_at(&self, call: Call, address: u64) -> bool {
        self.failure_at(call, address).is_some()
    }

    /// How a call of this kind failed at this address, if one did.
    pub fn failure_at(&self, call: Call, address: u64) -> Option<Code> {
        let mut failed = self.failed().into_iter();
        let record = failed
            .find(|record| record.call == call && word(record, "address") == Some(address))?;
        Some(record.result.into())
    }

    /// What was called, for the report of a failure.
    pub fn calls(&self) -> String {
        self.log
            .iter()
            .map(|record| format!("\n  {record}"))
            .collect()
    }
}

/// The failed call that an error is about, if it is about one.
pub fn failed(error: &Error) -> Option<Failed> {
    match error {
        Error::Driver(failure) => Some((failure.call, failure.code)),
        Error::Disagreement { failure, .. } => {
            let failure = failure.as_ref()?;
            Some((failure.call, failure.code))
        }
        Error::OutOfMemory { .. } => Some((Call::cuMemCreate, Code::ERROR_OUT_OF_MEMORY)),
        Error::OutOfAddressSpace { .. } => {
            Some((Call::cuMemAddressReserve, Code::ERROR_OUT_OF_MEMORY))
        }
        _ => None,
    }
}

/// An argument of a call that is an address or a handle.
pub fn word(record: &CallRecord, name: &str) -> Option<u64> {
    match record.arg(name)? {
        Value::Word(word) => Some(*word),
        Value::Pointer(pointer) => Some(*pointer as u64),
        _ => None,
    }
}
