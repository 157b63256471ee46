//! Memory that outlives its maker's interest in it, in a process of its own.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use cuda_vmm::sim::Simulation;
use cuda_vmm::sys::{CUmemAllocationHandleType, CUmemFabricHandle, DriverCalls};

use crate::rig::*;

const FABRIC: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;

fn on_the_fabric() -> Rig {
    Rig::with(Simulation::builder().imex_channel(true))
}

/// This program again, running the one test of that name.
fn other_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]);
    command
}

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
    let importer = other_process("import::importer")
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

/// The importing half of the next test: the fabric handle comes on its standard input.
#[test]
#[ignore = "run by another_process_imports_over_the_fabric"]
fn fabric_importer() {
    let rig = on_the_fabric();
    let mut name = CUmemFabricHandle { data: [0; 64] };
    std::io::stdin().read_exact(&mut name.data).unwrap();
    let mut handle = 0;
    let at = std::ptr::from_mut(&mut name).cast();
    check(unsafe {
        rig.0
            .cuMemImportFromShareableHandle(&mut handle, at, FABRIC)
    })
    .unwrap();
    let address = rig.reserve(G).unwrap();
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 1).unwrap();
    assert_eq!(rig.read(address, 6), Ok(b"fabric".to_vec()));
}

#[test]
fn another_process_imports_over_the_fabric() {
    let rig = on_the_fabric();
    let (address, handle) = (
        rig.reserve(G).unwrap(),
        rig.create_with(G, &props(8)).unwrap(),
    );
    rig.map(address, G, handle).unwrap();
    rig.access(address, G, 3).unwrap();
    rig.write(address, b"fabric").unwrap();
    let mut name = CUmemFabricHandle { data: [0; 64] };
    let at = std::ptr::from_mut(&mut name).cast();
    check(unsafe { rig.0.cuMemExportToShareableHandle(at, handle, FABRIC, 0) }).unwrap();
    let mut importer = other_process("import::fabric_importer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    importer
        .stdin
        .take()
        .unwrap()
        .write_all(&name.data)
        .unwrap();
    let importer = importer.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&importer.stdout);
    assert!(importer.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}
