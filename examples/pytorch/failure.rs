//! What can go wrong, with the numbers.

use cuda_vmm::suspend::{Incomplete, Resumed, Suspended};
use cuda_vmm::{Code, Error};

use crate::heap::NotGiven;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Driver(#[from] Error),
    #[error("no piece of {asked} bytes on device {device}: {committed} bytes are committed, {used} of them in use: {error}")]
    OutOfMemory {
        asked: usize,
        device: u32,
        committed: usize,
        used: usize,
        error: Error,
    },
    #[error("no piece of {asked} bytes on device {device}: no such row of addresses is left of the {reserved} bytes that are reserved, {used} of them in use")]
    NoAddresses {
        asked: usize,
        device: u32,
        reserved: usize,
        used: usize,
    },
    #[error("no memory is given out while it is suspended")]
    Asleep,
    #[error("it is suspended already")]
    AlreadyAsleep,
    #[error("it is not suspended: there is nothing to resume")]
    Awake,
    #[error("{0} is no size")]
    Size(isize),
    #[error("{0} is no device's number")]
    Device(i32),
    #[error("{0} names no count: 0 is what is committed, 1 what is retained, 2 what is in use")]
    Count(i32),
    #[error("{address:#x} with {size} bytes cannot be freed on device {device}: {why}")]
    NotGiven {
        address: u64,
        size: usize,
        device: u32,
        why: NotGiven,
    },
    #[error("waiting for device {device}: {code}")]
    Wait { device: u32, code: Code },
    #[error("suspending: {0}")]
    Suspending(Box<Incomplete<Suspended>>),
    #[error("suspending: {suspending}; and what was suspended could not be resumed: {resuming}")]
    HalfAsleep {
        suspending: Box<Incomplete<Suspended>>,
        resuming: Box<Incomplete<Resumed>>,
    },
    #[error("resuming: {0}")]
    Resuming(Box<Incomplete<Resumed>>),
    #[error("panicked: {0}")]
    Panicked(String),
    #[error("an earlier call panicked, so that what is in use is not known any more")]
    Broken,
}
