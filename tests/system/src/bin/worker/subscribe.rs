//! `subscribe`: receives up to the end that the shared counters state, and checks every message.
//!
//! `how`: one of the ways of `ways.rs`. It writes the digest of each complete window to the file `report`.

use crate::ways::{ANY_ENGINE, Receiver, Sink, Wish};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use system_tests::Random;
use system_tests::check::Stream;
use system_tests::counters::{Phase, SharedCounters};
use system_tests::options::Options;
use system_tests::soak::verifier::Delivery;
use system_tests::worker::worker_of_stream;
use toroni::{Lost, Origin, ReceiveError, Start, WaitStrategy};

/// Messages between two looks at the reports.
const REPORT_EVERY: u64 = 512;

pub(crate) fn run(options: &Options) {
    let bus = options.bus();
    let wait = wait_strategy(&options.or("wait", "backoff".to_owned()));
    let start = if options.or("oldest", false) { Start::Oldest } else { Start::Latest };
    let engine: String = options.or("engine", ANY_ENGINE.to_owned());
    let wish = Wish {
        patterns: &["**"],
        start,
        gating: options.or("gating", true),
        wait,
        engine: &engine,
        beside: options.or("beside", 0),
    };
    let how: String = options.or("how", "receive".to_owned());
    let mut receiver = Receiver::open(&bus, &how, &wish).expect("a subscriber");
    let report = options.find::<PathBuf>("report");
    let mut receiving = Receiving {
        id: options.get("id"),
        counters: options.counters(),
        stream: Stream::default(),
        report: report.map(|path| File::create(path).expect("a report")),
        last: None,
        laziness: Laziness::new(options),
    };
    println!("ready");
    while !receiving.is_over(&receiver) {
        match receiver.step(&mut receiving) {
            Ok(()) => {}
            Err(ReceiveError::Lapped { lost_messages, .. }) => receiving.stream.lose(lost_messages),
            Err(ReceiveError::Lost(lost)) => receiving.take_loss(&lost),
            Err(error) => panic!("{error}"),
        }
    }
    receiving.finish(&receiver);
}

pub(crate) fn wait_strategy(word: &str) -> WaitStrategy {
    match word {
        "spin" => WaitStrategy::Spin,
        "yield" => WaitStrategy::Yield,
        "backoff" => WaitStrategy::Backoff,
        "block" => WaitStrategy::Block,
        wait => panic!("no strategy {wait:?}"),
    }
}

struct Receiving {
    id: u32,
    counters: SharedCounters,
    stream: Stream,
    report: Option<File>,
    last: Option<Instant>,
    laziness: Laziness,
}

impl Sink for Receiving {
    fn take(&mut self, delivery: &Delivery<'_>) {
        if let Err(error) = self.stream.take(delivery.sequence, delivery.payload) {
            panic!("{error}");
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.counters.add_stall(self.id, now - last);
        }
        self.counters.set_count(self.id, self.stream.received());
        if self.stream.received().is_multiple_of(REPORT_EVERY) {
            self.write_report();
        }
        self.laziness.idle();
    }

    /// There was no message. While publishers pause, none is missed.
    fn nothing(&mut self) {
        if self.counters.phase() != Phase::Run {
            self.last = None;
        }
    }
}

impl Receiving {
    /// A message was lost on its way to this bus. It counts as received: it is a record.
    fn take_loss(&mut self, lost: &Lost) {
        let Lost { from: Origin { source, stream, number, .. }, until, .. } = *lost;
        assert_eq!((until, lost.messages), (number + 1, 1), "{lost:?}");
        let worker = worker_of_stream(source, stream.into());
        if let Err(error) = self.stream.take_loss(worker, number) {
            panic!("{error}");
        }
        self.counters.set_count(self.id, self.stream.received());
    }

    fn is_over(&self, receiver: &Receiver) -> bool {
        let Some(end) = self.counters.end() else { return false };
        match self.stream.next_sequence() {
            Some(next) => next >= end,
            // Nothing came since it joined.
            None => receiver.lag_bytes() == 0,
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

    fn finish(&mut self, receiver: &Receiver) {
        self.write_report();
        let mut counts: Vec<_> = self.stream.counts().iter().collect();
        counts.sort();
        for (worker, count) in counts {
            println!("worker {worker} {count}");
        }
        let (stream, lapses) = (&self.stream, receiver.lapses());
        println!("received {} lost {} lapses {lapses}", stream.received(), stream.lost());
    }
}

/// A subscriber that does something else now and then, and lags.
pub(crate) struct Laziness {
    /// About once in this number of messages; 0 is never.
    every: u64,
    longest_us: u64,
    random: Random,
}

impl Laziness {
    pub(crate) fn new(options: &Options) -> Self {
        let random = Random::new(options.or("seed", 1));
        Self { every: options.or("lazy_every", 0), longest_us: options.or("lazy_us", 1000), random }
    }

    pub(crate) fn idle(&mut self) {
        if self.every > 0 && self.random.between(0, self.every) == 0 {
            let us = self.random.between(0, self.longest_us);
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
