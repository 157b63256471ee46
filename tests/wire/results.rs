//! The transport's errors where a program has one kind of error for everything.

use std::error::Error as StdError;
use std::sync::Arc;

use cuda_vmm::share::wire::{fetch, FrameError, Name, Ranks, RanksError, Step, WireError};
use cuda_vmm::share::SpanImport;
use cuda_vmm::{Error, Result};

use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("results::of_the_crate", of_the_crate),
    ("results::of_anybody", of_anybody),
    ("results::the_text_is_all", the_text_is_all),
];

fn fetched(name: &Name) -> Result<Vec<u8>> {
    Ok(fetch(name, soon(1))?.accept()?.bytes)
}

fn joined(folder: &Folder) -> Result<Ranks> {
    let ranks = Ranks::join(&folder.0, 2, 2, soon(1))?;
    Ok(ranks)
}

fn attached(bytes: &[u8]) -> Result<SpanImport> {
    SpanImport::new(bytes, Vec::new())
}

/// `?` makes each the error of the crate, and nothing of it is lost.
fn of_the_crate() {
    let name = Name::new(format!("nobody's, {}", std::process::id()));
    let missing = fetched(&name).unwrap_err();
    match &missing {
        Error::Wire(WireError::NoServer { name: it }) => assert_eq!(*it, name),
        other => panic!("{other:?}"),
    }
    assert_eq!(missing.to_string(), format!("no server has {name}"));
    assert_eq!(missing.code(), None, "of no driver");
    let folder = Folder::new();
    let extra = joined(&folder).unwrap_err();
    match &extra {
        Error::Ranks(RanksError::Extra { rank, count }) => assert_eq!((*rank, *count), (2, 2)),
        other => panic!("{other:?}"),
    }
    let text = "rank 2 is one too many: there are 2, from 0";
    assert_eq!(extra.to_string(), text);
    assert!(matches!(attached(&[]).unwrap_err(), Error::Descriptor(_)));
}

/// Boxed, each is found again as what it was.
fn of_anybody() {
    fn all(name: &Name) -> std::result::Result<(), Box<dyn StdError + Send + Sync>> {
        attached(&[]).unwrap_err();
        fetch(name, soon(1))?.accept()?;
        Ok(())
    }
    let name = Name::new(format!("nobody's, {}", std::process::id()));
    let boxed = all(&name).unwrap_err();
    match boxed.downcast_ref() {
        Some(WireError::NoServer { name: it }) => assert_eq!(*it, name),
        other => panic!("{other:?}"),
    }
    assert_eq!(boxed.to_string(), format!("no server has {name}"));
}

/// Whoever prints an error and then its sources prints nothing twice.
fn the_text_is_all() {
    let wire = || WireError::BadMessage {
        at: Step::Consent,
        error: FrameError::Kind { found: 9 },
    };
    let io = WireError::Io {
        step: Step::Opening,
        error: Arc::new(std::io::Error::from_raw_os_error(libc::EMFILE)),
    };
    let of_rank = RanksError::Rank {
        rank: 3,
        error: Arc::new(wire()),
    };
    let told: [(Error, &str); 3] = [
        (wire().into(), "the consent: kind 9 is not known"),
        (
            io.into(),
            "opening the connection: Too many open files (os error 24)",
        ),
        (of_rank.into(), "rank 3: the consent: kind 9 is not known"),
    ];
    for (error, text) in told {
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none(), "{error}");
    }
}
