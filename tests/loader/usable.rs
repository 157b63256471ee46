//! Libraries that load: which name is found, and what an old one lacks.

use cuda_vmm::sys::{CUresult, Call, DriverCalls, Library};

use crate::made::{answer, child, machine_has_a_driver, Folder};

/// The calls that came after CUDA 10.2, the first driver with virtual memory management.
const NEWER: &[Call] = &[
    Call::cuMemRetainAllocationHandle,
    Call::cuMemGetHandleForAddressRange,
    Call::cuDeviceGetUuid_v2,
    Call::cuDevicePrimaryCtxRelease_v2,
    Call::cuDevicePrimaryCtxReset_v2,
    Call::cuStreamWriteValue32_v2,
];

#[test]
fn the_versioned_name_alone_is_enough() {
    let folder = Folder::new("versioned");
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    assert_eq!(folder.open_in_child(), format!("opened {}", path.display()));
}

#[test]
fn the_versioned_name_goes_before_the_plain_one() {
    let folder = Folder::new("both");
    folder.compiled("libcuda.so", &[], answer);
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    assert_eq!(folder.open_in_child(), format!("opened {}", path.display()));
}

#[test]
fn the_plain_name_will_do() {
    let folder = Folder::new("plain");
    let Some(path) = folder.compiled("libcuda.so", Call::ALL, answer) else {
        return;
    };
    let report = folder.open_in_child();
    if report != format!("opened {}", path.display()) {
        assert!(machine_has_a_driver(&report), "{report}");
    }
}

#[test]
fn a_path_without_a_folder_is_one_of_the_current_folder() {
    let folder = Folder::new("relative");
    if folder.compiled("mine.so", Call::ALL, answer).is_none() {
        return;
    }
    let nowhere = folder.file("nowhere");
    assert_eq!(child("mine.so", &folder.0, &nowhere), "opened ./mine.so");
}

#[test]
fn every_call_reaches_the_function_of_its_name() {
    let folder = Folder::new("table");
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    let library = Library::open_path(&path).unwrap();
    assert_eq!(library.path(), path);
    for &call in Call::ALL {
        assert!(library.provides(call), "{call}");
    }
    let null: *mut usize = std::ptr::null_mut();
    // SAFETY: the functions of the made library read no argument.
    unsafe {
        assert_eq!(library.cuInit(0).0, answer(Call::cuInit));
        assert_eq!(library.cuMemMap(0, 0, 0, 0, 0).0, answer(Call::cuMemMap));
        assert_eq!(library.cuMemUnmap(0, 0).0, answer(Call::cuMemUnmap));
        assert_eq!(
            library.cuMemGetInfo_v2(null, null).0,
            answer(Call::cuMemGetInfo_v2)
        );
        assert_eq!(
            library.cuEventQuery(null.cast()).0,
            answer(Call::cuEventQuery)
        );
    }
}

#[test]
fn a_driver_of_cuda_10_2_loads_and_says_what_it_lacks() {
    let folder = Folder::new("old");
    let old: Vec<Call> = Call::ALL
        .iter()
        .copied()
        .filter(|call| !NEWER.contains(call))
        .collect();
    let Some(path) = folder.compiled("libcuda.so.1", &old, answer) else {
        return;
    };
    let library = Library::open_path(&path).unwrap();
    for &call in Call::ALL {
        assert_eq!(library.provides(call), !NEWER.contains(&call), "{call}");
    }
    let mut handle = 7;
    // SAFETY: the call is absent, so no argument is read.
    let answered =
        unsafe { library.cuMemRetainAllocationHandle(&mut handle, std::ptr::null_mut()) };
    assert_eq!(answered, CUresult::CUDA_ERROR_NOT_FOUND);
    assert_eq!(handle, 7);
}

#[test]
fn many_threads_may_open_it_and_share_it() {
    let folder = Folder::new("threads");
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    let shared = Library::open_path(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let own = Library::open_path(&path).unwrap();
                    // SAFETY: the functions of the made library read no argument.
                    let answers = unsafe { (own.cuInit(0), shared.cuInit(0)) };
                    assert_eq!(answers.0, answers.1);
                }
            });
        }
    });
    // SAFETY: as above. The library is still loaded after 800 of its owners were dropped.
    assert_eq!(unsafe { shared.cuInit(0) }.0, answer(Call::cuInit));
}
