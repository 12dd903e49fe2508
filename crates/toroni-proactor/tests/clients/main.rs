//! The examples as processes, with third-party clients: curl, wrk, ab and iperf3, on every engine.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../common/mod.rs"]
mod common;
mod http;
mod message;
mod process;
mod proxy;

macro_rules! clients {
    ($groups:tt $($module:ident: $effective:literal, $configuration:literal;)*) => {
        $(mod $module {
            const ENGINE: super::process::Engine =
                super::process::Engine { effective: $effective, configuration: $configuration };
            clients!(@groups $groups);
        })*
    };
    (@groups [$($group:ident)*]) => { $(clients!(@$group);)* };
    (@http) => {
        clients!(@tests http: curl_gets_the_same_bytes requests_in_a_row_and_in_pieces
            a_half_closed_client_is_answered what_is_refused_and_how aborted_clients_leak_nothing
            too_many_connections_are_refused_with_an_answer who_takes_too_long_is_left
            wrk_and_ab_have_no_complaints);
    };
    (@proxy) => {
        clients!(@tests proxy: both_directions_end_by_themselves no_server_behind_it
            slow_readers_make_writers_wait one_too_many_is_closed silence_ends_a_connection
            iperf3_sessions_pass);
    };
    (@tests $group:ident: $($test:ident)*) => {
        $(#[test] fn $test() { super::$group::$test(ENGINE) })*
    };
}

clients! {
    [http proxy]
    select_ppoll_pipe_shared: "select × native × pipe, shared",
        "provider = 'select'\ninterrupt = 'pipe'";
    select_ppoll_signal_shared: "select × native × signal, shared",
        "provider = 'select'\ninterrupt = 'signal'";
    select_ppoll_eventfd_shared: "select × native × eventfd, shared",
        "provider = 'select'\ninterrupt = 'eventfd'";
    select_ppoll_pipe_dedicated: "select × native × pipe, dedicated",
        "provider = 'select'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_ppoll_signal_dedicated: "select × native × signal, dedicated",
        "provider = 'select'\ninterrupt = 'signal'\ntype = 'dedicated'";
    select_ppoll_eventfd_dedicated: "select × native × eventfd, dedicated",
        "provider = 'select'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    select_epoll_pipe_shared: "select × epoll × pipe, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'pipe'";
    select_epoll_signal_shared: "select × epoll × signal, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'signal'";
    select_epoll_eventfd_shared: "select × epoll × eventfd, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'eventfd'";
    select_epoll_pipe_dedicated: "select × epoll × pipe, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_epoll_signal_dedicated: "select × epoll × signal, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'signal'\ntype = 'dedicated'";
    select_epoll_eventfd_dedicated: "select × epoll × eventfd, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    select_linux_rt_pipe: "select × linuxrt × pipe, dedicated",
        "provider = 'select'\nwait = 'linux-rt'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_linux_rt_signal: "select × linuxrt × signal, dedicated",
        "provider = 'select'\nwait = 'linux-rt'\ninterrupt = 'signal'\ntype = 'dedicated'";
    combined_pipe_shared: "combined × epoll × pipe, shared",
        "provider = 'combined'\ninterrupt = 'pipe'";
    combined_signal_shared: "combined × epoll × signal, shared",
        "provider = 'combined'\ninterrupt = 'signal'";
    combined_eventfd_shared: "combined × epoll × eventfd, shared",
        "provider = 'combined'\ninterrupt = 'eventfd'";
    combined_pipe_dedicated: "combined × epoll × pipe, dedicated",
        "provider = 'combined'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    combined_signal_dedicated: "combined × epoll × signal, dedicated",
        "provider = 'combined'\ninterrupt = 'signal'\ntype = 'dedicated'";
    combined_eventfd_dedicated: "combined × epoll × eventfd, dedicated",
        "provider = 'combined'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    uring_pipe_shared: "uring × native × pipe, shared",
        "provider = 'uring'\ninterrupt = 'pipe'";
    uring_signal_shared: "uring × native × signal, shared",
        "provider = 'uring'\ninterrupt = 'signal'";
    uring_eventfd_shared: "uring × native × eventfd, shared",
        "provider = 'uring'\ninterrupt = 'eventfd'";
    uring_pipe_dedicated: "uring × native × pipe, dedicated",
        "provider = 'uring'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    uring_signal_dedicated: "uring × native × signal, dedicated",
        "provider = 'uring'\ninterrupt = 'signal'\ntype = 'dedicated'";
    uring_eventfd_dedicated: "uring × native × eventfd, dedicated",
        "provider = 'uring'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
}

// Files on one engine, sockets on another.
clients! {
    [http]
    uring_for_files_epoll_for_sockets: "uring × native × pipe, dedicated",
        "provider = 'uring'\ntype = 'dedicated'\noperations = ['read-file', 'write-file']
        [[processor]]\nprovider = 'select'\nwait = 'epoll'";
    ppoll_for_files_uring_for_sockets: "select × native × pipe, shared",
        "provider = 'select'\noperations = ['read-file', 'write-file']
        [[processor]]\nprovider = 'uring'";
    posix_suspend_for_files_epoll_for_sockets: "posix × native × pipe, shared",
        "provider = 'posix'\n[[processor]]\nprovider = 'select'\nwait = 'epoll'";
    posix_sigwait_for_files_uring_for_sockets: "posix × sigwait × pipe, dedicated",
        "provider = 'posix'\nwait = 'sigwait'\ntype = 'dedicated'
        [[processor]]\nprovider = 'uring'";
    posix_callback_for_files_ppoll_for_sockets: "posix × callback × callback, shared",
        "provider = 'posix'\nwait = 'callback'
        [[processor]]\nprovider = 'select'\ntype = 'dedicated'";
    posix_callback_for_files_linux_rt_for_sockets: "posix × callback × callback, dedicated",
        "provider = 'posix'\nwait = 'callback'\ntype = 'dedicated'
        [[processor]]\nprovider = 'select'\nwait = 'linux-rt'\ntype = 'dedicated'";
}
