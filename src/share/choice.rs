//! Which kind of handle a device's memory can be shared by: found out by doing it.

use std::fmt;
use std::os::fd::AsFd;

use crate::allocation::Allocation;
use crate::device::Device;
use crate::driver::{Driver, Piece, Verdict};
use crate::error::{Error, Result};
use crate::handle_type::{self, HandleType, Refusal, Unavailable};
use crate::props::AllocationProps;

/// The kind of handle that was chosen, and why not the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    handle_type: Option<HandleType>,
    refusals: Vec<Refusal>,
}

impl Choice {
    /// The first kind that works; `None` where every one was refused.
    pub fn handle_type(&self) -> Option<HandleType> {
        self.handle_type
    }

    /// The refusals of those that stood before it in the order.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The kind, for whoever cannot do without one.
    ///
    /// # Errors
    ///
    /// [`Error::Unshareable`] with every refusal.
    pub fn required(self) -> Result<HandleType> {
        self.handle_type.ok_or(Error::Unshareable {
            refusals: self.refusals,
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handle_type {
            Some(handle_type) => handle_type.fmt(f)?,
            None => f.write_str("nothing")?,
        }
        match self.refusals.as_slice() {
            [] => Ok(()),
            refusals => write!(f, " ({})", handle_type::All(refusals)),
        }
    }
}

impl Device {
    /// The first kind of handle, in this order ([`HandleType::DEFAULT_ORDER`], or one's own), by which this device's
    /// memory can be shared.
    ///
    /// Each is tried with one granule: created, exported, imported, and given back. What came of it is kept for this
    /// driver and the device's UUID until it is [forgotten](Device::forget_handle_types); a fabric that is not ready is
    /// asked again every time.
    ///
    /// ```
    /// # use cuda_vmm::{sim::Simulation, Driver, HandleType};
    /// # let driver = Driver::simulated(&Simulation::new())?; // which has no IMEX channel
    /// # let device = driver.device(0)?;
    /// let choice = device.choose_handle_type(&HandleType::DEFAULT_ORDER)?;
    /// assert_eq!(choice.handle_type(), Some(HandleType::PosixFd));
    /// assert_eq!(
    ///     choice.to_string(),
    ///     "POSIX fd (FABRIC handle: cuMemCreate answered CUDA_ERROR_NOT_PERMITTED (800), \
    ///      there is no IMEX channel in this container)"
    /// );
    /// # Ok::<_, cuda_vmm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any failure that does not mean "not here": out of memory, a lost context, a driver that has shut down. A refusal
    /// to give back what was tried is one too.
    pub fn choose_handle_type(&self, order: &[HandleType]) -> Result<Choice> {
        let uuid = self.uuid()?;
        let mut refusals = Vec::new();
        for &handle_type in order {
            match self.verdict(uuid, handle_type)? {
                Err(refusal) => refusals.push(refusal),
                Ok(()) => {
                    return Ok(Choice {
                        handle_type: Some(handle_type),
                        refusals,
                    })
                }
            }
        }
        Ok(Choice {
            handle_type: None,
            refusals,
        })
    }

    /// Makes sure that this device's memory can be shared in this way, and in no other.
    ///
    /// # Errors
    ///
    /// [`Error::Unshareable`] with the refusal, else as [`choose_handle_type`](Self::choose_handle_type).
    pub fn require_handle_type(&self, handle_type: HandleType) -> Result<()> {
        self.choose_handle_type(&[handle_type])?
            .required()
            .map(drop)
    }

    /// Forgets what was found out of this device, so that it is tried anew: an IMEX channel may have come since.
    ///
    /// # Errors
    ///
    /// A driver failure, when the UUID is asked for.
    pub fn forget_handle_types(&self) -> Result<()> {
        let uuid = self.uuid()?;
        self.driver().forget_verdicts(uuid);
        Ok(())
    }

    fn verdict(&self, uuid: [u8; 16], handle_type: HandleType) -> Result<Verdict> {
        if let Some(verdict) = self.driver().verdict(uuid, handle_type) {
            return Ok(verdict);
        }
        let verdict = self.probe(handle_type)?;
        if !matches!(
            verdict,
            Err(Refusal {
                meaning: Unavailable::NotReady,
                ..
            })
        ) {
            self.driver().note_verdict(uuid, handle_type, verdict);
        }
        Ok(verdict)
    }

    /// Creates, exports, imports and gives back a granule.
    fn probe(&self, handle_type: HandleType) -> Result<Verdict> {
        let props = AllocationProps::on(self).shareable_as(handle_type.into());
        let granule = props.granularity();
        let created = granule.and_then(|granule| props.create(granule.minimum()));
        let page = match created {
            Ok(page) => page,
            Err(error) => return refusal(handle_type, error).map(Err),
        };
        match round_trip(self.driver(), &page, handle_type) {
            Ok(Err(refusal)) => {
                let refusals = vec![refusal];
                match page.settle(Err(Error::Unshareable { refusals })) {
                    // That alone is an answer; that the page could not be given back is more.
                    Err(Error::Unshareable { .. }) => Ok(Err(refusal)),
                    settled => settled,
                }
            }
            verdict => page.settle(verdict),
        }
    }
}

fn round_trip(driver: &Driver, page: &Allocation, handle_type: HandleType) -> Result<Verdict> {
    let (calls, size) = (driver.calls(), page.size());
    let imported = match handle_type {
        HandleType::PosixFd => page
            .export_fd()
            .and_then(|fd| calls.mem_import_fd(fd.as_fd(), size)),
        HandleType::Fabric => page
            .export_fabric()
            .and_then(|export| calls.mem_import_fabric(export.handle(), size)),
    };
    match imported {
        Ok(raw) => driver.settle(Piece::Handle { raw, size }, Ok(Ok(()))),
        Err(error) => refusal(handle_type, error).map(Err),
    }
}

/// What a failure says of the kind of handle; the failure itself, if it says nothing of that.
fn refusal(handle_type: HandleType, error: Error) -> Result<Refusal> {
    let refusal = match &error {
        Error::MissingCall { call } => Some(Refusal::missing(handle_type, *call)),
        Error::Driver(failure) => Refusal::of(handle_type, failure.call, failure.code),
        _ => None,
    };
    refusal.ok_or(error)
}
