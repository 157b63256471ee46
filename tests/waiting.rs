//! Waiting before unmapping: with a fence, work in flight ends well; a wait that fails leaves everything mapped and
//! owned.
//!
//! Each case is one trial a driver. On the simulated driver a held stream stands for work that takes its time.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

#[allow(dead_code)] // What one test program does not need, another does.
mod support;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cuda_vmm::sim::{Fault, Simulation};
use cuda_vmm::sys::{CUevent, CUresult, CUstream, CUstream_flags, Call, DriverCalls};
use cuda_vmm::{
    set_leak_hook, Access, AllocationProps, CloseError, Code, CurrentContext, Device, Driver,
    ElasticRange, Error, Fence, Leak, Reservation,
};
use libtest_mimic::{Arguments, Failed, Trial};
use support::simcuda::Simcuda;

/// A case, by name.
type Case = (&'static str, fn(&Stage));

const CASES: &[Case] = &[
    ("a_stream_is_waited_for", a_stream_is_waited_for),
    ("an_event_is_waited_for", an_event_is_waited_for),
    (
        "the_default_stream_is_waited_for",
        the_default_stream_is_waited_for,
    ),
    (
        "a_closure_comes_before_the_unmap",
        a_closure_comes_before_the_unmap,
    ),
    (
        "a_range_is_unmapped_after_its_work",
        a_range_is_unmapped_after_its_work,
    ),
    (
        "a_deadline_gives_up_with_everything_mapped",
        a_deadline_gives_up_with_everything_mapped,
    ),
    (
        "a_deadline_that_is_kept_unmaps",
        a_deadline_that_is_kept_unmaps,
    ),
    (
        "a_failed_wait_leaves_everything_mapped",
        a_failed_wait_leaves_everything_mapped,
    ),
    (
        "a_panic_while_waiting_is_a_failed_wait",
        a_panic_while_waiting_is_a_failed_wait,
    ),
    ("checks_come_before_the_wait", checks_come_before_the_wait),
    (
        "other_reservations_are_usable_while_one_waits",
        other_reservations_are_usable_while_one_waits,
    ),
    ("close_waits", close_waits),
    (
        "close_in_the_background_waits",
        close_in_the_background_waits,
    ),
    (
        "a_failed_wait_in_the_background_comes_back",
        a_failed_wait_in_the_background_comes_back,
    ),
    (
        "what_is_taken_out_after_a_failed_wait_is_as_before",
        what_is_taken_out_after_a_failed_wait_is_as_before,
    ),
];

/// Only the simulated driver can be made to do these without harm.
const SIMULATED: &[Case] = &[
    (
        "nobody_joins_a_close_that_failed",
        nobody_joins_a_close_that_failed,
    ),
    (
        "a_lost_context_leaves_everything_mapped",
        a_lost_context_leaves_everything_mapped,
    ),
    ("nobody_joins_a_failed_wait", nobody_joins_a_failed_wait),
    (
        "an_error_of_a_failed_wait_unmaps_nothing",
        an_error_of_a_failed_wait_unmaps_nothing,
    ),
    (
        "an_error_of_a_failed_close_is_tried_again",
        an_error_of_a_failed_close_is_tried_again,
    ),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The leak hook is the process's.
    arguments.test_threads = Some(1);
    let missing = support::devices().err();
    let mut trials = Vec::new();
    for (name, case) in CASES.iter().chain(SIMULATED) {
        trials.push(Trial::test(format!("{name} [sim]"), || {
            run(*case, Stage::simulated())
        }));
    }
    for (name, case) in CASES {
        let ignored = missing.is_some() && !support::gpu_required();
        let missing = missing.clone();
        let trial = Trial::test(format!("{name} [gpu]"), move || match missing {
            Some(why) => Err(why.into()),
            None => run(*case, Stage::real()),
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    if let Some(why) = support::devices().err() {
        eprintln!("SKIPPED: the [gpu] trials: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(case: fn(&Stage), stage: Stage) -> Result<(), Failed> {
    case(&stage);
    let Stage {
        driver,
        device,
        props,
        sim,
        ..
    } = stage;
    drop((driver, device, props));
    match sim {
        Some(sim) if !sim.snapshot().is_empty() => {
            Err(format!("left behind:\n{}", sim.snapshot()).into())
        }
        _ => Ok(()),
    }
}

struct Stage {
    sim: Option<Simulation>,
    /// The controls of the machine's driver, where that is the simulated one too, as a library.
    simcuda: Option<&'static Simcuda>,
    driver: Driver,
    device: Device,
    props: AllocationProps,
    /// Bytes of a mapping that takes a while to be written to.
    large: usize,
}

impl Stage {
    fn simulated() -> Stage {
        let sim = Simulation::new();
        let driver = Driver::simulated(&sim).unwrap();
        Stage::on(driver, Some(sim), None)
    }

    fn real() -> Stage {
        Stage::on(Driver::load().unwrap(), None, Simcuda::find())
    }

    fn on(driver: Driver, sim: Option<Simulation>, simcuda: Option<&'static Simcuda>) -> Stage {
        let device = driver.device(0).unwrap();
        // Held work takes its time whatever its size.
        let large = match sim.is_some() || simcuda.is_some() {
            true => 8 << 20,
            false => 16 << 30,
        };
        let props = AllocationProps::on(&device);
        Stage {
            sim,
            simcuda,
            driver,
            device,
            props,
            large,
        }
    }

    fn granule(&self) -> usize {
        self.props.granularity().unwrap().minimum()
    }

    fn calls(&self) -> &dyn DriverCalls {
        &**self.driver.calls_raw()
    }

    fn reserve(&self) -> Reservation {
        let builder = Reservation::builder(2 * self.large).access(&self.device, Access::ReadWrite);
        builder.reserve(&self.driver).unwrap()
    }

    /// A reservation with one large mapping at its start, and work that writes to it.
    fn busy(&self) -> (Reservation, cuda_vmm::MappingId, Work<'_>) {
        let mut reservation = self.reserve();
        let id = reservation.map(0, self.large, &self.props).unwrap();
        let work = Work::start(self, reservation.base(), self.large);
        (reservation, id, work)
    }
}

/// Writes to a range, on a stream of their own, that go on for a while.
struct Work<'s> {
    stage: &'s Stage,
    stream: CUstream,
    event: CUevent,
    _current: CurrentContext<'s>,
}

/// Lets a held stream run, where the driver holds streams.
fn release(sim: Option<&Simulation>, simcuda: Option<&Simcuda>, stream: CUstream) {
    match (sim, simcuda) {
        (Some(sim), _) => sim.release_stream(stream),
        (None, Some(simcuda)) => simcuda.release_stream(stream),
        (None, None) => false,
    };
}

fn ok(status: CUresult) {
    assert_eq!(Code::from(status), Code::SUCCESS);
}

impl<'s> Work<'s> {
    fn start(stage: &'s Stage, address: u64, size: usize) -> Self {
        let current = stage.device.make_current().unwrap();
        let calls = stage.calls();
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        unsafe {
            // The first fill loads what fills need, which would otherwise be waited for here.
            ok(calls.cuMemsetD8_v2(address, 0, 1));
            ok(calls.cuStreamCreate(&mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0));
            ok(calls.cuEventCreate(&mut event, 0));
        }
        if let Some(sim) = &stage.sim {
            assert!(sim.hold_stream(stream));
        }
        if let Some(simcuda) = stage.simcuda {
            assert!(simcuda.hold_stream(stream));
        }
        for round in 0..10 {
            unsafe { ok(calls.cuMemsetD8Async(address, round, size, stream)) };
        }
        unsafe { ok(calls.cuEventRecord(event, stream)) };
        Work {
            stage,
            stream,
            event,
            _current: current,
        }
    }

    fn is_running(&self) -> bool {
        unsafe { self.stage.calls().cuStreamQuery(self.stream) == CUresult::CUDA_ERROR_NOT_READY }
    }

    /// Lets held work end in a while, as the device's work does by itself.
    fn end_soon(&self) {
        let (sim, simcuda) = (self.stage.sim.clone(), self.stage.simcuda);
        let stream = self.stream as usize;
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            release(sim.as_ref(), simcuda, stream as CUstream);
        });
    }

    fn fence(&self) -> Fence<'static> {
        unsafe { Fence::stream(&self.stage.device, self.stream) }
    }

    /// The work ended well: no ILLEGAL_ADDRESS.
    fn ended_well(self) {
        unsafe { ok(self.stage.calls().cuStreamSynchronize(self.stream)) };
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        release(self.stage.sim.as_ref(), self.stage.simcuda, self.stream);
        let calls = self.stage.calls();
        unsafe {
            let _ = calls.cuStreamSynchronize(self.stream);
            let _ = calls.cuEventDestroy_v2(self.event);
            let _ = calls.cuStreamDestroy_v2(self.stream);
        }
    }
}

fn a_stream_is_waited_for(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    assert!(work.is_running());
    work.end_soon();
    reservation.unmap_after(id, work.fence()).unwrap();
    assert_eq!(reservation.mapping_count(), 0);
    work.ended_well();
    reservation.close().unwrap();
}

fn an_event_is_waited_for(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    assert!(work.is_running());
    work.end_soon();
    reservation
        .unmap_after(id, unsafe { Fence::event(&stage.device, work.event) })
        .unwrap();
    work.ended_well();
    reservation.close().unwrap();
}

fn the_default_stream_is_waited_for(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.large, &stage.props).unwrap();
    let current = stage.device.make_current().unwrap();
    for round in 0..10 {
        let stream = std::ptr::null_mut();
        unsafe {
            ok(stage
                .calls()
                .cuMemsetD8Async(reservation.base(), round, stage.large, stream))
        };
    }
    reservation
        .unmap_after(id, Fence::default_stream(&stage.device))
        .unwrap();
    unsafe { ok(stage.calls().cuCtxSynchronize()) };
    drop(current);
    reservation.close().unwrap();
}

fn a_closure_comes_before_the_unmap(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    let address = reservation.base();
    let (driver, seen) = (stage.driver.clone(), Mutex::new(None));
    let fence = Fence::closure(|deadline| {
        assert_eq!(deadline, None);
        *seen.lock().unwrap() = Some(driver.is_vmm(address));
        Ok::<_, Error>(())
    });
    reservation.unmap_after(id, fence).unwrap();
    assert!(
        seen.into_inner()
            .unwrap()
            .expect("the closure was called")
            .unwrap(),
        "it was mapped then"
    );
    assert!(!driver.is_vmm(address).unwrap(), "and is not now");
    reservation.close().unwrap();
}

fn a_range_is_unmapped_after_its_work(stage: &Stage) {
    let (mut reservation, _, work) = stage.busy();
    reservation
        .map(stage.large, stage.granule(), &stage.props)
        .unwrap();
    work.end_soon();
    reservation
        .unmap_range_after(0, stage.large + stage.granule(), work.fence())
        .unwrap();
    assert_eq!(reservation.mapping_count(), 0);
    work.ended_well();
    reservation.close().unwrap();
}

fn a_deadline_gives_up_with_everything_mapped(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    let picture = reservation.to_string();
    let patience = Duration::from_millis(3);
    let start = Instant::now();
    match reservation.unmap_after(id, work.fence().within(patience)) {
        Err(Error::DeadlinePassed { waited }) => {
            // The deadline was set before the wait began: on a busy machine less than the patience is left for it.
            assert!(start.elapsed() >= patience && waited <= start.elapsed())
        }
        other => panic!("{other:?}"),
    }
    assert!(work.is_running(), "the work goes on");
    assert_eq!(reservation.to_string(), picture);
    work.end_soon();
    let id = reservation.id_at(0).expect("it is still mapped");
    reservation.unmap_after(id, work.fence()).unwrap();
    work.ended_well();
    reservation.close().unwrap();
}

fn a_deadline_that_is_kept_unmaps(stage: &Stage) {
    let (mut reservation, id, work) = stage.busy();
    work.end_soon();
    reservation
        .unmap_after(id, work.fence().within(Duration::from_secs(30)))
        .unwrap();
    work.ended_well();
    // Work that is done by then is done, however late somebody looks.
    let passed = Fence::default_stream(&stage.device).until(Instant::now());
    reservation.close_after(passed).unwrap();
}

#[derive(Debug, thiserror::Error)]
#[error("the fence is broken")]
struct Broken;

fn broken() -> Fence<'static> {
    Fence::closure(|_| Err(Broken))
}

