//! The span that is shared where calls fail: small, with everything that a span can have.

use std::mem;
use std::os::fd::AsFd;

use cuda_vmm::share::wire::Received;
use cuda_vmm::share::SpanImport;
use cuda_vmm::{Access, Error, Reservation};

use crate::side::Side;

/// Where there is something, in granules, and what is written there.
const MARKS: [(usize, u8); 4] = [(0, 1), (3, 2), (5, 2), (6, 3)];

/// Two granules, a hole, a page, a hole, the page again, one whose handle was given up, a hole.
pub fn furnished(side: &Side) -> Reservation {
    let (props, g) = (side.props(), side.g);
    let mut kv = side.reserve(8);
    let page = props.create(g).unwrap();
    kv.map(0, 2 * g, &props).unwrap();
    kv.map_existing(3 * g, &page).unwrap();
    kv.map_existing(5 * g, &page).unwrap();
    kv.map_releasing(6 * g, g, &props).unwrap();
    for (at, mark) in MARKS {
        kv.fill(at * g, 4096, mark).unwrap();
    }
    kv
}

pub fn attach<S: AsFd>(side: &Side, received: &mut Received<S>) -> Result<Reservation, Error> {
    let parcel = mem::take(received.parcel_mut());
    SpanImport::new(&parcel.bytes, parcel.fds)?
        .attach(&side.driver, [(&side.device, Access::ReadWrite)])
}

/// What was written is there; or why that cannot be said.
pub fn read(span: &Reservation, g: usize) -> Result<(), Error> {
    for (at, mark) in MARKS {
        let mut bytes = [0; 4096];
        span.read(at * g, &mut bytes)?;
        assert_eq!(bytes, [mark; 4096], "at {at}");
    }
    assert_eq!((span.size(), span.mapping_count()), (8 * g, 4));
    Ok(())
}

#[track_caller]
pub fn check(span: &Reservation) {
    read(span, span.size() / 8).unwrap();
}
