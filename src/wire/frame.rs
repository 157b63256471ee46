//! The messages, and their form on the wire.
//!
//! Everything is little-endian and written field by field:
//!
//! | bytes | header of every message |
//! |---|---|
//! | 0..4 | `CVMW` |
//! | 4 | version, 1 |
//! | 5 | kind |
//! | 6..8 | descriptors that travel with this message |
//! | 8..12 | bytes that follow |
//!
//! | kind | follows |
//! |---|---|
//! | 1 announcement | topic u32, pieces u32, bytes u64, descriptors u32, host 16 bytes |
//! | 2 consent | host 16 bytes |
//! | 3 piece | index u32, then a share of the bytes |
//! | 4 accepted | nothing |
//! | 5 refused | a reason in UTF-8 |
//! | 6 join | rank u32, ranks u32, host 16 bytes |
//! | 7 agreed | topic u32 |
//! | 8 rank failed | rank u32, a reason in UTF-8 |
//! | 9 hello | bytes of the client's |
//!
//! Descriptors are never numbers in a message: they come beside it.

use super::host::HostId;
use super::reason;
use super::syscalls::MESSAGE_FDS;

const MAGIC: [u8; 4] = *b"CVMW";
const VERSION: u8 = 1;

/// Bytes of a header.
pub(super) const HEADER: usize = 12;

/// The longest message. It fits the smallest send buffer that the kernel lets a socket have (4,608 bytes with the
/// kernel's own accounting), so that no caller's socket is too small for it.
pub(super) const LONGEST: usize = 4096;

/// The most that one piece carries of a parcel's bytes.
pub(super) const PIECE_BYTES: usize = LONGEST - HEADER - 4;

/// The most bytes that a client can say hello with.
pub(super) const HELLO_BYTES: usize = LONGEST - HEADER;

/// What was received is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It does not begin as a message does: the other end speaks something else.
    #[error("it begins with {found:02x?}, which is no message of this protocol")]
    Magic {
        /// Its first four bytes.
        found: [u8; 4],
    },
    /// A version that this one does not know.
    #[error("version {found} of the protocol, and this side speaks {VERSION}")]
    Version {
        /// The other end's.
        found: u8,
    },
    /// No known kind.
    #[error("kind {found} is not known")]
    Kind {
        /// As it came.
        found: u8,
    },
    /// It says that it is longer than messages may be.
    #[error("{length} bytes are said to follow, and at most {} may", LONGEST - HEADER)]
    TooLong {
        /// As it came.
        length: u32,
    },
    /// A packet that is longer than any message; its rest was never read.
    #[error("a packet of more than {LONGEST} bytes")]
    Oversized,
    /// Another length than was said, or than the kind has.
    #[error("{found} bytes, and {expected} are due")]
    Length {
        /// What the kind or the header wants.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// A message that passes none came with descriptors, or one with more than a message holds.
    #[error("{announced} descriptors cannot come with it")]
    Fds {
        /// As its header says; or as many as had come before it was whole.
        announced: u16,
    },
}

/// One message, without the descriptors beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Announcement(Announcement),
    Consent { host: HostId },
    Piece { index: u32, bytes: &'a [u8] },
    Accepted,
    Refused { reason: String },
    Join { rank: u32, count: u32, host: HostId },
    Agreed { topic: u32 },
    RankFailed { rank: u32, reason: String },
    Hello { bytes: &'a [u8] },
}

/// What a sender is about to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    pub topic: u32,
    pub pieces: u32,
    pub bytes: u64,
    pub fds: u32,
    pub host: HostId,
}

/// The fixed part of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    kind: u8,
    /// Descriptors that come with the message.
    pub fds: u16,
    /// Bytes that follow, at most `LONGEST - HEADER`.
    pub length: usize,
}

impl Header {
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, FrameError> {
        let [m0, m1, m2, m3, version, kind, f0, f1, l0, l1, l2, l3] = *bytes;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(FrameError::Magic { found: magic });
        }
        if version != VERSION {
            return Err(FrameError::Version { found: version });
        }
        if !(1..=9).contains(&kind) {
            return Err(FrameError::Kind { found: kind });
        }
        let fds = u16::from_le_bytes([f0, f1]);
        let most = if kind == 3 { MESSAGE_FDS } else { 0 };
        if usize::from(fds) > most {
            return Err(FrameError::Fds { announced: fds });
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > LONGEST - HEADER {
            return Err(FrameError::TooLong { length });
        }
        Ok(Header {
            kind,
            fds,
            length: length as usize,
        })
    }
}

