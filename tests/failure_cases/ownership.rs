//! A. Ownership, reference counts, teardown order.

use cuda_vmm::sim::{CallRecord, Fault, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Allocation, Code, Error, Location, Reservation};

use crate::case::{Case, Machine};
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::both(
        "creating, mapping and dropping in a loop",
        a_loop_of_everything,
    ),
    Case::both("looking up an allocation takes nothing", a_thousand_looks),
    Case::sim(
        "an emptied reservation has nothing to give back twice",
        an_emptied_reservation,
    ),
    Case::both(
        "out of memory is an error, and the retry succeeds",
        out_of_memory,
    ),
    Case::sim(
        "out of memory in a row keeps what was mapped",
        out_of_memory_in_a_row,
    ),
    Case::sim(
        "two reservations side by side are freed one by one",
        side_by_side,
    ),
    Case::both(
        "the size that was mapped is the size that is undone",
        a_rounded_size,
    ),
    Case::both("growing that fails keeps what was there", a_failed_growth),
    Case::sim("after a move nobody names the old range", a_move),
    Case::sim("a failed reservation frees nothing", a_failed_reservation),
    Case::sim(
        "whatever was made in whatever order goes in the one order",
        any_order,
    ),
    Case::both(
        "a handle released while it is mapped frees nothing before the unmap",
        released_while_mapped,
    ),
    Case::both("memory comes back while the addresses stay", addresses_stay),
];

/// Failure case 1.
fn a_loop_of_everything(on: &Machine) {
    let size = (64_usize << 20).next_multiple_of(on.g);
    let free = on.free();
    for turn in 0..64 {
        let mut kv = on.reserve(size / on.g * 3);
        let page = on.props.create(size).unwrap();
        kv.map(0, size, &on.props).unwrap();
        kv.map_releasing(size, size, &on.props).unwrap();
        kv.map_existing(2 * size, &page).unwrap();
        match turn % 3 {
            0 => drop((kv, page)),
            1 => drop((page, kv)),
            _ => {
                drop(page);
                kv.close().unwrap();
            }
        }
        on.returned(free);
    }
}

/// Failure case 2.
fn a_thousand_looks(on: &Machine) {
    let mut kv = on.reserve(4);
    let id = kv.map(on.g, on.g, &on.props).unwrap();
    let inside = kv.base() + on.g as u64 + 5;
    for _ in 0..1000 {
        assert!(on.driver.is_vmm(inside).unwrap());
        let page = Allocation::retain(&on.driver, inside).unwrap();
        assert_eq!(page.size(), on.g);
    }
    if let Some(sim) = &on.sim {
        let counts: Vec<_> = sim.snapshot().handles.iter().map(|of| of.count).collect();
        assert_eq!(counts, [1]);
    }
    let free = on.free();
    kv.unmap(id).unwrap();
    on.returned(free + on.g);
    kv.close().unwrap();
}

fn given_back(rig: &Rig) -> [u64; 3] {
    [Call::cuMemUnmap, Call::cuMemRelease, Call::cuMemAddressFree]
        .map(|call| rig.sim.calls_of(call))
}

/// Failure cases 3 and 4, as far as there is no pause yet: what is unmapped is neither unmapped nor released again.
fn an_emptied_reservation() {
    for by_drop in [true, false] {
        let rig = Rig::new();
        let mut kv = rig.reserve(4);
        let id = kv.map(0, G, &rig.props()).unwrap();
        kv.map_releasing(G, G, &rig.props()).unwrap();
        kv.unmap(id).unwrap();
        kv.unmap_range(G, G).unwrap();
        let [unmaps, releases, frees] = given_back(&rig);
        let error = kv.unmap_range(0, 2 * G).unwrap_err();
        assert!(matches!(error, Error::Hole { hole, .. } if hole == (0..2 * G)));
        match by_drop {
            true => drop(kv),
            false => kv.close().unwrap(),
        }
        assert_eq!(given_back(&rig), [unmaps, releases, frees + 1]);
        rig.leaves_nothing();
    }
}

/// Failure case 6: the error comes from the call that failed, and nothing can be copied to what is not there.
fn out_of_memory(on: &Machine) {
    let total = on.device.total_memory().unwrap().next_multiple_of(on.g);
    let mut kv = on.reserve(total / on.g);
    let error = kv.map(0, total, &on.props).unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(
        matches!(error, Error::OutOfMemory { size, location: Location::Device(0) } if size == total),
        "{error:?}"
    );
    let error = kv.write(0, &[1]).unwrap_err();
    assert!(
        matches!(error, Error::Hole { ref hole, .. } if *hole == (0..1)),
        "{error:?}"
    );
    kv.map(0, on.g, &on.props).unwrap();
    kv.write(0, &[1]).unwrap();
    kv.close().unwrap();
}

