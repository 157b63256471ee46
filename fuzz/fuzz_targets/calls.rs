//! The simulated driver's raw calls, with any arguments that C could pass.
//!
//! It answers, whatever it is asked, and what it refuses it leaves alone. A handle, stream, event, context, module or
//! function that does not exist, which a real driver would die of, is a misuse that it names.
#![no_main]

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{from_mut, null_mut};

use cuda_vmm::sim::{MisuseKind, SimDevice, Simulation};
use cuda_vmm::sys::*;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const G: u64 = 2 << 20;

/// The most bytes that a copy or a fill may move, so that a run takes no seconds.
const MOVED: usize = 4 << 20;

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    Granules(u8),
    Near(u8, i8),
    Power(u8),
    Any(u64),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Address {
    /// In or around a reservation that was made.
    In(u8, i8),
    Near(u8, i8, i16),
    Any(Number),
}

/// One of those that the driver gave, or a made-up one.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Token {
    Given(u8),
    MadeUp(u64),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Where {
    kind: u8,
    id: i8,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Op {
    Init(u32),
    Device(i8),
    Attribute(u16, i8),
    Peer(i8, i8),
    RetainContext(i8),
    ReleaseContext(i8),
    ResetContext(i8),
    Push(Token),
    Pop(bool),
    SetCurrent(Token),
    Current,
    Synchronize,
    Reserve {
        size: Number,
        alignment: Number,
        hint: Address,
        flags: u8,
    },
    Free(Address, Number),
    Create {
        size: Number,
        place: Where,
        types: u8,
        extras: u8,
        flags: u8,
    },
    Release(Token),
    Map {
        address: Address,
        size: Number,
        offset: Number,
        handle: Token,
        flags: u8,
    },
    Unmap(Address, Number),
    SetAccess {
        address: Address,
        size: Number,
        one: (Where, u8),
        other: (Where, u8),
        count: u8,
    },
    GetAccess(Address, Where),
    Export(Token, u8, u8),
    Granularity(Where, u8),
    Properties(Token),
    Retain(Address),
    Range(Address),
    Pointer(u8, Address),
    RangeHandle(Address, Number, u8, u8),
    MemInfo,
    Alloc(Number),
    FreeAlloc(Address),
    ToDevice(Address, Number, Option<Token>),
    ToHost(Address, Number, Option<Token>),
    OnDevice(Address, Address, Number, Option<Token>),
    Fill(Address, u8, Number, Option<Token>),
    Rows {
        to: (Address, Number, u8),
        from: (Address, Number, u8),
        width: Number,
        rows: u8,
        stream: Token,
    },
    Word(Token, Address, u32, u8),
    HostFunction(Token),
    Wait(Token, Token, u8),
    Load(bool),
    Function(Token, bool),
    Unload(Token),
    Launch {
        function: Token,
        grid: (u8, u8),
        block: (u16, u8),
        stream: Token,
        pieces: [(Address, Address, Number); 2],
    },
    NewStream(u8),
    EndStream(Token),
    QueryStream(Token),
    HoldStream(Token),
    RunStream(Token),
    NewEvent(u8),
    EndEvent(Token),
    Record(Token, Token),
    QueryEvent(Token),
    Poison(u8),
}

/// The one kernel that the simulated driver knows, with the zero at its end.
const GATHER: &str = concat!(include_str!("../../src/pool/gather.ptx"), "\0");

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[derive(Debug, Arbitrary)]
struct Input {
    ledger_only: bool,
    ops: Vec<Op>,
}

impl Number {
    fn value(self) -> u64 {
        match self {
            Number::Granules(count) => u64::from(count % 20) * G,
            Number::Near(count, by) => (u64::from(count % 20) * G).wrapping_add_signed(by.into()),
            Number::Power(power) => 1 << (power % 64),
            Number::Any(value) => value,
        }
    }

    fn size(self) -> usize {
        self.value() as usize
    }

    fn moved(self) -> usize {
        self.size().min(MOVED)
    }
}

impl Where {
    fn location(self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType((self.kind % 7).into()),
            id: self.id.into(),
        }
    }
}

struct Run {
    sim: Simulation,
    ranges: Vec<u64>,
    handles: Vec<u64>,
    streams: Vec<u64>,
    events: Vec<u64>,
    contexts: Vec<u64>,
    modules: Vec<u64>,
    functions: Vec<u64>,
    /// What asynchronous copies read and write: it must outlive them.
    host: Vec<u8>,
}