impl<'a> Frame<'a> {
    /// For messages to people.
    pub fn name(&self) -> &'static str {
        match self {
            Frame::Announcement(_) => "announcement",
            Frame::Consent { .. } => "consent",
            Frame::Piece { .. } => "piece",
            Frame::Accepted => "accepted",
            Frame::Refused { .. } => "refused",
            Frame::Join { .. } => "join",
            Frame::Agreed { .. } => "agreed",
            Frame::RankFailed { .. } => "rank failed",
            Frame::Hello { .. } => "hello",
        }
    }

    /// The message's bytes, into a buffer that is used again and again.
    pub fn encode(&self, fds: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend(MAGIC);
        out.push(VERSION);
        out.push(match self {
            Frame::Announcement(_) => 1,
            Frame::Consent { .. } => 2,
            Frame::Piece { .. } => 3,
            Frame::Accepted => 4,
            Frame::Refused { .. } => 5,
            Frame::Join { .. } => 6,
            Frame::Agreed { .. } => 7,
            Frame::RankFailed { .. } => 8,
            Frame::Hello { .. } => 9,
        });
        out.extend((fds as u16).to_le_bytes());
        out.extend([0; 4]);
        match self {
            Frame::Announcement(announcement) => {
                out.extend(announcement.topic.to_le_bytes());
                out.extend(announcement.pieces.to_le_bytes());
                out.extend(announcement.bytes.to_le_bytes());
                out.extend(announcement.fds.to_le_bytes());
                out.extend(announcement.host.0);
            }
            Frame::Consent { host } => out.extend(host.0),
            Frame::Piece { index, bytes } => {
                out.extend(index.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Frame::Accepted => {}
            Frame::Refused { reason } => out.extend(reason::bounded(reason).bytes()),
            Frame::Join { rank, count, host } => {
                out.extend(rank.to_le_bytes());
                out.extend(count.to_le_bytes());
                out.extend(host.0);
            }
            Frame::Agreed { topic } => out.extend(topic.to_le_bytes()),
            Frame::RankFailed { rank, reason } => {
                out.extend(rank.to_le_bytes());
                out.extend(reason::bounded(reason).bytes());
            }
            Frame::Hello { bytes } => out.extend_from_slice(bytes),
        }
        let length = (out.len() - HEADER) as u32;
        out[8..HEADER].copy_from_slice(&length.to_le_bytes());
    }

    /// The message behind a header.
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        if payload.len() != header.length {
            return Err(FrameError::Length {
                expected: header.length,
                found: payload.len(),
            });
        }
        let mut fields = Fields {
            all: payload,
            at: 0,
            least: match header.kind {
                1 => 36,
                2 => 16,
                3 | 7 | 8 => 4,
                6 => 24,
                _ => 0,
            },
        };
        let frame = match header.kind {
            1 => Frame::Announcement(Announcement {
                topic: u32::from_le_bytes(fields.take()?),
                pieces: u32::from_le_bytes(fields.take()?),
                bytes: u64::from_le_bytes(fields.take()?),
                fds: u32::from_le_bytes(fields.take()?),
                host: HostId(fields.take()?),
            }),
            2 => Frame::Consent {
                host: HostId(fields.take()?),
            },
            3 => Frame::Piece {
                index: u32::from_le_bytes(fields.take()?),
                bytes: fields.rest(),
            },
            4 => Frame::Accepted,
            5 => Frame::Refused {
                reason: reason::received(fields.rest()),
            },
            6 => Frame::Join {
                rank: u32::from_le_bytes(fields.take()?),
                count: u32::from_le_bytes(fields.take()?),
                host: HostId(fields.take()?),
            },
            7 => Frame::Agreed {
                topic: u32::from_le_bytes(fields.take()?),
            },
            8 => Frame::RankFailed {
                rank: u32::from_le_bytes(fields.take()?),
                reason: reason::received(fields.rest()),
            },
            9 => Frame::Hello {
                bytes: fields.rest(),
            },
            found => return Err(FrameError::Kind { found }),
        };
        fields.end()?;
        Ok(frame)
    }
}

/// Reads a message's fields in order.
struct Fields<'a> {
    all: &'a [u8],
    at: usize,
    /// The fields that the kind has at the least, for the error.
    least: usize,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let field = self.all.get(self.at..).and_then(|rest| rest.first_chunk());
        let field = *field.ok_or(self.wrong_length())?;
        self.at += N;
        Ok(field)
    }

    fn rest(&mut self) -> &'a [u8] {
        let rest = &self.all[self.at..];
        self.at = self.all.len();
        rest
    }

    fn end(&self) -> Result<(), FrameError> {
        match self.at == self.all.len() {
            true => Ok(()),
            false => Err(self.wrong_length()),
        }
    }

    fn wrong_length(&self) -> FrameError {
        FrameError::Length {
            expected: self.least,
            found: self.all.len(),
        }
    }
}

/// Decodes one whole message, header and all, as a receiver of packets would, and gives its kind. It exists for
/// fuzzing: receiving does this itself.
///
/// # Errors
///
/// [`FrameError`], for bytes that are no message.
pub fn decode_message(bytes: &[u8]) -> Result<&'static str, FrameError> {
    let (header, payload) = bytes
        .split_first_chunk::<HEADER>()
        .ok_or(FrameError::Length {
            expected: HEADER,
            found: bytes.len(),
        })?;
    let frame = Frame::decode(Header::decode(header)?, payload)?;
    Ok(frame.name())
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
