//! The operations that do all or nothing.

use std::fmt;
use std::mem;
use std::sync::Arc;

use cuda_vmm::sim::CallRecord;
use cuda_vmm::sys::{CUdevice_attribute, CUresult, Call};
use cuda_vmm::{Allocation, AllocationProps, Driver, Error, HandleTypes};

use crate::expect;
use crate::on_groups;
use crate::on_ranges;
use crate::on_reservations;
use crate::on_sharing;
use crate::stage::{Mode, Stage, G};

/// An operation, and how to bring it about.
pub struct Operation {
    /// The public method, as `Type::method`.
    pub method: &'static str,
    /// What is special about this case of it; empty for the plain one.
    pub case: &'static str,
    pub prepare: fn(&mut Stage),
    /// Runs it; what it makes is put on the stage, so that nothing is dropped in here.
    pub run: fn(&mut Stage) -> Result<(), Error>,
    /// Refusals of the driver that are an answer, not a failure.
    pub understands: fn(Call, CUresult) -> bool,
    /// For an operation that itself refuses, after driver calls: whether this is the error.
    pub refusal: Option<fn(&Error) -> bool>,
    /// It refuses only when a call that it understands fails.
    pub may_succeed: bool,
    /// It makes no driver call at all.
    pub silent: bool,
    /// It needs memory that is real: the ledger has no file descriptors to give.
    pub in_memory: bool,
}

impl Operation {
    pub const fn new(
        method: &'static str,
        case: &'static str,
        prepare: fn(&mut Stage),
        run: fn(&mut Stage) -> Result<(), Error>,
    ) -> Operation {
        Operation {
            method,
            case,
            prepare,
            run,
            understands: |_, _| false,
            refusal: None,
            may_succeed: true,
            silent: false,
            in_memory: false,
        }
    }

    pub const fn understanding(self, understands: fn(Call, CUresult) -> bool) -> Operation {
        Operation {
            understands,
            ..self
        }
    }

    pub const fn refusing(self, refusal: fn(&Error) -> bool) -> Operation {
        Operation {
            refusal: Some(refusal),
            may_succeed: false,
            ..self
        }
    }

    /// Undisturbed, it succeeds; a refusal of the driver's that it understands can become this error.
    pub const fn or_refusing(self, refusal: fn(&Error) -> bool) -> Operation {
        Operation {
            refusal: Some(refusal),
            ..self
        }
    }

    pub const fn silent(self) -> Operation {
        Operation {
            silent: true,
            ..self
        }
    }

    pub const fn in_memory(self) -> Operation {
        Operation {
            in_memory: true,
            ..self
        }
    }

    /// Whether it can be tried on a simulation of this kind.
    pub fn runs_in(&self, mode: Mode) -> bool {
        mode == Mode::Memory || !self.in_memory
    }

    /// Whether this is the operation's own refusal, and no failed call.
    pub fn refuses(&self, error: &Error) -> bool {
        self.refusal.is_some_and(|refusal| refusal(error.first()))
    }

    /// How many pieces the failed calls leave with the crate: those that were to give something back after the first
    /// failure, and in an operation that refuses, where giving back is a part of it, all of them.
    pub fn pieces(&self, failures: &[&CallRecord], result: &Result<(), Error>) -> usize {
        match result {
            Err(error) if self.refuses(error) => expect::refused_pieces(failures),
            _ => expect::refused_pieces(failures.get(1..).unwrap_or_default()),
        }
    }

    /// Undisturbed, it succeeds, or refuses as it is meant to.
    pub fn ends_as_it_should(&self, result: &Result<(), Error>) {
        match result {
            Ok(()) if self.may_succeed => {}
            Err(error) if !self.may_succeed && self.refuses(error) => {}
            _ => panic!("{self}, undisturbed, gave {result:?}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.case {
            "" => f.write_str(self.method),
            case => write!(f, "{} {case}", self.method),
        }
    }
}

pub fn all() -> impl Iterator<Item = &'static Operation> {
    BELOW
        .iter()
        .chain(on_reservations::OPERATIONS)
        .chain(on_ranges::OPERATIONS)
        .chain(on_sharing::OPERATIONS)
        .chain(on_groups::OPERATIONS)
}

