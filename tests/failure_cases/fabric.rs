//! G. Fabric handles that a device has and the machine has not; and all ranks of one mind.

use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::share::wire::{pair, Parcel, Ranks, SocketKind};
use cuda_vmm::share::{SpanImport, Unavailable};
use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Access, Attempt, Error, HandleType, Reservation};

use crate::case::Case;
use crate::rig::{Rig, G};

pub const CASES: &[Case] = &[
    Case::sim(
        "ranks of which one has no fabric all use descriptors",
        one_without_fabric,
    ),
    Case::sim(
        "outside the trial a refusal is what the driver said",
        outside_the_trial,
    ),
    Case::sim(
        "nothing plain is created in place of what was asked for",
        nothing_plain,
    ),
    Case::sim("a fabric that is down is neither retried nor widened", down),
];

fn with_fabric(there: bool) -> Rig {
    Rig::with(Simulation::builder().imex_channel(there))
}

/// So many ranks, each with a socket to each other.
fn sockets(count: usize) -> Vec<Vec<Option<std::os::fd::OwnedFd>>> {
    let mut all: Vec<Vec<_>> = (0..count)
        .map(|_| (0..count).map(|_| None).collect())
        .collect();
    let pairs = (0..count).flat_map(|high| (0..high).map(move |low| (low, high)));
    for (low, high) in pairs {
        let (one, other) = pair(SocketKind::Packets).unwrap();
        all[low][high] = Some(one);
        all[high][low] = Some(other);
    }
    all
}

/// Failure case 93: each rank votes with what it can, all take the same, and share by it.
fn one_without_fabric() {
    for (without, agreed) in [(Some(1), HandleType::PosixFd), (None, HandleType::Fabric)] {
        let sockets = sockets(3);
        thread::scope(|scope| {
            let ranks: Vec<_> = sockets
                .into_iter()
                .enumerate()
                .map(|(rank, sockets)| {
                    scope.spawn(move || share_as_agreed(rank, sockets, without != Some(rank)))
                })
                .collect();
            for rank in ranks {
                assert_eq!(rank.join().unwrap(), agreed);
            }
        });
    }
}

fn share_as_agreed(
    rank: usize,
    sockets: Vec<Option<std::os::fd::OwnedFd>>,
    fabric: bool,
) -> HandleType {
    let rig = with_fabric(fabric);
    let soon = || Instant::now() + Duration::from_secs(30);
    let mut ranks = Ranks::over(rank, sockets, soon()).unwrap();
    let can = HandleType::DEFAULT_ORDER.map(|kind| rig.device().require_handle_type(kind).is_ok());
    let everybody_can = |ballots: &[Vec<u8>], kind: usize| ballots.iter().all(|one| one[kind] == 1);
    let agreed = ranks.vote(&can.map(u8::from), soon(), |ballots| {
        let mut kinds = (0..2).filter(|kind| everybody_can(ballots, *kind));
        HandleType::DEFAULT_ORDER[kinds.next().unwrap()]
    });
    let agreed = agreed.unwrap();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props().shareable_as(agreed.into()))
        .unwrap();
    kv.write(0, &[rank as u8]).unwrap();
    let (bytes, fds, kept) = kv
        .export_span(0, G, agreed, Access::Read)
        .unwrap()
        .into_parts();
    let all = ranks.exchange(Parcel::new(bytes, fds), soon()).unwrap();
    for (other, parcel) in all.into_iter().enumerate() {
        let import = SpanImport::new(&parcel.bytes, parcel.fds).unwrap();
        assert_eq!(import.descriptor().handle_type(), agreed);
        let span = import
            .attach_read_only(&rig.driver, [rig.device()])
            .unwrap();
        let mut byte = [0];
        span.read(0, &mut byte).unwrap();
        assert_eq!(byte, [other as u8]);
        span.close().unwrap();
    }
    // Nobody goes before all have attached.
    ranks.vote(b"", soon(), |_| ()).unwrap();
    drop(kept);
    kv.close().unwrap();
    agreed
}