fn is_broken(error: &Error) -> bool {
    matches!(error, Error::WaitFailed(cause) if cause.is::<Broken>())
        && error.to_string().ends_with(&Broken.to_string())
}

fn a_failed_wait_leaves_everything_mapped(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    reservation.write(0, b"kept").unwrap();
    let (picture, before) = (
        reservation.to_string(),
        stage.sim.as_ref().map(Simulation::snapshot),
    );

    assert!(is_broken(
        &reservation.unmap_after(id, broken()).unwrap_err()
    ));
    assert!(is_broken(
        &reservation
            .unmap_range_after(0, stage.granule(), broken())
            .unwrap_err()
    ));
    let unclosed = reservation.close_after(broken()).unwrap_err();
    assert!(is_broken(&unclosed.error));
    assert!(unclosed.further.is_empty() && unclosed.kept.is_empty());

    let reservation = unclosed.reservation.into_inner();
    assert_eq!(reservation.to_string(), picture);
    assert_eq!(stage.sim.as_ref().map(Simulation::snapshot), before);
    let mut bytes = [0; 4];
    reservation.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    reservation.close().unwrap();
}

fn a_panic_while_waiting_is_a_failed_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    let id = reservation.map(0, stage.granule(), &stage.props).unwrap();
    let panics = || Fence::closure(|_| -> Result<(), Error> { panic!("no such luck") });
    let said = |error: &Error| {
        error
            .to_string()
            .contains("the closure panicked: no such luck")
    };
    assert!(said(&reservation.unmap_after(id, panics()).unwrap_err()));
    let unclosed = reservation.close_after(panics()).unwrap_err();
    assert!(said(&unclosed.error));
    let unclosed = unclosed
        .reservation
        .into_inner()
        .close_in_background(panics())
        .unwrap()
        .join()
        .unwrap_err();
    assert!(said(&unclosed.error));
    assert_eq!(unclosed.reservation.mapping_count(), 1);
    unclosed.reservation.into_inner().close().unwrap();
}

