//! Cases of the POSIX engines: lost and stray signals, and the C library's few threads.

use crate::common::*;
use std::sync::mpsc::channel;
use toroni_proactor::{
    BufResult, Config, ConfigError, File, InterruptType, Proactor, ProcessorConfig, ProcessorType,
    ProviderType, SetupError, StartError, WaitType,
};

fn posix(wait: WaitType, processor_type: ProcessorType) -> ProcessorConfig {
    let provider = ProviderType::Posix;
    ProcessorConfig { provider, wait, processor_type, ..ProcessorConfig::default() }
}

/// Reads single bytes of a file, several at the same time.
fn works(proactor: &Proactor, rounds: usize) {
    let directory = directory();
    let content = pattern(100);
    std::fs::write(directory.join("file"), &content).unwrap();
    let file = std::fs::File::open(directory.join("file")).unwrap();
    let file = File::new(proactor, file).unwrap();
    let (done, results) = channel();
    for _ in 0..rounds {
        for byte in [3, 50, 99] {
            let done = done.clone();
            let tell = move |BufResult(result, buffer)| done.send((byte, result, buffer)).unwrap();
            file.read(byte as u64, vec![0; 1], tell).unwrap();
        }
        for _ in 0..3 {
            let (byte, result, buffer): (usize, _, Vec<u8>) = next(&results);
            assert_eq!((result, &buffer[..]), (Ok(1), &content[byte..=byte]));
        }
    }
}

fn each_type(test: impl Fn(ProcessorType)) {
    [ProcessorType::Shared, ProcessorType::Dedicated].into_iter().for_each(test);
}

/// The C library reports nothing when the queue is full: the leader checks by itself.
#[test]
fn a_full_queue_of_signals_loses_no_operation() {
    alone("posix::a_full_queue_of_signals_loses_no_operation", || {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) }, 0);
        each_type(|processor_type| {
            for interrupt in [InterruptType::Pipe, InterruptType::Signal] {
                let config =
                    ProcessorConfig { interrupt, ..posix(WaitType::Sigwait, processor_type) };
                let proactor = Proactor::new(&Config::one(config)).unwrap();
                let _crew = Crew::new(&proactor, 1);
                works(&proactor, 3);
            }
        });
    });
}

/// If all other threads block the signal, all signals reach the leader with their values.
#[test]
fn a_signal_that_all_threads_block_goes_to_the_leader() {
    alone("posix::a_signal_that_all_threads_block_goes_to_the_leader", || {
        let number = libc::SIGRTMIN() + 5;
        // The harness's main thread blocks no signal, until a handler in it changes that.
        extern "C" fn block_in_caller(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: the context of a handler is a ucontext_t; its mask is what holds after the handler.
            unsafe {
                let mask = &raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask;
                libc::sigaddset(mask, libc::SIGRTMIN() + 5);
            }
        }
        // SAFETY: the handler takes three arguments, as SA_SIGINFO says; the main thread lives.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                block_in_caller;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::getpid(), libc::SIGUSR2);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, number);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        let blocks = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("SigBlk:")).unwrap();
            let bits = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
            bits >> (number - 1) & 1 == 1
        };
        until(blocks);
        each_type(|processor_type| {
            let config = ProcessorConfig {
                wait_signal: Some(number),
                ..posix(WaitType::Sigwait, processor_type)
            };
            let proactor = Proactor::new(&Config::one(config)).unwrap();
            let _crew = Crew::new(&proactor, 1);
            works(&proactor, 100);
        });
    });
}

/// Two proactors use the same signal, so each receives signals of the other.
#[test]
fn a_signal_may_be_shared() {
    each_type(|processor_type| {
        let config = Config::one(posix(WaitType::Sigwait, processor_type));
        let proactors = [Proactor::new(&config).unwrap(), Proactor::new(&config).unwrap()];
        let _crews: Vec<_> = proactors.iter().map(|proactor| Crew::new(proactor, 1)).collect();
        std::thread::scope(|scope| {
            for proactor in &proactors {
                scope.spawn(|| works(proactor, 300));
            }
        });
    });
}

