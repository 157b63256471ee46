//! The backend with real memory: an allocation is a memfd or a part of one, and a mapping is that mapped into the
//! arenas.
//!
//! # Safety
//!
//! `MAP_FIXED` replaces whatever lies at an address, so it is used only inside the [`Arenas`], which nothing else of
//! the process knows but by asking the simulated driver. The books above see to it that what is copied is mapped with
//! the rights the copy needs, and they are locked meanwhile.
#![allow(unsafe_code)]

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use crate::sys::CUresult;

use super::super::place::{Place, Rights};
use super::abi::Raw;
use super::arenas::{inaccessible, Arenas};
use super::store::{End, Identity, Origin, Segment, Shared, Store};
use super::{Answer, Refusal};

/// What every exportable memfd's name begins with; the kernel shows it behind `/memfd:`.
const NAME: &str = "cuda-vmm-sim:";

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) arenas: Arenas,
    pools: HashMap<Place, Pool>,
}

/// The sparse memfd that the allocations of a place share unless they can be exported. A part is never used again: what
/// was released is punched out, so the file takes no more memory than is in use.
#[derive(Debug)]
struct Pool {
    file: File,
    end: u64,
}

impl Memory {
    pub(super) fn create_own(origin: Origin, size: u64) -> Answer<Store> {
        let place = match origin {
            Origin::Device(uuid) => uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            Origin::Host => "host".to_owned(),
            Origin::HostNuma(node) => format!("node{node}"),
        };
        let file = memfd(&format!("{NAME}{place}:{size:x}"))?;
        file.set_len(size).map_err(out_of_memory)?;
        Ok(Store::Own(file.into()))
    }

    pub(super) fn create_piece(&mut self, place: Place, size: u64) -> Answer<Store> {
        let pool = match self.pools.entry(place) {
            Entry::Occupied(pool) => pool.into_mut(),
            Entry::Vacant(none) => none.insert(Pool {
                file: memfd("cuda-vmm-sim-pool")?,
                end: 0,
            }),
        };
        let offset = pool.end;
        let Some(end) = offset.checked_add(size) else {
            return Err(Refusal::Code(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        };
        pool.file.set_len(end).map_err(out_of_memory)?;
        pool.end = end;
        Ok(Store::Piece { place, offset })
    }

    pub(super) fn destroy(&mut self, store: Store, size: u64) {
        let Store::Piece { place, offset } = store else {
            return; // Closing its file is all there is to do, and dropping the store has done it.
        };
        if let Some(pool) = self.pools.get(&place) {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a file of our own. Failure would keep its pages, which nothing can reach any more, until the end.
            unsafe { libc::fallocate(pool.file.as_raw_fd(), mode, offset as i64, size as i64) };
        }
    }

    pub(super) fn map(&mut self, address: u64, size: u64, store: &Store) -> Answer {
        let (fd, offset) = match store {
            Store::Own(fd) => (fd.as_raw_fd(), 0),
            Store::Piece { place, offset } => match self.pools.get(place) {
                Some(pool) => (pool.file.as_raw_fd(), *offset),
                None => return Err(Refusal::Code(CUresult::CUDA_ERROR_UNKNOWN)),
            },
            Store::Pages(_) => return Err(Refusal::Code(CUresult::CUDA_ERROR_UNKNOWN)),
        };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the books took the range from the arenas, and nothing is mapped in it.
        let at = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                size as usize,
                libc::PROT_NONE,
                flags,
                fd,
                offset as i64,
            )
        };
        checked(at != libc::MAP_FAILED)
    }

    pub(super) fn unmap(&mut self, address: u64, size: u64) -> Answer {
        // SAFETY: the range is a mapping of ours, which lies in the arenas.
        let at = unsafe { inaccessible(address, size, libc::MAP_FIXED) };
        checked(at != libc::MAP_FAILED)
    }

    pub(super) fn protect(&mut self, address: u64, size: u64, rights: Rights) -> Answer {
        let protection = match rights {
            Rights::None => libc::PROT_NONE,
            Rights::Read => libc::PROT_READ,
            Rights::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let at = address as *mut libc::c_void;
        // SAFETY: the range is a mapping of ours; no reference of Rust's points into it.
        let result = unsafe { libc::mprotect(at, size as usize, protection) };
        checked(result == 0)
    }

    pub(super) fn copy(&mut self, to: &End, from: &End, size: u64) {
        // SAFETY: host buffers are as long as the copy says, by the call's contract; device ends were found mapped with
        // the rights for it, and follow each other in the address space. They may overlap.
        unsafe { libc::memmove(pointer(to), pointer(from), size as usize) };
    }

    pub(super) fn fill(&mut self, to: &[Segment], value: u8) {
        for segment in to {
            let at = segment.address as *mut libc::c_void;
            // SAFETY: the segment was found mapped with the right to write.
            unsafe { libc::memset(at, value.into(), segment.size as usize) };
        }
    }

    pub(super) fn store(&mut self, to: &[Segment], value: u32) {
        for segment in to {
            Raw::at(segment.address).store(value);
        }
    }

    pub(super) fn export(store: &Store) -> Option<OwnedFd> {
        match store {
            Store::Own(fd) => open_again(fd.as_raw_fd()),
            _ => None,
        }
    }

    pub(super) fn import(fd: RawFd) -> Option<Shared> {
        if fd < 0 {
            return None;
        }
        Self::import_path(&format!("/proc/self/fd/{fd}"))
    }

    /// Opens the memory behind a path of `/proc`, if it is memory that a simulation exported.
    pub(super) fn import_path(path: &str) -> Option<Shared> {
        let target = std::fs::read_link(path).ok()?;
        let (origin, size) = parse_name(target.to_str()?)?;
        let file = open_shared(path)?;
        let metadata = file.metadata().ok()?;
        if metadata.len() != size {
            return None;
        }
        Some(Shared {
            identity: (metadata.dev(), metadata.ino()),
            store: Store::Own(file.into()),
            origin,
            size,
        })
    }

    pub(super) fn identity(fd: &OwnedFd) -> Option<Identity> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a file of our own, and room for what the call writes.
        let failed = unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0;
        if failed {
            return None;
        }
        // SAFETY: the call succeeded, so it has written all of it.
        let stat = unsafe { stat.assume_init() };
        Some((stat.st_dev, stat.st_ino))
    }

