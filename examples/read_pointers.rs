//! The reader of what `examples/share_pointers` serves, in a process of its own.
//!
//!     read_pointers SOCKET LEAD SIZE counting|BYTE
//!
//! Attaches the span for reading, and verifies SIZE bytes from LEAD on: they count up to 250 and begin again at 0, or
//! are all that byte. `scripts/foreign/pytorch.py` starts it.

mod machine;

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, mem};

use cuda_vmm::share::wire::{fetch, Name};
use cuda_vmm::share::SpanImport;
use machine::Machine;

const BLOCK: usize = 16 << 20;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read_pointers: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let [path, lead, size, contents] = words.as_slice() else {
        return Err("usage: read_pointers SOCKET LEAD SIZE counting|BYTE".into());
    };
    let (lead, size): (usize, usize) = (lead.parse()?, size.parse()?);
    let byte: Option<u8> = match contents.as_str() {
        "counting" => None,
        byte => Some(byte.parse()?),
    };
    let expected = |at: usize| byte.unwrap_or((at % 251) as u8);

    let machine = Machine::find()?;
    let device = machine.driver.device(0)?;
    let mut received = fetch(&Name::file(path), Instant::now() + Duration::from_secs(30))?;
    let parcel = mem::take(received.parcel_mut());
    let span =
        SpanImport::new(&parcel.bytes, parcel.fds)?.attach_read_only(&machine.driver, [&device])?;
    received.accept()?;

    let mut bytes = vec![0; BLOCK.min(size)];
    for at in (0..size).step_by(BLOCK) {
        let bytes = &mut bytes[..BLOCK.min(size - at)];
        span.read(lead + at, bytes)?;
        let other = (at..)
            .zip(bytes.iter())
            .find(|(at, byte)| **byte != expected(*at));
        if let Some((at, byte)) = other {
            return Err(format!("byte {at} is {byte}, and not {}", expected(at)).into());
        }
    }
    let pieces = span.mappings().count();
    println!("read_pointers: {size} bytes from {lead} on in {pieces} pieces, all as written");
    Ok(span.close()?)
}
