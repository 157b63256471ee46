//! Memory that outlives its maker's interest in it, in a process of its own.

use std::os::fd::AsRawFd;
use std::process::Command;

use crate::rig::*;

/// The importing half of the next test, in a process of its own: the descriptor is its standard input.
#[test]
#[ignore = "run by another_process_imports_what_is_left"]
fn importer() {
    let rig = Rig::new();
    let handle = rig.import(0).unwrap();
    let address = rig.reserve(G).unwrap();
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 3).unwrap();
    assert_eq!(rig.read(address, 4), Ok(b"ping".to_vec()));
    rig.write(address, b"pong").unwrap();
}

#[test]
fn another_process_imports_what_is_left() {
    let rig = Rig::new();
    let block = rig.block(1);
    rig.write(block.0, b"ping").unwrap();
    let fd = rig.export(block.1).unwrap();
    rig.drop_block(block, 1);
    let importer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "import::importer", "--ignored"])
        .stdin(fd.try_clone().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&importer.stdout);
    assert!(importer.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    let handle = rig.import(fd.as_raw_fd()).unwrap();
    let address = rig.reserve(G).unwrap();
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 1).unwrap();
    assert_eq!(rig.read(address, 4), Ok(b"pong".to_vec()));
}
