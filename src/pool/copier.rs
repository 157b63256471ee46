//! Copies into the pool's memory, and what is done when waiting for them fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::gather::{pieces, Gather};
use super::payload::{Kind, Transfer};
use super::slots::SlotRef;
use crate::device::Device;
use crate::driver::{Calls, Event, Stream};
use crate::error::{Error, Result};
use crate::fence::poll;
use crate::sync::{lock, Mutex};
use crate::sys::CUstream;

/// What the copies of a publish come after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// All work enqueued so far on the default stream of the device's primary context, and on streams that it waits for.
    DefaultStream,
    /// Nothing: the sources are ready.
    Ready,
    /// All work enqueued so far on a stream of the caller's.
    Stream(usize),
}

/// Copies that were enqueued: they are done when the event is passed.
#[derive(Debug)]
pub(super) struct Flight {
    event: Event,
    /// Where the event could not be recorded, only the whole context can say that the copies are done.
    recorded: bool,
    /// Waits for the event: of no use to others before that is passed.
    notifier: Option<Stream>,
}

/// Copies that failed, or could not be waited for.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) error: Error,
    /// What may still run.
    pub(super) under_way: Option<Flight>,
}

/// Slices that copies may still write to.
#[derive(Debug)]
struct Unsettled {
    flight: Flight,
    slices: Vec<SlotRef>,
}

/// The producer's stream and events.
pub(super) struct Copier {
    device: Device,
    /// For copies whose sources are ready. Made by the first of them.
    stream: Mutex<Option<Stream>>,
    gather: Gather,
    /// Events that nothing waits for.
    events: Mutex<Vec<Event>>,
    /// Streams for notifications, one at a time each.
    notifiers: Mutex<Vec<Stream>>,
    unsettled: Mutex<Vec<Unsettled>>,
    /// The length of that list, to be read without its lock.
    unsettled_slices: AtomicUsize,
}

/// How far a run of copies came.
#[derive(Default)]
struct Progress {
    started: bool,
    recorded: bool,
    waited: bool,
}

