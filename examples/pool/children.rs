//! The consumers' processes: this program again. A pipe takes tickets there, another one brings back the totals.

use std::env;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::{must, Outcome};

/// A consumer's process. It is killed when this is dropped.
pub struct Consumer {
    child: Child,
    tickets: Option<ChildStdin>,
    rank: usize,
    /// Tickets that were sent to it.
    pub sent: u64,
}

/// What a consumer says at its end.
pub struct Totals {
    pub verified: u64,
    /// Tickets of slices that were published before it attached.
    pub not_for_it: u64,
}

impl Consumer {
    pub fn start(name: &str, rank: usize) -> Outcome<Consumer> {
        let mut child = Command::new(env::current_exe()?)
            .args(["consumer", name, &rank.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let tickets = child.stdin.take();
        Ok(Consumer {
            child,
            tickets,
            rank,
            sent: 0,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn send(&mut self, ticket: &[u8]) -> Outcome {
        let mut message = (ticket.len() as u32).to_le_bytes().to_vec();
        message.extend(ticket);
        if let Some(tickets) = &mut self.tickets {
            let sent = tickets.write_all(&message);
            sent.map_err(|error| format!("consumer {} takes no ticket: {error}", self.rank))?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) -> Outcome {
        self.tickets = None;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends nothing further, and waits until it has consumed what it has.
    pub fn finish(&mut self) -> Outcome<Totals> {
        self.tickets = None;
        let mut text = String::new();
        if let Some(totals) = &mut self.child.stdout {
            totals.read_to_string(&mut text)?;
        }
        let status = self.child.wait()?;
        let rank = self.rank;
        must(status.success(), || format!("consumer {rank}: {status}"))?;
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        match numbers?[..] {
            [verified, not_for_it] => Ok(Totals {
                verified,
                not_for_it,
            }),
            _ => Err(format!("consumer {rank} says {text:?}").into()),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Nothing happens to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
