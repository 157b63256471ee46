//! Memory shared between processes: one fills a span of several chunks, a second maps it to read and verifies it, a
//! third tries to write to it and is refused.
//!
//! The second and the third are this program, started again. Runs on this machine's GPU; without one on simulated
//! drivers, one a process, which it says: the memory between them is shared all the same. It ends with a failure if one
//! claim does not hold.

mod machine;

use std::error::Error as StdError;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, mem, process};

use cuda_vmm::share::wire::{fetch, Name, Parcel, Server};
use cuda_vmm::share::SpanImport;
use cuda_vmm::{Access, AllocationProps, Error, HandleType, Reservation};
use machine::Machine;

const CHUNKS: usize = 4;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    let ran = match words.get(1..).unwrap_or_default() {
        [role, name] if role == "reader" => read(&Name::new(name)),
        [role, name] if role == "writer" => write(&Name::new(name)),
        _ => make().map(|()| println!("share: all as it should be")),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("share: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The first process: memory, what is in it, and a server that hands it out.
fn make() -> Outcome {
    let machine = Machine::find()?;
    println!("driver: {machine}");
    let device = machine.driver.device(0)?;

    // How memory can be shared is settled when it is created.
    let props = AllocationProps::on(&device).shareable_as(HandleType::PosixFd.into());
    let chunk = props.granularity()?.recommended();
    let mut kv = Reservation::builder((CHUNKS + 1) * chunk)
        .access(&device, Access::ReadWrite)
        .reserve(&machine.driver)?;
    // The chunk in the middle stays a hole. Holes are shared as such.
    for at in offsets(chunk) {
        kv.map(at, chunk, &props)?;
        kv.write(at, &pattern(at, chunk))?;
    }
    println!("maker {}: wrote\n{kv}", process::id());

    // Bytes that say what lies where, and a file descriptor for each allocation. They pin the memory by themselves.
    let (bytes, fds, _) = kv
        .export_span(0, kv.size(), HandleType::PosixFd, Access::Read)?
        .into_parts();
    let name = format!("cuda-vmm example {}", process::id());
    let server = Server::builder(Parcel::new(bytes, fds)).serve(&Name::new(&name))?;
    for role in ["reader", "writer"] {
        let program = env::current_exe()?;
        let ended = Command::new(program).args([role, &name]).status()?;
        verify(&format!("the {role} ended well"), ended.success())?;
    }
    let report = server.stop();
    verify(
        "two had it, and one attempt was refused",
        (report.served, report.refused) == (2, 1),
    )?;

    let mut back = vec![0; chunk];
    kv.read(0, &mut back)?;
    verify("what was written is still there", back == pattern(0, chunk))?;
    Ok(kv.close()?)
}

/// The second process: a span that can only be read, by its type.
fn read(name: &Name) -> Outcome {
    let machine = Machine::find()?;
    let device = machine.driver.device(0)?;

    let mut received = fetch(name, Instant::now() + Duration::from_secs(30))?;
    let parcel = mem::take(received.parcel_mut());
    let span =
        SpanImport::new(&parcel.bytes, parcel.fds)?.attach_read_only(&machine.driver, [&device])?;
    // The memory is held now, whatever becomes of its maker. Had this failed, dropping `received` would have told it.
    received.accept()?;
    println!("reader {}: attached\n{span}", process::id());

    let chunk = span.size() / (CHUNKS + 1);
    let mut bytes = vec![0; chunk];
    for at in offsets(chunk) {
        span.read(at, &mut bytes)?;
        verify("a chunk is as written", bytes == pattern(at, chunk))?;
    }
    Ok(span.close()?)
}

/// The third process: what is offered for reading can neither be had for writing nor written to.
fn write(name: &Name) -> Outcome {
    let machine = Machine::find()?;
    let device = machine.driver.device(0)?;
    println!("writer {}:", process::id());

    let attach = |access| -> Outcome<Result<Reservation, Error>> {
        let mut received = fetch(name, Instant::now() + Duration::from_secs(30))?;
        let parcel = mem::take(received.parcel_mut());
        let attached = SpanImport::new(&parcel.bytes, parcel.fds)?
            .attach(&machine.driver, [(&device, access)]);
        match &attached {
            Ok(_) => drop(received.accept()?),
            Err(error) => received.refuse(&error.to_string()),
        }
        Ok(attached)
    };
    match attach(Access::ReadWrite)? {
        Err(error @ Error::MoreThanOffered { .. }) => println!("  ok: refused: {error}"),
        other => return Err(format!("not refused as it should be: {other:?}").into()),
    }
    let mut span = attach(Access::Read)??;
    match span.write(0, b"mine") {
        Err(error @ Error::NoAccess { .. }) => println!("  ok: refused: {error}"),
        other => return Err(format!("not refused as it should be: {other:?}").into()),
    }
    Ok(span.close()?)
}

fn offsets(chunk: usize) -> impl Iterator<Item = usize> {
    let places = (0..=CHUNKS).filter(|&place| place != CHUNKS / 2);
    places.map(move |place| place * chunk)
}

/// Bytes that are others at each place.
fn pattern(at: usize, size: usize) -> Vec<u8> {
    (at..at + size).map(|byte| (byte % 251) as u8).collect()
}

fn verify(claim: &str, holds: bool) -> Outcome {
    if !holds {
        return Err(format!("not so: {claim}").into());
    }
    println!("  ok: {claim}");
    Ok(())
}
