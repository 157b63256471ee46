//! Headers and settings that will not do: each message says which, why, and what to change.

use crate::surroundings::{skip, with_cure, Surroundings, CURE};

#[test]
fn a_named_header_that_is_not_there() {
    let here = Surroundings::new("absent");
    let path = here.path("nowhere/cuda.h");
    here.set("CUDA_VMM_HEADER", &path).run().assert_refused(&[
        format!("CUDA_VMM_HEADER is {}: there is no such file.", path.display()),
        "Set it to a cuda.h, to the folder that holds one, or to `kept`; or unset it to have one looked for.".to_owned(),
    ]);
}

#[test]
fn a_named_folder_without_a_header() {
    let here = Surroundings::new("folder");
    let path = here.path("out");
    here.set("CUDA_VMM_HEADER", &path).run().assert_refused(&[
        format!(
            "CUDA_VMM_HEADER is {}: that folder holds no cuda.h.",
            path.display()
        ),
        "Set it to the cuda.h itself, to the folder that holds it, or to the toolkit's folder."
            .to_owned(),
    ]);
}

#[test]
fn a_named_file_of_another_name() {
    let here = Surroundings::new("name");
    let path = here.old_header("cudart.h");
    here.set("CUDA_VMM_HEADER", &path)
        .run()
        .assert_refused(&[format!(
            "CUDA_VMM_HEADER is {}: the file must be called cuda.h.",
            path.display()
        )]);
}

#[test]
fn a_header_of_something_else() {
    let here = Surroundings::new("other");
    let path = here.write("cuda.h", "int cuda(void);\n");
    here.set("CUDA_VMM_HEADER", &path)
        .run()
        .assert_refused(&with_cure(&[format!(
            "{} defines no CUDA_VERSION: it is not the cuda.h of a CUDA toolkit.",
            path.display()
        )]));
}

#[test]
fn a_broken_header_shows_what_the_compiler_says() {
    let here = Surroundings::new("broken");
    let path = here.write(
        "cuda.h",
        "#define CUDA_VERSION 12090\ntypedef enum { CUDA_SUCCESS = } CUresult;\n",
    );
    let run = here.set("CUDA_VMM_HEADER", &path).run();
    if run.succeeded {
        skip(&format!("no libclang ({:?})", run.warnings));
        return;
    }
    assert_eq!(
        run.errors[0],
        format!(
            "cannot read {} (CUDA 12.9); the C compiler says:",
            path.display()
        )
    );
    assert!(
        run.errors[1].ends_with("cuda.h:2:31: error: expected expression"),
        "{}",
        run.errors[1]
    );
    assert_eq!(run.errors[run.errors.len() - 2..], CURE);
    assert!(run.errors.len() <= 10, "{:#?}", run.errors);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

#[test]
fn another_target_is_refused() {
    for (os, width) in [("macos", "64"), ("linux", "32")] {
        Surroundings::new(os)
            .set("CARGO_CFG_TARGET_OS", os)
            .set("CARGO_CFG_TARGET_POINTER_WIDTH", width)
            .run()
            .assert_refused(&[
                format!("cuda-vmm supports 64-bit Linux; this build is for {os} with {width}-bit pointers."),
                "Leave the dependency out for that target: [target.'cfg(target_os = \"linux\")'.dependencies]".to_owned(),
            ]);
    }
}
