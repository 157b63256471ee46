//! What this machine's driver and devices can do: what they say, and what becomes of it when it is tried.
//!
//! A device's attributes are claims. So each kind of memory is created, one granule of it, and given back. Where there
//! is no GPU, the table is that of the simulated driver, which the first line says.

mod machine;

use std::process::ExitCode;

use cuda_vmm::{sys, AllocationProps, Capabilities, Device, Driver, HandleTypes, Result};
use machine::Machine;

/// A named kind of memory, and what the device's attributes say of it, if they say anything.
type Kind = (String, Option<bool>, AllocationProps);

fn main() -> ExitCode {
    let printed = Machine::find().and_then(|machine| {
        println!("{:18}{machine}", "driver");
        report(&machine.driver).map_err(|error| error.to_string())
    });
    match printed {
        Ok(()) => {
            println!("\nprobe: every device answered");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(driver: &Driver) -> Result<()> {
    let header = sys::HEADER_VERSION.map_or("none: the kept declarations".into(), version);
    row("CUDA version", [version(driver.version())]);
    row("header version", [header]);
    row("devices", [driver.device_count().to_string()]);
    for device in driver.devices() {
        describe(&device?)?;
    }
    peers(driver)
}

fn describe(device: &Device) -> Result<()> {
    let can = device.capabilities()?;
    let (total, free) = (device.total_memory()? >> 20, device.free_memory()? >> 20);
    let node = can.host_numa_node.map(|node| node.to_string());
    println!("\ndevice {}", device.ordinal());
    row("  name", [device.name()?]);
    row("  UUID", [uuid(&device.uuid()?)]);
    row("  memory", [format!("{total} MiB, {free} MiB free")]);
    row("  NUMA node", [node.unwrap_or("not known".into())]);
    row("  vmm", [claim(can.vmm)]);
    row("  dma-buf", [claim(can.dma_buf)]);

    let plain = AllocationProps::on(device);
    let handles = handle_kinds(&plain, &can);
    let extras = extra_kinds(&plain, &can);
    let host = host_kinds(device.driver(), &can);

    row("  granularity", ["minimum", "recommended"]);
    granularity("plain", &plain);
    for (name, _, props) in extras.iter().chain(&host) {
        granularity(name, props);
    }
    try_each("handle types", &handles);
    try_each("extras", &extras);
    try_each("host memory", &host);
    Ok(())
}

fn handle_kinds(plain: &AllocationProps, can: &Capabilities) -> [Kind; 4] {
    let kind = |name: &str, says, types| (name.to_owned(), says, plain.clone().shareable_as(types));
    let both = can
        .posix_fd
        .and_then(|posix_fd| can.fabric.map(|fabric| posix_fd && fabric));
    [
        kind("none", None, HandleTypes::NONE),
        kind("POSIX fd", can.posix_fd, HandleTypes::POSIX_FD),
        kind("FABRIC", can.fabric, HandleTypes::FABRIC),
        kind("both", both, HandleTypes::POSIX_FD | HandleTypes::FABRIC),
    ]
}

fn extra_kinds(plain: &AllocationProps, can: &Capabilities) -> [Kind; 2] {
    let compressible = plain.clone().compression(true);
    [
        ("RDMA".into(), can.rdma, plain.clone().rdma(true)),
        ("compressible".into(), can.compression, compressible),
    ]
}

fn host_kinds(driver: &Driver, can: &Capabilities) -> [Kind; 2] {
    let node = can.host_numa_node.unwrap_or(0);
    let on_node = AllocationProps::on_host_numa(driver, node);
    [
        (
            "any node".into(),
            can.host,
            AllocationProps::on_host(driver),
        ),
        (format!("NUMA node {node}"), can.host_numa, on_node),
    ]
}

fn granularity(name: &str, props: &AllocationProps) {
    let name = format!("    {name}");
    match props.granularity() {
        Ok(known) => row(&name, [kib(known.minimum()), kib(known.recommended())]),
        Err(error) => row(&name, [format!("no: {error}")]),
    }
}

fn try_each(title: &str, kinds: &[Kind]) {
    row(&format!("  {title}"), ["says", "a granule created"]);
    for (name, says, props) in kinds {
        row(&format!("    {name}"), [claim(*says), tried(props)]);
    }
}

/// What came of creating one granule, and whether its extras were granted, as the driver reads them back.
fn tried(props: &AllocationProps) -> String {
    let create = || -> Result<bool> {
        let allocation = props.create(props.granularity()?.minimum())?;
        let granted = allocation.granted()?;
        allocation.release().map_err(|failed| failed.error)?;
        let rdma = granted.is_rdma() || !props.is_rdma();
        Ok(rdma && (granted.is_compressible() || !props.is_compressible()))
    };
    match create() {
        Ok(true) => "yes".into(),
        Ok(false) => "without it: the request was not granted".into(),
        Err(error) => format!("no: {error}"),
    }
}

fn peers(driver: &Driver) -> Result<()> {
    let devices: Vec<Device> = driver.devices().collect::<Result<_>>()?;
    if devices.len() < 2 {
        return Ok(());
    }
    println!();
    let numbers = devices.iter().map(|device| device.ordinal().to_string());
    row("reaches device", numbers);
    for from in &devices {
        let reaches = |to: &Device| match from.ordinal() == to.ordinal() {
            true => Ok("-".to_owned()),
            false => Ok(claim(Some(from.can_access_peer(to)?))),
        };
        let cells: Vec<String> = devices.iter().map(reaches).collect::<Result<_>>()?;
        row(&format!("  from {}", from.ordinal()), cells);
    }
    Ok(())
}

/// One line of the table; the last cell may be of any length.
fn row(name: &str, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    let cells = cells
        .into_iter()
        .map(|cell| format!("{:14}", cell.as_ref()));
    let line = format!("{name:18}{}", cells.collect::<String>());
    println!("{}", line.trim_end());
}

fn claim(says: Option<bool>) -> String {
    says.map_or("-", |says| if says { "yes" } else { "no" })
        .into()
}

fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn kib(bytes: usize) -> String {
    format!("{} KiB", bytes >> 10)
}

fn uuid(bytes: &[u8; 16]) -> String {
    let group = |range: std::ops::Range<usize>| -> String {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    let groups = [0..4, 4..6, 6..8, 8..10, 10..16].map(group);
    format!("GPU-{}", groups.join("-"))
}
