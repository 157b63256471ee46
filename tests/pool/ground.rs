//! The drivers that a case runs on, and what most cases begin with.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{
    Consumer, Counters, Payload, Pool, PoolBuilder, PoolError, Published, Publisher, Source,
};
use cuda_vmm::sim::{LogMode, SimDevice, Simulation, SimulationBuilder, Snapshot};
use cuda_vmm::sys::Call;
use cuda_vmm::wire::Name;
use cuda_vmm::{Access, AllocationProps, Device, Driver, Reservation};

/// Where producer and consumers run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// On a simulated driver each.
    Apart,
    /// On one simulated driver.
    Together,
    /// On the machine's driver.
    Gpu,
}

/// A driver, its devices, and the simulation behind it.
#[derive(Clone)]
pub struct Side {
    pub driver: Driver,
    pub devices: Vec<Device>,
    simulation: Option<Simulation>,
}

impl Side {
    pub fn simulated(sim: &Simulation) -> Side {
        Side::of(Driver::simulated(sim).unwrap(), Some(sim.clone()))
    }

    fn of(driver: Driver, simulation: Option<Simulation>) -> Side {
        let devices: Vec<Device> = driver.devices().collect::<Result<_, _>>().unwrap();
        Side {
            devices: devices.into_iter().take(2).collect(),
            driver,
            simulation,
        }
    }

    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    pub fn sim(&self) -> &Simulation {
        self.simulation.as_ref().expect("a simulated driver")
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.simulation.as_ref().map(Simulation::snapshot)
    }

    /// How many calls the simulated driver has seen.
    pub fn calls(&self) -> u64 {
        self.simulation.as_ref().map_or(0, Simulation::calls)
    }

    /// The calls that were made since the log was cleared.
    pub fn log(&self) -> Vec<Call> {
        let records = self.sim().log();
        records.iter().map(|record| record.call).collect()
    }