fn checks_come_before_the_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    let granule = stage.granule();
    let id = reservation.map(0, granule, &stage.props).unwrap();
    let waits = AtomicUsize::new(0);
    let fence = || {
        Fence::closure(|_| {
            waits.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(())
        })
    };
    let hole = reservation
        .unmap_range_after(0, 2 * granule, fence())
        .unwrap_err();
    assert!(matches!(hole, Error::Hole { hole, .. } if hole == (granule..2 * granule)));
    reservation.unmap_range(0, granule).unwrap();
    assert!(matches!(
        reservation.unmap_after(id, fence()),
        Err(Error::NotMapped { offset: 0 })
    ));
    assert_eq!(waits.load(Ordering::Relaxed), 0);
    reservation.close().unwrap();
}

fn other_reservations_are_usable_while_one_waits(stage: &Stage) {
    let mut waiting = stage.reserve();
    let id = waiting.map(0, stage.granule(), &stage.props).unwrap();
    let fence = Fence::closure(|_| {
        let mut other = stage.reserve();
        other.map(0, stage.granule(), &stage.props)?;
        other.fill(0, 1, 7)?;
        other.close().map_err(|unclosed| unclosed.error)
    });
    waiting.unmap_after(id, fence).unwrap();
    waiting.close().unwrap();
}

