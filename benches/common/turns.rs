//! Measuring in turns, and medians.

use std::time::Instant;

/// Medians in microseconds of several ways, taken in turns; each goes first in its turn, so that none is always the one
/// that finds the driver warm.
pub(crate) fn in_turns<const N: usize>(
    rounds: usize,
    ways: [&mut dyn FnMut() -> f64; N],
) -> [f64; N] {
    let mut figures = [const { Vec::new() }; N];
    for round in 0..rounds + 1 {
        for turn in 0..N {
            let which = (round + turn) % N;
            let figure = ways[which]();
            // The first round is for warming up.
            if round > 0 {
                figures[which].push(figure);
            }
        }
    }
    figures.map(median)
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub(crate) fn microseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / 1000.0
}
