//! Tickets: which slice of which pool, and which tensors are in it, as bytes.
//!
//! Everything is little-endian and written field by field:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `CVMT` |
//! | 4 | version, 1 |
//! | 5..21 | pool |
//! | 21..25 | slot |
//! | 25..33 | generation of the slot |
//! | 33..41 | offset of the slice in the pool |
//! | 41..49 | length of the slice, at least 1 |
//! | 49..51 | number of parts, at most 4,096 |
//! | | the parts |
//! | last 8 | SipHash 2-4 over all bytes before it, with the pool's key |
//!
//! A part is the byte 0 if it is `u8[length of the slice]`. Every other part is:
//!
//! | | |
//! |---|---|
//! | u8 | code of the element type |
//! | u8 | dimensions, at most 8; plus 128 if the numbers that follow are of 64 bits, else they are of 32 |
//! | number | offset from the start of the slice |
//! | numbers | the dimensions, outermost first |
//!
//! Each ticket has one form: numbers have 32 bits where all of the part fit. So two tickets are of the same content if
//! and only if they are the same bytes, and nothing can be hidden in them.
//!
//! # What an alteration gives
//!
//! Without the key, no alteration gives a ticket; with probability 2⁻⁶⁴ a guess does. The checks are made in the order
//! of the table:
//!
//! | altered | error |
//! |---|---|
//! | fewer than 59 bytes are left | `Truncated` |
//! | bytes 0..4 | `NotATicket` |
//! | byte 4 | `Version` |
//! | bytes 5..21 | `OtherPool` |
//! | every other byte; bytes missing or added at the end; the ticket was made with another key | `Altered` |
//!
//! Only after the check matches, the fields behind the pool are read. What is wrong then, the producer has written.

mod error;
mod part;

use std::fmt;
use std::hash::Hasher;
#[allow(deprecated)] // See `TicketKey::check`.
use std::hash::SipHasher;

use super::element::ElementType;
use super::layout::{Layout, LayoutError, MAX_DIMENSIONS};

pub use error::TicketError;
pub use part::Part;

const MAGIC: [u8; 4] = *b"CVMT";
const VERSION: u8 = 1;

/// Bytes before the parts.
const HEADER: usize = 51;

/// Bytes of the check.
const CHECK: usize = 8;

/// The shortest ticket: one without parts.
const LEAST: usize = HEADER + CHECK;

/// The longest ticket: one in which every part has all dimensions, of 64 bits.
const LONGEST: usize = LEAST + MAX_PARTS * (2 + 8 + 8 * MAX_DIMENSIONS);

/// The most parts of one ticket.
pub(super) const MAX_PARTS: usize = 4096;

/// Added to a part's number of dimensions: its numbers have 64 bits.
const WIDE: u8 = 128;

/// Which pool: random bytes that the producer chooses when it creates the pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId([u8; 16]);

impl PoolId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> PoolId {
        PoolId(bytes)
    }

    /// The bytes of the id.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolId({self})")
    }
}

/// The secret that producer and consumers of one pool share: it refuses a ticket in which any byte is altered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TicketKey([u8; 16]);

impl TicketKey {
    pub fn from_bytes(bytes: [u8; 16]) -> TicketKey {
        TicketKey(bytes)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// SipHash 2-4. `SipHasher` is documented as that. `DefaultHasher`, which replaces it, may be another algorithm
    /// in another release of Rust, and the two processes of a ticket may be built with different ones.
    #[allow(deprecated)]
    fn check(&self, bytes: &[u8]) -> [u8; CHECK] {
        let key = u128::from_le_bytes(self.0);
        let mut hasher = SipHasher::new_with_keys(key as u64, (key >> 64) as u64);
        hasher.write(bytes);
        hasher.finish().to_le_bytes()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(secret)")
    }
}

/// What a ticket says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TicketData {
    pub pool: PoolId,
    pub slot: u32,
    pub generation: u64,
    /// Of the slice in the pool, in bytes.
    pub offset: u64,
    /// Of the slice, in bytes.
    pub length: u64,
    pub parts: Vec<Part>,
}

