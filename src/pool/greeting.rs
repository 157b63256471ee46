//! What a consumer and the producer tell each other when the consumer attaches.
//!
//! The hello is 9 bytes: `CVPH`, version, rank (u32, little-endian). The answer comes with the parcel: `CVPW`, version,
//! a byte that says what it is, and the fields of that, little-endian.

use std::ops::Range;

use super::entry::Scope;
use super::ticket::{PoolId, TicketKey};

const HELLO: [u8; 4] = *b"CVPH";
const WELCOME: [u8; 4] = *b"CVPW";
pub(super) const VERSION: u8 = 1;

/// What the producer answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Admitted(Admitted),
    /// The rank is not below the number of consumers.
    OutOfRange {
        rank: u32,
        consumers: u32,
    },
    /// A consumer with this rank is attached.
    Taken {
        rank: u32,
    },
    /// The pool is closing.
    Closing,
    /// The hello is of another version.
    Version {
        known: u8,
    },
}

/// What a consumer has to know of the pool. The description of the memory follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) pool: PoolId,
    pub(super) key: TicketKey,
    pub(super) consumers: u32,
    pub(super) slots: u32,
    /// Bytes that slices lie in.
    pub(super) size: u64,
    pub(super) group: Range<u32>,
    pub(super) widest: Scope,
    pub(super) span: Vec<u8>,
}

/// A greeting that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It does not begin as one, or is too short or too long.
    Form,
    Version {
        found: u8,
    },
}

pub(super) fn hello(rank: u32) -> Vec<u8> {
    let mut bytes = HELLO.to_vec();
    bytes.push(VERSION);
    bytes.extend(rank.to_le_bytes());
    bytes
}

/// The rank in a hello.
pub(super) fn read_hello(bytes: &[u8]) -> Result<u32, Unreadable> {
    let mut fields = Fields::new(bytes, HELLO)?;
    let rank = fields.u32()?;
    fields.end()?;
    Ok(rank)
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = WELCOME.to_vec();
        bytes.push(VERSION);
        match self {
            Answer::Admitted(admitted) => {
                bytes.push(0);
                bytes.extend(admitted.pool.to_bytes());
                bytes.extend(admitted.key.to_bytes());
                bytes.extend(admitted.consumers.to_le_bytes());
                bytes.extend(admitted.slots.to_le_bytes());
                bytes.extend(admitted.size.to_le_bytes());
                bytes.extend(admitted.group.start.to_le_bytes());
                bytes.extend(admitted.group.end.to_le_bytes());
                bytes.push(match admitted.widest {
                    Scope::Own => 0,
                    Scope::Group => 1,
                    Scope::All => 2,
                });
                bytes.extend(&admitted.span);
            }
            Answer::OutOfRange { rank, consumers } => {
                bytes.push(1);
                bytes.extend(rank.to_le_bytes());
                bytes.extend(consumers.to_le_bytes());
            }
            Answer::Taken { rank } => {
                bytes.push(2);
                bytes.extend(rank.to_le_bytes());
            }
            Answer::Closing => bytes.push(3),
            Answer::Version { known } => bytes.extend([4, *known]),
        }
        bytes
    }

    /// Reads an answer to this rank. Everything in it is checked against the rest of it; the memory is checked by
    /// attaching it.
    pub(super) fn decode(bytes: &[u8], rank: u32) -> Result<Answer, Unreadable> {
        let mut fields = Fields::new(bytes, WELCOME)?;
        let answer = match fields.u8()? {
            0 => {
                let admitted = Admitted {
                    pool: PoolId::from_bytes(fields.take()?),
                    key: TicketKey::from_bytes(fields.take()?),
                    consumers: fields.u32()?,
                    slots: fields.u32()?,
                    size: u64::from_le_bytes(fields.take()?),
                    group: fields.u32()?..fields.u32()?,
                    widest: match fields.u8()? {
                        0 => Scope::Own,
                        1 => Scope::Group,
                        2 => Scope::All,
                        _ => return Err(Unreadable::Form),
                    },
                    span: fields.rest(),
                };
                let consistent = rank < admitted.consumers
                    && admitted.group.contains(&rank)
                    && admitted.group.end <= admitted.consumers
                    && admitted.slots > 0;
                if !consistent {
                    return Err(Unreadable::Form);
                }
                Answer::Admitted(admitted)
            }
            1 => Answer::OutOfRange {
                rank: fields.u32()?,
                consumers: fields.u32()?,
            },
            2 => Answer::Taken {
                rank: fields.u32()?,
            },
            3 => Answer::Closing,
            4 => Answer::Version {
                known: fields.u8()?,
            },
            _ => return Err(Unreadable::Form),
        };
        fields.end()?;
        Ok(answer)
    }

    /// For a hello that cannot be read.
    pub(super) fn to_unreadable(why: Unreadable) -> Option<Answer> {
        match why {
            Unreadable::Version { .. } => Some(Answer::Version { known: VERSION }),
            Unreadable::Form => None,
        }
    }
}

