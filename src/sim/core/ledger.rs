//! The ledger-only backend: addresses are numbers, and bytes are kept page by page where something was written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::store::{End, Identity, Segment, Store};

/// Small enough that a short write costs little, large enough that a large one makes few pages.
const PAGE: u64 = 64 << 10;

#[derive(Debug)]
enum Page {
    /// The same byte all over: what a memset leaves.
    Filled(u8),
    Bytes(Box<[u8]>),
}

impl Page {
    fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Page::Filled(value) => into.fill(*value),
            Page::Bytes(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        if let Page::Filled(value) = *self {
            *self = Page::Bytes(vec![value; PAGE as usize].into_boxed_slice());
        }
        match self {
            Page::Bytes(bytes) => bytes,
            Page::Filled(_) => &mut [],
        }
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    /// Tells this ledger's allocations from those of every other in the process.
    instance: u64,
    /// By allocation and page. A page that is absent reads zero.
    pages: BTreeMap<(u64, u64), Page>,
    created: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        Ledger {
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            pages: BTreeMap::new(),
            created: 0,
        }
    }
}

impl Ledger {
    /// What a process on x86-64 can address, but for the lowest 4 GiB.
    pub(super) const ADDRESSES: Range<u64> = 1 << 32..1 << 47;

    pub(super) fn identity(&self, number: u64) -> Identity {
        (self.instance, number)
    }

    pub(super) fn create(&mut self) -> Store {
        self.created += 1;
        Store::Pages(self.created)
    }

    pub(super) fn destroy(&mut self, store: &Store) {
        let Store::Pages(number) = *store else {
            return;
        };
        let mut kept = self.pages.split_off(&(number, 0));
        self.pages.append(&mut kept.split_off(&(number + 1, 0)));
    }

    pub(super) fn fill(&mut self, to: &[Segment], value: u8) {
        for segment in to {
            each_page(segment, 0..segment.size, |key, at, _| {
                let whole = at.len() as u64 == PAGE;
                match self.pages.get_mut(&key) {
                    Some(page) if whole => *page = Page::Filled(value),
                    Some(page) => page.bytes()[at].fill(value),
                    None if value == 0 => {}
                    None if whole => drop(self.pages.insert(key, Page::Filled(value))),
                    None => self.page(key).bytes()[at].fill(value),
                }
            });
        }
    }

    pub(super) fn store(&mut self, to: &[Segment], value: u32) {
        self.write(to, 0, &value.to_ne_bytes());
    }

    pub(super) fn copy(&mut self, to: &End, from: &End, size: u64) {
        let mut buffer = vec![0; PAGE.min(size) as usize];
        let mut done = 0;
        while done < size {
            let step = PAGE.min(size - done);
            let bytes = &mut buffer[..step as usize];
            match from {
                End::Host(host) => host.read_at(done as usize, bytes),
                End::Device(segments) => self.read(segments, done, bytes),
            }
            match to {
                End::Host(host) => host.write_at(done as usize, bytes),
                End::Device(segments) => self.write(segments, done, bytes),
            }
            done += step;
        }
    }

    fn read(&self, segments: &[Segment], from: u64, bytes: &mut [u8]) {
        each_part(
            segments,
            from,
            bytes.len() as u64,
            |key, at, within| match self.pages.get(&key) {
                Some(page) => page.read(at.start, &mut bytes[within]),
                None => bytes[within].fill(0),
            },
        );
    }

    fn write(&mut self, segments: &[Segment], to: u64, bytes: &[u8]) {
        each_part(segments, to, bytes.len() as u64, |key, at, within| {
            self.page(key).bytes()[at].copy_from_slice(&bytes[within]);
        });
    }

    fn page(&mut self, key: (u64, u64)) -> &mut Page {
        self.pages.entry(key).or_insert(Page::Filled(0))
    }
}

/// Calls `visit` with each page that `size` bytes from byte `from` of the segments touch: its key, the bytes within the
/// page, and the bytes within the range.
fn each_part(
    segments: &[Segment],
    from: u64,
    size: u64,
    mut visit: impl FnMut((u64, u64), Range<usize>, Range<usize>),
) {
    let mut start = 0;
    for segment in segments {
        let end = start + segment.size;
        let first = from.max(start);
        let last = (from + size).min(end);
        if first < last {
            let shift = (first - from) as usize;
            each_page(segment, first - start..last - start, |key, at, within| {
                visit(key, at, within.start + shift..within.end + shift);
            });
        }
        start = end;
    }
}

/// The same for a part of one segment.
fn each_page(
    segment: &Segment,
    part: Range<u64>,
    mut visit: impl FnMut((u64, u64), Range<usize>, Range<usize>),
) {
    let mut done = part.start;
    while done < part.end {
        let offset = segment.offset + done;
        let at = offset % PAGE;
        let step = (PAGE - at).min(part.end - done);
        let within = (done - part.start) as usize;
        visit(
            (segment.pages, offset / PAGE),
            at as usize..(at + step) as usize,
            within..within + step as usize,
        );
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Vec<Segment> {
        let segment = |pages, offset, size| Segment {
            address: 0,
            size,
            pages,
            offset,
        };
        vec![
            segment(1, PAGE - 3, 6),
            segment(2, 0, PAGE + 1),
            segment(1, 7, 5),
        ]
    }

    #[test]
    fn what_is_written_across_pages_and_segments_reads_back() {
        let mut ledger = Ledger::default();
        let total: u64 = segments().iter().map(|segment| segment.size).sum();
        let written: Vec<u8> = (0..total).map(|byte| byte as u8).collect();
        ledger.write(&segments(), 0, &written);
        let mut read = vec![0; 20];
        ledger.read(&segments(), 2, &mut read);
        assert_eq!(read, written[2..22]);
        ledger.read(&segments(), total - 20, &mut read);
        assert_eq!(read, written[written.len() - 20..]);
    }

    #[test]
    fn a_fill_costs_no_bytes_and_reads_back() {
        let mut ledger = Ledger::default();
        let whole = Segment {
            address: 0,
            size: 4 * PAGE,
            pages: 1,
            offset: 0,
        };
        ledger.fill(&[whole], 7);
        assert!(ledger
            .pages
            .values()
            .all(|page| matches!(page, Page::Filled(7))));
        ledger.write(&[whole], PAGE + 1, &[9]);
        let mut read = [0; 3];
        ledger.read(&[whole], PAGE, &mut read);
        assert_eq!(read, [7, 9, 7]);
        ledger.fill(&[whole], 8);
        assert!(ledger
            .pages
            .values()
            .all(|page| matches!(page, Page::Filled(8))));
    }

    #[test]
    fn a_destroyed_allocation_leaves_nothing_and_takes_nothing_else() {
        let mut ledger = Ledger::default();
        let stores = [ledger.create(), ledger.create(), ledger.create()];
        for number in 1..=3 {
            let segment = Segment {
                address: 0,
                size: PAGE,
                pages: number,
                offset: 0,
            };
            ledger.fill(&[segment], 1);
        }
        ledger.destroy(&stores[1]);
        let left: Vec<u64> = ledger.pages.keys().map(|key| key.0).collect();
        assert_eq!(left, [1, 3]);
    }
}