fn close_waits(stage: &Stage) {
    let (reservation, _, work) = stage.busy();
    work.end_soon();
    reservation.close_after(work.fence()).unwrap();
    work.ended_well();
}

fn close_in_the_background_waits(stage: &Stage) {
    let (reservation, _, work) = stage.busy();
    let (go, gone) = mpsc::channel();
    let closing = reservation
        .close_in_background(Fence::closure(move |_| gone.recv()))
        .unwrap();
    assert!(!closing.is_finished());
    work.end_soon();
    unsafe { ok(stage.calls().cuStreamSynchronize(work.stream)) };
    go.send(()).unwrap();
    closing.join().unwrap();
    work.ended_well();
}

fn a_failed_wait_in_the_background_comes_back(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let picture = reservation.to_string();
    let unclosed = reservation
        .close_in_background(broken())
        .unwrap()
        .join()
        .unwrap_err();
    assert!(is_broken(&unclosed.error));
    assert_eq!(unclosed.reservation.to_string(), picture);
    unclosed.reservation.into_inner().close().unwrap();
}

fn a_lost_context_leaves_everything_mapped(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let (mut reservation, _, work) = stage.busy();
    assert!(sim.poison(0));
    let event = || unsafe { Fence::event(&stage.device, work.event) };
    let soon = Duration::from_secs(60);
    let fences = [
        Fence::default_stream(&stage.device),
        Fence::default_stream(&stage.device).within(soon),
        work.fence(),
        work.fence().within(soon),
        event(),
        event().within(soon),
    ];
    for fence in fences {
        let what = format!("{fence:?}");
        let id = reservation.id_at(0).unwrap();
        let error = reservation.unmap_after(id, fence).unwrap_err();
        assert_eq!(error.code(), Some(Code::ERROR_ILLEGAL_ADDRESS), "{what}");
        assert_eq!(reservation.mapping_count(), 1, "{what}");
    }
    drop(work);
    // The memory itself outlives the context.
    reservation.close().unwrap();
}

