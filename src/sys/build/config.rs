//! Everything the build script learns from its environment, read once.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where the declarations are to come from.
pub enum Source {
    /// Whatever `cuda.h` the machine has.
    Search,
    /// The header that `CUDA_VMM_HEADER` names.
    Header(PathBuf),
    /// The declarations that come with the crate.
    Kept,
}

pub struct Config {
    pub manifest_dir: PathBuf,
    pub out_dir: PathBuf,
    pub source: Source,
    pub require_header: bool,
    /// The variables that may name a toolkit's folder, each with the folder where it is set.
    pub toolkits: [(&'static str, Option<PathBuf>); 2],
    /// The folders of `PATH`, where an `nvcc` may lie.
    pub path: Vec<PathBuf>,
    pub target_arch: String,
    target_os: String,
    target_pointer_width: String,
}

impl Config {
    pub fn from_environment() -> Result<Self, String> {
        // Read by libclang's loader, not by us: a change of them must run this script again all the same.
        var("LIBCLANG_PATH");
        var("LLVM_CONFIG_PATH");

        let require_header = match var("CUDA_VMM_REQUIRE_HEADER") {
            None => false,
            Some(value) if value == "0" => false,
            Some(value) if value == "1" => true,
            Some(value) => {
                return Err(format!(
                "CUDA_VMM_REQUIRE_HEADER is {value:?}; it must be 1 (no header is an error) or 0"
            ))
            }
        };
        let given = var("CUDA_VMM_HEADER");
        let docs_rs = var("DOCS_RS").is_some();
        let source = match given {
            Some(value) if value == "kept" => Source::Kept,
            Some(value) => Source::Header(value.into()),
            None if docs_rs => Source::Kept,
            None => Source::Search,
        };
        if require_header && matches!(source, Source::Kept) {
            return Err(
                "CUDA_VMM_REQUIRE_HEADER=1 demands a header where CUDA_VMM_HEADER=kept or DOCS_RS asks for none; \
                 unset one of them"
                    .to_owned(),
            );
        }
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].map(|name| (name, var(name).map(PathBuf::from)));
        Ok(Config {
            manifest_dir: from_cargo("CARGO_MANIFEST_DIR")?.into(),
            out_dir: from_cargo("OUT_DIR")?.into(),
            source,
            require_header,
            toolkits,
            // Not tracked: `PATH` differs between a shell and an editor, and each change would build the crate again.
            path: std::env::var_os("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            target_arch: from_cargo("CARGO_CFG_TARGET_ARCH")?,
            target_os: from_cargo("CARGO_CFG_TARGET_OS")?,
            target_pointer_width: from_cargo("CARGO_CFG_TARGET_POINTER_WIDTH")?,
        })
    }

    /// Refuses a target whose C ABI is not the one the declarations describe.
    pub fn check_target(&self) -> Result<(), String> {
        let (os, width) = (&self.target_os, &self.target_pointer_width);
        if os == "linux" && width == "64" {
            return Ok(());
        }
        Err(format!(
            "cuda-vmm supports 64-bit Linux; this build is for {os} with {width}-bit pointers.\n\
             Leave the dependency out for that target: [target.'cfg(target_os = \"linux\")'.dependencies]"
        ))
    }
}

/// A variable the user may set; empty counts as unset. Every read of one goes through here, so that none is forgotten
/// when cargo decides whether this script must run again.
fn var(name: &str) -> Option<OsString> {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A variable that cargo sets for every build script.
fn from_cargo(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|why| format!("{name}: {why}; run this program through cargo"))
}
