//! Opens and closes, again and again, and looks at the process's memory.

use std::fs;

use cuda_vmm::suspend::{Backup, Group};
use cuda_vmm::{Access, AllocationProps, Device, Driver, ElasticRange, Reservation};

use crate::{must, Outcome};

/// What the process may grow by over all cycles: 10,000 cycles that lose 105 bytes each are found.
pub const GROWTH: usize = 1 << 20;
/// Cycles that are not counted: they fill the caches of the driver and the allocator, and the simulated driver's log.
const WARM_UP: usize = 1_000;
/// Suspending with contents touches whole granules, which takes longer than all the rest of a cycle where memory is
/// simulated: it is done in one cycle of so many.
const SUSPENDS_EVERY: usize = 8;

pub fn run(driver: &Driver, device: &Device, props: &AllocationProps, cycles: usize) -> Outcome {
    // Contents are copied to the same host memory in every cycle.
    let mut group = Group::new(driver).keep_host_memory(true);
    (0..WARM_UP).try_for_each(|nth| once(nth, &mut group, driver, device, props))?;
    let before = resident(&mut group)?;
    (0..cycles).try_for_each(|nth| once(nth, &mut group, driver, device, props))?;
    let after = resident(&mut group)?;
    group.close()?;
    println!("{cycles} cycles: {before} bytes resident before, {after} after");
    let grown = after.saturating_sub(before);
    must(grown <= GROWTH, || {
        format!("the process grew by {grown} bytes")
    })
}

fn once(
    nth: usize,
    group: &mut Group,
    driver: &Driver,
    device: &Device,
    props: &AllocationProps,
) -> Outcome {
    let granule = props.granularity()?.minimum();
    let mut kv = Reservation::builder(64 * granule)
        .access(device, Access::ReadWrite)
        .reserve(driver)?;
    kv.map(0, granule, props)?;
    kv.map(2 * granule, 2 * granule, props)?;
    kv.write(0, b"cycle")?;
    kv.close()?;

    let mut kv = ElasticRange::builder(64 * granule, props)
        .access(device, Access::ReadWrite)
        .cache(granule)
        .reserve()?;
    kv.resize(3 * granule)?;
    kv.decommit(granule, 2 * granule)?;
    kv.write(0, b"cycle")?;
    if nth % SUSPENDS_EVERY == 0 {
        let key = group.add(kv, "cycle", Backup::Host);
        let key = key.map_err(|refused| refused.error)?;
        group.suspend(&key)?;
        group.resume(&key)?;
        kv = group.remove(&key)?;
    }
    let mut back = [0; 5];
    kv.read(0, &mut back)?;
    must(&back == b"cycle", || format!("{back:?} is read"))?;
    Ok(kv.close()?)
}

/// Bytes of the process that are in memory, without the host memory that the group keeps.
fn resident(group: &mut Group) -> Outcome<usize> {
    group.trim()?;
    let left = group.host_bytes();
    must(left == 0, || {
        format!("{left} bytes of host memory stay after trimming")
    })?;
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1);
    let pages: usize = pages
        .ok_or("/proc/self/statm has no second field")?
        .parse()?;
    let smaps = fs::read_to_string("/proc/self/smaps")?;
    let page = smaps
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"));
    let kib = page.and_then(|page| page.trim().strip_suffix(" kB"));
    let kib: usize = kib
        .ok_or("/proc/self/smaps names no page size")?
        .trim()
        .parse()?;
    Ok(pages * kib * 1024)
}
