//! No file at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cuda_vmm::sys::{Library, LoadError, Tried};

use crate::made::{machine_has_a_driver, Folder};

#[test]
fn no_driver_at_all() {
    let folder = Folder::new("none");
    let report = folder.open_in_child();
    if machine_has_a_driver(&report) {
        return;
    }
    let tried = [
        "libcuda.so.1",
        "libcuda.so",
        "/usr/lib/wsl/lib/libcuda.so.1",
    ]
    .map(absent);
    let expected = LoadError::NotFound {
        tried: tried.into(),
    };
    assert_eq!(report, format!("{expected:?}"));
    assert_eq!(
        expected.to_string(),
        "no CUDA driver library found (tried libcuda.so.1, libcuda.so, /usr/lib/wsl/lib/libcuda.so.1: \
         cannot open shared object file: No such file or directory); \
         install the NVIDIA driver, or add the folder that holds libcuda.so.1 to LD_LIBRARY_PATH \
         (in a container: start it with the NVIDIA runtime)"
    );
}

#[test]
fn reasons_that_differ_are_all_told() {
    let denied = Tried {
        file: "libcuda.so".to_owned(),
        reason: "libcuda.so: cannot open shared object file: Permission denied".to_owned(),
    };
    let tried = vec![absent("libcuda.so.1"), denied, absent("/opt/libcuda.so.1")];
    assert_eq!(
        LoadError::NotFound { tried }.to_string(),
        "no CUDA driver library found (tried libcuda.so.1, /opt/libcuda.so.1: \
         cannot open shared object file: No such file or directory; \
         libcuda.so: cannot open shared object file: Permission denied); \
         install the NVIDIA driver, or add the folder that holds libcuda.so.1 to LD_LIBRARY_PATH \
         (in a container: start it with the NVIDIA runtime)"
    );
}

fn absent(file: &str) -> Tried {
    Tried {
        file: file.to_owned(),
        reason: format!("{file}: cannot open shared object file: No such file or directory"),
    }
}

#[test]
fn a_path_that_is_not_there() {
    let folder = Folder::new("path");
    let path = folder.file("libcuda.so.1");
    assert_eq!(
        Library::open_path(&path).unwrap_err(),
        LoadError::NotFound {
            tried: vec![absent(path.to_str().unwrap())]
        }
    );
}

#[test]
fn a_path_with_a_nul_in_it() {
    let path = Path::new(OsStr::from_bytes(b"/opt/lib\0cuda.so"));
    assert_eq!(
        Library::open_path(path).unwrap_err(),
        LoadError::NotFound {
            tried: vec![Tried {
                file: "/opt/lib\0cuda.so".to_owned(),
                reason: "the path contains a NUL byte".to_owned(),
            }]
        }
    );
}
