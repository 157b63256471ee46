//! Where an operation is tried: a simulated driver, and all that the operation may need on it.

use std::fmt;
use std::os::fd::OwnedFd;

use cuda_vmm::share::{ExportedSpan, FabricExport, Kept, ReadOnlySpan, SpanSource};
use cuda_vmm::sim::{LogMode, SimDevice, Simulation, Snapshot};
use cuda_vmm::suspend::{Group, Key};
use cuda_vmm::sys::{CUresult, DriverCalls};
use cuda_vmm::{
    Access, Allocation, AllocationProps, Device, Driver, ElasticRange, MappingId, Reservation,
};

/// The granularity of both devices.
pub const G: usize = 2 << 20;

/// How the simulation keeps memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Memory,
    Ledger,
}

impl Mode {
    pub const BOTH: [Mode; 2] = [Mode::Memory, Mode::Ledger];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Memory => "memory",
            Mode::Ledger => "ledger",
        })
    }
}

/// A span on its way.
pub type Parcel = (Vec<u8>, Vec<OwnedFd>, Kept);

/// What is dropped first stands first: what was made through a driver goes before it.
pub struct Stage {
    pub group: Option<(Group, Key<Reservation>)>,
    pub kv: Option<Reservation>,
    pub other: Option<Reservation>,
    pub range: Option<ElasticRange>,
    pub read_only: Option<ReadOnlySpan>,
    pub pages: Vec<Allocation>,
    pub sources: Vec<SpanSource>,
    /// What was exported: spans, fabric handles, descriptors.
    pub spans: Vec<ExportedSpan>,
    pub fabric: Vec<FabricExport>,
    pub fds: Vec<OwnedFd>,
    /// What a span was taken apart into, to be sent and received.
    pub parcel: Option<Parcel>,
    pub ids: Vec<MappingId>,
    pub devices: Vec<Device>,
    /// An address that the preparation tells the run.
    pub number: u64,
    /// Handles with one count each that no `Allocation` owns.
    pub raw: Vec<u64>,
    /// Further drivers on the same simulation.
    pub drivers: Vec<Driver>,
    pub driver: Option<Driver>,
    pub sim: Simulation,
}

impl Stage {
    /// Two devices, and nothing asked of the driver but what loading it asks.
    pub fn new(mode: Mode) -> Stage {
        let builder = Simulation::builder()
            .device(SimDevice::new())
            .device(SimDevice::new())
            .imex_channel(true)
            .log(LogMode::All);
        let builder = match mode {
            Mode::Memory => builder,
            Mode::Ledger => builder.ledger_only(),
        };
        let sim = builder.build().expect("a sound configuration");
        let driver = Driver::simulated(&sim).expect("no fault is pending");
        let devices = driver.devices().collect::<Result<_, _>>().unwrap();
        Stage {
            group: None,
            kv: None,
            other: None,
            range: None,
            read_only: None,
            pages: Vec::new(),
            sources: Vec::new(),
            spans: Vec::new(),
            fabric: Vec::new(),
            fds: Vec::new(),
            parcel: None,
            ids: Vec::new(),
            devices,
            number: 0,
            raw: Vec::new(),
            drivers: Vec::new(),
            driver: Some(driver),
            sim,
        }
    }

    pub fn driver(&self) -> &Driver {
        self.driver.as_ref().expect("the driver is still there")
    }

    pub fn props(&self) -> AllocationProps {
        AllocationProps::on(&self.devices[0])
    }

    pub fn kv(&mut self) -> &mut Reservation {
        self.kv.as_mut().expect("the preparation reserves")
    }

    /// The reservation, and the first page that may be mapped in it.
    pub fn kv_and_page(&mut self) -> (&mut Reservation, &Allocation) {
        let kv = self.kv.as_mut().expect("the preparation reserves");
        (kv, &self.pages[0])
    }

    pub fn group(&mut self) -> &mut Group {
        let (group, _) = self.group.as_mut().expect("the preparation makes one");
        group
    }

    pub fn range(&mut self) -> &mut ElasticRange {
        self.range.as_mut().expect("the preparation reserves")
    }

    /// A reservation of so many granules that both devices may use: one writes, one reads.
    pub fn reserve(&mut self, granules: usize) {
        let kv = Reservation::builder(granules * G)
            .access(&self.devices[0], Access::ReadWrite)
            .access(&self.devices[1], Access::Read)
            .reserve(self.driver())
            .unwrap();
        self.kv = Some(kv);
    }

