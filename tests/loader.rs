//! The loader against libraries that are wrong in every way users have met, built here from C.
//!
//! What the dynamic linker does with a folder in `LD_LIBRARY_PATH` is settled when a process starts, so those cases run
//! this program again as a child. Without a C compiler the tests that need one say so and pass;
//! `CUDA_VMM_REQUIRE_CC=1` makes that a failure.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_vmm::sys::{Attempt, CUresult, Call, DriverCalls, Library, LoadError};

/// Set in a child: how it is to open the library, `open` or a path.
const CHILD: &str = "CUDA_VMM_LOADER_CHILD";

/// The calls that came after CUDA 10.2, the first driver with virtual memory management.
const NEWER: &[Call] = &[
    Call::cuMemRetainAllocationHandle,
    Call::cuMemGetHandleForAddressRange,
    Call::cuDeviceGetUuid_v2,
    Call::cuDevicePrimaryCtxRelease_v2,
    Call::cuDevicePrimaryCtxReset_v2,
];

/// What each function of a made library answers: 1000 and its place in the list, so that one taken for another shows.
fn answer(call: Call) -> u32 {
    1000 + Call::ALL.iter().position(|&each| each == call).unwrap() as u32
}

// ---- folders with libraries in them ----

/// A folder of its own for each test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("cuda-vmm-loader-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Compiles a library that exports `calls`, each answering with what `answer` says; `None` without a C compiler.
    fn library(&self, name: &str, calls: &[Call], answer: fn(Call) -> u32) -> Option<PathBuf> {
        let mut source = String::new();
        for &call in calls {
            writeln!(source, "int {call}(void) {{ return {}; }}", answer(call)).unwrap();
        }
        self.compile(name, &source, &[])
    }

    fn compile(&self, name: &str, source: &str, more: &[&OsStr]) -> Option<PathBuf> {
        let library = self.file(name);
        let c = self.write(&format!("{name}.c"), source.as_bytes());
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &c])
            .args(more)
            .output();
        match compiler {
            Ok(output) => {
                assert!(output.status.success(), "cc failed: {output:?}");
                Some(library)
            }
            Err(why) => {
                assert!(!compiler_is_required(), "no C compiler: {why}");
                skip(&format!("no C compiler ({why})"));
                None
            }
        }
    }

    /// Runs `open` in a child that has this folder in `LD_LIBRARY_PATH`, and nothing else in it.
    fn open_in_child(&self) -> String {
        child("open", &self.0, &self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

fn compiler_is_required() -> bool {
    std::env::var_os("CUDA_VMM_REQUIRE_CC").is_some_and(|value| value == "1")
}

/// Runs this program's `in_a_child` and gives back the line it reports.
fn child(how: &str, current: &Path, library_path: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_child", "--ignored", "--nocapture"])
        .env(CHILD, how)
        .env("LD_LIBRARY_PATH", library_path)
        .current_dir(current)
        .output()
        .unwrap();
    assert!(output.status.success(), "the child died: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, report) = text.split_once("REPORT ").expect("the child reports");
    report.lines().next().unwrap().to_owned()
}

#[test]
#[ignore = "the part of the other tests that runs in a child process"]
fn in_a_child() {
    let Some(how) = std::env::var_os(CHILD) else {
        return;
    };
    let opened = match how.to_str() {
        Some("open") => Library::open(),
        _ => Library::open_path(Path::new(&how)),
    };
    match opened {
        Ok(library) => println!("REPORT opened {}", library.path().display()),
        Err(why) => println!("REPORT {why:?}"),
    }
}

/// Whether the machine has a driver of its own, which `open` finds where a test means it to find nothing.
fn machine_has_a_driver(report: &str) -> bool {
    let found = report.starts_with("opened ");
    if found {
        skip(&format!("this machine has a driver ({report})"));
    }
    found
}

// ---- libraries that work ----

#[test]
fn the_versioned_name_alone_is_enough() {
    let folder = Folder::new("versioned");
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    assert_eq!(folder.open_in_child(), format!("opened {}", path.display()));
}

#[test]
fn the_versioned_name_goes_before_the_plain_one() {
    let folder = Folder::new("both");
    folder.library("libcuda.so", &[], answer);
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, answer) else {
        return;
    };
    assert_eq!(folder.open_in_child(), format!("opened {}", path.display()));
}

#[test]
fn the_plain_name_will_do() {
    let folder = Folder::new("plain");
    let Some(path) = folder.library("libcuda.so", Call::ALL, answer) else {
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
    if folder.library("mine.so", Call::ALL, answer).is_none() {
        return;
    }
    let nowhere = folder.file("nowhere");
    assert_eq!(child("mine.so", &folder.0, &nowhere), "opened ./mine.so");
}

#[test]
fn every_call_reaches_the_function_of_its_name() {
    let folder = Folder::new("table");
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, answer) else {
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
    let Some(path) = folder.library("libcuda.so.1", &old, answer) else {
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
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, answer) else {
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

// ---- libraries that are no driver ----

#[test]
fn a_toolkit_stub_is_named() {
    let folder = Folder::new("stub");
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, |_| 34) else {
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
}

#[test]
fn one_required_call_too_few() {
    let folder = Folder::new("lacking");
    let calls: Vec<Call> = Call::ALL
        .iter()
        .copied()
        .filter(|&call| call != Call::cuMemMap)
        .collect();
    let Some(path) = folder.library("libcuda.so.1", &calls, answer) else {
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
    let Some(path) = folder.library("libcuda.so.1", &[], answer) else {
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
    folder.library("libcuda.so.1", Call::ALL, answer);
    assert_eq!(Library::open_path(&path).unwrap().path(), path);
}

// ---- files that are no library ----

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
    let Some(path) = folder.library("libcuda.so.1", Call::ALL, answer) else {
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
    let Some(needed) = folder.library("libneeded.so", &[], answer) else {
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

// ---- nothing there ----

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

fn absent(file: &str) -> Attempt {
    Attempt {
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
    let path = Path::new(OsStr::from_bytes(b"/tmp/lib\0cuda.so"));
    assert_eq!(
        Library::open_path(path).unwrap_err(),
        LoadError::NotFound {
            tried: vec![Attempt {
                file: "/tmp/lib\0cuda.so".to_owned(),
                reason: "the path contains a NUL byte".to_owned(),
            }]
        }
    );
}
