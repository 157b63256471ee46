//! What sharing costs on top of the driver: a span attached in another process, through the crate and by raw calls in
//! turns; and what one more client costs a server.
//!
//! Runs on this machine's GPU; without one on simulated drivers, one a process, over which the messages are most of the
//! time. Figures are medians; ratios are of medians taken in the same run. The other process is this program again.
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{env, mem, ptr, thread};

use cuda_vmm::share::wire::{
    fetch, pair, receive_parcel, send_parcel, Limits, Name, Parcel, Server, SocketKind,
};
use cuda_vmm::share::SpanImport;
use cuda_vmm::sys::{self, CUmemAccessDesc, CUmemAllocationHandleType, CUresult};
use cuda_vmm::{Access, Allocation, AllocationProps, Device, Driver, HandleType, Reservation};

#[path = "../examples/machine/mod.rs"]
mod machine;

use machine::Machine;

const POSIX_FD: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Number of pieces, and the size of each.
type Shape = (usize, usize);

const SHAPES: [Shape; 2] = [(64, 2 << 20), (1, 1 << 30)];
const ROUNDS: usize = 201;

fn main() {
    let machine = Machine::find().unwrap_or_else(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    });
    let device = machine.driver.device(0).expect("device 0");
    // With no context in the process the driver sets the device up anew for every grant.
    let _current = device.make_current().expect("a context");
    let words: Vec<String> = env::args().collect();
    match words.get(1..).unwrap_or_default() {
        [role] if role == "importer" => return import(&machine.driver, &device),
        [role, name] if role == "clients" => return be_clients(&Name::new(name)),
        _ => {}
    }
    let kind = match machine.simulated {
        Some(_) => "simulated",
        None => "gpu",
    };
    println!("{kind}: {}", device.name().unwrap_or_default());
    for shape in SHAPES {
        attach(kind, &device, shape);
    }
    serve(kind, &device);
}

fn again(words: &[&str], stdin: impl Into<Stdio>) -> Child {
    let program = env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(words).stdin(stdin).stdout(Stdio::piped());
    command.spawn().expect("this program again")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64 / 1000.0
}

fn ok(status: CUresult) {
    assert_eq!(status, CUresult::CUDA_SUCCESS);
}

/// A span of this shape, and its memory.
fn span(device: &Device, (count, size): Shape) -> (Reservation, Vec<Allocation>) {
    let props = AllocationProps::on(device).shareable_as(HandleType::PosixFd.into());
    let mut kv = Reservation::builder(count * size)
        .access(device, Access::ReadWrite)
        .reserve(device.driver())
        .expect("reserve");
    let page = |at| {
        let page = props.create(size).expect("create");
        kv.map_existing(at * size, &page).expect("map");
        page
    };
    let pages = (0..count).map(page).collect();
    (kv, pages)
}

fn export(kv: &Reservation) -> Parcel {
    let exported = kv.export_span(0, kv.size(), HandleType::PosixFd, Access::ReadWrite);
    let (bytes, fds, _) = exported.expect("export").into_parts();
    Parcel::new(bytes, fds)
}

/// From before the export to the other process's word that it can use the memory, and the part of it that the other
/// process needed to import, map and grant.
fn attach(kind: &str, device: &Device, shape: Shape) {
    let (kv, pages) = span(device, shape);
    let (here, there) = pair(SocketKind::Packets).expect("sockets");
    let mut other = again(&["importer"], there);
    let mut figures = [const { [const { Vec::new() }; 2] }; 2];
    for round in 0..ROUNDS {
        // Each goes first in turn.
        for turn in 0..2 {
            let raw = (round + turn) % 2;
            say(&here, &[raw as u8]);
            let start = Instant::now();
            match raw {
                0 => send_parcel(&here, &export(&kv), Some(soon())).expect("send"),
                _ => send_raw(device.driver(), &here, &pages),
            }
            let whole = microseconds(start);
            // The other process says this when it has given everything back.
            let mut part = [0; 8];
            assert_eq!(hear(&here, &mut part, None), 8);
            if round > 0 {
                figures[0][raw].push(whole);
                figures[1][raw].push(f64::from_le_bytes(part));
            }
        }
    }
    drop(here);
    assert!(other.wait().expect("the importer").success());
    kv.close().expect("close");
    let (count, size) = (shape.0, shape.1 >> 20);
    let names = [
        "export to ready (target 1.2 on a GPU)",
        "of it import, map, grant",
    ];
    for (name, [through, raw]) in names.into_iter().zip(figures.map(|it| it.map(median))) {
        let ratio = through / raw;
        println!("{kind}, {count} x {size} MiB to another process, {name}: crate {through:.1} us, raw {raw:.1} us, ratio {ratio:.3}");
    }
}

