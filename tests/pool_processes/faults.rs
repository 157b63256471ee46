//! Every call of the whole way made to fail, the driver's and the system's, on either side: serve, attach, publish, open,
//! read, copy, acknowledge, let go.
//!
//! One process plays the side that fails, another the one that does not. After each failure the other side goes on,
//! nothing is left on either side, and the same thing done again works.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Attach, Consumer, Payload, Pool, PoolError, Source, Unclosed};
use cuda_vmm::sim::{Fault, Snapshot};
use cuda_vmm::sys::CUresult;
use cuda_vmm::wire::faults;
use cuda_vmm::wire::{Name, WireError};
use cuda_vmm::{Access, Error, Reservation};

use crate::scene::*;
use crate::side::Side;
use crate::surroundings::{open_fds, soon, Other};
use crate::{Case, Part};

/// The driver's calls can be made to fail on the simulated driver alone.
pub const SIMULATED: &[Case] = &[
    ("faults::driver_calls_of_a_consumer", consumer_driver),
    ("faults::driver_calls_of_the_producer", producer_driver),
];

pub const CASES: &[Case] = &[
    ("faults::system_calls_of_a_consumer", consumer_system),
    ("faults::system_calls_of_the_producer", producer_system),
];

pub const PARTS: &[Part] = &[("honest_producer", produces), ("honest_consumer", consumes)];

const CODES: [CUresult; 3] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

const ERRNOS: [i32; 3] = [libc::EIO, libc::EMFILE, libc::EPIPE];

const LENGTH: usize = 6000;

/// All that this side has.
type State = (usize, Option<Snapshot>);

fn state(side: &Side) -> State {
    let snapshot = side.sim.as_ref().map(|sim| {
        let mut snapshot = sim.snapshot();
        // A context stays from its first use on.
        snapshot.retained_contexts.clear();
        snapshot
    });
    (open_fds(), snapshot)
}

/// Nothing is left that was not there before, once what the driver would not take is reclaimed.
#[track_caller]
fn leaves(side: &Side, before: &State, what: &str) {
    let until = soon(5);
    loop {
        side.driver.reclaim().unwrap();
        // The simulated driver closes the descriptor of exported memory at a call after the importer let go.
        side.free();
        let now = state(side);
        if now == *before {
            return assert_eq!(side.driver.quarantined(), 0, "{what}");
        }
        assert!(
            Instant::now() < until,
            "{what}: {} descriptors of {}\n{}\ninstead of\n{}",
            now.0,
            before.0,
            now.1.map_or(String::new(), |it| it.to_string()),
            before.1.as_ref().map_or(String::new(), ToString::to_string),
        );
    }
}

/// The other process.
struct Honest(Other);

impl Honest {
    fn start(side: &Side, part: &str, name: &str) -> Honest {
        let role = side.role(&format!("{part}|{name}"));
        let mut other = Other::with_stdin(&role, Stdio::piped());
        assert_eq!(other.line(), "here");
        Honest(other)
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.0.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.0.line()
    }

    fn ends(mut self) {
        drop(self.0.child.stdin.take());
        assert_eq!(self.0.ends(), "");
    }
}

/// The error is that of a call that answered this.
fn is_its(error: &Error, code: CUresult) -> bool {
    match error.code() {
        Some(found) => found == code.into(),
        None if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY => error.is_out_of_memory(),
        // What a map answers for memory of another size.
        None => {
            let unsupported = code == CUresult::CUDA_ERROR_NOT_SUPPORTED;
            unsupported && matches!(error, Error::WrongSize { .. })
        }
    }
}

// ---- the consumer fails ----

