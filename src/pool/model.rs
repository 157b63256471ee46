//! The life of a slice in every order of threads: publish, open, acknowledge, cancel, expiry, death, reuse.
//!
//! The same scenarios run under two checkers, each built by a flag alone:
//!
//! | flag | checker | looks at |
//! |---|---|---|
//! | `--cfg loom` | loom | every order of threads with few switches, and what weak memory orders allow |
//! | `--cfg shuttle` | shuttle | many random orders, and orders with few, well-placed switches |
//!
//! The slice's bytes are a cell that reports a read and a write at the same time, and under loom also a read that is not
//! ordered behind the write by the control words.

use std::sync::Arc;

use super::entry::{Entry, NotOpened, Scope};
use super::lane::Lane;
use super::ledger::Ledger;
use super::slots::SlotRef;

#[cfg(loom)]
mod checker {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::thread;

    /// How many switches that are not forced an order has.
    const SWITCHES: usize = 3;

    pub(super) fn check(scenario: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(SWITCHES);
        model.max_branches = 100_000;
        model.check(scenario);
    }
}

#[cfg(shuttle)]
mod checker {
    use std::sync::Arc;

    use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    pub(super) use shuttle::thread;

    const ORDERS: usize = 2000;
    const SWITCHES: usize = 3;
    const WRITING: usize = 1 << 16;

    pub(super) fn check(scenario: impl Fn() + Send + Sync + 'static) {
        let scenario = Arc::new(scenario);
        let again = scenario.clone();
        shuttle::check_random(move || scenario(), ORDERS);
        shuttle::check_pct(move || again(), ORDERS, SWITCHES);
    }

    /// As loom's: it notices who is inside.
    pub(super) struct UnsafeCell<T> {
        value: std::cell::UnsafeCell<T>,
        inside: AtomicUsize,
    }

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            UnsafeCell {
                value: std::cell::UnsafeCell::new(value),
                inside: AtomicUsize::new(0),
            }
        }

        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            assert!(
                self.inside.fetch_add(1, SeqCst) < WRITING,
                "read while written"
            );
            let result = read(self.value.get());
            self.inside.fetch_sub(1, SeqCst);
            result
        }

        pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            assert_eq!(
                self.inside.fetch_add(WRITING, SeqCst),
                0,
                "written while used"
            );
            let result = write(self.value.get());
            self.inside.fetch_sub(WRITING, SeqCst);
            result
        }
    }
}

use checker::{check, thread, UnsafeCell};

/// A pool of one slot, and what is in it.
struct Scene {
    ledger: Ledger,
    lanes: Vec<Lane>,
    bytes: UnsafeCell<u64>,
}

// SAFETY: the cell is read and written as the control words allow; the checker fails where they allow too much.
#[allow(unsafe_code)]
unsafe impl Sync for Scene {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl Send for Scene {}

fn lane() -> Lane {
    let entries: Box<[Entry]> = Box::new([Entry::default()]);
    Arc::new(entries)
}

impl Scene {
    /// So many consumers, all of one group, and this many of them attached.
    fn new(consumers: usize, attached: usize) -> Scene {
        let groups = (0..consumers).map(|_| 0..consumers).collect();
        let ledger = Ledger::new(256, 1, groups, Scope::All);
        let lanes: Vec<Lane> = (0..consumers).map(|_| lane()).collect();
        for (rank, lane) in lanes.iter().enumerate().take(attached) {
            assert!(ledger.attach(rank, lane));
        }
        Scene {
            ledger,
            lanes,
            bytes: UnsafeCell::new(0),
        }
    }

    /// Publishes, if there is room: the bytes are the generation.
    fn publish(&self, expires: u64) -> Option<SlotRef> {
        let (at, _) = self.ledger.reserve(200).ok()?;
        self.write(at.generation);
        if self.ledger.publish(at, 1, expires).is_err() {
            self.ledger.abandon(at);
            return None;
        }
        Some(at)
    }

    #[allow(unsafe_code)]
    fn write(&self, value: u64) {
        // SAFETY: the slot is reserved by this thread.
        self.bytes.with_mut(|bytes| unsafe { *bytes = value });
    }

