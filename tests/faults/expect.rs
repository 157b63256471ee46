//! What failed, by the simulation's log and by the crate's errors; the two must say the same.

use cuda_vmm::sim::{CallRecord, Value};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Attempt, Code, Error, HandleTypes};

/// A failed call, as the log and the error must both name it.
pub type Failed = (Call, Code);

/// The calls that were answered with anything but success, without those whose refusal is an answer to the operation.
pub fn failures<'a>(
    log: &'a [CallRecord],
    understood: impl Fn(Call, CUresult) -> bool + 'a,
) -> Vec<&'a CallRecord> {
    let failed = |record: &&CallRecord| record.result != CUresult::CUDA_SUCCESS;
    log.iter()
        .filter(failed)
        .filter(|record| !understood(record.call, record.result))
        .collect()
}

/// The failed call that an error is about, if it is about one.
pub fn failed(error: &Error) -> Option<Failed> {
    match error {
        Error::Driver(failure) => Some((failure.call, failure.code)),
        Error::Disagreement { failure, .. } => {
            failure.as_ref().map(|failure| (failure.call, failure.code))
        }
        Error::OutOfMemory { .. } | Error::CommitOutOfMemory { .. } => {
            Some((Call::cuMemCreate, Code::ERROR_OUT_OF_MEMORY))
        }
        Error::OutOfAddressSpace { .. } => {
            Some((Call::cuMemAddressReserve, Code::ERROR_OUT_OF_MEMORY))
        }
        Error::NotAnExport { .. } => {
            Some((Call::cuMemImportFromShareableHandle, Code::ERROR_UNKNOWN))
        }
        Error::Gap { .. } => Some((Call::cuMemRetainAllocationHandle, Code::ERROR_INVALID_VALUE)),
        Error::Unshareable { refusals } => match refusals.as_slice() {
            [refusal] => Some((refusal.call, refusal.code)),
            _ => None,
        },
        _ => None,
    }
}

/// The errors are those of the failed calls, one for one, in their order, each with what was attempted.
pub fn same<'a>(failures: &[&CallRecord], errors: impl IntoIterator<Item = &'a Error>) {
    let errors: Vec<&Error> = errors.into_iter().collect();
    let calls: Vec<_> = failures
        .iter()
        .map(|record| Some((record.call, Code::from(record.result))))
        .collect();
    let named: Vec<_> = errors.iter().map(|error| failed(error)).collect();
    assert_eq!(
        named, calls,
        "left: what the errors name; right: what failed"
    );
    for (record, error) in failures.iter().zip(errors) {
        attempt(record, error);
    }
}

/// What an error says was attempted is what the call was passed.
fn attempt(record: &CallRecord, error: &Error) {
    match error {
        Error::OutOfMemory { size, .. } | Error::OutOfAddressSpace { size } => {
            assert_eq!(record.arg("size"), Some(&Value::Size(*size)), "{record}");
        }
        Error::Driver(failure) => passed(record, &failure.attempt),
        Error::NotAnExport { fd, .. } => {
            let passed = Some(&Value::Pointer(*fd as usize));
            assert_eq!(record.arg("shareable"), passed, "{record}");
        }
        Error::Gap { gap, .. } => {
            let passed = Some(&Value::Pointer(gap.start as usize));
            assert_eq!(record.arg("address"), passed, "{record}");
        }
        Error::Unshareable { .. } | Error::CommitOutOfMemory { .. } => {}
        Error::Disagreement {
            failure: Some(failure),
            ..
        } => passed(record, &failure.attempt),
        other => panic!("{record} became {other:?}"),
    }
}

fn passed(record: &CallRecord, attempt: &Attempt) {
    let number = |name: &str| match record.arg(name)? {
        Value::Size(size) => Some(*size as u64),
        Value::Word(word) => Some(*word),
        Value::Pointer(pointer) => Some(*pointer as u64),
        Value::Number(number) => u64::try_from(*number).ok(),
        Value::Null => Some(0),
        _ => None,
    };
    let address = || {
        let names = ["address", "to", "memory"];
        names.into_iter().find_map(number)
    };
    match *attempt {
        Attempt::Plain => {}
        Attempt::Device { ordinal } => {
            let given = number("device").or_else(|| number("ordinal"));
            assert_eq!(given, Some(ordinal.into()), "{record}");
        }
        Attempt::Range { address: at, size } => {
            // A copy to the host is from the address.
            let given = match record.call {
                Call::cuMemcpyDtoH_v2 | Call::cuMemcpyDtoHAsync_v2 => number("from"),
                _ => address(),
            };
            assert_eq!(given, Some(at), "{record}");
            // Unregistering is told no size.
            if record.call != Call::cuMemHostUnregister {
                assert_eq!(number("size").unwrap_or(0), size as u64, "{record}");
            }
        }
        Attempt::Handle { .. } => assert_eq!(record.call, Call::cuMemRelease),
        Attempt::Share { handle_type, .. } => {
            let bits = u64::from(HandleTypes::from(handle_type).bits());
            assert_eq!(number("kind"), Some(bits), "{record}");
        }
        Attempt::Reserve {
            size,
            alignment,
            hint,
        } => {
            let given = ["size", "alignment", "hint"].map(number);
            let named = [size as u64, alignment as u64, hint];
            assert_eq!(given, named.map(Some), "{record}");
        }
        Attempt::Create { size, .. } => {
            assert_eq!(number("size").unwrap_or(0), size as u64, "{record}");
        }
        Attempt::Access {
            address: at, size, ..
        } => {
            assert_eq!(address(), Some(at), "{record}");
            assert_eq!(number("size").unwrap_or(0), size as u64, "{record}");
        }
        ref other => panic!("{record} became {other:?}"),
    }
}

/// How many failures there were of the calls that give something back: each leaves one piece with the crate.
pub fn refused_pieces(failures: &[&CallRecord]) -> usize {
    let gives_back = |record: &&&CallRecord| {
        matches!(
            record.call,
            Call::cuMemUnmap | Call::cuMemRelease | Call::cuMemAddressFree
        )
    };
    failures.iter().filter(gives_back).count()
}
