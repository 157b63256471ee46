//! Every driver call of what goes over several blocks, and of what uses the cache, made to fail: the range is as before
//! (its cache may hold less), and the retry succeeds. Then all further calls fail too: what is left is owned, and goes.

use cuda_vmm::sim::{Fault, LogMode, SimDevice, Simulation, Snapshot};
use cuda_vmm::sys::CUresult;
use cuda_vmm::{Contents, Driver, ElasticRange, Error, Fence};

use crate::case::{state, Case, Machine};

pub const CASES: &[Case] = &[
    Case::simulated("each call of a commit over many blocks fails", committing),
    Case::simulated("each call of a commit from the cache fails", from_cache),
    Case::simulated(
        "each call of a decommit over many blocks fails",
        decommitting,
    ),
    Case::simulated(
        "each call of a decommit into a full cache fails",
        into_cache,
    ),
    Case::simulated("each call of a split fails", splitting),
    Case::simulated("each call of a trim fails", trimming),
];

const CODES: [CUresult; 3] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

type Run = fn(&Machine, &mut ElasticRange) -> Result<(), Error>;

/// A machine of its own for each try, on which the device's context is retained.
fn machine(memory: u64) -> Machine {
    let builder = Simulation::builder().device(SimDevice::new().memory(memory));
    let sim = builder.log(LogMode::All).build().unwrap();
    let machine = Machine::of(Driver::simulated(&sim).unwrap(), Some(sim));
    machine.devices[0].free_memory().unwrap();
    machine
}

/// What must be as before, of the driver's state: all but the memory that only the cache held.
fn mapped(snapshot: &Snapshot) -> String {
    format!(
        "{:?} {:?} {}",
        snapshot.reservations, snapshot.mappings, snapshot.context_depth
    )
}

/// The state without the line's end that tells what is cached.
fn without_cache(state: &str) -> String {
    let (first, rest) = state.split_once('\n').expect("the picture has lines");
    let first = first
        .rsplit_once(", ")
        .expect("it ends with what is cached")
        .0;
    let rest: Vec<&str> = rest
        .lines()
        .filter(|line| !line.starts_with("ElasticRange {"))
        .collect();
    format!("{first}\n{}", rest.join("\n"))
}

fn every_call(prepare: fn(&Machine) -> ElasticRange, run: Run) {
    let first = machine(1 << 30);
    let mut range = prepare(&first);
    first.sim().clear_log();
    run(&first, &mut range).unwrap();
    let calls = first.sim().log().len() as u64;
    assert!(calls > 1, "there is something that can fail");
    let (done, end) = (state_of(&range), first.sim().snapshot());
    assert!(!end.holds_no_memory());
    range.close().unwrap();

    for nth in 1..=calls {
        for code in CODES {
            let machine = machine(1 << 30);
            let mut range = prepare(&machine);
            let (before, snapshot) = (state(&range), machine.sim().snapshot());
            let marks = marks(&range);
            let fault = Fault::any_nth(nth).code(code);
            machine.sim().inject(fault).unwrap();
            let result = run(&machine, &mut range);
            assert_eq!(machine.sim().pending_faults(), [], "{fault} did not strike");
            if let Err(error) = result {
                let what = format!("{fault}: {error}");
                assert_eq!(error.code(), Some(code.into()), "{what}");
                let late = error.undo_failures().is_empty() && matches!(error, Error::NotUndone(_));
                if late {
                    // All was done, but a handle was not released: it is kept.
                    assert_eq!(state_of(&range), done, "{what}");
                    assert_eq!(range.reservation().quarantined(), 1, "{what}");
                } else {
                    assert!(error.undo_failures().is_empty(), "{what}");
                    assert_eq!(
                        without_cache(&state(&range)),
                        without_cache(&before),
                        "{what}"
                    );
                    assert_eq!(
                        mapped(&machine.sim().snapshot()),
                        mapped(&snapshot),
                        "{what}"
                    );
                    if state(&range) == before {
                        assert_eq!(machine.sim().snapshot(), snapshot, "{what}");
                    }
                    assert_eq!(self::marks(&range), marks, "{what}");
                    run(&machine, &mut range).unwrap();
                }
            }
            assert_eq!(state_of(&range), done, "{fault}");
            range.close().unwrap();
            assert!(machine.sim().snapshot().holds_no_memory(), "{fault}");
            assert_eq!(machine.sim().misuses(), []);

            still_owned(prepare, run, fault, code);
        }
    }
}

