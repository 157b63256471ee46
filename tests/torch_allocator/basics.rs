//! Memory out and in again, counts, bad input, and what happens when there is none left.

use crate::ground::{
    bytes, count, error, error_in, error_length_alone, free, free_as_is, malloc, malloc_as_is,
    pattern, resume, trim, Ground, MEMORY, MIB, UNIT,
};
use crate::Case;

pub const CASES: &[Case] = &[
    ("pieces hold what is written to them", hold_what_is_written),
    ("freed on a stream, reused on it", reused_on_its_stream),
    ("trimming gives back what is wholly free", trimmed),
    ("bad input is named, and changes nothing", bad_input),
    ("an error's text is cut where the buffer ends", cut_text),
    ("no bytes are no memory", no_bytes),
];

pub const SIMULATED: &[Case] = &[
    ("out of memory is told, and passes", out_of_memory),
    (
        "memory of idle streams is used when there is no other",
        idle_streams,
    ),
    ("each device has its own", two_devices),
    (
        "a piece larger than the addresses",
        larger_than_the_addresses,
    ),
];

fn hold_what_is_written(ground: &Ground) {
    let sizes = [1, 700, 5 * MIB + 3, 40 * MIB];
    let pieces: Vec<u64> = sizes.iter().map(|size| malloc(*size, 0)).collect();
    for (piece, address) in pieces.iter().enumerate() {
        assert_eq!(address % 512, 0);
        ground.write(*address, &pattern(sizes[piece], piece as u8));
    }
    for (piece, address) in pieces.iter().enumerate() {
        let held = ground.read(*address, sizes[piece]);
        assert!(held == pattern(sizes[piece], piece as u8), "piece {piece}");
    }
    let used: usize = sizes.iter().map(|size| size.next_multiple_of(512)).sum();
    let two = 2 * UNIT as i64;
    assert_eq!(bytes(), [two, two, used as i64]);
    for (piece, address) in pieces.iter().enumerate() {
        free(*address, sizes[piece], 0);
    }
    assert_eq!(bytes(), [two, two, 0]);
    assert_eq!(error(), "");
}

fn reused_on_its_stream(_: &Ground) {
    let first = malloc(20 * MIB, 7);
    free(first, 20 * MIB, 7);
    let other = malloc(20 * MIB, 8);
    assert_ne!(other, first, "stream 7 may still be at work on it");
    assert_eq!(malloc(20 * MIB, 7), first);
    assert_eq!(count(0), 2 * UNIT as i64);
    free(first, 20 * MIB, 7);
    free(other, 20 * MIB, 8);
    // Both idle, what is free is one piece, and anybody's.
    assert_eq!(trim(), 2 * UNIT as i64);
    assert_eq!(malloc(50 * MIB, 9), first);
    free(first, 50 * MIB, 9);
}

fn trimmed(ground: &Ground) {
    let (small, large) = (malloc(MIB, 0), malloc(100 * MIB, 0));
    let before = ground.free_memory();
    ground.write(small, &pattern(MIB, 1));
    // Both lie in units that are used.
    assert_eq!(trim(), 0);
    free(large, 100 * MIB, 0);
    let three = 3 * UNIT as i64;
    assert_eq!(
        bytes(),
        [three + UNIT as i64, three + UNIT as i64, MIB as i64]
    );
    assert_eq!(trim(), three);
    assert_eq!(bytes(), [UNIT as i64, UNIT as i64, MIB as i64]);
    if ground.sim.is_some() {
        assert_eq!(ground.free_memory(), before + 3 * UNIT);
    }
    assert_eq!(malloc(100 * MIB, 0), large);
    assert!(ground.read(small, MIB) == pattern(MIB, 1));
    free(large, 100 * MIB, 0);
    free(small, MIB, 0);
}

fn bad_input(ground: &Ground) {
    let piece = malloc(1000, 3);
    let refused = |call: &dyn Fn(), text: &str| {
        let before = (
            bytes(),
            ground.sim.as_ref().map(|sim| (sim.calls(), sim.snapshot())),
        );
        call();
        let after = (
            bytes(),
            ground.sim.as_ref().map(|sim| (sim.calls(), sim.snapshot())),
        );
        assert_eq!((error().as_str(), after), (text, before));
    };
    refused(&|| assert_eq!(malloc_as_is(-1, 0, 3), 0), "-1 is no size");
    refused(
        &|| assert_eq!(malloc_as_is(1, -1, 3), 0),
        "-1 is no device's number",
    );
    refused(&|| free_as_is(piece, -1000, 0, 3), "-1000 is no size");
    refused(
        &|| free_as_is(piece, 1000, -1, 3),
        "-1 is no device's number",
    );
    refused(&|| free_as_is(piece, 1000, 1, 3), "1 is no device's number");
    let cannot = |address: u64, why: &str| {
        format!("{address:#x} with 1000 bytes cannot be freed on device 0: {why}")
    };
    let unknown = "no piece in use starts there";
    for address in [piece + 512, piece - 512, 0x1000, u64::MAX] {
        refused(&|| free(address, 1000, 3), &cannot(address, unknown));
    }
    refused(
        &|| free(piece, 999, 3),
        &format!(
            "{piece:#x} with 999 bytes cannot be freed on device 0: the piece there has 1000 bytes"
        ),
    );
    refused(
        &|| assert_eq!(count(3), -1),
        "3 names no count: 0 is what is committed, 1 what is retained, 2 what is in use",
    );
    refused(
        &|| assert_eq!(resume(), -1),
        "it is not suspended: there is nothing to resume",
    );
    free(piece, 1000, 3);
    refused(&|| free(piece, 1000, 3), &cannot(piece, unknown));
}

