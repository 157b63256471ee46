//! The exporter is the side that fails.

use cuda_vmm::share::wire::faults::{self, Syscall};
use cuda_vmm::share::wire::{send_parcel, Name, Parcel, Server, Step, WireError};
use cuda_vmm::{Access, HandleType, Reservation};

use super::honest::{Honest, WELL};
use super::span::furnished;
use super::{connect, was_told, Faulty, Trouble, Way, Went};
use crate::side::Side;
use crate::surroundings::soon;

pub struct Stage<'a> {
    side: &'a Side,
    way: Way,
    importer: Honest,
}

impl<'a> Stage<'a> {
    pub fn new(side: &'a Side, way: Way) -> Stage<'a> {
        Stage {
            side,
            way,
            importer: Honest::start(side, "takes", way),
        }
    }

    /// Exports, and hands over; and what the other side says, if it was asked.
    fn share(&mut self, kv: &Reservation) -> (Result<(), Trouble>, Option<String>) {
        let export = || -> Result<Parcel, Trouble> {
            let exported = kv.export_span(0, kv.size(), HandleType::PosixFd, Access::ReadWrite)?;
            let (bytes, fds, _) = exported.into_parts();
            Ok(Parcel::new(bytes, fds))
        };
        match self.way {
            Way::Socket => {
                self.importer.go();
                let socket = connect(&self.importer.path);
                // What fails before it is sent closes the socket.
                let sent =
                    export().and_then(|parcel| Ok(send_parcel(socket, &parcel, Some(soon(20)))?));
                (sent, Some(self.importer.said()))
            }
            Way::Server => {
                let serve =
                    |parcel| Server::builder(parcel).serve(&Name::file(&self.importer.path));
                let server = match export().and_then(|parcel| Ok(serve(parcel)?)) {
                    Ok(server) => server,
                    Err(trouble) => return (Err(trouble), None),
                };
                self.importer.go();
                let said = self.importer.said();
                let mut report = server.stop();
                let refused = report.recent.pop_front().map(|refusal| refusal.error);
                let went = refused.map_or(Ok(()), |error| {
                    let error = std::sync::Arc::into_inner(error).expect("nobody else has it");
                    Err(Trouble::Wire(error))
                });
                (went, Some(said))
            }
        }
    }
}

impl Faulty for Stage<'_> {
    fn go(&mut self, fault: &dyn Fn()) -> Went {
        let kv = furnished(self.side);
        fault();
        let (shared, said) = self.share(&kv);
        let here = match shared {
            Ok(()) => kv.close().map_err(Trouble::Close),
            Err(trouble) => {
                kv.close().unwrap();
                Err(trouble)
            }
        };
        let calls = faults::stop();
        // Whoever asks for what is not served learns at once that it is not.
        let there = said.unwrap_or_else(|| {
            self.importer.go();
            self.importer.said()
        });
        Went { here, there, calls }
    }

    fn told(&self, trouble: &Trouble, there: &str) -> bool {
        match (trouble, self.way) {
            (Trouble::Close(_), _) => there == WELL,
            (_, Way::Socket) => there == "the other end vanished during the announcement",
            (_, Way::Server) => there.starts_with("no server has "),
        }
    }

    fn heard(&self, _: Syscall, here: &Result<(), WireError>, there: &str) -> bool {
        match here {
            Ok(()) => there == WELL,
            // The last word can be said, and not be heard any more.
            Err(WireError::Io {
                step: Step::Answer, ..
            }) if there == WELL => true,
            Err(_) if there.starts_with("no server has ") => self.way == Way::Server,
            Err(error) => was_told(there, &error.to_string()),
        }
    }

    fn end(self) {
        self.importer.ends();
    }
}
