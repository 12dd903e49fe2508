//! Starting the workers of `src/bin/worker`, and reading what they saw.

use crate::counters::{Phase, SharedCounters};
use crate::program;
use crate::root::TempRoot;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use toroni::{Bus, BusConfig};
use toroni_testkit::{Program, order::Agreement};

/// Messages that a worker publishes in one batch, or in one burst.
pub const BUNDLE: usize = 8;

/// Streams that an inlet brings, each with messages of its own.
pub const STREAMS: u64 = 5;

/// Returns as whose the messages of a stream from elsewhere count: no worker has such a number.
#[must_use]
pub fn worker_of_stream(source: u32, stream: u64) -> u32 {
    100_000 + 100 * source + u32::try_from(stream).expect("a stream")
}

/// Name of the bus on a [`Fixture`].
pub const BUS: &str = "fixture";

/// A bus, shared counters, and the numbers of the workers on it.
#[derive(Debug)]
pub struct Fixture {
    /// Where it all is.
    pub root: TempRoot,
    /// What the test and its workers tell each other.
    pub counters: SharedCounters,
    next_id: u32,
}

/// A worker and its number among the shared counters.
pub struct Worker {
    pub id: u32,
    pub running: Program,
    report: PathBuf,
}

/// What a subscriber saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Messages that it received, each of them whole and in its place.
    pub received: u64,
    /// Messages that the bus reported as lost.
    pub lost: u64,
    /// How often it did.
    pub lapses: u64,
    /// How many messages it saw of each worker.
    pub of_worker: BTreeMap<u32, u64>,
}

impl Fixture {
    /// Creates the bus; `configure` says how.
    #[must_use]
    pub fn new(configure: impl FnOnce(BusConfig) -> BusConfig) -> Self {
        // If it has to be built, then before there is any load.
        let _ = program::path();
        Self::on(TempRoot::new(), configure)
    }

    /// As [`Self::new`], in this directory.
    #[must_use]
    pub fn on(root: TempRoot, configure: impl FnOnce(BusConfig) -> BusConfig) -> Self {
        configure(root.config()).create(BUS).expect("a new bus");
        let counters = SharedCounters::open(&root.file("counters"));
        Self { root, counters, next_id: 0 }
    }

    /// A handle of the bus for this process.
    #[must_use]
    pub fn bus(&self) -> Bus {
        self.root.config().open_existing(BUS).expect("the bus")
    }

    /// Messages that the bus has seen.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.bus().stats().expect("statistics").sequence
    }

    /// Starts a worker in a role of `src/bin/worker/main.rs`, with options `key=value`.
    pub fn start(&mut self, role: &str, options: &[&str]) -> Worker {
        self.start_with(&[], role, options, |_| {})
    }

    /// As [`Self::start`], through a program that runs another: these words stand in front of the
    /// worker's.
    pub fn start_through(&mut self, words: &[String], role: &str, options: &[&str]) -> Worker {
        self.start_with(words, role, options, |_| {})
    }

    /// As [`Self::start`], to be killed at a crash point: `name:n`.
    pub fn start_doomed(&mut self, role: &str, options: &[&str], crash: &str) -> Worker {
        self.start_with(&[], role, options, |command| {
            command.env("TORONI_CRASH", crash);
        })
    }

    /// As [`Self::start`], after `prepare` has had the command.
    pub fn start_prepared(
        &mut self,
        role: &str,
        options: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Worker {
        self.start_with(&[], role, options, prepare)
    }

    /// Starts a worker that is ready when this returns.
    pub fn start_ready(&mut self, role: &str, options: &[&str]) -> Worker {
        let mut worker = self.start(role, options);
        worker.running.expect("ready");
        worker
    }

    /// Tells all publishers to stop, waits for those given, and returns how many messages the bus has
    /// seen then.
    pub fn stop_publishers(&self, publishers: impl IntoIterator<Item = Worker>) -> u64 {
        self.counters.set_phase(Phase::Stop);
        for publisher in publishers {
            let said = publisher.running.succeed();
            assert!(said.contains("published"), "{said}");
        }
        self.messages()
    }

    /// Tells all subscribers to end after `messages` messages of the bus, and returns what those given
    /// saw. All must have seen one order, which is taken into `order`.
    pub fn finish_subscribers(
        &self,
        messages: u64,
        subscribers: impl IntoIterator<Item = Worker>,
        order: &mut Agreement,
    ) -> Vec<Seen> {
        self.counters.set_end(messages);
        let mut all = Vec::new();
        for subscriber in subscribers {
            let (id, report) = (subscriber.id, subscriber.report.clone());
            all.push(Seen::parse(&subscriber.running.succeed()));
            take_report(id, &report, order);
        }
        all
    }

    fn start_with(
        &mut self,
        words: &[String],
        role: &str,
        options: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Worker {
        let id = self.next_id;
        self.next_id += 1;
        let report = self.root.file(&format!("report-{id}"));
        let worker = path();
        let mut command = match words {
            [] => Command::new(worker),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(worker);
                command
            }
        };
        command
            .arg(role)
            .arg(format!("dir={}", self.root.buses().display()))
            .arg(format!("bus={BUS}"))
            .arg(format!("counters={}", self.root.file("counters").display()))
            .arg(format!("report={}", report.display()))
            .arg(format!("id={id}"))
            .args(options)
            .env_remove("TORONI_CRASH")
            .env_remove("TORONI_SLEEP")
            .env_remove("TORONI_JITTER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        prepare(&mut command);
        Worker { id, running: Program::start(command), report }
    }
}

impl Worker {
    /// Kills it with SIGKILL, reaps it, and takes its report of the order.
    pub fn kill(mut self, order: &mut Agreement) {
        self.running.kill();
        take_report(self.id, &self.report, order);
    }
}

impl Seen {
    fn parse(text: &str) -> Self {
        let mut seen = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| -> u64 {
                let word = words.get(at).and_then(|word| word.parse().ok());
                word.unwrap_or_else(|| panic!("no number at {at} in {line:?}"))
            };
            match words.first() {
                Some(&"worker") => {
                    let worker = u32::try_from(number(1)).expect("a worker's number");
                    seen.of_worker.insert(worker, number(2));
                }
                Some(&"received") => {
                    (seen.received, seen.lost, seen.lapses) = (number(1), number(3), number(5));
                }
                _ => {}
            }
        }
        seen
    }
}

/// The worker program, which cargo builds for the tests of this crate.
#[must_use]
pub fn path() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    let profile = test.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    profile.expect("a folder of the profile").join("toroni-test-worker")
}

fn take_report(id: u32, report: &std::path::Path, order: &mut Agreement) {
    // One that was killed early has none.
    let text = std::fs::read_to_string(report).unwrap_or_default();
    for line in text.lines() {
        let words = line.split_once(' ').expect("window and sum");
        let (window, sum) = (words.0.parse().expect("a window"), words.1.parse().expect("a sum"));
        if let Err(error) = order.take(&format!("worker {id}"), window, sum) {
            panic!("{error}");
        }
    }
}