    /// Every description but the allocation's own holds a shared lock for as long as a descriptor or a mapping of it is
    /// left in any process, so an exclusive lock can be had only if there is none.
    pub(super) fn shared(own: &OwnedFd) -> bool {
        let fd = own.as_raw_fd();
        // SAFETY: a file of our own.
        let alone = unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } == 0;
        if alone {
            // SAFETY: as above.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
        }
        !alone
    }
}

fn pointer(end: &End) -> *mut libc::c_void {
    match end {
        End::Host(host) => host.pointer().cast(),
        End::Device(segments) => {
            segments.first().map_or(0, |segment| segment.address) as *mut libc::c_void
        }
    }
}

fn memfd(name: &str) -> Answer<File> {
    let name = CString::new(name).map_err(out_of_memory)?;
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Refusal::Code(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A description of its own for the file behind a descriptor of this process, with the lock that makes it count.
fn open_again(fd: RawFd) -> Option<OwnedFd> {
    open_shared(&format!("/proc/self/fd/{fd}")).map(OwnedFd::from)
}

fn open_shared(path: &str) -> Option<File> {
    // The standard library opens everything with O_CLOEXEC, as the driver does.
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    // Waits for the moment in which `shared` holds the exclusive lock, and for nothing else.
    // SAFETY: a file of our own.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) } != 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
    Some(file)
}

/// Reads `/memfd:cuda-vmm-sim:<where>:<size> (deleted)`.
fn parse_name(target: &str) -> Option<(Origin, u64)> {
    let name = target.strip_prefix("/memfd:")?.strip_prefix(NAME)?;
    let (place, size) = name.strip_suffix(" (deleted)")?.split_once(':')?;
    let origin = match place.strip_prefix("node") {
        Some(node) => Origin::HostNuma(node.parse().ok()?),
        None if place == "host" => Origin::Host,
        None => Origin::Device(u128::from_str_radix(place, 16).ok()?.to_be_bytes()),
    };
    Some((origin, u64::from_str_radix(size, 16).ok()?))
}

/// The kernel refuses a mapping for want of memory for its own tables, or of map entries (`vm.max_map_count`).
fn checked(done: bool) -> Answer {
    if done {
        Ok(())
    } else {
        Err(Refusal::Code(CUresult::CUDA_ERROR_OUT_OF_MEMORY))
    }
}

fn out_of_memory<E>(_: E) -> Refusal {
    Refusal::Code(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn names_of_exported_memory() {
        let uuid = *b"cuda-vmm sim\0\0\0\x01";
        for origin in [Origin::Device(uuid), Origin::Host, Origin::HostNuma(3)] {
            let Ok(Store::Own(fd)) = Memory::create_own(origin, 1 << 21) else {
                panic!("no memfd");
            };
            let shared = Memory::import(fd.as_raw_fd()).expect("our own memfd");
            assert_eq!((shared.origin, shared.size), (origin, 1 << 21));
        }
        let short = memfd("cuda-vmm-sim:host:200000").unwrap();
        assert!(Memory::import(short.as_raw_fd()).is_none(), "it is empty");
        assert_eq!(parse_name("/memfd:cuda-vmm-sim:node0:zz (deleted)"), None);
        assert_eq!(parse_name("/memfd:x (deleted)"), None);
        assert_eq!(parse_name("/dev/null"), None);
    }

    #[test]
    fn what_is_destroyed_takes_no_memory() {
        let mut memory = Memory::default();
        let pieces = [(); 2].map(|()| memory.create_piece(Place::Host, 1 << 16).unwrap());
        let blocks = |memory: &Memory| memory.pools[&Place::Host].file.metadata().unwrap().blocks();
        for offset in [0, 1 << 16] {
            let file = &memory.pools[&Place::Host].file;
            file.write_all_at(&[1; 1 << 16], offset).unwrap();
        }
        let full = blocks(&memory);
        let [first, second] = pieces;
        memory.destroy(first, 1 << 16);
        assert_eq!(blocks(&memory), full / 2);
        memory.destroy(second, 1 << 16);
        assert_eq!(blocks(&memory), 0);
    }

    #[test]
    fn sharing_is_seen_until_the_last_descriptor_is_closed() {
        let Ok(store @ Store::Own(_)) = Memory::create_own(Origin::Host, 1 << 21) else {
            panic!("no memfd");
        };
        let Store::Own(own) = &store else { return };
        assert!(!Memory::shared(own));
        let exported = Memory::export(&store).unwrap();
        let copy = exported.try_clone().unwrap();
        assert!(Memory::shared(own));
        drop(exported);
        assert!(Memory::shared(own));
        drop(copy);
        assert!(!Memory::shared(own));
    }
}