/// Any process may send a signal with a value that identifies nothing.
#[test]
fn a_stranger_may_send_the_signal() {
    alone("posix::a_stranger_may_send_the_signal", || {
        each_type(|processor_type| {
            let config = posix(WaitType::Sigwait, processor_type);
            let proactor = Proactor::new(&Config::one(config)).unwrap();
            let number = proactor.effective()[0].config.wait_signal.unwrap();
            let _crew = Crew::new(&proactor, 1);
            for value in [0usize, 1, 1 << 40, usize::MAX, usize::MAX >> 8, 77 << 56] {
                // SAFETY: a siginfo_t as the kernel lays it out: number, errno, code, and at 16 the sender
                // and at 24 the value. The C library's own signals look like this.
                unsafe {
                    let mut info = [0u64; 16];
                    info[0] = u64::from(number.unsigned_abs());
                    info[1] = u64::from(libc::SI_ASYNCIO.cast_unsigned());
                    info[3] = value as u64;
                    let pid = libc::getpid();
                    let sent = libc::syscall(libc::SYS_rt_sigqueueinfo, pid, number, info.as_ptr());
                    assert_eq!(sent, 0);
                }
                works(&proactor, 3);
            }
        });
    });
}

#[test]
fn a_signal_with_a_handler_of_the_program_is_refused() {
    alone("posix::a_signal_with_a_handler_of_the_program_is_refused", || {
        extern "C" fn handler(_: i32) {}
        let number = libc::SIGRTMIN() + 3;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(number, handler as extern "C" fn(i32) as usize) };
        let error = Proactor::new(&Config::one(posix(WaitType::Sigwait, ProcessorType::Shared)))
            .unwrap_err();
        assert!(
            matches!(error, SetupError::Config(ConfigError::TakenSignal { number: n }) if n == number)
        );
        assert!(error.to_string().contains("wait-signal"), "{error}");
        let number = libc::SIGUSR1;
        let config = ProcessorConfig {
            wait_signal: Some(number),
            ..posix(WaitType::Sigwait, ProcessorType::Shared)
        };
        let error = Proactor::new(&Config::one(config)).unwrap_err();
        assert!(
            matches!(error, SetupError::Config(ConfigError::WaitSignal { number: n }) if n == number)
        );
    });
}

/// Otherwise operations of files would wait for reads of pipes that never end.
#[test]
fn interrupts_leave_threads_to_operations() {
    alone("posix::interrupts_leave_threads_to_operations", || {
        let with = |interrupt| {
            let config = posix(WaitType::Native, ProcessorType::Dedicated);
            Proactor::new(&Config::one(ProcessorConfig { interrupt, ..config }))
        };
        let mut many = Vec::new();
        let error = loop {
            match with(InterruptType::Pipe) {
                Ok(proactor) => many.push(proactor),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SetupError::Config(ConfigError::HelperThreads { most: 16 })));
        assert!(error.to_string().contains("signal"), "{error}");
        assert_eq!(many.len(), 16);
        let _crews: Vec<_> = many.iter().map(|proactor| Crew::new(proactor, 1)).collect();
        // The reads are in progress, and threads are left for operations.
        many.iter().for_each(|proactor| works(proactor, 2));
        let other = with(InterruptType::Signal).unwrap();
        let _crew = Crew::new(&other, 1);
        works(&other, 2);
        drop(_crews);
        drop(many);
        assert!(with(InterruptType::Pipe).is_ok(), "they are free again");
    });
}

#[test]
fn what_is_no_file_wants_a_second_processor() {
    let config = posix(WaitType::Callback, ProcessorType::Shared);
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let effective = &proactor.effective()[0];
    assert_eq!(effective.config.interrupt, InterruptType::Callback);
    assert!(effective.notes.is_empty(), "{effective}");
    let (stream, _peer) = stream_and_peer(&proactor);
    let refused = stream.read(vec![5; 3], |_| {}).unwrap_err();
    assert!(matches!(refused.error, StartError::Unsupported { .. }));
    assert!(refused.to_string().contains("secondary"), "{refused}");
    assert_eq!(refused.buffer, [5; 3]);
}

#[test]
fn what_does_not_fit_is_replaced() {
    let config = ProcessorConfig {
        interrupt: InterruptType::Callback,
        start_interrupts_leader: Some(false),
        max_operations: Some(1 << 20),
        ..posix(WaitType::Epoll, ProcessorType::Shared)
    };
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let effective = &proactor.effective()[0];
    let config = &effective.config;
    assert_eq!((config.wait, config.interrupt), (WaitType::Native, InterruptType::Pipe));
    assert_eq!(config.start_interrupts_leader, Some(true), "a list is waited for");
    assert_eq!(config.max_operations, Some(1024));
    let said = effective.to_string();
    for about in ["posix × native × pipe", "Epoll", "callback", "interrupts the leader"] {
        assert!(said.contains(about), "{about}: {said}");
    }
}
