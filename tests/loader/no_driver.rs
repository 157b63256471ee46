//! Libraries that load and are no driver.

use cuda_vmm::sys::{CUresult, Call, DriverCalls, Library, LoadError};
use cuda_vmm::{Driver, Error};

use crate::made::{answer, Folder};

#[test]
fn a_toolkit_stub_is_named() {
    let folder = Folder::new("stub");
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, |_| 34) else {
        return;
    };
    let library = Library::open_path(&path).unwrap();
    // SAFETY: the functions of the made library read no argument.
    let answered = unsafe { library.cuInit(0) };
    let refused = library.refuse_stub(answered).unwrap_err();
    assert_eq!(refused, LoadError::StubLibrary { path: path.clone() });
    assert_eq!(
        refused.to_string(),
        format!(
            "{} is the toolkit's stub, which is for linking only (CUDA_ERROR_STUB_LIBRARY); take its folder out of \
             LD_LIBRARY_PATH so that the libcuda.so.1 of the NVIDIA driver is found",
            path.display()
        )
    );
    for other in [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NO_DEVICE] {
        assert_eq!(library.refuse_stub(other), Ok(other));
    }

    let error = Driver::load_from(&path).unwrap_err();
    assert!(
        matches!(&error, Error::StubLibrary { path: at } if *at == path),
        "{error:?}"
    );
    assert_eq!(error.to_string(), refused.to_string());
}

#[test]
fn one_required_call_too_few() {
    let folder = Folder::new("lacking");
    let calls: Vec<Call> = Call::ALL
        .iter()
        .copied()
        .filter(|&call| call != Call::cuMemMap)
        .collect();
    let Some(path) = folder.compiled("libcuda.so.1", &calls, answer) else {
        return;
    };
    let refused = Library::open_path(&path).unwrap_err();
    assert_eq!(
        refused,
        LoadError::MissingCalls {
            path: path.clone(),
            missing: vec![Call::cuMemMap],
        }
    );
    assert_eq!(
        refused.to_string(),
        format!(
            "{} does not export cuMemMap: it is not the CUDA driver, or one older than CUDA 10.2; update the NVIDIA driver",
            path.display()
        )
    );
}

#[test]
fn a_library_of_something_else() {
    let folder = Folder::new("foreign");
    let Some(path) = folder.compiled("libcuda.so.1", &[], answer) else {
        return;
    };
    let refused = Library::open_path(&path).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "{} does not export cuInit, cuDriverGetVersion, cuDeviceGetCount and 11 more: \
             it is not the CUDA driver, or one older than CUDA 10.2; update the NVIDIA driver",
            path.display()
        )
    );
    // It was given back: a good library put in its place is found.
    std::fs::remove_file(&path).unwrap();
    folder.compiled("libcuda.so.1", Call::ALL, answer);
    assert_eq!(Library::open_path(&path).unwrap().path(), path);
}