/// The work is done, so what the close left is tried again, as any reservation's drop does.
fn nobody_joins_a_close_that_failed(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let done = Fence::default_stream(&stage.device);
    drop(reservation.close_in_background(done).unwrap());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !sim.snapshot().holds_no_memory() || !sim.snapshot().reservations.is_empty() {
        assert!(Instant::now() < deadline, "it is not closed");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sim.calls_of(Call::cuMemUnmap), 2);
}

/// What the leak hook is told meanwhile, once it was told something or the time is up.
fn told_of(act: impl FnOnce(), at_least: usize) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = told.clone();
    set_leak_hook(move |leak: &Leak| hook.lock().unwrap().push(leak.to_string()));
    act();
    let deadline = Instant::now() + Duration::from_secs(10);
    while told.lock().unwrap().len() < at_least {
        assert!(Instant::now() < deadline, "the hook was not told");
        thread::sleep(Duration::from_millis(1));
    }
    cuda_vmm::reset_leak_hook();
    let told = told.lock().unwrap();
    told.clone()
}

fn leaked_as_in_use(told: &[String], why: &str) {
    let [told] = told else {
        panic!("one leak: {told:?}")
    };
    assert!(
        told.starts_with("leaked the reservation of ")
            && told.contains(", which may be in use: ")
            && told.ends_with(why),
        "{told}"
    );
}

/// Ends what was leaked on purpose, so that nothing is left of the simulated driver.
fn put_right(stage: &Stage, base: u64, size: usize) {
    assert!(stage.driver.is_vmm(base).unwrap());
    let granule = stage.granule();
    unsafe {
        let calls = stage.calls();
        let mut handle = 0;
        ok(calls.cuMemRetainAllocationHandle(&mut handle, base as *mut _));
        ok(calls.cuMemRelease(handle));
        ok(calls.cuMemRelease(handle));
        ok(calls.cuMemUnmap(base, granule));
        ok(calls.cuMemAddressFree(base, size));
    }
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    assert!(sim.misuses().is_empty());
}

fn nobody_joins_a_failed_wait(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let (base, size) = (reservation.base(), reservation.size());
    let told = told_of(
        || drop(reservation.close_in_background(broken()).unwrap()),
        1,
    );
    leaked_as_in_use(&told, &Broken.to_string());
    put_right(stage, base, size);
}

