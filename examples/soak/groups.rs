//! A group that is suspended and resumed: elastic ranges in use, and a reservation whose bytes are summed up.

use std::fmt;

use cuda_vmm::suspend::{Backup, Group, Incomplete, Key, MemberId, Select};
use cuda_vmm::{Access, AllocationProps, Contents, Driver, ElasticRange, Error, Reservation};

use crate::elastic::{Model, Played};
use crate::random::Random;
use crate::{must, Outcome};

/// Granules of the reservation that is summed up, mapped in pieces of these many.
const PIECES: [usize; 4] = [1, 2, 5, 8];

/// In bytes.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Of an elastic range.
    pub range: usize,
    /// Of its largest block.
    pub block: usize,
}

pub struct Sleepers<'a> {
    driver: &'a Driver,
    props: &'a AllocationProps,
    granule: usize,
    sizes: Sizes,
    random: Random,
    /// There is one between an `open` and a `close`.
    open: Option<Open>,
    played: Played,
    cycles: Cycles,
}

/// How often members were suspended and resumed, and groups closed.
#[derive(Default)]
struct Cycles {
    suspended: u64,
    resumed: u64,
    copied: u64,
    closed: u64,
}

struct Open {
    group: Group,
    ranges: Vec<Member>,
    weights: Key<Reservation>,
    /// The sum of the bytes of the reservation.
    sum: u64,
}

struct Member {
    key: Key<ElasticRange>,
    model: Model,
    tag: &'static str,
    backup: Backup,
}

impl<'a> Sleepers<'a> {
    pub fn new(
        driver: &'a Driver,
        props: &'a AllocationProps,
        sizes: Sizes,
        random: Random,
    ) -> Outcome<Self> {
        Ok(Sleepers {
            driver,
            props,
            granule: props.granularity()?.minimum(),
            sizes,
            random,
            open: None,
            played: Played::default(),
            cycles: Cycles::default(),
        })
    }

    /// A new group, which keeps host memory or does not, with new members.
    pub fn open(&mut self) -> Outcome {
        let (granule, Sizes { range, block }) = (self.granule, self.sizes);
        let keep = self.random.below(2) == 0;
        let host_block = granule << self.random.below(6);
        let group = Group::new(self.driver).keep_host_memory(keep);
        let mut group = group.host_block(host_block);
        let kinds = [
            (granule, block, 4 * block, Contents::Zeroed, Backup::Host),
            (granule, block, 0, Contents::Unspecified, Backup::None),
            (
                4 * granule,
                block / 2,
                block,
                Contents::ZeroedUnlessFresh,
                Backup::Host,
            ),
        ];
        let mut ranges = Vec::new();
        for (number, (least, most, cache, contents, backup)) in kinds.into_iter().enumerate() {
            let builder = ElasticRange::builder(range, self.props);
            let builder = builder.access(self.props.location(), Access::ReadWrite);
            let builder = builder.blocks(least..=most).cache(cache).contents(contents);
            let kv = builder.reserve()?;
            let model = Model::new(&kv, cache, number as u64);
            let tag = ["cache", "scratch"][number % 2];
            ranges.push(Member {
                key: group
                    .add(kv, tag, backup)
                    .map_err(|refused| refused.error)?,
                model,
                tag,
                backup,
            });
        }
        let (kv, sum) = self.weights()?;
        let weights = group.add(kv, "weights", Backup::Host);
        self.open = Some(Open {
            group,
            ranges,
            weights: weights.map_err(|refused| refused.error)?,
            sum,
        });
        Ok(())
    }

    /// A reservation with holes, full of numbers, and their sum.
    fn weights(&mut self) -> Outcome<(Reservation, u64)> {
        let size = PIECES.iter().map(|piece| 2 * piece).sum::<usize>();
        let builder = Reservation::builder(size * self.granule);
        let builder = builder.access(self.props.location(), Access::ReadWrite);
        let mut kv = builder.reserve(self.driver)?;
        let mut offset = 0;
        for piece in PIECES {
            kv.map(offset, piece * self.granule, self.props)?;
            let words =
                (0..piece * self.granule / 8).flat_map(|_| self.random.bits().to_le_bytes());
            kv.write(offset, &words.collect::<Vec<u8>>())?;
            offset += 2 * piece * self.granule;
        }
        let sum = sum(&kv)?;
        Ok((kv, sum))
    }

