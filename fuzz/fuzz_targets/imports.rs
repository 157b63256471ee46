//! What other processes hand over: descriptors of files with any name and size, and any 64 bytes as a fabric handle.
//!
//! It is refused, or it is memory that can be mapped and read to its last byte.
#![no_main]

use std::ffi::{c_void, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::from_mut;

use cuda_vmm::sim::{SimDevice, Simulation};
use cuda_vmm::sys::*;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const G: usize = 2 << 20;

#[derive(Debug, Arbitrary)]
enum Input {
    /// A file in memory that somebody made.
    File {
        name: Name,
        size: Size,
    },
    /// A number that may be a descriptor.
    Number(i64),
    Fabric {
        data: [u8; 64],
        genuine_first: u8,
    },
    /// A genuine handle with one byte changed.
    Forged {
        at: u8,
        byte: u8,
    },
}

#[derive(Debug, Arbitrary)]
enum Name {
    Any(String),
    LikeOurs { place: String, size: String },
    Ours { place: Place, size: Size },
}

#[derive(Debug, Arbitrary)]
enum Place {
    Device(u128),
    FirstDevice,
    Host,
    Node(i64),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Size {
    Granules(u8),
    Any(u32),
}

impl Size {
    fn bytes(self) -> u64 {
        match self {
            Size::Granules(count) => (count % 8) as u64 * G as u64,
            Size::Any(bytes) => bytes as u64 % (1 << 24),
        }
    }
}

const UUID: [u8; 16] = [7; 16];

impl Name {
    fn text(&self) -> String {
        match self {
            Name::Any(text) => text.clone(),
            Name::LikeOurs { place, size } => format!("cuda-vmm-sim:{place}:{size}"),
            Name::Ours { place, size } => {
                let place = match place {
                    Place::Device(uuid) => format!("{uuid:032x}"),
                    Place::FirstDevice => format!("{:032x}", u128::from_be_bytes(UUID)),
                    Place::Host => "host".into(),
                    Place::Node(node) => format!("node{node}"),
                };
                format!("cuda-vmm-sim:{place}:{:x}", size.bytes())
            }
        }
    }
}

/// `None` for a name that the system does not take.
fn file(name: &Name, size: Size) -> Option<OwnedFd> {
    let name = CString::new(name.text()).ok()?;
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let sized = unsafe { libc::ftruncate(fd.as_raw_fd(), size.bytes() as i64) };
    assert_eq!(sized, 0);
    Some(fd)
}

fn done(code: CUresult) -> bool {
    code == CUresult::CUDA_SUCCESS
}

/// Everything that can be done with a handle that was imported.
unsafe fn use_it(sim: &Simulation, handle: u64) {
    unsafe {
        let mut props = CUmemAllocationProp::default();
        assert!(done(
            sim.cuMemGetAllocationPropertiesFromHandle(&mut props, handle)
        ));
        let size = sim
            .snapshot()
            .handles
            .iter()
            .find(|state| state.handle == handle)
            .unwrap()
            .size as usize;
        let (mut address, room) = (0, size.next_multiple_of(G).max(G));
        assert!(done(sim.cuMemAddressReserve(&mut address, room, 0, 0, 0)));
        if done(sim.cuMemMap(address, size, 0, handle, 0)) {
            let grant = CUmemAccessDesc {
                location: CUmemLocation {
                    type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                    id: 0,
                },
                flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            if done(sim.cuMemSetAccess(address, size, &grant, 1)) {
                let mut bytes = vec![1u8; size];
                assert!(done(sim.cuMemcpyDtoH_v2(
                    bytes.as_mut_ptr().cast(),
                    address,
                    size
                )));
                assert!(bytes.iter().all(|byte| *byte == 0));
            }
            assert!(done(sim.cuMemUnmap(address, size)));
        }
        assert!(done(sim.cuMemAddressFree(address, room)));
        assert!(done(sim.cuMemRelease(handle)));
    }
}

fuzz_target!(|inputs: Vec<Input>| {
    let device = SimDevice::new().memory(1 << 30).uuid(UUID);
    let builder = Simulation::builder().device(device).imex_channel(true);
    let sim = builder.build().unwrap();
    const FD: CUmemAllocationHandleType =
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const FABRIC: CUmemAllocationHandleType = CUmemAllocationHandleType(8);
    unsafe {
        assert!(done(sim.cuInit(0)));
        let (mut context, mut own, mut genuine) =
            (std::ptr::null_mut(), 0, CUmemFabricHandle { data: [0; 64] });
        assert!(done(sim.cuDevicePrimaryCtxRetain(&mut context, 0)));
        assert!(done(sim.cuCtxPushCurrent_v2(context)));
        let props = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: FABRIC,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: 0,
            },
            ..Default::default()
        };
        assert!(done(sim.cuMemCreate(&mut own, G, &props, 0)));
        assert!(done(sim.cuMemExportToShareableHandle(
            from_mut(&mut genuine).cast(),
            own,
            FABRIC,
            0
        )));
        let before = sim.snapshot();
        for input in inputs {
            let mut handle = 0;
            let code = match input {
                Input::File { name, size } => {
                    let Some(file) = file(&name, size) else {
                        continue;
                    };
                    sim.cuMemImportFromShareableHandle(
                        &mut handle,
                        file.as_raw_fd() as isize as *mut c_void,
                        FD,
                    )
                }
                // Not one that this process has open for something else.
                Input::Number(number) if !(0..1024).contains(&number) => sim
                    .cuMemImportFromShareableHandle(
                        &mut handle,
                        number as isize as *mut c_void,
                        FD,
                    ),
                Input::Number(_) => continue,
                Input::Fabric {
                    mut data,
                    genuine_first,
                } => {
                    let first = genuine_first as usize % 64;
                    data[..first].copy_from_slice(&genuine.data[..first]);
                    let mut name = CUmemFabricHandle { data };
                    sim.cuMemImportFromShareableHandle(
                        &mut handle,
                        from_mut(&mut name).cast(),
                        FABRIC,
                    )
                }
                Input::Forged { at, byte } => {
                    let mut name = CUmemFabricHandle { data: genuine.data };
                    name.data[at as usize % 64] = byte;
                    sim.cuMemImportFromShareableHandle(
                        &mut handle,
                        from_mut(&mut name).cast(),
                        FABRIC,
                    )
                }
            };
            if done(code) {
                use_it(&sim, handle);
            }
            assert_eq!(sim.snapshot(), before);
        }
        assert!(done(sim.cuMemRelease(own)));
        assert!(done(sim.cuCtxPopCurrent_v2(&mut context)));
        assert!(done(sim.cuDevicePrimaryCtxRelease_v2(0)));
    }
    assert!(sim.snapshot().is_empty(), "{}", sim.snapshot());
    assert_eq!(sim.misuses(), []);
});
