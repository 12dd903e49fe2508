//! The examples as processes, with third-party clients: curl, wrk, ab and iperf3, on every engine.
//!
//! By default, engines marked `Always` run: they cover each pair of settings, and a test below checks that. The tests of
//! the others are ignored: `-- --ignored` runs these, `-- --include-ignored` all.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../common/mod.rs"]
mod common;
mod http;
mod message;
mod process;
mod proxy;

use common::pairs;
use std::collections::BTreeSet;

/// Whether the tests of an engine run by default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Always,
    Asked,
}

macro_rules! clients {
    ($name:ident: $groups:tt $($module:ident: $runs:ident, $effective:literal, $configuration:literal;)*) => {
        $(mod $module {
            pub(crate) const ENGINE: super::process::Engine =
                super::process::Engine { effective: $effective, configuration: $configuration };
            clients!(@groups $runs $groups);
        })*
        /// What each engine is, and whether it runs by default.
        const $name: &[(&str, Runs)] = &[$(($effective, Runs::$runs)),*];
    };
    (@groups $runs:ident [$($group:ident)*]) => { $(clients!(@$group $runs);)* };
    (@http $runs:ident) => {
        clients!(@tests $runs http: curl_gets_the_same_bytes requests_in_a_row_and_in_pieces
            a_half_closed_client_is_answered what_is_refused_and_how aborted_clients_leak_nothing
            too_many_connections_are_refused_with_an_answer who_takes_too_long_is_left
            wrk_and_ab_have_no_complaints);
    };
    (@proxy $runs:ident) => {
        clients!(@tests $runs proxy: both_directions_end_by_themselves no_server_behind_it
            slow_readers_make_writers_wait one_too_many_is_closed silence_ends_a_connection
            iperf3_sessions_pass);
    };
    (@tests $runs:ident $group:ident: $($test:ident)*) => {
        $(clients!(@test $runs $group $test);)*
    };
    (@test Always $group:ident $test:ident) => {
        #[test] fn $test() { super::$group::$test(ENGINE) }
    };
    (@test Asked $group:ident $test:ident) => {
        #[test]
        #[ignore = "not of the selection that runs by default: cargo test --test clients -- --ignored"]
        fn $test() { super::$group::$test(ENGINE) }
    };
}

clients! {
    ONE: [http proxy]
    select_ppoll_pipe_shared: Asked, "select × native × pipe, shared",
        "provider = 'select'\ninterrupt = 'pipe'";
    select_ppoll_signal_shared: Asked, "select × native × signal, shared",
        "provider = 'select'\ninterrupt = 'signal'";
    select_ppoll_eventfd_shared: Always, "select × native × eventfd, shared",
        "provider = 'select'\ninterrupt = 'eventfd'";
    select_ppoll_pipe_dedicated: Asked, "select × native × pipe, dedicated",
        "provider = 'select'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_ppoll_signal_dedicated: Asked, "select × native × signal, dedicated",
        "provider = 'select'\ninterrupt = 'signal'\ntype = 'dedicated'";
    select_ppoll_eventfd_dedicated: Asked, "select × native × eventfd, dedicated",
        "provider = 'select'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    select_epoll_pipe_shared: Always, "select × epoll × pipe, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'pipe'";
    select_epoll_signal_shared: Asked, "select × epoll × signal, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'signal'";
    select_epoll_eventfd_shared: Asked, "select × epoll × eventfd, shared",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'eventfd'";
    select_epoll_pipe_dedicated: Asked, "select × epoll × pipe, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_epoll_signal_dedicated: Asked, "select × epoll × signal, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'signal'\ntype = 'dedicated'";
    select_epoll_eventfd_dedicated: Asked, "select × epoll × eventfd, dedicated",
        "provider = 'select'\nwait = 'epoll'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    select_linux_rt_pipe: Always, "select × linuxrt × pipe, dedicated",
        "provider = 'select'\nwait = 'linux-rt'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    select_linux_rt_signal: Always, "select × linuxrt × signal, dedicated",
        "provider = 'select'\nwait = 'linux-rt'\ninterrupt = 'signal'\ntype = 'dedicated'";
    combined_pipe_shared: Asked, "combined × epoll × pipe, shared",
        "provider = 'combined'\ninterrupt = 'pipe'";
    combined_signal_shared: Asked, "combined × epoll × signal, shared",
        "provider = 'combined'\ninterrupt = 'signal'";
    combined_eventfd_shared: Always, "combined × epoll × eventfd, shared",
        "provider = 'combined'\ninterrupt = 'eventfd'";
    combined_pipe_dedicated: Always, "combined × epoll × pipe, dedicated",
        "provider = 'combined'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    combined_signal_dedicated: Always, "combined × epoll × signal, dedicated",
        "provider = 'combined'\ninterrupt = 'signal'\ntype = 'dedicated'";
    combined_eventfd_dedicated: Asked, "combined × epoll × eventfd, dedicated",
        "provider = 'combined'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
    uring_pipe_shared: Asked, "uring × native × pipe, shared",
        "provider = 'uring'\ninterrupt = 'pipe'";
    uring_signal_shared: Always, "uring × native × signal, shared",
        "provider = 'uring'\ninterrupt = 'signal'";
    uring_eventfd_shared: Asked, "uring × native × eventfd, shared",
        "provider = 'uring'\ninterrupt = 'eventfd'";
    uring_pipe_dedicated: Always, "uring × native × pipe, dedicated",
        "provider = 'uring'\ninterrupt = 'pipe'\ntype = 'dedicated'";
    uring_signal_dedicated: Asked, "uring × native × signal, dedicated",
        "provider = 'uring'\ninterrupt = 'signal'\ntype = 'dedicated'";
    uring_eventfd_dedicated: Always, "uring × native × eventfd, dedicated",
        "provider = 'uring'\ninterrupt = 'eventfd'\ntype = 'dedicated'";
}