fn pick(given: &[u64], token: Token) -> u64 {
    match token {
        Token::Given(index) if !given.is_empty() => given[index as usize % given.len()],
        Token::Given(_) => 0,
        Token::MadeUp(value) => value,
    }
}

impl Run {
    fn new(ledger_only: bool) -> Run {
        let builder = Simulation::builder()
            .device(SimDevice::new().memory(64 << 20))
            .device(SimDevice::new());
        let builder = if ledger_only {
            builder.ledger_only()
        } else {
            builder
        };
        Run {
            sim: builder.imex_channel(true).build().unwrap(),
            ranges: Vec::new(),
            handles: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            contexts: Vec::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            host: vec![0; MOVED],
        }
    }

    fn address(&self, address: Address) -> u64 {
        let base = |index: u8| pick(&self.ranges, Token::Given(index));
        match address {
            Address::In(index, granules) => {
                base(index).wrapping_add_signed(i64::from(granules % 24) * G as i64)
            }
            Address::Near(index, granules, by) => {
                base(index).wrapping_add_signed(i64::from(granules % 24) * G as i64 + i64::from(by))
            }
            Address::Any(number) => number.value(),
        }
    }

    fn stream(&self, token: Token) -> CUstream {
        pick(&self.streams, token) as usize as CUstream
    }

    fn event(&self, token: Token) -> CUevent {
        pick(&self.events, token) as usize as CUevent
    }