/// Failure case 7, as far as there is no group yet.
fn out_of_memory_in_a_row() {
    let rig = Rig::new();
    let mut kv = rig.reserve(8);
    for at in 0..5 {
        kv.map(at * G, G, &rig.props()).unwrap();
        kv.fill(at * G, G, at as u8).unwrap();
    }
    let before = (rig.sim.snapshot(), kv.to_string());
    let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    rig.sim
        .inject(Fault::on(Call::cuMemCreate).code(code).times(3))
        .unwrap();
    for at in 5..8 {
        let error = kv.map(at * G, G, &rig.props()).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { size: G, .. }),
            "{error:?}"
        );
        assert_eq!((rig.sim.snapshot(), kv.to_string()), before);
    }
    kv.map(5 * G, 3 * G, &rig.props()).unwrap();
    let mut byte = [9];
    for at in 0..5 {
        kv.read(at * G, &mut byte).unwrap();
        assert_eq!(byte, [at as u8]);
    }
    kv.close().unwrap();
    rig.leaves_nothing();
}

fn words(record: &CallRecord) -> (u64, usize) {
    match (record.arg("address"), record.arg("size")) {
        (Some(Value::Word(address)), Some(Value::Size(size))) => (*address, *size),
        other => panic!("{record} has {other:?}"),
    }
}

/// Failure case 8.
fn side_by_side() {
    let rig = Rig::new();
    let mut a = rig.reserve(1);
    let end = a.base() + G as u64;
    let mut b = Reservation::builder(2 * G)
        .access(rig.device(), Access::ReadWrite)
        .exact_address(end)
        .reserve(&rig.driver)
        .unwrap();
    a.map(0, G, &rig.props()).unwrap();
    b.map(0, 2 * G, &rig.props()).unwrap();
    let (base, before) = (a.base(), given_back(&rig));
    rig.sim.clear_log();
    drop((a, b));
    let log = rig.sim.log();
    let frees: Vec<_> = log
        .iter()
        .filter(|record| record.call == Call::cuMemAddressFree)
        .map(words)
        .collect();
    assert_eq!(frees, [(base, G), (end, 2 * G)]);
    assert_eq!(given_back(&rig), before.map(|count| count + 2));
    rig.leaves_nothing();
}

/// Failure cases 9 and 34.
fn a_rounded_size(on: &Machine) {
    let granularity = on.props.granularity().unwrap();
    for wanted in [128, 6912, on.g - 1, on.g + 1, on.g + on.g / 2 + 1] {
        let size = granularity.round_up(wanted).unwrap();
        assert_eq!(size, wanted.next_multiple_of(granularity.recommended()));
        let error = on.props.create(wanted).unwrap_err();
        assert!(
            matches!(error, Error::Misaligned { value, .. } if value == wanted),
            "{error:?}"
        );
        let mut kv = on.reserve(size / on.g + 1);
        let id = kv.map(0, size, &on.props).unwrap();
        assert_eq!(kv.mapping(&id).unwrap().size(), size);
        assert_eq!(kv.mapped_bytes(), size);
        kv.fill(0, wanted, 0x5a).unwrap();
        kv.unmap_range(0, size).unwrap();
        kv.close().unwrap();
    }
}

/// Failure cases 10 and 25.
fn a_failed_growth(on: &Machine) {
    let mut kv = on.reserve(4);
    kv.map(0, on.g, &on.props).unwrap();
    kv.map(on.g, on.g, &on.props).unwrap();
    kv.fill(0, 2 * on.g, 0x5a).unwrap();
    let total = on.device.total_memory().unwrap().next_multiple_of(on.g);
    let drawn = kv.to_string();
    // Of memory, of room, and of a place that is taken.
    let mut large = on.reserve(total / on.g);
    large.map(0, total, &on.props).unwrap_err();
    kv.map(2 * on.g, 3 * on.g, &on.props).unwrap_err();
    kv.map(on.g, 2 * on.g, &on.props).unwrap_err();
    assert_eq!(kv.to_string(), drawn);
    let mut bytes = vec![0; 2 * on.g];
    kv.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0x5a));
    assert_eq!(kv.access_of(on.g, &on.device).unwrap(), Access::ReadWrite);
    large.close().unwrap();
    kv.close().unwrap();
}

