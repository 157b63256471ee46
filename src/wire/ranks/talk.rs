//! What two ranks say to each other in one round.

use std::os::fd::OwnedFd;

use crate::wire::error::{Step, WireError};
use crate::wire::frame::Frame;
use crate::wire::incoming::Incoming;
use crate::wire::link::{Flow, Link, Wait};
use crate::wire::outgoing::Outgoing;
use crate::wire::parcel::{Limits, Parcel};

/// Both parcels go over one connection, one after the other, the lower rank's first: so neither side ever writes while
/// the other does.
pub(super) struct Talk {
    outgoing: Outgoing,
    incoming: Incoming,
    topic: u32,
    /// What is still to be done, the next last.
    left: Vec<Part>,
    /// This rank has said that it has everything from everybody.
    told: Told,
    /// The other rank has.
    heard: bool,
    pub wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Send,
    Receive,
    Accept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    Begun,
    Yes,
}

impl Talk {
    pub fn new(
        link: &Link<OwnedFd>,
        speaks_first: bool,
        topic: u32,
        mine: &Parcel,
        limits: Limits,
    ) -> Result<Talk, WireError> {
        Ok(Talk {
            outgoing: Outgoing::new(mine, topic, link)?,
            incoming: Incoming::new(topic, limits),
            topic,
            left: match speaks_first {
                true => vec![Part::Accept, Part::Receive, Part::Send],
                false => vec![Part::Send, Part::Accept, Part::Receive],
            },
            told: Told::No,
            heard: false,
            wait: Wait::Writable,
        })
    }

    /// Both parcels have arrived.
    pub fn is_exchanged(&self) -> bool {
        self.left.is_empty()
    }

    /// And both ranks know that all others have theirs.
    pub fn is_over(&self) -> bool {
        self.told == Told::Yes && self.heard
    }

    pub fn into_parcel(self) -> Parcel {
        self.incoming.into_parcel()
    }

    /// Goes on as far as it can, and notes what it waits for. `all_exchanged` is whether this rank has everything from
    /// everybody.
    pub fn step(
        &mut self,
        link: &mut Link<OwnedFd>,
        mine: &Parcel,
        all_exchanged: bool,
    ) -> Result<(), WireError> {
        if let Flow::Wait(wait) = self.go(link, mine, all_exchanged)? {
            self.wait = wait;
        }
        Ok(())
    }

    fn go(
        &mut self,
        link: &mut Link<OwnedFd>,
        mine: &Parcel,
        all_exchanged: bool,
    ) -> Result<Flow, WireError> {
        while let Some(&part) = self.left.last() {
            let flow = match part {
                Part::Send => self.outgoing.step(link, mine)?,
                Part::Receive => self.incoming.step(link)?,
                Part::Accept => link.send(&Frame::Accepted, &[], Step::Answer)?,
            };
            if flow != Flow::Done {
                return Ok(flow);
            }
            self.left.pop();
        }
        if all_exchanged && self.told == Told::No {
            let frame = Frame::Agreed { topic: self.topic };
            if let wait @ Flow::Wait(_) = link.send(&frame, &[], Step::Agreement)? {
                return Ok(wait);
            }
            self.told = Told::Begun;
        }
        if let wait @ Flow::Wait(_) = link.flush(Step::Agreement)? {
            return Ok(wait);
        }
        if self.told == Told::Begun {
            self.told = Told::Yes;
        }
        // Until this rank has told it, the other can say nothing but that it agrees, or which rank failed; so it is
        // listened to. Afterwards what comes is of the next round.
        while !self.is_over() {
            match link.receive(Step::Agreement)? {
                None => return Ok(Flow::Wait(Wait::Readable)),
                Some((Frame::Agreed { topic }, _)) if topic != self.topic => {
                    return Err(WireError::OtherTopic {
                        ours: self.topic,
                        theirs: topic,
                    })
                }
                Some((Frame::Agreed { .. }, _)) if !self.heard => self.heard = true,
                Some((other, _)) => return Err(WireError::out_of_turn(Step::Agreement, &other)),
            }
        }
        Ok(Flow::Done)
    }
}
