//! Operations in any order, with driver calls failing anywhere: what a reservation says is what the driver has, and a
//! later close finds nothing too much.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::collections::BTreeMap;

use cuda_vmm::sim::{Fault, LogMode, Place, Rights, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, DriverCalls};
use cuda_vmm::{Access, Allocation, AllocationProps, Device, Driver, Error, Location, Reservation};
use proptest::prelude::*;

const G: usize = 2 << 20;
const GRANULES: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    Map {
        at: usize,
        len: usize,
        releasing: bool,
    },
    MapExisting {
        at: usize,
        page: usize,
    },
    Unmap {
        at: usize,
    },
    UnmapRange {
        at: usize,
        len: usize,
    },
    SetAccess {
        at: usize,
        len: usize,
        device: u32,
        access: Access,
    },
    SetPolicy {
        device: u32,
        access: Access,
    },
    Fill {
        at: usize,
        len: usize,
        value: u8,
    },
    NewPage {
        len: usize,
    },
    DropPage {
        page: usize,
    },
    Retain {
        at: usize,
    },
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::None),
        Just(Access::Read),
        Just(Access::ReadWrite)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..GRANULES;
    let len = 1..4usize;
    prop_oneof![
        3 => (at.clone(), len.clone(), any::<bool>())
            .prop_map(|(at, len, releasing)| Step::Map { at, len, releasing }),
        4 => (at.clone(), 0..4usize).prop_map(|(at, page)| Step::MapExisting { at, page }),
        2 => at.clone().prop_map(|at| Step::Unmap { at }),
        3 => (at.clone(), 1..8usize).prop_map(|(at, len)| Step::UnmapRange { at, len }),
        2 => (at.clone(), len.clone(), 0..2u32, access())
            .prop_map(|(at, len, device, access)| Step::SetAccess { at, len, device, access }),
        1 => (0..2u32, access()).prop_map(|(device, access)| Step::SetPolicy { device, access }),
        2 => (at.clone(), len.clone(), any::<u8>())
            .prop_map(|(at, len, value)| Step::Fill { at, len, value }),
        2 => len.prop_map(|len| Step::NewPage { len }),
        2 => (0..4usize).prop_map(|page| Step::DropPage { page }),
        1 => at.prop_map(|at| Step::Retain { at }),
    ]
}