    /// Reads what a ticket says, and acknowledges.
    #[allow(unsafe_code)]
    fn consume(&self, at: SlotRef, rank: usize, scope: Scope) -> Result<(), NotOpened> {
        let entry = &(*self.lanes[rank]).as_ref()[0];
        entry.open(at.generation)?;
        // SAFETY: the ticket is open.
        let found = self.bytes.with(|bytes| unsafe { *bytes });
        assert_eq!(
            found, at.generation,
            "the slice was overwritten while it was open"
        );
        entry.close(at.generation);
        entry.finish(at.generation, scope);
        Ok(())
    }

    /// Everything is free, and no consumer holds anything.
    fn is_empty(&self) {
        self.ledger.recycle();
        let free = self.ledger.free();
        assert_eq!((free.bytes, free.largest, free.slots), (256, 256, 1));
        for rank in 0..self.lanes.len() {
            assert_eq!(self.ledger.tally.held(rank), 0);
        }
    }
}

fn spawn(scene: &Arc<Scene>, work: impl FnOnce(&Scene) + Send + 'static) -> thread::JoinHandle<()> {
    let scene = scene.clone();
    thread::spawn(move || work(&scene))
}

#[test]
fn a_slice_is_reused_only_after_both_consumers_are_done() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        let one = spawn(&scene, move |scene| {
            scene.consume(first, 0, Scope::Own).unwrap();
        });
        let two = spawn(&scene, move |scene| {
            scene.consume(first, 1, Scope::Own).unwrap();
        });
        let second = scene.publish(0);
        one.join().unwrap();
        two.join().unwrap();
        if let Some(second) = second {
            scene.consume(second, 0, Scope::Own).unwrap();
            scene.consume(second, 1, Scope::Own).unwrap();
        }
        scene.is_empty();
    });
}

#[test]
fn an_expiring_slice_is_read_whole_or_not_at_all() {
    check(|| {
        let scene = Arc::new(Scene::new(1, 1));
        let first = scene.publish(5).unwrap();
        let reader = spawn(&scene, move |scene| {
            let _ = scene.consume(first, 0, Scope::Own);
        });
        let expiry = spawn(&scene, |scene| {
            scene.ledger.expire(9);
        });
        let second = scene.publish(0);
        reader.join().unwrap();
        expiry.join().unwrap();
        if let Some(second) = second {
            scene.consume(second, 0, Scope::Own).unwrap();
        }
        scene.is_empty();
        let counts = scene.ledger.tally.counts();
        assert_eq!(counts.acknowledged + counts.expired, counts.published);
    });
}

#[test]
fn cancelling_races_with_acknowledging() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        let reader = spawn(&scene, move |scene| {
            let _ = scene.consume(first, 0, Scope::Own);
        });
        scene.ledger.cancel(first);
        let second = scene.publish(0);
        // Clean-up that comes late takes nothing of what came after it.
        scene.ledger.cancel(first);
        reader.join().unwrap();
        if let Some(second) = second {
            scene.consume(second, 0, Scope::Own).unwrap();
            scene.consume(second, 1, Scope::Own).unwrap();
        }
        scene.is_empty();
    });
}

#[test]
fn a_consumer_dies_while_it_acknowledges_and_another_reads() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        let dying = spawn(&scene, move |scene| {
            // It writes its word whenever it comes to it: before its death is noticed, or after.
            let entry = &(*scene.lanes[0]).as_ref()[0];
            let _ = entry.open(first.generation);
            entry.finish(first.generation, Scope::Own);
        });
        let reader = spawn(&scene, move |scene| {
            scene.consume(first, 1, Scope::Own).unwrap();
        });
        scene.ledger.detach(0);
        dying.join().unwrap();
        reader.join().unwrap();
        scene.is_empty();
        scene.ledger.count_late();
        let counts = scene.ledger.tally.counts();
        assert_eq!(counts.acknowledged + counts.reclaimed, 2);
        assert!(counts.late <= counts.reclaimed);
    });
}

#[test]
fn an_acknowledgement_for_all_covers_who_has_not_opened_and_nobody_else() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        let other = spawn(&scene, move |scene| {
            let _ = scene.consume(first, 1, Scope::Own);
        });
        scene.consume(first, 0, Scope::All).unwrap();
        let second = scene.publish(0);
        other.join().unwrap();
        if let Some(second) = second {
            scene.consume(second, 0, Scope::All).unwrap();
        }
        scene.is_empty();
        let counts = scene.ledger.tally.counts();
        assert_eq!(counts.acknowledged + counts.covered, 2 * counts.published);
    });
}

