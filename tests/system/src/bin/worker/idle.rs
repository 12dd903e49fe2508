//! `idle`: waits for a message that does not come, and measures what that costs.

use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use toroni::WaitStrategy;

pub(crate) fn run(options: &Options) {
    let bus = options.bus();
    let wait = if options.or("block", false) { WaitStrategy::Block } else { WaitStrategy::Backoff };
    let publisher = bus.publisher("never").expect("a publisher");
    let mut subscriber = bus.subscriber().pattern("**").wait(wait).build().expect("a subscriber");
    let by_poll = options.or("poll", false);
    if by_poll {
        subscriber.enable_fd().expect("a descriptor");
    }
    let mut idle = |time: Duration| {
        if by_poll {
            assert!(subscriber.try_receive().expect("received").is_none());
            let fd = subscriber.as_fd();
            let timeout = Timespec::try_from(time).expect("a time");
            assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)), Ok(0));
        } else {
            assert!(subscriber.receive_timeout(time).expect("a wait").is_none());
        }
    };
    // Opening, and the first looks, cost more than waiting.
    idle(Duration::from_millis(options.get("warm_ms")));
    for _ in 0..options.get("rounds") {
        let (cpu, wall) = (cpu_time(), Instant::now());
        idle(Duration::from_millis(options.get("round_ms")));
        let (cpu, wall) = (cpu_time() - cpu, wall.elapsed());
        println!("cpu_us {} wall_us {}", cpu.as_micros(), wall.as_micros());
        if cpu * 1000 < wall {
            break;
        }
    }
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc").count();
    drop(publisher);
    println!("threads {threads}");
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for the answer, and any bits are a valid `rusage`.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        let us = time.tv_sec * 1_000_000 + time.tv_usec;
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
