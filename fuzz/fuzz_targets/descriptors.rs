//! Descriptions of spans, as anybody could send them.
//!
//! Bytes are refused, or they describe a span that is sound by a second opinion, and are its one form. What was
//! believed is then attached: the memory that it promises is not there, and nothing is left of the attempt.
#![no_main]

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;

use cuda_vmm::share::{Descriptor, SpanImport};
use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::{Access, Driver, Error, HandleType};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const PAGE: u64 = 4096;
const UUID: [u8; 16] = [7; 16];

#[derive(Debug, Arbitrary)]
enum Input {
    /// Anything.
    Bytes(Vec<u8>),
    /// Something with the beginning of a description.
    Begun { fabric: bool, bytes: Vec<u8> },
    /// A description with true counts.
    Written(Written),
    /// Pieces laid one behind the other: granules of each new allocation, holes before each piece, and which of the
    /// allocations so far, or the next.
    Laid {
        fabric: bool,
        pieces: Vec<(u8, u8, u8)>,
    },
}

#[derive(Debug, Arbitrary)]
struct Written {
    fabric: bool,
    writable: bool,
    size: Number,
    allocations: Vec<Shared>,
    pieces: Vec<(Number, u8)>,
    /// One byte is changed.
    changed: Option<(u16, u8)>,
}

#[derive(Debug, Arbitrary)]
struct Shared {
    id: u8,
    size: Number,
    place: Place,
}

#[derive(Debug, Arbitrary)]
enum Place {
    OurDevice,
    Device([u8; 16]),
    Host,
    Node(u32),
    Other(u8, [u8; 16]),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    Pages(u8),
    Granules(u8),
    PagesFromEnd(u8),
    Any(u64),
}

impl Number {
    fn value(self) -> u64 {
        match self {
            Number::Pages(count) => u64::from(count) * PAGE,
            Number::Granules(count) => u64::from(count) << 21,
            Number::PagesFromEnd(count) => (u64::from(count) * PAGE).wrapping_neg(),
            Number::Any(value) => value,
        }
    }
}

impl Place {
    fn bytes(&self) -> (u8, [u8; 16]) {
        match *self {
            Place::OurDevice => (1, UUID),
            Place::Device(uuid) => (1, uuid),
            Place::Host => (2, [0; 16]),
            Place::Node(node) => (3, u128::from(node).to_le_bytes()),
            Place::Other(tag, place) => (tag, place),
        }
    }

    fn is_known(&self) -> bool {
        let (tag, place) = self.bytes();
        match tag {
            1 => true,
            2 => place == [0; 16],
            3 => place[4..] == [0; 12],
            _ => false,
        }
    }
}