#[test]
fn who_attaches_while_others_acknowledge_for_it_reads_whole_or_not_at_all() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 1));
        let first = scene.publish(0).unwrap();
        let late = spawn(&scene, move |scene| {
            assert!(scene.ledger.attach(1, &scene.lanes[1]));
            let _ = scene.consume(first, 1, Scope::Own);
        });
        scene.consume(first, 0, Scope::Group).unwrap();
        let second = scene.publish(0);
        late.join().unwrap();
        if let Some(second) = second {
            scene.consume(second, 0, Scope::Own).unwrap();
            scene.consume(second, 1, Scope::Own).unwrap();
        }
        scene.is_empty();
    });
}

#[test]
fn what_is_published_while_a_consumer_attaches_reaches_it() {
    check(|| {
        let scene = Arc::new(Scene::new(1, 0));
        let late = spawn(&scene, |scene| {
            assert!(scene.ledger.attach(0, &scene.lanes[0]));
        });
        let first = scene.publish(0).unwrap();
        late.join().unwrap();
        scene.consume(first, 0, Scope::Own).unwrap();
        scene.is_empty();
    });
}

#[test]
fn two_recycle_at_once() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        scene.consume(first, 0, Scope::Own).unwrap();
        scene.consume(first, 1, Scope::Own).unwrap();
        let other = spawn(&scene, |scene| {
            scene.ledger.recycle();
        });
        let second = scene.publish(0);
        other.join().unwrap();
        if let Some(second) = second {
            scene.ledger.cancel(second);
        }
        scene.is_empty();
        assert_eq!(scene.ledger.tally.counts().acknowledged, 2);
    });
}

/// Each may see one of the two, and the one that frees the slice has to see what the other saw.
#[test]
fn two_recycle_while_two_acknowledge() {
    check(|| {
        let scene = Arc::new(Scene::new(2, 2));
        let first = scene.publish(0).unwrap();
        let one = spawn(&scene, move |scene| {
            scene.consume(first, 0, Scope::Own).unwrap();
        });
        let recycler = spawn(&scene, |scene| {
            scene.ledger.recycle();
        });
        scene.consume(first, 1, Scope::Own).unwrap();
        scene.publish(0);
        one.join().unwrap();
        recycler.join().unwrap();
    });
}

/// Nobody publishes once the gate has been waited for. Under shuttle alone: loom's condition variables differ.
#[cfg(shuttle)]
#[test]
fn closing_waits_for_those_inside_and_lets_nobody_in() {
    use super::gate::Gate;

    check(|| {
        let scene = Arc::new((Scene::new(1, 1), Gate::default()));
        let publishers: Vec<_> = [(), ()]
            .map(|()| {
                let scene = scene.clone();
                thread::spawn(move || {
                    let (scene, gate) = &*scene;
                    if gate.enter().is_ok() {
                        if let Some(at) = scene.publish(0) {
                            scene.ledger.cancel(at);
                        }
                        gate.leave();
                    }
                })
            })
            .into_iter()
            .collect();
        let (pool, gate) = &*scene;
        gate.close();
        assert_eq!(gate.wait(None), 0);
        // The memory goes here.
        pool.write(0);
        publishers
            .into_iter()
            .for_each(|publisher| publisher.join().unwrap());
        pool.is_empty();
    });
}

/// A consumer that did not get through attaching leaves, while a slice is published: that is held for the next one.
#[test]
fn what_is_published_while_a_consumer_withdraws_waits_for_the_next_one() {
    check(|| {
        let scene = Arc::new(Scene::new(1, 1));
        let leaving = spawn(&scene, |scene| scene.ledger.withdraw(0));
        let first = scene.publish(0).unwrap();
        leaving.join().unwrap();
        let next = lane();
        assert!(scene.ledger.attach(0, &next));
        let entry = &(*next).as_ref()[0];
        assert_eq!(entry.open(first.generation), Ok(()));
        entry.close(first.generation);
        entry.finish(first.generation, Scope::Own);
        scene.is_empty();
        let counts = scene.ledger.tally.counts();
        assert_eq!((counts.acknowledged, counts.reclaimed), (1, 0));
    });
}