// Files on one engine, sockets on another.
clients! {
    TWO: [http]
    uring_for_files_epoll_for_sockets: Asked, "uring × native × pipe, dedicated",
        "provider = 'uring'\ntype = 'dedicated'\noperations = ['read-file', 'write-file']
        [[processor]]\nprovider = 'select'\nwait = 'epoll'";
    ppoll_for_files_uring_for_sockets: Asked, "select × native × pipe, shared",
        "provider = 'select'\noperations = ['read-file', 'write-file']
        [[processor]]\nprovider = 'uring'";
    posix_suspend_for_files_epoll_for_sockets: Always, "posix × native × pipe, shared",
        "provider = 'posix'\n[[processor]]\nprovider = 'select'\nwait = 'epoll'";
    posix_sigwait_for_files_uring_for_sockets: Always, "posix × sigwait × pipe, dedicated",
        "provider = 'posix'\nwait = 'sigwait'\ntype = 'dedicated'
        [[processor]]\nprovider = 'uring'";
    posix_callback_for_files_ppoll_for_sockets: Always, "posix × callback × callback, shared",
        "provider = 'posix'\nwait = 'callback'
        [[processor]]\nprovider = 'select'\ntype = 'dedicated'";
    posix_callback_for_files_linux_rt_for_sockets: Always, "posix × callback × callback, dedicated",
        "provider = 'posix'\nwait = 'callback'\ntype = 'dedicated'
        [[processor]]\nprovider = 'select'\nwait = 'linux-rt'\ntype = 'dedicated'";
}

/// Each pair of settings that some engine has, one of the selected ones has, too. Without any of these, a pair would be
/// missing.
#[test]
fn the_selection_covers_each_pair_of_settings() {
    let pairs_of = |engines: &[&str]| -> BTreeSet<_> {
        let settings = engines
            .iter()
            .map(|effective| effective.split([',', '×']).map(|setting| setting.trim().to_owned()));
        settings.flat_map(|settings| pairs(&settings.collect::<Vec<_>>())).collect()
    };
    let all: Vec<_> = ONE.iter().chain(TWO).map(|(effective, _)| *effective).collect();
    let selected = ONE.iter().chain(TWO).filter(|(_, runs)| *runs == Runs::Always);
    let selected: Vec<_> = selected.map(|(effective, _)| *effective).collect();
    let expected = pairs_of(&all);
    let missing = &expected - &pairs_of(&selected);
    assert!(all.len() == 32 && missing.is_empty(), "{missing:#?}");
    for dropped in 0..selected.len() {
        let mut rest = selected.clone();
        let dropped = rest.remove(dropped);
        assert!(expected != pairs_of(&rest), "not needed for any pair: {dropped}");
    }
}