impl TicketData {
    /// Checks what every decoded ticket keeps, and what a producer has to check before it encodes.
    pub fn check(&self) -> Result<(), TicketError> {
        check_slice(self.offset, self.length)?;
        check_count(self.parts.len())?;
        for (part, content) in self.parts.iter().enumerate() {
            content
                .check_within(self.length as usize)
                .map_err(|error| TicketError::Part { part, error })?;
        }
        Ok(())
    }
}

fn check_slice(offset: u64, length: u64) -> Result<(), TicketError> {
    match length != 0 && offset.checked_add(length).is_some() {
        true => Ok(()),
        false => Err(TicketError::Slice { offset, length }),
    }
}

fn check_count(found: usize) -> Result<(), TicketError> {
    match found <= MAX_PARTS {
        true => Ok(()),
        false => Err(TicketError::TooManyParts {
            found,
            most: MAX_PARTS,
        }),
    }
}

/// The ticket's bytes. The data has passed [`TicketData::check`]: other data gives bytes that no pool decodes.
pub(super) fn encode(data: &TicketData, key: &TicketKey) -> Vec<u8> {
    debug_assert_eq!(data.check(), Ok(()));
    seal(write(data), key)
}

/// All but the check.
fn write(data: &TicketData) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEAST + 32 * data.parts.len());
    out.extend(MAGIC);
    out.push(VERSION);
    out.extend(data.pool.0);
    out.extend(data.slot.to_le_bytes());
    out.extend(data.generation.to_le_bytes());
    out.extend(data.offset.to_le_bytes());
    out.extend(data.length.to_le_bytes());
    out.extend((data.parts.len() as u16).to_le_bytes());
    for part in &data.parts {
        if part.is_whole(data.length as usize) {
            out.push(0);
            continue;
        }
        let shape = part.layout().shape();
        let numbers = || std::iter::once(part.offset()).chain(shape.iter().copied());
        let wide = numbers().any(is_wide);
        out.push(part.layout().element().code());
        out.push(shape.len() as u8 | if wide { WIDE } else { 0 });
        for number in numbers() {
            match wide {
                true => out.extend((number as u64).to_le_bytes()),
                false => out.extend((number as u32).to_le_bytes()),
            }
        }
    }
    out
}

fn seal(mut bytes: Vec<u8>, key: &TicketKey) -> Vec<u8> {
    let check = key.check(&bytes);
    bytes.extend(check);
    bytes
}

fn is_wide(number: usize) -> bool {
    u32::try_from(number).is_err()
}

/// Which pool a ticket claims to be of: for a process that is attached to several.
///
/// It is a claim: only the pool itself can verify it, when it opens the ticket.
///
/// # Errors
///
/// `Truncated`, `NotATicket` or `Version` of [`TicketError`].
pub fn pool_of(bytes: &[u8]) -> Result<PoolId, TicketError> {
    if bytes.len() < LEAST {
        return Err(TicketError::Truncated {
            length: bytes.len(),
            least: LEAST,
        });
    }
    let mut fields = Fields { bytes, at: 0 };
    let found = fields.take()?;
    if found != MAGIC {
        return Err(TicketError::NotATicket { found });
    }
    let [found] = fields.take()?;
    if found != VERSION {
        return Err(TicketError::Version {
            found,
            known: VERSION,
        });
    }
    Ok(PoolId(fields.take()?))
}

