//! The importer is the side that fails.

use std::os::fd::OwnedFd;

use cuda_vmm::share::wire::faults::{self, Syscall};
use cuda_vmm::share::wire::{fetch, receive_parcel, Limits, Name, Received, WireError};

use super::honest::{Honest, WELL};
use super::span::{attach, read};
use super::{connect, was_told, Faulty, Trouble, Way, Went};
use crate::side::Side;
use crate::surroundings::soon;

pub struct Stage<'a> {
    side: &'a Side,
    way: Way,
    exporter: Honest,
}

impl<'a> Stage<'a> {
    pub fn new(side: &'a Side, way: Way) -> Stage<'a> {
        Stage {
            side,
            way,
            exporter: Honest::start(side, "gives", way),
        }
    }

    fn receive(&self) -> Result<Received<OwnedFd>, WireError> {
        match self.way {
            Way::Socket => {
                let socket = OwnedFd::from(connect(&self.exporter.path));
                receive_parcel(socket, Limits::default(), Some(soon(20)))
            }
            Way::Server => fetch(&Name::file(&self.exporter.path), soon(20)),
        }
    }

    /// Receives, attaches, reads, accepts, closes.
    fn take(&self) -> Result<(), Trouble> {
        let mut received = self.receive()?;
        let span = match attach(self.side, &mut received) {
            Ok(span) => span,
            Err(error) => {
                received.refuse(&error.to_string());
                return Err(error.into());
            }
        };
        let taken = match read(&span, self.side.g) {
            Ok(()) => received.accept().map(drop).map_err(Trouble::from),
            Err(error) => {
                received.refuse(&error.to_string());
                Err(error.into())
            }
        };
        let closed = span.close().map_err(Trouble::Close);
        taken.and(closed)
    }
}

impl Faulty for Stage<'_> {
    fn go(&mut self, fault: &dyn Fn()) -> Went {
        if self.way == Way::Socket {
            self.exporter.go();
        }
        fault();
        let here = self.take();
        let calls = faults::stop();
        let there = match self.way {
            Way::Socket => self.exporter.said(),
            Way::Server => {
                // A socket that could not be made or connected is no client: one that could is asked who is there.
                let connected = calls.is_empty() || calls.contains(&Syscall::Getsockopt);
                self.exporter.said_of_client(connected)
            }
        };
        Went { here, there, calls }
    }

    fn told(&self, trouble: &Trouble, there: &str) -> bool {
        match trouble {
            Trouble::Close(_) => there == WELL,
            Trouble::Driver(error) => {
                there.starts_with("the other end refused during the answer: ")
                    && was_told(there, &error.to_string())
            }
            Trouble::Wire(_) => false,
        }
    }

    fn heard(&self, failed: Syscall, here: &Result<(), WireError>, there: &str) -> bool {
        match here {
            Ok(()) => there == WELL,
            Err(_) if matches!(failed, Syscall::Socket | Syscall::Connect) => there == WELL,
            Err(error) => was_told(there, &error.to_string()),
        }
    }

    fn end(self) {
        self.exporter.ends();
    }
}
