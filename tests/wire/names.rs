//! Names of servers: too long, taken, stale, or of something else.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use cuda_vmm::share::wire::{fetch, Fetch, Name, Server, ServerBuilder, WireError};

use crate::exchange::same;
use crate::surroundings::*;
use crate::Case;

pub const CASES: &[Case] = &[
    ("names::too_long_or_none", too_long_or_none),
    ("names::longest", longest),
    ("names::taken", taken),
    ("names::stale_file_is_replaced", stale_file),
    ("names::other_files_are_left_alone", other_files),
    ("names::only_its_own_file_is_removed", only_its_own_file),
    ("names::nobody_is_there", nobody),
    ("names::folder_that_is_locked", locked_folder),
];

fn server() -> ServerBuilder {
    Server::builder(parcel(10, 4, 2))
}

#[track_caller]
fn serves(name: &Name) {
    let received = fetch(name, soon(5)).unwrap();
    is_parcel(&received.accept().unwrap(), 10, 4, 2);
}

/// Never cut short: what is too long is refused by server and client, with both numbers.
fn too_long_or_none() {
    let folder = Folder::new();
    let long = "n".repeat(108);
    let path = folder.0.join("f".repeat(150));
    for name in [Name::new(&long), Name::file(&path), Name::new([0; 200])] {
        let length = match &name {
            Name::Abstract(bytes) => bytes.len(),
            Name::File(path) => path.as_os_str().len(),
        };
        let expected = WireError::NameTooLong {
            name: name.clone(),
            length,
            limit: 107,
        };
        same(&server().serve(&name).unwrap_err(), &expected);
        same(&fetch(&name, soon(1)).unwrap_err(), &expected);
    }
    for name in [Name::new(""), Name::file(""), Name::file("a\0b")] {
        let expected = WireError::BadName { name: name.clone() };
        same(&server().serve(&name).unwrap_err(), &expected);
        same(&fetch(&name, soon(1)).unwrap_err(), &expected);
    }
    assert_eq!(folder.names(), [""; 0]);
}

/// Names of 107 bytes that differ in the last one are two names.
fn longest() {
    let folder = Folder::new();
    let pad = 106 - folder.0.as_os_str().len() - 1;
    let file = |last| Name::file(folder.0.join(format!("{}{last}", "p".repeat(pad))));
    let unique = format!("{:->106}", std::process::id());
    let inner = |last| Name::new(format!("{unique}{last}"));
    for name in [&file, &inner] as [&dyn Fn(char) -> Name; 2] {
        let (a, b) = (server().serve(&name('a')), server().serve(&name('b')));
        serves(&name('a'));
        serves(&name('b'));
        assert_eq!((a.unwrap().stop().served, b.unwrap().stop().served), (1, 1));
    }
}

/// The second server gets an error, and the first serves on.
fn taken() {
    let folder = Folder::new();
    for name in [
        Name::file(folder.0.join("taken")),
        Name::new(format!("taken-{}", std::process::id())),
    ] {
        let first = server().serve(&name).unwrap();
        let expected = WireError::NameTaken { name: name.clone() };
        same(&server().serve(&name).unwrap_err(), &expected);
        serves(&name);
        first.stop();
        // And free again.
        let second = server().serve(&name).unwrap();
        serves(&name);
        drop(second);
    }
    // A live socket of another type is somebody's too.
    let path = folder.0.join("stream");
    let other = UnixListener::bind(&path).unwrap();
    let name = Name::file(&path);
    let expected = WireError::NameTaken { name: name.clone() };
    same(&server().serve(&name).unwrap_err(), &expected);
    assert_eq!(folder.names(), ["stream"]);
    drop(other);
}

fn stale_file() {
    let folder = Folder::new();
    let path = folder.0.join("stale");
    // A listener of the standard library leaves its file behind.
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(folder.names(), ["stale"]);
    let name = Name::file(&path);
    let nobody = WireError::NoServer { name: name.clone() };
    same(&fetch(&name, soon(1)).unwrap_err(), &nobody);
    let server = server().serve(&name).unwrap();
    serves(&name);
    server.stop();
    assert_eq!(folder.names(), [""; 0]);
}

fn other_files() {
    let folder = Folder::new();
    let path = folder.0.join("precious");
    fs::write(&path, b"text").unwrap();
    let expected = WireError::NotASocket { path: path.clone() };
    same(&server().serve(&Name::file(&path)).unwrap_err(), &expected);
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

fn only_its_own_file() {
    let folder = Folder::new();
    let path = folder.0.join("name");
    let name = Name::file(&path);
    let first = server().serve(&name).unwrap();
    // Somebody cleans up, and another server takes the name.
    fs::remove_file(&path).unwrap();
    let second = server().serve(&name).unwrap();
    first.stop();
    assert_eq!(folder.names(), ["name"]);
    serves(&name);
    assert_eq!(second.stop().served, 1);
    assert_eq!(folder.names(), [""; 0]);
}

fn nobody() {
    let folder = Folder::new();
    let file = Name::file(folder.0.join("none"));
    let inner = Name::new(format!("none-{}", std::process::id()));
    for name in [file, inner] {
        let nobody = WireError::NoServer { name: name.clone() };
        same(&fetch(&name, soon(5)).unwrap_err(), &nobody);
        // Waiting for one ends at the deadline, and finds one that comes in time.
        let waiting = |by| Fetch::new(&name).by(by).waiting_for_server().receive();
        same(&waiting(millis(60)).unwrap_err(), &nobody);
        let late = std::thread::spawn({
            let name = name.clone();
            move || {
                std::thread::sleep(std::time::Duration::from_millis(60));
                server().serve(&name).unwrap()
            }
        });
        let received = waiting(soon(5)).unwrap();
        is_parcel(&received.accept().unwrap(), 10, 4, 2);
        late.join().unwrap().stop();
    }
}

/// Somebody holds the lock for a while; the server waits for it, and not for ever.
fn locked_folder() {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let lock = fs::File::open(&folder.0).unwrap();
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let name = Name::file(folder.0.join("name"));
    let started = std::time::Instant::now();
    match server().serve(&name).unwrap_err() {
        WireError::Io { error, .. } => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed().as_secs() < 10);
    drop(lock);
    server().serve(&name).unwrap();
    assert_eq!(folder.names(), [""; 0]);
}
