//! Where the kernel refuses io_uring, `auto` takes epoll and says so, and `uring` says why it does not work.
//! The refusal is a filter of system calls, as containers have it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::*;
use toroni_proactor::{Config, Proactor, ProcessorConfig, ProviderType, SetupError, WaitType};

/// From now on, `io_uring_setup` answers EPERM in this process.
fn forbid_io_uring() {
    let statement = |code: u32, yes, no, value| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: yes,
        jf: no,
        k: value,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let refused = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let mut filter = [
        statement(load, 0, 0, 0),
        statement(equal, 0, 1, refused),
        statement(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program is four valid statements that live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn auto_takes_epoll_and_says_so() {
    alone("auto_takes_epoll_and_says_so", || {
        let proactor = Proactor::new(&Config::default()).unwrap();
        assert_eq!(proactor.effective()[0].config.provider, ProviderType::Uring);
        assert!(proactor.effective()[0].notes.is_empty());

        forbid_io_uring();
        let proactor = Proactor::new(&Config::default()).unwrap();
        let effective = &proactor.effective()[0];
        assert_eq!(effective.config.provider, ProviderType::Select);
        assert_eq!(effective.config.wait, WaitType::Epoll);
        let said = effective.to_string();
        assert!(said.contains("refuses io_uring") && said.contains("not permitted"), "{said}");
        let (stream, peer) = two_streams(&proactor);
        let read = proactor.block_on(async {
            let _sent = peer.write_async("works").await;
            stream.read_async(vec![0; 8]).await
        });
        assert_eq!(read.unwrap().1, b"works");

        let provider = ProviderType::Uring;
        let config = Config::one(ProcessorConfig { provider, ..ProcessorConfig::default() });
        let error = Proactor::new(&config).unwrap_err();
        assert!(matches!(error, SetupError::System { .. }));
        assert!(error.to_string().contains("io_uring"), "{error}");
    });
}

/// A proactor belongs to the process that made it.
#[test]
fn a_child_of_fork_is_refused() {
    alone("a_child_of_fork_is_refused", || {
        for provider in [ProviderType::Uring, ProviderType::Select] {
            let config = Config::one(ProcessorConfig { provider, ..ProcessorConfig::default() });
            let proactor = Proactor::new(&config).unwrap();
            let (stream, peer) = two_streams(&proactor);
            let (done, results) = std::sync::mpsc::channel();
            stream.read(vec![0; 8], move |result| done.send(result.0).unwrap()).unwrap();
            proactor.handle_events(Some(std::time::Duration::ZERO));
            // SAFETY: this process has one more thread, the harness's main one, which waits; the child
            // allocates a little, which the C library allows, and ends without unwinding.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = peer.write("from the child", |_| {}).is_err();
                let empty = proactor.handle_events(None) == 0 && proactor.is_stopped();
                drop(stream);
                drop(proactor);
                // SAFETY: ends the child.
                unsafe { libc::_exit(if refused && empty { 0 } else { 1 }) };
            }
            let mut status = -1;
            // SAFETY: waits for the child that was made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
            // The parent's operation is still there, and works.
            peer.write("parent", |_| {}).unwrap();
            until(|| {
                proactor.handle_events(Some(std::time::Duration::from_millis(1)));
                proactor.outstanding() == 0
            });
            assert_eq!(next(&results), Ok(6));
        }
    });
}

/// When the queue of signals is full the kernel says so once, and everything is looked at.
#[test]
fn a_full_queue_of_signals_loses_nothing() {
    alone("a_full_queue_of_signals_loses_nothing", || {
        use std::io::Write;
        let few = libc::rlimit { rlim_cur: 2, rlim_max: 2 };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const few) }, 0);
        let config = ProcessorConfig {
            provider: ProviderType::Select,
            wait: WaitType::LinuxRt,
            ..ProcessorConfig::default()
        };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        assert!(proactor.effective()[0].to_string().contains("dedicated"));
        let _crew = Crew::new(&proactor, 1);
        let mut pairs: Vec<_> = (0..100).map(|_| stream_and_peer(&proactor)).collect();
        let (done, results) = std::sync::mpsc::channel();
        for _ in 0..20 {
            for (stream, _) in &pairs {
                let done = done.clone();
                stream.read(vec![0; 8], move |result| done.send(result.0).unwrap()).unwrap();
            }
            for (_, peer) in &mut pairs {
                peer.write_all(b"x").unwrap();
            }
            for _ in 0..100 {
                assert_eq!(next(&results), Ok(1));
            }
        }
    });
}