/// The other process: attaches what comes, in the way it is told.
fn import(driver: &Driver, device: &Device) {
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let mut way = [0];
    while hear(&socket, &mut way, None) == 1 {
        let attached = match way {
            [0] => {
                let mut received =
                    receive_parcel(&socket, Limits::default(), Some(soon())).expect("receive");
                let start = Instant::now();
                let parcel = mem::take(received.parcel_mut());
                let span = SpanImport::new(&parcel.bytes, parcel.fds)
                    .and_then(|import| import.attach(driver, [(device, Access::ReadWrite)]))
                    .expect("attach");
                let attached = microseconds(start);
                received.accept().expect("accept");
                span.close().expect("close");
                attached
            }
            _ => attach_raw(driver, &socket),
        };
        say(&socket, &attached.to_le_bytes());
    }
}

/// How the same is done by hand: a message with the number and the size, and the descriptors beside it.
fn send_raw(driver: &Driver, socket: &OwnedFd, pages: &[Allocation]) {
    let raw = driver.calls_raw();
    let export = |page: &Allocation| {
        let mut fd: RawFd = -1;
        ok(unsafe {
            raw.cuMemExportToShareableHandle((&raw mut fd).cast(), page.raw(), POSIX_FD, 0)
        });
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let fds: Vec<OwnedFd> = pages.iter().map(export).collect();
    let raw_fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let size = pages[0].size() as u64;
    with_message(&mut size.to_le_bytes(), |message, control| unsafe {
        let length = size_of_val(&raw_fds[..]) as u32;
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let header = control.cast::<libc::cmsghdr>();
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(length) as _;
        ptr::copy_nonoverlapping(
            raw_fds.as_ptr().cast::<u8>(),
            libc::CMSG_DATA(header),
            length as usize,
        );
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), message, 0), 8);
    });
    drop(fds);
    assert_eq!(hear(socket, &mut [0], None), 1);
}

fn attach_raw(driver: &Driver, socket: &OwnedFd) -> f64 {
    let (mut size, mut fds) = ([0; 8], Vec::new());
    assert_eq!(hear(socket, &mut size, Some(&mut fds)), 8);
    let start = Instant::now();
    let raw = driver.calls_raw();
    let size = u64::from_le_bytes(size) as usize;
    let whole = size * fds.len();
    let device = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    };
    let access = CUmemAccessDesc {
        location: device,
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    unsafe {
        let mut base = 0;
        ok(raw.cuMemAddressReserve(&mut base, whole, 0, 0, 0));
        let mut handles = Vec::with_capacity(fds.len());
        for fd in fds {
            let (mut handle, shareable) = (0, fd.as_raw_fd() as isize as *mut c_void);
            ok(raw.cuMemImportFromShareableHandle(&mut handle, shareable, POSIX_FD));
            let address = base + (handles.len() * size) as u64;
            ok(raw.cuMemMap(address, size, 0, handle, 0));
            handles.push(handle);
        }
        ok(raw.cuMemSetAccess(base, whole, &access, 1));
        let attached = microseconds(start);
        say(socket, &[0]);
        ok(raw.cuMemUnmap(base, whole));
        for handle in handles {
            ok(raw.cuMemRelease(handle));
        }
        ok(raw.cuMemAddressFree(base, whole));
        attached
    }
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    let length = bytes.len();
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), length, 0) };
    assert_eq!(sent, length as isize);
}

