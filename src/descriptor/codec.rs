//! The bytes of a descriptor. All numbers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 2 | version |
//! | 1 | handle type: 1 POSIX fd, 2 fabric handle |
//! | 1 | rights offered: 1 read, 2 read and write |
//! | 4 | number of allocations |
//! | 8 | size of the span |
//! | 4 | number of pieces |
//! | each allocation | id 16, size 8, kind of place 1 (1 device, 2 host, 3 NUMA node), place 16 (UUID; node 4 and zeros; zeros), and for fabric the handle 64 |
//! | each piece | offset 8, allocation 4 |
//!
//! A span has one form: pieces by offset, allocations by first appearance. What is not in that form is refused, so that
//! equal spans are equal bytes whoever wrote them.

use std::collections::HashSet;

use super::{DecodeError, Descriptor, Home, Piece, SharedAllocation, PAGE};
use crate::access::Access;
use crate::handle_type::{FabricHandle, HandleType};
use crate::identity::AllocationId;

const MAGIC: [u8; 8] = *b"cuvmspan";
const VERSION: u16 = 1;
const HEADER: u64 = 28;
const ALLOCATION: u64 = 41;
const FABRIC: u64 = 64;
const PIECE: u64 = 12;

impl Descriptor {
    /// The bytes that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        let (allocations, pieces) = (self.allocations.len() as u32, self.pieces.len() as u32);
        let length = length(self.handle_type, allocations, pieces);
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.push(match self.handle_type {
            HandleType::PosixFd => 1,
            HandleType::Fabric => 2,
        });
        bytes.push(if self.offered.writes() { 2 } else { 1 });
        bytes.extend(allocations.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(pieces.to_le_bytes());
        for allocation in &self.allocations {
            bytes.extend(allocation.id.to_bytes());
            bytes.extend(allocation.size.to_le_bytes());
            let (tag, place) = home_bytes(allocation.home);
            bytes.push(tag);
            bytes.extend(place);
            bytes.extend(allocation.fabric.iter().flat_map(|name| name.0));
        }
        for piece in &self.pieces {
            bytes.extend(piece.offset.to_le_bytes());
            bytes.extend(piece.allocation.to_le_bytes());
        }
        debug_assert_eq!(bytes.len() as u64, length);
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote. Nothing is trusted: the bytes may come from anybody.
    ///
    /// Whether the sizes are true only the driver knows; they are found out when the span is
    /// [attached](crate::share::SpanImport).
    ///
    /// # Errors
    ///
    /// What is wrong, with its numbers. No more is allocated than the bytes themselves are long, times a small
    /// constant.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        let header = Header::read(&mut reader)?;
        header.check_length(bytes.len())?;
        let allocations = (0..header.allocations)
            .map(|index| read_allocation(&mut reader, index, header.handle_type))
            .collect::<Result<Vec<_>, _>>()?;
        let pieces = (0..header.pieces)
            .map(|_| {
                Ok(Piece {
                    offset: reader.u64()?,
                    allocation: reader.u32()?,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let descriptor = Descriptor {
            size: header.size,
            handle_type: header.handle_type,
            offered: header.offered,
            allocations,
            pieces,
        };
        descriptor.check_allocations()?;
        descriptor.check_pieces()?;
        Ok(descriptor)
    }

    fn check_allocations(&self) -> Result<(), DecodeError> {
        let mut seen = HashSet::with_capacity(self.allocations.len());
        for (index, SharedAllocation { id, size, .. }) in (0..).zip(&self.allocations) {
            if *size == 0 {
                return Err(DecodeError::ZeroSize { allocation: index });
            }
            aligned(*size)?;
            if !seen.insert(id) {
                return Err(DecodeError::Duplicate {
                    allocation: index,
                    id: *id,
                });
            }
        }
        Ok(())
    }

    /// The pieces lie in the span one behind the other, and name every allocation, in order of first appearance.
    fn check_pieces(&self) -> Result<(), DecodeError> {
        if self.pieces.is_empty() {
            return Err(DecodeError::Empty);
        }
        aligned(self.size)?;
        let count = self.allocations.len() as u32;
        let (mut end, mut appeared) = (0, 0);
        for (index, piece) in (0..).zip(&self.pieces) {
            let Piece { offset, allocation } = *piece;
            let Some(shared) = self.allocations.get(allocation as usize) else {
                return Err(DecodeError::NoSuchAllocation {
                    piece: index,
                    allocation,
                    count,
                });
            };
            if allocation > appeared {
                return Err(DecodeError::OutOfOrder {
                    piece: index,
                    allocation,
                    expected: appeared,
                });
            }
            appeared = appeared.max(allocation + 1);
            aligned(offset)?;
            if offset < end {
                return Err(DecodeError::Overlap {
                    piece: index,
                    offset,
                    end,
                });
            }
            end = match offset.checked_add(shared.size) {
                Some(end) if end <= self.size => end,
                _ => {
                    return Err(DecodeError::OutOfSpan {
                        piece: index,
                        offset,
                        size: shared.size,
                        span: self.size,
                    })
                }
            };
        }
        match appeared == count {
            true => Ok(()),
            false => Err(DecodeError::Unused {
                allocation: appeared,
            }),
        }
    }
}

struct Header {
    handle_type: HandleType,
    offered: Access,
    allocations: u32,
    size: u64,
    pieces: u32,
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Result<Header, DecodeError> {
        let found = reader.array()?;
        if found != MAGIC {
            return Err(DecodeError::BadMagic { found });
        }
        let version = u16::from_le_bytes(reader.array()?);
        if version != VERSION {
            return Err(DecodeError::UnknownVersion {
                version,
                known: VERSION,
            });
        }
        let [handle_type, offered] = reader.array()?;
        Ok(Header {
            handle_type: match handle_type {
                1 => HandleType::PosixFd,
                2 => HandleType::Fabric,
                tag => return Err(DecodeError::UnknownHandleType { tag }),
            },
            offered: match offered {
                1 => Access::Read,
                2 => Access::ReadWrite,
                tag => return Err(DecodeError::UnknownAccess { tag }),
            },
            allocations: reader.u32()?,
            size: reader.u64()?,
            pieces: reader.u32()?,
        })
    }

    /// The counts are checked against the bytes that are there before anything is made for them.
    fn check_length(&self, got: usize) -> Result<(), DecodeError> {
        let expected = length(self.handle_type, self.allocations, self.pieces);
        match (got as u64).cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(DecodeError::TooShort {
                needed: expected,
                got,
            }),
            std::cmp::Ordering::Greater => Err(DecodeError::TooLong { expected, got }),
        }
    }
}

/// 32-bit counts times small constants: it cannot overflow.
fn length(handle_type: HandleType, allocations: u32, pieces: u32) -> u64 {
    let allocation = match handle_type {
        HandleType::PosixFd => ALLOCATION,
        HandleType::Fabric => ALLOCATION + FABRIC,
    };
    HEADER + u64::from(allocations) * allocation + u64::from(pieces) * PIECE
}

fn read_allocation(
    reader: &mut Reader<'_>,
    index: u32,
    handle_type: HandleType,
) -> Result<SharedAllocation, DecodeError> {
    let id = AllocationId::from_bytes(reader.array()?);
    let size = reader.u64()?;
    let [tag] = reader.array()?;
    let place: [u8; 16] = reader.array()?;
    let [a, b, c, d, ..] = place;
    let home = match tag {
        1 => Home::Device(place),
        2 => Home::Host,
        3 => Home::HostNuma(u32::from_le_bytes([a, b, c, d])),
        tag => {
            return Err(DecodeError::UnknownHome {
                allocation: index,
                tag,
            })
        }
    };
    if home_bytes(home) != (tag, place) {
        return Err(DecodeError::Padding { allocation: index });
    }
    let fabric = match handle_type {
        HandleType::PosixFd => None,
        HandleType::Fabric => Some(FabricHandle(reader.array()?)),
    };
    Ok(SharedAllocation {
        id,
        size,
        home,
        fabric,
    })
}

fn home_bytes(home: Home) -> (u8, [u8; 16]) {
    let mut place = [0; 16];
    match home {
        Home::Device(uuid) => (1, uuid),
        Home::Host => (2, place),
        Home::HostNuma(node) => {
            place[..4].copy_from_slice(&node.to_le_bytes());
            (3, place)
        }
    }
}

fn aligned(value: u64) -> Result<(), DecodeError> {
    match value % PAGE {
        0 => Ok(()),
        _ => Err(DecodeError::Misaligned {
            value,
            granularity: PAGE,
        }),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let end = self.at + N;
        let read = self.bytes.get(self.at..end).map(<[u8; N]>::try_from);
        let Some(Ok(read)) = read else {
            return Err(DecodeError::TooShort {
                needed: HEADER.max(end as u64),
                got: self.bytes.len(),
            });
        };
        self.at = end;
        Ok(read)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }
}
