//! Several threads, each with reservations of its own, over one driver.

use std::sync::Barrier;
use std::thread;

use cuda_vmm::sim::Simulation;
use cuda_vmm::{Access, AllocationProps, Device, Driver, Reservation};

use crate::support;

pub const THREADS: usize = 4;

/// How often each thread does what it does.
pub const ROUNDS: usize = 60;

/// A driver to work on.
pub struct Site {
    pub name: &'static str,
    pub driver: Driver,
    /// What it knows, if it is a simulated one.
    pub sim: Option<Simulation>,
}

impl Site {
    /// The simulated driver with real memory, the one with books alone, and the machine's own.
    pub fn all() -> Vec<Site> {
        let mut sites = Vec::new();
        for (name, builder) in [
            ("sim", Simulation::builder()),
            ("ledger", Simulation::builder().ledger_only()),
        ] {
            let sim = builder.build().unwrap();
            sites.push(Site {
                name,
                driver: Driver::simulated(&sim).unwrap(),
                sim: Some(sim),
            });
        }
        match support::devices() {
            Ok(_) => sites.push(Site {
                name: "gpu",
                driver: Driver::load().unwrap(),
                sim: None,
            }),
            Err(why) if support::gpu_required() => panic!("no GPU: {why}"),
            Err(why) => println!("SKIPPED: the machine's own driver: {why}"),
        }
        sites
    }

    pub fn device(&self) -> Device {
        self.driver.device(0).unwrap()
    }

    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(&self.device())
    }

    pub fn granule(&self) -> usize {
        self.props().granularity().unwrap().minimum()
    }

    pub fn reserve(&self, granules: usize) -> Reservation {
        Reservation::builder(granules * self.granule())
            .access(&self.device(), Access::ReadWrite)
            .reserve(&self.driver)
            .unwrap()
    }

    /// Everything was given back.
    pub fn leaves_nothing(self) {
        drop(self.driver);
        if let Some(sim) = self.sim {
            assert!(
                sim.snapshot().is_empty(),
                "{}: {}",
                self.name,
                sim.snapshot()
            );
            assert_eq!(sim.misuses(), [], "{}", self.name);
        }
    }
}

/// Runs it on every thread at once, with the thread's number.
pub fn at_once(run: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (run, start) = (&run, &start);
            scope.spawn(move || {
                start.wait();
                run(number);
            });
        }
    });
}

/// The same numbers in every run, others for every thread.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// The first and the last bytes of a granule are all this one.
pub fn assert_filled(kv: &Reservation, start: usize, size: usize, value: u8) {
    for at in [start, start + size - 64] {
        let mut bytes = [0; 64];
        kv.read(at, &mut bytes).unwrap();
        assert_eq!(bytes, [value; 64], "at {at}");
    }
}

#[test]
fn each_with_a_reservation_of_its_own() {
    const SLOTS: usize = 8;
    for site in Site::all() {
        let (g, props) = (site.granule(), site.props());
        at_once(|thread| {
            let mut dice = Dice(thread as u64);
            let mut kv = site.reserve(SLOTS);
            let mut filled = [None; SLOTS];
            for round in 0..ROUNDS {
                let slot = dice.roll(SLOTS);
                match filled[slot] {
                    None => {
                        let value = (thread * ROUNDS + round) as u8;
                        kv.map(slot * g, g, &props).unwrap();
                        assert_filled(&kv, slot * g, g, 0);
                        kv.fill(slot * g, g, value).unwrap();
                        filled[slot] = Some(value);
                    }
                    Some(value) => {
                        assert_filled(&kv, slot * g, g, value);
                        kv.unmap_range(slot * g, g).unwrap();
                        filled[slot] = None;
                    }
                }
                for (slot, value) in filled.iter().enumerate() {
                    if let Some(value) = value {
                        assert_filled(&kv, slot * g, g, *value);
                    }
                }
            }
            // Some end in one way, some in the other.
            match thread % 2 {
                0 => kv.close().unwrap(),
                _ => drop(kv),
            }
        });
        drop(props);
        site.leaves_nothing();
    }
}

#[test]
fn reservations_and_allocations_move_to_other_threads() {
    for site in Site::all() {
        let (g, props) = (site.granule(), site.props());
        let mut kv = site.reserve(2);
        let page = props.create(g).unwrap();
        kv.map(0, g, &props).unwrap();
        kv.fill(0, g, 7).unwrap();
        let mut kv = thread::spawn(move || {
            kv.map_existing(g, &page).unwrap();
            kv.fill(g, g, 8).unwrap();
            kv
        })
        .join()
        .unwrap();
        assert_filled(&kv, 0, g, 7);
        assert_filled(&kv, g, g, 8);
        kv.unmap_range(0, 2 * g).unwrap();
        let closed = thread::spawn(move || kv.close().map_err(|failed| failed.to_string()));
        assert_eq!(closed.join().unwrap(), Ok(()));
        drop(props);
        site.leaves_nothing();
    }
}
