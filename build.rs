//! Writes the CUDA declarations into `OUT_DIR`: generated from the machine's `cuda.h`, or those kept in the repository.
//!
//! Both are the same declarations, so the crate's API does not depend on the machine that built it. What is looked for,
//! in which order, and which variables steer it, is told in the documentation of the `sys` module.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

#[path = "src/sys/build/config.rs"]
mod config;
#[path = "src/sys/build/generate.rs"]
mod generate;
#[path = "src/sys/build/header.rs"]
mod header;

use config::{Config, Source};
use header::{Header, Search};

/// The declarations kept in the repository: what the oldest supported header gives.
const KEPT: &str = include_str!("src/sys/declarations.rs");

const CURE: &str = "\
Set CUDA_VMM_HEADER to the cuda.h of CUDA 11.8 or newer (or to the folder that holds it),
or CUDA_VMM_HEADER=kept to build with the declarations that come with the crate.";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // A cargo older than 1.84 does not know `cargo::error`, and shows the lines as what a failed script wrote.
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let config = Config::from_environment()?;
    config.check_target()?;
    let (declarations, version) = declarations(&config)?;
    write(&config, "declarations.rs", &declarations)?;
    write(&config, "header_version.rs", &version_constant(version))?;
    export_for_tests();
    Ok(())
}

/// The text of the declarations, and the version of the header that it was generated from.
fn declarations(config: &Config) -> Result<(String, Option<u32>), String> {
    let path = match &config.source {
        Source::Kept => return Ok((KEPT.to_owned(), None)),
        Source::Header(given) => header::given(config, given)?,
        Source::Search => match header::search(config) {
            Search::Found(path) => path,
            Search::Absent { looked_at } => {
                return kept_instead(config, &format!("no cuda.h found (looked at {looked_at})"));
            }
        },
    };
    let header = Header::read(path).map_err(|why| format!("{why}\n{CURE}"))?;
    if let Err(reason) = generate::find_libclang() {
        return kept_instead(
            config,
            &format!(
                "found {}, but no libclang to read it with ({reason}); install libclang or set LIBCLANG_PATH to its folder",
                header.path.display()
            ),
        );
    }
    println!("cargo::rerun-if-changed={}", header.path.display());
    let text = generate::generate(config, &header, KEPT).map_err(|why| format!("{why}\n{CURE}"))?;
    Ok((text, Some(header.version)))
}

/// The kept declarations, with the one warning line that says why; an error where the user demands a header.
fn kept_instead(config: &Config, why: &str) -> Result<(String, Option<u32>), String> {
    if config.require_header {
        return Err(format!(
            "{why}\nCUDA_VMM_REQUIRE_HEADER=1 makes this an error.\n{CURE}"
        ));
    }
    println!(
        "cargo::warning={why}; building with the declarations that come with the crate, which are the same \
         (CUDA_VMM_HEADER=kept says so without this warning)"
    );
    Ok((KEPT.to_owned(), None))
}

fn version_constant(version: Option<u32>) -> String {
    let mut text = String::from(
        "/// `CUDA_VERSION` of the header this build generated its declarations from (13.1 is 13010);\n\
         /// `None` where it took those that come with the crate.\n",
    );
    writeln!(text, "pub const HEADER_VERSION: Option<u32> = {version:?};")
        .expect("a String takes every write");
    text
}

fn write(config: &Config, name: &str, text: &str) -> Result<(), String> {
    let path = config.out_dir.join(name);
    std::fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
}

/// Tells the crate's own tests where this very program lies, so that they can run it in made-up surroundings.
fn export_for_tests() {
    if let Some(path) = std::env::current_exe()
        .ok()
        .as_deref()
        .and_then(Path::to_str)
    {
        println!("cargo::rustc-env=CUDA_VMM_BUILD_SCRIPT={path}");
    }
}