fn cut_text(_: &Ground) {
    assert_eq!((error_length_alone(), error_in(1)), (0, (String::new(), 0)));
    assert_eq!(count(9), -1);
    let whole = error();
    assert_eq!(error_length_alone(), whole.len());
    assert_eq!(error_in(8), (whole[..7].to_owned(), whole.len()));
    assert_eq!(error_in(whole.len() + 1), (whole.clone(), whole.len()));
    // It stays until there is another.
    assert_eq!(count(2), 0);
    assert_eq!(error(), whole);
}

fn no_bytes(_: &Ground) {
    assert_eq!(malloc(0, 0), 0);
    free(0, 0, 0);
    free(0, 10, 0);
    assert_eq!((error(), bytes()), (String::new(), [0, 0, 0]));
}

fn out_of_memory(ground: &Ground) {
    let first = malloc(200 * MIB, 0);
    ground.write(first, &pattern(MIB, 2));
    assert_eq!(trim(), 0);
    let before = (ground.snapshot(), bytes());
    assert_eq!(malloc(60 * MIB, 0), 0);
    assert_eq!(
        error(),
        "no piece of 62914560 bytes on device 0: 234881024 bytes are committed, 209715200 of them in use: \
         not enough free memory on device 0 for the 67108864 bytes (64 MiB) that committing needs, with \
         35651584 bytes (34 MiB) free"
    );
    assert_eq!((ground.snapshot(), bytes()), before);
    assert!(ground.read(first, MIB) == pattern(MIB, 2));
    // With what is free in the last unit, one more is enough.
    let second = malloc(50 * MIB, 0);
    assert_eq!(second, first + 200 * MIB as u64);
    assert_eq!(count(0), 8 * UNIT as i64);
    free(first, 200 * MIB, 0);
    free(second, 50 * MIB, 0);
    assert_eq!(malloc(250 * MIB, 0), first);
    free(first, 250 * MIB, 0);
}

fn idle_streams(ground: &Ground) {
    let (first, second) = (malloc(96 * MIB, 1), malloc(128 * MIB, 2));
    free(first, 96 * MIB, 1);
    // One unit is left, and the first stream's three.
    let third = malloc(64 * MIB, 3);
    assert_eq!(third, first);
    free(second, 128 * MIB, 2);
    // Four are free behind two: the same six units do not lie where seven are asked for, but two and six do.
    assert_eq!(count(0), 7 * UNIT as i64);
    let fourth = malloc(192 * MIB, 4);
    assert_eq!((fourth, error()), (first + 64 * MIB as u64, String::new()));
    assert_eq!(bytes(), [8 * UNIT as i64; 3]);
    assert_eq!(ground.free_memory(), 2 * MIB);
    free(third, 64 * MIB, 3);
    free(fourth, 192 * MIB, 4);
}

fn two_devices(ground: &Ground) {
    let pieces = [
        malloc_as_is(MIB as isize, 0, 0),
        malloc_as_is(MIB as isize, 1, 0),
    ];
    assert_eq!(bytes(), [2 * UNIT as i64, 2 * UNIT as i64, 2 * MIB as i64]);
    let left = (MEMORY - UNIT) as u64;
    assert_eq!(ground.snapshot().free_on_devices, [left, left]);
    free_as_is(pieces[1], MIB as isize, 0, 0);
    assert!(error().ends_with("cannot be freed on device 0: no piece in use starts there"));
    free_as_is(pieces[1], MIB as isize, 1, 0);
    free_as_is(pieces[0], MIB as isize, 0, 0);
    assert_eq!(trim(), 2 * UNIT as i64);
    // There is no third one.
    assert_eq!(malloc_as_is(1, 2, 0), 0);
    assert_eq!(
        error(),
        "there is no device 2: the driver has 2, numbers 0 to 1"
    );
}

fn larger_than_the_addresses(_: &Ground) {
    assert_eq!(malloc(1, 0) % 512, 0);
    assert_eq!(malloc(isize::MAX as usize, 0), 0);
    assert_eq!(
        error(),
        "no piece of 9223372036854775807 bytes on device 0: no such row of addresses is left of the \
         1073741824 bytes that are reserved, 512 of them in use"
    );
    assert_eq!(bytes(), [UNIT as i64, UNIT as i64, 512]);
}