/// Failure case 95: the codes that mean "not here" when a kind of handle is tried mean what they say anywhere else.
fn outside_the_trial() {
    let rig = with_fabric(true);
    let props = rig.props().shareable_as(HandleType::PosixFd.into());
    let page = props.create(G).unwrap();
    let mut kv = rig.reserve(1);
    kv.map_existing(0, &page).unwrap();
    let fd = page.export_fd().unwrap();
    let codes = [
        CUresult::CUDA_ERROR_INVALID_VALUE,
        CUresult::CUDA_ERROR_INVALID_DEVICE,
        CUresult::CUDA_ERROR_NOT_SUPPORTED,
        CUresult::CUDA_ERROR_NOT_PERMITTED,
    ];
    for code in codes {
        let inject = |call| rig.sim.inject(Fault::on(call).code(code)).unwrap();
        let is_the_drivers = |error: Error, call: Call| match &error {
            Error::Driver(failure) => assert_eq!((failure.call, failure.code), (call, code.into())),
            other => panic!("{other:?}"),
        };
        inject(Call::cuMemExportToShareableHandle);
        let error = page.export_fd().unwrap_err();
        is_the_drivers(error, Call::cuMemExportToShareableHandle);
        inject(Call::cuMemExportToShareableHandle);
        let span = kv.export_span(0, G, HandleType::PosixFd, Access::Read);
        is_the_drivers(span.unwrap_err(), Call::cuMemExportToShareableHandle);
        inject(Call::cuMemCreate);
        is_the_drivers(props.create(G).unwrap_err(), Call::cuMemCreate);
        inject(Call::cuMemImportFromShareableHandle);
        let import = std::os::fd::AsFd::as_fd(&fd);
        let import = cuda_vmm::Allocation::import_fd(&rig.driver, import, G);
        is_the_drivers(import.unwrap_err(), Call::cuMemImportFromShareableHandle);
        // And nothing was concluded of the device.
        rig.device()
            .require_handle_type(HandleType::PosixFd)
            .unwrap();
        rig.device().forget_handle_types().unwrap();
    }
    kv.close().unwrap();
    drop((page, fd, props));
    rig.leaves_nothing();
}

/// Failure case 98.
fn nothing_plain() {
    let rig = with_fabric(false);
    let before = rig.sim.snapshot();
    let created = || rig.sim.calls_of(Call::cuMemCreate);
    let props = rig.props().shareable_as(HandleType::Fabric.into());
    let error = props.create(G).unwrap_err();
    assert!(error.is_not_permitted(), "{error}");
    assert_eq!((created(), rig.sim.snapshot()), (1, before.clone()));
    let mut kv: Reservation = rig.reserve(1);
    assert!(kv.map(0, G, &props).unwrap_err().is_not_permitted());
    assert_eq!((created(), kv.mapping_count()), (2, 0));
    kv.close().unwrap();
    // To fall back is the caller's own step, and what it was granted can be read.
    let choice = rig
        .device()
        .choose_handle_type(&HandleType::DEFAULT_ORDER)
        .unwrap();
    assert_eq!(choice.refusals()[0].meaning, Unavailable::NotHere);
    let chosen = choice.required().unwrap();
    let page = rig.props().shareable_as(chosen.into()).create(G).unwrap();
    assert_eq!(page.granted().unwrap().handle_types(), chosen.into());
    page.release().unwrap();
    assert_eq!(rig.sim.snapshot().handles, before.handles);
    drop(props);
    rig.leaves_nothing();
}

/// Failure case 100.
fn down() {
    let rig = with_fabric(true);
    let props = rig.props().shareable_as(HandleType::Fabric.into());
    let codes = [
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
        CUresult::CUDA_ERROR_ILLEGAL_STATE,
    ];
    for (tried, code) in (1..).zip(codes) {
        rig.sim
            .inject(Fault::on(Call::cuMemCreate).code(code))
            .unwrap();
        let error = props.create(3 * G).unwrap_err();
        // Outside the trial of a kind of handle 401 may mean anything.
        let says_so = code == CUresult::CUDA_ERROR_SYSTEM_NOT_READY;
        assert_eq!(error.is_not_ready(), says_so, "{error}");
        match error {
            Error::Driver(failure) => {
                assert_eq!(failure.code, code.into());
                assert!(matches!(failure.attempt, Attempt::Create { size, .. } if size == 3 * G));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            rig.sim.calls_of(Call::cuMemCreate),
            2 * tried - 1,
            "asked once"
        );
        // Whether it is asked again is the caller's to say.
        props.create(3 * G).unwrap().release().unwrap();
    }
    drop(props);
    rig.leaves_nothing();
}
