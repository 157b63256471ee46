//! Files of the driver's name that the dynamic linker refuses.

use std::ffi::OsStr;

use cuda_vmm::sys::{Call, Library, LoadError};

use crate::made::{answer, machine_has_a_driver, Folder};

/// The loader's view of a file it must refuse, both by path and when the dynamic linker finds it in a folder.
fn assert_refused(folder: &Folder, reason: &str) {
    let path = folder.file("libcuda.so.1");
    let refused = Library::open_path(&path).unwrap_err();
    let expected = LoadError::NotALibrary {
        path: path.clone(),
        reason: format!("{}: {reason}", path.display()),
    };
    assert_eq!(refused, expected);
    assert_eq!(
        refused.to_string(),
        format!(
            "{0} cannot be loaded: {0}: {reason}; repair or remove it, or take its folder out of LD_LIBRARY_PATH",
            path.display()
        )
    );
    assert_eq!(folder.open_in_child(), format!("{expected:?}"));
}

#[test]
fn a_text_file() {
    let folder = Folder::new("text");
    folder.write(
        "libcuda.so.1",
        b"not found: https://example.com/libcuda.so.1\n"
            .repeat(100)
            .as_slice(),
    );
    assert_refused(&folder, "invalid ELF header");
}

#[test]
fn an_empty_file() {
    let folder = Folder::new("empty");
    folder.write("libcuda.so.1", b"");
    assert_refused(&folder, "file too short");
}

#[test]
fn a_directory() {
    let folder = Folder::new("directory");
    std::fs::create_dir(folder.file("libcuda.so.1")).unwrap();
    assert_refused(&folder, "cannot read file data: Is a directory");
}

#[test]
fn a_library_of_another_word_size() {
    let folder = Folder::new("class");
    let Some(path) = folder.compiled("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 1; // ELFCLASS32
    folder.write("libcuda.so.1", &bytes);
    assert_eq!(
        Library::open_path(&path).unwrap_err(),
        LoadError::NotALibrary {
            reason: format!("{}: wrong ELF class: ELFCLASS32", path.display()),
            path,
        }
    );
    // In a folder the dynamic linker passes over it, and names the class at the end if nothing else is found.
    let report = folder.open_in_child();
    let expected = LoadError::NotALibrary {
        path: "libcuda.so.1".into(),
        reason: "libcuda.so.1: wrong ELF class: ELFCLASS32".to_owned(),
    };
    if report != format!("{expected:?}") {
        assert!(machine_has_a_driver(&report), "{report}");
    }
}

#[test]
fn a_driver_that_needs_a_library_that_is_not_there() {
    let folder = Folder::new("needs");
    let Some(needed) = folder.compiled("libneeded.so", &[], answer) else {
        return;
    };
    let source = "int cuInit(void) { return 0; }\n";
    let more = [OsStr::new("-Wl,--no-as-needed"), needed.as_os_str()];
    let path = folder.compile("libcuda.so.1", source, &more).unwrap();
    std::fs::remove_file(&needed).unwrap();
    let LoadError::NotALibrary {
        path: named,
        reason,
    } = Library::open_path(&path).unwrap_err()
    else {
        panic!("the file is there");
    };
    assert_eq!(named, path);
    assert_eq!(
        reason,
        format!(
            "{}: cannot open shared object file: No such file or directory",
            needed.display()
        )
    );
}