/// Serves a pool of two consumers, with the second one in this process, and does what it is told.
fn produces(side: &Side, words: &[&str]) {
    let pool = serve(side, words[0], 1, 2);
    let witness = attach(side, words[0], 1);
    println!("here");
    let mut sequence = 0;
    loop {
        match told().as_str() {
            "publish" => {
                sequence += 1;
                let published = publish(&pool.publisher(), sequence, LENGTH);
                checked(witness.open(published.ticket()).unwrap(), sequence)
                    .finish()
                    .unwrap();
                println!("{sequence} {}", to_hex(published.ticket()));
            }
            // Once the consumer is gone.
            "rest" => {
                let gone = Duration::from_secs(10);
                is_idle(&counters_once(&pool, gone, |it| {
                    !it.consumers[0].is_attached && it.busy == 0
                }));
                println!("idle");
            }
            "" => break,
            other => panic!("{other}"),
        }
    }
    witness.close().unwrap();
    is_idle(&pool.close_now(soon(5)).unwrap());
}

/// What a consumer does once, as far as it comes.
fn consume(side: &Side, name: &str, producer: &mut Honest) -> Result<(), PoolError> {
    let attach = Attach::new(&Name::new(name), 0).by(soon(20));
    let consumer = attach.attach(&side.device)?;
    let consumed = read_and_copy(side, &consumer, producer);
    assert_eq!(consumer.leases(), 0);
    consumer.close().unwrap();
    consumed
}

fn read_and_copy(side: &Side, consumer: &Consumer, producer: &mut Honest) -> Result<(), PoolError> {
    let mut next = || {
        let said = producer.ask("publish");
        let (sequence, ticket) = said.split_once(' ').unwrap();
        (sequence.parse::<u64>().unwrap(), from_hex(ticket))
    };
    let (sequence, ticket) = next();
    let mut bytes = vec![0; LENGTH];
    consumer.open(&ticket)?.read(0, &mut bytes)?.finish()?;
    assert!(is_payload(sequence, &bytes));

    let mut target = Reservation::builder(side.g)
        .access(&side.device, Access::ReadWrite)
        .reserve(&side.driver)?;
    let copied = copy(side, consumer, &mut target, next());
    target.close().map_err(|failed| {
        let error = failed.error;
        failed.reservation.into_inner().close().unwrap();
        PoolError::Memory(error)
    })?;
    copied
}

fn copy(
    side: &Side,
    consumer: &Consumer,
    target: &mut Reservation,
    (sequence, ticket): (u64, Vec<u8>),
) -> Result<(), PoolError> {
    target.map(0, side.g, &side.props())?;
    let lease = consumer.open(&ticket)?.copy_to(0, target, 0)?;
    lease.wait_until(soon(5))?;
    lease.acknowledge();
    let mut bytes = vec![0; LENGTH];
    target.read(0, &mut bytes)?;
    assert!(is_payload(sequence, &bytes));
    Ok(())
}

fn consumer_driver(side: &Side) {
    let sim = side.sim.as_ref().unwrap();
    let name = name("driver calls of a consumer");
    let mut producer = Honest::start(side, "honest_producer", &name);
    let before = state(side);
    let (mut tried, mut failed) = (0, 0);
    for code in CODES {
        for nth in 1.. {
            let fault = Fault::any_nth(nth).code(code);
            sim.inject(fault).unwrap();
            let went = consume(side, &name, &mut producer);
            if !sim.pending_faults().is_empty() {
                sim.clear_faults();
                went.unwrap();
                assert_eq!(producer.ask("rest"), "idle");
                break;
            }
            let what = format!("{fault}: {went:?}");
            match &went {
                // Some failures have another way around them: an acknowledgement, what is let go.
                Ok(()) => {}
                Err(PoolError::Memory(error)) => {
                    assert!(is_its(error, code), "{what}");
                    failed += 1;
                }
                Err(_) => panic!("{what}"),
            }
            assert_eq!(producer.ask("rest"), "idle", "{what}");
            leaves(side, &before, &what);
            consume(side, &name, &mut producer).unwrap_or_else(|_| panic!("again after {what}"));
            assert_eq!(producer.ask("rest"), "idle", "{what}");
            leaves(side, &before, &what);
            tried += 1;
        }
    }
    assert!(failed > 3 * 10, "{failed} of {tried}");
    producer.ends();
    println!("{tried} failing driver calls, {failed} of them reported");
}

