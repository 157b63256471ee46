//! Ranks on their way to being connected, each with all others.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use super::error::RanksError;
use super::greeting::{Greeting, Place, Unmet};
use crate::wire::address::{Address, Name};
use crate::wire::connect::{address, attempt, Attempt};
use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::link::{Link, Wait};
use crate::wire::listener::Listener;
use crate::wire::peer::Peer;
use crate::wire::syscalls;
use crate::wire::wait::{earlier, watched, PAUSE};

/// Connections of which nobody knows yet who they are; more wait to be accepted.
const UNKNOWN: usize = 64;

/// The connections of one rank: none to itself, and one to each other rank.
pub(super) type Links = Vec<Option<Link<OwnedFd>>>;

/// What there is of a group so far.
pub(super) struct Meeting {
    here: Place,
    listener: Option<Listener>,
    /// Ranks that this one has still to reach, and where.
    to_reach: Vec<(usize, Address)>,
    greetings: Vec<Greeting>,
    links: Links,
}

impl Meeting {
    pub fn new(here: Place) -> Meeting {
        Meeting {
            here,
            listener: None,
            to_reach: Vec::new(),
            greetings: Vec::new(),
            links: (0..here.count).map(|_| None).collect(),
        }
    }

    /// Is to be found in the folder, by higher ranks, and finds the lower ones there.
    pub fn in_folder(&mut self, folder: &Path) -> Result<(), RanksError> {
        let name = |rank| Name::file(folder.join(format!("rank-{rank}")));
        let rank = self.here.rank;
        let local = |error| RanksError::local(rank, error);
        self.listener = Some(Listener::bind(&name(rank)).map_err(|error| match error {
            WireError::NameTaken { .. } => RanksError::Duplicate { rank },
            error => local(error),
        })?);
        for lower in 0..rank {
            let address = address(&name(lower)).map_err(local)?;
            self.to_reach.push((lower, address));
        }
        Ok(())
    }

    /// A connection to a known rank.
    pub fn with(&mut self, rank: usize, socket: OwnedFd) -> Result<(), RanksError> {
        let greeting = Greeting::new(socket, Some(rank));
        self.greetings
            .push(greeting.map_err(|error| self.failed(error))?);
        Ok(())
    }

    /// Until all are connected. When it fails, all that are there are told.
    pub fn hold(mut self, deadline: Instant) -> Result<Links, RanksError> {
        match self.connect_all(deadline) {
            Ok(()) => Ok(self.links),
            Err(error) => {
                let last = error.last_word(self.here.rank);
                let joined = self.links.iter_mut().flatten();
                let greeting = self.greetings.iter_mut().map(Greeting::link);
                joined.chain(greeting).for_each(|link| link.abort(&last));
                if let Some(listener) = self.listener {
                    listener.close(&last);
                }
                Err(error)
            }
        }
    }

    fn connect_all(&mut self, deadline: Instant) -> Result<(), RanksError> {
        loop {
            self.reach()?;
            self.greet()?;
            let missing = self.missing();
            if missing.is_empty() {
                return Ok(());
            }
            if deadline <= Instant::now() {
                return Err(RanksError::Missing { ranks: missing });
            }
            self.wait(deadline)?;
        }
    }

    fn missing(&self) -> Vec<usize> {
        let others = (0..self.here.count).filter(|&rank| rank != self.here.rank);
        others.filter(|&rank| self.links[rank].is_none()).collect()
    }

    /// Tries the lower ranks that are not there yet.
    fn reach(&mut self) -> Result<(), RanksError> {
        let mut index = 0;
        while let Some((rank, address)) = self.to_reach.get(index) {
            match attempt(address).map_err(|error| self.failed(error))? {
                Attempt::Connected(socket) => {
                    let (rank, _) = (*rank, self.to_reach.swap_remove(index));
                    self.with(rank, socket)?;
                }
                Attempt::Busy | Attempt::Nobody => index += 1,
            }
        }
        Ok(())
    }

    /// Lets every greeting go on; those that are done become links.
    fn greet(&mut self) -> Result<(), RanksError> {
        let mut index = 0;
        while let Some(greeting) = self.greetings.get_mut(index) {
            let joined: Vec<bool> = self.links.iter().map(Option::is_some).collect();
            match greeting.step(self.here, &joined) {
                Ok(None) => index += 1,
                Ok(Some(rank)) => {
                    self.links[rank] = Some(self.greetings.swap_remove(index).into_link());
                }
                Err(Unmet::Stranger(error)) => {
                    let reason = error.to_string();
                    let mut stranger = self.greetings.swap_remove(index);
                    stranger.link().abort(&Frame::Refused { reason });
                }
                Err(Unmet::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for connections, words, and the end of ranks that were there; accepts what came.
    fn wait(&mut self, deadline: Instant) -> Result<(), RanksError> {
        let mut watching = Vec::new();
        if let Some(listener) = &self.listener {
            watching.push(watched(listener.socket(), Wait::Readable));
        }
        let greetings = self.greetings.iter();
        watching.extend(greetings.map(|greeting| watched(greeting.socket(), greeting.wait)));
        let links = watching.len();
        // What a rank that is there says is of the first round; its end alone is looked for.
        let joined = || {
            (0..)
                .zip(&self.links)
                .filter_map(|(rank, it)| Some((rank, it.as_ref()?)))
        };
        watching.extend(joined().map(|(_, link)| watched(link.socket(), Wait::Pause)));
        let pause = (!self.to_reach.is_empty()).then(|| Instant::now() + PAUSE);
        syscalls::poll(&mut watching, earlier(Some(deadline), pause))
            .map_err(|error| self.failed(WireError::io(Step::Joining)(error)))?;
        let gone = joined()
            .zip(&watching[links..])
            .find(|(_, it)| it.revents != 0);
        if let Some(((rank, _), _)) = gone {
            return Err(self.gone(rank));
        }
        self.accept()
    }

    /// A rank that was there is no more.
    fn gone(&mut self, rank: usize) -> RanksError {
        let words = self.links[rank]
            .as_mut()
            .map(|link| link.last_words(Step::Joining));
        let error = words.unwrap_or(WireError::Vanished { at: Step::Joining });
        RanksError::of(rank, self.here.rank, None, error)
    }

    fn accept(&mut self) -> Result<(), RanksError> {
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        while self.greetings.len() < self.here.count + UNKNOWN {
            let socket = match syscalls::accept(listener.socket()) {
                Ok(socket) => socket,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::ECONNABORTED) => continue,
                    _ => return Err(self.failed(WireError::io(Step::Joining)(error))),
                },
            };
            let peer = Peer::of(socket.as_fd())
                .map_err(|error| self.failed(WireError::io(Step::Joining)(error)))?;
            // The folder keeps other users out; one who got in all the same is no rank.
            if peer.is_same_user() {
                let greeting = Greeting::new(socket, None).map_err(|error| self.failed(error))?;
                self.greetings.push(greeting);
            }
        }
        Ok(())
    }

    /// This rank's own failure.
    fn failed(&self, error: WireError) -> RanksError {
        RanksError::local(self.here.rank, error)
    }
}