/// Failure case 11.
fn a_move() {
    let rig = Rig::new();
    let mut old = rig.reserve(2);
    old.map(0, G, &rig.props()).unwrap();
    old.map(G, G, &rig.props()).unwrap();
    old.write(G - 2, b"kept").unwrap();
    let range = old.base()..old.base() + 2 * G as u64;
    let mut new = rig.reserve(8);
    for (offset, page) in old.close_keeping().unwrap() {
        new.map_existing(offset, &page).unwrap();
    }
    rig.sim.clear_log();
    let mut bytes = [0; 4];
    new.read(G - 2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    new.close().unwrap();
    for record in rig.sim.log() {
        let named = |name| matches!(record.arg(name), Some(Value::Word(at)) if range.contains(at));
        assert!(
            !["address", "to", "from"].into_iter().any(named),
            "{record}"
        );
    }
    rig.leaves_nothing();
}

/// Failure cases 13 and 43.
fn a_failed_reservation() {
    let rig = Rig::new();
    let taken = rig.reserve(2);
    let codes = [
        CUresult::CUDA_ERROR_INVALID_VALUE,
        CUresult::CUDA_ERROR_UNKNOWN,
    ];
    for code in codes {
        rig.sim
            .inject(Fault::on(Call::cuMemAddressReserve).code(code))
            .unwrap();
        let builder = Reservation::builder(G).hint(taken.base());
        let error = builder.reserve(&rig.driver).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cuMemAddressReserve (2097152 bytes (2 MiB), alignment 0, address hint {:#x}) failed with {}",
                taken.base(),
                Code::from(code)
            )
        );
    }
    assert_eq!(rig.sim.calls_of(Call::cuMemAddressFree), 0);
    assert_eq!(rig.driver.quarantined(), 0);
    taken.close().unwrap();
    rig.leaves_nothing();
}

/// Failure case 14: unmap, release, ..., free, for reservations that were furnished in any order.
fn any_order() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % bound as u64) as usize
    };
    let rig = Rig::new();
    for _ in 0..50 {
        let mut kv = rig.reserve(16);
        let mut made = Vec::new();
        for _ in 0..12 {
            let at = below(16);
            if kv.map(at * G, G, &rig.props()).is_ok() {
                made.push(kv.base() + (at * G) as u64);
            }
        }
        rig.sim.clear_log();
        let base = kv.base();
        kv.close().unwrap();
        let log = rig.sim.log();
        let calls: Vec<_> = log.iter().map(|record| record.call).collect();
        let mut expected = [Call::cuMemUnmap, Call::cuMemRelease].repeat(made.len());
        expected.push(Call::cuMemAddressFree);
        assert_eq!(calls, expected);
        let unmapped: Vec<_> = log
            .iter()
            .filter(|record| record.call == Call::cuMemUnmap)
            .map(words)
            .collect();
        let reversed: Vec<_> = made.into_iter().rev().map(|at| (at, G)).collect();
        assert_eq!(unmapped, reversed);
        assert_eq!(words(log.last().unwrap()), (base, 16 * G));
    }
    rig.leaves_nothing();
}

/// Failure case 16.
fn released_while_mapped(on: &Machine) {
    let size = 32 * on.g;
    let free = on.free();
    let mut kv = on.reserve(64);
    let page = on.props.create(size).unwrap();
    kv.map_existing(0, &page).unwrap();
    page.release().unwrap();
    kv.map_releasing(size, size, &on.props).unwrap();
    on.returned(free - 2 * size);
    kv.fill(0, 2 * size, 0x5a).unwrap();
    let mut byte = [0];
    kv.read(2 * size - 1, &mut byte).unwrap();
    assert_eq!(byte, [0x5a]);
    kv.unmap_range(0, size).unwrap();
    on.returned(free - size);
    kv.unmap_range(size, size).unwrap();
    on.returned(free);
    kv.close().unwrap();
}

/// Failure case 22.
fn addresses_stay(on: &Machine) {
    let size = 4 << 30;
    let mut kv = on.reserve(size / on.g);
    let free = on.free();
    for _ in 0..3 {
        kv.map(0, size / 2, &on.props).unwrap();
        kv.map(size / 2, size / 2, &on.props).unwrap();
        on.returned(free - size);
        kv.unmap_range(0, size).unwrap();
        on.returned(free);
    }
    kv.close().unwrap();
}
