//! Modules and launches: the one kernel that there is, what is refused, and what a bad address does.

use std::ffi::{c_void, CStr, CString};
use std::ptr::null_mut;

use cuda_vmm::sim::{Fault, Misuse, MisuseKind, SimDevice, Simulation, Value};
use cuda_vmm::sys::*;

use crate::rig::*;

const NO_COMPILER: CUresult = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const DONE: CUresult = CUresult::CUDA_SUCCESS;

/// The kernel of the crate itself.
const GATHER: &str = include_str!("../../src/pool/gather.ptx");
const ENTRY: &CStr = c"cuda_vmm_gather";

fn load(rig: &Rig, image: &str) -> Result<CUmodule> {
    let image = CString::new(image).unwrap();
    let mut module = null_mut();
    check(unsafe { rig.0.cuModuleLoadData(&mut module, image.as_ptr().cast()) })?;
    Ok(module)
}

fn function(rig: &Rig, module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = null_mut();
    check(unsafe {
        rig.0
            .cuModuleGetFunction(&mut function, module, name.as_ptr())
    })?;
    Ok(function)
}

fn unload(rig: &Rig, module: CUmodule) -> Result {
    check(unsafe { rig.0.cuModuleUnload(module) })
}

/// The kernel, loaded in the current context.
fn gather(rig: &Rig) -> (CUmodule, CUfunction) {
    let module = load(rig, GATHER).unwrap();
    (module, function(rig, module, ENTRY).unwrap())
}

/// A parameter: to, from and size of each piece.
fn pieces(pieces: &[(u64, u64, u64)]) -> Vec<u64> {
    let mut words: Vec<u64> = pieces
        .iter()
        .flat_map(|&(to, from, size)| [to, from, size])
        .collect();
    words.resize(480, 0);
    words
}

/// How a launch is made.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

impl Shape {
    fn of(blocks: u32) -> Shape {
        Shape {
            grid: [blocks, 1, 1],
            block: [1024, 1, 1],
            shared: 0,
        }
    }
}

fn launch_as(
    rig: &Rig,
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result {
    let Shape {
        grid: [x, y, z],
        block: [i, j, k],
        shared,
    } = shape;
    check(unsafe {
        rig.0.cuLaunchKernel(
            function, x, y, z, i, j, k, shared, stream, parameters, extra,
        )
    })
}

fn launch(rig: &Rig, function: CUfunction, stream: CUstream, parameter: &[u64]) -> Result {
    let blocks = parameter
        .chunks(3)
        .take_while(|piece| piece[2] != 0)
        .count() as u32;
    let mut pointer = parameter.as_ptr().cast_mut().cast::<c_void>();
    launch_as(
        rig,
        function,
        Shape::of(blocks),
        stream,
        &mut pointer,
        null_mut(),
    )
}

#[test]
fn a_launch_copies_each_piece() {
    for rig in Rig::both() {
        let (address, _) = rig.block(2);
        let bytes: Vec<u8> = (0..=255).collect();
        rig.write(address, &bytes).unwrap();
        let (module, function) = gather(&rig);
        let stream = rig.stream();
        let to = address + G as u64;
        let parameter = pieces(&[
            (to, address + 3, 5),
            (to + 9, address + 100, 1),
            (to + 16, address, 16),
        ]);
        launch(&rig, function, stream, &parameter).unwrap();
        assert_eq!(rig.query(stream), DONE);
        let copied = rig.read(to, 32).unwrap();
        assert_eq!(copied[..5], bytes[3..8]);
        assert_eq!(copied[5..9], [0; 4]);
        assert_eq!(copied[9], 100);
        assert_eq!(copied[16..], bytes[..16]);
        // From one mapping into the next, which a device does not see.
        let second = rig.create(G).unwrap();
        rig.unmap(address, 2 * G).unwrap();
        for half in [address, to] {
            rig.map(half, G, second).unwrap();
        }
        rig.access(address, 2 * G, 3).unwrap();
        rig.write(to - 2, &[1, 2]).unwrap();
        rig.write(to, &[3, 4]).unwrap();
        launch(
            &rig,
            function,
            stream,
            &pieces(&[(address + 64, to - 2, 4)]),
        )
        .unwrap();
        assert_eq!(rig.read(address + 64, 4), Ok(vec![1, 2, 3, 4]));
        unload(&rig, module).unwrap();
        assert_eq!(rig.0.misuses(), []);
    }
}

#[test]
fn a_launch_comes_in_its_turn_and_its_parameter_is_read_at_the_call() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let (module, function) = gather(&rig);
        let (stream, event) = rig.held();
        rig.fill_async(address, 7, 4, stream).unwrap();
        let mut parameter = pieces(&[(address + 100, address, 4), (address + 104, address, 4)]);
        launch(&rig, function, stream, &parameter).unwrap();
        parameter.fill(0);
        rig.fill_async(address, 9, 4, stream).unwrap();
        assert_eq!(rig.query(stream), NOT_READY);
        assert_eq!(rig.read(address + 100, 8), Ok(vec![0; 8]));
        // What was launched runs without its module.
        unload(&rig, module).unwrap();
        assert_eq!(rig.snapshot().modules, 0);
        assert!(rig.0.release_stream(stream));
        assert_eq!(rig.read(address + 100, 8), Ok(vec![7; 8]));
        assert_eq!(rig.read(address, 4), Ok(vec![9; 4]));
        assert_eq!(unsafe { rig.0.cuEventQuery(event) }, DONE);
    }
}

