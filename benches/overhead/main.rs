//! What the crate costs on top of the driver: the same calls raw and through the crate, taken in turns.
//!
//! On a machine with a GPU the driver is the real one; the do-nothing driver runs everywhere and shows the bookkeeping
//! alone. Figures are medians; ratios are of medians taken in the same run. Allocations are counted by a global
//! allocator.
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

#[path = "../../tests/support/counting.rs"]
mod counting;
mod do_nothing;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use cuda_vmm::sys::{self, CUmemAccessDesc, CUmemAllocationProp, CUresult, DriverCalls};
use cuda_vmm::{Access, AllocationProps, Driver, ElasticRange, MappingId, Reservation};

use counting::allocations;
use do_nothing::DoNothing;

const GRANULE: usize = 2 << 20;

fn main() {
    println!("machine: {}, {}", processor(), std::env::consts::ARCH);
    bookkeeping();
    elastic();
    lifetime();
    flatness();
    close();
    match Driver::load() {
        Ok(driver) => against_raw_calls(&driver),
        Err(error)
            if std::env::var_os("CUDA_VMM_REQUIRE_GPU").is_some_and(|value| value == "1") =>
        {
            eprintln!("CUDA_VMM_REQUIRE_GPU is 1, but: {error}");
            std::process::exit(1);
        }
        Err(error) => println!("gpu: not run: {error}"),
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{} ({cores} processors)",
        model.map_or("unknown processor", |(_, name)| name.trim())
    )
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn do_nothing() -> Driver {
    Driver::from_calls(Arc::new(DoNothing)).expect("a driver that does nothing starts")
}

fn reserve(driver: &Driver, size: usize) -> (Reservation, AllocationProps) {
    let device = driver.device(0).expect("device 0");
    let reservation = Reservation::builder(size)
        .access(&device, Access::ReadWrite)
        .reserve(driver)
        .expect("reserve");
    (reservation, AllocationProps::on(&device))
}

/// A map-unmap pair through the crate over a driver that does nothing, less the same raw calls.
fn bookkeeping() {
    const PAIRS: usize = 10_000;
    let driver = do_nothing();
    let (mut reservation, props) = reserve(&driver, 1 << 36);
    let raw: Arc<dyn DriverCalls> = driver.calls_raw().clone();
    let (mut through, mut bare, mut allocated) =
        (Vec::with_capacity(101), Vec::with_capacity(101), 0);
    for round in 0..101 {
        let before = allocations();
        let start = Instant::now();
        for pair in 0..PAIRS {
            let offset = pair % 1000 * GRANULE;
            let id = reservation.map(offset, GRANULE, &props).expect("map");
            reservation.unmap(id).expect("unmap");
        }
        through.push(start.elapsed().as_nanos() as f64 / PAIRS as f64);
        if round > 0 {
            allocated += allocations() - before;
        }
        let start = Instant::now();
        for pair in 0..PAIRS {
            let address = (1 << 40) + (pair % 1000 * GRANULE) as u64;
            let mut handle = 0;
            let (properties, access) = (CUmemAllocationProp::default(), CUmemAccessDesc::default());
            unsafe {
                let _ = black_box(raw.cuMemCreate(&mut handle, GRANULE, &properties, 0));
                let _ = black_box(raw.cuMemMap(address, GRANULE, 0, handle, 0));
                let _ = black_box(raw.cuMemSetAccess(address, GRANULE, &access, 1));
                let _ = black_box(raw.cuMemRelease(handle));
                let _ = black_box(raw.cuMemUnmap(address, GRANULE));
            }
        }
        bare.push(start.elapsed().as_nanos() as f64 / PAIRS as f64);
    }
    let (through, bare) = (median(through), median(bare));
    println!(
        "do-nothing driver, map + unmap: {through:.0} ns, raw {bare:.0} ns, the crate adds {:.0} ns (target 150)",
        through - bare
    );
    println!(
        "heap allocations in {} steady pairs: {allocated} (target 0)",
        100 * PAIRS
    );
    reservation.close().expect("close");
}

/// Commits and decommits of an elastic range over a driver that does nothing: into the cache and out of it, by way of
/// the driver, and within a block.
fn elastic() {
    const PAIRS: usize = 10_000;
    let driver = do_nothing();
    let device = driver.device(0).expect("device 0");
    let kinds = [
        ("by way of the driver", 1, 0),
        ("by way of the cache", 1, 1),
        ("within a block", 16, 0),
    ];
    for (kind, block, cached) in kinds {
        let size = 4096 * GRANULE;
        let builder = ElasticRange::builder(size, &AllocationProps::on(&device));
        let mut range = builder
            .access(&device, Access::ReadWrite)
            .blocks(block * GRANULE..=1 << 30)
            .cache(cached * GRANULE)
            .reserve()
            .expect("reserve");
        for granule in (0..4096).step_by(2) {
            range.commit(granule * GRANULE, GRANULE).expect("commit");
        }
        let (mut figures, mut allocated) = (Vec::with_capacity(31), 0);
        for round in 0..31 {
            let before = allocations();
            let start = Instant::now();
            for pair in 0..PAIRS {
                let offset = (pair * 74 % 4096 + 1) * GRANULE;
                range.commit(offset, GRANULE).expect("commit");
                range.decommit(offset, GRANULE).expect("decommit");
            }
            figures.push(start.elapsed().as_nanos() as f64 / PAIRS as f64);
            if round > 0 {
                allocated += allocations() - before;
            }
        }
        println!(
            "do-nothing driver, commit + decommit {kind}: {:.0} ns; heap allocations in {} steady pairs: {allocated} (target 0)",
            median(figures),
            30 * PAIRS
        );
        range.close().expect("close");
    }
}

/// Pairs among 1,000 and among 100,000 mappings: each mapping in turn and a random one (unmap it, then map there
/// again), and a random free place (map, then unmap it). The random mapping shows the machine's memory more than the
/// crate: among 100,000 of them its bookkeeping is in no cache.
fn flatness() {
    const PAIRS: usize = 20_000;
    let driver = do_nothing();
    let mut filled: Vec<Filled> = [1_000, 100_000]
        .map(|count| Filled::new(&driver, count))
        .into();
    let mut figures = [const { [const { Vec::new() }; 2] }; 3];
    for _ in 0..31 {
        for (which, filled) in filled.iter_mut().enumerate() {
            for (kind, figures) in figures.iter_mut().enumerate() {
                let start = Instant::now();
                for pair in 0..PAIRS {
                    match kind {
                        0 => filled.renew(pair % filled.count),
                        1 => filled.use_hole(),
                        _ => filled.renew_any(),
                    }
                }
                figures[which].push(start.elapsed().as_nanos() as f64 / PAIRS as f64);
            }
        }
    }
    let kinds = [
        "in order (target 1.5)",
        "in a random hole (target 1.5)",
        "at random (cold caches)",
    ];
    for (kind, figures) in kinds.into_iter().zip(figures) {
        let [few, many] = figures.map(median);
        println!("map and unmap {kind}: {few:.0} ns among 1,000, {many:.0} ns among 100,000, ratio {:.2}", many / few);
    }
}

/// A reservation in which every other granule is mapped.
struct Filled {
    count: usize,
    reservation: Reservation,
    props: AllocationProps,
    ids: Vec<Option<MappingId>>,
    seed: u64,
}

impl Filled {
    fn new(driver: &Driver, count: usize) -> Self {
        let (mut reservation, props) = reserve(driver, 2 * count * GRANULE);
        let ids = (0..count)
            .map(|block| reservation.map(2 * block * GRANULE, GRANULE, &props).ok())
            .collect();
        Filled {
            count,
            reservation,
            props,
            ids,
            seed: 1,
        }
    }

    fn renew(&mut self, block: usize) {
        let id = self.ids[block].take().expect("every block is mapped");
        self.reservation.unmap(id).expect("unmap");
        self.ids[block] = self
            .reservation
            .map(2 * block * GRANULE, GRANULE, &self.props)
            .ok();
    }

    fn renew_any(&mut self) {
        let block = self.random();
        self.renew(block);
    }

    fn use_hole(&mut self) {
        let offset = (2 * self.random() + 1) * GRANULE;
        let id = self
            .reservation
            .map(offset, GRANULE, &self.props)
            .expect("map");
        self.reservation.unmap(id).expect("unmap");
    }

    fn random(&mut self) -> usize {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.seed >> 33) as usize % self.count
    }
}

