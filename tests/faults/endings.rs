//! What ends an object: it gives up as much as the driver takes, and tells of the rest.

use std::fmt;

use cuda_vmm::share::SpanSource;
use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Allocation, CloseError, Error, Fence, Reservation};

use crate::leaks;
use crate::on_groups;
use crate::on_ranges;
use crate::on_sharing;
use crate::stage::{Stage, G};

/// What an ending said.
pub enum Said {
    /// Every failure, in order; what is left is on the stage and can be ended again.
    Errors(Vec<Error>),
    /// Dropped: what the hook was told. Nothing can be tried again.
    Leaks(Vec<leaks::Told>),
}

/// An operation that ends something.
pub struct End {
    pub method: &'static str,
    pub case: &'static str,
    pub prepare: fn(&mut Stage),
    pub run: fn(&mut Stage) -> Said,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.case)
    }
}

const fn end(
    method: &'static str,
    case: &'static str,
    prepare: fn(&mut Stage),
    run: fn(&mut Stage) -> Said,
) -> End {
    End {
        method,
        case,
        prepare,
        run,
    }
}

/// All backings, a mirror, and holes; the caller keeps one of the two pages.
fn furnished(stage: &mut Stage) {
    stage.reserve(12);
    stage.map(0, 2);
    stage.page(1);
    stage.page(2);
    stage.map_page(3, 0);
    stage.map_page(4, 0);
    stage.map_page(8, 1);
    stage.pages.pop();
    let props = stage.props();
    stage.kv().map_releasing(6 * G, G, &props).unwrap();
    stage.map(11, 1);
}

/// A mapping and a handle that earlier failures left behind.
fn quarantined(stage: &mut Stage) {
    stage.reserve(4);
    stage.map(3, 1);
    let props = stage.props();
    for (at, undo) in [(0, Call::cuMemUnmap), (1, Call::cuMemRelease)] {
        stage.sim.inject(Fault::on(Call::cuMemSetAccess)).unwrap();
        stage.sim.inject(Fault::on(undo)).unwrap();
        stage.kv().map(at * G, G, &props).map(drop).unwrap_err();
    }
    assert_eq!(stage.sim.pending_faults(), []);
    assert_eq!(stage.kv().quarantined(), 2);
}

/// Two handles and a range of addresses that nobody but the driver keeps.
fn driver_quarantine(stage: &mut Stage) {
    stage.reserve(2);
    stage.map(0, 1);
    let base = stage.kv().base();
    for _ in 0..2 {
        // The release, and the second try.
        stage
            .sim
            .inject(Fault::on(Call::cuMemRelease).times(2))
            .unwrap();
        stage.driver().is_vmm(base).unwrap_err();
    }
    stage.sim.inject(Fault::on(Call::cuMemAddressFree)).unwrap();
    let builder = Reservation::builder(G).exact_address(base);
    builder.reserve(stage.driver()).unwrap_err();
    assert_eq!(stage.driver().quarantined(), 3);
}

/// The first time, a range is closed; what that leaves is a reservation.
fn close_range(stage: &mut Stage) -> Said {
    let Some(range) = stage.range.take() else {
        return close(stage);
    };
    let closed = range.close();
    unclosed(stage, closed)
}

fn close_range_after(stage: &mut Stage) -> Said {
    let Some(range) = stage.range.take() else {
        return close_after(stage);
    };
    let fence = Fence::default_stream(&stage.devices[0]);
    let closed = range.close_after(fence);
    unclosed(stage, closed)
}

fn close_range_in_background(stage: &mut Stage) -> Said {
    let Some(range) = stage.range.take() else {
        return close_in_background(stage);
    };
    let fence = Fence::default_stream(&stage.devices[0]);
    let closed = range.close_in_background(fence).unwrap().join();
    unclosed(stage, closed)
}

fn close(stage: &mut Stage) -> Said {
    let kv = stage.kv.take().expect("the preparation reserves");
    let closed = kv.close();
    unclosed(stage, closed)
}

fn close_after(stage: &mut Stage) -> Said {
    let kv = stage.kv.take().expect("the preparation reserves");
    let fence = Fence::default_stream(&stage.devices[0]);
    let closed = kv.close_after(fence);
    unclosed(stage, closed)
}

fn close_in_background(stage: &mut Stage) -> Said {
    let kv = stage.kv.take().expect("the preparation reserves");
    let fence = Fence::default_stream(&stage.devices[0]);
    let closed = kv.close_in_background(fence).unwrap().join();
    unclosed(stage, closed)
}

/// Puts back on the stage what an error brings back.
fn unclosed(stage: &mut Stage, closed: Result<(), Box<CloseError>>) -> Said {
    let Err(error) = closed else {
        return Said::Errors(Vec::new());
    };
    assert_eq!(error.kept.len(), 0, "nothing is handed over");
    let mut errors = vec![error.error];
    errors.extend(error.further);
    stage.kv = Some(error.reservation.into_inner());
    Said::Errors(errors)
}

fn close_keeping(stage: &mut Stage) -> Said {
    let kv = stage.kv.take().expect("the preparation reserves");
    let (kept, errors) = match kv.close_keeping() {
        Ok(kept) => (kept, Vec::new()),
        Err(error) => {
            let mut errors = vec![error.error];
            errors.extend(error.further);
            stage.kv = Some(error.reservation.into_inner());
            (error.kept, errors)
        }
    };
    stage.pages.extend(kept.into_iter().map(|(_, page)| page));
    Said::Errors(errors)
}