    pub fn page(&mut self, granules: usize) {
        let page = self.props().create(granules * G).unwrap();
        self.pages.push(page);
    }

    /// Maps so many granules at the granule of this number.
    pub fn map(&mut self, at: usize, granules: usize) {
        let props = self.props();
        let id = self.kv().map(at * G, granules * G, &props).unwrap();
        self.ids.push(id);
    }

    /// Maps the page of this number.
    pub fn map_page(&mut self, at: usize, page: usize) {
        let Stage { kv, pages, ids, .. } = self;
        let kv = kv.as_mut().expect("the preparation reserves");
        ids.push(kv.map_existing(at * G, &pages[page]).unwrap());
    }

    /// All that the crate itself says of the state.
    pub fn view(&self) -> String {
        let mut view = format!("driver: {} quarantined\n", self.driver().quarantined());
        if let Some((group, key)) = &self.group {
            let outline = group.outline(key.id());
            let parts: Vec<_> = outline.iter().flat_map(|one| one.mappings()).collect();
            view += &format!("{group:?}\n{parts:?}\n");
        }
        if let Some(range) = &self.range {
            view += &format!("{range}{range:?}\n");
        }
        for kv in self.reservations() {
            view += &format!(
                "{kv}{} quarantined, {} mapped, holes {:?}\n",
                kv.quarantined(),
                kv.mapped_bytes(),
                kv.holes().collect::<Vec<_>>()
            );
            for mapping in kv.mappings() {
                let rights: Vec<_> = kv.rights(mapping).collect();
                view += &format!("{:?} {:?} {rights:?}\n", mapping.range(), mapping.backing());
            }
        }
        for page in &self.pages {
            view += &format!("{page:?}\n");
        }
        view
    }

    /// The reservations that have memory: those of the stage, and a group's member that is awake.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        let of_range = self.range.iter().map(ElasticRange::reservation);
        let grouped = self.group.iter();
        let awake = grouped.filter_map(|(group, key)| group.get(key).ok());
        self.kv
            .iter()
            .chain(&self.other)
            .chain(of_range)
            .chain(awake)
    }

    /// Pieces that the crate keeps because the driver would not take them.
    pub fn quarantined(&self) -> usize {
        let held = self.reservations().map(Reservation::quarantined);
        let asleep = self
            .group
            .iter()
            .filter(|(group, key)| group.get(key).is_err());
        let asleep = asleep.map(|(group, _)| group.quarantined());
        self.driver().quarantined() + held.chain(asleep).sum::<usize>()
    }

    /// Ends everything in the ordinary way, with a driver that refuses nothing, and demands that nothing is left.
    pub fn end(self) {
        let left = self.wind_up();
        assert!(left.is_empty(), "something is left:\n{left}");
    }

    /// Ends everything in the ordinary way, with a driver that refuses nothing, and gives what is left.
    pub fn wind_up(mut self) -> Snapshot {
        self.sim.clear_faults();
        if let Some((group, _)) = self.group.take() {
            group.close().unwrap();
        }
        for kv in [self.kv.take(), self.other.take()].into_iter().flatten() {
            kv.close().unwrap();
        }
        if let Some(range) = self.range.take() {
            range.close().unwrap();
        }
        if let Some(span) = self.read_only.take() {
            span.close().unwrap();
        }
        self.spans.clear();
        self.fabric.clear();
        self.fds.clear();
        self.parcel = None;
        for source in self.sources.drain(..) {
            source.release().unwrap();
        }
        for page in self.pages.drain(..) {
            page.release().unwrap();
        }
        for handle in self.raw.drain(..) {
            let released = unsafe { self.sim.cuMemRelease(handle) };
            assert_eq!(released, CUresult::CUDA_SUCCESS);
        }
        if let Some(driver) = &self.driver {
            let kept = driver.quarantined();
            assert_eq!(driver.reclaim().unwrap(), kept);
        }
        while self.sim.snapshot().context_depth > 0 {
            let popped = unsafe { self.sim.cuCtxPopCurrent_v2(std::ptr::null_mut()) };
            assert_eq!(popped, CUresult::CUDA_SUCCESS);
        }
        let sim = self.sim.clone();
        drop(self);
        assert_eq!(sim.misuses(), [], "the real driver would have died");
        sim.snapshot()
    }
}
