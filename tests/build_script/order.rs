//! The places where a header is looked for, in their order.

use crate::surroundings::{machine_has_a_header, Surroundings};

#[test]
fn the_order_of_the_search() {
    let mut here = Surroundings::new("order");
    let named = here.old_header("named/cuda.h");
    let home = here.old_header("home/include/cuda.h");
    let path = here.old_header("path/include/cuda.h");
    let nvcc = here.old_header("toolkit/include/cuda.h");
    here.write("toolkit/bin/nvcc", "");
    std::fs::create_dir(here.path("bin")).unwrap();
    std::os::unix::fs::symlink("../toolkit/bin/nvcc", here.path("bin/nvcc")).unwrap();

    let places = [
        ("CUDA_VMM_HEADER", here.path("named"), named),
        ("CUDA_HOME", here.path("home"), home),
        ("CUDA_PATH", here.path("path"), path),
        ("PATH", here.path("bin"), nvcc),
    ];
    for first in 0..places.len() {
        let (variable, _, header) = &places[first];
        if *variable == "PATH" && machine_has_a_header() {
            continue;
        }
        here.environment = places[first..]
            .iter()
            .map(|(name, folder, _)| (*name, folder.to_str().unwrap().to_owned()))
            .collect();
        here.run().assert_found(header);
    }
}

#[test]
fn a_toolkit_keeps_its_headers_in_one_of_two_places() {
    let here = Surroundings::new("toolkit").set("CARGO_CFG_TARGET_ARCH", "x86_64");
    let plain = here.old_header("include/cuda.h");
    let root = here.root.clone();
    let here = here.set("CUDA_HOME", &root);
    here.run().assert_found(&plain);
    let native = here.old_header("targets/x86_64-linux/include/cuda.h");
    here.run().assert_found(&native);

    let here = here.set("CARGO_CFG_TARGET_ARCH", "aarch64");
    here.run().assert_found(&plain);
    let arm = here.old_header("targets/sbsa-linux/include/cuda.h");
    here.run().assert_found(&arm);
}

#[test]
fn a_toolkit_may_be_named_as_the_header() {
    let here = Surroundings::new("named-toolkit");
    let header = here.old_header("include/cuda.h");
    let root = here.root.clone();
    here.set("CUDA_VMM_HEADER", &root)
        .run()
        .assert_found(&header);
}
