//! When the declarations that come with the crate are taken, with what warning, and how to forbid it.

use crate::surroundings::{machine_has_a_header, with_cure, Surroundings, KEPT_INSTEAD};

#[test]
fn kept_on_request() {
    Surroundings::new("kept")
        .set("CUDA_VMM_HEADER", "kept")
        .run()
        .assert_kept(&[]);
}

#[test]
fn kept_on_docs_rs() {
    Surroundings::new("docs")
        .set("DOCS_RS", "1")
        .run()
        .assert_kept(&[]);
}

#[test]
fn kept_with_one_warning_where_there_is_no_header() {
    if machine_has_a_header() {
        return;
    }
    Surroundings::new("none").run().assert_kept(&[format!(
        "no cuda.h found (looked at CUDA_HOME (not set), CUDA_PATH (not set), /usr/local/cuda, nvcc on PATH (none), \
         /opt/cuda, /usr/include, /usr/include/cuda, /usr/local/include){KEPT_INSTEAD}"
    )]);
}

#[test]
fn the_warning_says_what_the_variables_were() {
    if machine_has_a_header() {
        return;
    }
    let run = Surroundings::new("set")
        .set("CUDA_HOME", "/no/toolkit")
        .set("CUDA_PATH", "")
        .run();
    run.assert_kept(&[format!(
        "no cuda.h found (looked at CUDA_HOME=/no/toolkit, CUDA_PATH (not set), /usr/local/cuda, nvcc on PATH (none), \
         /opt/cuda, /usr/include, /usr/include/cuda, /usr/local/include){KEPT_INSTEAD}"
    )]);
}

#[test]
fn kept_with_one_warning_where_there_is_no_libclang() {
    let here = Surroundings::new("libclang");
    let header = here.write("cuda.h", "#define CUDA_VERSION 12090\n");
    let run = here
        .set("CUDA_VMM_HEADER", &header)
        .set("LIBCLANG_PATH", "/no/libclang")
        .run();
    run.assert_kept(&[format!(
        "found {}, but no libclang to read it with (couldn't find any valid shared libraries matching: \
         ['libclang.so', 'libclang-*.so', 'libclang.so.*', 'libclang-*.so.*']); \
         install libclang or set LIBCLANG_PATH to its folder{KEPT_INSTEAD}",
        header.display()
    )]);
}

// ---- a header demanded ----

#[test]
fn a_missing_header_is_an_error_on_request() {
    if machine_has_a_header() {
        return;
    }
    Surroundings::new("required")
        .set("CUDA_VMM_REQUIRE_HEADER", "1")
        .run()
        .assert_refused(&with_cure(&[
            "no cuda.h found (looked at CUDA_HOME (not set), CUDA_PATH (not set), /usr/local/cuda, nvcc on PATH (none), \
             /opt/cuda, /usr/include, /usr/include/cuda, /usr/local/include)"
                .to_owned(),
            "CUDA_VMM_REQUIRE_HEADER=1 makes this an error.".to_owned(),
        ]));
}

#[test]
fn a_missing_libclang_is_an_error_on_request() {
    let here = Surroundings::new("required-libclang");
    let header = here.write("cuda.h", "#define CUDA_VERSION 12090\n");
    let run = here
        .set("CUDA_VMM_HEADER", &header)
        .set("CUDA_VMM_REQUIRE_HEADER", "1")
        .set("LIBCLANG_PATH", "/no/libclang")
        .run();
    assert!(!run.succeeded);
    assert_eq!(run.errors.len(), 4, "{:?}", run.errors);
    assert!(run.errors[0].starts_with(&format!(
        "found {}, but no libclang to read it with (",
        header.display()
    )));
    assert_eq!(
        run.errors[1],
        "CUDA_VMM_REQUIRE_HEADER=1 makes this an error."
    );
}

#[test]
fn to_demand_a_header_and_to_forbid_it_is_an_error() {
    let contradiction = "CUDA_VMM_REQUIRE_HEADER=1 demands a header where CUDA_VMM_HEADER=kept or DOCS_RS asks for none; \
                         unset one of them";
    Surroundings::new("contradiction")
        .set("CUDA_VMM_HEADER", "kept")
        .set("CUDA_VMM_REQUIRE_HEADER", "1")
        .run()
        .assert_refused(&[contradiction.to_owned()]);
    Surroundings::new("yes")
        .set("CUDA_VMM_REQUIRE_HEADER", "yes")
        .run()
        .assert_refused(&[
            "CUDA_VMM_REQUIRE_HEADER is \"yes\"; it must be 1 (no header is an error) or 0"
                .to_owned(),
        ]);
}
