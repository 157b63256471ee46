//! The way from the publishers to the consumers: a pipe to each process for tickets, and one back for its reports.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::results::{Results, REPORT};
use super::CONSUMERS;
use crate::side::Side;
use crate::support;

pub struct Relay {
    /// The role of a consumer, without its rank.
    role: String,
    results: Arc<Results>,
    consumers: [Mutex<Process>; CONSUMERS],
    started: AtomicU32,
}

/// A consumer's process.
struct Process {
    number: u32,
    child: Child,
    tickets: ChildStdin,
    /// Notes what it reports.
    reader: JoinHandle<()>,
}

impl Relay {
    /// Starts the consumers. They attach in their own time.
    pub fn start(side: &Side, name: &str, publishes: u64, results: &Arc<Results>) -> Relay {
        let role = side.role(&format!("relayed_consumer|{name}|{publishes}"));
        let process = |rank: usize| Process::start(&role, rank, rank as u32 + 1, results);
        Relay {
            results: results.clone(),
            consumers: std::array::from_fn(|rank| Mutex::new(process(rank))),
            started: AtomicU32::new(CONSUMERS as u32),
            role,
        }
    }

    /// Sends a ticket to every consumer. One that is killed meanwhile does not get it.
    pub fn deliver(&self, sequence: u64, ticket: &[u8]) {
        let mut message = sequence.to_le_bytes().to_vec();
        message.extend((ticket.len() as u32).to_le_bytes());
        message.extend(ticket);
        for (rank, process) in self.consumers.iter().enumerate() {
            let mut process = process.lock().unwrap();
            self.results.deliver(sequence, rank, process.number);
            process.tickets.write_all(&message).unwrap();
        }
    }

    /// Kills a consumer, and starts another one with its rank. Both within one lock: a ticket that was published for
    /// the new one is delivered to it.
    pub fn replace(&self, rank: usize) {
        let mut process = self.consumers[rank].lock().unwrap();
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let fresh = Process::start(&self.role, rank, number, &self.results);
        let dead = std::mem::replace(&mut *process, fresh);
        drop(process);
        dead.reader.join().unwrap();
    }

    pub fn killed(&self) -> u32 {
        self.started.load(Ordering::Relaxed) - CONSUMERS as u32
    }

    /// Sends nothing further. Each consumer reads what it has, and ends well.
    pub fn end(self) {
        let processes = self.consumers.map(|process| process.into_inner().unwrap());
        let processes = processes.map(|mut process| {
            drop(process.tickets);
            let status = process.child.wait().unwrap();
            process.reader.join().unwrap();
            (process.number, status)
        });
        for (rank, (number, status)) in processes.into_iter().enumerate() {
            assert!(status.success(), "consumer {rank}: {status}");
            self.results.complete(rank, number);
        }
    }
}

impl Process {
    fn start(role: &str, rank: usize, number: u32, results: &Arc<Results>) -> Process {
        let mut command = support::again(&format!("{role}|{rank}|{number}")).unwrap();
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tickets, reports) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let results = results.clone();
        let reader = thread::spawn(move || note_all(reports, rank, number, &results));
        Process {
            number,
            child,
            tickets,
            reader,
        }
    }
}

/// Notes reports until there are no more. The last one of a killed process may be cut off.
fn note_all(mut reports: ChildStdout, rank: usize, number: u32, results: &Results) {
    let mut report = [0; REPORT];
    while reports.read_exact(&mut report).is_ok() {
        results.note(rank, number, report);
    }
}
