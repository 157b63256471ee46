//! Every driver call made to fail, one after the other: what failed is told, nothing is lost, and it works again.

use std::ffi::c_int;

use cuda_vmm::sim::Fault;

use crate::ground::{
    bytes, error, free, malloc, pattern, resume, suspend, trim, Ground, DROP, KEEP, MIB, UNIT,
};
use crate::Case;

pub const SIMULATED: &[Case] = &[
    ("faults: the first piece", the_first_piece),
    ("faults: growing", growing),
    ("faults: trimming", trimming),
    ("faults: suspending, contents kept", |it| {
        suspending(it, KEEP)
    }),
    ("faults: suspending, contents dropped", |it| {
        suspending(it, DROP)
    }),
    ("faults: resuming, contents kept", |it| resuming(it, KEEP)),
    ("faults: resuming, contents dropped", |it| {
        resuming(it, DROP)
    }),
];

/// More calls than any of these operations makes.
const MANY: u64 = 200;

/// Runs an operation again and again, each time with the next call failing, until all of its calls went through.
/// `judge` is told what it answered, failed or not, and puts things right again.
fn each_call(ground: &Ground, run: impl Fn() -> i64, mut judge: impl FnMut(i64)) {
    let sim = ground.sim();
    for nth in 1..MANY {
        sim.inject(Fault::any_nth(nth)).unwrap();
        let answer = run();
        let struck = sim.pending_faults().is_empty();
        sim.clear_faults();
        assert!(struck || answer >= 0, "{}", error());
        if answer < 0 {
            assert!(error().contains("CUDA_ERROR_UNKNOWN (999)"), "{}", error());
        }
        judge(answer);
        if !struck {
            assert!(nth > 1, "it makes no call");
            return;
        }
    }
    panic!("more than {MANY} calls");
}

/// The address, or -1.
fn address_of(size: usize) -> i64 {
    match malloc(size, 0) {
        0 => -1,
        address => address as i64,
    }
}

fn the_first_piece(ground: &Ground) {
    let mut before = ground.snapshot();
    each_call(
        ground,
        || address_of(MIB),
        |address| match address {
            -1 => {
                assert_eq!(bytes(), [0; 3]);
                let after = ground.snapshot();
                assert_eq!(
                    (after.mappings, after.handles),
                    (before.mappings.clone(), vec![])
                );
            }
            address => {
                free(address as u64, MIB, 0);
                assert_eq!(trim(), UNIT as i64);
                before = ground.snapshot();
            }
        },
    );
}

fn growing(ground: &Ground) {
    let first = malloc(20 * MIB, 0);
    ground.write(first, &pattern(MIB, 1));
    let before = (ground.snapshot(), bytes());
    each_call(
        ground,
        || address_of(60 * MIB),
        |address| {
            if address > 0 {
                free(address as u64, 60 * MIB, 0);
                assert_eq!(trim(), 2 * UNIT as i64);
            }
            // Handles are never given out twice; all else is as it was.
            let after = ground.snapshot();
            assert_eq!((&after.mappings, bytes()), (&before.0.mappings, before.1));
            assert_eq!(after.free_on_devices, before.0.free_on_devices);
            assert_eq!(after.handles, before.0.handles);
            assert!(ground.read(first, MIB) == pattern(MIB, 1));
        },
    );
    free(first, 20 * MIB, 0);
}

fn trimming(ground: &Ground) {
    let first = malloc(MIB, 0);
    ground.write(first, &pattern(MIB, 1));
    let large = malloc(90 * MIB, 0);
    let (three, one) = (3 * UNIT as i64, UNIT as i64);
    free(large, 90 * MIB, 0);
    assert_eq!(bytes(), [three, three, MIB as i64]);
    let mut before = ground.snapshot();
    each_call(ground, trim, |trimmed| {
        if trimmed < 0 {
            assert_eq!(
                (ground.snapshot(), bytes()),
                (before.clone(), [three, three, MIB as i64])
            );
            assert_eq!(trim(), three - one);
        }
        assert_eq!(bytes(), [one, one, MIB as i64]);
        assert_eq!(malloc(90 * MIB, 0), large);
        free(large, 90 * MIB, 0);
        assert!(ground.read(first, MIB) == pattern(MIB, 1));
        before = ground.snapshot();
    });
    free(first, MIB, 0);
}

/// A piece in each of two blocks, with contents.
fn two_pieces(ground: &Ground) -> [u64; 2] {
    let pieces = [malloc(31 * MIB, 0), malloc(3 * MIB, 0)];
    fill(ground, pieces);
    pieces
}

fn fill(ground: &Ground, pieces: [u64; 2]) {
    for (piece, address) in pieces.iter().enumerate() {
        ground.write(*address, &pattern(MIB, piece as u8));
    }
}

fn holds(ground: &Ground, pieces: [u64; 2], contents: c_int) {
    for (piece, address) in pieces.iter().enumerate() {
        let expected = match contents {
            KEEP => pattern(MIB, piece as u8),
            _ => vec![0; MIB],
        };
        assert!(ground.read(*address, MIB) == expected, "piece {piece}");
    }
}

fn suspending(ground: &Ground, contents: c_int) {
    let pieces = two_pieces(ground);
    let before = bytes();
    each_call(
        ground,
        || suspend(contents),
        |answer| {
            if answer < 0 {
                // As if nothing had been asked; and asked again, it is done.
                assert_eq!(bytes(), before);
                holds(ground, pieces, KEEP);
                assert_eq!(suspend(contents), before[1]);
            }
            assert_eq!(bytes(), [before[0], 0, before[2]]);
            assert_eq!((resume(), bytes()), (0, before));
            holds(ground, pieces, contents);
            fill(ground, pieces);
        },
    );
}

fn resuming(ground: &Ground, contents: c_int) {
    let pieces = two_pieces(ground);
    let before = bytes();
    assert_eq!(suspend(contents), before[1]);
    each_call(
        ground,
        || resume().into(),
        |answer| {
            if answer < 0 {
                // Still asleep, and then awake.
                assert_eq!(bytes(), [before[0], 0, before[2]]);
                assert_eq!((malloc(1, 0), suspend(contents)), (0, -1));
                assert_eq!(resume(), 0);
            }
            assert_eq!(bytes(), before);
            holds(ground, pieces, contents);
            fill(ground, pieces);
            assert_eq!(suspend(contents), before[1]);
        },
    );
    assert_eq!(resume(), 0);
}