/// One call fails, and all behind it: nothing is lost track of.
fn still_owned(prepare: fn(&Machine) -> ElasticRange, run: Run, fault: Fault, code: CUresult) {
    let machine = machine(1 << 30);
    let mut range = prepare(&machine);
    machine.sim().inject(fault.forever()).unwrap();
    let error = run(&machine, &mut range).unwrap_err();
    assert_eq!(error.first().code(), Some(code.into()));
    machine.sim().clear_faults();
    // What cannot be read is known to be in quarantine, or is not committed any more.
    for run in range.runs() {
        match range.read(run.start, &mut [0]) {
            Ok(()) | Err(Error::Quarantined { .. }) => {}
            Err(other) => panic!("{error}; then at {}: {other}", run.start),
        }
    }
    let size = range.size();
    range.decommit(0, size).unwrap();
    assert_eq!(
        (range.committed_bytes(), range.retained_bytes()),
        (0, 0),
        "{error}"
    );
    assert_eq!(range.reservation().mapping_count(), 0);
    range.commit(0, size).unwrap();
    range.close().unwrap();
    while machine.sim().snapshot().context_depth > 0 {
        use cuda_vmm::sys::DriverCalls;
        unsafe {
            let _ = machine.sim().cuCtxPopCurrent_v2(std::ptr::null_mut());
        }
    }
    machine.driver.reclaim().unwrap();
    assert!(
        machine.sim().snapshot().holds_no_memory(),
        "{error}\n{}",
        machine.sim().snapshot()
    );
    assert_eq!(machine.sim().misuses(), []);
}

/// Committed runs and blocks: what does not depend on addresses and on the cache.
fn state_of(range: &ElasticRange) -> String {
    let runs: Vec<_> = range.runs().collect();
    let blocks: Vec<_> = range
        .reservation()
        .mappings()
        .map(|block| block.range())
        .collect();
    format!("{runs:?} {blocks:?} {}", range.retained_bytes())
}

/// The first byte of each committed granule.
fn marks(range: &ElasticRange) -> Vec<u8> {
    let starts = range
        .runs()
        .flat_map(|run| run.step_by(range.granularity()));
    starts
        .map(|offset| {
            let mut mark = [0];
            range.read(offset, &mut mark).unwrap();
            mark[0]
        })
        .collect()
}

fn marked(mut range: ElasticRange) -> ElasticRange {
    let offsets: Vec<usize> = range
        .runs()
        .flat_map(|run| run.step_by(range.granularity()))
        .collect();
    for (mark, offset) in offsets.into_iter().enumerate() {
        range.write(offset, &[mark as u8 + 1]).unwrap();
    }
    range
}

fn committing(machine: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let builder = machine
            .builder(16)
            .blocks(g..=4 * g)
            .contents(Contents::Zeroed);
        let mut range = builder.reserve().unwrap();
        range.commit(5 * g, 2 * g).unwrap();
        range.commit(10 * g, g).unwrap();
        marked(range)
    };
    every_call(prepare, |machine, range| {
        range.commit(0, 14 * machine.g).map(drop)
    });
    assert!(machine.is_simulated());
}

fn from_cache(_: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let builder = machine.builder(16).blocks(g..=4 * g).cache(8 * g);
        let mut range = builder
            .contents(Contents::ZeroedUnlessFresh)
            .reserve()
            .unwrap();
        range.commit(0, 7 * g).unwrap();
        range.fill(0, 7 * g, 9).unwrap();
        range.decommit(0, 7 * g).unwrap();
        range.commit(15 * g, g).unwrap();
        range.commit(9 * g, g).unwrap();
        range.decommit(15 * g, g).unwrap();
        marked(range)
    };
    // Blocks of four and two from the cache, and new ones.
    every_call(prepare, |machine, range| {
        range.commit(machine.g, 13 * machine.g).map(drop)
    });
}

fn decommitting(_: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let mut range = machine.builder(16).blocks(g..=4 * g).reserve().unwrap();
        range.commit(0, 7 * g).unwrap();
        range.commit(8 * g, 8 * g).unwrap();
        marked(range)
    };
    every_call(prepare, |machine, range| {
        range.decommit(2 * machine.g, 12 * machine.g).map(drop)
    });
}

fn into_cache(_: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let mut range = machine
            .builder(16)
            .blocks(g..=4 * g)
            .cache(6 * g)
            .reserve()
            .unwrap();
        range.commit(0, 16 * g).unwrap();
        range.decommit(12 * g, 4 * g).unwrap();
        range.commit(12 * g, g).unwrap();
        range.commit(14 * g, 2 * g).unwrap();
        range.decommit(12 * g, 2 * g).unwrap();
        marked(range)
    };
    every_call(prepare, |machine, range| {
        range.decommit(0, 16 * machine.g - machine.g * 2).map(drop)
    });
}

fn splitting(_: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let mut range = machine
            .builder(16)
            .blocks(g..=4 * g)
            .cache(4 * g)
            .reserve()
            .unwrap();
        range.commit(0, 16 * g).unwrap();
        marked(range)
    };
    every_call(prepare, |machine, range| {
        let fence = Fence::closure(|_| Ok::<_, String>(()));
        range
            .decommit_splitting(machine.g, 13 * machine.g, fence)
            .map(drop)
    });
}

fn trimming(_: &Machine) {
    let prepare = |machine: &Machine| {
        let g = machine.g;
        let mut range = machine
            .builder(16)
            .blocks(g..=4 * g)
            .cache(8 * g)
            .reserve()
            .unwrap();
        range.commit(0, 15 * g).unwrap();
        range.decommit(4 * g, 11 * g).unwrap();
        marked(range)
    };
    every_call(prepare, |_, range| range.trim(0).map(drop));
}
