//! `subscribe`: receives until the end that the board states, and checks every message.
//!
//! `how`: `receive`, `try`, `poll` (a descriptor in poll(2)) or `borrow`. Windows of the order go to
//! the file `report` as they become complete.

use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use system_tests::Random;
use system_tests::board::{Board, Phase};
use system_tests::check::Stream;
use toroni::{ReceiveError, Start, Subscriber, WaitStrategy};

/// How long it waits for a message before it looks whether it shall end.
const SLICE: Duration = Duration::from_millis(20);
/// Messages between two looks at the reports.
const REPORT_EVERY: u64 = 512;

pub(crate) fn run(options: &Options) {
    let bus = options.bus();
    let wait = match options.or("wait", "backoff".to_owned()).as_str() {
        "spin" => WaitStrategy::Spin,
        "yield" => WaitStrategy::Yield,
        "backoff" => WaitStrategy::Backoff,
        "block" => WaitStrategy::Block,
        wait => panic!("no strategy {wait:?}"),
    };
    let start = if options.or("oldest", false) { Start::Oldest } else { Start::Latest };
    let builder = bus.subscriber().pattern("**").wait(wait).start(start);
    let mut subscriber = builder.gating(options.or("gating", true)).build().expect("a subscriber");
    let how: String = options.or("how", "receive".to_owned());
    if how == "poll" {
        subscriber.enable_fd().expect("a descriptor");
    }
    let report = options.find::<PathBuf>("report");
    let mut receiving = Receiving {
        id: options.get("id"),
        board: options.board(),
        stream: Stream::default(),
        report: report.map(|path| File::create(path).expect("a report")),
        last: None,
        laziness: Laziness::new(options),
        scratch: Vec::new(),
    };
    println!("ready");
    while !receiving.is_over(&subscriber) {
        let taken = match how.as_str() {
            "receive" => receiving.by_receive(&mut subscriber),
            "try" => receiving.by_try(&mut subscriber),
            "poll" => receiving.by_poll(&mut subscriber),
            "borrow" => receiving.by_borrow(&mut subscriber),
            "run" => receiving.by_run(&mut subscriber),
            how => panic!("no way {how:?}"),
        };
        match taken {
            Ok(()) => {}
            Err(ReceiveError::Lapped { lost_messages, .. }) => receiving.stream.lose(lost_messages),
            Err(error) => panic!("{error}"),
        }
    }
    receiving.finish(&subscriber);
}

struct Receiving {
    id: u32,
    board: Board,
    stream: Stream,
    report: Option<File>,
    last: Option<Instant>,
    laziness: Laziness,
    scratch: Vec<u8>,
}

impl Receiving {
    fn by_receive(&mut self, subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
        match subscriber.receive_timeout(SLICE)? {
            Some(message) => self.take(message.sequence(), message.payload()),
            None => self.nothing(),
        }
        Ok(())
    }

    fn by_try(&mut self, subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
        match subscriber.try_receive()? {
            Some(message) => self.take(message.sequence(), message.payload()),
            None => {
                self.nothing();
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn by_poll(&mut self, subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
        while let Some(message) = subscriber.try_receive()? {
            self.take(message.sequence(), message.payload());
        }
        self.nothing();
        // A publisher that dies before it wakes leaves the descriptor quiet until the next message.
        let timeout = Timespec::try_from(SLICE).expect("a short time");
        let fd = subscriber.as_fd();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => panic!("poll: {error}"),
        }
    }

    fn by_borrow(&mut self, subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = match subscriber.borrow()? {
            None => None,
            Some(message) => {
                scratch.resize(message.payload().len(), 0);
                message.payload().copy_to(0, &mut scratch);
                Some((message.sequence(), message.validate()))
            }
        };
        match taken {
            Some((sequence, Ok(()))) => self.take(sequence, &scratch),
            // Not counted as received; the next call tells how many were lost behind it.
            Some((_, Err(_))) => self.stream.lose(1),
            None => {
                self.nothing();
                std::thread::yield_now();
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn by_run(&mut self, subscriber: &mut Subscriber) -> Result<(), ReceiveError> {
        let Some(mut run) = subscriber.receive_in_place_timeout(SLICE)? else {
            self.nothing();
            return Ok(());
        };
        let mut messages = Vec::new();
        for message in run.by_ref().take(1000) {
            let mut bytes = vec![0; message.payload().len()];
            message.payload().copy_to(0, &mut bytes);
            messages.push((message.sequence(), bytes));
        }
        // If not, all of them are told as lost.
        run.validate()?;
        messages.iter().for_each(|(sequence, bytes)| self.take(*sequence, bytes));
        Ok(())
    }

    fn take(&mut self, sequence: u64, bytes: &[u8]) {
        if let Err(error) = self.stream.take(sequence, bytes) {
            panic!("{error}");
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.board.add_stall(self.id, now - last);
        }
        self.board.set_count(self.id, self.stream.received());
        if self.stream.received().is_multiple_of(REPORT_EVERY) {
            self.write_report();
        }
        self.laziness.idle();
    }

    /// There was no message. While publishers pause, none is missed.
    fn nothing(&mut self) {
        if self.board.phase() != Phase::Run {
            self.last = None;
        }
    }

    fn is_over(&self, subscriber: &Subscriber) -> bool {
        let Some(end) = self.board.end() else { return false };
        match self.stream.next_sequence() {
            Some(next) => next >= end,
            // Nothing came since it joined.
            None => subscriber.lag_bytes() == 0,
        }
    }

    fn write_report(&mut self) {
        if let Some(report) = &mut self.report {
            let lines = self.stream.take_orders().into_iter();
            let lines: String = lines.map(|(window, sum)| format!("{window} {sum}\n")).collect();
            // In one call: a reader of the file never sees half of a line of one who was killed.
            report.write_all(lines.as_bytes()).expect("the report");
        }
    }

    fn finish(&mut self, subscriber: &Subscriber) {
        self.write_report();
        let mut counts: Vec<_> = self.stream.counts().iter().collect();
        counts.sort();
        for (worker, count) in counts {
            println!("worker {worker} {count}");
        }
        let (stream, lapses) = (&self.stream, subscriber.stats().lapses);
        println!("received {} lost {} lapses {lapses}", stream.received(), stream.lost());
    }
}

/// A subscriber that does something else now and then, and falls behind.
struct Laziness {
    /// About every so many messages; 0 is never.
    every: u64,
    longest_us: u64,
    random: Random,
}

impl Laziness {
    fn new(options: &Options) -> Self {
        let random = Random::new(options.or("seed", 1));
        Self { every: options.or("lazy_every", 0), longest_us: options.or("lazy_us", 1000), random }
    }

    fn idle(&mut self) {
        if self.every > 0 && self.random.between(0, self.every) == 0 {
            let us = self.random.between(0, self.longest_us);
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
