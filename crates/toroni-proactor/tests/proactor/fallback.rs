//! If the kernel refuses io_uring, `auto` takes epoll and reports that, and `uring` reports the reason. The
//! refusal is a filter of system calls, as containers have it.

use crate::common::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use toroni_proactor::{
    Config, File, InterruptType, Proactor, ProcessorConfig, ProcessorType, ProviderType,
    SetupError, Stream, WaitType,
};

#[test]
fn auto_takes_epoll_and_says_so() {
    alone("fallback::auto_takes_epoll_and_says_so", || {
        let proactor = Proactor::new(&Config::default()).unwrap();
        assert_eq!(proactor.effective()[0].config.provider, ProviderType::Combined);
        assert!(proactor.effective()[0].notes.is_empty());

        refuse(libc::SYS_io_uring_setup, Asked::Always, libc::EPERM);
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

        for provider in [ProviderType::Uring, ProviderType::Combined] {
            let config = Config::one(ProcessorConfig { provider, ..ProcessorConfig::default() });
            let error = Proactor::new(&config).unwrap_err();
            assert!(matches!(error, SetupError::System { .. }));
            assert!(error.to_string().contains("io_uring"), "{error}");
        }
    });
}

/// A proactor belongs to the process that created it.
#[test]
fn a_child_of_fork_is_refused() {
    alone("fallback::a_child_of_fork_is_refused", || {
        for provider in [ProviderType::Uring, ProviderType::Combined, ProviderType::Select] {
            let config = Config::one(ProcessorConfig { provider, ..ProcessorConfig::default() });
            let proactor = Proactor::new(&config).unwrap();
            let (stream, peer) = two_streams(&proactor);
            let (done, results) = channel();
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

/// Another thread takes descriptors over, with a lock held, while this one forks.
#[test]
fn a_child_of_fork_waits_for_no_lock_of_its_parent() {
    alone("fallback::a_child_of_fork_waits_for_no_lock_of_its_parent", || {
        let proactor = Proactor::new(&Config::default().with_shards(3)).unwrap();
        // From now on there are fewer descriptors than threads.
        proactor.handle_events(Some(std::time::Duration::ZERO));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let (socket, _peer) = UnixStream::pair().unwrap();
                    drop(Stream::new(&proactor, socket).unwrap());
                }
            });
            let statuses: Vec<i32> = (0..300)
                .map(|_| {
                    let (socket, _peer) = UnixStream::pair().unwrap();
                    // SAFETY: the child allocates a little, which the C library allows, and ends without unwinding.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        // SAFETY: the child is killed if it waits.
                        unsafe { libc::alarm(10) };
                        let is_made = Stream::new(&proactor, socket).map(std::mem::forget).is_ok();
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(i32::from(!is_made)) };
                    }
                    let mut status = -1;
                    // SAFETY: waits for the child that was made above.
                    unsafe { libc::waitpid(child, &raw mut status, 0) };
                    status
                })
                .take_while(|status| *status == 0)
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(statuses.len(), 300, "a child waited");
        });
    });
}

/// When the signal queue is full, the kernel reports that once, and the engine checks everything.
#[test]
fn a_full_queue_of_signals_loses_nothing() {
    alone("fallback::a_full_queue_of_signals_loses_nothing", || {
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
        let (done, results) = channel();
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

/// A real-time signal is refused then, and the leader is interrupted nevertheless.
#[test]
fn a_full_queue_of_signals_loses_no_interrupt() {
    alone("fallback::a_full_queue_of_signals_loses_no_interrupt", || {
        use ProviderType::{Posix, Select, Uring};
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) }, 0);
        let engines = [
            (Select, WaitType::Native),
            (Select, WaitType::Epoll),
            (Select, WaitType::LinuxRt),
            (Uring, WaitType::Native),
            (Posix, WaitType::Native),
            (Posix, WaitType::Sigwait),
            (Posix, WaitType::Callback),
        ];
        for (provider, wait) in engines {
            eprintln!("{provider:?} {wait:?}");
            let interrupt = InterruptType::Signal;
            let config =
                ProcessorConfig { provider, wait, interrupt, ..ProcessorConfig::default() };
            // A dedicated leader is interrupted for each start, and to leave.
            let dedicated = ProcessorConfig {
                processor_type: ProcessorType::Dedicated,
                start_in_any_thread: Some(false),
                ..config.clone()
            };
            for config in [config, dedicated] {
                let proactor = Proactor::new(&Config::one(config)).unwrap();
                let _crew = Crew::new(&proactor, 1);
                let directory = directory();
                let file = std::fs::File::create(directory.join("file")).unwrap();
                let file = File::new(&proactor, file).unwrap();
                let (done, results) = channel();
                for _ in 0..10 {
                    let (posted, written) = (done.clone(), done.clone());
                    proactor.post(move || posted.send(Ok(1)).unwrap()).unwrap();
                    assert_eq!(next(&results), Ok(1));
                    file.write(0, "x", move |result| written.send(result.0).unwrap()).unwrap();
                    assert_eq!(next(&results), Ok(1));
                }
            }
        }
    });
}

/// The kernel's limit of watched descriptors per user is reached, or it has no memory for one more.
fn refuse_to_watch() {
    refuse(libc::SYS_epoll_ctl, Asked::Always, libc::ENOSPC);
}

/// The first descriptor beyond the limit may be that of the interrupts.
#[test]
fn a_leader_that_cannot_hear_interrupts_looks_often() {
    alone("fallback::a_leader_that_cannot_hear_interrupts_looks_often", || {
        for provider in [ProviderType::Select, ProviderType::Combined] {
            let wait = WaitType::Epoll;
            let config = ProcessorConfig { provider, wait, ..ProcessorConfig::default() };
            let proactor = Proactor::new(&Config::one(config)).unwrap();
            let (done, results) = channel();
            let (stream, mut peer) = stream_and_peer(&proactor);
            // Something to lead for. It is watched already.
            let told = done.clone();
            stream.read(vec![0; 8], move |result| told.send(result.0).unwrap()).unwrap();
            let runs = proactor.clone();
            let leader = thread::spawn(move || {
                refuse_to_watch();
                runs.run();
            });
            for _ in 0..10 {
                let told = done.clone();
                proactor.post(move || told.send(Ok(0)).unwrap()).unwrap();
                assert_eq!(next(&results), Ok(0));
            }
            peer.write_all(b"x").unwrap();
            assert_eq!(next(&results), Ok(1));
            proactor.stop();
            until(|| leader.is_finished());
        }
    });
}

#[test]
fn a_dedicated_leader_that_cannot_hear_interrupts_comes_to_its_end() {
    alone("fallback::a_dedicated_leader_that_cannot_hear_interrupts_comes_to_its_end", || {
        let (provider, wait) = (ProviderType::Select, WaitType::Epoll);
        let processor_type = ProcessorType::Dedicated;
        let config =
            ProcessorConfig { provider, wait, processor_type, ..ProcessorConfig::default() };
        let make = || {
            // Its thread inherits that.
            refuse_to_watch();
            Proactor::new(&Config::one(config)).unwrap()
        };
        let proactor = thread::scope(|scope| scope.spawn(make).join().unwrap());
        // It waits, and sees the descriptors that are watched.
        let (stream, mut peer) = stream_and_peer(&proactor);
        stream.read(vec![0; 8], |_| {}).unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(proactor.handle_events(Some(LOST)), 1);
        let (done, ended) = channel();
        thread::spawn(move || {
            drop((stream, proactor));
            done.send(()).unwrap();
        });
        next(&ended);
    });
}
