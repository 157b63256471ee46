//! Spans that are not what they say: a forged description, and descriptors that do not go with it.

use std::os::fd::OwnedFd;

use cuda_vmm::share::{Descriptor, SpanImport};
use cuda_vmm::{Access, Error};

use crate::attach::refused;
use crate::pair::{exported, Pair};
use crate::rig::{same, G};

/// A description that says something else of the first allocation.
fn forged(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes[28..69]);
    Descriptor::decode(&bytes).expect("it can only be told from the truth by trying");
    bytes
}

#[test]
fn a_size_that_is_not_true() {
    let pair = Pair::new();
    let here = pair.furnished();
    let (bytes, fds, _) = exported(&here).into_parts();
    let bytes = forged(&bytes, |first| {
        first[16..24].copy_from_slice(&(G as u64).to_le_bytes());
    });
    let import = SpanImport::new(&bytes, fds).unwrap();
    let error = refused(&pair.taker, import, Access::Read);
    same(&error, &Error::WrongSize { claimed: G });
    assert_eq!(pair.taker.sim.misuses(), []);
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn a_place_that_is_not_true() {
    let pair = Pair::new();
    let here = pair.furnished();
    let (bytes, fds, _) = exported(&here).into_parts();
    let host = forged(&bytes, |first| {
        first[24] = 2;
        first[25..41].fill(0);
    });
    let import = SpanImport::new(&host, fds).unwrap();
    same(
        &refused(&pair.taker, import, Access::Read),
        &Error::WrongPlace {
            claimed: cuda_vmm::Location::Host,
            actual: cuda_vmm::Location::Device(0),
        },
    );
    let (_, fds, _) = exported(&here).into_parts();
    let elsewhere = forged(&bytes, |first| first[25..41].fill(8));
    let import = SpanImport::new(&elsewhere, fds).unwrap();
    same(
        &refused(&pair.taker, import, Access::Read),
        &Error::NoSuchUuid { uuid: [8; 16] },
    );
}

#[test]
fn too_few_or_too_many_descriptors() {
    let pair = Pair::new();
    let here = pair.furnished();
    for got in [0, 2, 4] {
        let (bytes, mut fds, _) = exported(&here).into_parts();
        fds.resize_with(got, || {
            OwnedFd::from(std::fs::File::open("/dev/null").unwrap())
        });
        same(
            &SpanImport::new(&bytes, fds).unwrap_err(),
            &Error::WrongFdCount { needed: 3, got },
        );
    }
    here.close().unwrap();
    pair.leaves_nothing();
}

#[test]
fn descriptors_in_another_order_are_found_out() {
    let pair = Pair::new();
    let here = pair.furnished();
    let (bytes, mut fds, _) = exported(&here).into_parts();
    fds.reverse();
    let import = SpanImport::new(&bytes, fds).unwrap();
    let error = refused(&pair.taker, import, Access::Read);
    same(&error, &Error::WrongSize { claimed: 2 * G });
}
