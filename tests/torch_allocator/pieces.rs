//! The heap: which offsets are given out, case by case and against one mark for every 512 bytes.

use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::heap::{Heap, NotGiven, ROUNDING as R};

pub const CASES: &[(&str, fn())] = &[
    (
        "heap: a hole is filled as far as is missing",
        filled_as_far_as_is_missing,
    ),
    ("heap: the best fit, then the lowest address", best_fit),
    ("heap: a stream's own until all are idle", streams),
    ("heap: what is not in use is not given back", not_given),
    ("heap: sizes that cannot be", impossible_sizes),
    ("heap: units that are free are dug", dug),
    ("heap: random programs against marks", random),
];

const U: usize = 8 * R;

fn filled(units: usize) -> Heap {
    let mut heap = Heap::new(64 * U, U);
    heap.fill(0..units * U, 1);
    heap
}

fn filled_as_far_as_is_missing() {
    let mut heap = Heap::new(4 * U, U);
    assert_eq!(heap.take(1, 1), None);
    assert_eq!(heap.wants(1, 1), Some(0..U));
    heap.fill(0..U, 1);
    assert_eq!(heap.take(R + 1, 1), Some(0));
    assert_eq!(
        (heap.used_bytes(), heap.backed_bytes(), heap.size()),
        (2 * R, U, 4 * U)
    );
    // Six of eight are free before the hole: two more units hold 22.
    assert_eq!(heap.wants(22 * R, 1), Some(U..3 * U));
    assert_eq!(heap.wants(22 * R + 1, 1), Some(U..4 * U));
    // They are another stream's.
    assert_eq!(heap.wants(22 * R, 2), Some(U..4 * U));
    assert_eq!(heap.wants(3 * U + 1, 2), None);
    heap.fill(U..3 * U, 1);
    assert_eq!(heap.take(22 * R, 1), Some(2 * R));
    assert_eq!(heap.take(1, 1), None);
}

fn best_fit() {
    let mut heap = filled(2);
    let pieces: Vec<usize> = [3, 1, 2, 1, 2, 1, 6]
        .map(|size| heap.take(size * R, 1).unwrap())
        .to_vec();
    assert_eq!(pieces, [0, 3, 4, 6, 7, 9, 10].map(|at| at * R));
    for (at, size) in [(0, 3), (4, 2), (7, 2)] {
        heap.give(at * R, size * R, 1).unwrap();
    }
    assert_eq!(heap.take(2 * R, 1), Some(4 * R));
    assert_eq!(heap.take(2 * R, 1), Some(7 * R));
    assert_eq!(heap.take(2 * R, 1), Some(0));
    assert_eq!(heap.take(R, 1), Some(2 * R));
    assert_eq!(heap.take(1, 1), None);
}

fn streams() {
    let mut heap = filled(1);
    assert_eq!(heap.take(U, 1), Some(0));
    heap.give(0, U, 2).unwrap();
    assert_eq!(heap.take(1, 1), None);
    assert_eq!(heap.take(R, 2), Some(0));
    heap.settle();
    assert_eq!(heap.take(R, 1), Some(R));
    heap.give(0, R, 2).unwrap();
    heap.give(R, R, 1).unwrap();
    // Two streams' pieces do not become one, though together they would do, until both are idle.
    assert_eq!(heap.take(8 * R, 1), None);
    assert_eq!(heap.take(8 * R, 2), None);
    heap.settle();
    assert_eq!(heap.take(8 * R, 3), Some(0));
}

fn not_given() {
    let mut heap = filled(1);
    let at = heap.take(700, 1).unwrap();
    assert_eq!(heap.give(at, 701, 1), Err(NotGiven::OtherSize(700)));
    assert_eq!(heap.give(at + 512, 700, 1), Err(NotGiven::Unknown));
    assert_eq!(heap.used_bytes(), 2 * R);
    assert_eq!(heap.give(at, 700, 1), Ok(()));
    assert_eq!(heap.give(at, 700, 1), Err(NotGiven::Unknown));
    assert_eq!(heap.give(usize::MAX, 700, 1), Err(NotGiven::Unknown));
    assert_eq!(heap.used_bytes(), 0);
}

fn impossible_sizes() {
    let mut heap = filled(1);
    for size in [usize::MAX, usize::MAX - R, isize::MAX as usize, 64 * U + 1] {
        assert_eq!(heap.take(size, 1), None);
        assert_eq!(heap.wants(size, 1), None);
    }
    assert_eq!(heap.wants(64 * U, 1), Some(U..64 * U));
}

fn dug() {
    let mut heap = filled(4);
    let first = heap.take(R, 1).unwrap();
    let second = heap.take(2 * U, 1).unwrap();
    heap.settle();
    assert_eq!(heap.free_units(), vec![(3 * U..4 * U)]);
    heap.give(second, 2 * U, 1).unwrap();
    heap.settle();
    assert_eq!(heap.free_units(), vec![(U..4 * U)]);
    heap.dig(U..4 * U);
    assert_eq!(heap.free_units(), []);
    assert_eq!((heap.backed_bytes(), heap.used_bytes()), (U, R));
    // One hole again, to the end.
    assert_eq!(heap.wants(63 * U + 7 * R, 1), Some(U..64 * U));
    heap.give(first, R, 1).unwrap();
    heap.settle();
    heap.dig(0..U);
    assert_eq!(heap.backed_bytes(), 0);
    assert_eq!(heap.wants(64 * U, 1), Some(0..64 * U));
}