    pub fn operation(&mut self) -> Outcome {
        match self.random.below(96) {
            0 => {
                // Whoever sleeps is closed asleep.
                self.close()?;
                self.open()
            }
            1..5 => self.suspend(),
            5..10 => self.resume(),
            10 | 11 => self.copy_between(),
            _ => self.use_one(),
        }
    }

    /// An operation on one range; if it sleeps, it says so.
    fn use_one(&mut self) -> Outcome {
        let open = self.open.as_mut().ok_or("there is no group")?;
        let at = self.random.below(open.ranges.len());
        let Member { key, model, .. } = &mut open.ranges[at];
        let asleep = open.group.is_suspended(key.id())?;
        match open.group.get_mut(key) {
            Ok(range) if !asleep => model.operation(range, &mut self.random),
            Err(Error::Suspended { .. }) if asleep => Ok(()),
            answer => Err(format!("a member, asleep: {asleep}, is lent as {answer:?}").into()),
        }
    }

    /// Takes one range out of the group, copies to it from another, and puts it back.
    fn copy_between(&mut self) -> Outcome {
        let open = self.open.as_mut().ok_or("there is no group")?;
        let count = open.ranges.len();
        let to = self.random.below(count);
        let from = (to + 1 + self.random.below(count - 1)) % count;
        let keys = [&open.ranges[to].key, &open.ranges[from].key];
        for key in keys {
            if open.group.is_suspended(key.id())? {
                return Ok(());
            }
        }
        let mut range = open.group.remove(keys[0])?;
        let source = open.group.get(keys[1])?;
        let mut target = open.ranges.remove(to);
        let other = &open.ranges[from - usize::from(from > to)].model;
        target.model.copy_from(&mut range, other, source)?;
        let added = open.group.add(range, target.tag, target.backup);
        target.key = added.map_err(|refused| refused.error)?;
        open.ranges.insert(to, target);
        Ok(())
    }

    /// All that are awake, those with a tag, or one.
    fn suspend(&mut self) -> Outcome {
        let open = self.open.as_mut().ok_or("there is no group")?;
        let (awake, which) = open.some(false, &mut self.random)?;
        let expected = open.memory_of(&awake)?;
        let (done, error) = told(open.group.suspend(which.select()));
        self.cycles.suspended += done.members.len() as u64;
        self.cycles.copied += done.copied as u64;
        match error {
            Some(error) => Err(error.into()),
            None => must(
                done.members == awake && done.given_back == expected && done.still_held == 0,
                || format!("{expected} bytes of {awake:?} were to be given back, but: {done:?}"),
            ),
        }
    }

    /// All that sleep, those with a tag, or one.
    fn resume(&mut self) -> Outcome {
        let open = self.open.as_mut().ok_or("there is no group")?;
        let (asleep, which) = open.some(true, &mut self.random)?;
        let (done, error) = told(open.group.resume(which.select()));
        self.cycles.resumed += done.members.len() as u64;
        open.check(&done.members)?;
        match error {
            Some(error) => Err(error.into()),
            None => must(done.members == asleep, || {
                format!("{asleep:?} were to be resumed, but: {done:?}")
            }),
        }
    }

    /// Suspends and resumes all of them.
    pub fn nap(&mut self) -> Outcome {
        let open = self.open.as_mut().ok_or("there is no group")?;
        for _ in 0..2 {
            open.group.suspend(Select::All)?;
            let done = open.group.resume(Select::All)?;
            self.cycles.suspended += done.members.len() as u64;
            self.cycles.resumed += done.members.len() as u64;
            open.check(&done.members)?;
        }
        Ok(())
    }

    /// Empties the caches, and gives back half of what every range has. Where there was no memory for a group, there is
    /// by now.
    pub fn make_room(&mut self) -> Outcome {
        if self.open.is_none() {
            return self.open();
        }
        let open = self.open.as_mut().ok_or("there is no group")?;
        for Member { key, model, .. } in &mut open.ranges {
            if !open.group.is_suspended(key.id())? {
                model.make_room(open.group.get_mut(key)?)?;
            }
        }
        Ok(())
    }

