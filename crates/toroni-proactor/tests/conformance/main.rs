//! One suite for all engines: every configuration can run every test, with each setting of the two flags, and in one
//! shard and in three where it may have more than one.
//!
//! 70 configurations take two minutes. By default, a selection runs that covers each pair of settings; a test below
//! checks that. It marks each configuration:
//!
//! - `Always`: all tests run.
//! - `Files`: the tests that transfer files run. Such an engine does files only, and all other tests run on a
//!   second engine, which is the same for all of them.
//! - `Asked`: no test runs.
//!
//! The other tests are ignored: `-- --ignored` runs these, `-- --include-ignored` all.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../common/mod.rs"]
mod common;
mod engines;
mod files;
mod io;
mod many;
mod stopping;
mod tasks;
mod waits;
mod wholes;

use common::pairs;
use engines::{Kind, Runs};
use std::collections::BTreeSet;

macro_rules! conformance {
    ($shards:literal; $($module:ident: $provider:ident $wait:ident $interrupt:ident $type:ident, $runs:ident;)*) => {
        /// The configurations that are declared here.
        pub(crate) const KINDS: &[Kind] = &[$($module::KIND),*];

        $(mod $module {
            pub(crate) const KIND: super::Kind = super::Kind {
                provider: toroni_proactor::ProviderType::$provider,
                wait: toroni_proactor::WaitType::$wait,
                interrupt: toroni_proactor::InterruptType::$interrupt,
                processor: toroni_proactor::ProcessorType::$type,
                shards: $shards,
                runs: super::Runs::$runs,
                module: module_path!(),
            };
            conformance!(@tests $runs
                engines: is_what_was_asked_for empty_poll_returns_at_once
                    interrupts_without_any_thread_mean_nothing;
                io: accepts_and_connects a_refused_connection_is_a_result streams_echo
                    half_duplex full_duplex shutdown_then_drain pipes_are_streams
                    datagrams_echo files_are_written_and_read futures_are_driven
                    reads_are_done_in_order reads_of_handlers_are_done_in_order
                    hundreds_of_descriptors both_directions_up_to_the_limit;
                files: many_files_at_once cancelled_transfers_are_reported_once
                    transfers_beyond_the_limit transfers_outlive_their_threads
                    a_handler_blocks_no_transfer a_proactor_is_dropped_amid_transfers
                    what_has_no_positions_is_no_file positions_have_63_bits non_blocking_files_are_read
                    thousands_of_transfers_at_once;
                many: posts_from_many_threads timers_come_in_order_and_not_early
                    a_cancelled_timer_is_reported an_accept_storm_beyond_the_backlog
                    leadership_is_handed_over a_thread_that_leaves_hands_over
                    operations_outlive_their_threads
                    work_in_parts_starves_no_other a_busy_stream_starves_no_other
                    a_busy_stream_starves_no_reader a_handler_that_blocks_holds_up_no_other
                    a_timer_is_due_amid_long_handlers a_handler_may_handle_events the_limit_defers
                    what_was_deferred_has_its_turn a_handler_may_panic;
                stopping: a_stop_may_become_a_graceful_one cancel_of_started cancel_of_what_is_ready
                    results_of_a_stream_stay_in_order what_became_ready_before_it_was_watched cancel_of_deferred cancel_of_a_descriptor
                    cancelled_accepts_leak_nothing failing_connects_leak_nothing
                    a_client_is_destroyed_with_operations_outstanding
                    graceful_stop_calls_every_handler immediate_stop_loses_nothing
                    a_dropped_proactor_lets_go what_was_not_taken_is_closed
                    a_slow_close_holds_up_no_other;
                waits: descriptors_of_others_become_readable words_are_waited_for
                    a_dropped_proactor_lets_go_of_words;
                tasks: tasks_serve_connections a_graceful_stop_ends_tasks
                    a_dropped_proactor_drops_its_tasks
                    a_dropped_proactor_wakes_futures no_wake_of_a_task_is_lost a_task_may_panic
                    operations_are_limited_in_time;
                wholes: a_whole_write_begins_with_its_share whole_writes_stay_whole whole_writes_of_many_threads_stay_whole a_whole_write_ends_with_its_peer
                    whole_writes_to_pipes_and_local_sockets reads_need_room_and_may_append
                    local_sockets_are_connected;
            );
        })*
    };
    (@tests $runs:ident $($group:ident: $($test:ident)*;)*) => {
        $($(conformance!(@test $runs $group $test);)*)*
    };
    (@test Always $group:ident $test:ident) => {
        #[test] fn $test() { super::$group::$test(KIND) }
    };
    (@test Files engines $test:ident) => { conformance!(@test Always engines $test); };
    (@test Files files $test:ident) => { conformance!(@test Always files $test); };
    (@test Files io files_are_written_and_read) => {
        conformance!(@test Always io files_are_written_and_read);
    };
    (@test $runs:ident $group:ident $test:ident) => {
        #[test]
        #[ignore = "not of the selection that runs by default: cargo test --test conformance -- --ignored"]
        fn $test() { super::$group::$test(KIND) }
    };
}