/// What bytes mean as a hello, or as an answer to this rank, in bytes again; none if nothing. For the fuzz target.
#[doc(hidden)]
pub fn read_greeting(bytes: &[u8], rank: u32) -> Option<Vec<u8>> {
    match read_hello(bytes) {
        Ok(rank) => Some(hello(rank)),
        Err(_) => Answer::decode(bytes, rank)
            .ok()
            .map(|answer| answer.encode()),
    }
}

/// Reads fields in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Behind the beginning that every message of this kind has.
    fn new(bytes: &'a [u8], magic: [u8; 4]) -> Result<Fields<'a>, Unreadable> {
        let mut fields = Fields(bytes);
        if fields.take()? != magic {
            return Err(Unreadable::Form);
        }
        match fields.u8()? {
            VERSION => Ok(fields),
            found => Err(Unreadable::Version { found }),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Unreadable::Form)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, Unreadable> {
        self.take().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Unreadable> {
        self.take().map(u32::from_le_bytes)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn end(&self) -> Result<(), Unreadable> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Unreadable::Form),
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn admitted() -> Admitted {
        Admitted {
            pool: PoolId::from_bytes([7; 16]),
            key: TicketKey::from_bytes([9; 16]),
            consumers: 4,
            slots: 64,
            size: 2 << 20,
            group: 1..3,
            widest: Scope::Group,
            span: b"a span".to_vec(),
        }
    }

    #[test]
    fn greetings_are_read_as_they_were_written() {
        assert_eq!(read_hello(&hello(5)), Ok(5));
        for answer in [
            Answer::Admitted(admitted()),
            Answer::OutOfRange {
                rank: 9,
                consumers: 4,
            },
            Answer::Taken { rank: 2 },
            Answer::Closing,
            Answer::Version { known: 1 },
        ] {
            assert_eq!(Answer::decode(&answer.encode(), 2), Ok(answer));
        }
    }

    #[test]
    fn what_is_short_long_or_of_another_version_is_refused() {
        let whole = hello(5);
        for length in 0..whole.len() {
            assert_eq!(read_hello(&whole[..length]), Err(Unreadable::Form));
        }
        assert_eq!(
            read_hello(&[&whole[..], &[0]].concat()),
            Err(Unreadable::Form)
        );
        let mut newer = whole;
        newer[4] = 2;
        assert_eq!(read_hello(&newer), Err(Unreadable::Version { found: 2 }));
        let answer = Answer::Taken { rank: 2 }.encode();
        for length in 0..answer.len() {
            assert_eq!(Answer::decode(&answer[..length], 2), Err(Unreadable::Form));
        }
    }

    #[test]
    fn an_answer_that_contradicts_itself_is_refused() {
        let broken: [fn(&mut Admitted); 4] = [
            |it| it.consumers = 2,
            |it| it.group = 3..4,
            |it| it.group = 0..5,
            |it| it.slots = 0,
        ];
        for change in broken {
            let mut admitted = admitted();
            change(&mut admitted);
            let bytes = Answer::Admitted(admitted).encode();
            assert_eq!(Answer::decode(&bytes, 2), Err(Unreadable::Form));
        }
    }
}
