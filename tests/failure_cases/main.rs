//! The failure cases: what goes wrong for people who manage GPU memory, by kind, each as a test.
//!
//! The kinds were collected from public reports; [`PROVED`] says of each, by the number it has in that collection,
//! where it is proved: by a case of this program, by a test of another, by an example that does not compile. What needs
//! more than the core of the crate, or a machine that there is not, says so. [`table`] holds the list against what
//! there is.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod accounting;
mod address_space;
mod case;
mod contradictions;
mod impossible;
mod in_flight;
mod liar;
mod loading;
mod ownership;
mod ranges;
mod rights;
mod rollback;
mod table;
mod threads_and_exit;

#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/rig.rs"]
mod rig;
#[allow(dead_code)] // What one test program does not need, another does.
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use case::Case;
use table::Proof::{self, Here, Later, NotHere, Test, Type};

/// Number, kind, where it is proved.
#[rustfmt::skip] // A table.
const PROVED: &[(u16, &str, &[Proof])] = &[
    // A. Ownership, reference counts, teardown order
    (1, "creation reference never dropped", &[Here("creating, mapping and dropping in a loop"), Test("tests/ownership.rs", "invariant_1_an_allocation_is_one_count_released_once")]),
    (2, "retain for a look-up leaks", &[Here("looking up an allocation takes nothing")]),
    (3, "free of a paused allocation releases twice", &[Here("an emptied reservation has nothing to give back twice"), Test("tests/suspend/endings.rs", "dropped_asleep")]),
    (4, "sleep and wake without state", &[Here("doing it twice is an error, not a no-op"), Test("tests/suspend/bad_input.rs", "suspending_twice"), Test("tests/suspend/faults.rs", "disturbed")]),
    (6, "errors swallowed", &[Here("out of memory is an error, and the retry succeeds")]),
    (7, "out of memory in a resume", &[Here("out of memory in a row keeps what was mapped"), Test("tests/suspend/basics.rs", "out_of_memory_half_way")]),
    (8, "one pointer and size for two reservations", &[Here("two reservations side by side are freed one by one")]),
    (9, "the requested size instead of the rounded", &[Here("the size that was mapped is the size that is undone")]),
    (10, "a second growth that fails", &[Here("growing that fails keeps what was there"), Later("elastic: growing")]),
    (11, "a deleter on a range that is gone", &[Here("after a move nobody names the old range"), Type("src/reservation/mod.rs", "compile_fail,E0382")]),
    (13, "freeing what was never reserved", &[Here("a failed reservation frees nothing")]),
    (14, "teardown in the wrong order", &[Here("whatever was made in whatever order goes in the one order"), Test("tests/ownership.rs", "invariant_3_mappings_go_in_reverse_unmapped_then_released_then_the_addresses")]),
    (15, "the reservation goes while mappings live", &[Type("src/mapping.rs", "compile_fail,E0505"), Type("src/reservation/view.rs", "compile_fail,E0505"), Test("tests/ownership.rs", "invariant_2_addresses_are_freed_as_they_were_reserved_and_only_when_empty")]),
    (16, "release while mapped", &[Here("a handle released while it is mapped frees nothing before the unmap")]),
    (18, "a failed free forgets the record", &[Test("tests/reservation/closing.rs", "one_failure_does_not_stop_the_rest"), Test("tests/ownership.rs", "invariant_4_a_failed_close_gives_the_reservation_back_with_what_is_still_mapped")]),
    (19, "imports not cleaned up on abort", &[Later("sharing: imports")]),
    (20, "an error path leaks after import", &[Test("tests/ownership.rs", "invariant_6_what_a_call_made_is_owned_before_the_next_call"), Later("sharing: imports")]),
    (21, "exported and imported buffers leak with each cycle", &[Later("sharing: imports")]),
    (22, "release keeps memory while addresses stay", &[Here("memory comes back while the addresses stay")]),
    // B. Partial failure and rollback
    (23, "a row of maps fails at one slot", &[Here("a row that fails at one slot unmaps what was mapped and no more")]),
    (25, "every step fails", &[Test("tests/faults/once.rs", "check"), Test("tests/faults/twice.rs", "check")]),
    (26, "state changed before the failing call", &[Test("tests/faults/once.rs", "check"), Test("tests/reservation/bad_ranges.rs", "through_a_mapping")]),
    (27, "peers granted in part", &[Here("rights that fail at one of several mappings"), Later("sharing: peers of other processes")]),
    (29, "the error of the clean-up replaces the first", &[Test("tests/ownership.rs", "invariant_7_all_or_nothing_undone_in_reverse_and_what_cannot_be_undone_is_kept")]),
    (30, "the driver and the books disagree", &[Here("an unmap that says nothing is mapped quarantines the mapping"), Here("a close that meets it keeps the mapping until the driver agrees")]),
    (31, "mapping and unmapping twice", &[Here("doing it twice is an error, not a no-op"), Type("src/mapping.rs", "compile_fail,E0382")]),
    // C. Range, size, alignment, granularity
    (32, "unmapping a part of a mapping", &[Test("tests/reservation/bad_ranges.rs", "through_a_mapping"), Test("tests/reservation/bad_ranges.rs", "through_the_last_of_several_mappings")]),
    (33, "unmapping over a hole", &[Test("tests/reservation/bad_ranges.rs", "over_a_hole")]),
    (34, "an unaligned size reaches the driver", &[Here("the size that was mapped is the size that is undone"), Test("tests/allocation.rs", "sizes_that_cannot_be_had")]),
    (35, "granularity is that of the properties", &[Test("tests/allocation.rs", "a_granularity_is_asked_once_for_each_set_of_properties"), Test("tests/reservation/mapping.rs", "devices_of_two_granularities_share_a_reservation")]),
    (36, "an alignment that is no power of two", &[Here("an alignment that was asked for is given"), Here("addresses that can be no reservation are given back")]),
    (37, "an importer maps the user's length", &[Later("sharing: descriptors of spans")]),
    (38, "minimum and recommended granularity", &[Here("a multiple of the minimum granularity is enough")]),
    (39, "mapping a part of a handle", &[Type("src/reservation/map.rs", "compile_fail,E0061"), Test("tests/reservation/bad_requests.rs", "a_raw_handle_of_another_size")]),
    (40, "zero bytes", &[Test("tests/reservation/bad_ranges.rs", "nothing_at_all"), Test("tests/reservation/bad_requests.rs", "a_size_of_zero")]),
    (41, "arithmetic of sizes", &[Test("tests/reservation/bad_ranges.rs", "an_end_beyond_all_addresses"), Test("tests/reservation/bad_requests.rs", "an_address_whose_end_overflows"), Here("a granularity of half of all addresses")]),
    (42, "mapping over a live mapping", &[Here("doing it twice is an error, not a no-op"), Test("tests/reservation/bad_ranges.rs", "over_a_live_mapping")]),
    (43, "a hint is a hint", &[Here("a hint that is taken gives another address, and an exact one an error"), Here("a failed reservation frees nothing")]),
    (45, "one chunk taken for the span", &[Here("a chunk is told from the span around it")]),
    (46, "copies over the ends of chunks", &[Here("bytes cross the seams of chunks")]),
    (47, "freeing a part of a span", &[Test("tests/reservation/bad_ranges.rs", "through_a_mapping")]),
    // D. Work in flight when memory goes away
    (48, "the wrong device is waited for", &[Here("a fence waits in the context of its own device")]),
    (49, "unmapped before the stream was done", &[Test("tests/waiting.rs", "a_stream_is_waited_for"), Test("tests/waiting.rs", "close_in_the_background_waits")]),
    (50, "success although work is outstanding", &[Test("tests/waiting.rs", "a_deadline_gives_up_with_everything_mapped"), Later("elastic: leases")]),
    (51, "mapping beside memory in use", &[Here("mapping beside memory that is in use")]),
    (52, "a partial wake copies into what is unmapped", &[Test("tests/suspend/basics.rs", "by_tag_by_key_by_list")]),
    (53, "contents of memory made anew", &[Test("tests/facts/create.rs", "new_memory_is_zero"), Test("tests/suspend/contents.rs", "dropped_reads_as_zero")]),
    (54, "a graph replayed after its memory was swapped", &[Later("elastic: leases, with a graph")]),
    (55, "buffers outside the region that is paused", &[Later("elastic: accounts by tag")]),
    (57, "a lock held over a driver call", &[Here("every driver call may come back to the crate"), Test("tests/callers_code.rs", "a_replaced_hook_may_leak_what_it_holds")]),
    // E. Access rights and peers
    (58, "new mappings lack what older ones had", &[Here("what is mapped later has the rights of what was mapped before")]),
    (59, "rights forgotten at the next map", &[Here("rights come back with the next map")]),
    (60, "a device that cannot reach the memory", &[Test("tests/reservation/rights.rs", "devices_that_cannot_reach_each_other")]),
    (61, "an entry without access for the owner", &[Test("tests/reservation/mapping.rs", "a_policy_entry_of_none_gives_nothing")]),
    (63, "one call for each chunk", &[Here("one call grants a whole range")]),
    (64, "rights of a tail refused", &[Here("rights of the second of two mappings alone")]),
    (65, "what a device can is taken for what it may", &[Here("what is mapped later has the rights of what was mapped before"), Test("tests/reservation/rights.rs", "rights_that_somebody_changed_behind_our_back")]),
    (66, "sharing to read only", &[Here("memory that may only be read is not written")]),
    // I. Context, threads, fork, exit, panics
    (114, "a thread without a context", &[Here("made on one thread, ended on another without a context")]),
    (116, "a panic while dropping after a sticky fault", &[Here("a hundred things dropped while unwinding, every call refused"), Here("managing memory goes on after a sticky fault")]),
    (118, "the driver is gone at exit", &[Test("tests/process/ending.rs", "after_the_driver")]),
    (119, "fork after the start", &[Test("tests/process/forking.rs", "everything_says_so"), Test("tests/process/forking.rs", "dropping_is_silent")]),
    (120, "a file descriptor closed twice", &[Later("sharing: descriptors, as OwnedFd")]),
    (121, "sent to another thread without a right to", &[Here("what may go to another thread and be shared"), Type("src/context.rs", "compile_fail,E0277")]),
    // J. Address space, limits
    (123, "a large reservation fails on a small machine", &[Here("little address space is told from little memory"), Here("more addresses than there are")]),
    (125, "many small handles", &[Here("twenty thousand small mappings cost each what the first did")]),
    (126, "peers that are not adjacent", &[Later("sharing: symmetric spans"), NotHere("needs two GPUs that reach each other")]),
    // K. Rust bindings, build, loading
    (127, "no libclang", &[Test("tests/build_script/kept.rs", "kept_with_one_warning_where_there_is_no_libclang")]),
    (128, "no toolkit where documentation is built", &[Test("tests/build_script/kept.rs", "kept_on_docs_rs")]),
    (129, "a build that wants an installation", &[Test("tests/build_script/kept.rs", "kept_with_one_warning_where_there_is_no_header")]),
    (130, "a symbol table that demands a new driver", &[Test("tests/loader/usable.rs", "a_driver_of_cuda_10_2_loads_and_says_what_it_lacks"), Test("tests/device.rs", "a_call_that_an_older_driver_lacks")]),
    (131, "names of the library", &[Test("tests/loader/usable.rs", "the_versioned_name_alone_is_enough"), Test("tests/loader/absent.rs", "no_driver_at_all")]),
    (132, "a stub at run time", &[Test("tests/loader/no_driver.rs", "a_toolkit_stub_is_named")]),
    (133, "linking", &[Test(".ci/run", "no_link"), Test(".ci/run", "features")]),
    (134, "making a context changed", &[Here("no call whose signature changed between toolkits")]),
    (135, "the layout of a location", &[Test("tests/bindings.rs", "structs_have_the_layout_of_the_abi"), Test("tests/build_script/real_headers.rs", "every_header_gives_the_kept_declarations")]),
    (136, "prefetch and advice changed", &[Here("no call whose signature changed between toolkits")]),
    (138, "results ignored", &[Test(".ci/run", "lints")]),
    (139, "configuration read once", &[Here("nothing is read from the environment at run time")]),
    // L. Platform, accounting
    (140, "a platform without it", &[Here("a device that manages no virtual memory says so")]),
    (141, "a host node that is none", &[Here("memory of a host node, and of one that is not there"), Type("src/props.rs", "compile_fail,E0600")]),
    (142, "the host's memory taken for a device's", &[Here("the host's memory is told from a device's")]),
    (144, "what a shareable handle costs", &[NotHere("a cost, seen on older drivers only: nothing is shareable unless it is asked for")]),
    (145, "a shim that limits", &[Here("a limit refuses memory although it is free")]),
    (146, "accounts that diverge", &[Here("the books agree with the device")]),
    (147, "success although nothing was freed", &[Here("what was given back is seen to be back"), Test("tests/suspend/basics.rs", "the_free_bytes_rise_and_fall")]),
    (148, "a leak over cycles of sleep and wake", &[Here("memory comes back while the addresses stay"), Test("tests/suspend/cycles.rs", "cycles"), Later("elastic: cycles with several processes")]),
    (150, "limits of MPS and MIG", &[NotHere("needs a device that is partitioned; no such report is about virtual memory management")]),
];

const SECTIONS: &[&[Case]] = &[
    ownership::CASES,
    rollback::CASES,
    contradictions::CASES,
    impossible::CASES[0],
    impossible::CASES[1],
    impossible::CASES[2],
    ranges::CASES,
    in_flight::CASES,
    rights::CASES,
    threads_and_exit::CASES,
    address_space::CASES,
    loading::CASES,
    accounting::CASES,
    table::CASES,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases that count free bytes must not run beside one another.
    arguments.test_threads = Some(1);
    let cases = SECTIONS.iter().copied().flatten();
    let conclusion = libtest_mimic::run(&arguments, cases.flat_map(Case::trials).collect());
    conclusion.exit_code()
}