conformance! {
    1;
    select_ppoll_pipe_shared: Select Native Pipe Shared, Asked;
    select_ppoll_signal_shared: Select Native Signal Shared, Asked;
    select_ppoll_eventfd_shared: Select Native Eventfd Shared, Asked;
    select_ppoll_pipe_dedicated: Select Native Pipe Dedicated, Asked;
    select_ppoll_signal_dedicated: Select Native Signal Dedicated, Asked;
    select_ppoll_eventfd_dedicated: Select Native Eventfd Dedicated, Asked;
    select_epoll_pipe_shared: Select Epoll Pipe Shared, Always;
    select_epoll_signal_shared: Select Epoll Signal Shared, Asked;
    select_epoll_eventfd_shared: Select Epoll Eventfd Shared, Asked;
    select_epoll_pipe_dedicated: Select Epoll Pipe Dedicated, Asked;
    select_epoll_signal_dedicated: Select Epoll Signal Dedicated, Asked;
    select_epoll_eventfd_dedicated: Select Epoll Eventfd Dedicated, Asked;
    uring_pipe_shared: Uring Native Pipe Shared, Asked;
    uring_signal_shared: Uring Native Signal Shared, Always;
    uring_eventfd_shared: Uring Native Eventfd Shared, Asked;
    uring_pipe_dedicated: Uring Native Pipe Dedicated, Asked;
    uring_signal_dedicated: Uring Native Signal Dedicated, Asked;
    uring_eventfd_dedicated: Uring Native Eventfd Dedicated, Always;
    combined_pipe_shared: Combined Epoll Pipe Shared, Asked;
    combined_signal_shared: Combined Epoll Signal Shared, Asked;
    combined_eventfd_shared: Combined Epoll Eventfd Shared, Always;
    combined_pipe_dedicated: Combined Epoll Pipe Dedicated, Always;
    combined_signal_dedicated: Combined Epoll Signal Dedicated, Asked;
    combined_eventfd_dedicated: Combined Epoll Eventfd Dedicated, Asked;
    select_linux_rt_pipe: Select LinuxRt Pipe Dedicated, Always;
    select_linux_rt_signal: Select LinuxRt Signal Dedicated, Always;
    posix_suspend_pipe_shared: Posix Native Pipe Shared, Asked;
    posix_suspend_signal_shared: Posix Native Signal Shared, Asked;
    posix_suspend_eventfd_shared: Posix Native Eventfd Shared, Asked;
    posix_suspend_pipe_dedicated: Posix Native Pipe Dedicated, Asked;
    posix_suspend_signal_dedicated: Posix Native Signal Dedicated, Files;
    posix_suspend_eventfd_dedicated: Posix Native Eventfd Dedicated, Asked;
    posix_sigwait_pipe_shared: Posix Sigwait Pipe Shared, Files;
    posix_sigwait_signal_shared: Posix Sigwait Signal Shared, Asked;
    posix_sigwait_eventfd_shared: Posix Sigwait Eventfd Shared, Asked;
    posix_sigwait_pipe_dedicated: Posix Sigwait Pipe Dedicated, Asked;
    posix_sigwait_signal_dedicated: Posix Sigwait Signal Dedicated, Files;
    posix_sigwait_eventfd_dedicated: Posix Sigwait Eventfd Dedicated, Files;
    posix_callback_itself_shared: Posix Callback Callback Shared, Always;
    posix_callback_pipe_shared: Posix Callback Pipe Shared, Asked;
    posix_callback_signal_shared: Posix Callback Signal Shared, Files;
    posix_callback_eventfd_shared: Posix Callback Eventfd Shared, Files;
    posix_callback_itself_dedicated: Posix Callback Callback Dedicated, Files;
    posix_callback_pipe_dedicated: Posix Callback Pipe Dedicated, Files;
    posix_callback_signal_dedicated: Posix Callback Signal Dedicated, Asked;
    posix_callback_eventfd_dedicated: Posix Callback Eventfd Dedicated, Asked;
}

