//! The shared feature pool: one producer, three consumers in processes of their own, payloads of mixed sizes.
//!
//!     pool [COUNT]
//!
//! The producer publishes COUNT payloads, or as many as it can in 5 seconds. Every payload is two tensors packed into one
//! slice: a header with a sequence number and a checksum, and a body from device memory. Tickets go to the consumers
//! through pipes. Each consumer copies the body out, acknowledges the slice, and verifies the checksum of its copy.
//! Half-way, one consumer is killed and another process takes its rank.
//!
//! Runs on this machine's GPU; without one on simulated drivers, one for each process, in smaller sizes. It ends with a
//! failure if a payload is wrong or lost, or if a slice is still in use at the end.

mod bodies;
mod children;
mod consumer;
#[path = "../machine/mod.rs"]
mod machine;
mod producer;

use std::env;
use std::error::Error as StdError;
use std::process::ExitCode;

use cuda_vmm::wire::Name;

const CONSUMERS: usize = 3;

type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = match &words[..] {
        ["consumer", name, rank] => consumer::run(&Name::new(*name), rank),
        [] => producer::run(None),
        [count] => match count.parse() {
            Ok(count) => producer::run(Some(count)),
            Err(error) => Err(format!("COUNT is {count:?}: {error}").into()),
        },
        _ => Err("usage: pool [COUNT]".into()),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pool: FAILED: {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// An error, unless it is as it should be.
fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(otherwise().into()),
    }
}
