//! Mappings of all sizes, mirrors and rights, on several reservations.

use cuda_vmm::{Access, Allocation, AllocationProps, Device, Driver, Error, Reservation};

use crate::random::Random;
use crate::Outcome;

const RESERVATIONS: usize = 4;
/// Granules in each reservation: 64 GiB where a granule is 2 MiB. All together are more than a GPU has memory, so that
/// it runs out.
const GRANULES: usize = 32 << 10;
/// Allocations of the caller's at a time, for mirrors.
const PAGES: usize = 8;

/// A mapping, with the byte that it was filled with.
struct Filled {
    offset: usize,
    size: usize,
    value: u8,
}

pub struct Reservations<'a> {
    device: &'a Device,
    props: &'a AllocationProps,
    granule: usize,
    /// Bytes of the largest mapping, and of all mappings together.
    largest: usize,
    most: usize,
    random: Random,
    kvs: Vec<(Reservation, Vec<Filled>)>,
    pages: Vec<Allocation>,
}

impl<'a> Reservations<'a> {
    pub fn start(
        driver: &Driver,
        device: &'a Device,
        props: &'a AllocationProps,
        [largest, most]: [usize; 2],
        random: Random,
    ) -> Outcome<Self> {
        let granule = props.granularity()?.minimum();
        let reserve = |_| {
            Reservation::builder(GRANULES * granule)
                .access(device, Access::ReadWrite)
                .reserve(driver)
                .map(|kv| (kv, Vec::new()))
        };
        Ok(Reservations {
            device,
            props,
            granule,
            largest,
            most,
            random,
            kvs: (0..RESERVATIONS).map(reserve).collect::<Result<_, _>>()?,
            pages: Vec::new(),
        })
    }

    pub fn operation(&mut self) -> Outcome {
        let at = self.random.below(RESERVATIONS);
        match self.random.below(16) {
            0..6 => self.map(at),
            6..10 => self.unmap(at),
            10 => self.mirror(at),
            11 => self.page(),
            12 => self.rights(at),
            _ => self.check(at),
        }
    }

    fn size(&mut self) -> usize {
        self.random.size(self.largest / self.granule) * self.granule
    }

    /// A hole that is long enough, or none.
    fn hole(&mut self, at: usize, size: usize) -> Option<usize> {
        let long_enough = |hole: &std::ops::Range<usize>| hole.len() >= size;
        let holes: Vec<_> = self.kvs[at].0.holes().filter(long_enough).collect();
        let hole = holes.get(self.random.below(holes.len().max(1)))?;
        let room = (hole.len() - size) / self.granule;
        Some(hole.start + self.random.below(room + 1) * self.granule)
    }

    fn map(&mut self, at: usize) -> Outcome {
        let size = self.size();
        let mapped = self.kvs.iter().map(|(kv, _)| kv.mapped_bytes());
        if mapped.sum::<usize>() + size > self.most {
            return self.unmap(at);
        }
        let Some(offset) = self.hole(at, size) else {
            return self.unmap(at);
        };
        let releasing = self.random.below(4) == 0;
        let (kv, filled) = &mut self.kvs[at];
        match releasing {
            true => kv.map_releasing(offset, size, self.props)?,
            false => kv.map(offset, size, self.props)?,
        };
        let value = self.random.below(256) as u8;
        filled.push(Filled {
            offset,
            size,
            value,
        });
        Ok(kv.fill(offset, size, value)?)
    }

    fn unmap(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &mut self.kvs[at];
        if filled.is_empty() {
            return Ok(());
        }
        let Filled { offset, size, .. } = filled.swap_remove(self.random.below(filled.len()));
        Ok(kv.unmap_range(offset, size)?)
    }

    /// Maps a page, looks at it through the mapping, and unmaps it.
    fn mirror(&mut self, at: usize) -> Outcome {
        if self.pages.is_empty() {
            return self.page();
        }
        let page = self.random.below(self.pages.len());
        let Some(offset) = self.hole(at, self.pages[page].size()) else {
            return Ok(());
        };
        let kv = &mut self.kvs[at].0;
        let block = kv.map_existing(offset, &self.pages[page])?;
        kv.write(offset, b"mirror")?;
        let retained = Allocation::retain(kv.driver(), kv.base() + offset as u64)?;
        kv.unmap(block)?;
        let block = kv.map_existing(offset, &retained)?;
        let mut back = [0; 6];
        kv.read(offset, &mut back)?;
        kv.unmap(block)?;
        retained.release()?;
        match &back == b"mirror" {
            true => Ok(()),
            false => Err("a mirror reads something else than was written".into()),
        }
    }

    fn page(&mut self) -> Outcome {
        if self.pages.len() == PAGES {
            let page = self.pages.swap_remove(self.random.below(PAGES));
            return Ok(page.release()?);
        }
        let size = self.size().min(256 * self.granule);
        self.pages.push(self.props.create(size)?);
        Ok(())
    }

    fn rights(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &mut self.kvs[at];
        let Some(Filled { offset, size, .. }) = filled.first() else {
            return Ok(());
        };
        kv.set_access(*offset, *size, self.device, Access::Read)?;
        match kv.write(*offset, &[0]) {
            Err(Error::NoAccess { .. }) => {}
            answer => return Err(format!("a write to read-only memory: {answer:?}").into()),
        }
        Ok(kv.set_access(*offset, *size, self.device, Access::ReadWrite)?)
    }

    /// The first and the last bytes are still what they were filled with.
    fn check(&mut self, at: usize) -> Outcome {
        let (kv, filled) = &self.kvs[at];
        if filled.is_empty() {
            return Ok(());
        }
        let Filled {
            offset,
            size,
            value,
        } = filled[self.random.below(filled.len())];
        for start in [offset, offset + size - 64] {
            let mut bytes = [!value; 64];
            kv.read(start, &mut bytes)?;
            if bytes != [value; 64] {
                return Err(
                    format!("offset {start} reads something else than was filled in").into(),
                );
            }
        }
        Ok(())
    }

    /// Unmaps half of everything.
    pub fn make_room(&mut self) -> Outcome {
        for at in 0..RESERVATIONS {
            for _ in 0..self.kvs[at].1.len().div_ceil(2) {
                self.unmap(at)?;
            }
        }
        Ok(())
    }

    pub fn end(self) -> Outcome {
        for (kv, filled) in self.kvs {
            if kv.mapping_count() != filled.len() {
                return Err("there are mappings that nobody made".into());
            }
            kv.close()?;
        }
        for page in self.pages {
            page.release()?;
        }
        Ok(())
    }
}
