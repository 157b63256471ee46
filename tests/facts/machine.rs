//! What a driver's answers are headed by: which driver, on which device.

use std::ffi::c_char;
use std::fmt;
use std::fs;

use crate::codes::call;
use crate::driver::Driver;

/// A driver and its first device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The version of the driver, such as `580.159.04`.
    pub driver: String,
    /// The version of CUDA that the driver offers, such as `13.0`.
    pub cuda: String,
    /// What the device calls itself.
    pub device: String,
}

impl Name {
    /// Asks an initialised driver.
    pub fn ask(driver: &Driver) -> Name {
        let mut version = 0;
        call!(driver, cuDriverGetVersion(&mut version) => SUCCESS);
        let mut name = [0 as c_char; 128];
        let room = name.len() as i32;
        call!(driver, cuDeviceGetName(name.as_mut_ptr(), room, 0) => SUCCESS);
        let bytes = name.iter().map(|&byte| byte as u8);
        let device: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        Name {
            driver: kernel_module().unwrap_or_else(|| "of an unknown version".into()),
            cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
            device: String::from_utf8_lossy(&device).into_owned(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name {
            driver,
            cuda,
            device,
        } = self;
        write!(f, "{device}, driver {driver}, CUDA {cuda}")
    }
}

/// The version of the kernel's part of the driver. The calls name only the version of CUDA, which several drivers
/// share.
fn kernel_module() -> Option<String> {
    if let Ok(version) = fs::read_to_string("/sys/module/nvidia/version") {
        return Some(version.trim().into());
    }
    let version = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let numbers = parts.clone().count() >= 2;
        numbers && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    version
        .split_whitespace()
        .find(is_version)
        .map(String::from)
}