fn drop_reservation(stage: &mut Stage) -> Said {
    drop(stage.kv.take());
    Said::Leaks(leaks::take())
}

/// An error and all that is attached to it.
pub fn flat(error: Error) -> Vec<Error> {
    match error {
        Error::NotUndone(parts) => {
            let mut errors = vec![parts.error];
            errors.extend(parts.undo);
            errors
        }
        error => vec![error],
    }
}

pub const ALL: &[End] = &[
    end("Reservation::close", "of all backings", furnished, close),
    end(
        "Reservation::close",
        "of an empty one",
        |stage| stage.reserve(1),
        close,
    ),
    end(
        "Reservation::close",
        "with a quarantine",
        quarantined,
        close,
    ),
    end(
        "Reservation::close_after",
        "the default stream",
        furnished,
        close_after,
    ),
    end(
        "Reservation::close_in_background",
        "after the default stream",
        furnished,
        close_in_background,
    ),
    end(
        "Reservation::close_keeping",
        "of all backings",
        furnished,
        close_keeping,
    ),
    end(
        "Reservation::close_keeping",
        "with a quarantine",
        quarantined,
        close_keeping,
    ),
    end(
        "Reservation::drop",
        "of all backings",
        furnished,
        drop_reservation,
    ),
    end(
        "Reservation::drop",
        "of an empty one",
        |stage| stage.reserve(1),
        drop_reservation,
    ),
    end(
        "Reservation::drop",
        "with a quarantine",
        quarantined,
        drop_reservation,
    ),
    end(
        "Group::trim",
        "of two blocks",
        on_groups::keeping,
        on_groups::trim,
    ),
    end(
        "Group::close",
        "awake, with host memory",
        on_groups::keeping,
        on_groups::close,
    ),
    end(
        "Group::close",
        "asleep, with contents",
        on_groups::asleep,
        on_groups::close,
    ),
    end(
        "ElasticRange::close",
        "with a block in the cache",
        on_ranges::with_cache,
        close_range,
    ),
    end(
        "ElasticRange::close_after",
        "the default stream",
        on_ranges::with_cache,
        close_range_after,
    ),
    end(
        "ElasticRange::close_in_background",
        "after the default stream",
        on_ranges::with_cache,
        close_range_in_background,
    ),
    end(
        "Allocation::release",
        "",
        |stage| stage.page(1),
        |stage| match stage.pages.remove(0).release() {
            Ok(()) => Said::Errors(Vec::new()),
            Err(error) => {
                stage.pages.push(error.allocation);
                Said::Errors(vec![error.error])
            }
        },
    ),
    end(
        "Handle::drop",
        "of an allocation",
        |stage| stage.page(1),
        |stage| {
            stage.pages.clear();
            Said::Leaks(leaks::take())
        },
    ),
    end(
        "SpanSource::release",
        "of four pieces",
        on_sharing::with_source,
        |stage| {
            let left = stage.sources.pop();
            Said::Errors(match left.map_or(Ok(()), SpanSource::release) {
                Ok(()) => Vec::new(),
                Err(Error::NotUndone(parts)) => {
                    let mut errors = vec![parts.error];
                    errors.extend(parts.undo);
                    errors
                }
                Err(error) => vec![error],
            })
        },
    ),
    end(
        "Driver::reclaim",
        "",
        driver_quarantine,
        |stage| match stage.driver().reclaim() {
            Ok(count) => {
                assert_eq!(stage.driver().quarantined(), 0);
                assert!(count > 0);
                Said::Errors(Vec::new())
            }
            Err(Error::NotUndone(parts)) => {
                let mut errors = vec![parts.error];
                errors.extend(parts.undo);
                Said::Errors(errors)
            }
            Err(error) => Said::Errors(vec![error]),
        },
    ),
    end(
        "Inner::drop",
        "of a driver with a quarantine and contexts",
        |stage| {
            driver_quarantine(stage);
            for device in &stage.devices {
                device.free_memory().unwrap();
            }
            stage.kv.take().unwrap().close().unwrap();
            // The last clones but the stage's own.
            stage.devices.clear();
        },
        |stage| {
            drop(stage.driver.take());
            Said::Leaks(leaks::take())
        },
    ),
    end(
        "Inner::drop",
        "of a driver with a mapping in quarantine",
        |stage| {
            on_sharing::with_fabric(stage);
            let handle = *stage.fabric[0].handle();
            let fault = Fault::on(Call::cuMemUnmap).times(2);
            stage.sim.inject(fault).unwrap();
            Allocation::import_fabric(stage.driver(), &handle, 2 * G).unwrap_err();
            assert_eq!(stage.driver().quarantined(), 1);
            stage.fabric.clear();
            stage.pages.clear();
            stage.devices.clear();
        },
        |stage| {
            drop(stage.driver.take());
            Said::Leaks(leaks::take())
        },
    ),
    end(
        "CurrentContext::drop",
        "",
        |_| {},
        |stage| {
            let sim = stage.sim.clone();
            let pending = sim.pending_faults();
            sim.clear_faults();
            let guard = stage.devices[0].make_current().unwrap();
            sim.clear_log();
            pending
                .into_iter()
                .for_each(|fault| sim.inject(fault).unwrap());
            drop(guard);
            let leaks = leaks::take();
            let depth = sim.snapshot().context_depth;
            assert_eq!(depth, leaks.len(), "told of exactly what stays current");
            Said::Leaks(leaks)
        },
    ),
];
