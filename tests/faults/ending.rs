//! Calls fail while something ends.

use cuda_vmm::sim::{CallRecord, Fault, Snapshot};
use cuda_vmm::sys::{CUresult, Call};

use crate::endings::{End, Said};
use crate::leaks::{self, Told, What};
use crate::stage::{Mode, Stage};
use crate::{expect, other_than, tried, CODES};

pub fn check(end: &End, mode: Mode) {
    let calls = disturbed(end, mode, &[]);
    assert!(calls > 0, "{end} made no driver call");
    for first in 1..=calls {
        for code in CODES {
            let fault = Fault::any_nth(first).code(code);
            let calls = disturbed(end, mode, &[fault]);
            tried();
            let second = other_than(code);
            for later in first + 1..=calls {
                disturbed(end, mode, &[fault, Fault::any_nth(later).code(second)]);
                tried();
            }
            let rest = Fault::any_nth(first + 1).code(second).forever();
            disturbed(end, mode, &[fault, rest]);
            tried();
        }
    }
}

/// Ends it under these faults, checks what is said and what is left, ends that too, and gives how many calls were made.
fn disturbed(end: &End, mode: Mode, faults: &[Fault]) -> u64 {
    let mut stage = Stage::new(mode);
    (end.prepare)(&mut stage);
    leaks::take();
    stage.sim.clear_log();
    for fault in faults {
        stage.sim.inject(*fault).unwrap();
    }
    let said = (end.run)(&mut stage);
    stage.sim.clear_faults();
    let log = stage.sim.log();
    let failures = expect::failures(&log, |_, _| false);
    let unmap_failed = failures
        .iter()
        .any(|record| record.call == Call::cuMemUnmap);
    let freed = log
        .iter()
        .any(|record| record.call == Call::cuMemAddressFree);
    assert!(!(unmap_failed && freed), "{end}: freed beneath a mapping");

    match said {
        Said::Errors(errors) => {
            expect::same(&failures, &errors);
            again(end, stage, errors.is_empty());
        }
        Said::Leaks(told) => {
            let because: Vec<_> = told.iter().flat_map(|told| told.because.clone()).collect();
            let failed: Vec<_> = without_second_tries(&log)
                .map(|record| (record.call, record.result.into()))
                .collect();
            assert_eq!(because, failed, "{end} under {faults:?}");
            leaked_only(&told, stage.wind_up());
        }
    }
    log.len() as u64
}

/// The failed calls, but for one that takes a context off and went through at the second try: nothing is left of that.
fn without_second_tries(log: &[CallRecord]) -> impl Iterator<Item = &CallRecord> {
    let succeeded = |record: &CallRecord| record.result == CUresult::CUDA_SUCCESS;
    let went_through = move |at: usize| {
        let pair = [Some(&log[at]), log.get(at + 1)].map(|record| record.map(|record| record.call));
        pair == [Some(Call::cuCtxPopCurrent_v2); 2] && succeeded(&log[at + 1])
    };
    (0..log.len())
        .filter(move |at| !succeeded(&log[*at]) && !went_through(*at))
        .map(|at| &log[at])
}

/// What is left is what the reservation says, and a second time it ends.
fn again(end: &End, mut stage: Stage, ended: bool) {
    let snapshot = stage.sim.snapshot();
    let there: Vec<_> = snapshot
        .mappings
        .iter()
        .map(|mapping| (mapping.address, mapping.size as usize))
        .collect();
    let held: Vec<_> = stage
        .reservations()
        .flat_map(|kv| kv.mappings())
        .map(|mapping| (mapping.address(), mapping.size()))
        .collect();
    assert_eq!(there, held, "{end}");
    if !ended {
        match (end.run)(&mut stage) {
            Said::Errors(errors) => assert!(errors.is_empty(), "{end} again: {errors:?}"),
            Said::Leaks(told) => panic!("{end} is tried again, and was dropped: {told:?}"),
        }
    }
    // Every count that is left is owned once: one owned by nobody would be left, one owned twice released twice.
    stage.end();
}

/// What is left is what the hook was told of, piece for piece.
fn leaked_only(told: &[Told], left: Snapshot) {
    let mut mappings: Vec<_> = left
        .mappings
        .iter()
        .map(|mapping| What::Mapping(mapping.address, mapping.size as usize))
        .collect();
    let mut told_mappings = pick(told, |what| matches!(what, What::Mapping(..)));
    mappings.sort();
    told_mappings.sort();
    assert_eq!(mappings, told_mappings, "{left}");

    match told_mappings.is_empty() {
        // Leaked mappings keep the addresses around them.
        false => assert_eq!(left.reservations.len(), 1, "{left}"),
        true => {
            let addresses: Vec<_> = left
                .reservations
                .iter()
                .map(|range| What::Addresses(range.address, range.size as usize))
                .collect();
            let told = pick(told, |what| matches!(what, What::Addresses(..)));
            assert_eq!(addresses, told, "{left}");
        }
    }

    let mut counts: Vec<_> = left
        .handles
        .iter()
        .flat_map(|handle| vec![What::Memory(handle.size as usize); handle.count as usize])
        .collect();
    let mut told_memory = pick(told, |what| matches!(what, What::Memory(_)));
    // The size of a handle that was only looked up is not known.
    if told_memory.contains(&What::Memory(0)) {
        assert_eq!(counts.len(), told_memory.len(), "{left}");
    } else {
        counts.sort();
        told_memory.sort();
        assert_eq!(counts, told_memory, "{left}");
    }

    let contexts: Vec<_> = (0..)
        .zip(&left.retained_contexts)
        .flat_map(|(device, count)| vec![What::Context(device); *count as usize])
        .collect();
    let mut told_contexts = pick(told, |what| matches!(what, What::Context(_)));
    told_contexts.sort();
    assert_eq!(contexts, told_contexts, "{left}");
}

fn pick(told: &[Told], wanted: impl Fn(&What) -> bool) -> Vec<What> {
    told.iter().map(|told| told.what).filter(wanted).collect()
}
