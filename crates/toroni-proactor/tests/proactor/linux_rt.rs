//! Cases of the engine that takes signals of changes from their queue.

use crate::common::*;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::channel;
use toroni_proactor::{
    BufResult, Config, InterruptType, Proactor, ProcessorConfig, ProviderType, WaitType,
};

fn works(proactor: &Proactor) {
    let (stream, mut peer) = stream_and_peer(proactor);
    let (done, results) = channel();
    stream.read(vec![0; 8], move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
    peer.write_all(b"abc").unwrap();
    assert_eq!(next(&results), Ok(3));
}

/// Returns the threads that lead: one of each dedicated processor.
fn leaders() -> Vec<i32> {
    let number = |task: &Path| task.file_name().unwrap().to_str().unwrap().parse().unwrap();
    // A thread that ends meanwhile has no name any more.
    let leads = |task: &Path| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "toroni-proactor")
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks.filter(|task| leads(task)).map(|task| number(&task)).collect()
}

/// Sends the signal to a thread, with a number in the position of a descriptor's.
fn send(leader: i32, signal: i32, code: i32, number: i32) {
    // SAFETY: a siginfo_t as the kernel lays it out: signal, errno, code, and at 24 the value, which is where the
    // number of a descriptor is if it tells of a change.
    unsafe {
        let mut info = [0u64; 16];
        info[0] = u64::from(signal.unsigned_abs());
        info[1] = u64::from(code.cast_unsigned());
        info[3] = u64::from(number.cast_unsigned());
        let (call, process) = (libc::SYS_rt_tgsigqueueinfo, libc::getpid());
        assert_eq!(libc::syscall(call, process, leader, signal, info.as_ptr()), 0);
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Any process may send a signal with a value in the position of a descriptor's number.
#[test]
fn a_stranger_may_send_the_signal() {
    alone("linux_rt::a_stranger_may_send_the_signal", || {
        for interrupt in [InterruptType::Pipe, InterruptType::Signal] {
            let config = ProcessorConfig {
                provider: ProviderType::Select,
                wait: WaitType::LinuxRt,
                interrupt,
                ..ProcessorConfig::default()
            };
            // A thread that has been joined is listed a little longer.
            until(|| leaders().is_empty());
            let proactor = Proactor::new(&Config::one(config)).unwrap();
            let signal = proactor.effective()[0].config.wait_signal.unwrap();
            let _crew = Crew::new(&proactor, 1);
            works(&proactor);
            let [leader] = leaders()[..] else { panic!("one leads") };
            let before_kib = resident_kib();
            for code in [libc::SI_QUEUE, libc::SI_ASYNCIO] {
                for number in [0, -1, i32::MIN, 1 << 20, i32::MAX] {
                    send(leader, signal, code, number);
                    works(&proactor);
                    let grown_kib = resident_kib().saturating_sub(before_kib);
                    assert!(grown_kib < 32 << 10, "{grown_kib} KiB for {number}");
                }
            }
            // The kernel's own signal, for a descriptor that another library watches.
            let (foreign, peer) = UnixDatagram::pair().unwrap();
            let foreign = rustix::io::fcntl_dupfd_cloexec(&foreign, 900).unwrap();
            have_watched(&foreign, leader, signal);
            peer.send(b"x").unwrap();
            works(&proactor);
        }
    });
}

/// Asks the kernel to send the signal to the thread when the descriptor changes.
fn have_watched(descriptor: &OwnedFd, thread: i32, signal: i32) {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    const F_OWNER_TID: i32 = 0;
    let (number, owner) = (descriptor.as_raw_fd(), [F_OWNER_TID, thread]);
    // SAFETY: numbers, and a `struct f_owner_ex` that lives.
    unsafe {
        assert_eq!(libc::fcntl(number, F_SETOWN_EX, &raw const owner), 0);
        assert_eq!(libc::fcntl(number, F_SETSIG, signal), 0);
        assert_eq!(libc::fcntl(number, libc::F_SETFL, libc::O_ASYNC), 0);
    }
}