    unsafe fn call(&mut self, op: Op) -> CUresult {
        let sim = self.sim.clone();
        let host = self.host.as_mut_ptr().cast::<c_void>();
        let (mut word, mut size, mut other, mut number) = (0u64, 0usize, 0usize, 0i32);
        let mut pointer: CUcontext = null_mut();
        unsafe {
            match op {
                Op::Init(flags) => sim.cuInit(flags),
                Op::Device(device) => {
                    let mut name = [0u8; 40];
                    let mut uuid = CUuuid::default();
                    let _ = sim.cuDeviceGetName(
                        name.as_mut_ptr().cast(),
                        (device as i32).clamp(-1, 40),
                        device.into(),
                    );
                    let _ = sim.cuDeviceGetUuid_v2(&mut uuid, device.into());
                    let _ = sim.cuDeviceTotalMem_v2(&mut size, device.into());
                    sim.cuDeviceGet(&mut number, device.into())
                }
                Op::Attribute(attribute, device) => sim.cuDeviceGetAttribute(
                    &mut number,
                    CUdevice_attribute(attribute.into()),
                    device.into(),
                ),
                Op::Peer(one, other) => {
                    sim.cuDeviceCanAccessPeer(&mut number, one.into(), other.into())
                }
                Op::RetainContext(device) => {
                    let code = sim.cuDevicePrimaryCtxRetain(&mut pointer, device.into());
                    self.contexts.push(pointer as usize as u64);
                    code
                }
                Op::ReleaseContext(device) => sim.cuDevicePrimaryCtxRelease_v2(device.into()),
                Op::ResetContext(device) => sim.cuDevicePrimaryCtxReset_v2(device.into()),
                Op::Push(token) => {
                    sim.cuCtxPushCurrent_v2(pick(&self.contexts, token) as usize as CUcontext)
                }
                Op::Pop(wanted) => {
                    sim.cuCtxPopCurrent_v2(if wanted { &mut pointer } else { null_mut() })
                }
                Op::SetCurrent(token) => {
                    sim.cuCtxSetCurrent(pick(&self.contexts, token) as usize as CUcontext)
                }
                Op::Current => {
                    let _ = sim.cuCtxGetCurrent(&mut pointer);
                    sim.cuCtxGetDevice(&mut number)
                }
                // Only where it cannot block: nothing else runs that could wake this thread.
                Op::Synchronize if self.held_nothing() => sim.cuCtxSynchronize(),
                Op::Synchronize => CUresult::CUDA_SUCCESS,
                Op::Reserve {
                    size,
                    alignment,
                    hint,
                    flags,
                } => {
                    let (alignment, hint) = (alignment.size(), self.address(hint));
                    let code = sim.cuMemAddressReserve(
                        &mut word,
                        size.size(),
                        alignment,
                        hint,
                        (flags / 200).into(),
                    );
                    if code == CUresult::CUDA_SUCCESS {
                        self.ranges.push(word);
                    }
                    code
                }
                Op::Free(address, size) => sim.cuMemAddressFree(self.address(address), size.size()),
                Op::Create {
                    size,
                    place,
                    types,
                    extras,
                    flags,
                } => {
                    let mut props = CUmemAllocationProp {
                        type_: CUmemAllocationType(if extras > 250 { 2 } else { 1 }),
                        requestedHandleTypes: CUmemAllocationHandleType(types.into()),
                        location: place.location(),
                        ..Default::default()
                    };
                    props.allocFlags.compressionType = extras & 1;
                    props.allocFlags.gpuDirectRDMACapable = extras >> 1 & 1;
                    let code =
                        sim.cuMemCreate(&mut word, size.size(), &props, (flags / 200).into());
                    if code == CUresult::CUDA_SUCCESS {
                        self.handles.push(word);
                    }
                    code
                }
                Op::Release(token) => sim.cuMemRelease(pick(&self.handles, token)),
                Op::Map {
                    address,
                    size,
                    offset,
                    handle,
                    flags,
                } => {
                    let handle = pick(&self.handles, handle);
                    sim.cuMemMap(
                        self.address(address),
                        size.size(),
                        offset.size(),
                        handle,
                        (flags / 200).into(),
                    )
                }
                Op::Unmap(address, size) => sim.cuMemUnmap(self.address(address), size.size()),
                Op::SetAccess {
                    address,
                    size,
                    one,
                    other,
                    count,
                } => {
                    let grants = [one, other].map(|(place, rights)| CUmemAccessDesc {
                        location: place.location(),
                        flags: CUmemAccess_flags((rights % 5).into()),
                    });
                    sim.cuMemSetAccess(
                        self.address(address),
                        size.size(),
                        grants.as_ptr(),
                        (count % 3).into(),
                    )
                }
                Op::GetAccess(address, place) => {
                    sim.cuMemGetAccess(&mut word, &place.location(), self.address(address))
                }
                Op::Export(token, kind, flags) => {
                    self.export(pick(&self.handles, token), kind, flags / 200)
                }
                Op::Granularity(place, option) => {
                    let props = CUmemAllocationProp {
                        location: place.location(),
                        ..Default::default()
                    };
                    sim.cuMemGetAllocationGranularity(
                        &mut size,
                        &props,
                        CUmemAllocationGranularity_flags(option.into()),
                    )
                }
                Op::Properties(token) => {
                    let mut props = CUmemAllocationProp::default();
                    sim.cuMemGetAllocationPropertiesFromHandle(
                        &mut props,
                        pick(&self.handles, token),
                    )
                }
                Op::Retain(address) => {
                    let code = sim.cuMemRetainAllocationHandle(
                        &mut word,
                        self.address(address) as usize as *mut c_void,
                    );
                    if code == CUresult::CUDA_SUCCESS {
                        self.handles.push(word);
                    }
                    code
                }
                Op::Range(address) => {
                    sim.cuMemGetAddressRange_v2(&mut word, &mut size, self.address(address))
                }
                Op::Pointer(attribute, address) => {
                    let mut room = [0u64; 8];
                    let attribute = CUpointer_attribute(attribute.into());
                    sim.cuPointerGetAttribute(
                        room.as_mut_ptr().cast(),
                        attribute,
                        self.address(address),
                    )
                }
                Op::RangeHandle(address, size, kind, flags) => {
                    let kind = CUmemRangeHandleType((kind % 3).into());
                    let to = from_mut(&mut number).cast();
                    let code = sim.cuMemGetHandleForAddressRange(
                        to,
                        self.address(address),
                        size.size(),
                        kind,
                        (flags / 200).into(),
                    );
                    if code == CUresult::CUDA_SUCCESS {
                        drop(OwnedFd::from_raw_fd(number));
                    }
                    code
                }
                Op::MemInfo => sim.cuMemGetInfo_v2(&mut size, &mut other),
                Op::Alloc(size) => {
                    let code = sim.cuMemAlloc_v2(&mut word, size.size());
                    if code == CUresult::CUDA_SUCCESS {
                        self.ranges.push(word);
                    }
                    code
                }
                Op::FreeAlloc(address) => sim.cuMemFree_v2(self.address(address)),
                Op::ToDevice(to, size, stream) => match stream {
                    None => sim.cuMemcpyHtoD_v2(self.address(to), host, size.moved()),
                    Some(stream) => sim.cuMemcpyHtoDAsync_v2(
                        self.address(to),
                        host,
                        size.moved(),
                        self.stream(stream),
                    ),
                },
                Op::ToHost(from, size, stream) => match stream {
                    None => sim.cuMemcpyDtoH_v2(host, self.address(from), size.moved()),
                    Some(stream) => sim.cuMemcpyDtoHAsync_v2(
                        host,
                        self.address(from),
                        size.moved(),
                        self.stream(stream),
                    ),
                },
                Op::OnDevice(to, from, size, stream) => {
                    let (to, from) = (self.address(to), self.address(from));
                    match stream {
                        None => sim.cuMemcpyDtoD_v2(to, from, size.moved()),
                        Some(stream) => {
                            sim.cuMemcpyDtoDAsync_v2(to, from, size.moved(), self.stream(stream))
                        }
                    }
                }
                Op::Fill(to, value, size, stream) => match stream {
                    None => sim.cuMemsetD8_v2(self.address(to), value, size.moved()),
                    Some(stream) => sim.cuMemsetD8Async(
                        self.address(to),
                        value,
                        size.moved(),
                        self.stream(stream),
                    ),
                },
                Op::Rows {
                    to,
                    from,
                    width,
                    rows,
                    stream,
                } => {
                    let copy = CUDA_MEMCPY2D {
                        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                        srcDevice: self.address(from.0),
                        srcPitch: from.1.size(),
                        srcY: from.2.into(),
                        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                        dstDevice: self.address(to.0),
                        dstPitch: to.1.size(),
                        dstXInBytes: to.2.into(),
                        WidthInBytes: width.moved(),
                        Height: (rows % 8).into(),
                        ..Default::default()
                    };
                    sim.cuMemcpy2DAsync_v2(&copy, self.stream(stream))
                }
                Op::Word(stream, to, value, flags) => {
                    let (stream, to) = (self.stream(stream), self.address(to));
                    sim.cuStreamWriteValue32_v2(stream, to, value, (flags / 100).into())
                }
                Op::HostFunction(stream) => {
                    sim.cuLaunchHostFunc(self.stream(stream), Some(nothing), null_mut())
                }
                Op::Wait(stream, event, flags) => {
                    let (stream, event) = (self.stream(stream), self.event(event));
                    sim.cuStreamWaitEvent(stream, event, (flags / 100).into())
                }
                Op::Load(known) => {
                    let image = if known { GATHER } else { "no kernel\0" };
                    let mut module: CUmodule = null_mut();
                    let code = sim.cuModuleLoadData(&mut module, image.as_ptr().cast());
                    self.modules.push(module as usize as u64);
                    code
                }
                Op::Function(token, known) => {
                    let module = pick(&self.modules, token) as usize as CUmodule;
                    let name = if known { c"cuda_vmm_gather" } else { c"gather" };
                    let mut function: CUfunction = null_mut();
                    let code = sim.cuModuleGetFunction(&mut function, module, name.as_ptr());
                    self.functions.push(function as usize as u64);
                    code
                }
                Op::Unload(token) => {
                    sim.cuModuleUnload(pick(&self.modules, token) as usize as CUmodule)
                }
                Op::Launch {
                    function,
                    grid: (blocks, rows),
                    block: (threads, layers),
                    stream,
                    pieces,
                } => {
                    let function = pick(&self.functions, function) as usize as CUfunction;
                    // The kernel's whole parameter.
                    let mut parameter = [0u64; 480];
                    for ((to, from, size), words) in pieces.iter().zip(parameter.chunks_mut(3)) {
                        let size = size.moved() as u64;
                        words.copy_from_slice(&[self.address(*to), self.address(*from), size]);
                    }
                    let mut parameters = [parameter.as_mut_ptr().cast::<c_void>()];
                    sim.cuLaunchKernel(
                        function,
                        blocks.into(),
                        rows.into(),
                        1,
                        threads.into(),
                        layers.into(),
                        1,
                        0,
                        self.stream(stream),
                        parameters.as_mut_ptr(),
                        null_mut(),
                    )
                }
                Op::NewStream(flags) => {
                    let mut stream: CUstream = null_mut();
                    let code = sim.cuStreamCreate(&mut stream, flags.into());
                    self.streams.push(stream as usize as u64);
                    code
                }
                Op::EndStream(token) => sim.cuStreamDestroy_v2(self.stream(token)),
                Op::QueryStream(token) => sim.cuStreamQuery(self.stream(token)),
                Op::HoldStream(token) => {
                    sim.hold_stream(self.stream(token));
                    CUresult::CUDA_SUCCESS
                }
                Op::RunStream(token) => {
                    sim.release_stream(self.stream(token));
                    CUresult::CUDA_SUCCESS
                }
                Op::NewEvent(flags) => {
                    let mut event: CUevent = null_mut();
                    let code = sim.cuEventCreate(&mut event, flags.into());
                    self.events.push(event as usize as u64);
                    code
                }
                Op::EndEvent(token) => sim.cuEventDestroy_v2(self.event(token)),
                Op::Record(event, stream) => {
                    sim.cuEventRecord(self.event(event), self.stream(stream))
                }
                Op::QueryEvent(token) => sim.cuEventQuery(self.event(token)),
                Op::Poison(device) => {
                    sim.poison(device.into());
                    CUresult::CUDA_SUCCESS
                }
            }
        }
    }

