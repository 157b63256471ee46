//! Each operation: what the model expects of it, the operation, what then becomes of the model.

mod copy;
mod end;
mod map;
mod pages;
mod reserve;
mod rights;
mod unmap;

use std::time::Duration;

use cuda_vmm::{Error, Fence};

use crate::operation::{Operation, Wait, Which};
use crate::world::World;

/// What a closure says that does not come to wait.
const NO_WAIT: &str = "the closure gave up";

impl World {
    /// Plays an operation. `None` if there is nothing that it could be done with.
    pub fn play(&mut self, operation: &Operation) -> Option<()> {
        match operation {
            Operation::Reserve(want) => self.reserve(want),
            Operation::Map { kv, at, place, how } => self.map(*kv, *at, *place, *how),
            Operation::MapExisting { kv, at, page } => self.map_existing(*kv, *at, *page),
            Operation::Create { place, size, flaw } => self.create(*place, *size, *flaw),
            Operation::DropPage(page) => self.drop_page(*page),
            Operation::ReleasePage(page) => self.release_page(*page),
            Operation::Retain { kv, at } => self.retain(*kv, *at),
            Operation::IsVmm { kv, at } => self.is_vmm(*kv, *at),
            Operation::Unmap { id, kv, wait } => self.unmap(*id, *kv, *wait),
            Operation::UnmapAt { kv, at, wait } => self.unmap_at(*kv, *at, *wait),
            Operation::UnmapRange { kv, at, wait } => self.unmap_range(*kv, *at, *wait),
            Operation::SetAccess {
                kv,
                at,
                who,
                access,
            } => self.set_access(*kv, *at, *who, *access),
            Operation::SetPolicy { kv, who, access } => self.set_policy(*kv, *who, *access),
            Operation::AccessOf { kv, at, who } => self.access_of(*kv, *at, *who),
            Operation::Write { kv, at, seed } => self.write(*kv, *at, *seed),
            Operation::Read { kv, at } => self.read(*kv, *at),
            Operation::Fill { kv, at, value } => self.fill(*kv, *at, *value),
            Operation::CopyWithin { kv, to, from } => self.copy_within(*kv, *to, *from),
            Operation::CopyFrom {
                kv,
                to,
                other,
                from,
            } => self.copy_from(*kv, *to, *other, *from),
            Operation::View { kv, at } => self.view(*kv, *at),
            Operation::Close { kv, wait } => self.close(*kv, *wait),
            Operation::CloseKeeping(kv) => self.close_keeping(*kv),
            Operation::DropReservation(kv) => self.drop_reservation(*kv),
            Operation::Reclaim => self.reclaim(),
        }
    }

    /// The reservation of that number, among those there are.
    fn kv(&self, which: Which) -> Option<usize> {
        which.checked_rem(self.kvs.len())
    }

    /// The reservation of that number, among those in which something is mapped, if there are any.
    fn busy(&self, which: Which) -> Option<usize> {
        let areas = self.model.areas.iter().enumerate();
        let busy: Vec<usize> = areas
            .filter(|(_, area)| !area.mapped.is_empty())
            .map(|(at, _)| at)
            .collect();
        match which.checked_rem(busy.len()) {
            Some(at) => Some(busy[at]),
            None => self.kv(which),
        }
    }

    /// The fence, and whether waiting for it is bound to fail.
    fn fence(&self, wait: Wait) -> Option<Fence<'static>> {
        let device = |which: Which| &self.devices[which % self.devices.len()];
        Some(match wait {
            Wait::No => return None,
            Wait::Stream(which) => Fence::default_stream(device(which)),
            Wait::Polled(which) => {
                Fence::default_stream(device(which)).within(Duration::from_secs(60))
            }
            Wait::Closure => Fence::closure(|_| Ok::<(), Error>(())),
            Wait::FailingClosure => Fence::closure(|_| Err::<(), &str>(NO_WAIT)),
        })
    }
}

/// The error of a wait that is bound to fail.
fn gives_up(wait: Wait) -> Option<Error> {
    match wait {
        Wait::FailingClosure => Some(Error::WaitFailed(NO_WAIT.into())),
        _ => None,
    }
}
