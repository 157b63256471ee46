//! What to wait for before memory is taken from under work that uses it.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::sys::{CUevent, CUstream};

/// The shortest and the longest pause between two looks at work that has a deadline.
const PAUSE: (Duration, Duration) = (Duration::from_micros(5), Duration::from_millis(1));

/// Something that has to be done before memory is unmapped: the work of a stream, an event, or whatever a closure waits
/// for.
///
/// The driver unmaps at once, whatever still runs. Work that then touches the range fails with ILLEGAL_ADDRESS, and its
/// context is lost for copies and kernels. The crate does not synchronise behind anybody's back, so the caller, who
/// knows what uses the memory, says what to wait for:
///
/// ```
/// # use cuda_vmm::{sim::Simulation, Access, AllocationProps, Driver, Fence, Reservation};
/// # use std::time::Duration;
/// # let driver = Driver::simulated(&Simulation::new())?;
/// # let device = driver.device(0)?;
/// # let props = AllocationProps::on(&device);
/// # let mut kv = Reservation::builder(64 << 20).access(&device, Access::ReadWrite).reserve(&driver)?;
/// let block = kv.map(0, 2 << 20, &props)?;
/// // ... work on the block is enqueued on the device's default stream ...
/// kv.unmap_after(block, Fence::default_stream(&device).within(Duration::from_secs(5)))?;
/// # kv.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # The calls it makes
///
/// | fence | without a deadline | with one |
/// |---|---|---|
/// | stream | `cuStreamSynchronize` | `cuStreamQuery`, again and again |
/// | event | `cuEventSynchronize` | `cuEventQuery`, again and again |
/// | closure | none | none |
///
/// The device's primary context is made current around them.
///
/// A test makes a fence fail by a fault on that call. Work that is never done is a query that never says so:
///
/// ```
/// # use cuda_vmm::{sim::Simulation, Driver, Error, Fence, Reservation};
/// # use std::time::Duration;
/// use cuda_vmm::sim::Fault;
/// use cuda_vmm::sys::{CUresult, Call};
///
/// # let sim = Simulation::new();
/// # let driver = Driver::simulated(&sim)?;
/// # let device = driver.device(0)?;
/// # let kv = Reservation::builder(2 << 20).reserve(&driver)?;
/// sim.inject(Fault::on(Call::cuStreamQuery).code(CUresult::CUDA_ERROR_NOT_READY).forever())?;
/// let fence = Fence::default_stream(&device).within(Duration::from_millis(1));
/// let unclosed = kv.close_after(fence).unwrap_err();
/// assert!(matches!(unclosed.error, Error::DeadlinePassed { .. }));
/// # unclosed.reservation.into_inner().close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a fence waits for nothing before it is given to an operation"]
pub struct Fence<'a> {
    kind: Kind<'a>,
    deadline: Option<Instant>,
}

enum Kind<'a> {
    Stream { device: Device, stream: Raw },
    Event { device: Device, event: Raw },
    Closure(Box<Closure<'a>>),
}

type Closure<'a> =
    dyn FnOnce(Option<Instant>) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + 'a;

/// The address of a stream or an event. The driver lets every thread use it; the pointer is never followed here.
#[derive(Clone, Copy)]
struct Raw(usize);

