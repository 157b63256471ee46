//! Two hundred cycles, with checksums, and free bytes that stay flat.

use cuda_vmm::suspend::{Backup, Group, Select};

use crate::ground::Ground;
use crate::{support, Case};

const CYCLES: usize = 200;

pub const CASES: &[Case] = &[
    ("two hundred cycles, host memory kept", |ground| {
        cycles(ground, true, Others::Absent)
    }),
    ("two hundred cycles, host memory made anew", |ground| {
        cycles(ground, false, Others::Absent)
    }),
    ("two hundred cycles of three processes at once", processes),
];

/// Whether other programs take and give memory of the same device meanwhile, so that free bytes say nothing.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    Absent,
    Present,
}

fn processes(ground: &Ground) {
    let part = match ground.sim {
        Some(_) => "cycles",
        None => "cycles real",
    };
    let before = ground.free();
    let start = |_| support::again(part).unwrap().spawn().unwrap();
    let processes: Vec<_> = (0..3).map(start).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert!(ground.free().abs_diff(before) <= ground.g);
}

/// What each of the three does.
pub fn play(ground: &Ground) {
    cycles(ground, true, Others::Present);
}

/// FNV-1a, over words.
fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x100_0000_01b3)
    })
}

fn contents(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = vec![0; size];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&next().to_le_bytes());
    }
    bytes
}

fn cycles(ground: &Ground, keep: bool, others: Others) {
    // What the simulated driver copies, the CPU does.
    let small = Ground::small(128 << 10);
    let ground = if ground.sim.is_some() { &small } else { ground };
    let g = ground.g;
    // Several handles, more than a block, and a hole; a second member whose contents go.
    let sizes = [1, 1, 4, 2];
    let bytes = 8 * g;
    let mut weights = ground.reserve(12);
    let mut at = 0;
    for size in sizes {
        weights.map(at * g, size * g, &ground.props()).unwrap();
        at += size;
    }
    weights.map_releasing(10 * g, g, &ground.props()).unwrap();
    let mut cache = ground.reserve(16);
    cache.map(0, 16 * g, &ground.props()).unwrap();
    let mut group = Group::new(&ground.driver)
        .host_block(3 * g)
        .keep_host_memory(keep);
    let weights = group.add(weights, "weights", Backup::Host).unwrap();
    let cache = group.add(cache, "cache", Backup::None).unwrap();
    let mut seen = vec![0; bytes];
    let mut free = None;
    for cycle in 0..CYCLES {
        let written = contents(cycle as u64 + 1, bytes);
        let kv = group.get_mut(&weights).unwrap();
        kv.write(0, &written).unwrap();
        kv.write(10 * g + 5, &(cycle as u64).to_le_bytes()).unwrap();
        let done = group.suspend(Select::All).unwrap();
        assert_eq!((done.given_back, done.copied), (25 * g, 9 * g));
        let asleep = ground.free();
        group.resume(Select::All).unwrap();
        let awake = ground.free();
        let kv = group.get(&weights).unwrap();
        kv.read(0, &mut seen).unwrap();
        assert_eq!(checksum(&seen), checksum(&written), "cycle {cycle}");
        let mut tail = [0; 8];
        kv.read(10 * g + 5, &mut tail).unwrap();
        assert_eq!(tail, (cycle as u64).to_le_bytes());
        let kv = group.get_mut(&cache).unwrap();
        kv.read(7 * g, &mut tail).unwrap();
        assert_eq!(tail, [0; 8]);
        kv.fill(0, 16 * g, 0xee).unwrap();
        let first = *free.get_or_insert((asleep, awake));
        // Other programs may take a granule or two of a real device meanwhile.
        let drift = first.0.abs_diff(asleep).max(first.1.abs_diff(awake));
        let allowed = if ground.sim.is_some() { 0 } else { 2 * g };
        assert!(
            drift <= allowed || others == Others::Present,
            "cycle {cycle}: {drift} bytes from the first"
        );
    }
    group.close().unwrap();
    small.leaves_nothing().unwrap();
}
