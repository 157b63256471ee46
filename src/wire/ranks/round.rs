//! One operation of all ranks: parcels in both directions with each, then the word that everybody has everything.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::error::{RanksError, Round};
use super::talk::Talk;
use crate::wire::error::{Step, WireError};
use crate::wire::link::{Link, Wait};
use crate::wire::parcel::{Limits, Parcel};
use crate::wire::syscalls;
use crate::wire::wait::{earlier, watched, PAUSE};

/// Part of the time that is kept for the word about a rank that lags to reach all, so that everybody names that one,
/// and not those who waited for it.
const KEPT: (u32, Duration) = (8, Duration::from_millis(250));

/// Runs one round; the parcels of all ranks in their order, with `mine` in this rank's place.
pub(super) fn run(
    rank: usize,
    links: &mut [Option<Link<OwnedFd>>],
    round: Round,
    mine: Parcel,
    limits: Limits,
    deadline: Instant,
) -> Result<Vec<Parcel>, RanksError> {
    let local = |error| RanksError::local(rank, error);
    let mut talks = Vec::with_capacity(links.len());
    for (other, link) in links.iter_mut().enumerate() {
        if let Some(link) = link {
            let talk = Talk::new(link, rank < other, round.topic(), &mine, limits);
            talks.push((other, link, talk.map_err(local)?));
        }
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let exchanged_by = deadline - (left / KEPT.0).min(KEPT.1);
    let mut ready = vec![true; talks.len()];
    loop {
        let all_exchanged = talks.iter().all(|(_, _, talk)| talk.is_exchanged());
        for ((other, link, talk), ready) in talks.iter_mut().zip(&ready) {
            if (*ready || all_exchanged) && !talk.is_over() {
                talk.step(link, &mine, all_exchanged)
                    .map_err(|error| RanksError::of(*other, rank, Some(round), error))?;
            }
        }
        if talks.iter().all(|(_, _, talk)| talk.is_over()) {
            break;
        }
        if !all_exchanged && talks.iter().all(|(_, _, talk)| talk.is_exchanged()) {
            continue; // The last parcel came in this very turn: everybody is told.
        }
        let lagging = |late: fn(&Talk) -> bool| -> Vec<usize> {
            let late = talks.iter().filter(|(_, _, talk)| late(talk));
            late.map(|(other, _, _)| *other).collect()
        };
        let (until, ranks) = match all_exchanged {
            false => (exchanged_by, lagging(|talk| !talk.is_exchanged())),
            true => (deadline, lagging(|talk| !talk.is_over())),
        };
        if until <= Instant::now() {
            return Err(RanksError::Missing { ranks });
        }
        wait(&talks, until, &mut ready).map_err(local)?;
    }
    let mut all: Vec<Parcel> = talks
        .into_iter()
        .map(|(_, _, talk)| talk.into_parcel())
        .collect();
    all.insert(rank, mine);
    Ok(all)
}

/// Waits until one of the connections is ready, and notes which are.
fn wait(
    talks: &[(usize, &mut Link<OwnedFd>, Talk)],
    until: Instant,
    ready: &mut [bool],
) -> Result<(), WireError> {
    let mut watching: Vec<_> = talks
        .iter()
        .map(|(_, link, talk)| {
            let mut watched = watched(link.socket(), talk.wait);
            if talk.is_over() {
                watched.fd = -1; // What it says from here on is of the next round.
            }
            watched
        })
        .collect();
    let pauses = |talk: &Talk| talk.wait == Wait::Pause;
    let pausing = talks.iter().any(|(_, _, talk)| pauses(talk));
    let pause = pausing.then(|| Instant::now() + PAUSE);
    syscalls::poll(&mut watching, earlier(Some(until), pause))
        .map_err(WireError::io(Step::Pieces))?;
    for ((ready, watched), (_, _, talk)) in ready.iter_mut().zip(&watching).zip(talks) {
        *ready = watched.revents != 0 || pauses(talk);
    }
    Ok(())
}