/// A packet, and the descriptors that came with it; how many bytes it has.
fn hear(socket: &OwnedFd, bytes: &mut [u8], fds: Option<&mut Vec<OwnedFd>>) -> usize {
    let mut got = 0;
    with_message(bytes, |message, control| unsafe {
        let received = libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC);
        got = usize::try_from(received).expect("a packet");
        if let (Some(fds), true) = (fds, message.msg_controllen > 0) {
            let header = control.cast::<libc::cmsghdr>();
            let length: usize = (*header).cmsg_len as _; // Of another type with another C library.
            let length = length - libc::CMSG_LEN(0) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            let fd = |at| OwnedFd::from_raw_fd(data.add(at).read_unaligned());
            fds.extend((0..length / size_of::<RawFd>()).map(fd));
        }
    });
    got
}

/// A message of these bytes, with room for descriptors.
fn with_message(bytes: &mut [u8], then: impl FnOnce(&mut libc::msghdr, *mut u64)) {
    let mut control = [0_u64; 140];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    then(&mut message, control.as_mut_ptr());
}

/// One server, and so many clients at once, each a thread of another process. The server's cost is the time that this
/// process computes; nothing else of it runs meanwhile.
fn serve(kind: &str, device: &Device) {
    let (kv, _pages) = span(device, SHAPES[0]);
    let name = format!("cuda-vmm benchmark {}", std::process::id());
    let server = Server::builder(export(&kv))
        .serve(&Name::new(&name))
        .expect("serve");
    let mut other = again(&["clients", &name], Stdio::piped());
    let (mut ask, mut answer) = (other.stdin.take().unwrap(), other.stdout.take().unwrap());
    let counts = [1, 10, 100];
    let mut figures = [const { [const { Vec::new() }; 2] }; 3];
    for _ in 0..31 {
        for (count, figures) in counts.into_iter().zip(&mut figures) {
            let before = computed();
            std::io::Write::write_all(&mut ask, &[count]).expect("ask");
            let mut wall = [0; 8];
            std::io::Read::read_exact(&mut answer, &mut wall).expect("answer");
            let computed = (computed() - before).as_nanos() as f64 / 1000.0;
            figures[0].push(f64::from_le_bytes(wall) / f64::from(count));
            figures[1].push(computed / f64::from(count));
        }
    }
    drop(ask);
    assert!(other.wait().expect("the clients").success());
    assert_eq!(server.stop().refused, 0);
    let figures = figures.map(|figures| figures.map(median));
    for (at, what) in ["until all have it", "of the server's own"]
        .into_iter()
        .enumerate()
    {
        let [one, ten, hundred] = figures.map(|figures| figures[at]);
        let ratio = hundred / ten;
        println!("{kind}, server, {what}, by client: {one:.1} us of 1, {ten:.1} us of 10, {hundred:.1} us of 100; 100 to 10: {ratio:.2} (target 1.5)");
    }
    kv.close().expect("close");
}

/// Processor time of this process.
fn computed() -> Duration {
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    let got = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(got, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The other process: as many clients as the next byte says, and how long they took, from the first to the last.
fn be_clients(name: &Name) {
    let (mut asked, mut answer) = (std::io::stdin(), std::io::stdout());
    let mut count = [0];
    while std::io::Read::read_exact(&mut asked, &mut count).is_ok() {
        let start = Barrier::new(usize::from(count[0]) + 1);
        let took = thread::scope(|scope| {
            let client = || {
                start.wait();
                let received = fetch(name, soon()).expect("fetch");
                assert_eq!(received.accept().expect("accept").fds.len(), SHAPES[0].0);
            };
            let clients: Vec<_> = (0..count[0]).map(|_| scope.spawn(client)).collect();
            start.wait();
            let start = Instant::now();
            clients
                .into_iter()
                .for_each(|it| it.join().expect("a client"));
            microseconds(start)
        });
        std::io::Write::write_all(&mut answer, &took.to_le_bytes()).expect("answer");
        std::io::Write::flush(&mut answer).expect("answer");
    }
}
