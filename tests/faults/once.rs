//! One call fails, once.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::CUresult;
use cuda_vmm::Error;

use crate::operations::Operation;
use crate::stage::{Mode, Stage};
use crate::{expect, tried, CODES};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// A stage on which the operation can run, with an empty log.
pub fn prepared(operation: &Operation, mode: Mode) -> Stage {
    let mut stage = Stage::new(mode);
    (operation.prepare)(&mut stage);
    stage.sim.clear_log();
    stage
}

pub fn check(operation: &Operation, mode: Mode) {
    let mut stage = prepared(operation, mode);
    let undisturbed = (operation.run)(&mut stage);
    let calls = stage.sim.log();
    operation.ends_as_it_should(&undisturbed);
    match operation.silent {
        true => assert_eq!(calls, [], "{operation} is said to make no driver call"),
        false => assert!(!calls.is_empty(), "{operation} made no driver call"),
    }
    stage.end();

    for (at, call) in calls.iter().enumerate() {
        for code in CODES.into_iter().chain([INVALID]) {
            let mut stage = prepared(operation, mode);
            let (before, view) = (stage.sim.snapshot(), stage.view());
            let kept = stage.quarantined();
            let fault = Fault::any_nth(at as u64 + 1).code(code);
            stage.sim.inject(fault).unwrap();
            let result = (operation.run)(&mut stage);
            let log = stage.sim.log();
            let what = format!("{operation}: {fault} ({})", call.call);
            assert_eq!(stage.sim.pending_faults(), [], "{what} did not strike");
            assert_eq!((log[at].call, log[at].result), (call.call, code), "{what}");

            let failures = expect::failures(&log, operation.understands);
            let pieces = operation.pieces(&failures, &result);
            match &result {
                Ok(()) => assert!(failures.is_empty(), "{what} was passed over"),
                Err(error) if operation.refuses(error) => {
                    expect::same(&failures, error.undo_failures());
                }
                Err(error) => {
                    expect::same(&failures, [error]);
                    assert_eq!(error.code(), Some(code.into()), "{what}");
                }
            }
            // Of what the crate owns, INVALID_VALUE is a contradiction: nothing is changed, but the piece is in doubt.
            let in_doubt = code == INVALID && matches!(&result, Err(Error::Disagreement { .. }));
            assert!(in_doubt || stage.quarantined() == kept + pieces, "{what}");
            if result.is_err() && pieces == 0 {
                let after = stage.sim.snapshot();
                assert_eq!(after, before, "{what} left\n{after}\nnot\n{before}");
                assert!(in_doubt || stage.view() == view, "{what} changed the view");
            }
            stage.end();
            tried();
        }
    }
}
