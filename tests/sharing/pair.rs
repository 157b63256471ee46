//! Two processes: one that makes memory, one that takes it.

use std::fs;
use std::os::fd::OwnedFd;

use cuda_vmm::share::{ExportedSpan, SpanImport};
use cuda_vmm::sim::Simulation;
use cuda_vmm::{Access, AllocationProps, HandleType, HandleTypes, Reservation};

use crate::rig::{Rig, G};

pub struct Pair {
    pub maker: Rig,
    pub taker: Rig,
}

impl Pair {
    pub fn new() -> Pair {
        let rig = || Rig::with(Simulation::builder().imex_channel(true));
        Pair {
            maker: rig(),
            taker: rig(),
        }
    }

    /// Memory of the maker's that can be shared either way.
    pub fn props(&self) -> AllocationProps {
        let both = HandleTypes::POSIX_FD | HandleTypes::FABRIC;
        self.maker.props().shareable_as(both)
    }

    /// Ten granules of the maker's: two, a hole, a page, a hole, the page again, one whose handle was given up, a hole.
    /// Each mapping begins with its offset in granules, but for the page, which says 3.
    pub fn furnished(&self) -> Reservation {
        let mut kv = self.maker.reserve(10);
        let props = self.props();
        let page = props.create(G).unwrap();
        kv.map(0, 2 * G, &props).unwrap();
        kv.map_existing(3 * G, &page).unwrap();
        kv.map_existing(5 * G, &page).unwrap();
        kv.map_releasing(6 * G, G, &props).unwrap();
        for at in [0, 3, 6] {
            kv.write(at * G, &[at as u8]).unwrap();
        }
        kv
    }

    /// Nothing is left on either side.
    pub fn leaves_nothing(self) {
        self.taker.leaves_nothing();
        self.maker.leaves_nothing();
    }
}

/// What was exported, as it arrives; what keeps it goes.
pub fn received(exported: ExportedSpan) -> SpanImport {
    let (bytes, fds, _kept) = exported.into_parts();
    SpanImport::new(&bytes, fds).unwrap()
}

/// The whole of a reservation, for reading and writing by descriptors.
pub fn exported(kv: &Reservation) -> ExportedSpan {
    kv.export_span(0, kv.size(), HandleType::PosixFd, Access::ReadWrite)
        .unwrap()
}

/// What a file descriptor of this process leads to.
pub fn leads_to(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.unwrap().display().to_string()
}
