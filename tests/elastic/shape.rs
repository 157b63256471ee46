//! Which blocks are made and given back, and what is told of it.

use cuda_vmm::{Committed, Fence, Resized};

use crate::case::{blocks, kept, runs, state, Case, Machine};

pub const CASES: &[Case] = &[
    Case::everywhere("a commit makes the largest blocks that fit", large_blocks),
    Case::everywhere("what is committed is not committed again", twice),
    Case::everywhere("a commit fills what is not backed", fills_gaps),
    Case::everywhere("a least block is made ahead of need", ahead),
    Case::everywhere("a block goes with the last of its granules", last_granule),
    Case::everywhere("what a block keeps is told", told),
    Case::everywhere(
        "a decommit of what is not committed passes it over",
        not_committed,
    ),
    Case::everywhere("a block is aligned in address too", aligned),
    Case::everywhere("plain growth and shrinkage", resizing),
    Case::everywhere("the cache is reused, bounded and trimmed", caching),
    Case::everywhere("the oldest block makes room in the cache", oldest),
    Case::everywhere("a fence is waited for", fences),
    Case::everywhere("a range is drawn", drawn),
    Case::everywhere("dropping gives everything back", dropped),
];

fn did(bytes: usize, blocks: usize, mapped: usize, from_cache: usize) -> Committed {
    let mut did = Committed::default();
    (did.bytes, did.blocks, did.mapped, did.from_cache) = (bytes, blocks, mapped, from_cache);
    did
}

fn large_blocks(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(64).blocks(g..=8 * g).reserve().unwrap();
    assert_eq!(
        range.commit(3 * g, 22 * g).unwrap(),
        did(22 * g, 5, 22 * g, 0)
    );
    assert_eq!(blocks(&range), [1, 4, 8, 8, 1]);
    assert_eq!(runs(&range), [(3, 25)]);
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (22 * g, 22 * g)
    );
    assert_eq!((range.len(), range.is_empty()), (25 * g, false));
    let gone = range.decommit(0, 64 * g).unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.cached, gone.kept_bytes()),
        (22 * g, 22 * g, 0, 0)
    );
    assert_eq!(
        (range.retained_bytes(), range.is_empty(), range.len()),
        (0, true, 0)
    );
    assert_eq!(range.reservation().mapping_count(), 0);
    range.close().unwrap();
}

fn twice(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(16).reserve().unwrap();
    range.commit(0, 4 * g).unwrap();
    range.write(5, b"stays").unwrap();
    let before = state(&range);
    assert_eq!(range.commit(0, 4 * g).unwrap(), Committed::default());
    assert_eq!(range.commit(g, g).unwrap(), Committed::default());
    assert_eq!(state(&range), before);
    assert_eq!(range.commit(2 * g, 4 * g).unwrap(), did(2 * g, 1, 2 * g, 0));
    let mut back = [0; 5];
    range.read(5, &mut back).unwrap();
    assert_eq!(&back, b"stays");
    range.close().unwrap();
}

fn fills_gaps(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(32).blocks(g..=16 * g).reserve().unwrap();
    range.commit(5 * g, g).unwrap();
    range.commit(9 * g, 2 * g).unwrap();
    // Around them the largest that fit: [0, 4) [4] 5 [6, 8) [8] 9 10 [11] [12, 16).
    assert_eq!(blocks(&range), [1, 1, 1]);
    let done = range.commit(0, 16 * g).unwrap();
    assert_eq!(blocks(&range), [4, 1, 1, 2, 1, 1, 1, 1, 4]);
    assert_eq!(done, did(13 * g, 6, 13 * g, 0));
    range.close().unwrap();
}

fn ahead(machine: &Machine) {
    let g = machine.g;
    let mut range = machine
        .builder(64)
        .blocks(8 * g..=16 * g)
        .reserve()
        .unwrap();
    assert_eq!(range.commit(2 * g, g).unwrap(), did(g, 1, 8 * g, 0));
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (g, 8 * g)
    );
    for granule in 3..8 {
        assert_eq!(range.commit(granule * g, g).unwrap(), did(g, 0, 0, 0));
    }
    assert_eq!(
        range.commit(7 * g, 18 * g).unwrap(),
        did(17 * g, 2, 24 * g, 0)
    );
    assert_eq!(blocks(&range), [8, 8, 16]);
    assert_eq!(runs(&range), [(2, 25)]);
    range.close().unwrap();
}

