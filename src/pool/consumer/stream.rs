//! The consumer's own streams, and its control words as its devices see them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::device::Device;
use crate::driver::{Calls, Stream};
use crate::error::{Error, Result};
use crate::pool::control::ControlMemory;
use crate::sync::{lock, Mutex};
use crate::sys::CUstream;

/// One stream for each device that copies, and what they write to.
pub(super) struct Streams {
    device: Device,
    lane: Arc<ControlMemory>,
    open: Mutex<Vec<(Device, Stream)>>,
    /// The device in whose context the control words are registered, and their address, once it is known.
    registered: Mutex<Option<(Device, Option<u64>)>>,
    /// Some device cannot write words in stream order.
    no_memory_operations: AtomicBool,
    /// Devices that have work of this consumer, on streams of its own or of the caller's.
    used: Mutex<Vec<Device>>,
}

impl Streams {
    pub(super) fn new(device: &Device, lane: Arc<ControlMemory>) -> Streams {
        Streams {
            device: device.clone(),
            lane,
            open: Mutex::default(),
            registered: Mutex::default(),
            no_memory_operations: AtomicBool::new(false),
            used: Mutex::default(),
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn lane(&self) -> &Arc<ControlMemory> {
        &self.lane
    }

    /// The consumer's stream on a device. It waits for no other stream.
    pub(super) fn of(&self, device: &Device) -> Result<usize> {
        let known = self.known(device);
        if let Some(stream) = known {
            return Ok(stream.raw() as usize);
        }
        // From here on the context stays, and what is made in it.
        let driver = device.driver();
        driver.with_context(device.raw(), |_| Ok(()))?;
        let mut made = None;
        let went = driver.with_context(device.raw(), |calls| {
            made = Some(calls.stream_create()?);
            Ok(())
        });
        // It is there, even where leaving the context failed. Another thread may have been faster: the stream too many
        // goes with the others.
        if let Some(stream) = made {
            lock(&self.open).push((device.clone(), stream));
        }
        went?;
        match self.known(device) {
            Some(stream) => Ok(stream.raw() as usize),
            None => unreachable!("it was made"),
        }
    }

    fn known(&self, device: &Device) -> Option<Stream> {
        let open = lock(&self.open);
        let of_device = |(of, _): &&(Device, Stream)| of.ordinal() == device.ordinal();
        open.iter().find(of_device).map(|(_, stream)| *stream)
    }

    /// Notes that a device has work that writes control words.
    pub(super) fn note(&self, device: &Device) {
        let mut used = lock(&self.used);
        if used.iter().all(|of| of.ordinal() != device.ordinal()) {
            used.push(device.clone());
        }
    }

    pub(super) fn writes_words(&self) -> bool {
        !self.no_memory_operations.load(Ordering::Relaxed)
    }

    pub(super) fn writes_no_words(&self) {
        self.no_memory_operations.store(true, Ordering::Relaxed);
    }

    /// The address of the control words for the devices. They are registered by the first call, in the context of the
    /// device, which is current.
    pub(super) fn words(&self, calls: &Calls, device: &Device) -> Result<u64> {
        let memory = self.lane.address();
        let registered = lock(&self.registered).clone();
        match registered {
            Some((_, Some(address))) => return Ok(address),
            Some((_, None)) => {}
            None => {
                calls.register_shared(memory, self.lane.size())?;
                *lock(&self.registered) = Some((device.clone(), None));
            }
        }
        // Where this fails they stay registered: the next call asks again.
        let address = calls.host_device_pointer(memory)?;
        let mut registered = lock(&self.registered);
        registered.get_or_insert((device.clone(), None)).1 = Some(address);
        Ok(address)
    }

    /// Waits for all work, and gives back what the driver has. After it the control words and the pool's memory are used
    /// by no device. After a failure it can be called again.
    pub(super) fn end(&self) -> Result<()> {
        let mut devices = lock(&self.used).clone();
        let mut open = lock(&self.open).clone();
        for (device, _) in &open {
            if devices.iter().all(|of| of.ordinal() != device.ordinal()) {
                devices.push(device.clone());
            }
        }
        let mut failures = Vec::new();
        for device in devices {
            failures.extend(failure(&device, Calls::context_synchronize));
        }
        if !failures.is_empty() {
            return Error::first_of(failures);
        }
        lock(&self.used).clear();
        open.retain(|(device, stream)| {
            let failure = failure(device, |calls| calls.stream_destroy(*stream));
            let stays = failure.is_some();
            failures.extend(failure);
            stays
        });
        *lock(&self.open) = open;
        let registered = lock(&self.registered).take();
        if let Some((device, address)) = registered {
            let memory = self.lane.address();
            if let Some(error) = failure(&device, |calls| calls.unregister_shared(memory)) {
                *lock(&self.registered) = Some((device, address));
                failures.push(error);
            }
        }
        Error::first_of(failures)
    }

    /// Takes every lock that there is, and lets go of it.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(super) fn go_through_locks(&self) {
        drop(lock(&self.open));
        drop(lock(&self.registered));
        drop(lock(&self.used));
    }

    /// Whether all that is left are streams, which go with their context.
    pub(super) fn is_quiet(&self) -> bool {
        lock(&self.used).is_empty() && lock(&self.registered).is_none()
    }
}

/// Why a call was not made in the context of a device. What is of a lost context is over, and goes with it.
fn failure(device: &Device, call: impl FnOnce(&Calls) -> Result<()>) -> Option<Error> {
    let mut done = false;
    let went = device.driver().with_context(device.raw(), |calls| {
        call(calls)?;
        done = true;
        Ok(())
    });
    // Leaving the context may fail after the call went through: then it must not be made again.
    let failed = went.err().filter(|_| !done);
    failed.filter(|error| !error.is_context_lost() && !error.driver_is_gone())
}

/// Waits for a stream of a device.
pub(super) fn wait_for(
    device: &Device,
    stream: usize,
    deadline: Option<Instant>,
) -> crate::Result<()> {
    let stream = stream as CUstream;
    device
        .driver()
        .with_context(device.raw(), |calls| match deadline {
            None => calls.stream_synchronize(stream),
            Some(deadline) => crate::fence::poll(deadline, || calls.stream_is_done(stream)),
        })
}
