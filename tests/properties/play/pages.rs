//! Allocations of the caller's, and what the driver tells of addresses.

use cuda_vmm::sys::Call;
use cuda_vmm::{Allocation, Code, Error, Origin, What};

use crate::bounds::{flawed, multiple};
use crate::leaks;
use crate::model::{Mapped, Piece};
use crate::operation::{Flaw, Length, Which, Window};
use crate::verdict::{Refusal, Verdict};
use crate::world::World;

/// How many the caller has at once.
const MOST: usize = 12;

impl World {
    pub fn create(&mut self, place: Which, size: Length, flaw: Flaw) -> Option<()> {
        if self.pages.len() >= MOST {
            return None;
        }
        let place = &self.places[place % self.places.len()];
        let units = match size {
            Length::Units(units) => units,
            _ => 1,
        };
        // A whole machine's worth, where it is to be too long.
        let (_, size) = flawed(0, units * self.unit, flaw, 1 << 50);
        let what = What::AllocationSize;
        let expected = match size {
            0 => Err(Refusal::Check(Error::ZeroSize { what })),
            _ => multiple(what, size, place.granularity).map_err(Refusal::Check),
        };
        let location = place.location;
        if self.sim.is_none() && flaw == Flaw::TooLong && location.is_host() {
            // A real host would try.
            return None;
        }
        let expected = expected.and_then(|()| match size < 1 << 50 {
            true => self.creatable(location, size),
            false => Err(Refusal::Driver(
                Call::cuMemCreate,
                Code::ERROR_OUT_OF_MEMORY,
            )),
        });
        let result = place.props.create(size);
        if self.judge(&expected, &result) == Verdict::Done {
            let page = result.expect("judged");
            assert_eq!(page.origin(), Origin::Created);
            let memory = self.model.memory(page.raw(), location, size);
            self.add_page(page, memory);
        }
        Some(())
    }

    pub fn add_page(&mut self, page: Allocation, memory: u64) {
        let share = self.model.share(memory);
        self.model.pages.push(share);
        self.pages.push(page);
    }

    /// While a mapping shares it, this is no call; else it is a release, of whose failure the hook is told.
    pub fn drop_page(&mut self, page: Which) -> Option<()> {
        let page = page.checked_rem(self.pages.len())?;
        drop(self.pages.remove(page));
        self.look();
        self.released_or_not(page);
        assert_eq!(leaks::take(), self.failures());
        self.make_good();
        Some(())
    }

    pub fn release_page(&mut self, page: Which) -> Option<()> {
        let page = page.checked_rem(self.pages.len())?;
        let result = self.pages.remove(page).release();
        match result {
            Ok(()) => {
                self.look();
                assert_eq!(self.failures(), []);
                self.released_or_not(page);
            }
            Err(refused) => {
                let verdict = self.judge(&Ok(()), &Err::<(), Error>(refused.error));
                assert_eq!(verdict, Verdict::Failed);
                self.pages.insert(page, refused.allocation);
            }
        }
        Some(())
    }

    /// Takes the page from the model. The driver is called only where no mapping shares it.
    fn released_or_not(&mut self, page: usize) {
        let share = self.model.pages.remove(page);
        let shared = self.model.is_held(share);
        assert_eq!(self.log.is_empty(), shared, "{}", self.calls());
    }

    pub fn retain(&mut self, kv: Which, at: Window) -> Option<()> {
        if self.pages.len() >= MOST {
            return None;
        }
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (offset, _) = area.window(
            Window {
                flaw: Flaw::None,
                ..at
            },
            self.unit,
        );
        let byte = offset..offset + 1;
        let mapped = area.in_range(&byte).next();
        let expected = match mapped {
            // A real driver does not tell the size of memory to which nobody has access (580.159).
            Some((_, mapped)) if self.sim.is_none() && is_inaccessible(mapped) => Err(
                Refusal::Driver(Call::cuMemGetAddressRange_v2, Code::ERROR_NOT_FOUND),
            ),
            Some((_, mapped)) => Ok(mapped.memory),
            None if self.is_anothers(area.base + offset as u64, at_kv) => return None,
            None => Err(Refusal::Driver(
                Call::cuMemRetainAllocationHandle,
                Code::ERROR_INVALID_VALUE,
            )),
        };
        let result = Allocation::retain(&self.driver, area.base + offset as u64);
        match (self.judge(&expected, &result), expected) {
            (Verdict::Done, Ok(memory)) => {
                let page = result.expect("judged");
                assert_eq!(page.origin(), Origin::Retained);
                self.add_page(page, memory);
            }
            (Verdict::Failed, _) => {
                let kept = self.unreleased().into_iter().map(Piece::Count);
                self.model.kept.extend(kept);
            }
            _ => {}
        }
        Some(())
    }

    pub fn is_vmm(&mut self, kv: Which, at: Window) -> Option<()> {
        let at_kv = self.busy(kv)?;
        let area = &self.model.areas[at_kv];
        let (offset, _) = area.window(
            Window {
                flaw: Flaw::None,
                ..at
            },
            self.unit,
        );
        let address = area.base + offset as u64;
        let byte = offset..offset + 1;
        let mapped = area.in_range(&byte).next().is_some();
        if !mapped && self.is_anothers(address, at_kv) {
            return None;
        }
        let result = self.driver.is_vmm(address);
        self.look();
        let no = (Call::cuMemRetainAllocationHandle, Code::ERROR_INVALID_VALUE);
        match (self.failures().first(), result) {
            // The one refusal that is an answer.
            (Some(first), result) if *first == no => assert!(!result.unwrap()),
            (None, result) => assert_eq!(result.unwrap(), mapped),
            (Some(_), result) => {
                let verdict = self.judge(&Ok(()), &result);
                assert_eq!(verdict, Verdict::Failed);
                // It is tried twice to give the count back.
                if self.succeeded(Call::cuMemRelease).next().is_none() {
                    let kept = self.unreleased().pop().map(Piece::Count);
                    self.model.kept.extend(kept);
                }
            }
        }
        Some(())
    }

    /// Whether another reservation is there.
    fn is_anothers(&self, address: u64, at: usize) -> bool {
        let others = self.model.areas.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != at);
        others.any(|(_, area)| (area.base..area.base + area.size as u64).contains(&address))
    }

    pub fn reclaim(&mut self) -> Option<()> {
        if self.model.kept.is_empty() {
            return None;
        }
        let asked = self.model.kept.len();
        let result = self.driver.reclaim();
        if self.judge(&Ok(()), &result) == Verdict::Done {
            assert_eq!(result.expect("judged"), asked);
            self.model.kept.clear();
            return Some(());
        }
        let mut kept: Vec<Piece> = self.unreleased().into_iter().map(Piece::Count).collect();
        for piece in &self.model.kept {
            if let Piece::Addresses { base, .. } = *piece {
                if self.failed_at(Call::cuMemAddressFree, base) {
                    kept.push(*piece);
                }
            }
        }
        self.model.kept = kept;
        Some(())
    }
}

fn is_inaccessible(mapped: &Mapped) -> bool {
    !mapped.granted.values().any(|access| access.reads())
}
