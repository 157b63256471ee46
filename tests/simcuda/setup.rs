//! The environment that sets the driver up.

use cuda_vmm::sys::{
    CUcontext, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemLocationType, CUresult, DriverCalls, Library,
};

use crate::{child, Test};

pub const TESTS: &[Test] = &[
    ("left_alone_it_is_one_h200", left_alone_it_is_one_h200),
    ("devices_and_memory_are_set", devices_and_memory_are_set),
    ("sizes_have_units", sizes_have_units),
    (
        "an_imex_channel_permits_fabric_handles",
        an_imex_channel_permits_fabric_handles,
    ),
    ("books_only_export_nothing", books_only_export_nothing),
    (
        "faults_strike_where_they_are_told_to",
        faults_strike_where_they_are_told_to,
    ),
    (
        "nonsense_is_refused_with_a_reason",
        nonsense_is_refused_with_a_reason,
    ),
];

const GRANULE: usize = 2 << 20;

/// In a child: what the driver says of itself.
pub fn describe() {
    let driver = Library::open().expect("the library is there");
    let initialised = unsafe { driver.cuInit(0) };
    println!("init {}", initialised.0);
    if initialised != CUresult::CUDA_SUCCESS {
        return;
    }
    let (mut devices, mut memory, mut handle, mut fd) = (0, 0, 0, -1_i32);
    let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let fabric = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
    unsafe {
        demand(driver.cuDeviceGetCount(&mut devices));
        demand(driver.cuDeviceTotalMem_v2(&mut memory, devices - 1));
        println!("devices {devices}, {memory} bytes");
        let created = driver.cuMemCreate(&mut handle, GRANULE, &on_device_0(fabric), 0);
        println!("fabric {}", created.0);
        demand(driver.cuMemCreate(&mut handle, GRANULE, &on_device_0(posix), 0));
        let exported = driver.cuMemExportToShareableHandle((&raw mut fd).cast(), handle, posix, 0);
        println!("export {}", exported.0);
    }
}

/// In a child: the answers to three creates, and the bytes they took.
pub fn create_thrice() {
    let driver = Library::open().expect("the library is there");
    let none = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    let (mut free, mut total, mut handle) = (0, 0, 0);
    let mut context: CUcontext = std::ptr::null_mut();
    unsafe {
        demand(driver.cuInit(0));
        demand(driver.cuDevicePrimaryCtxRetain(&mut context, 0));
        demand(driver.cuCtxSetCurrent(context));
        let answers = [(); 3].map(|()| {
            driver
                .cuMemCreate(&mut handle, GRANULE, &on_device_0(none), 0)
                .0
        });
        demand(driver.cuMemGetInfo_v2(&mut free, &mut total));
        println!("{answers:?}, {} granules taken", (total - free) / GRANULE);
    }
}

fn on_device_0(handle_types: CUmemAllocationHandleType) -> CUmemAllocationProp {
    let mut properties = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_types,
        ..Default::default()
    };
    properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties
}

