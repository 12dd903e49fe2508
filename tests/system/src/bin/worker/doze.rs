//! `doze`: a subscriber that sleeps before each message, and reports late messages and why they were late.
//!
//! It subscribes to `pattern`, by default to everything.
//!
//! `how`: `receive` (a blocking call), `poll` (its descriptor, without a limit) or `proactor` (served by one). Prints
//! `late ROUND LATENCY_US WAITED_FOR_A_CORE_US` for each message that took longer than `late_ms`.

use crate::options::Options;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use system_tests::wake::{Stamp, now_ns};
use toroni::{Subscriber, WaitStrategy};

pub(crate) fn run(options: &Options) {
    let (bus, counters, id) = (options.bus(), options.counters(), options.get("id"));
    let wait = match options.or("wait", "block".to_owned()).as_str() {
        "backoff" => WaitStrategy::Backoff,
        _ => WaitStrategy::Block,
    };
    let pattern = options.or("pattern", "**".to_owned());
    let mut subscriber =
        bus.subscriber().pattern(&pattern).wait(wait).build().expect("a subscriber");
    let how = options.or("how", "receive".to_owned());
    if how == "poll" || options.or("fd", false) {
        subscriber.enable_fd().expect("a descriptor");
    }
    let mut next: Box<dyn FnMut() -> Vec<u8>> = match how.as_str() {
        "proactor" => served(options, subscriber),
        "poll" => Box::new(move || by_poll(&mut subscriber)),
        _ => Box::new(move || subscriber.receive().expect("received").payload().to_vec()),
    };
    let late_ns = options.or("late_ms", 40) * 1_000_000;
    let messages: u64 = options.get("messages");
    let cores = Cores::new();
    let mut said = std::io::stdout().lock();
    writeln!(said, "ready").expect("standard output");
    let (mut sum_ns, mut longest_ns) = (0, 0);
    for count in 1..=messages {
        let waited_before = cores.waited_ns();
        let stamp = Stamp::decode(&next());
        let latency_ns = now_ns().saturating_sub(stamp.sent_ns);
        sum_ns += latency_ns;
        longest_ns = latency_ns.max(longest_ns);
        if latency_ns > late_ns {
            let waited_us = (cores.waited_ns() - waited_before) / 1000;
            writeln!(said, "late {} {} {waited_us}", stamp.round, latency_ns / 1000)
                .expect("standard output");
        }
        counters.set_count(id, count);
    }
    writeln!(said, "mean {} longest {}", sum_ns / messages.max(1), longest_ns)
        .expect("standard output");
}

fn by_poll(subscriber: &mut Subscriber) -> Vec<u8> {
    loop {
        if let Some(message) = subscriber.try_receive().expect("received") {
            return message.payload().to_vec();
        }
        let fd = subscriber.as_fd();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// In this thread, which waits for nothing else, and without a limit.
fn served(options: &Options, subscriber: Subscriber) -> Box<dyn FnMut() -> Vec<u8>> {
    use std::sync::mpsc::channel;
    use toroni::proactor::Subscribe;

    let proactor = crate::served::proactor(&options.get::<String>("engine"));
    let (arrives, arrived) = channel();
    let handler = move |message: Result<toroni::Message<'_>, _>, _: &_| {
        arrives.send(message.expect("received").payload().to_vec()).expect("this thread");
    };
    proactor.subscribe(subscriber, handler).expect("is served");
    Box::new(move || {
        loop {
            match arrived.try_recv() {
                Ok(payload) => return payload,
                Err(_) => drop(proactor.handle_events(None)),
            }
        }
    })
}

/// For how long this process was ready to run and had no core, as the kernel counts it
/// (Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat").
pub(crate) struct Cores(Option<File>);

impl Cores {
    pub(crate) fn new() -> Self {
        Self(File::open("/proc/self/schedstat").ok())
    }

    pub(crate) fn waited_ns(&self) -> u64 {
        let mut bytes = [0; 128];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut bytes, 0).ok());
        let text = std::str::from_utf8(&bytes[..length.unwrap_or(0)]).unwrap_or_default();
        text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }
}