/// Whatever becomes of the error, nothing is unmapped but what the caller took out.
fn an_error_of_a_failed_wait_unmaps_nothing(_: &Stage) {
    type End = fn(Box<CloseError>);
    let ends: [(&str, End); 4] = [
        ("dropped", |error| drop(error)),
        ("into_error", |error| {
            assert!(is_broken(&error.into_error()));
        }),
        ("only its error is taken", |error| {
            assert!(is_broken(&error.error));
            drop(error.error);
        }),
        ("handed up", |error| {
            drop(Box::<dyn std::error::Error + Send + Sync>::from(error));
        }),
    ];
    for (what, end) in ends {
        for background in [false, true] {
            // A driver each: what is leaked stays on its books, whoever frees it behind its back.
            let stage = &Stage::simulated();
            let sim = stage.sim.as_ref().unwrap();
            let mut reservation = stage.reserve();
            reservation.map(0, stage.granule(), &stage.props).unwrap();
            let (base, size) = (reservation.base(), reservation.size());
            let before = sim.snapshot();
            let closed = match background {
                false => reservation.close_after(broken()),
                true => reservation.close_in_background(broken()).unwrap().join(),
            };
            let told = told_of(|| end(closed.unwrap_err()), 1);
            leaked_as_in_use(&told, &Broken.to_string());
            assert_eq!(sim.calls_of(Call::cuMemUnmap), 0, "{what}");
            assert_eq!(sim.snapshot(), before, "{what}");
            put_right(stage, base, size);
        }
    }

    // The same of an elastic range, and of a wait that the driver failed: its very answer is told.
    let stage = &Stage::simulated();
    let sim = stage.sim.as_ref().unwrap();
    let mut range = ElasticRange::builder(8 * stage.granule(), &stage.props)
        .reserve()
        .unwrap();
    range.commit(0, stage.granule()).unwrap();
    let (base, size) = (range.base(), range.size());
    // So that the wait retains no context that was not retained before.
    drop(stage.device.make_current().unwrap());
    let before = sim.snapshot();
    let refused = Fault::on(Call::cuStreamSynchronize).code(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    sim.inject(refused).unwrap();
    let closed = range.close_after(Fence::default_stream(&stage.device));
    let told = told_of(|| drop(closed), 1);
    leaked_as_in_use(
        &told,
        "cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)",
    );
    assert_eq!(sim.snapshot(), before);
    put_right(stage, base, size);
}

fn what_is_taken_out_after_a_failed_wait_is_as_before(stage: &Stage) {
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    let picture = reservation.to_string();
    let mut unclosed = reservation.close_after(broken()).unwrap_err();
    // It can be used where it is.
    assert_eq!(unclosed.reservation.to_string(), picture);
    unclosed.reservation.fill(0, 4, 7).unwrap();
    let mut bytes = [0; 4];
    unclosed.reservation.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4]);
    let told = told_of(|| drop(unclosed.reservation.into_inner()), 0);
    assert_eq!(told, [""; 0]);
    if let Some(sim) = &stage.sim {
        assert!(sim.snapshot().holds_no_memory() && sim.snapshot().reservations.is_empty());
    }
}

/// Where the work is done and the driver refuses, the error's reservation is tried again when it is dropped.
fn an_error_of_a_failed_close_is_tried_again(stage: &Stage) {
    let sim = stage.sim.as_ref().expect("a case of the simulated driver");
    let mut reservation = stage.reserve();
    reservation.map(0, stage.granule(), &stage.props).unwrap();
    sim.inject(Fault::on(Call::cuMemUnmap)).unwrap();
    let done = Fence::default_stream(&stage.device);
    let unclosed = reservation.close_after(done).unwrap_err();
    assert_eq!(unclosed.error.code(), Some(Code::ERROR_UNKNOWN));
    assert_eq!(told_of(|| drop(unclosed), 0), [""; 0]);
    assert!(sim.snapshot().holds_no_memory() && sim.snapshot().reservations.is_empty());
}