    /// Exports, and imports what came of it again.
    unsafe fn export(&mut self, handle: u64, kind: u8, flags: u8) -> CUresult {
        let sim = &self.sim;
        let kind = CUmemAllocationHandleType(kind.into());
        let (mut room, mut imported) = (CUmemFabricHandle { data: [0; 64] }, 0);
        unsafe {
            let code = sim.cuMemExportToShareableHandle(
                from_mut(&mut room).cast(),
                handle,
                kind,
                flags.into(),
            );
            if code != CUresult::CUDA_SUCCESS {
                return code;
            }
            let imported = match kind.0 {
                1 => {
                    let fd = i32::from_ne_bytes([
                        room.data[0],
                        room.data[1],
                        room.data[2],
                        room.data[3],
                    ]);
                    let fd = OwnedFd::from_raw_fd(fd);
                    let as_pointer = std::os::fd::AsRawFd::as_raw_fd(&fd) as isize as *mut c_void;
                    (
                        sim.cuMemImportFromShareableHandle(&mut imported, as_pointer, kind),
                        imported,
                    )
                }
                _ => (
                    sim.cuMemImportFromShareableHandle(
                        &mut imported,
                        from_mut(&mut room).cast(),
                        kind,
                    ),
                    imported,
                ),
            };
            assert_eq!(imported.0, CUresult::CUDA_SUCCESS);
            self.handles.push(imported.1);
        }
        CUresult::CUDA_SUCCESS
    }

