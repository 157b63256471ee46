//! `Send` and `Sync` of every public type, checked when this is compiled.

use cuda_vmm::share::*;
use cuda_vmm::sim::*;
use cuda_vmm::suspend::*;
use cuda_vmm::sys::{Call, CallTable, DriverCalls, Library, LoadError};
use cuda_vmm::*;

macro_rules! both {
    ($($type:ty),* $(,)?) => {
        const _: () = {
            const fn both<T: ?Sized + Send + Sync>() {}
            $(both::<$type>();)*
        };
    };
}

/// Does not compile for a type that is `$bound`: the item is then ambiguous.
macro_rules! not {
    ($bound:ident: $($type:ty),* $(,)?) => {$(
        const _: fn() = || {
            trait Ambiguous<A> {
                fn item() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $bound> Ambiguous<u8> for T {}
            <$type as Ambiguous<_>>::item();
        };
    )*};
}

// What owns something of the driver: the driver itself lets every thread use everything.
both!(
    Driver,
    Device,
    Allocation,
    Mapping,
    Reservation,
    Closing,
    Library,
    dyn DriverCalls
);
// Elastic ranges.
both!(
    ElasticRange,
    ElasticRangeBuilder,
    Contents,
    Committed,
    Decommitted,
    Resized
);
// What borrows from those: as free as a reference.
both!(View<'static>, Elements<'static, *mut u8>);
// What is said and asked.
both!(
    AllocationProps,
    ReservationBuilder,
    Granularity,
    HandleTypes,
    Capabilities,
    MappingId,
    BackingKind
);
both!(Access, Location, Origin, Code, What, Attempt, Call, CallTable);
// Errors, so that they can be handed up through threads and boxed as any library boxes them.
both!(
    Error,
    DriverFailure,
    NotUndone,
    ReleaseError,
    CloseError,
    StillHeld,
    Leak,
    LoadError,
    ConfigError,
    FaultError
);
// Sharing.
both!(BadFd, FabricHandle, HandleType, AllocationId);
both!(Choice, Refusal, Unavailable);
both!(FabricExport, ExportedSpan, Kept);
both!(SpanSource, SpanImport, ReadOnlySpan);
both!(Descriptor, DecodeError, Home, Piece, SharedAllocation);
// Suspending.
both!(Group, Key<*mut u8>, MemberId, Select<'static>, Backup);
both!(
    Suspended,
    Resumed,
    Incomplete<Suspended>,
    Unclosed,
    Outline<'static>,
    MappingOutline
);
// The simulated driver.
both!(
    Simulation,
    SimulationBuilder,
    SimDevice,
    Interposer,
    Fault,
    LogMode,
    CallRecord,
    Arg,
    Value
);
both!(Misuse, MisuseKind, Place, Rights, Snapshot);
both!(
    ReservationState,
    MappingState,
    HandleState,
    ExportState,
    OrdinaryState,
    RegisteredState
);

// A context is current on one thread.
not!(Send: CurrentContext<'static>);
not!(Sync: CurrentContext<'static>);
// A fence is waited for once, by whoever has it; its closure need not be shareable.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Fence<'static>>();
};
not!(Sync: Fence<'static>);

/// The names in braces, and the single ones, of a module's `pub use` lines.
fn exported(source: &str) -> Vec<&str> {
    let lists = source.split("\npub use ").skip(1);
    lists
        .flat_map(|list| {
            list.split(';')
                .next()
                .unwrap_or_default()
                .split([':', '{', '}', ',', ' ', '\n'])
        })
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect()
}

#[test]
fn no_public_type_is_left_out() {
    let this_file: Vec<&str> = include_str!("bounds.rs")
        .split(|c: char| !c.is_alphanumeric())
        .collect();
    let crate_root = exported(include_str!("../../src/lib.rs"));
    let sim = exported(include_str!("../../src/sim/mod.rs"));
    assert!(
        crate_root.len() > 25 && sim.len() > 10,
        "{crate_root:?} {sim:?}"
    );
    let share = exported(include_str!("../../src/share/mod.rs"));
    let missing: Vec<&str> = crate_root
        .into_iter()
        .chain(sim)
        .chain(share)
        .filter(|name| *name != "Result" && !this_file.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