impl Copier {
    pub(super) fn new(device: &Device) -> Result<Copier> {
        // From here on the context stays, and what is made in it.
        device.driver().with_context(device.raw(), |_| Ok(()))?;
        Ok(Copier {
            stream: Mutex::default(),
            device: device.clone(),
            gather: Gather::default(),
            events: Mutex::default(),
            notifiers: Mutex::default(),
            unsettled: Mutex::default(),
            unsettled_slices: AtomicUsize::new(0),
        })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    fn in_context<T>(&self, work: impl FnOnce(&Calls) -> Result<T>) -> Result<T> {
        self.device.driver().with_context(self.device.raw(), work)
    }

    /// Enqueues copies behind what they come after.
    pub(super) fn start(
        &self,
        order: Order,
        transfers: &[Transfer<'_>],
    ) -> Result<Flight, Box<Stopped>> {
        let event = self.event()?;
        self.run(event, order, transfers, false)?;
        Ok(Flight {
            event,
            recorded: true,
            notifier: None,
        })
    }

    /// The same, and waits for them.
    pub(super) fn copy(
        &self,
        order: Order,
        transfers: &[Transfer<'_>],
    ) -> Result<(), Box<Stopped>> {
        let event = self.event()?;
        self.run(event, order, transfers, true)?;
        self.put_back(event);
        Ok(())
    }

    fn run(
        &self,
        event: Event,
        order: Order,
        transfers: &[Transfer<'_>],
        wait: bool,
    ) -> Result<(), Box<Stopped>> {
        let stream = match order {
            Order::DefaultStream => std::ptr::null_mut(),
            Order::Ready => match self.own_stream() {
                Ok(stream) => stream.raw(),
                Err(error) => {
                    self.put_back(event);
                    return Err(Stopped::cleanly(error));
                }
            },
            Order::Stream(stream) => stream as CUstream,
        };
        let mut progress = Progress::default();
        let went = self.in_context(|calls| {
            self.enqueue(calls, transfers, stream, &mut progress)?;
            calls.event_record(event, stream)?;
            progress.recorded = true;
            if wait {
                calls.event_wait(event)?;
                progress.waited = true;
            }
            Ok(())
        });
        let Err(error) = went else {
            return Ok(());
        };
        if !progress.started || progress.waited {
            self.put_back(event);
            return Err(Stopped::cleanly(error));
        }
        // What was enqueued before the failure is waited for, so that all of it can be taken back.
        let settled = self.in_context(|calls| {
            if !progress.recorded {
                calls.event_record(event, stream)?;
                progress.recorded = true;
            }
            calls.event_wait(event)
        });
        if settled.as_ref().map_or_else(is_lost, |()| true) {
            self.put_back(event);
            return Err(Stopped::cleanly(error));
        }
        Err(Box::new(Stopped {
            error,
            under_way: Some(Flight {
                event,
                recorded: progress.recorded,
                notifier: None,
            }),
        }))
    }

    /// Enqueues copies from the device, the small ones together; those from the host are done when this returns.
    fn enqueue(
        &self,
        calls: &Calls,
        transfers: &[Transfer<'_>],
        stream: CUstream,
        progress: &mut Progress,
    ) -> Result<()> {
        let pieces = pieces(transfers, &self.device);
        let launched = self.gather.launch(calls, &pieces, stream);
        progress.started = launched > 0;
        let launched = pieces[..launched].iter().map(|piece| piece.index);
        let mut launched = launched.peekable();
        let mut from_host = false;
        for (index, transfer) in transfers.iter().enumerate() {
            if launched.next_if_eq(&index).is_some() {
                continue;
            }
            let to = transfer.to;
            match transfer.source.0 {
                Kind::Host(bytes) => {
                    calls.copy_to_device(to, bytes)?;
                    from_host = true;
                }
                Kind::View(view) => calls.enqueue_copy(to, view.address(), view.size(), stream)?,
                Kind::Device { address, size } => calls.enqueue_copy(to, address, size, stream)?,
                Kind::Rows {
                    address,
                    pitch,
                    width,
                    rows,
                } => calls.enqueue_copy_rows(to, width, address, pitch, width, rows, stream)?,
            }
            progress.started = true;
        }
        match from_host {
            // The driver may return before the device has the bytes.
            true => calls.default_stream_synchronize(),
            false => Ok(()),
        }
    }

    /// Whether the copies are done.
    pub(super) fn is_done(&self, flight: &Flight) -> Result<bool> {
        self.in_context(|calls| calls.event_is_passed(flight.event))
    }

    /// Waits for the copies, until the deadline at the latest.
    pub(super) fn wait(&self, flight: &Flight, deadline: Option<Instant>) -> Result<()> {
        self.in_context(|calls| match (flight.recorded, deadline) {
            (false, _) => calls.context_synchronize(),
            (true, None) => calls.event_wait(flight.event),
            (true, Some(deadline)) => poll(deadline, || calls.event_is_passed(flight.event)),
        })
    }

    /// Copies that are done need their event and their notifier no longer.
    pub(super) fn finish(&self, flight: Flight) {
        self.put_back(flight.event);
        lock(&self.notifiers).extend(flight.notifier);
    }

    /// Calls a host function when the copies are done.
    pub(super) fn notify(
        &self,
        flight: &mut Flight,
        notify: impl FnOnce(&Calls, Stream) -> Result<()>,
    ) -> Result<()> {
        let (event, notifier) = (flight.event, &mut flight.notifier);
        if notifier.is_none() {
            *notifier = lock(&self.notifiers).pop();
        }
        self.in_context(|calls| {
            let own = match *notifier {
                Some(own) => own,
                None => *notifier.insert(calls.stream_create()?),
            };
            calls.stream_wait_event(own.raw(), event)?;
            notify(calls, own)
        })
    }

    /// Keeps slices that copies may still write to, until that can be ruled out.
    pub(super) fn quarantine(&self, flight: Flight, slices: Vec<SlotRef>) {
        self.unsettled_slices
            .fetch_add(slices.len(), Ordering::Relaxed);
        lock(&self.unsettled).push(Unsettled { flight, slices });
    }

    /// How many slices are kept so.
    pub(super) fn quarantined(&self) -> usize {
        self.unsettled_slices.load(Ordering::Relaxed)
    }

    /// Asks again for copies that could not be waited for, and calls with each slice that can be used again. Waits until
    /// the deadline if there is one. The last failure, while slices are still kept.
    pub(super) fn retry(
        &self,
        deadline: Option<Instant>,
        mut free: impl FnMut(SlotRef),
    ) -> Result<()> {
        if self.quarantined() == 0 {
            return Ok(());
        }
        let mut failure = Ok(());
        let unsettled = std::mem::take(&mut *lock(&self.unsettled));
        for one in unsettled {
            let done = match (one.flight.recorded, deadline) {
                (_, Some(_)) => self.wait(&one.flight, deadline).map(|()| true),
                (true, None) => self.is_done(&one.flight),
                // Waiting for the whole context is left to the end of the pool.
                (false, None) => Ok(false),
            };
            let over = match &done {
                Ok(done) => *done,
                Err(error) => is_lost(error),
            };
            match done {
                _ if over => {
                    self.unsettled_slices
                        .fetch_sub(one.slices.len(), Ordering::Relaxed);
                    one.slices.into_iter().for_each(&mut free);
                    self.finish(one.flight);
                }
                other => {
                    lock(&self.unsettled).push(one);
                    failure = other.map(drop);
                }
            }
        }
        failure
    }

    /// Takes every lock that there is, and lets go of it.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(super) fn go_through_locks(&self) {
        drop(lock(&self.stream));
        drop(lock(&self.events));
        drop(lock(&self.notifiers));
        drop(lock(&self.unsettled));
        self.gather.go_through_locks();
    }

    /// Destroys the streams and events, and unloads the kernel. What the driver refuses is tried again by the next call;
    /// what is of a lost context goes with it.
    pub(super) fn close(&self) -> Result<()> {
        let mut events = std::mem::take(&mut *lock(&self.events));
        let mut streams = std::mem::take(&mut *lock(&self.notifiers));
        streams.extend(lock(&self.stream).take());
        let mut modules = self.gather.take_modules();
        if events.is_empty() && streams.is_empty() && modules.is_empty() {
            return Ok(());
        }
        let mut failures = Vec::new();
        let went = self.in_context(|calls| {
            let mut refused = |went: Result<()>| match went {
                Err(error) if !is_lost(&error) => {
                    failures.push(error);
                    true
                }
                _ => false,
            };
            events.retain(|event| refused(calls.event_destroy(*event)));
            streams.retain(|stream| refused(calls.stream_destroy(*stream)));
            modules.retain(|module| refused(calls.module_unload(*module)));
            Ok(())
        });
        match went {
            Err(error) if is_lost(&error) => return Ok(()),
            went => failures.extend(went.err()),
        }
        lock(&self.events).extend(events);
        lock(&self.notifiers).extend(streams);
        self.gather.keep_modules(modules);
        Error::first_of(failures)
    }

    fn event(&self) -> Result<Event, Box<Stopped>> {
        let spare = lock(&self.events).pop();
        if let Some(event) = spare {
            return Ok(event);
        }
        let mut made = None;
        let went = self.in_context(|calls| {
            made = Some(calls.event_create()?);
            Ok(())
        });
        match (went, made) {
            (Ok(()), Some(event)) => Ok(event),
            (Err(error), made) => {
                // Leaving the context failed: the event is there.
                made.into_iter().for_each(|event| self.put_back(event));
                Err(Stopped::cleanly(error))
            }
            (Ok(()), None) => unreachable!("it was made"),
        }
    }

    /// The pool's own stream.
    fn own_stream(&self) -> Result<Stream> {
        let known = *lock(&self.stream);
        if let Some(stream) = known {
            return Ok(stream);
        }
        let mut made = None;
        let went = self.in_context(|calls| {
            made = Some(calls.stream_create()?);
            Ok(())
        });
        if let Some(stream) = made {
            // It is there, even where leaving the context failed. Another thread may have been faster: the stream too
            // many serves notifications.
            let mut own = lock(&self.stream);
            if own.is_some() {
                lock(&self.notifiers).push(stream);
            }
            own.get_or_insert(stream);
        }
        went?;
        match *lock(&self.stream) {
            Some(stream) => Ok(stream),
            None => unreachable!("it was made"),
        }
    }

    fn put_back(&self, event: Event) {
        lock(&self.events).push(event);
    }
}

impl Stopped {
    /// Nothing is under way.
    fn cleanly(error: Error) -> Box<Stopped> {
        Box::new(Stopped {
            error,
            under_way: None,
        })
    }
}

/// Whether the context is lost, or the driver gone: its work is over, and writes no more.
fn is_lost(error: &Error) -> bool {
    error.is_context_lost() || error.driver_is_gone()
}