mod in_3_shards {
    use super::*;

    conformance! {
        3;
        select_ppoll_pipe_shared: Select Native Pipe Shared, Asked;
        select_ppoll_signal_shared: Select Native Signal Shared, Asked;
        select_ppoll_eventfd_shared: Select Native Eventfd Shared, Always;
        select_ppoll_pipe_dedicated: Select Native Pipe Dedicated, Asked;
        select_ppoll_signal_dedicated: Select Native Signal Dedicated, Asked;
        select_ppoll_eventfd_dedicated: Select Native Eventfd Dedicated, Asked;
        select_epoll_pipe_shared: Select Epoll Pipe Shared, Asked;
        select_epoll_signal_shared: Select Epoll Signal Shared, Asked;
        select_epoll_eventfd_shared: Select Epoll Eventfd Shared, Asked;
        select_epoll_pipe_dedicated: Select Epoll Pipe Dedicated, Asked;
        select_epoll_signal_dedicated: Select Epoll Signal Dedicated, Asked;
        select_epoll_eventfd_dedicated: Select Epoll Eventfd Dedicated, Asked;
        uring_pipe_shared: Uring Native Pipe Shared, Asked;
        uring_signal_shared: Uring Native Signal Shared, Asked;
        uring_eventfd_shared: Uring Native Eventfd Shared, Asked;
        uring_pipe_dedicated: Uring Native Pipe Dedicated, Always;
        uring_signal_dedicated: Uring Native Signal Dedicated, Asked;
        uring_eventfd_dedicated: Uring Native Eventfd Dedicated, Asked;
        combined_pipe_shared: Combined Epoll Pipe Shared, Asked;
        combined_signal_shared: Combined Epoll Signal Shared, Asked;
        combined_eventfd_shared: Combined Epoll Eventfd Shared, Asked;
        combined_pipe_dedicated: Combined Epoll Pipe Dedicated, Asked;
        combined_signal_dedicated: Combined Epoll Signal Dedicated, Always;
        combined_eventfd_dedicated: Combined Epoll Eventfd Dedicated, Asked;
    }
}

/// Each pair of settings that some configuration has, one of the selected ones has, too. Without any of these, a pair
/// would be missing. Engines that do more than files cover their pairs among themselves.
#[test]
fn the_selection_covers_each_pair_of_settings() {
    let all = || KINDS.iter().chain(in_3_shards::KINDS);
    let pairs_of = |kinds: &[&Kind]| -> BTreeSet<_> {
        kinds.iter().flat_map(|kind| pairs(&kind.settings())).collect()
    };
    assert_eq!(all().count(), 70);
    let files = |kind: &&Kind| kind.provider == toroni_proactor::ProviderType::Posix;
    let all_but_files: Vec<_> = all().filter(|kind| !files(kind)).collect();
    let always: Vec<_> = all().filter(|kind| kind.runs == Runs::Always).collect();
    let missing = &pairs_of(&all_but_files) - &pairs_of(&always);
    assert!(missing.is_empty(), "{missing:#?}");

    let expected = pairs_of(&all().collect::<Vec<_>>());
    let selected: Vec<_> = all().filter(|kind| kind.runs != Runs::Asked).collect();
    let missing = &expected - &pairs_of(&selected);
    assert!(missing.is_empty(), "{missing:#?}");
    for dropped in &selected {
        let rest: Vec<_> = selected.iter().copied().filter(|kind| kind != dropped).collect();
        assert!(expected != pairs_of(&rest), "not needed for any pair: {dropped:?}");
    }
}