impl<'a> Fence<'a> {
    /// All work enqueued so far on the default stream of the device's primary context.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn default_stream(device: &Device) -> Fence<'static> {
        Fence::new(Kind::Stream {
            device: device.clone(),
            stream: Raw(0),
        })
    }

    /// All work enqueued so far on a stream of the device.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the driver of `device` that is not destroyed before the fence was waited for or dropped.
    #[doc(alias = "cuStreamSynchronize")]
    #[doc(alias = "cuStreamQuery")]
    #[allow(unsafe_code)]
    pub unsafe fn stream(device: &Device, stream: CUstream) -> Fence<'static> {
        Fence::new(Kind::Stream {
            device: device.clone(),
            stream: Raw(stream as usize),
        })
    }

    /// An event of the device that was recorded behind the work.
    ///
    /// # Safety
    ///
    /// `event` is an event of the driver of `device` that is not destroyed before the fence was waited for or dropped.
    #[doc(alias = "cuEventSynchronize")]
    #[doc(alias = "cuEventQuery")]
    #[allow(unsafe_code)]
    pub unsafe fn event(device: &Device, event: CUevent) -> Fence<'static> {
        Fence::new(Kind::Event {
            device: device.clone(),
            event: Raw(event as usize),
        })
    }

    /// Whatever this closure waits for. It is given the deadline, if there is one, and has to keep it itself. A panic
    /// in it is a failed wait.
    pub fn closure<F, E>(wait: F) -> Fence<'a>
    where
        F: FnOnce(Option<Instant>) -> Result<(), E> + Send + 'a,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Fence::new(Kind::Closure(Box::new(|deadline| {
            wait(deadline).map_err(Into::into)
        })))
    }

    fn new(kind: Kind<'a>) -> Self {
        Fence {
            kind,
            deadline: None,
        }
    }

    /// Give up when the work is not done by then: everything stays mapped and owned.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Give up when the work is not done this long from now.
    pub fn within(self, time: Duration) -> Self {
        // A time too long to be added is no deadline.
        match Instant::now().checked_add(time) {
            Some(deadline) => self.until(deadline),
            None => self,
        }
    }

    /// Waits. No lock is held meanwhile.
    pub(crate) fn wait(self) -> Result<()> {
        let Fence { kind, deadline } = self;
        let who = match kind {
            Kind::Closure(_) => "the closure",
            Kind::Stream { .. } | Kind::Event { .. } => "the driver",
        };
        // A panic is a failed wait like any other: unwinding from here would drop, and so unmap, what must stay mapped.
        // A driver may panic too, if it is one of the caller's own making.
        catch_unwind(AssertUnwindSafe(|| kind.wait(deadline))).unwrap_or_else(|panic| {
            let why = format!("{who} panicked: {}", message(&*panic));
            // What was thrown may panic when it is dropped, so it never is.
            mem::forget(panic);
            Err(Error::WaitFailed(why.into()))
        })
    }
}

impl Kind<'_> {
    fn wait(self, deadline: Option<Instant>) -> Result<()> {
        match self {
            Kind::Closure(wait) => wait(deadline).map_err(Error::WaitFailed),
            Kind::Stream { device, stream } => {
                device
                    .driver()
                    .with_context(device.raw(), |calls| match deadline {
                        None => calls.stream_synchronize(stream.0 as CUstream),
                        Some(deadline) => {
                            poll(deadline, || calls.stream_is_done(stream.0 as CUstream))
                        }
                    })
            }
            Kind::Event { device, event } => {
                device
                    .driver()
                    .with_context(device.raw(), |calls| match deadline {
                        None => calls.event_synchronize(event.0 as CUevent),
                        Some(deadline) => {
                            poll(deadline, || calls.event_is_done(event.0 as CUevent))
                        }
                    })
            }
        }
    }
}

/// Looks again and again, in pauses that double, until the work is done or the deadline has passed.
pub(crate) fn poll(deadline: Instant, is_done: impl Fn() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    let mut pause = PAUSE.0;
    while !is_done()? {
        let now = Instant::now();
        if now >= deadline {
            return Err(Error::DeadlinePassed {
                waited: now - start,
            });
        }
        thread::sleep(pause.min(deadline - now));
        pause = (pause * 2).min(PAUSE.1);
    }
    Ok(())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl fmt::Debug for Fence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Stream { .. } => "stream",
            Kind::Event { .. } => "event",
            Kind::Closure(_) => "closure",
        };
        f.debug_struct("Fence")
            .field("kind", &kind)
            .field("deadline", &self.deadline)
            .finish()
    }
}
