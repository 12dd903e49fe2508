//! One suite for all engines: every configuration runs every test, with each setting of the two flags.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../common/mod.rs"]
mod common;
mod engines;
mod io;
mod many;
mod stopping;

use engines::Kind;

macro_rules! conformance {
    ($($module:ident: $provider:ident $wait:ident $interrupt:ident $type:ident;)*) => {
        $(mod $module {
            const KIND: super::Kind = super::Kind {
                provider: toroni_proactor::ProviderType::$provider,
                wait: toroni_proactor::WaitType::$wait,
                interrupt: toroni_proactor::InterruptType::$interrupt,
                processor: toroni_proactor::ProcessorType::$type,
                name: stringify!($module),
            };
            conformance!(@tests
                engines: is_what_was_asked_for empty_poll_returns_at_once;
                io: accepts_and_connects a_refused_connection_is_a_result streams_echo
                    half_duplex full_duplex shutdown_then_drain pipes_are_streams
                    datagrams_echo files_are_written_and_read futures_are_driven
                    reads_are_done_in_order hundreds_of_descriptors;
                many: posts_from_many_threads timers_come_in_order_and_not_early
                    a_cancelled_timer_is_told an_accept_storm_beyond_the_backlog
                    leadership_is_handed_over a_thread_that_leaves_hands_over
                    operations_outlive_their_threads
                    the_limit_defers a_handler_may_panic;
                stopping: cancel_of_started cancel_of_deferred cancel_of_a_descriptor
                    cancelled_accepts_leak_nothing failing_connects_leak_nothing
                    a_client_is_destroyed_with_operations_outstanding
                    graceful_stop_calls_every_handler immediate_stop_loses_nothing
                    a_dropped_proactor_lets_go;
            );
        })*
    };
    (@tests $($group:ident: $($test:ident)*;)*) => {
        $($(#[test] fn $test() { super::$group::$test(KIND) })*)*
    };
}

conformance! {
    select_ppoll_pipe_shared: Select Native Pipe Shared;
    select_ppoll_signal_shared: Select Native Signal Shared;
    select_ppoll_eventfd_shared: Select Native Eventfd Shared;
    select_ppoll_pipe_dedicated: Select Native Pipe Dedicated;
    select_ppoll_signal_dedicated: Select Native Signal Dedicated;
    select_ppoll_eventfd_dedicated: Select Native Eventfd Dedicated;
    select_epoll_pipe_shared: Select Epoll Pipe Shared;
    select_epoll_signal_shared: Select Epoll Signal Shared;
    select_epoll_eventfd_shared: Select Epoll Eventfd Shared;
    select_epoll_pipe_dedicated: Select Epoll Pipe Dedicated;
    select_epoll_signal_dedicated: Select Epoll Signal Dedicated;
    select_epoll_eventfd_dedicated: Select Epoll Eventfd Dedicated;
    select_linux_rt_pipe: Select LinuxRt Pipe Dedicated;
    select_linux_rt_signal: Select LinuxRt Signal Dedicated;
    uring_pipe_shared: Uring Native Pipe Shared;
    uring_signal_shared: Uring Native Signal Shared;
    uring_eventfd_shared: Uring Native Eventfd Shared;
    uring_pipe_dedicated: Uring Native Pipe Dedicated;
    uring_signal_dedicated: Uring Native Signal Dedicated;
    uring_eventfd_dedicated: Uring Native Eventfd Dedicated;
}