    /// Whether no stream was ever held in this run.
    fn held_nothing(&self) -> bool {
        self.streams.iter().all(|stream| *stream == 0)
    }
}

fuzz_target!(|input: Input| {
    let mut run = Run::new(input.ledger_only);
    let initialised = unsafe { run.sim.cuInit(0) };
    assert_eq!(initialised, CUresult::CUDA_SUCCESS);
    for op in input.ops {
        // The only stream that could hold the thread up is one that nobody would let run.
        if matches!(op, Op::HoldStream(Token::MadeUp(0..=2) | Token::Given(_)))
            && run.streams.is_empty()
        {
            continue;
        }
        let (before, misuses) = (run.sim.snapshot(), run.sim.misuses().len());
        let code = unsafe { run.call(op) };
        if code != CUresult::CUDA_SUCCESS {
            assert_eq!(run.sim.snapshot(), before, "{op:?}");
        }
        for misuse in &run.sim.misuses()[misuses..] {
            assert_ne!(code, CUresult::CUDA_SUCCESS, "{misuse}");
            let _: MisuseKind = misuse.kind;
        }
        // Every byte that is mapped is inside a handle that is mapped as often.
        let after = run.sim.snapshot();
        let mapped: u32 = after.handles.iter().map(|handle| handle.mapped).sum();
        assert_eq!(mapped as usize, after.mappings.len(), "{after}");
    }
});