impl Written {
    fn laid(fabric: bool, pieces: &[(u8, u8, u8)]) -> Written {
        let (mut allocations, mut placed, mut end) = (Vec::<Shared>::new(), Vec::new(), 0);
        for &(granules, hole, which) in pieces.iter().take(255) {
            let known = allocations.len();
            let index = usize::from(which) % (known + 1);
            if index == known {
                allocations.push(Shared {
                    id: known as u8,
                    size: Number::Granules(granules.max(1)),
                    place: Place::OurDevice,
                });
            }
            let offset = end + Number::Granules(hole).value();
            placed.push((Number::Any(offset), index as u8));
            end = offset + allocations[index].size.value();
        }
        Written {
            fabric,
            writable: true,
            size: Number::Any(end),
            allocations,
            pieces: placed,
            changed: None,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = begun(self.fabric, self.writable);
        bytes.extend((self.allocations.len() as u32).to_le_bytes());
        bytes.extend(self.size.value().to_le_bytes());
        bytes.extend((self.pieces.len() as u32).to_le_bytes());
        for one in &self.allocations {
            let (tag, place) = one.place.bytes();
            bytes.extend([one.id; 16]);
            bytes.extend(one.size.value().to_le_bytes());
            bytes.push(tag);
            bytes.extend(place);
            bytes.extend([one.id; 64].iter().filter(|_| self.fabric));
        }
        for (offset, allocation) in &self.pieces {
            bytes.extend(offset.value().to_le_bytes());
            bytes.extend(u32::from(*allocation).to_le_bytes());
        }
        bytes
    }

    /// The second opinion.
    fn is_sound(&self) -> bool {
        let aligned = |value: u64| value % PAGE == 0;
        let mut ids = HashSet::new();
        let each = |one: &Shared| {
            let size = one.size.value();
            ids.insert(one.id) && size > 0 && aligned(size) && one.place.is_known()
        };
        let allocations = self.allocations.iter().all(each);
        let (mut end, mut next) = (0, 0);
        let placed = |(offset, allocation): &(Number, u8)| {
            let (offset, allocation) = (offset.value(), usize::from(*allocation));
            if allocation > next || allocation >= self.allocations.len() {
                return false;
            }
            next = next.max(allocation + 1);
            let begins_behind = u128::from(offset) >= end;
            end = u128::from(offset) + u128::from(self.allocations[allocation].size.value());
            begins_behind && aligned(offset) && end <= u128::from(self.size.value())
        };
        let pieces = !self.pieces.is_empty() && self.pieces.iter().all(placed);
        allocations && pieces && next == self.allocations.len() && aligned(self.size.value())
    }
}

fn begun(fabric: bool, writable: bool) -> Vec<u8> {
    let mut bytes = b"cuvmspan\x01\0".to_vec();
    bytes.extend([1 + u8::from(fabric), 1 + u8::from(writable)]);
    bytes
}

/// What holds of everything that was believed.
fn check(bytes: &[u8], span: &Descriptor) {
    assert_eq!(span.encode(), bytes, "it has one form");
    let mut end = 0;
    for piece in span.pieces() {
        assert!(piece.offset >= end);
        end = piece.offset + span.allocations()[piece.allocation as usize].size;
    }
    assert!(end <= span.size());
    for one in span.allocations() {
        assert_eq!(
            one.fabric.is_some(),
            span.handle_type() == HandleType::Fabric
        );
    }
    assert!(span.allocations().len() <= span.pieces().len());
}

/// Descriptors that are no memory, as many as are needed.
fn nothings(count: usize) -> Vec<OwnedFd> {
    let nothing = || File::open("/dev/null").unwrap().into();
    (0..count).map(|_| nothing()).collect()
}

fn attach(bytes: &[u8], span: &Descriptor) {
    let count = span.fd_count();
    let superfluous = SpanImport::new(bytes, nothings(count + 1)).unwrap_err();
    assert!(
        matches!(superfluous, Error::WrongFdCount { needed, got } if (needed, got) == (count, count + 1)),
        "{superfluous}"
    );
    let sim = Simulation::builder()
        .ledger_only()
        .devices(vec![SimDevice::new().uuid(UUID)])
        .imex_channel(true)
        .build()
        .unwrap();
    let driver = Driver::simulated(&sim).unwrap();
    let device = driver.device(0).unwrap();
    let before = sim.snapshot();
    for access in [Access::None, Access::Read, Access::ReadWrite] {
        let import = SpanImport::new(bytes, nothings(count)).unwrap();
        let refused = import.attach(&driver, [(&device, access)]).unwrap_err();
        let more = matches!(refused, Error::MoreThanOffered { .. });
        assert_eq!(more, access > span.offered(), "{refused}");
        assert_eq!(refused.undo_failures().len(), 0, "{refused}");
        assert_eq!(sim.snapshot(), before);
    }
    assert_eq!(sim.misuses(), []);
}

fuzz_target!(|input: Input| {
    let (bytes, sound) = match input {
        Input::Bytes(bytes) => (bytes, None),
        Input::Begun { fabric, bytes } => ([begun(fabric, true), bytes].concat(), None),
        Input::Laid { fabric, pieces } => {
            let written = Written::laid(fabric, &pieces);
            (written.bytes(), Some(!pieces.is_empty()))
        }
        Input::Written(written) => {
            let mut bytes = written.bytes();
            match written.changed {
                None => (bytes, Some(written.is_sound())),
                Some((at, byte)) => {
                    let at = usize::from(at) % bytes.len();
                    bytes[at] = byte;
                    (bytes, None)
                }
            }
        }
    };
    let decoded = Descriptor::decode(&bytes);
    if let Some(sound) = sound {
        assert_eq!(decoded.is_ok(), sound, "{decoded:?}");
    }
    match decoded {
        Ok(span) => {
            check(&bytes, &span);
            if span.allocations().len() < 100 {
                attach(&bytes, &span);
            }
        }
        // The words are made for whatever numbers it has.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