#[test]
fn an_address_that_the_device_may_not_reach_loses_the_context() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let unmapped = rig.reserve(G).unwrap();
        let (denied, _) = rig.block(1);
        rig.access(denied, G, 0).unwrap();
        let (read_only, _) = rig.block(1);
        rig.access(read_only, G, 1).unwrap();
        let end = address + G as u64;
        let bad = [
            (address, unmapped, 1),
            (address, denied, 1),
            (address, end - 1, 2),
            (read_only, address, 1),
            (unmapped, address, 1),
            (address, 0, 1),
            (address, u64::MAX, 2),
        ];
        for piece in bad {
            for is_held in [false, true] {
                let (_, function) = gather(&rig);
                let stream = rig.stream();
                rig.write(address, &[1, 2, 3]).unwrap();
                if is_held {
                    assert!(rig.0.hold_stream(stream));
                }
                let parameter = pieces(&[(address + 8, address, 3), piece]);
                // The launch itself says nothing.
                launch(&rig, function, stream, &parameter).unwrap();
                if is_held {
                    assert_eq!(rig.query(stream), NOT_READY);
                    assert!(rig.0.release_stream(stream));
                }
                assert_eq!(rig.query(stream), ILLEGAL, "{piece:x?}");
                assert_eq!(rig.read(address, 1), Err(ILLEGAL));
                let again = launch(&rig, function, stream, &parameter);
                assert_eq!(again, Err(ILLEGAL));
                assert_eq!(load(&rig, GATHER), Err(ILLEGAL));
                // What belongs to the context goes with it.
                check(unsafe { rig.0.cuDevicePrimaryCtxReset_v2(0) }).unwrap();
                assert_eq!((rig.snapshot().modules, rig.snapshot().streams), (0, 0));
                assert_eq!(rig.read(address + 8, 3), Ok(vec![1, 2, 3]));
            }
        }
        assert_eq!(rig.0.misuses(), []);
    }
}

#[test]
fn a_block_without_a_piece_reads_beyond_the_parameter() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (_, function) = gather(&rig);
    let all = pieces(&[(address, address + 64, 1); 160]);
    let mut pointer = all.as_ptr().cast_mut().cast::<c_void>();
    let mut blocks = |count| {
        launch_as(
            &rig,
            function,
            Shape::of(count),
            null_mut(),
            &mut pointer,
            null_mut(),
        )
    };
    blocks(160).unwrap();
    assert_eq!(rig.query(null_mut()), DONE);
    blocks(u32::MAX).unwrap();
    assert_eq!(rig.query(null_mut()), ILLEGAL);
}

