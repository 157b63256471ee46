//! What can be put to sleep, and how it is named.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::elastic::ElasticRange;
use crate::error::{Error, Result};
use crate::reservation::{CloseError, LetGo, Reservation};

/// What a [`Group`](super::Group) can own: a [`Reservation`] or an [`ElasticRange`]. Implemented here alone.
pub trait Member: sealed::Sealed + 'static {}

impl Member for Reservation {}

impl Member for ElasticRange {}

/// What is to become of the contents of a member's memory while it is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backup {
    /// They go with the memory. Resumed, it is the driver's new memory, and reads as zero, as such memory was measured
    /// to, without exception; NVIDIA documents no promise, and nothing is filled, also not in a range that promises
    /// [zeroes](crate::Contents::Zeroed) of what is committed. Allocations of the caller's
    /// ([`map_existing`](Reservation::map_existing)) are not given back and keep what they hold.
    None,
    /// They are copied to memory of the host, and back. Where no device may read them, or write them, one is granted
    /// that for the time of the copy.
    Host,
}

/// Names a member of a group, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId {
    pub(super) group: u64,
    pub(super) number: u64,
}

/// Names a member of a group, and says what it is: what [`Group::get`](super::Group::get) lends by it.
///
/// A name and nothing else: it can be copied, and goes stale when the member is taken out.
pub struct Key<M> {
    pub(super) id: MemberId,
    member: PhantomData<fn() -> M>,
}

impl<M> Key<M> {
    pub(super) fn new(id: MemberId) -> Self {
        Key {
            id,
            member: PhantomData,
        }
    }

    /// The member's name without its type, for lists of members of several kinds.
    pub fn id(&self) -> MemberId {
        self.id
    }
}

impl<M> Clone for Key<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Key<M> {}

impl<M> PartialEq for Key<M> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<M> Eq for Key<M> {}

impl<M> Hash for Key<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<M> fmt::Debug for Key<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

/// Which members to suspend or to resume.
///
/// Of all, or of those with a tag, the ones that are so already are passed over and told. A member that is named is
/// meant: if it is so already, that is an error, and nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select<'a> {
    /// Every member.
    All,
    /// Every member with this tag, of which there is one at least.
    Tag(&'a str),
    /// These members.
    Members(&'a [MemberId]),
}

impl<'a> From<&'a str> for Select<'a> {
    fn from(tag: &'a str) -> Self {
        Select::Tag(tag)
    }
}

impl<'a, M> From<&'a Key<M>> for Select<'a> {
    fn from(key: &'a Key<M>) -> Self {
        Select::Members(std::slice::from_ref(&key.id))
    }
}

impl<'a> From<&'a [MemberId]> for Select<'a> {
    fn from(members: &'a [MemberId]) -> Self {
        Select::Members(members)
    }
}

impl<'a, const N: usize> From<&'a [MemberId; N]> for Select<'a> {
    fn from(members: &'a [MemberId; N]) -> Self {
        Select::Members(members)
    }
}

/// A member of any kind.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There are few, each in a place of its own.
pub(super) enum AnyMember {
    Reservation(Reservation),
    Elastic(ElasticRange),
}

impl AnyMember {
    pub(super) fn reservation(&self) -> &Reservation {
        match self {
            AnyMember::Reservation(reservation) => reservation,
            AnyMember::Elastic(range) => range.reservation(),
        }
    }

    pub(super) fn reservation_mut(&mut self) -> &mut Reservation {
        match self {
            AnyMember::Reservation(reservation) => reservation,
            AnyMember::Elastic(range) => range.reservation_mut(),
        }
    }

    /// Takes its memory out, what it has in a cache first.
    pub(super) fn take_down(&mut self) -> Result<LetGo> {
        let cached = match self {
            AnyMember::Reservation(_) => 0,
            AnyMember::Elastic(range) => range.trim(0)?,
        };
        let mut let_go = self.reservation_mut().take_down()?;
        let_go.given_back += cached;
        Ok(let_go)
    }

    /// Closes it; after a failure it is here again, with what is left of it: of an elastic range the reservation.
    pub(super) fn close(self) -> Result<(), Box<(AnyMember, Vec<Error>)>> {
        let closed = match self {
            AnyMember::Reservation(reservation) => reservation.close(),
            AnyMember::Elastic(range) => range.close(),
        };
        closed.map_err(|unclosed| {
            let CloseError {
                error,
                further,
                reservation,
                ..
            } = *unclosed;
            let errors = std::iter::once(error).chain(further).collect();
            Box::new((AnyMember::Reservation(reservation.into_inner()), errors))
        })
    }
}

pub(super) mod sealed {
    use super::AnyMember;
    use crate::driver::Driver;
    use crate::elastic::ElasticRange;
    use crate::reservation::Reservation;

    #[allow(private_interfaces)] // Nobody outside can name what it is made into, nor implement this.
    pub trait Sealed: Sized {
        fn driver(&self) -> &Driver;
        fn into_any(self) -> AnyMember;
        fn of(any: &AnyMember) -> Option<&Self>;
        fn of_mut(any: &mut AnyMember) -> Option<&mut Self>;
        fn from_any(any: AnyMember) -> Option<Self>;
    }

    macro_rules! sealed {
        ($member:ty, $kind:ident: $one:ident => $driver:expr) => {
            #[allow(private_interfaces)]
            impl Sealed for $member {
                fn driver(&self) -> &Driver {
                    let $one = self;
                    $driver
                }

                fn into_any(self) -> AnyMember {
                    AnyMember::$kind(self)
                }

                fn of(any: &AnyMember) -> Option<&Self> {
                    match any {
                        AnyMember::$kind(member) => Some(member),
                        _ => None,
                    }
                }

                fn of_mut(any: &mut AnyMember) -> Option<&mut Self> {
                    match any {
                        AnyMember::$kind(member) => Some(member),
                        _ => None,
                    }
                }

                fn from_any(any: AnyMember) -> Option<Self> {
                    match any {
                        AnyMember::$kind(member) => Some(member),
                        _ => None,
                    }
                }
            }
        };
    }
    sealed!(Reservation, Reservation: kv => kv.driver());
    sealed!(ElasticRange, Elastic: range => range.reservation().driver());
}
