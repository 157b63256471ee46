//! A driver, and work on it that takes its time.

use std::thread;
use std::time::Duration;

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::{CUevent, CUresult, CUstream, CUstream_flags, DriverCalls};
use cuda_vmm::{
    Access, AllocationProps, Code, CurrentContext, Device, Driver, Error, Fence, Reservation,
};

use crate::support::simcuda::Simcuda;

pub struct Stage {
    pub sim: Option<Simulation>,
    /// The controls of the machine's driver, where that is the simulated one too, as a library.
    pub simcuda: Option<&'static Simcuda>,
    pub driver: Driver,
    pub device: Device,
    pub props: AllocationProps,
    /// Bytes of a mapping that takes a while to be written to.
    pub large: usize,
}

impl Stage {
    pub fn simulated() -> Stage {
        let sim = Simulation::new();
        let driver = Driver::simulated(&sim).unwrap();
        Stage::on(driver, Some(sim), None)
    }

    pub fn real() -> Stage {
        Stage::on(Driver::load().unwrap(), None, Simcuda::find())
    }

    pub fn on(driver: Driver, sim: Option<Simulation>, simcuda: Option<&'static Simcuda>) -> Stage {
        let device = driver.device(0).unwrap();
        // Held work takes its time whatever its size.
        let large = match sim.is_some() || simcuda.is_some() {
            true => 8 << 20,
            false => 16 << 30,
        };
        let props = AllocationProps::on(&device);
        Stage {
            sim,
            simcuda,
            driver,
            device,
            props,
            large,
        }
    }

    pub fn granule(&self) -> usize {
        self.props.granularity().unwrap().minimum()
    }

    pub fn calls(&self) -> &dyn DriverCalls {
        &**self.driver.calls_raw()
    }

    pub fn reserve(&self) -> Reservation {
        let builder = Reservation::builder(2 * self.large).access(&self.device, Access::ReadWrite);
        builder.reserve(&self.driver).unwrap()
    }

    /// A reservation with one large mapping at its start, and work that writes to it.
    pub fn busy(&self) -> (Reservation, cuda_vmm::MappingId, Work<'_>) {
        let mut reservation = self.reserve();
        let id = reservation.map(0, self.large, &self.props).unwrap();
        let work = Work::start(self, reservation.base(), self.large);
        (reservation, id, work)
    }
}

/// Writes to a range, on a stream of their own, that go on for a while.
pub struct Work<'s> {
    pub stage: &'s Stage,
    pub stream: CUstream,
    pub event: CUevent,
    _current: CurrentContext<'s>,
}

/// Lets a held stream run, where the driver holds streams.
pub fn release(sim: Option<&Simulation>, simcuda: Option<&Simcuda>, stream: CUstream) {
    match (sim, simcuda) {
        (Some(sim), _) => sim.release_stream(stream),
        (None, Some(simcuda)) => simcuda.release_stream(stream),
        (None, None) => false,
    };
}

pub fn ok(status: CUresult) {
    assert_eq!(Code::from(status), Code::SUCCESS);
}

impl<'s> Work<'s> {
    pub fn start(stage: &'s Stage, address: u64, size: usize) -> Self {
        let current = stage.device.make_current().unwrap();
        let calls = stage.calls();
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        unsafe {
            // The first fill loads what fills need, which would otherwise be waited for here.
            ok(calls.cuMemsetD8_v2(address, 0, 1));
            ok(calls.cuStreamCreate(&mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0));
            ok(calls.cuEventCreate(&mut event, 0));
        }
        if let Some(sim) = &stage.sim {
            assert!(sim.hold_stream(stream));
        }
        if let Some(simcuda) = stage.simcuda {
            assert!(simcuda.hold_stream(stream));
        }
        for round in 0..10 {
            unsafe { ok(calls.cuMemsetD8Async(address, round, size, stream)) };
        }
        unsafe { ok(calls.cuEventRecord(event, stream)) };
        Work {
            stage,
            stream,
            event,
            _current: current,
        }
    }

    pub fn is_running(&self) -> bool {
        unsafe { self.stage.calls().cuStreamQuery(self.stream) == CUresult::CUDA_ERROR_NOT_READY }
    }

    /// Lets held work end in a while, as the device's work does by itself.
    pub fn end_soon(&self) {
        let (sim, simcuda) = (self.stage.sim.clone(), self.stage.simcuda);
        let stream = self.stream as usize;
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            release(sim.as_ref(), simcuda, stream as CUstream);
        });
    }

    pub fn fence(&self) -> Fence<'static> {
        unsafe { Fence::stream(&self.stage.device, self.stream) }
    }

    /// The work ended well: no ILLEGAL_ADDRESS.
    pub fn ended_well(self) {
        unsafe { ok(self.stage.calls().cuStreamSynchronize(self.stream)) };
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        release(self.stage.sim.as_ref(), self.stage.simcuda, self.stream);
        let calls = self.stage.calls();
        unsafe {
            let _ = calls.cuStreamSynchronize(self.stream);
            let _ = calls.cuEventDestroy_v2(self.event);
            let _ = calls.cuStreamDestroy_v2(self.stream);
        }
    }
}

/// Why a fence of these tests fails.
#[derive(Debug, thiserror::Error)]
#[error("the fence is broken")]
pub struct Broken;

pub fn broken() -> Fence<'static> {
    Fence::closure(|_| Err(Broken))
}

pub fn is_broken(error: &Error) -> bool {
    matches!(error, Error::WaitFailed(cause) if cause.is::<Broken>())
        && error.to_string().ends_with(&Broken.to_string())
}
