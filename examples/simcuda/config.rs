//! The environment, read and judged. What each variable means is told at the head of the library.

use std::collections::BTreeMap;
use std::ffi::{c_int, OsString};

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::sys::{CUresult, Call};

use crate::aliases::plain;

/// What `cuDriverGetVersion` answers, and the newest version that can be looked up: that of the driver whose answers
/// the simulated one gives.
pub const DRIVER_VERSION: c_int = 13_000;

const PREFIX: &str = "SIMCUDA_";

/// The units a size may have.
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// The driver that the environment asks for, or what is wrong with the environment.
pub fn from_environment() -> Result<Simulation, String> {
    let mut given = Variables::take();
    let devices = given.value("DEVICES", count)?.unwrap_or(1);
    let memory = given.value("MEMORY", bytes)?;
    let ledger = given.value("LEDGER", switch)?.unwrap_or(false);
    let imex = given.value("IMEX", switch)?.unwrap_or(false);
    let faults = given.value("FAULT", faults)?.unwrap_or_default();
    given.refuse_the_rest()?;

    let device = match memory {
        Some(bytes) => SimDevice::new().memory(bytes),
        None => SimDevice::new(),
    };
    let mut builder = Simulation::builder()
        .driver_version(DRIVER_VERSION.unsigned_abs())
        .imex_channel(imex);
    for _ in 0..devices {
        builder = builder.device(device.clone());
    }
    if ledger {
        builder = builder.ledger_only();
    }
    let driver = builder.build().map_err(|why| why.to_string())?;
    inject(&driver, faults).map_err(|why| format!("{PREFIX}FAULT: {why}"))?;
    Ok(driver)
}

/// Adds faults written as in the environment.
pub fn add_faults(driver: &Simulation, text: &str) -> Result<(), String> {
    inject(driver, faults(text)?)
}

fn inject(driver: &Simulation, faults: Vec<Fault>) -> Result<(), String> {
    faults
        .into_iter()
        .try_for_each(|fault| driver.inject(fault))
        .map_err(|why| why.to_string())
}

/// The variables that are meant for this library, by what follows the prefix.
struct Variables(BTreeMap<String, OsString>);

impl Variables {
    fn take() -> Self {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix(PREFIX)?.to_owned();
            Some((name, value))
        });
        Variables(ours.collect())
    }

    fn value<T>(
        &mut self,
        name: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(name) else {
            return Ok(None);
        };
        let text = value.to_string_lossy();
        read(&text)
            .map(Some)
            .map_err(|why| format!("{PREFIX}{name}={text}: {why}"))
    }

    /// A misspelt variable would leave a test on another driver than it means.
    fn refuse_the_rest(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("{PREFIX}{name} is no variable of this library")),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    match number(text)? {
        count @ 1..=64 => Ok(count as usize),
        _ => Err("give a number of devices from 1 to 64".to_owned()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0 or 1".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    for (unit, shift) in UNITS {
        if let Some(text) = text.strip_suffix(unit) {
            let bytes = number(text.trim_end())?.checked_mul(1 << shift);
            return bytes.ok_or_else(|| "more than can be counted".to_owned());
        }
    }
    number(text)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn faults(text: &str) -> Result<Vec<Fault>, String> {
    text.split(',').map(fault).collect()
}

/// `CALL[:N[:CODE[:TIMES]]]`
fn fault(text: &str) -> Result<Fault, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let call = Call::ALL
        .iter()
        .find(|call| call.symbol() == name || plain(call.symbol()) == name)
        .ok_or_else(|| format!("{name:?} is no call of this driver"))?;
    let mut fault = Fault::on(*call);
    if let Some(nth) = parts.next() {
        fault = fault.nth(number(nth)?);
    }
    if let Some(code) = parts.next() {
        let code = u32::try_from(number(code)?).map_err(|_| format!("{code} is no status code"))?;
        fault = fault.code(CUresult(code));
    }
    fault = match parts.next() {
        None => fault,
        Some("forever") => fault.forever(),
        Some(times) => fault.times(number(times)?),
    };
    match parts.next() {
        None => Ok(fault),
        Some(more) => Err(format!("{more:?} is too much: CALL[:N[:CODE[:TIMES]]]")),
    }
}
