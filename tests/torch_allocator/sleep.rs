//! Suspended and resumed: the same addresses, the same contents or none.

use crate::ground::{
    bytes, count, error, free, malloc, malloc_as_is, pattern, resume, suspend, trim, Ground, DROP,
    KEEP, MEMORY, MIB, UNIT,
};
use crate::Case;

pub const CASES: &[Case] = &[
    ("contents are kept", kept),
    ("contents are dropped", dropped),
    ("asleep, nothing is given out, and freeing works", asleep),
    ("twice is an error", twice),
    ("nothing to suspend", nothing),
    ("fifty cycles", cycles),
];

pub const SIMULATED: &[Case] = &[
    (
        "free units are not copied, and not brought back",
        free_units,
    ),
    ("resumed when there is memory again", no_memory_to_wake),
    ("two devices sleep", two_devices),
];

fn kept(ground: &Ground) {
    let sizes = [3 * MIB + 5, 70 * MIB, 512];
    let pieces: Vec<u64> = sizes.iter().map(|size| malloc(*size, 0)).collect();
    for (piece, address) in pieces.iter().enumerate() {
        ground.write(*address, &pattern(sizes[piece], piece as u8));
    }
    let (before, free_before) = (bytes(), ground.free_memory());
    assert_eq!(suspend(KEEP), before[1]);
    assert_eq!(bytes(), [before[0], 0, before[2]]);
    if ground.sim.is_some() {
        assert_eq!(ground.free_memory(), free_before + before[1] as usize);
        assert_eq!(ground.snapshot().mappings, []);
    } else {
        assert!(ground.free_memory() > free_before);
    }
    assert_eq!(resume(), 0);
    assert_eq!((bytes(), error()), (before, String::new()));
    for (piece, address) in pieces.iter().enumerate() {
        let held = ground.read(*address, sizes[piece]);
        assert!(held == pattern(sizes[piece], piece as u8), "piece {piece}");
        free(*address, sizes[piece], 0);
    }
}

fn dropped(ground: &Ground) {
    let piece = malloc(MIB, 0);
    ground.write(piece, &pattern(MIB, 1));
    assert_eq!(suspend(DROP), UNIT as i64);
    assert_eq!(resume(), 0);
    assert!(ground.read(piece, MIB) == vec![0; MIB]);
    ground.write(piece, &pattern(MIB, 2));
    // What becomes of contents is chosen each time.
    assert_eq!((suspend(KEEP), resume()), (UNIT as i64, 0));
    assert!(ground.read(piece, MIB) == pattern(MIB, 2));
    free(piece, MIB, 0);
}

fn asleep(ground: &Ground) {
    let (one, two) = (malloc(MIB, 0), malloc(MIB, 0));
    ground.write(two, &pattern(MIB, 5));
    assert_eq!(suspend(KEEP), UNIT as i64);
    for size in [MIB, 100 * MIB] {
        assert_eq!(malloc(size, 0), 0);
        assert_eq!(error(), "no memory is given out while it is suspended");
    }
    // Nor of a device that had no part in it.
    assert_eq!(malloc_as_is(1, 1, 0), 0);
    assert_eq!(trim(), -1);
    assert_eq!(error(), "no memory is given out while it is suspended");
    free(one, MIB, 0);
    assert_eq!(count(2), MIB as i64);
    assert_eq!(resume(), 0);
    assert_eq!(malloc(MIB, 0), one);
    assert!(ground.read(two, MIB) == pattern(MIB, 5));
    free(one, MIB, 0);
    free(two, MIB, 0);
}

fn twice(_: &Ground) {
    let piece = malloc(MIB, 0);
    assert_eq!(
        (resume(), error().as_str()),
        (-1, "it is not suspended: there is nothing to resume")
    );
    assert_eq!(suspend(DROP), UNIT as i64);
    assert_eq!(
        (suspend(DROP), error().as_str()),
        (-1, "it is suspended already")
    );
    assert_eq!(resume(), 0);
    assert_eq!(resume(), -1);
    free(piece, MIB, 0);
}

