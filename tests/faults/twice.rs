//! One call fails, and then another does while it is undone, or all of them do.

use cuda_vmm::sim::{CallRecord, Fault};
use cuda_vmm::sys::{CUresult, Call};

use crate::once::prepared;
use crate::operations::Operation;
use crate::stage::Mode;
use crate::{expect, other_than, tried, CODES};

pub fn check(operation: &Operation, mode: Mode) {
    let mut stage = prepared(operation, mode);
    let _ = (operation.run)(&mut stage);
    let calls = stage.sim.log().len() as u64;
    stage.end();

    for first in 1..=calls {
        for code in CODES {
            let fault = Fault::any_nth(first).code(code);
            let log = disturbed(operation, mode, &[fault]);
            let second = other_than(code);
            for later in first + 1..=log.len() as u64 {
                disturbed(
                    operation,
                    mode,
                    &[fault, Fault::any_nth(later).code(second)],
                );
                tried();
            }
            let rest = Fault::any_nth(first + 1).code(second).forever();
            disturbed(operation, mode, &[fault, rest]);
            tried();
        }
    }
}

/// Runs the operation under these faults, checks what it says and what is left, and gives the calls that were made.
fn disturbed(operation: &Operation, mode: Mode, faults: &[Fault]) -> Vec<CallRecord> {
    let mut stage = prepared(operation, mode);
    let (before, kept) = (stage.sim.snapshot(), stage.quarantined());
    for fault in faults {
        stage.sim.inject(*fault).unwrap();
    }
    let result = (operation.run)(&mut stage);
    let log = stage.sim.log();
    stage.sim.clear_faults();
    let failures = expect::failures(&log, operation.understands);
    let what = || format!("{operation} under {faults:?}: {result:?}");

    let pieces = operation.pieces(&failures, &result);
    match &result {
        Ok(()) => assert!(failures.is_empty(), "{}", what()),
        Err(error) if operation.refuses(error) => {
            expect::same(&failures, error.undo_failures());
        }
        Err(error) => {
            let errors = std::iter::once(error.first()).chain(error.undo_failures());
            expect::same(&failures, errors);
        }
    }
    // What a call did not give back stays with the reservation or the driver, piece for piece.
    assert_eq!(stage.quarantined(), kept + pieces, "{}", what());
    if result.is_err() {
        // A context stays current only where taking it off failed twice.
        let depth = stage.sim.snapshot().context_depth - before.context_depth;
        assert_eq!(depth, failed_pops(&log), "{}", what());
        if failures.len() == 1 && pieces == 0 {
            assert_eq!(stage.sim.snapshot(), before, "{}", what());
        }
    }
    stage.end();
    log
}

/// How often a pop failed, and the second try at once behind it too.
fn failed_pops(log: &[CallRecord]) -> usize {
    let failed = |record: &CallRecord| {
        record.call == Call::cuCtxPopCurrent_v2 && record.result != CUresult::CUDA_SUCCESS
    };
    let tries = log.chunk_by(|one, next| failed(one) && failed(next));
    tries
        .filter(|run| run.len() == 2 && failed(&run[0]))
        .count()
}