/// What the ticket says, if this pool wrote it. It allocates nothing before the check matches.
pub(super) fn decode(
    bytes: &[u8],
    pool: &PoolId,
    key: &TicketKey,
) -> Result<TicketData, TicketError> {
    let found = pool_of(bytes)?;
    if found != *pool {
        return Err(TicketError::OtherPool {
            found,
            expected: *pool,
        });
    }
    // What is too long is not hashed.
    let body = match bytes.split_last_chunk() {
        Some((body, check)) if bytes.len() <= LONGEST && key.check(body) == *check => body,
        _ => return Err(TicketError::Altered),
    };
    let mut fields = Fields {
        bytes: body,
        at: MAGIC.len() + 1 + pool.0.len(),
    };
    let slot = u32::from_le_bytes(fields.take()?);
    let generation = u64::from_le_bytes(fields.take()?);
    let offset = u64::from_le_bytes(fields.take()?);
    let length = u64::from_le_bytes(fields.take()?);
    check_slice(offset, length)?;
    let count = usize::from(u16::from_le_bytes(fields.take()?));
    check_count(count)?;
    // A part is one byte at the least.
    let mut parts = Vec::with_capacity(count.min(body.len() - fields.at));
    for part in 0..count {
        parts.push(fields.part(part, length as usize)?);
    }
    fields.end()?;
    Ok(TicketData {
        pool: *pool,
        slot,
        generation,
        offset,
        length,
        parts,
    })
}

/// Reads a ticket's fields in order.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TicketError> {
        let field = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk());
        let field = *field.ok_or(TicketError::Malformed { at: self.at })?;
        self.at += N;
        Ok(field)
    }

    fn number(&mut self, wide: bool) -> Result<usize, TicketError> {
        Ok(match wide {
            true => u64::from_le_bytes(self.take()?) as usize,
            false => u32::from_le_bytes(self.take()?) as usize,
        })
    }

    /// The part with this index, of a slice of this length.
    fn part(&mut self, index: usize, length: usize) -> Result<Part, TicketError> {
        let invalid = |error: LayoutError| TicketError::Part { part: index, error };
        let start = self.at;
        let [code] = self.take()?;
        if code == 0 {
            let whole = Layout::bytes(length).map_err(invalid)?;
            return Part::new(0, whole).map_err(invalid);
        }
        let element =
            ElementType::from_code(code).ok_or(TicketError::ElementType { part: index, code })?;
        let [form] = self.take()?;
        let (wide, dimensions) = (form & WIDE != 0, usize::from(form & !WIDE));
        let offset = self.number(wide)?;
        let mut shape = [0; MAX_DIMENSIONS];
        let shape = shape.get_mut(..dimensions).ok_or_else(|| {
            invalid(LayoutError::TooManyDimensions {
                found: dimensions,
                most: MAX_DIMENSIONS,
            })
        })?;
        for extent in shape.iter_mut() {
            *extent = self.number(wide)?;
        }
        let needs_wide = is_wide(offset) || shape.iter().copied().any(is_wide);
        let layout = Layout::new(element, shape).map_err(invalid)?;
        let part = Part::new(offset, layout).map_err(invalid)?;
        part.check_within(length).map_err(invalid)?;
        if wide != needs_wide || part.is_whole(length) {
            return Err(TicketError::Malformed { at: start });
        }
        Ok(part)
    }

    fn end(&self) -> Result<(), TicketError> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(TicketError::Malformed { at: self.at }),
        }
    }
}

/// Decodes a ticket, and drops what it says. It exists for fuzzing: a pool does this itself.
///
/// # Errors
///
/// [`TicketError`], for bytes that are not a ticket of this pool.
#[doc(hidden)]
pub fn decode_ticket(bytes: &[u8], pool: [u8; 16], key: [u8; 16]) -> Result<(), TicketError> {
    decode(bytes, &PoolId(pool), &TicketKey(key)).map(drop)
}

/// The check that follows these bytes in a ticket. It exists for fuzzing.
#[doc(hidden)]
pub fn ticket_check(bytes: &[u8], key: [u8; 16]) -> [u8; 8] {
    TicketKey(key).check(bytes)
}

#[cfg(test)]
#[path = "ticket_tests.rs"]
mod tests;