fn consumer_system(side: &Side) {
    let name = name("system calls of a consumer");
    let mut producer = Honest::start(side, "honest_producer", &name);
    let before = state(side);
    let (mut tried, mut reported) = (0, 0);
    for errno in ERRNOS {
        for index in 0.. {
            faults::start(Some((index, errno)));
            let went = consume(side, &name, &mut producer);
            let calls = faults::stop();
            let Some(call) = calls.get(index) else {
                went.unwrap();
                break;
            };
            let what = format!("call {index}, {call:?}, with {errno}: {went:?}");
            match &went {
                Ok(()) => {}
                Err(PoolError::Wire(error)) => {
                    reported += 1;
                    assert!(is_of(error, errno), "{what}");
                }
                // The session could not be looked at.
                Err(PoolError::ProducerGone) => reported += 1,
                Err(_) => panic!("{what}"),
            }
            assert_eq!(producer.ask("rest"), "idle", "{what}");
            leaves(side, &before, &what);
            consume(side, &name, &mut producer).unwrap_or_else(|_| panic!("again after {what}"));
            assert_eq!(producer.ask("rest"), "idle", "{what}");
            leaves(side, &before, &what);
            tried += 1;
        }
    }
    assert!(reported > 3 * 6, "{reported} of {tried}");
    producer.ends();
    println!("{tried} failing system calls, {reported} of them reported");
}

/// The error is that call's; a broken pipe means that the other side is gone.
fn is_of(error: &WireError, errno: i32) -> bool {
    match error {
        WireError::Io { error, .. } => error.raw_os_error() == Some(errno),
        WireError::Vanished { .. } => errno == libc::EPIPE,
        _ => false,
    }
}

// ---- the producer fails ----

/// A consumer that attaches and reads what it is told, again and again.
fn consumes(side: &Side, words: &[&str]) {
    println!("here");
    let before = open_fds();
    loop {
        let line = told();
        if line.is_empty() {
            break;
        }
        let name = Name::new(words[0]);
        match Attach::new(&name, 0).by(soon(20)).attach(&side.device) {
            Err(error) => println!("no: {error}"),
            Ok(consumer) => {
                println!("attached");
                for sequence in 0.. {
                    match told().as_str() {
                        "close" => break,
                        "gone?" => {
                            let until = soon(5);
                            while consumer.is_connected() && Instant::now() < until {
                                std::thread::yield_now();
                            }
                            println!("{}", !consumer.is_connected());
                        }
                        ticket => match consumer.open(&from_hex(ticket)) {
                            Ok(lease) => {
                                checked(lease, sequence).finish().unwrap();
                                println!("read");
                            }
                            Err(error) => println!("no: {error}"),
                        },
                    }
                }
                consumer.close().unwrap();
                println!("closed");
            }
        }
        side.fds_are_back(before);
    }
}

/// What became of a round.
#[derive(Debug)]
struct Went {
    here: Result<(), PoolError>,
    /// What the consumer said first, if it was asked.
    there: Option<String>,
}

/// Serves, publishes to the consumer, closes.
fn produce(side: &Side, name: &str, consumer: &mut Honest) -> Went {
    let serve = || Pool::builder(&side.device, side.g, 1).serve(&Name::new(name));
    let pool = match serve() {
        Ok(pool) => pool,
        Err(error) => {
            let here = Err(error);
            return Went { here, there: None };
        }
    };
    let there = consumer.ask("attach");
    let attached = there == "attached";
    let mut here = Ok(());
    for sequence in 0..2 {
        let bytes = filled(sequence, LENGTH);
        let payload = Payload::bytes(Source::host(&bytes));
        let published = match sequence {
            0 => pool.publisher().publish(&payload),
            _ => {
                let begun = pool.publisher().with_ready_sources().begin(&[payload]);
                let finished = begun.and_then(|begun| begun.finish());
                finished.map(|mut all| all.pop().unwrap())
            }
        };
        match published {
            Ok(published) if attached => {
                let said = consumer.ask(&to_hex(published.ticket()));
                if said != "read" {
                    assert!(said.starts_with("no: the producer "), "{said}");
                    // The service never heard that the consumer accepted, so that the slice is held for the next one.
                    pool.publisher().cancel(published.id()).unwrap();
                }
            }
            Ok(published) => {
                pool.publisher().cancel(published.id()).unwrap();
            }
            Err(error) => {
                here = here.and(Err(error));
                // The ticket numbers go on.
                break;
            }
        }
    }
    let closed = match pool.close(soon(5)) {
        Ok(counters) => {
            is_idle(&counters);
            Ok(())
        }
        Err(unclosed) => {
            let Unclosed { error, pool, .. } = *unclosed;
            is_idle(&pool.close(soon(5)).unwrap());
            Err(error)
        }
    };
    if attached {
        assert_eq!(consumer.ask("gone?"), "true");
        assert_eq!(consumer.ask("close"), "closed");
    }
    Went {
        here: here.and(closed),
        there: Some(there),
    }
}

