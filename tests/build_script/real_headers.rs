//! The headers of real toolkits: every supported one gives exactly the kept declarations.

use std::path::{Path, PathBuf};

use crate::surroundings::{skip, Surroundings, KEPT};

fn test_headers() -> Vec<PathBuf> {
    let folders = std::env::var_os("CUDA_VMM_TEST_HEADERS").unwrap_or_default();
    if folders.is_empty() {
        skip("CUDA_VMM_TEST_HEADERS names no folders with a cuda.h");
        return Vec::new();
    }
    std::env::split_paths(&folders).collect()
}

/// Generates from a real header and asserts that exactly the kept declarations come out.
#[track_caller]
fn assert_gives_the_kept(here: Surroundings, folder: &Path) {
    // The formatter beside the cargo that runs this; without it the text is the same but for its layout.
    let rustfmt = Path::new(env!("CARGO")).with_file_name("rustfmt");
    assert!(
        rustfmt.exists(),
        "needs {}: rustup component add rustfmt",
        rustfmt.display()
    );
    let run = here
        .set("CUDA_VMM_HEADER", folder)
        .set("CUDA_VMM_REQUIRE_HEADER", "1")
        .set("RUSTFMT", rustfmt)
        .run();
    assert!(run.succeeded, "{}: {:#?}", folder.display(), run.errors);
    assert_eq!(run.warnings, [""; 0]);
    assert!(
        run.declarations.as_deref() == Some(KEPT),
        "{} gives other declarations than src/sys/declarations.rs; see scripts/update-declarations --check",
        folder.display()
    );
    let version = run.version.unwrap();
    assert!(version.contains("Option<u32> = Some(1"), "{version}");
}

#[test]
fn every_header_gives_the_kept_declarations() {
    for folder in test_headers() {
        let here = Surroundings::new("generate").set("PATH", std::env::var_os("PATH").unwrap());
        assert_gives_the_kept(here, &folder);
        eprintln!("the same from {}", folder.display());
    }
}

/// Python's libclang, and others, are the library alone, without the compiler's own headers; a small image may lack the
/// C library's too.
#[test]
fn a_libclang_without_c_headers_will_do() {
    for folder in test_headers() {
        for without in ["-nobuiltininc", "-nostdinc"] {
            let here = Surroundings::new("bare-libclang").set("BINDGEN_EXTRA_CLANG_ARGS", without);
            // No compiler on `PATH`, which bindgen would ask for its folders.
            let nothing = here.path("nothing");
            assert_gives_the_kept(here.set("PATH", nothing), &folder);
        }
    }
}

#[test]
fn without_rustfmt_the_declarations_differ_in_layout_only() {
    let bare = |text: &str| -> String {
        // A line that is broken gains a comma.
        text.chars()
            .filter(|each| !each.is_whitespace() && *each != ',')
            .collect()
    };
    for folder in test_headers() {
        let here = Surroundings::new("rustfmt").set("CUDA_VMM_HEADER", &folder);
        let nothing = here.path("nothing");
        let run = here
            .set("CUDA_VMM_REQUIRE_HEADER", "1")
            .set("PATH", nothing)
            .run();
        assert!(run.succeeded, "{}: {:#?}", folder.display(), run.errors);
        let declarations = run.declarations.unwrap();
        assert_ne!(declarations, KEPT);
        assert_eq!(bare(&declarations), bare(KEPT));
    }
}

/// What `src/sys/newer.rs` declares by hand: lines of the form `pub const NAME: Self = Self(8);`.
fn newer_constants() -> Vec<(&'static str, u32)> {
    let lines = include_str!("../../src/sys/newer.rs").lines();
    let constants: Vec<_> = lines
        .filter_map(|line| line.trim().strip_prefix("pub const "))
        .map(|rest| {
            let (name, value) = rest.split_once(": Self = Self(").expect("the form above");
            let value = value.strip_suffix(");").expect("the form above");
            (name, value.parse().expect("a decimal number"))
        })
        .collect();
    assert!(!constants.is_empty());
    constants
}

#[test]
fn every_header_that_has_a_newer_constant_gives_it_the_same_value() {
    let mut most = 0;
    let headers = test_headers();
    for folder in &headers {
        let text =
            String::from_utf8_lossy(&std::fs::read(folder.join("cuda.h")).unwrap()).into_owned();
        let mut found = 0;
        for (name, value) in newer_constants() {
            // CUDA 12 took the version off the names of second versions.
            let later = name.strip_suffix("_V2");
            let later = || later.and_then(|name| enumerator(&text, name));
            if let Some(theirs) = enumerator(&text, name).or_else(later) {
                assert_eq!(theirs, value, "{name} in {}", folder.display());
                found += 1;
            }
        }
        most = most.max(found);
    }
    assert!(
        headers.is_empty() || most == newer_constants().len(),
        "no header of CUDA_VMM_TEST_HEADERS is new enough for all that src/sys/newer.rs declares"
    );
}

/// The value of `NAME = value`, in an enumeration of the header.
fn enumerator(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let value = line
            .trim()
            .strip_prefix(name)?
            .trim_start()
            .strip_prefix('=')?;
        let digits: String = value
            .trim_start()
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        match digits.strip_prefix("0x") {
            Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
            None => digits.parse().ok(),
        }
    })
}

/// The hand-written `CUmemLocation` is held to the header's by the C compiler.
#[test]
fn a_header_with_another_location_struct_is_refused() {
    for folder in test_headers() {
        let real = std::fs::read_to_string(folder.join("cuda.h")).unwrap();
        let here = Surroundings::new("location");
        let changed = real.replacen(
            "    CUmemLocationType type;",
            "    CUmemLocationType type; int more;",
            1,
        );
        assert_ne!(changed, real);
        let header = here.write("cuda.h", &changed);
        let run = here.set("CUDA_VMM_HEADER", &header).run();
        assert!(!run.succeeded);
        assert!(
            run.errors[1].contains(
                "CUmemLocation is not 8 bytes: src/sys/location.rs does not fit this cuda.h"
            ),
            "{:#?}",
            run.errors
        );
    }
}
