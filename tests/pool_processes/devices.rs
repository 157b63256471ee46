//! A consumer with another device than the producer's makes no context on the producer's device.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use cuda_vmm::pool::{Consumer, Pool};
use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::wire::Name;
use cuda_vmm::{Access, AllocationProps, Driver, Reservation};

use crate::scene::*;
use crate::side::Side;
use crate::surroundings::{soon, Other};
use crate::{Case, Part};

pub const SIMULATED: &[Case] = &[(
    "devices::no_context_on_the_producers_device",
    no_context_there,
)];

pub const PARTS: &[Part] = &[("reads_on_device_1", |_, words| reads_on_device_1(words))];

const LENGTH: usize = 70_000;

fn two_devices() -> (Simulation, Driver) {
    let devices = [SimDevice::new(), SimDevice::new()];
    let sim = Simulation::builder().devices(devices).build().unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    (sim, driver)
}

fn no_context_there(side: &Side) {
    let (sim, driver) = two_devices();
    let device = driver.device(0).unwrap();
    let name = name("devices");
    let pool = Pool::builder(&device, 2 << 20, 1)
        .serve(&Name::new(&name))
        .unwrap();
    let role = format!("reads_on_device_1|{name}");
    let mut consumer = Other::with_stdin(&side.role(&role), Stdio::piped());
    assert_eq!(consumer.line(), "attached, contexts [0, 0]");
    for (sequence, step) in ["read", "copied", "in the caller's order"]
        .into_iter()
        .enumerate()
    {
        let published = publish(&pool.publisher(), sequence as u64, LENGTH);
        let stdin = consumer.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{}", to_hex(published.ticket())).unwrap();
        assert_eq!(consumer.line(), format!("{step}, contexts [0, 1]"));
        counters_once(&pool, Duration::from_secs(1), |it| it.busy == 0);
    }
    assert_eq!(consumer.ends(), "closed, contexts [0, 1]");
    let counters = pool.close(soon(5)).unwrap();
    assert_eq!(counters.acknowledged, 3);
    is_idle(&counters);
    assert_eq!(sim.snapshot().retained_contexts, [1, 0]);
    drop((device, driver));
    assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
}

fn reads_on_device_1(words: &[&str]) {
    let (sim, driver) = two_devices();
    let device = driver.device(1).unwrap();
    let says = |what: &str| println!("{what}, contexts {:?}", sim.snapshot().retained_contexts);
    let consumer = Consumer::attach(&device, &Name::new(words[0]), 0).unwrap();
    says("attached");

    let lease = consumer.open(&from_hex(&told())).unwrap();
    checked(lease, 0).finish().unwrap();
    says("read");

    let mut target = Reservation::builder(2 << 20)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    target
        .map(0, 2 << 20, &AllocationProps::on(&device))
        .unwrap();
    let is_there = |target: &Reservation, sequence| {
        let mut bytes = vec![0; LENGTH];
        target.read(0, &mut bytes).unwrap();
        assert!(is_payload(sequence, &bytes));
    };
    let lease = consumer.open(&from_hex(&told())).unwrap();
    let lease = lease.copy_to(0, &mut target, 0).unwrap();
    lease.wait_until(soon(5)).unwrap();
    lease.acknowledge();
    is_there(&target, 1);
    says("copied");

    let lease = consumer.open(&from_hex(&told())).unwrap();
    // The default stream of device 1.
    let lease = unsafe { lease.on_stream(&device, std::ptr::null_mut()) };
    lease.copy_to(0, &mut target, 0).unwrap().finish().unwrap();
    is_there(&target, 2);
    says("in the caller's order");

    target.close().unwrap();
    consumer.close().unwrap();
    says("closed");
    assert_eq!(sim.misuses(), []);
    assert!(sim.snapshot().holds_no_memory());
    let left = sim.snapshot();
    assert_eq!((left.streams, left.events), (0, 0));
}
