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

/// Python's libclang, and others, are the library alone, without the compiler's own headers; a small image may lack the C
/// library's too.
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