#[test]
fn only_the_one_kernel_can_be_loaded() {
    for rig in Rig::both() {
        let before = rig.snapshot();
        let other = GATHER.replace("cuda_vmm_gather", "cuda_vmm_scatter");
        for image in [other.as_str(), "cuda_vmm_gather", "", "\u{7f}ELF"] {
            assert_eq!(load(&rig, image), Err(NO_COMPILER), "{image}");
        }
        let mut module = null_mut();
        let text = CString::new(GATHER).unwrap();
        let nowhere = unsafe { rig.0.cuModuleLoadData(null_mut(), text.as_ptr().cast()) };
        let nothing = unsafe { rig.0.cuModuleLoadData(&mut module, null_mut()) };
        assert_eq!((nowhere, nothing), (INVALID, INVALID));
        assert_eq!(rig.snapshot(), before);
        let module = load(&rig, GATHER).unwrap();
        for name in [c"gather", c"", c"cuda_vmm_gather2"] {
            let found = function(&rig, module, name);
            assert_eq!(found, Err(CUresult::CUDA_ERROR_NOT_FOUND));
        }
        let first = function(&rig, module, ENTRY).unwrap();
        assert_eq!(function(&rig, module, ENTRY), Ok(first));
        assert_eq!(rig.snapshot().modules, 1);
        assert!(!rig.snapshot().is_empty());
        let shown = rig.snapshot().to_string();
        assert!(shown.ends_with("streams 0, events 0, modules 1"), "{shown}");
        unload(&rig, module).unwrap();
        assert_eq!(rig.snapshot(), before);
    }
}

#[test]
fn a_device_without_a_compiler() {
    let devices = [
        SimDevice::new().jit_compiler(false),
        SimDevice::new().jit_compiler(true),
    ];
    let rig = Rig::with(Simulation::builder().devices(devices));
    assert_eq!(load(&rig, GATHER), Err(NO_COMPILER));
    rig.enter(1);
    let module = load(&rig, GATHER).unwrap();
    unload(&rig, module).unwrap();
}

#[test]
fn handles_that_are_none() {
    let rig = Rig::new();
    let (address, _) = rig.block(1);
    let (module, known) = gather(&rig);
    let stream = rig.stream();
    let parameter = pieces(&[(address, address + 8, 1)]);
    // A module is no function, and the other way round.
    let (as_function, as_module) = (module.cast(), known.cast());
    for wrong in [as_module, null_mut(), 0x1234 as CUmodule] {
        assert_eq!(function(&rig, wrong, ENTRY), Err(NO_HANDLE));
        assert_eq!(unload(&rig, wrong), Err(NO_HANDLE));
    }
    for wrong in [as_function, null_mut(), 0x1234 as CUfunction] {
        assert_eq!(launch(&rig, wrong, stream, &parameter), Err(NO_HANDLE));
    }
    assert_eq!(
        launch(&rig, known, 0x1234 as CUstream, &parameter),
        Err(NO_HANDLE)
    );
    unload(&rig, module).unwrap();
    assert_eq!(unload(&rig, module), Err(NO_HANDLE));
    assert_eq!(launch(&rig, known, stream, &parameter), Err(NO_HANDLE));
    let kinds: Vec<(Call, MisuseKind)> = rig
        .0
        .misuses()
        .iter()
        .map(|misuse| (misuse.call, misuse.kind))
        .collect();
    let of_module = [
        (Call::cuModuleGetFunction, MisuseKind::NoSuchModule),
        (Call::cuModuleUnload, MisuseKind::NoSuchModule),
    ];
    let of_launch = (Call::cuLaunchKernel, MisuseKind::NoSuchFunction);
    let mut expected = of_module.repeat(3);
    expected.extend([of_launch; 3]);
    expected.push((Call::cuLaunchKernel, MisuseKind::NoSuchStream));
    expected.push(of_module[1]);
    expected.push(of_launch);
    assert_eq!(kinds, expected);
    let last: Misuse = *rig.0.misuses().last().unwrap();
    assert!(last
        .to_string()
        .ends_with(" is no function of a loaded module"));
    let first = rig.0.misuses()[0].to_string();
    assert!(first.ends_with(" is no loaded module"), "{first}");
}

