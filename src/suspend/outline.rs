//! What can be seen of a member whether it sleeps or not: where it lies and what it is made of.

use std::fmt;
use std::ops::Range;

use crate::access::Access;
use crate::location::Location;
use crate::mapping::{BackingKind, Mapping};
use crate::reservation::Reservation;

/// A member's addresses and shape. They are the same asleep and awake.
#[derive(Clone, Copy)]
pub struct Outline<'a> {
    reservation: &'a Reservation,
}

/// The outline of one mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingOutline {
    /// Its bytes, as offsets in the reservation.
    pub range: Range<usize>,
    /// Where its memory lies, or will lie again.
    pub location: Location,
    /// How its memory is held, or will be again.
    pub backing: BackingKind,
    /// What was granted with it.
    pub rights: Vec<(Location, Access)>,
}

impl<'a> Outline<'a> {
    pub(super) fn of(reservation: &'a Reservation) -> Self {
        Outline { reservation }
    }

    /// First address of the reservation.
    pub fn base(&self) -> u64 {
        self.reservation.base()
    }

    /// Bytes reserved.
    pub fn size(&self) -> usize {
        self.reservation.size()
    }

    /// How many mappings there are.
    pub fn mapping_count(&self) -> usize {
        self.reservation.mapping_count()
    }

    /// Bytes in mappings.
    pub fn mapped_bytes(&self) -> usize {
        self.reservation.mapped_bytes()
    }

    /// The mappings, by offset.
    pub fn mappings(&self) -> impl Iterator<Item = MappingOutline> + 'a {
        let reservation = self.reservation;
        reservation
            .mappings()
            .map(move |mapping: &Mapping| MappingOutline {
                range: mapping.range(),
                location: mapping.location(),
                backing: mapping.backing(),
                rights: reservation.rights(mapping).collect(),
            })
    }
}

impl fmt::Debug for Outline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outline")
            .field("base", &format_args!("{:#x}", self.base()))
            .field("size", &self.size())
            .field("mappings", &self.mapping_count())
            .finish()
    }
}
