//! From the producer's memory to the consumer's, in another process: through the pool, and through host memory.
//!
//! `scripts/foreign/pool_peer.py` measures SGLang's pool by the same definitions:
//!
//! | | |
//! |---|---|
//! | start | the source is filled and the device is synchronised; then the producer reads `CLOCK_MONOTONIC`, and publishes |
//! | has the ticket | the consumer reads the same clock when the ticket's bytes are received and decoded |
//! | usable | it reads the clock when the bytes are in device memory of its own, waited for, and the slice is acknowledged |
//!
//! Both processes have a context of their own on the same GPU, and spin on the mailbox. After each round, not timed, the
//! consumer's bytes are checked, and one recycle pass must free the slice. Through host memory it is a copy to a shared
//! block and a wait, a message, and a copy from it and a wait; the block is pageable, or registered in both processes.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::process::{Child, Command};

use cuda_vmm::pool::{Consumer, Payload, Publisher, Source};
use cuda_vmm::wire::Name;
use cuda_vmm::Reservation;

use crate::mailbox::{Mailbox, Shared, BLOCK};
use crate::report::Report;
use crate::rig::{ok, plain, serve, soon, Raw};
use crate::turns::{in_turns, median};
use crate::{named, Bench};

/// The role of the other process.
pub(crate) const CONSUMER: &str = "pool-consumer";

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

/// What a message begins with.
const TICKET: u8 = 0;
const PAGEABLE: u8 = 1;
const REGISTERED: u8 = 2;
const END: u8 = 3;

/// Nanoseconds of the clock that both processes share.
fn clock() -> u64 {
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    let got = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(got, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The second block is registered.
fn register(raw: &Raw, shared: &Shared) {
    let block = shared.block(1) as *mut std::ffi::c_void;
    ok(unsafe { raw.calls.cuMemHostRegister_v2(block, BLOCK, 0) });
}

fn unregister(raw: &Raw, shared: &Shared) {
    let block = shared.block(1) as *mut std::ffi::c_void;
    ok(unsafe { raw.calls.cuMemHostUnregister(block) });
}

/// The producer, and its hold on the consumer's process.
struct Producer<'a> {
    raw: Raw,
    source: &'a Reservation,
    shared: Shared,
    to_consumer: Mailbox,
    from_consumer: Mailbox,
    process: Child,
    value: u8,
}

/// Of one round, in microseconds from the start.
#[derive(Clone, Copy)]
struct Arrived {
    received: f64,
    usable: f64,
}

impl Producer<'_> {
    /// One round: `publish` sends a message.
    fn round(&mut self, size: usize, publish: impl FnOnce(&mut Self)) -> Arrived {
        self.value = self.value % 250 + 1;
        self.raw.fill(self.source.base(), self.value, size);
        let start = clock();
        publish(self);
        let process = &mut self.process;
        let is_alive = || matches!(process.try_wait(), Ok(None));
        let answer = self.from_consumer.receive(is_alive);
        let time = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().expect("8 bytes"));
        let since = |then| (then - start) as f64 / 1000.0;
        assert_eq!(answer[16..], [self.value; 2], "the bytes at the consumer");
        Arrived {
            received: since(time(0)),
            usable: since(time(8)),
        }
    }

    fn through_pool(&mut self, publisher: &Publisher, size: usize) -> Arrived {
        let view = self.source.view(0, size).expect("mapped");
        let payload = Payload::bytes(Source::view(&view));
        self.round(size, |this| {
            let published = publisher.publish(&payload).expect("publish");
            let size = (size as u64).to_le_bytes();
            let message = [&[TICKET][..], &size, published.ticket()];
            this.to_consumer.send(&message);
        })
    }

    fn through_host(&mut self, way: u8, size: usize) -> f64 {
        let arrived = self.round(size, |this| {
            let Raw { calls, stream } = &this.raw;
            let block = this.shared.block(usize::from(way == REGISTERED)) as *mut _;
            let from = this.source.base();
            ok(unsafe { calls.cuMemcpyDtoHAsync_v2(block, from, size, *stream) });
            this.raw.wait();
            this.to_consumer
                .send(&[&[way], &(size as u64).to_le_bytes()]);
        });
        arrived.usable
    }
}