/// A whole life, from reserve to free with one mapping in between, over a driver that does nothing.
fn lifetime() {
    const LIVES: usize = 10_000;
    let driver = do_nothing();
    let props = AllocationProps::on(&driver.device(0).expect("device 0"));
    let lives = (0..31).map(|_| {
        microseconds(|| (0..LIVES).for_each(|_| through_the_crate(&driver, &props, GRANULE)))
            * 1000.0
            / LIVES as f64
    });
    println!(
        "do-nothing driver, reserve to free: {:.0} ns",
        median(lives.collect())
    );
}

/// Close of 10,000 and of 100,000 mappings, by mapping.
fn close() {
    let driver = do_nothing();
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..11 {
        for (which, count) in [10_000usize, 100_000].into_iter().enumerate() {
            let (mut reservation, props) = reserve(&driver, count * GRANULE);
            for block in 0..count {
                reservation
                    .map(block * GRANULE, GRANULE, &props)
                    .expect("map");
            }
            let start = Instant::now();
            reservation.close().expect("close");
            figures[which].push(start.elapsed().as_nanos() as f64 / count as f64);
        }
    }
    let [few, many] = figures.map(median);
    println!("close, by mapping: {few:.0} ns of 10,000, {many:.0} ns of 100,000, ratio {:.2} (linear is 1)", many / few);
}

