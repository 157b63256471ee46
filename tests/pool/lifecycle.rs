//! From the first publish to the end.

use std::time::{Duration, Instant};

use cuda_vmm::pool::{Consumer, Payload, Pool, PoolError, Source};
use cuda_vmm::sim::Simulation;
use cuda_vmm::wire::Name;
use cuda_vmm::{Access, AllocationProps, Driver, Reservation};

const G: usize = 2 << 20;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn bytes_go_to_two_consumers_and_come_back() {
    let sim = Simulation::new();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let name = Name::new(format!("pool lifecycle {}", std::process::id()));
    let pool = Pool::builder(&device, 2 * G + 5, 2).serve(&name).unwrap();
    assert_eq!(pool.size(), 2 * G);
    let publisher = pool.publisher();
    let one = Consumer::attach(&device, &name, 0).unwrap();
    let two = Consumer::attach(&device, &name, 1).unwrap();

    let published = publisher
        .publish(&Payload::bytes(Source::host(b"features")))
        .unwrap();
    let counters = pool.counters();
    assert_eq!((counters.busy, counters.published), (256, 1));

    let lease = one.open(published.ticket()).unwrap();
    let mut bytes = [0; 8];
    lease.read(0, &mut bytes).unwrap().finish().unwrap();
    assert_eq!(&bytes, b"features");
    assert_eq!(pool.counters().consumers[0].held, 0);
    assert_eq!(pool.counters().consumers[1].held, 1);

    let props = AllocationProps::on(&device);
    let mut target = Reservation::builder(G)
        .access(&device, Access::ReadWrite)
        .reserve(&driver)
        .unwrap();
    target.map(0, G, &props).unwrap();
    let lease = two.open(published.ticket()).unwrap();
    lease.copy_to(0, &mut target, 512).unwrap().acknowledge();
    let mut bytes = [0; 8];
    target.read(512, &mut bytes).unwrap();
    assert_eq!(&bytes, b"features");
    let counters = pool.counters();
    assert_eq!((counters.busy, counters.acknowledged), (0, 2));

    assert!(matches!(
        two.open(published.ticket()),
        Err(PoolError::AlreadyAcknowledged { slot: 0 })
    ));
    target.close().unwrap();
    one.close().unwrap();
    two.close().unwrap();
    pool.close(soon()).unwrap();
    assert!(matches!(
        publisher.publish(&Payload::bytes(Source::host(b"late"))),
        Err(PoolError::Closing)
    ));
    drop((publisher, device, driver, props));
    assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
}