    /// Closes the group, its members asleep or awake.
    pub fn close(&mut self) -> Outcome {
        let open = self.open.take().ok_or("there is no group")?;
        let ranges = open.ranges.iter();
        ranges.for_each(|member| self.played.add(&member.model.played));
        self.cycles.closed += 1;
        Ok(open.group.close()?)
    }

    pub fn played(&self) -> impl fmt::Display {
        let mut played = Played::default();
        let ranges = self.open.iter().flat_map(|open| &open.ranges);
        ranges.for_each(|member| played.add(&member.model.played));
        played.add(&self.played);
        let Cycles {
            suspended,
            resumed,
            copied,
            closed,
        } = self.cycles;
        format!(
            "{played}; {suspended} members suspended ({copied} bytes copied to the host), {resumed} resumed, \
             {closed} groups closed"
        )
    }
}

/// Which members an operation is for.
enum Which {
    All,
    Tag(&'static str),
    One(MemberId),
}

impl Which {
    fn select(&self) -> Select<'_> {
        match self {
            Which::All => Select::All,
            Which::Tag(tag) => Select::Tag(tag),
            Which::One(id) => Select::Members(std::slice::from_ref(id)),
        }
    }
}

impl Open {
    /// A choice, and the members among the chosen that sleep, or that are awake.
    fn some(&self, asleep: bool, random: &mut Random) -> Outcome<(Vec<MemberId>, Which)> {
        let mut members = Vec::new();
        for (id, tag) in self.group.members() {
            if self.group.is_suspended(id)? == asleep {
                members.push((id, tag));
            }
        }
        let one = members.get(random.below(members.len().max(1)));
        let which = match (random.below(3), one) {
            (0, Some((id, _))) => Which::One(*id),
            (1, _) => Which::Tag(["cache", "scratch", "weights"][random.below(3)]),
            _ => Which::All,
        };
        members.retain(|(id, tag)| match &which {
            Which::All => true,
            Which::Tag(wanted) => tag == wanted,
            Which::One(one) => id == one,
        });
        Ok((members.into_iter().map(|(id, _)| id).collect(), which))
    }

    /// Bytes that these members have, which are awake.
    fn memory_of(&self, members: &[MemberId]) -> Outcome<usize> {
        let mut bytes = 0;
        for member in members {
            bytes += match self.ranges.iter().find(|range| range.key.id() == *member) {
                Some(range) => {
                    let range = self.group.get(&range.key)?;
                    range.retained_bytes() + range.cached_bytes()
                }
                None => self.group.get(&self.weights)?.mapped_bytes(),
            };
        }
        Ok(bytes)
    }

    /// Whether members that have been resumed hold what they must.
    fn check(&mut self, resumed: &[MemberId]) -> Outcome {
        for Member {
            key, model, backup, ..
        } in &mut self.ranges
        {
            if resumed.contains(&key.id()) {
                if *backup == Backup::None {
                    model.is_zero();
                }
                model.check_all(self.group.get(key)?)?;
            }
        }
        if resumed.contains(&self.weights.id()) {
            let sum = sum(self.group.get(&self.weights)?)?;
            must(sum == self.sum, || {
                format!("the weights add up to {sum:#x} instead of {:#x}", self.sum)
            })?;
        }
        Ok(())
    }
}

/// What was done, and why no more.
fn told<R>(outcome: Result<R, Box<Incomplete<R>>>) -> (R, Option<Error>) {
    match outcome.map_err(|incomplete| *incomplete) {
        Ok(done) => (done, None),
        Err(Incomplete { error, done, .. }) => (done, Some(error)),
    }
}

/// Of all that is mapped, so that no two bytes can change places unnoticed (FNV).
fn sum(kv: &Reservation) -> Outcome<u64> {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for mapping in kv.mappings() {
        let mut bytes = vec![0; mapping.size()];
        kv.read(mapping.offset(), &mut bytes)?;
        for word in bytes.chunks_exact(8) {
            let word = word
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(sum)
}
