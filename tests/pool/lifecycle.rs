//! From the first publish to the end.

use cuda_vmm::pool::{Payload, Pool, PoolError, Source};

use crate::ground::{fails, publish, read, soon, until, Ground};
use crate::Case;

pub const CASES: &[Case] = &[(
    "bytes go to two consumers and come back",
    bytes_go_to_two_consumers_and_come_back,
)];

fn bytes_go_to_two_consumers_and_come_back(ground: &Ground) {
    let g = ground.g;
    let pool = Pool::builder(ground.producer.device(), 2 * g + 5, 2)
        .serve(&ground.name)
        .unwrap();
    assert_eq!(pool.size(), 2 * g);
    let publisher = pool.publisher();
    let (one, two) = (ground.attach(0), ground.attach(1));

    let published = publish(&publisher, b"features");
    let counters = pool.counters();
    assert_eq!((counters.busy, counters.published), (256, 1));

    assert_eq!(read(&one, published.ticket()), b"features");
    assert_eq!(pool.counters().consumers[0].held, 0);
    assert_eq!(pool.counters().consumers[1].held, 1);

    let mut target = ground.consumer.memory(g);
    let lease = two.open(published.ticket()).unwrap();
    lease.copy_to(0, &mut target, 512).unwrap().acknowledge();
    // A device acknowledges behind its copy.
    until(|| pool.counters().busy == 0);
    let mut bytes = [0; 8];
    target.read(512, &mut bytes).unwrap();
    assert_eq!(&bytes, b"features");
    let counters = pool.counters();
    assert_eq!((counters.busy, counters.acknowledged), (0, 2));

    fails(
        two.open(published.ticket()),
        PoolError::AlreadyAcknowledged { slot: 0 },
    );
    target.close().unwrap();
    one.close().unwrap();
    two.close().unwrap();
    pool.close(soon()).unwrap();
    fails(
        publisher.publish(&Payload::bytes(Source::host(b"late"))),
        PoolError::Closing,
    );
}
