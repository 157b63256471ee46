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
mod fabric;
mod impossible;
mod in_flight;
mod liar;
mod loading;
mod ownership;
mod ranges;
mod rights;
mod rollback;
mod sharing;
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
use table::Proof::{self, Here, NotHere, Test, Type};

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
    (10, "a second growth that fails", &[Here("growing that fails keeps what was there"), Test("tests/elastic/memory.rs", "out of memory within many blocks takes all down")]),
    (11, "a deleter on a range that is gone", &[Here("after a move nobody names the old range"), Type("src/reservation/mod.rs", "compile_fail,E0382")]),
    (13, "freeing what was never reserved", &[Here("a failed reservation frees nothing")]),
    (14, "teardown in the wrong order", &[Here("whatever was made in whatever order goes in the one order"), Test("tests/ownership.rs", "invariant_3_mappings_go_in_reverse_unmapped_then_released_then_the_addresses")]),
    (15, "the reservation goes while mappings live", &[Type("src/mapping.rs", "compile_fail,E0505"), Type("src/reservation/view.rs", "compile_fail,E0505"), Test("tests/ownership.rs", "invariant_2_addresses_are_freed_as_they_were_reserved_and_only_when_empty")]),
    (16, "release while mapped", &[Here("a handle released while it is mapped frees nothing before the unmap")]),
    (18, "a failed free forgets the record", &[Test("tests/reservation/closing.rs", "one_failure_does_not_stop_the_rest"), Test("tests/ownership.rs", "invariant_4_a_failed_close_gives_the_reservation_back_with_what_is_still_mapped")]),
    (19, "imports not cleaned up on abort", &[Here("an import that is dropped half-way leaves nothing"), Test("tests/shared_memory/deaths.rs", "deaths::importer_killed_with_descriptors_alone")]),
    (20, "an error path leaks after import", &[Test("tests/ownership.rs", "invariant_6_what_a_call_made_is_owned_before_the_next_call"), Test("tests/faults/on_sharing.rs", "SpanImport::attach"), Test("tests/faults/on_sharing.rs", "SpanImport::attach_into")]),
    (21, "exported and imported buffers leak with each cycle", &[Test("tests/shared_memory/rounds.rs", "rounds::many_leave_nothing")]),
    (22, "release keeps memory while addresses stay", &[Here("memory comes back while the addresses stay")]),
    // B. Partial failure and rollback
    (23, "a row of maps fails at one slot", &[Here("a row that fails at one slot unmaps what was mapped and no more")]),
    (25, "every step fails", &[Test("tests/faults/once.rs", "check"), Test("tests/faults/twice.rs", "check")]),
    (26, "state changed before the failing call", &[Test("tests/faults/once.rs", "check"), Test("tests/reservation/bad_ranges.rs", "through_a_mapping")]),
    (27, "peers granted in part", &[Here("rights that fail at one of several mappings"), Here("one of several peers that fails leaves the others")]),
    (29, "the error of the clean-up replaces the first", &[Test("tests/ownership.rs", "invariant_7_all_or_nothing_undone_in_reverse_and_what_cannot_be_undone_is_kept")]),
    (30, "the driver and the books disagree", &[Here("an unmap that says nothing is mapped quarantines the mapping"), Here("a close that meets it keeps the mapping until the driver agrees")]),
    (31, "mapping and unmapping twice", &[Here("doing it twice is an error, not a no-op"), Type("src/mapping.rs", "compile_fail,E0382")]),
    // C. Range, size, alignment, granularity
    (32, "unmapping a part of a mapping", &[Test("tests/reservation/bad_ranges.rs", "through_a_mapping"), Test("tests/reservation/bad_ranges.rs", "through_the_last_of_several_mappings")]),
    (33, "unmapping over a hole", &[Test("tests/reservation/bad_ranges.rs", "over_a_hole")]),
    (34, "an unaligned size reaches the driver", &[Here("the size that was mapped is the size that is undone"), Test("tests/allocation.rs", "sizes_that_cannot_be_had")]),
    (35, "granularity is that of the properties", &[Test("tests/allocation.rs", "a_granularity_is_asked_once_for_each_set_of_properties"), Test("tests/reservation/mapping.rs", "devices_of_two_granularities_share_a_reservation")]),
    (36, "an alignment that is no power of two", &[Here("an alignment that was asked for is given"), Here("addresses that can be no reservation are given back")]),
    (37, "an importer maps the user's length", &[Here("a buffer shorter than its allocation is shared whole")]),
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
    (49, "unmapped before the stream was done", &[Test("tests/waiting/fences.rs", "a_stream_is_waited_for"), Test("tests/waiting/closing.rs", "close_in_the_background_waits")]),
    (50, "success although work is outstanding", &[Test("tests/waiting/fences.rs", "a_deadline_gives_up_with_everything_mapped"), Test("tests/suspend/fences.rs", "a_deadline"), Type("src/suspend/mod.rs", "compile_fail,E0502")]),
    (51, "mapping beside memory in use", &[Here("mapping beside memory that is in use")]),
    (52, "a partial wake copies into what is unmapped", &[Test("tests/suspend/basics.rs", "by_tag_by_key_by_list")]),
    (53, "contents of memory made anew", &[Test("tests/facts/create.rs", "new_memory_is_zero"), Test("tests/suspend/contents.rs", "dropped_reads_as_zero")]),
    (54, "a graph replayed after its memory was swapped", &[Test("scripts/foreign/torch_train.py", "graph_replays"), NotHere("the crate launches nothing, so that a replay while it sleeps is the caller's")]),
    (55, "buffers outside the region that is paused", &[Test("tests/suspend/basics.rs", "the_free_bytes_rise_and_fall"), Test("tests/suspend/contents.rs", "several_members")]),
    (57, "a lock held over a driver call", &[Here("every driver call may come back to the crate"), Test("tests/callers_code.rs", "a_replaced_hook_may_leak_what_it_holds")]),
    // E. Access rights and peers
    (58, "new mappings lack what older ones had", &[Here("what is mapped later has the rights of what was mapped before")]),
    (59, "rights forgotten at the next map", &[Here("rights come back with the next map")]),
    (60, "a device that cannot reach the memory", &[Test("tests/reservation/rights.rs", "devices_that_cannot_reach_each_other")]),
    (61, "an entry without access for the owner", &[Test("tests/reservation/mapping.rs", "a_policy_entry_of_none_gives_nothing")]),
    (63, "one call for each chunk", &[Here("one call grants a whole range")]),
    (64, "rights of a tail refused", &[Here("rights of the second of two mappings alone")]),
    (65, "what a device can is taken for what it may", &[Here("what is mapped later has the rights of what was mapped before"), Test("tests/reservation/rights.rs", "rights_that_somebody_changed_behind_our_back")]),
    (66, "sharing to read only", &[Here("memory that may only be read is not written"), Test("tests/sharing/attach.rs", "read_only_is_a_type"), Type("src/share/read_only.rs", "compile_fail,E0599")]),
    // F. Export, import, file descriptors
    (67, "an exported descriptor keeps the memory", &[Here("a descriptor keeps the memory until its last copy is closed"), Test("tests/shared_memory/deaths.rs", "deaths::exporter_closes_first")]),
    (68, "a fabric handle does not", &[Test("tests/sharing/allocation.rs", "a_fabric_export_holds_the_memory"), Test("tests/sharing/export.rs", "fabric_handles_stand_in_the_description_and_are_kept")]),
    (69, "closed before the others had it", &[Test("tests/shared_memory/deaths.rs", "deaths::exporter_killed_before_the_importer_attached"), Test("tests/wire/broken.rs", "broken::last_words_are_heard")]),
    (70, "descriptors left open", &[Test("tests/shared_memory/rounds.rs", "rounds::many_leave_nothing"), Test("tests/wire/processes.rs", "processes::a_thousand_rounds_leave_nothing")]),
    (71, "whose the descriptor is after an import", &[Test("tests/sharing/allocation.rs", "a_descriptor_keeps_the_memory_and_is_the_callers"), Here("files opened beside imports are left alone")]),
    (72, "a descriptor sent as a number", &[Test("tests/sharing/descriptor.rs", "the_layout_is_this"), Test("tests/sharing/untrue.rs", "too_few_or_too_many_descriptors"), Test("tests/wire/hostile.rs", "hostile::descriptors_that_were_not_announced")]),
    (73, "the receiver guesses the kind of handle", &[Here("the kind of handle is the sender's"), Test("tests/sharing/descriptor.rs", "what_is_not_known")]),
    (74, "bytes that say nothing and differ", &[Test("tests/sharing/export.rs", "equal_exports_are_equal_bytes"), Test("tests/sharing/descriptor.rs", "a_place_has_one_form")]),
    (76, "a size that a peer says is trusted", &[Test("tests/shared_memory/impostors.rs", "impostors::who_lie_about_their_memory"), Test("tests/sharing/untrue.rs", "a_size_that_is_not_true"), Test("tests/sharing/allocation.rs", "a_size_that_is_not_true"), Test("tests/sharing/descriptor.rs", "lengths_are_checked_before_anything_is_made_for_them")]),
    (77, "descriptors that were cut off", &[Test("tests/shared_memory/limits.rs", "limits::importer_with_64_files"), Test("tests/wire/processes.rs", "processes::a_receiver_at_its_limit_of_files")]),
    (79, "descriptors in programs that are started", &[Test("tests/shared_memory/rules.rs", "rules::a_program_that_is_started_has_none_of_it"), Test("tests/wire/processes.rs", "processes::a_child_inherits_nothing"), Test("tests/facts/share.rs", "export_closes_on_exec")]),
    (80, "descriptors fetched out of another process", &[Test("tests/shared_memory/rules.rs", "rules::no_right_to_look_into_other_processes")]),
    (81, "process ids that mean nothing elsewhere", &[Test("tests/sharing/descriptor.rs", "the_layout_is_this"), Test("tests/wire/server.rs", "server::lets_in_whom_the_closure_allows"), Test("tests/wire/server.rs", "server::client_asks_whose_server_it_is")]),
    (82, "names of sockets", &[Test("tests/wire/names.rs", "names::taken"), Test("tests/wire/names.rs", "names::stale_file_is_replaced"), Test("tests/wire/names.rs", "names::too_long_or_none"), Test("tests/wire/names.rs", "names::only_its_own_file_is_removed")]),
    (84, "descriptors between hosts", &[Test("tests/wire/hostile.rs", "hostile::another_host")]),
    (85, "not created for what it is to be exported as", &[Test("tests/sharing/allocation.rs", "what_was_not_asked_for_cannot_be_exported"), Test("tests/sharing/export.rs", "one_that_was_not_made_for_it_among_many"), Test("tests/sharing/pointers.rs", "what_was_not_made_for_it")]),
    (86, "legacy IPC", &[Test("tests/facts/copies.rs", "pointer_legacy_ipc")]),
    (87, "the same imported twice", &[Test("tests/sharing/allocation.rs", "imported_twice_it_is_two_allocations"), Here("one import dropped while another of the same is made")]),
    (88, "imports that are kept for ever", &[Test("tests/shared_memory/rounds.rs", "rounds::many_leave_nothing"), Test("tests/shared_memory/deaths.rs", "deaths::importer_closes_first")]),
    (89, "an importer keeps a dead exporter's memory", &[Test("tests/shared_memory/deaths.rs", "deaths::exporter_killed_while_the_importer_reads")]),
    (91, "a handle by value or by address", &[Here("a descriptor goes by value, a fabric handle by address")]),
    (93, "ranks that do not use the same", &[Here("ranks of which one has no fabric all use descriptors"), Test("tests/shared_memory/ranks.rs", "ranks::eight_share_all_with_all")]),
    // G. Fabric handles
    (94, "said to be supported, and not permitted", &[Test("tests/sharing/choice.rs", "without_an_imex_channel_although_the_device_claims_it"), Test("tests/sharing/real.rs", "a_kind_of_handle_is_found")]),
    (95, "codes that mean not here", &[Test("tests/sharing/choice.rs", "codes_that_mean_not_here"), Test("tests/sharing/choice.rs", "codes_that_do_not"), Here("outside the trial a refusal is what the driver said")]),
    (96, "created, and then not exported", &[Test("tests/sharing/choice.rs", "created_but_never_exported")]),
    (98, "something else in place of what was asked for", &[Here("nothing plain is created in place of what was asked for")]),
    (100, "a fabric that is down", &[Test("tests/sharing/choice.rs", "a_fabric_that_is_not_ready_is_asked_again"), Here("a fabric that is down is neither retried nor widened")]),
    (102, "everybody waits for one that failed", &[Test("tests/shared_memory/faults/mod.rs", "faults::driver_calls_of_an_importer_that_fetches"), Test("tests/shared_memory/ranks.rs", "ranks::one_fails_to_attach")]),
    // H. Cross-process pool, acknowledgements
    (103, "acknowledged before the copy has run", &[Test("tests/pool/order.rs", "an acknowledgement comes behind the copy"), Test("tests/pool/order.rs", "a ticket exists after the copy"), Test("tests/pool_processes/load/mod.rs", "load::publishes_of_every_kind")]),
    (104, "a late acknowledgement frees the next generation", &[Test("tests/pool/acknowledge.rs", "a late acknowledgement changes nothing"), Test("src/pool/model.rs", "a_consumer_dies_while_it_acknowledges_and_another_reads")]),
    (105, "acknowledged twice, never, or by a stranger", &[Test("tests/pool/acknowledge.rs", "each consumer acknowledges for itself"), Test("tests/pool/bad_input.rs", "nobody acknowledges beyond the allowed scope"), Type("src/pool/consumer/lease.rs", "compile_fail,E0382")]),
    (106, "a dead consumer never acknowledges", &[Test("tests/pool_processes/deaths.rs", "deaths::a_consumer_killed_at_each_step")]),
    (107, "the producer dies first", &[Test("tests/pool_processes/deaths.rs", "deaths::the_producer_killed_at_each_step")]),
    (108, "a recycler that outlives the memory", &[Test("src/pool/model.rs", "closing_waits_for_those_inside_and_lets_nobody_in"), Test("tests/pool/closing.rs", "close waits for a publisher inside")]),
    (110, "a pool that is exhausted", &[Test("tests/pool/slices.rs", "a pool without room tells who holds it"), Test("tests/pool_processes/neglect.rs", "neglect::a_request_aborted_three_times")]),
    (112, "a context of each consumer on the producer's device", &[Test("tests/pool_processes/devices.rs", "devices::no_context_on_the_producers_device")]),
    // I. Context, threads, fork, exit, panics
    (114, "a thread without a context", &[Here("made on one thread, ended on another without a context")]),
    (116, "a panic while dropping after a sticky fault", &[Here("a hundred things dropped while unwinding, every call refused"), Here("managing memory goes on after a sticky fault")]),
    (118, "the driver is gone at exit", &[Test("tests/process/ending.rs", "after_the_driver")]),
    (119, "fork after the start", &[Test("tests/process/forking.rs", "everything_says_so"), Test("tests/process/forking.rs", "dropping_is_silent")]),
    (120, "a file descriptor closed twice", &[Here("files opened beside imports are left alone")]),
    (121, "sent to another thread without a right to", &[Here("what may go to another thread and be shared"), Type("src/context.rs", "compile_fail,E0277")]),
    // J. Address space, limits
    (123, "a large reservation fails on a small machine", &[Here("little address space is told from little memory"), Here("more addresses than there are")]),
    (125, "many small handles", &[Here("twenty thousand small mappings cost each what the first did")]),
    (126, "peers that are not adjacent", &[Here("one of several peers that fails leaves the others"), NotHere("no stride between reservations is offered; peers in one reservation on several devices need several GPUs")]),
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
    (148, "a leak over cycles of sleep and wake", &[Here("memory comes back while the addresses stay"), Test("tests/suspend/cycles.rs", "cycles"), Test("tests/suspend/cycles.rs", "processes")]),
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
    sharing::CASES,
    fabric::CASES,
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
