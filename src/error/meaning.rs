//! What an error means to the code that got it, and to the layers of this crate.

use super::{DriverFailure, Error};
use crate::code::Code;
use crate::handle_type::Unavailable;

impl Error {
    /// The driver's status, where the first error is a failed driver call, or says what one means.
    pub fn code(&self) -> Option<Code> {
        match self.first() {
            Error::Driver(failure) => Some(failure.code),
            Error::Disagreement {
                failure: Some(failure),
                ..
            } => Some(failure.code),
            Error::OutOfAddressSpace { .. }
            | Error::OutOfMemory { .. }
            | Error::CommitOutOfMemory { .. } => Some(Code::ERROR_OUT_OF_MEMORY),
            Error::NotAnExport { .. } => Some(Code::ERROR_UNKNOWN),
            Error::Gap { .. } => Some(Code::ERROR_INVALID_VALUE),
            Error::Unshareable { refusals } => refusals.last().map(|refusal| refusal.code),
            _ => None,
        }
    }

    /// The driver's memory ran out (not addresses): free some and try again. [`Error::NoHostMemory`], for which the
    /// system has none, is another matter.
    pub fn is_out_of_memory(&self) -> bool {
        match self.first() {
            Error::OutOfMemory { .. } | Error::CommitOutOfMemory { .. } => true,
            Error::Driver(failure) => failure.code == Code::ERROR_OUT_OF_MEMORY,
            _ => false,
        }
    }

    /// The driver knows the thing but does not permit it here (a FABRIC handle without an IMEX channel, say).
    pub fn is_not_permitted(&self) -> bool {
        self.code() == Some(Code::ERROR_NOT_PERMITTED)
    }

    /// The driver or the device cannot do this at all.
    pub fn is_not_supported(&self) -> bool {
        matches!(self.first(), Error::MissingCall { .. })
            || self.code() == Some(Code::ERROR_NOT_SUPPORTED)
    }

    /// The fabric is not up yet: try again later.
    pub fn is_not_ready(&self) -> bool {
        match self.first() {
            Error::Unshareable { refusals } => refusals
                .iter()
                .any(|refusal| refusal.meaning == Unavailable::NotReady),
            _ => self.code() == Some(Code::ERROR_SYSTEM_NOT_READY),
        }
    }

    /// A fault on the device ended the context: nothing that was enqueued in it runs any more, and copies and kernels
    /// fail until it is created again. Virtual memory management goes on.
    pub fn is_context_lost(&self) -> bool {
        matches!(
            self.code(),
            Some(
                Code::ERROR_ILLEGAL_ADDRESS
                    | Code::ERROR_CONTEXT_IS_DESTROYED
                    | Code::ERROR_ECC_UNCORRECTABLE
                    | Code::ERROR_ASSERT
                    | Code::ERROR_HARDWARE_STACK_ERROR
                    | Code::ERROR_ILLEGAL_INSTRUCTION
                    | Code::ERROR_MISALIGNED_ADDRESS
                    | Code::ERROR_INVALID_ADDRESS_SPACE
                    | Code::ERROR_INVALID_PC
                    | Code::ERROR_LAUNCH_FAILED
            )
        )
    }

    /// The driver has shut down, or this process is a forked child: nothing can be done, and nothing needs to be.
    pub(crate) fn driver_is_gone(&self) -> bool {
        matches!(self.first(), Error::ForkedChild)
            || matches!(
                self.code(),
                Some(Code::ERROR_DEINITIALIZED | Code::ERROR_NOT_INITIALIZED)
            )
    }
}

impl Error {
    /// The failure of a wait, for a second who has to know of it: the caller has the error itself. What only a closure
    /// knows comes as its words.
    pub(crate) fn told_again(&self) -> Error {
        match self.first() {
            Error::Driver(failure) => Error::Driver(failure.clone()),
            Error::ForkedChild => Error::ForkedChild,
            Error::DeadlinePassed { waited } => Error::DeadlinePassed { waited: *waited },
            Error::WaitFailed(why) => Error::WaitFailed(why.to_string().into()),
            other => Error::WaitFailed(other.to_string().into()),
        }
    }
}

/// Answers of the driver that contradict what this crate knows.
impl Error {
    /// An answer that contradicts this crate's state.
    pub(crate) fn disagreement(ours: String, theirs: String) -> Error {
        Error::Disagreement {
            ours,
            theirs,
            failure: None,
        }
    }

    /// A failure that contradicts this crate's state.
    pub(crate) fn contradiction(ours: String, failure: DriverFailure) -> Error {
        Error::Disagreement {
            ours,
            theirs: format!("says otherwise: {failure}"),
            failure: Some(Box::new(failure)),
        }
    }

    /// INVALID_VALUE contradicts what this crate knows to be so.
    pub(crate) fn contradicting(self, ours: impl FnOnce() -> String) -> Error {
        match self {
            Error::Driver(failure) if failure.code == Code::ERROR_INVALID_VALUE => {
                Error::contradiction(ours(), failure)
            }
            other => other,
        }
    }

    pub(crate) fn is_disagreement(&self) -> bool {
        matches!(self.first(), Error::Disagreement { .. })
    }
}