    /// Memory of a device that the device itself may read and write.
    pub fn memory_on(&self, device: &Device, size: usize) -> Reservation {
        let mut memory = Reservation::builder(size)
            .access(device, Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap();
        memory.map(0, size, &AllocationProps::on(device)).unwrap();
        memory
    }

    pub fn memory(&self, size: usize) -> Reservation {
        self.memory_on(self.device(), size)
    }
}

pub struct Ground {
    pub producer: Side,
    pub consumer: Side,
    pub name: Name,
    /// The granularity.
    pub g: usize,
}

/// Two small devices that reach each other.
pub fn simulation() -> SimulationBuilder {
    let small = || SimDevice::new().memory(256 << 20);
    Simulation::builder()
        .device(small())
        .device(small())
        .log(LogMode::All)
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A time that has passed.
pub fn now() -> Instant {
    Instant::now()
}

impl Ground {
    pub fn new(setting: Setting) -> Ground {
        match setting {
            Setting::Apart => Ground::with(simulation(), simulation()),
            Setting::Together => {
                let side = Side::simulated(&simulation().build().unwrap());
                Ground::of(side.clone(), side)
            }
            Setting::Gpu => {
                let side = Side::of(Driver::load().unwrap(), None);
                Ground::of(side.clone(), side)
            }
        }
    }

    /// A simulated driver on each side, configured like this.
    pub fn with(producer: SimulationBuilder, consumer: SimulationBuilder) -> Ground {
        Ground::of(
            Side::simulated(&producer.build().unwrap()),
            Side::simulated(&consumer.build().unwrap()),
        )
    }

    fn of(producer: Side, consumer: Side) -> Ground {
        let props = AllocationProps::on(producer.device());
        Ground {
            g: props.granularity().unwrap().recommended(),
            name: fresh_name(),
            producer,
            consumer,
        }
    }

    pub fn builder(&self, granules: usize, consumers: usize) -> PoolBuilder {
        Pool::builder(self.producer.device(), granules * self.g, consumers)
    }

    pub fn serve(&self, granules: usize, consumers: usize) -> Pool {
        self.builder(granules, consumers).serve(&self.name).unwrap()
    }

    pub fn attach(&self, rank: usize) -> Consumer {
        Consumer::attach(self.consumer.device(), &self.name, rank).unwrap()
    }

    /// A pool of so many granules, and all its consumers.
    pub fn pool(&self, granules: usize, consumers: usize) -> (Pool, Vec<Consumer>) {
        let pool = self.serve(granules, consumers);
        let consumers = (0..consumers).map(|rank| self.attach(rank)).collect();
        (pool, consumers)
    }

    /// How many calls both simulated drivers have seen.
    pub fn calls(&self) -> u64 {
        self.producer.calls() + self.consumer.calls()
    }

    /// What the drivers of both sides have.
    pub fn snapshots(&self) -> (Option<Snapshot>, Option<Snapshot>) {
        (self.producer.snapshot(), self.consumer.snapshot())
    }

    pub fn leaves_nothing(self) -> Result<(), libtest_mimic::Failed> {
        for side in [self.producer, self.consumer] {
            let Side {
                driver,
                devices,
                simulation,
            } = side;
            if driver.quarantined() != 0 {
                return Err(format!("{} pieces are quarantined", driver.quarantined()).into());
            }
            drop((driver, devices));
            let Some(sim) = simulation else { continue };
            let left = sim.snapshot();
            // The other side of one simulation is still there.
            if left.holds_no_memory() && left.streams == 0 && left.events == 0 {
                let misuses = sim.misuses();
                if misuses.is_empty() {
                    continue;
                }
            }
            return Err(format!("left behind:\n{left}\n{:?}", sim.misuses()).into());
        }
        Ok(())
    }
}

/// A name that no other case uses.
pub fn fresh_name() -> Name {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Name::new(format!("pool test {} {number}", std::process::id()))
}

/// The error is this one, with all its values.
#[track_caller]
pub fn fails<T>(result: Result<T, PoolError>, expected: PoolError) {
    match result {
        Ok(_) => panic!("it went through instead of {expected:?}"),
        Err(error) => assert_eq!(format!("{error:?}"), format!("{expected:?}")),
    }
}

/// The counters without what depends on the time.
pub fn counters(pool: &Pool) -> Counters {
    let mut counters = pool.counters();
    for consumer in &mut counters.consumers {
        consumer.oldest = None;
    }
    counters
}

/// What each consumer holds.
pub fn held(pool: &Pool) -> Vec<usize> {
    let counters = pool.counters();
    counters.consumers.iter().map(|one| one.held).collect()
}

/// Everything is free, in one piece, and nobody holds anything.
#[track_caller]
pub fn all_free(pool: &Pool) {
    let counters = pool.counters();
    let state = (counters.busy, counters.largest_free, counters.slices);
    assert_eq!(state, (0, pool.size(), 0), "{counters:?}");
    assert!(held(pool).iter().all(|held| *held == 0), "{counters:?}");
}

/// Waits for what another thread does soon.
#[track_caller]
pub fn until(mut what: impl FnMut() -> bool) {
    let deadline = soon();
    while !what() {
        assert!(Instant::now() < deadline, "it did not happen");
        thread::sleep(Duration::from_micros(200));
    }
}

pub fn publish(publisher: &Publisher, bytes: &[u8]) -> Published {
    publisher
        .publish(&Payload::bytes(Source::host(bytes)))
        .unwrap()
}

/// Opens, reads and acknowledges.
pub fn read(consumer: &Consumer, ticket: &[u8]) -> Vec<u8> {
    let lease = consumer.open(ticket).unwrap();
    let mut bytes = vec![0; lease.parts()[0].size()];
    lease.read(0, &mut bytes).unwrap().finish().unwrap();
    bytes
}

/// Bytes that tell one payload from another.
pub fn pattern(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