/// The whole life of one mapping, and map + unmap alone, on the real driver: through the crate and raw.
fn against_raw_calls(driver: &Driver) {
    let device = driver.device(0).expect("device 0");
    println!(
        "gpu: {}, driver {}",
        device.name().unwrap_or_default(),
        driver.version()
    );
    // With no context retained anywhere in the process the driver takes 35 times as long to grant and to unmap.
    let bare = median(
        (0..51)
            .map(|_| microseconds(|| raw_sequence(&**driver.calls_raw(), 2 << 20, false)))
            .collect(),
    );
    println!("gpu, reserve to free,    2 MiB, raw, without a retained context: {bare:.1} us");
    let _current = device.make_current().expect("context");
    for (size, rounds) in [(2 << 20, 2001), (32 << 20, 1001), (1 << 30, 301)] {
        let props = AllocationProps::on(&device);
        props.granularity().expect("granularity");
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..rounds {
            // Each goes first in turn, so that none is always the one that finds the driver warm.
            for turn in 0..3 {
                let which = (round + turn) % 3;
                figures[which].push(microseconds(|| match which {
                    0 => through_the_crate(driver, &props, size),
                    1 => raw_sequence(&**driver.calls_raw(), size, true),
                    _ => raw_sequence(&**driver.calls_raw(), size, false),
                }));
            }
        }
        let [through, raw, unmap_first] = figures.map(median);
        println!(
            "gpu, reserve to free, {:4} MiB: crate {through:.1} us, raw {raw:.1} us, ratio {:.3} (target 1.02); raw with unmap before release {unmap_first:.1} us",
            size >> 20,
            through / raw,
        );
    }
}

fn microseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / 1000.0
}

fn through_the_crate(driver: &Driver, props: &AllocationProps, size: usize) {
    let mut reservation = Reservation::builder(size)
        .access(props.location(), Access::ReadWrite)
        .reserve(driver)
        .expect("reserve");
    let id = reservation.map(0, size, props).expect("map");
    reservation.unmap(id).expect("unmap");
    reservation.close().expect("close");
}

fn raw_sequence(raw: &dyn DriverCalls, size: usize, release_first: bool) {
    let ok = |status: CUresult| assert_eq!(status, CUresult::CUDA_SUCCESS);
    let device = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    };
    let properties = CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: device,
        ..Default::default()
    };
    let access = CUmemAccessDesc {
        location: device,
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let (mut base, mut handle) = (0, 0);
    unsafe {
        ok(raw.cuMemAddressReserve(&mut base, size, 0, 0, 0));
        ok(raw.cuMemCreate(&mut handle, size, &properties, 0));
        ok(raw.cuMemMap(base, size, 0, handle, 0));
        ok(raw.cuMemSetAccess(base, size, &access, 1));
        if release_first {
            ok(raw.cuMemRelease(handle));
            ok(raw.cuMemUnmap(base, size));
        } else {
            ok(raw.cuMemUnmap(base, size));
            ok(raw.cuMemRelease(handle));
        }
        ok(raw.cuMemAddressFree(base, size));
    }
}