fn producer_driver(side: &Side) {
    let sim = side.sim.as_ref().unwrap();
    let name = name("driver calls of the producer");
    let mut consumer = Honest::start(side, "honest_consumer", &name);
    let before = state(side);
    let mut tried = 0;
    let mut reported = 0;
    for code in CODES {
        for nth in 1.. {
            let fault = Fault::any_nth(nth).code(code);
            sim.inject(fault).unwrap();
            let went = produce(side, &name, &mut consumer);
            if !sim.pending_faults().is_empty() {
                sim.clear_faults();
                went.here.unwrap();
                break;
            }
            let what = format!("{fault}: {went:?}");
            match &went.here {
                Ok(()) => {}
                Err(PoolError::Memory(error) | PoolError::Quarantined { error, .. }) => {
                    assert!(is_its(error, code), "{what}");
                    reported += 1;
                }
                Err(_) => panic!("{what}"),
            }
            // A driver call concerns no consumer.
            assert!(
                matches!(went.there.as_deref(), None | Some("attached")),
                "{what}"
            );
            leaves(side, &before, &what);
            let again = produce(side, &name, &mut consumer);
            again
                .here
                .unwrap_or_else(|error| panic!("again after {what}: {error}"));
            leaves(side, &before, &what);
            tried += 1;
        }
    }
    assert!(reported > 3 * 10, "{reported} of {tried}");
    consumer.ends();
    println!("{tried} failing driver calls, {reported} of them reported");
}

fn producer_system(side: &Side) {
    let name = name("system calls of the producer");
    let mut consumer = Honest::start(side, "honest_consumer", &name);
    let before = state(side);
    let (mut tried, mut refused) = (0, 0);
    for errno in ERRNOS {
        for index in 0.. {
            faults::start(Some((index, errno)));
            let went = produce(side, &name, &mut consumer);
            let calls = faults::stop();
            let Some(call) = calls.get(index) else {
                went.here.unwrap();
                break;
            };
            let what = format!("call {index}, {call:?}, with {errno}: {went:?}");
            match (&went.here, went.there.as_deref()) {
                (Err(PoolError::Wire(error)), None) => assert!(is_of(error, errno), "{what}"),
                // The connection broke at any time.
                (Ok(()) | Err(PoolError::NoConsumer { consumers: 1 }), Some("attached")) => {}
                // That client alone. The pool goes on.
                (Ok(()), Some(said)) => {
                    assert!(said.starts_with("no: "), "{what}");
                    refused += 1;
                }
                _ => panic!("{what}"),
            }
            leaves(side, &before, &what);
            let again = produce(side, &name, &mut consumer);
            again
                .here
                .unwrap_or_else(|error| panic!("again after {what}: {error}"));
            assert_eq!(again.there.as_deref(), Some("attached"), "{what}");
            leaves(side, &before, &what);
            tried += 1;
        }
    }
    assert!(tried > 3 * 15 && refused > 3 * 3, "{refused} of {tried}");
    consumer.ends();
    println!("{tried} failing system calls, {refused} of them cost a client its attach");
}