/// Which call of the step fails, how many do, and with what.
fn fault() -> impl Strategy<Value = Option<Fault>> {
    let codes = prop_oneof![
        Just(CUresult::CUDA_ERROR_UNKNOWN),
        // Not INVALID_VALUE, which is a contradiction: tests/failure_cases is about those.
        Just(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        Just(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        Just(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ];
    prop_oneof![
        2 => Just(None),
        3 => (1..12u64, 1..4u64, codes)
            .prop_map(|(nth, times, code)| Some(Fault::any_nth(nth).times(times).code(code))),
    ]
}

struct Stage {
    kv: Reservation,
    pages: Vec<Allocation>,
    devices: Vec<Device>,
    driver: Driver,
    sim: Simulation,
}

impl Stage {
    fn new(ledger: bool) -> Stage {
        let builder = Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new())
            .log(LogMode::Off);
        let builder = if ledger {
            builder.ledger_only()
        } else {
            builder
        };
        let sim = builder.build().unwrap();
        let driver = Driver::simulated(&sim).unwrap();
        let devices: Vec<_> = driver.devices().collect::<Result<_, _>>().unwrap();
        let kv = Reservation::builder(GRANULES * G)
            .access(&devices[0], Access::ReadWrite)
            .reserve(&driver)
            .unwrap();
        Stage {
            kv,
            pages: Vec::new(),
            devices,
            driver,
            sim,
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), Error> {
        let props = AllocationProps::on(&self.devices[0]);
        let kv = &mut self.kv;
        match *step {
            Step::Map {
                at,
                len,
                releasing: true,
            } => kv.map_releasing(at * G, len * G, &props).map(drop),
            Step::Map { at, len, .. } => kv.map(at * G, len * G, &props).map(drop),
            Step::MapExisting { at, page } => match self.pages.get(page) {
                Some(page) => kv.map_existing(at * G, page).map(drop),
                None => Ok(()),
            },
            Step::Unmap { at } => match kv.id_at(at * G) {
                Some(id) => kv.unmap(id),
                None => Ok(()),
            },
            Step::UnmapRange { at, len } => kv.unmap_range(at * G, len * G),
            Step::SetAccess {
                at,
                len,
                device,
                access,
            } => kv.set_access(at * G, len * G, Location::Device(device), access),
            Step::SetPolicy { device, access } => kv.set_policy(Location::Device(device), access),
            Step::Fill { at, len, value } => kv.fill(at * G + 100, len * G - 100, value),
            Step::NewPage { len } => {
                self.pages.push(props.create(len * G)?);
                Ok(())
            }
            Step::DropPage { page } if page < self.pages.len() => {
                let page = self.pages.remove(page);
                page.release().map_err(|error| {
                    self.pages.push(error.allocation);
                    error.error
                })
            }
            Step::DropPage { .. } => Ok(()),
            Step::Retain { at } => {
                let address = kv.base() + (at * G) as u64;
                self.pages.push(Allocation::retain(&self.driver, address)?);
                Ok(())
            }
        }
    }

    /// The reservation's mappings, and the rights of those that are not in quarantine, are the driver's.
    fn agrees(&self) -> Result<(), TestCaseError> {
        let snapshot = self.sim.snapshot();
        let theirs: BTreeMap<u64, _> = snapshot
            .mappings
            .iter()
            .map(|mapping| (mapping.address, mapping))
            .collect();
        prop_assert_eq!(theirs.len(), self.kv.mapping_count());
        let mut bytes = 0;
        for mapping in self.kv.mappings() {
            bytes += mapping.size();
            let address = self.kv.base() + mapping.offset() as u64;
            let Some(there) = theirs.get(&address) else {
                return Err(TestCaseError::fail(format!("{mapping:?} is not there")));
            };
            prop_assert_eq!(there.size, mapping.size() as u64);
            if mapping.is_quarantined() {
                continue;
            }
            let mut rights: Vec<_> = self
                .kv
                .rights(mapping)
                .filter(|(_, access)| access.reads())
                .map(|(location, access)| {
                    let device = location.device().unwrap() as i32;
                    let rights = match access.writes() {
                        true => Rights::ReadWrite,
                        false => Rights::Read,
                    };
                    (Place::Device(device), rights)
                })
                .collect();
            rights.sort_unstable();
            prop_assert_eq!(&there.rights, &rights, "{:?}", mapping);
        }
        prop_assert_eq!(bytes, self.kv.mapped_bytes());
        let holes: usize = self.kv.holes().map(|hole| hole.len()).sum();
        prop_assert_eq!(holes + bytes, self.kv.size());
        let mapped: u32 = snapshot.handles.iter().map(|handle| handle.mapped).sum();
        prop_assert_eq!(mapped as usize, theirs.len());
        Ok(())
    }

    /// A context that could not be taken off, twice, stays on the thread's stack, as the error says.
    fn pop_what_stayed(&self) {
        while self.sim.snapshot().context_depth > 0 {
            let popped = unsafe { self.sim.cuCtxPopCurrent_v2(std::ptr::null_mut()) };
            assert_eq!(popped, CUresult::CUDA_SUCCESS);
        }
    }

    fn end(self) -> Result<(), TestCaseError> {
        let Stage {
            kv,
            pages,
            devices,
            driver,
            sim,
        } = self;
        kv.close().unwrap();
        driver.reclaim().unwrap();
        drop((pages, devices, driver));
        let left = sim.snapshot();
        prop_assert!(left.is_empty(), "left:\n{}", left);
        prop_assert_eq!(sim.misuses(), []);
        Ok(())
    }
}

fn play(ledger: bool, steps: &[(Step, Option<Fault>)]) -> Result<(), TestCaseError> {
    let mut stage = Stage::new(ledger);
    for (step, fault) in steps {
        let before = stage.sim.snapshot();
        let (said, pages) = (stage.kv.to_string(), stage.pages.len());
        if let Some(fault) = fault {
            stage.sim.inject(*fault).unwrap();
        }
        let ended = stage.run(step);
        stage.sim.clear_faults();
        match &ended {
            Err(Error::NotUndone(_)) | Ok(()) => {}
            Err(error) => {
                prop_assert_eq!(&stage.sim.snapshot(), &before, "{:?}: {}", step, error);
                prop_assert_eq!(stage.pages.len(), pages);
                // A handle that could not be taken back after a failed unmap says so by `NotUndone`.
                prop_assert_eq!(stage.kv.to_string(), said, "{:?}: {}", step, error);
            }
        }
        if let Ok(()) = ended {
            prop_assert_eq!(stage.driver.quarantined(), 0);
        }
        stage.driver.reclaim().unwrap();
        stage.pop_what_stayed();
        stage.agrees()?;
    }
    stage.end()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_order_of_operations(steps in prop::collection::vec((step(), fault()), 1..40)) {
        play(false, &steps)?;
    }

    #[test]
    fn any_order_of_operations_in_the_ledger(steps in prop::collection::vec((step(), fault()), 1..40)) {
        play(true, &steps)?;
    }
}
