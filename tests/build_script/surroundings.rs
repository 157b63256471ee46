//! Running the build script in made-up surroundings, and what there is to assert of a run.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the build script lies; it names itself when it runs.
const SCRIPT: &str = env!("CUDA_VMM_BUILD_SCRIPT");
pub const KEPT: &str = include_str!("../../src/sys/declarations.rs");

pub const KEPT_INSTEAD: &str =
    "; building with the declarations that come with the crate, which are the same \
                            (CUDA_VMM_HEADER=kept says so without this warning)";
pub const CURE: [&str; 2] = [
    "Set CUDA_VMM_HEADER to the cuda.h of CUDA 11.8 or newer (or to the folder that holds it),",
    "or CUDA_VMM_HEADER=kept to build with the declarations that come with the crate.",
];

/// A folder that holds `OUT_DIR` and whatever a test puts beside it, removed at its end.
pub struct Surroundings {
    pub root: PathBuf,
    pub environment: Vec<(&'static str, String)>,
}

/// What one run said and left.
pub struct Run {
    pub succeeded: bool,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    pub stderr: String,
    pub declarations: Option<String>,
    pub version: Option<String>,
}

impl Surroundings {
    pub fn new(test: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("cuda-vmm-build-{}-{test}", std::process::id()));
        std::fs::create_dir_all(root.join("out")).unwrap();
        Surroundings {
            root,
            environment: Vec::new(),
        }
    }

    pub fn set(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        let value = value.as_ref().to_str().unwrap().to_owned();
        self.environment.push((name, value));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A header that is refused for its age, so that a message tells which one was found; no libclang is needed.
    pub fn old_header(&self, name: &str) -> PathBuf {
        self.write(name, "#define CUDA_VERSION 11000\n")
    }

    pub fn run(&self) -> Run {
        let output = Command::new(SCRIPT)
            .env_clear()
            .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"))
            .env("OUT_DIR", self.path("out"))
            .env("CARGO_CFG_TARGET_ARCH", std::env::consts::ARCH)
            .env("CARGO_CFG_TARGET_OS", "linux")
            .env("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
            .envs(self.environment.iter().cloned())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap_or_else(|why| {
                panic!("{SCRIPT}: {why}; this test needs the machine that built it")
            });
        let stdout = String::from_utf8(output.stdout).unwrap();
        let said = |key: &str| -> Vec<String> {
            stdout
                .lines()
                .filter_map(|line| line.strip_prefix(key))
                .map(str::to_owned)
                .collect()
        };
        let left = |name: &str| std::fs::read_to_string(self.path("out").join(name)).ok();
        Run {
            succeeded: output.status.success(),
            errors: said("cargo::error="),
            warnings: said("cargo::warning="),
            stderr: String::from_utf8(output.stderr).unwrap(),
            declarations: left("declarations.rs"),
            version: left("header_version.rs"),
        }
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Run {
    #[track_caller]
    pub fn assert_kept(&self, warnings: &[String]) {
        assert!(self.succeeded, "{:?}", self.errors);
        assert_eq!(self.warnings, warnings);
        assert_eq!(self.declarations.as_deref(), Some(KEPT));
        let version = self.version.as_deref().unwrap();
        assert!(version.ends_with("pub const HEADER_VERSION: Option<u32> = None;\n"));
    }

    #[track_caller]
    pub fn assert_refused(&self, lines: &[String]) {
        assert!(!self.succeeded);
        assert_eq!(self.errors, lines);
        assert_eq!(self.warnings, [""; 0]);
        assert_eq!(self.declarations, None);
        assert_eq!(
            self.stderr, "",
            "a panic, or a compiler that needed not run"
        );
    }

    #[track_caller]
    pub fn assert_found(&self, header: &Path) {
        self.assert_refused(&with_cure(&[format!(
            "{} is of CUDA 11.0 (CUDA_VERSION 11000); cuda-vmm needs 11.8 or newer (CUDA_VERSION 11080).",
            header.display()
        )]));
    }
}

pub fn with_cure(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .cloned()
        .chain(CURE.map(str::to_owned))
        .collect()
}

/// The places of every machine, which a test cannot empty; whether one of them has a header.
pub fn machine_has_a_header() -> bool {
    let found = [
        "/usr/local/cuda/include/cuda.h",
        "/usr/local/cuda/targets/x86_64-linux/include/cuda.h",
        "/usr/local/cuda/targets/sbsa-linux/include/cuda.h",
        "/usr/local/cuda/targets/aarch64-linux/include/cuda.h",
        "/opt/cuda/include/cuda.h",
        "/opt/cuda/targets/x86_64-linux/include/cuda.h",
        "/usr/include/cuda.h",
        "/usr/include/cuda/cuda.h",
        "/usr/local/include/cuda.h",
    ]
    .into_iter()
    .find(|path| Path::new(path).exists());
    if let Some(path) = found {
        skip(&format!(
            "this machine has {path}, which the build script finds"
        ));
    }
    found.is_some()
}

/// Says what is not tested here, past the harness, which shows nothing of a test that passes.
pub fn skip(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
