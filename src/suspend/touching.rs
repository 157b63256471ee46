//! Touching memory of the host by several threads, ahead of whoever registers it and copies to it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder, Thread};

use crate::pages::Pages;

/// What a thread touches at a time.
const SLICE: usize = 8 << 20;

/// More threads than this do not make it faster.
const MOST_THREADS: usize = 16;

/// Pages that are being touched, in their order.
pub(super) struct Touching<'a> {
    pages: Vec<&'a Pages>,
    slices: Vec<(usize, Range<usize>)>,
    next: AtomicUsize,
    /// Slices of each that are not done.
    left: Vec<AtomicUsize>,
    stop: AtomicBool,
    waiting: Thread,
}

/// Has all of the pages touched while the closure runs, which may [wait](Touching::wait) for each in turn. No thread is
/// left when this returns.
pub(super) fn touching<'a, R>(
    pages: Vec<&'a Pages>,
    closure: impl FnOnce(&Touching<'a>) -> R,
) -> R {
    let work = Touching::new(pages);
    let most = thread::available_parallelism().map_or(1, |count| count.get());
    // One that has little to do is done sooner by whoever waits for it.
    let threads = match work.slices.len() {
        0..=2 => 0,
        slices => most.min(MOST_THREADS).min(slices),
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            let builder = Builder::new().name("cuda-vmm-touch".into());
            // Where no thread can be had, those that there are do it, or the one that waits.
            if builder.spawn_scoped(scope, || work.run()).is_err() {
                break;
            }
        }
        let stop = Stop(&work.stop);
        let result = closure(&work);
        drop(stop);
        result
    })
}

/// Tells the threads to end, also when the closure panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Touching<'a> {
    fn new(pages: Vec<&'a Pages>) -> Self {
        let mut slices = Vec::new();
        let mut left = Vec::new();
        for (index, pages) in pages.iter().enumerate() {
            let before = slices.len();
            for start in (0..pages.size()).step_by(SLICE) {
                slices.push((index, start..pages.size().min(start + SLICE)));
            }
            left.push(AtomicUsize::new(slices.len() - before));
        }
        Touching {
            pages,
            slices,
            next: AtomicUsize::new(0),
            left,
            stop: AtomicBool::new(false),
            waiting: thread::current(),
        }
    }

    /// Waits until all of these pages are touched, and does what is left to do of it.
    pub(super) fn wait(&self, index: usize) {
        while self.left[index].load(Ordering::Acquire) > 0 {
            if !self.step() {
                thread::park();
            }
        }
    }

    fn run(&self) {
        let mut more = true;
        while more && !self.stop.load(Ordering::Relaxed) {
            more = self.step();
        }
    }

    /// Touches the next slice; `false` if there is none.
    fn step(&self) -> bool {
        let Some((index, range)) = self.slices.get(self.next.fetch_add(1, Ordering::Relaxed))
        else {
            return false;
        };
        self.pages[*index].touch(range.clone());
        if self.left[*index].fetch_sub(1, Ordering::Release) == 1 {
            self.waiting.unpark();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_touched_in_order() {
        let made: Vec<Pages> = [1, 40, 3]
            .map(|mib| Pages::new(mib << 20).unwrap())
            .into_iter()
            .collect();
        touching(made.iter().collect(), |work| {
            for index in 0..made.len() {
                work.wait(index);
                assert_eq!(work.left[index].load(Ordering::Relaxed), 0);
            }
            work.wait(0);
        });
    }

    #[test]
    fn a_closure_that_waits_for_nothing_ends_the_threads() {
        let pages = Pages::new(64 << 20).unwrap();
        assert_eq!(touching(vec![&pages], |_| 7), 7);
    }
}