#[test]
fn launches_that_make_no_sense() {
    for rig in Rig::both() {
        let (address, _) = rig.block(1);
        let (_, function) = gather(&rig);
        let parameter = pieces(&[(address, address + 8, 1)]);
        let mut pointer = parameter.as_ptr().cast_mut().cast::<c_void>();
        let good = Shape::of(1);
        let grids = [[0, 1, 1], [1, 0, 1], [1, 1, 0]].map(|grid| Shape { grid, ..good });
        let blocks = [
            [0, 1, 1],
            [1, 1, 0],
            [1025, 1, 1],
            [512, 2, 2],
            [1 << 31, 2, 1],
        ];
        let blocks = blocks.map(|block| Shape { block, ..good });
        let shared = Shape {
            shared: (48 << 10) + 1,
            ..good
        };
        for shape in grids.into_iter().chain(blocks).chain([shared]) {
            let refused = launch_as(&rig, function, shape, null_mut(), &mut pointer, null_mut());
            assert_eq!(refused, Err(INVALID));
        }
        let mut nothing = null_mut();
        for parameters in [null_mut(), &raw mut nothing] {
            let refused = launch_as(&rig, function, good, null_mut(), parameters, null_mut());
            assert_eq!(refused, Err(INVALID));
        }
        let extra = launch_as(&rig, function, good, null_mut(), &mut pointer, &mut nothing);
        assert_eq!(extra, Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(rig.query(null_mut()), DONE);
        launch(&rig, function, null_mut(), &parameter).unwrap();
        assert_eq!(rig.0.misuses(), []);
    }
}

#[test]
fn a_function_and_a_stream_are_of_one_device() {
    let builder = Simulation::builder()
        .device(SimDevice::new())
        .device(SimDevice::new());
    let rig = Rig::with(builder);
    let (address, _) = rig.block(1);
    let stream = rig.stream();
    let (module, of_first) = gather(&rig);
    rig.enter(1);
    let (_, of_second) = gather(&rig);
    // Only the first device may reach the block.
    let parameter = pieces(&[(address, address + 8, 1)]);
    assert_eq!(launch(&rig, of_second, stream, &parameter), Err(NO_HANDLE));
    assert_eq!(
        launch(&rig, of_first, null_mut(), &parameter),
        Err(NO_HANDLE)
    );
    launch(&rig, of_first, stream, &parameter).unwrap();
    launch(&rig, of_second, null_mut(), &parameter).unwrap();
    assert_eq!(rig.query(null_mut()), ILLEGAL);
    // The other context is whole. A module is unloaded whichever context is current.
    rig.enter(0);
    assert_eq!(rig.query(stream), DONE);
    unload(&rig, module).unwrap();
    check(unsafe { rig.0.cuDevicePrimaryCtxReset_v2(1) }).unwrap();
    assert_eq!(rig.snapshot().modules, 0);
}

#[test]
fn without_a_context_nothing_is_loaded() {
    let rig = Rig::new();
    let (module, function) = gather(&rig);
    rig.leave(0);
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    assert_eq!(load(&rig, GATHER), Err(none));
    assert_eq!(unload(&rig, module).err(), Some(none));
    rig.enter(0);
    // They went with the last retain of the context.
    assert_eq!(rig.snapshot().modules, 0);
    let parameter = pieces(&[(1, 2, 3)]);
    assert_eq!(
        launch(&rig, function, null_mut(), &parameter),
        Err(NO_HANDLE)
    );
}

#[test]
fn the_log_shows_names_and_functions() {
    let rig = Rig::new();
    let (module, function) = gather(&rig);
    let record = rig.0.log().pop().unwrap();
    assert_eq!(record.call, Call::cuModuleGetFunction);
    let name = Value::Text("cuda_vmm_gather".to_owned());
    assert_eq!(record.arg("name"), Some(&name));
    let found = Value::Pointer(function as usize);
    assert_eq!(record.arg("function"), Some(&found));
    let expected = format!(
        "cuModuleGetFunction(function={:#x}, module={:#x}, name=\"cuda_vmm_gather\") = CUDA_SUCCESS",
        function as usize, module as usize
    );
    assert_eq!(record.to_string(), expected);
    rig.0.inject(Fault::on(Call::cuLaunchKernel)).unwrap();
    let parameter = pieces(&[(1, 2, 3)]);
    let unknown = CUresult::CUDA_ERROR_UNKNOWN;
    assert_eq!(launch(&rig, function, null_mut(), &parameter), Err(unknown));
    let record = rig.0.log().pop().unwrap();
    assert_eq!(record.arg("grid_x"), Some(&Value::Number(1)));
    assert_eq!(record.arg("block_x"), Some(&Value::Number(1024)));
    assert_eq!(record.arg("extra"), Some(&Value::Null));
    // Made to fail, it reached nothing.
    assert_eq!(rig.query(null_mut()), DONE);
}
