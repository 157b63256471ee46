//! The side at which nothing fails: a process that takes, or gives, a span for every line that it is told, and says in
//! one line how it went. Whatever the other side does, it has nothing left of a round.

use std::io::{BufRead, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{fetch, receive_parcel, send_parcel, Limits, Name, Server, WireError};
use cuda_vmm::Access;

use super::span::{attach, check, furnished};
use super::Way;
use crate::side::Side;
use crate::span::parcel;
use crate::surroundings::{open_fds, soon, Folder, Other};

/// What it says when all went well.
pub const WELL: &str = "well";

/// The other process, as the case sees it.
pub struct Honest {
    other: Other,
    /// Clients that its server has had to do with.
    clients: u64,
    /// Where the two meet.
    pub path: PathBuf,
    _folder: Folder,
}

impl Honest {
    pub fn start(side: &Side, part: &str, way: Way) -> Honest {
        let folder = Folder::new();
        let path = folder.0.join("name");
        let role = format!("{part}|{}|{}", way.word(), path.display());
        let mut other = Other::with_stdin(&side.role(&role), Stdio::piped());
        assert_eq!(other.line(), "here");
        Honest {
            other,
            clients: 0,
            path,
            _folder: folder,
        }
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.other.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    /// A round begins.
    pub fn go(&mut self) {
        self.tell("go");
    }

    /// How the round went.
    pub fn said(&mut self) -> String {
        self.other.line()
    }

    /// What became of the last client of its server, if that came as far as to connect.
    pub fn said_of_client(&mut self, connected: bool) -> String {
        self.clients += u64::from(connected);
        self.tell(&self.clients.to_string());
        self.said()
    }

    /// Nothing is left of all rounds.
    pub fn ends(mut self) {
        drop(self.other.child.stdin.take());
        assert_eq!(self.other.ends(), "");
    }
}

/// Plays rounds until there are no more lines.
fn rounds(side: &Side, mut round: impl FnMut(&str) -> String) {
    // Before the other side knows, and can connect.
    let fds = open_fds();
    println!("here");
    for line in std::io::stdin().lock().lines() {
        println!("{}", round(&line.unwrap()));
        side.fds_are_back(fds);
    }
}

pub fn takes(side: &Side, words: &[&str]) {
    let (way, path) = (Way::of(words[0]), Path::new(words[1]));
    let listener = (way == Way::Socket).then(|| UnixListener::bind(path).unwrap());
    let received = || match &listener {
        Some(listener) => {
            let (socket, _) = listener.accept().unwrap();
            receive_parcel(socket.into(), Limits::default(), Some(soon(20)))
        }
        None => fetch(&Name::file(path), soon(20)),
    };
    let take = || -> Result<(), WireError> {
        let mut received = received()?;
        let span = attach(side, &mut received).unwrap();
        check(&span);
        let accepted = received.accept();
        span.close().unwrap();
        accepted.map(drop)
    };
    rounds(side, |_| told(take()));
}

fn told(went: Result<(), WireError>) -> String {
    went.map_or_else(|error| error.to_string(), |()| WELL.to_owned())
}

pub fn gives(side: &Side, words: &[&str]) {
    let (way, path) = (Way::of(words[0]), Path::new(words[1]));
    let kv = furnished(side);
    let give = || parcel(&kv, Access::ReadWrite);
    match way {
        Way::Socket => {
            let listener = UnixListener::bind(path).unwrap();
            rounds(side, |_| {
                let (socket, _) = listener.accept().unwrap();
                told(send_parcel(socket, &give(), Some(soon(20))))
            });
        }
        Way::Server => {
            let server = Server::builder(give()).serve(&Name::file(path)).unwrap();
            let mut refused = 0;
            rounds(side, |clients| {
                let until = Instant::now() + Duration::from_secs(5);
                let report = loop {
                    let report = server.report();
                    let had = report.served + report.refused;
                    if had >= clients.parse().unwrap() || Instant::now() > until {
                        break report;
                    }
                    std::thread::yield_now();
                };
                let last = report.recent.back().filter(|_| report.refused > refused);
                refused = report.refused;
                last.map_or(WELL.to_owned(), |last| last.error.to_string())
            });
            drop(server);
        }
    }
    kv.close().unwrap();
}