fn nothing(_: &mut Stage) {}

fn mapped(stage: &mut Stage) {
    stage.reserve(4);
    stage.map(1, 1);
    stage.number = stage.kv().base() + G as u64;
}

fn with_page(stage: &mut Stage) {
    stage.page(1);
}

fn with_raw_handle(stage: &mut Stage) {
    let page = stage.props().create(G).unwrap();
    stage.raw.push(page.into_raw().unwrap());
}

/// INVALID_VALUE, where the driver says by it that it does not know what it was asked about.
fn unknown_attribute(call: Call, code: CUresult) -> bool {
    call == Call::cuDeviceGetAttribute && code == CUresult::CUDA_ERROR_INVALID_VALUE
}

fn not_vmm(call: Call, code: CUresult) -> bool {
    call == Call::cuMemRetainAllocationHandle && code == CUresult::CUDA_ERROR_INVALID_VALUE
}

/// Drivers, devices, properties, allocations.
const BELOW: &[Operation] = &[
    Operation::new("Driver::simulated", "", nothing, |stage| {
        let driver = Driver::simulated(&stage.sim)?;
        stage.drivers.push(driver);
        Ok(())
    }),
    Operation::new("Driver::from_calls", "", nothing, |stage| {
        let driver = Driver::from_calls(Arc::new(stage.sim.clone()))?;
        stage.drivers.push(driver);
        Ok(())
    }),
    Operation::new("Driver::device", "", nothing, |stage| {
        let device = stage.driver().device(1)?;
        assert_eq!(device.ordinal(), 1);
        Ok(())
    }),
    Operation::new("Driver::device_by_uuid", "", nothing, |stage| {
        let mut uuid = *b"cuda-vmm sim\0\0\0\0";
        uuid[15] = 1;
        assert_eq!(stage.driver().device_by_uuid(uuid)?.ordinal(), 1);
        Ok(())
    }),
    Operation::new("Driver::device_by_uuid", "of no device", nothing, |stage| {
        stage.driver().device_by_uuid([7; 16]).map(drop)
    })
    .refusing(|error| matches!(error, Error::NoSuchUuid { uuid: [7, ..] })),
    Operation::new("Driver::devices", "", nothing, |stage| {
        let devices: Vec<_> = stage.driver().devices().collect::<Result<_, _>>()?;
        assert_eq!(devices.len(), 2);
        Ok(())
    }),
    Operation::new("Driver::is_vmm", "of a mapping", mapped, |stage| {
        let struck = stage.sim.pending_faults().len();
        let is_vmm = stage.driver().is_vmm(stage.number)?;
        // INVALID_VALUE, injected or not, means no.
        assert_eq!(is_vmm, stage.sim.pending_faults().len() == struck);
        Ok(())
    })
    .understanding(not_vmm),
    Operation::new("Driver::is_vmm", "of a hole", mapped, |stage| {
        assert!(!stage.driver().is_vmm(stage.number + G as u64)?);
        Ok(())
    })
    .understanding(not_vmm),
    Operation::new("Device::name", "", nothing, |stage| {
        assert_eq!(stage.devices[0].name()?, "NVIDIA H200 (simulated)");
        Ok(())
    }),
    Operation::new("Device::uuid", "", nothing, |stage| {
        assert_eq!(stage.devices[0].uuid()?, *b"cuda-vmm sim\0\0\0\0");
        Ok(())
    }),
    Operation::new("Device::total_memory", "", nothing, |stage| {
        assert_eq!(stage.devices[0].total_memory()?, 139 << 30);
        Ok(())
    }),
    Operation::new("Device::free_memory", "", with_page, |stage| {
        assert_eq!(stage.devices[0].free_memory()?, (139 << 30) - G);
        Ok(())
    }),
    Operation::new(
        "Device::free_memory",
        "again",
        |stage| {
            stage.devices[0].free_memory().unwrap();
        },
        |stage| stage.devices[0].free_memory().map(drop),
    ),
    Operation::new("Device::can_access_peer", "", nothing, |stage| {
        assert!(stage.devices[0].can_access_peer(&stage.devices[1])?);
        Ok(())
    }),
    Operation::new("Device::attribute", "", nothing, |stage| {
        let vmm = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        assert_eq!(stage.devices[0].attribute(vmm)?, 1);
        Ok(())
    }),
    Operation::new("Device::capabilities", "", nothing, |stage| {
        let faults = stage.sim.pending_faults().len();
        let can = stage.devices[0].capabilities()?;
        let known = [can.vmm, can.posix_fd, can.fabric, can.rdma, can.compression];
        let host = [
            can.host,
            can.host_numa,
            can.host_numa_node.map(|_| true),
            can.dma_buf,
        ];
        let unknown = known
            .iter()
            .chain(&host)
            .filter(|one| one.is_none())
            .count();
        // Each attribute that was answered INVALID_VALUE is unknown, and only that.
        assert_eq!(unknown, faults - stage.sim.pending_faults().len());
        Ok(())
    })
    .understanding(unknown_attribute),
    Operation::new("Device::make_current", "", nothing, |stage| {
        // Its end is an operation of its own: see `endings`.
        mem::forget(stage.devices[0].make_current()?);
        Ok(())
    }),
    Operation::new("AllocationProps::granularity", "", nothing, |stage| {
        let rdma = stage.props().rdma(true).granularity()?;
        assert_eq!((rdma.minimum(), rdma.recommended()), (G, G));
        Ok(())
    }),
    Operation::new("AllocationProps::create", "", nothing, |stage| {
        let page = stage
            .props()
            .shareable_as(HandleTypes::POSIX_FD)
            .create(3 * G)?;
        stage.pages.push(page);
        Ok(())
    }),
    Operation::new("AllocationProps::create", "on the host", nothing, |stage| {
        let page = AllocationProps::on_host_numa(stage.driver(), 0).create(G)?;
        stage.pages.push(page);
        Ok(())
    }),
    Operation::new("Allocation::retain", "", mapped, |stage| {
        let page = Allocation::retain(stage.driver(), stage.number + 7)?;
        assert_eq!(page.size(), G);
        stage.pages.push(page);
        Ok(())
    }),
    Operation::new(
        "Allocation::retain",
        "of memory on the host",
        |stage| {
            stage.reserve(2);
            let props = AllocationProps::on_host_numa(stage.driver(), 0);
            stage.kv().map(0, 2 * G, &props).unwrap();
        },
        |stage| {
            let address = stage.kv().base();
            let page = Allocation::retain(stage.driver(), address)?;
            assert_eq!(page.size(), 2 * G);
            stage.pages.push(page);
            Ok(())
        },
    ),
    Operation::new("Allocation::from_raw", "", with_raw_handle, |stage| {
        // Whatever comes of it, the handle is the stage's until there is an allocation.
        let page = unsafe { Allocation::from_raw(stage.driver(), stage.raw[0], G) }?;
        stage.raw.clear();
        stage.pages.push(page);
        Ok(())
    }),
    Operation::new("Allocation::granted", "", with_page, |stage| {
        assert!(!stage.pages[0].granted()?.is_rdma());
        Ok(())
    }),
    Operation::new(
        "Allocation::into_raw",
        "of a shared one",
        |stage| {
            stage.reserve(1);
            stage.page(1);
            stage.map_page(0, 0);
        },
        |stage| {
            let page = stage.pages.remove(0).into_raw();
            stage
                .pages
                .push(page.expect_err("a mapping shares the count"));
            Ok(())
        },
    )
    .silent(),
    Operation::new("Allocation::into_raw", "", with_page, |stage| {
        let raw = stage.pages.remove(0).into_raw();
        stage.raw.push(raw.expect("nobody shares it"));
        Ok(())
    })
    .silent(),
];