fn nothing(_: &Ground) {
    assert_eq!((suspend(KEEP), bytes()), (0, [0, 0, 0]));
    assert_eq!(
        (malloc(1, 0), error().as_str()),
        (0, "no memory is given out while it is suspended")
    );
    assert_eq!(resume(), 0);
    let piece = malloc(1, 0);
    assert_ne!(piece, 0);
    free(piece, 1, 0);
}

fn cycles(ground: &Ground) {
    let mut pieces: Vec<(u64, usize, u8)> = Vec::new();
    let mut free_after = Vec::new();
    for cycle in 0..50_u8 {
        let size = 100_000 * (usize::from(cycle) % 7 + 1);
        let address = malloc(size, usize::from(cycle % 3));
        assert_ne!(address, 0, "{}", error());
        ground.write(address, &pattern(size, cycle));
        pieces.push((address, size, cycle));
        if pieces.len() > 8 {
            let (address, size, cycle) = pieces.remove(usize::from(cycle) % 8);
            free(address, size, usize::from(cycle % 3));
        }
        assert!(suspend(KEEP) > 0, "{}", error());
        assert_eq!(resume(), 0, "{}", error());
        for (address, size, piece) in &pieces {
            assert!(ground.read(*address, *size) == pattern(*size, *piece));
        }
        free_after.push(count(1) as usize + ground.free_memory());
    }
    if ground.sim.is_some() {
        assert!(free_after.iter().all(|bytes| *bytes == MEMORY));
    }
    for (address, size, cycle) in pieces {
        free(address, size, usize::from(cycle % 3));
    }
}

fn free_units(ground: &Ground) {
    let (small, large) = (malloc(MIB, 1), malloc(150 * MIB, 2));
    ground.write(small, &pattern(MIB, 1));
    free(large, 150 * MIB, 2);
    let all = 6 * UNIT as i64;
    assert_eq!(bytes(), [all, all, MIB as i64]);
    assert_eq!(suspend(KEEP), all);
    // One unit alone was copied.
    let registered = ground.snapshot().registered;
    assert_eq!(
        registered.iter().map(|one| one.size).sum::<u64>(),
        UNIT as u64
    );
    assert_eq!(resume(), 0);
    assert_eq!(bytes(), [UNIT as i64, UNIT as i64, MIB as i64]);
    assert!(ground.read(small, MIB) == pattern(MIB, 1));
    // The host's memory is kept for the next time, until it is trimmed.
    assert_eq!(ground.snapshot().registered, registered);
    assert_eq!((trim(), ground.snapshot().registered), (0, vec![]));
    free(small, MIB, 1);
}

fn no_memory_to_wake(ground: &Ground) {
    let pieces = [malloc(120 * MIB, 0), malloc(60 * MIB, 0)];
    ground.write(pieces[1], &pattern(60 * MIB, 3));
    assert_eq!(suspend(KEEP), 6 * UNIT as i64);
    // Another process takes it.
    let taken = cuda_vmm::AllocationProps::on(&ground.device())
        .create(100 * MIB)
        .unwrap();
    let before = ground.snapshot();
    assert_eq!(resume(), -1);
    let text = error();
    assert!(
        text.starts_with("resuming: not enough free memory on device 0 for "),
        "{text}"
    );
    assert!(text.ends_with("; 0 resumed, 1 suspended still"), "{text}");
    assert_eq!(ground.snapshot().mappings, before.mappings);
    assert_eq!(ground.snapshot().free_on_devices, before.free_on_devices);
    drop(taken);
    assert_eq!(resume(), 0);
    assert!(ground.read(pieces[1], 60 * MIB) == pattern(60 * MIB, 3));
    free(pieces[0], 120 * MIB, 0);
    free(pieces[1], 60 * MIB, 0);
}

fn two_devices(ground: &Ground) {
    let pieces = [0, 1].map(|device| malloc_as_is(MIB as isize, device, 0));
    for (piece, address) in pieces.iter().enumerate() {
        ground.write_on(piece as u32, *address, &pattern(MIB, piece as u8));
    }
    assert_eq!(suspend(KEEP), 2 * UNIT as i64);
    assert_eq!(ground.snapshot().free_on_devices, [MEMORY as u64; 2]);
    assert_eq!(resume(), 0);
    for (piece, address) in pieces.iter().enumerate() {
        assert!(ground.read_on(piece as u32, *address, MIB) == pattern(MIB, piece as u8));
    }
}
