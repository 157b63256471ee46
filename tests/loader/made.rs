//! Libraries made for a test, and the child processes that open them.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_vmm::sys::Call;

/// Set in a child: how it is to open the library, `open` or a path.
pub const CHILD: &str = "CUDA_VMM_LOADER_CHILD";

/// What each function of a made library answers: 1000 and its place in the list, so that one taken for another shows.
pub fn answer(call: Call) -> u32 {
    1000 + Call::ALL.iter().position(|&each| each == call).unwrap() as u32
}

/// A folder of its own for each test, removed at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("cuda-vmm-loader-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Compiles a library that exports `calls`, each answering with what `answer` says; `None` without a C compiler.
    pub fn compiled(&self, name: &str, calls: &[Call], answer: fn(Call) -> u32) -> Option<PathBuf> {
        let mut source = String::new();
        for &call in calls {
            writeln!(source, "int {call}(void) {{ return {}; }}", answer(call)).unwrap();
        }
        self.compile(name, &source, &[])
    }

    pub fn compile(&self, name: &str, source: &str, more: &[&OsStr]) -> Option<PathBuf> {
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
    pub fn open_in_child(&self) -> String {
        child("open", &self.0, &self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Says what is not tested here, past the harness, which shows nothing of a test that passes.
pub fn skip(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

pub fn compiler_is_required() -> bool {
    std::env::var_os("CUDA_VMM_REQUIRE_CC").is_some_and(|value| value == "1")
}

/// Runs this program's `in_a_child` and gives back the line it reports.
pub fn child(how: &str, current: &Path, library_path: &Path) -> String {
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

/// Whether the machine has a driver of its own, which `open` finds where a test means it to find nothing.
pub fn machine_has_a_driver(report: &str) -> bool {
    let found = report.starts_with("opened ");
    if found {
        skip(&format!("this machine has a driver ({report})"));
    }
    found
}