fn last_granule(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(16).blocks(4 * g..=4 * g).reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    for granule in [1, 3, 0] {
        let gone = range.decommit(granule * g, g).unwrap();
        assert_eq!((gone.bytes, gone.released), (g, 0));
        assert_eq!(kept(&gone, g), [(granule, granule + 1)]);
    }
    assert_eq!(runs(&range), [(2, 3), (4, 8)]);
    let gone = range.decommit(2 * g, g).unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (g, 4 * g, 0)
    );
    assert_eq!(blocks(&range), [4]);
    range.close().unwrap();
}

fn told(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(32).blocks(4 * g..=4 * g).reserve().unwrap();
    range.commit(0, 32 * g).unwrap();
    // Cuts the first and the last block it touches.
    let gone = range.decommit(3 * g, 14 * g).unwrap();
    assert_eq!((gone.bytes, gone.released), (14 * g, 12 * g));
    assert_eq!(kept(&gone, g), [(3, 4), (16, 17)]);
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (18 * g, 20 * g)
    );
    // Within one block.
    let gone = range.decommit(21 * g, 2 * g).unwrap();
    assert_eq!(kept(&gone, g), [(21, 23)]);
    // From the start of one, and to the end of one.
    let gone = range.decommit(24 * g, 3 * g).unwrap();
    assert_eq!(kept(&gone, g), [(24, 27)]);
    let gone = range.decommit(29 * g, 3 * g).unwrap();
    assert_eq!(kept(&gone, g), [(29, 32)]);
    // What is left of three blocks, with what was let go before.
    let gone = range.decommit(20 * g, 9 * g).unwrap();
    assert_eq!(
        (gone.bytes, gone.released, gone.kept_bytes()),
        (4 * g, 12 * g, 0)
    );
    assert_eq!(runs(&range), [(0, 3), (17, 20)]);
    range.close().unwrap();
}

fn not_committed(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(16).reserve().unwrap();
    let gone = range.decommit(0, 16 * g).unwrap();
    assert_eq!((gone.bytes, gone.released, gone.kept_bytes()), (0, 0, 0));
    range.commit(4 * g, g).unwrap();
    range.commit(8 * g, g).unwrap();
    let gone = range.decommit(2 * g, 10 * g).unwrap();
    assert_eq!((gone.bytes, gone.released), (2 * g, 2 * g));
    range.close().unwrap();
}

fn aligned(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(64).blocks(g..=16 * g).reserve().unwrap();
    range.commit(0, 64 * g).unwrap();
    for block in range.reservation().mappings() {
        assert_eq!(block.address() % block.size() as u64, 0);
    }
    assert_eq!(range.blocks(), (g, 16 * g));
    range.close().unwrap();
    // Greater blocks than fit ask for no greater alignment than what fits.
    let range = machine.builder(3).reserve().unwrap();
    assert_eq!(range.base() % (2 * g) as u64, 0);
    range.close().unwrap();
}

fn resizing(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(32).blocks(4 * g..=4 * g).reserve().unwrap();
    assert_eq!(range.resize(0).unwrap(), Resized::Unchanged);
    assert_eq!(
        range.resize(g).unwrap(),
        Resized::Grown(did(g, 1, 4 * g, 0))
    );
    assert_eq!(
        range.resize(6 * g).unwrap(),
        Resized::Grown(did(5 * g, 1, 4 * g, 0))
    );
    let Resized::Shrunk(gone) = range.resize(3 * g).unwrap() else {
        panic!("it became shorter");
    };
    assert_eq!((gone.bytes, gone.released), (3 * g, 4 * g));
    assert_eq!(kept(&gone, g), [(3, 4)]);
    assert_eq!((range.len(), range.committed_bytes()), (3 * g, 3 * g));
    // A hole stays one.
    range.decommit(g, g).unwrap();
    range.resize(4 * g).unwrap();
    assert_eq!(runs(&range), [(0, 1), (2, 4)]);
    let fence = Fence::closure(|_| -> Result<(), String> { panic!("growing waits for nothing") });
    range.resize_after(5 * g, fence).unwrap();
    let Resized::Shrunk(gone) = range.resize(0).unwrap() else {
        panic!("it became shorter");
    };
    assert_eq!((gone.bytes, gone.released), (4 * g, 8 * g));
    range.close().unwrap();
}