#[derive(Debug, Clone)]
enum Step {
    Take { asked: usize, stream: usize },
    Give { nth: usize, stream: usize },
    Settle,
    Trim,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mark {
    Hole,
    /// Free, and who may still be using it.
    Free(Option<usize>),
    Used,
}

struct Model {
    marks: Vec<Mark>,
    live: Vec<(usize, usize)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..=3 * U, 1..=3usize).prop_map(|(asked, stream)| Step::Take { asked, stream }),
        7 => (any::<usize>(), 1..=3usize).prop_map(|(nth, stream)| Step::Give { nth, stream }),
        1 => Just(Step::Settle),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..120)
}

fn random() {
    let config = Config {
        cases: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = TestRng::from_seed(RngAlgorithm::XorShift, &[7; 16]);
    let outcome = TestRunner::new_with_rng(config, seed).run(&steps(), |steps| {
        let mut heap = Heap::new(16 * U, U);
        let mut model = Model {
            marks: vec![Mark::Hole; 16 * U / R],
            live: Vec::new(),
        };
        for step in steps {
            model.play(&mut heap, step)?;
        }
        Ok(())
    });
    outcome.unwrap();
}

impl Model {
    fn play(&mut self, heap: &mut Heap, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Take { asked, stream } => self.take(heap, asked, stream)?,
            Step::Give { nth, stream } if !self.live.is_empty() => {
                let (at, asked) = self.live.swap_remove(nth % self.live.len());
                prop_assert_eq!(heap.give(at, asked, stream), Ok(()));
                self.mark(at..at + asked.next_multiple_of(R), Mark::Free(Some(stream)));
            }
            Step::Give { .. } => {}
            Step::Settle => self.settle(heap),
            Step::Trim => {
                self.settle(heap);
                let free = self.free_units();
                let mut told = Vec::new();
                for units in heap.free_units() {
                    heap.dig(units.clone());
                    self.mark(units.clone(), Mark::Hole);
                    told.extend(units.step_by(U));
                }
                prop_assert_eq!(told, free);
            }
        }
        let count = |kind: fn(&&Mark) -> bool| self.marks.iter().filter(kind).count() * R;
        prop_assert_eq!(heap.used_bytes(), count(|mark| **mark == Mark::Used));
        prop_assert_eq!(heap.backed_bytes(), count(|mark| **mark != Mark::Hole));
        Ok(())
    }

    fn take(&mut self, heap: &mut Heap, asked: usize, stream: usize) -> Result<(), TestCaseError> {
        let size = asked.next_multiple_of(R);
        let taken = match heap.take(asked, stream) {
            Some(at) => Some(at),
            None => {
                // What was this stream's alone would have been taken.
                let own = |mark: &Mark| *mark == Mark::Free(Some(stream));
                prop_assert!(self.longest(own) * R < size);
                match heap.wants(asked, stream) {
                    Some(part) => {
                        let (start, end) = (part.start, part.end);
                        prop_assert_eq!((start % U, end % U), (0, 0));
                        let hole = &self.marks[start / R..end / R];
                        prop_assert!(!hole.is_empty() && hole.iter().all(|it| *it == Mark::Hole));
                        heap.fill(part.clone(), stream);
                        self.mark(part, Mark::Free(None));
                        let taken = heap.take(asked, stream);
                        prop_assert!(taken.is_some());
                        taken
                    }
                    None => {
                        let hole = |mark: &Mark| *mark == Mark::Hole;
                        prop_assert!(self.longest(hole) * R < size);
                        None
                    }
                }
            }
        };
        if let Some(at) = taken {
            prop_assert_eq!(at % R, 0);
            for mark in &self.marks[at / R..(at + size) / R] {
                let may = matches!(mark, Mark::Free(None)) || *mark == Mark::Free(Some(stream));
                prop_assert!(may, "{mark:?} is given to stream {stream}");
            }
            self.mark(at..at + size, Mark::Used);
            self.live.push((at, asked));
        }
        Ok(())
    }

    fn settle(&mut self, heap: &mut Heap) {
        heap.settle();
        for mark in &mut self.marks {
            if let Mark::Free(stream) = mark {
                *stream = None;
            }
        }
    }

    fn mark(&mut self, bytes: Range<usize>, mark: Mark) {
        self.marks[bytes.start / R..bytes.end / R].fill(mark);
    }

    fn longest(&self, is_it: impl Fn(&Mark) -> bool) -> usize {
        let runs = self.marks.split(|mark| !is_it(mark));
        runs.map(<[Mark]>::len).max().unwrap_or(0)
    }

    fn free_units(&self) -> Vec<usize> {
        let units = self.marks.chunks(U / R).enumerate();
        units
            .filter(|(_, marks)| marks.iter().all(|mark| *mark == Mark::Free(None)))
            .map(|(unit, _)| unit * U)
            .collect()
    }
}
