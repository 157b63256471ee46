//! The two ways into a group.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use super::error::RanksError;
use super::greeting::Place;
use super::meeting::{Links, Meeting};
use crate::wire::error::{Step, WireError};
use crate::wire::syscalls;

pub(super) fn in_folder(
    folder: &Path,
    rank: usize,
    count: usize,
    deadline: Instant,
) -> Result<Links, RanksError> {
    if rank >= count {
        return Err(RanksError::Extra { rank, count });
    }
    private(folder, rank)?;
    let mut meeting = Meeting::new(Place { rank, count });
    meeting.in_folder(folder)?;
    meeting.hold(deadline)
}

pub(super) fn over_sockets(
    rank: usize,
    sockets: Vec<Option<OwnedFd>>,
    deadline: Instant,
) -> Result<Links, RanksError> {
    let count = sockets.len();
    let fits = |(other, socket): (usize, &Option<OwnedFd>)| (other == rank) == socket.is_none();
    if rank >= count || !sockets.iter().enumerate().all(fits) {
        return Err(RanksError::Sockets { rank, count });
    }
    let mut meeting = Meeting::new(Place { rank, count });
    for (other, socket) in sockets.into_iter().enumerate() {
        if let Some(socket) = socket {
            meeting.with(other, socket)?;
        }
    }
    meeting.hold(deadline)
}

/// Makes the folder, or makes sure that no other user can put a socket there or take one away.
fn private(folder: &Path, rank: usize) -> Result<(), RanksError> {
    let local = |error| RanksError::local(rank, WireError::io(Step::Opening)(error));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(local(error)),
        _ => {}
    }
    // Not through a link, whose target another user could change.
    let found = fs::symlink_metadata(folder).map_err(local)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_dir() || owner != syscalls::user() || mode & 0o077 != 0 {
        return Err(RanksError::NotPrivate {
            path: folder.to_owned(),
            owner,
            mode,
        });
    }
    Ok(())
}