fn caching(machine: &Machine) {
    let g = machine.g;
    let mut range = machine
        .builder(64)
        .blocks(g..=8 * g)
        .cache(8 * g)
        .reserve()
        .unwrap();
    range.commit(0, 12 * g).unwrap();
    assert_eq!(blocks(&range), [8, 4]);
    // The larger comes first, and leaves no room for the smaller.
    let gone = range.decommit(0, 12 * g).unwrap();
    assert_eq!(
        (gone.cached, gone.released, range.cached_bytes()),
        (8 * g, 4 * g, 8 * g)
    );
    assert_eq!(
        range.commit(16 * g, 8 * g).unwrap(),
        did(8 * g, 1, 8 * g, 8 * g)
    );
    assert_eq!(range.cached_bytes(), 0);
    range.commit(24 * g, g).unwrap();
    let gone = range.decommit(24 * g, g).unwrap();
    assert_eq!((gone.cached, gone.released), (g, 0));
    // Of another size: nothing for it.
    assert_eq!(
        range.commit(32 * g, 2 * g).unwrap(),
        did(2 * g, 1, 2 * g, 0)
    );
    assert_eq!(range.trim(g).unwrap(), 0);
    assert_eq!(range.trim(0).unwrap(), g);
    assert_eq!(range.cached_bytes(), 0);
    range.decommit(0, 64 * g).unwrap();
    // Closing releases what is cached.
    assert_eq!(range.cached_bytes(), 8 * g);
    range.close().unwrap();
}

fn oldest(machine: &Machine) {
    let g = machine.g;
    let mut range = machine
        .builder(64)
        .blocks(g..=8 * g)
        .cache(8 * g)
        .reserve()
        .unwrap();
    range.commit(0, 8 * g).unwrap();
    range.commit(8 * g, g).unwrap();
    range.commit(10 * g, 2 * g).unwrap();
    range.decommit(0, 8 * g).unwrap();
    assert_eq!(range.cached_bytes(), 8 * g);
    range.decommit(8 * g, g).unwrap();
    assert_eq!(range.cached_bytes(), g);
    range.decommit(10 * g, 2 * g).unwrap();
    assert_eq!(range.cached_bytes(), 3 * g);
    range.commit(0, 8 * g).unwrap();
    assert_eq!(range.trim(2 * g).unwrap(), g);
    range.close().unwrap();
}

fn fences(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(8).reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    let before = state(&range);
    let error = range
        .decommit_after(0, 4 * g, Fence::closure(|_| Err("not yet")))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "waiting for the work failed, nothing was unmapped: not yet"
    );
    assert_eq!(state(&range), before);
    let fence = Fence::default_stream(&machine.devices[0]);
    assert_eq!(
        range.decommit_after(4 * g, 4 * g, fence).unwrap().bytes,
        4 * g
    );
    let fence = Fence::default_stream(&machine.devices[0]);
    range.resize_after(g, fence).unwrap();
    assert_eq!(range.len(), g);
    range
        .close_after(Fence::default_stream(&machine.devices[0]))
        .unwrap();

    let mut range = machine.builder(8).cache(g).reserve().unwrap();
    range.commit(0, g).unwrap();
    range.commit(g, g).unwrap();
    range.decommit(0, g).unwrap();
    let unclosed = range
        .close_after(Fence::closure(|_| Err("busy")))
        .unwrap_err();
    // Cached blocks are the reservation's now, and go with it.
    unclosed.reservation.into_inner().close().unwrap();
    let mut range = machine.builder(8).reserve().unwrap();
    range.commit(0, g).unwrap();
    let fence = Fence::default_stream(&machine.devices[0]);
    range.close_in_background(fence).unwrap().join().unwrap();
}

fn drawn(machine: &Machine) {
    let g = machine.g;
    let mut range = machine
        .builder(8)
        .blocks(2 * g..=4 * g)
        .cache(8 * g)
        .reserve()
        .unwrap();
    range.commit(0, 4 * g).unwrap();
    range.commit(6 * g, g).unwrap();
    range.decommit(g, g).unwrap();
    let mib = |granules: usize| (granules * g) >> 20;
    let picture = format!(
        "elastic range {:#x}, {} MiB: {} MiB committed, {} MiB retained in 2 blocks, 0 B cached\n  \
         [#-##..#-]\n  {:#14x}  {:>6} MiB  in 1 blocks\n  {:#14x}  {:>6} MiB  in 1 blocks\n  {:#14x}  {:>6} MiB  in 1 blocks\n",
        range.base(), mib(8), mib(4), mib(6), 0, mib(1), 2 * g, mib(2), 6 * g, mib(1)
    );
    assert_eq!(range.to_string(), picture);
    range.close().unwrap();
}

fn dropped(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(8).cache(8 * g).reserve().unwrap();
    range.commit(0, 8 * g).unwrap();
    range.decommit(0, 8 * g).unwrap();
    range.commit(0, g).unwrap();
    drop(range);
}