#[track_caller]
fn demand(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

fn left_alone_it_is_one_h200() {
    assert_eq!(
        child::told("describe", &[]),
        "init 0\ndevices 1, 149250113536 bytes\nfabric 800\nexport 0\n"
    );
}

fn devices_and_memory_are_set() {
    let variables = [("SIMCUDA_DEVICES", "3"), ("SIMCUDA_MEMORY", "8 GiB")];
    assert_eq!(
        child::told("describe", &variables),
        "init 0\ndevices 3, 8589934592 bytes\nfabric 800\nexport 0\n"
    );
}

fn sizes_have_units() {
    let sizes = [
        ("6291456", 6_291_456_u64),
        ("4096KiB", 4 << 20),
        ("4MiB", 4 << 20),
        ("1TiB", 1 << 40),
    ];
    for (text, bytes) in sizes {
        let told = child::told("describe", &[("SIMCUDA_MEMORY", text)]);
        let line = told.lines().nth(1);
        assert_eq!(line, Some(&*format!("devices 1, {bytes} bytes")), "{text}");
    }
}

fn an_imex_channel_permits_fabric_handles() {
    assert_eq!(
        child::told("describe", &[("SIMCUDA_IMEX", "1")]),
        "init 0\ndevices 1, 149250113536 bytes\nfabric 0\nexport 0\n"
    );
}

fn books_only_export_nothing() {
    assert_eq!(
        child::told("describe", &[("SIMCUDA_LEDGER", "1")]),
        "init 0\ndevices 1, 149250113536 bytes\nfabric 800\nexport 801\n"
    );
}

fn faults_strike_where_they_are_told_to() {
    let faults = [
        ("cuMemCreate", "[999, 0, 0], 2 granules taken"),
        ("cuMemCreate:2", "[0, 999, 0], 2 granules taken"),
        ("cuMemCreate:2:2", "[0, 2, 0], 2 granules taken"),
        ("cuMemCreate:2:2:2", "[0, 2, 2], 1 granules taken"),
        (
            "cuMemCreate:1:800:forever",
            "[800, 800, 800], 0 granules taken",
        ),
        (
            "cuMemCreate:1:2,cuMemCreate:3:101",
            "[2, 0, 101], 1 granules taken",
        ),
        ("cuMemMap:1:2", "[0, 0, 0], 3 granules taken"),
    ];
    for (fault, answers) in faults {
        let told = child::told("create_thrice", &[("SIMCUDA_FAULT", fault)]);
        assert_eq!(told, format!("{answers}\n"), "{fault}");
    }
}

/// What is said on standard error, and that nothing works.
fn nonsense_is_refused_with_a_reason() {
    let refused = [
        ("SIMCUDA_DEVICES", "0", "SIMCUDA_DEVICES=0: give a number of devices from 1 to 64"),
        ("SIMCUDA_DEVICES", "two", "SIMCUDA_DEVICES=two: \"two\" is no number"),
        ("SIMCUDA_MEMORY", "lots", "SIMCUDA_MEMORY=lots: \"lots\" is no number"),
        ("SIMCUDA_MEMORY", "GiB", "SIMCUDA_MEMORY=GiB: \"\" is no number"),
        (
            "SIMCUDA_MEMORY",
            "99999999999GiB",
            "SIMCUDA_MEMORY=99999999999GiB: more than can be counted",
        ),
        (
            "SIMCUDA_MEMORY",
            "1MiB",
            "device 0: of 1048576 bytes (1 MiB) of memory nothing could be created: give it more than one granule, which is 2097152 bytes (2 MiB)",
        ),
        ("SIMCUDA_LEDGER", "yes", "SIMCUDA_LEDGER=yes: give 0 or 1"),
        ("SIMCUDA_IMEX", "", "SIMCUDA_IMEX=: give 0 or 1"),
        (
            "SIMCUDA_FAULT",
            "cuMemBlow",
            "SIMCUDA_FAULT=cuMemBlow: \"cuMemBlow\" is no call of this driver",
        ),
        (
            "SIMCUDA_FAULT",
            "cuMemMap:0",
            "SIMCUDA_FAULT: the 0-th call does not exist: calls are counted from 1, as in nth(1) and any_nth(1)",
        ),
        (
            "SIMCUDA_FAULT",
            "cuMemMap:1:0",
            "SIMCUDA_FAULT: a fault cannot answer CUDA_SUCCESS: nothing would have written the call's outputs",
        ),
        (
            "SIMCUDA_FAULT",
            "cuMemMap:1:2:3:4",
            "SIMCUDA_FAULT=cuMemMap:1:2:3:4: \"4\" is too much: CALL[:N[:CODE[:TIMES]]]",
        ),
        (
            "SIMCUDA_FAULT",
            "cuMemMap:1:4294967296",
            "SIMCUDA_FAULT=cuMemMap:1:4294967296: 4294967296 is no status code",
        ),
        ("SIMCUDA_DEVICE", "2", "SIMCUDA_DEVICE is no variable of this library"),
    ];
    for (name, value, reason) in refused {
        let output = child::run("describe", &[(name, value)]);
        let out = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(out, "init 802\n", "{name}={value}");
        assert_eq!(errors, format!("simcuda: {reason}\n"));
    }
}
