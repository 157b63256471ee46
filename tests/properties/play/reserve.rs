//! Reserving.

use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Code, Error, Location, Reservation, What};

use crate::bounds::{flawed, multiple};
use crate::model::{Area, Piece};
use crate::operation::{Address, Alignment, Length, Point, Want};
use crate::verdict::{word, Refusal, Verdict};
use crate::world::World;

/// How many there are at once.
const MOST: usize = 4;
/// More than any driver gives.
const TOO_MUCH: usize = 1 << 47;
/// Far from everything else; the next is 1 GiB on.
const FREE: u64 = 0x2000_0000_0000;

impl World {
    pub fn reserve(&mut self, want: &Want) -> Option<()> {
        if self.kvs.len() >= MOST {
            return None;
        }
        let units = match want.size {
            Length::Units(units) => units,
            _ => 1,
        };
        let (_, size) = flawed(0, units * self.unit, want.flaw, TOO_MUCH);
        let alignment = match want.alignment {
            Alignment::Any => 0,
            Alignment::Units(doubled) => self.unit << doubled,
            Alignment::Odd => 3 * self.unit,
        };
        let policy: Vec<(Location, Access)> = want
            .policy
            .iter()
            .map(|(who, access)| (self.who(*who), *access))
            .collect();
        let builder = Reservation::builder(size).alignment(alignment);
        let (builder, asked, exactly) = match want.address {
            Address::Any => (builder, None, false),
            Address::Hint(point) => {
                let address = self.point(point)?;
                (builder.hint(address), Some(address), false)
            }
            Address::Exactly(point) => {
                let address = self.point(point)?;
                (builder.exact_address(address), Some(address), true)
            }
        };
        let expected = self.reservable(size, alignment, asked, &policy);
        let give = |builder: cuda_vmm::ReservationBuilder, (who, access): &(Location, Access)| {
            builder.access(*who, *access)
        };
        let result = policy.iter().fold(builder, give).reserve(&self.driver);
        if let (Ok(()), true, Err(error)) = (&expected, exactly, &result) {
            if let Error::HintNotHonoured { wanted, got } = *error.first() {
                assert_eq!(Some(wanted), asked);
                self.elsewhere(wanted, got, size, error);
                return Some(());
            }
        }
        if self.judge(&expected, &result) != Verdict::Done {
            return Some(());
        }
        let kv = result.expect("judged");
        if exactly {
            assert_eq!(Some(kv.base()), asked);
        }
        let alignment = self.base_alignment(asked.unwrap_or(0) as usize, alignment);
        assert_eq!(kv.base() % alignment as u64, 0);
        let area = Area {
            number: self.model.number(),
            base: kv.base(),
            size,
            policy,
            mapped: Default::default(),
            stuck: Vec::new(),
        };
        self.model.areas.push(area);
        self.kvs.push(kv);
        Some(())
    }

    /// The driver reserved, but elsewhere, and that was freed again.
    fn elsewhere(&mut self, wanted: u64, got: u64, size: usize, error: &Error) {
        self.look();
        let given = self.succeeded(Call::cuMemAddressReserve).next();
        assert_eq!(given.and_then(|record| word(record, "address")), Some(got));
        assert_ne!(got, wanted);
        let named: Vec<_> = error
            .undo_failures()
            .iter()
            .filter_map(crate::verdict::failed)
            .collect();
        assert_eq!(named, self.failures());
        if !named.is_empty() {
            self.model.kept.push(Piece::Addresses { base: got, size });
        }
    }

    fn reservable(
        &self,
        size: usize,
        alignment: usize,
        asked: Option<u64>,
        policy: &[(Location, Access)],
    ) -> Result<(), Refusal> {
        for (at, (location, _)) in policy.iter().enumerate() {
            self.exists(*location)?;
            if policy[..at].iter().any(|(earlier, _)| earlier == location) {
                let location = *location;
                return Err(Error::DuplicateAccess { location }.into());
            }
        }
        let what = What::ReservationSize;
        if size == 0 {
            return Err(Error::ZeroSize { what }.into());
        }
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Error::BadAlignment { alignment }.into());
        }
        multiple(what, size, self.unit)?;
        if let Some(address) = asked {
            let offset = address as usize;
            multiple(What::Address, offset, self.unit)?;
            if offset.checked_add(size).is_none() {
                return Err(Error::Overflow { offset, size }.into());
            }
        }
        let refused = |code| Err(Refusal::Driver(Call::cuMemAddressReserve, code));
        let asked = asked.unwrap_or(0) as usize;
        if asked % self.base_alignment(asked, alignment) != 0 {
            return refused(Code::ERROR_INVALID_VALUE);
        }
        match size < TOO_MUCH {
            true => Ok(()),
            false => refused(Code::ERROR_OUT_OF_MEMORY),
        }
    }

    /// What the driver is asked for: a base that will do for every device, unless an address was asked for that will
    /// not.
    fn base_alignment(&self, asked: usize, alignment: usize) -> usize {
        let devices = self.places.iter().filter(|place| !place.location.is_host());
        let greatest = devices.map(|place| place.granularity).max();
        let greatest = greatest.expect("there is a device");
        match asked % greatest {
            0 => alignment.max(greatest),
            _ => alignment.max(self.unit),
        }
    }

    pub fn exists(&self, location: Location) -> Result<(), Error> {
        let count = self.driver.device_count();
        match location {
            Location::Device(ordinal) if ordinal >= count => {
                Err(Error::NoSuchDevice { ordinal, count })
            }
            _ => Ok(()),
        }
    }

    fn point(&self, point: Point) -> Option<u64> {
        Some(match point {
            Point::Free(number) => FREE + (u64::from(number) << 30),
            Point::Taken(which) => self.model.areas[self.kv(which)?].base,
            Point::Odd => FREE + 1,
            Point::Last => u64::MAX - (self.unit as u64 - 1),
        })
    }
}