pub(crate) fn compare(bench: &Bench, report: &mut Report) {
    let (pool, name) = serve(bench, 64 << 20, 1 << 16);
    let source = plain(bench, BLOCK);
    let shared = Shared::create();
    let raw = Raw::new(&bench.driver);
    register(&raw, &shared);
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args([CONSUMER, &name, &shared.descriptor.to_string()]);
    let producer = RefCell::new(Producer {
        raw,
        source: &source,
        to_consumer: shared.mailbox(0),
        from_consumer: shared.mailbox(1),
        shared,
        process: command.spawn().expect("this program again"),
        value: 0,
    });
    {
        let mut producer = producer.borrow_mut();
        let Producer {
            from_consumer,
            process,
            ..
        } = &mut *producer;
        let greeting = from_consumer.receive(|| matches!(process.try_wait(), Ok(None)));
        assert_eq!(greeting, b"ready");
    }
    let (ready, behind) = (pool.publisher().with_ready_sources(), pool.publisher());
    for size in SIZES {
        let received = RefCell::new([Vec::new(), Vec::new()]);
        let copied = RefCell::new(Vec::new());
        let through = |which: usize, publisher: &Publisher| {
            let arrived = producer.borrow_mut().through_pool(publisher, size);
            assert_eq!(pool.recycle(), 1);
            received.borrow_mut()[which].push(arrived.received);
            copied.borrow_mut().push(arrived.usable - arrived.received);
            arrived.usable
        };
        let host = |way| producer.borrow_mut().through_host(way, size);
        let [by_ready, by_behind, pageable, registered] = in_turns(
            bench.pick(501, 51),
            [
                &mut || through(0, &ready),
                &mut || through(1, &behind),
                &mut || host(PAGEABLE),
                &mut || host(REGISTERED),
            ],
        );
        let [has_ready, has_behind] = received.into_inner().map(median);
        let size = named(size);
        let name = format!("between processes {size}");
        report.alone(
            format!("{name}, has the ticket, behind the default stream"),
            has_behind,
        );
        report.alone(format!("{name}, has the ticket, sources ready"), has_ready);
        report.alone(
            format!("{name}, from the ticket to usable"),
            median(copied.into_inner()),
        );
        for (order, ours) in [
            ("behind the default stream", by_behind),
            ("sources ready", by_ready),
        ] {
            for (kind, theirs) in [("pageable", pageable), ("registered", registered)] {
                report.faster(
                    format!("{name}, usable, {order}, against {kind} host memory"),
                    ours,
                    theirs,
                    None,
                );
            }
        }
    }
    let mut producer = producer.into_inner();
    producer.to_consumer.send(&[&[END]]);
    assert!(producer.process.wait().expect("the consumer").success());
    unregister(&producer.raw, &producer.shared);
    drop(producer);
    pool.close(soon()).expect("close");
    source.close().expect("close");
}

/// The other process. The kernel ends it when its parent ends.
pub(crate) fn consume(bench: &Bench, name: &str, descriptor: RawFd) {
    let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    assert_eq!(set, 0);
    let shared = Shared::open(descriptor);
    let (mut inbox, mut outbox) = (shared.mailbox(0), shared.mailbox(1));
    let consumer = Consumer::attach(&bench.device, &Name::new(name), 0).expect("attach");
    let mut target = plain(bench, BLOCK);
    let raw = Raw::new(&bench.driver);
    register(&raw, &shared);
    let mut bytes = vec![0; BLOCK];
    outbox.send(&[b"ready"]);
    loop {
        let message = inbox.receive(|| true);
        let (way, rest) = message.split_first().expect("a kind");
        if *way == END {
            break;
        }
        let (size, ticket) = rest.split_at(8);
        let size = u64::from_le_bytes(size.try_into().expect("8 bytes")) as usize;
        let (received, usable);
        if *way == TICKET {
            let ticket = consumer.decode(ticket).expect("a ticket");
            received = clock();
            let copied = ticket.open().expect("open").copy_to(0, &mut target, 0);
            copied.expect("copy").finish().expect("finish");
            usable = clock();
        } else {
            received = clock();
            let block = shared.block(usize::from(*way == REGISTERED)) as *const _;
            let Raw { calls, stream } = &raw;
            ok(unsafe { calls.cuMemcpyHtoDAsync_v2(target.base(), block, size, *stream) });
            raw.wait();
            usable = clock();
        }
        target.read(0, &mut bytes[..size]).expect("read");
        let least = *bytes[..size].iter().min().expect("bytes");
        let most = *bytes[..size].iter().max().expect("bytes");
        let times = [received.to_le_bytes(), usable.to_le_bytes()];
        outbox.send(&[&times[0], &times[1], &[least, most]]);
    }
    unregister(&raw, &shared);
    drop(raw);
    target.close().expect("close");
    consumer.close().expect("no lease is open");
}
