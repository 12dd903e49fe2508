//! An archive beside a log, against a list of all events.

use std::time::Duration;

use toroni_testkit::{Directory, Random};

use super::super::*;
use crate::batch::{Batch, Builder, Command, CommandId, Open, Publish};
use crate::entry::{Entry, Payload, Place};
use crate::log::{Log, Options, Sync};
use crate::machine::{Chain, Machine};
use crate::rpc::{Fetch, Fetched};

/// A member without Raft: what is appended is applied.
struct Member {
    directory: Directory,
    log: Log,
    machine: Machine,
    last: Option<Place>,
    archive: Archive,
    random: Random,
    /// Numbers of the commands of each source.
    wanted: [u64; 3],
    /// The chain before each event, and its bytes.
    all: Vec<(Chain, Vec<u8>)>,
}

const OPTIONS: Options = Options { segment_bytes: 8 << 10, sync: Sync::Interval };

impl Member {
    fn new() -> Self {
        let directory = Directory::below("/dev/shm");
        let log = Log::open(&directory.join("log"), OPTIONS).expect("a new log");
        let machine = Machine::new();
        let archive = Archive::open(log.clone(), &machine, None).expect("opened");
        let random = Random::from_environment();
        Self { directory, log, machine, last: None, archive, random, wanted: [0; 3], all: vec![] }
    }

    /// Appends an entry, with commands that become events and others that do not.
    fn append(&mut self) {
        let mut builder = Builder::new();
        for (source, wanted) in (0_u32..).zip(&mut self.wanted) {
            let open = Command::Open(Open { source, series: 9, session: 1, bus: [3; 16] });
            builder.push(&open).expect("short");
            for _ in 0..self.random.below(4) {
                // The one before is a duplicate, the one after is refused.
                let number = (*wanted + self.random.below(3)).saturating_sub(1);
                let text = "x".repeat(usize::try_from(self.random.below(300)).expect("short"));
                let id = CommandId { source, series: 9, number };
                let payload = text.as_bytes();
                let publish = Publish { id, to_descendants: false, topic: "t", payload };
                builder.push(&Command::Publish(publish)).expect("short");
                *wanted += u64::from(number == *wanted);
            }
        }
        let bytes = builder.finish().expect("commands");
        let index = self.last.map_or(0, |last| last.index + 1);
        let place = Place { term: 1, leader: 0, index };
        let payload = Payload::Batch(bytes.clone().into());
        self.log.append([Entry { place, payload }], |_| {}).expect("room");
        self.apply(place, &bytes);
    }

    fn apply(&mut self, place: Place, bytes: &[u8]) {
        let mut chain = self.machine.chain();
        let mut applying = Applying::begin(&self.machine);
        let all = &mut self.all;
        let batch = Batch::check(bytes).expect("a batch");
        applying.apply(
            &mut self.machine,
            batch,
            |event| {
                let mut bytes = vec![];
                event.command.encode(&mut bytes).expect("short");
                let before = chain;
                assert_eq!(chain.append(event.command, &bytes), event);
                if event.number == all.len() as u64 {
                    all.push((before, bytes));
                }
            },
            |_| {},
        );
        self.last = Some(place);
        self.archive.applied(applying, &self.machine, place, bytes.len());
    }

    /// Starts again, with the snapshot that a member would have had, and applies what follows.
    fn restart(&mut self, snapshot: (Machine, Option<Place>)) {
        self.log.close().expect("closed");
        self.log = Log::open(&self.directory.join("log"), OPTIONS).expect("the same log");
        (self.machine, self.last) = snapshot;
        self.archive = Archive::open(self.log.clone(), &self.machine, self.last).expect("opened");
        let next = self.last.map_or(0, |last| last.index + 1);
        for entry in self.log.read(next..u64::MAX, usize::MAX).expect("readable") {
            let Payload::Batch(bytes) = entry.payload else { panic!("there are batches only") };
            self.apply(entry.place, &bytes);
        }
    }

    fn fetch(&self, runtime: &tokio::runtime::Runtime, from: u64, max_bytes: u32) -> Fetched {
        let wait = Duration::ZERO;
        let fetched = runtime.block_on(self.archive.fetch(Fetch { from, max_bytes, wait }));
        fetched.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Compares what is fetched from a number on with what was applied. Returns the number of the first event.
    fn check(&self, runtime: &tokio::runtime::Runtime, from: u64, max_bytes: u32) -> u64 {
        let fetched = self.fetch(runtime, from, max_bytes);
        assert_eq!(fetched.now, self.machine.chain());
        let Some(events) = fetched.events else {
            assert!(from < fetched.first || from > self.machine.next(), "{from} is there");
            return fetched.first;
        };
        let at = usize::try_from(from).expect("a small number");
        let before = self.all.get(at).map_or(self.machine.chain(), |(before, _)| *before);
        assert_eq!(events.before(), before, "before {from}");
        assert_eq!(events.is_empty(), from == self.machine.next());
        for ((_, found), (_, expected)) in events.commands().zip(&self.all[at..]) {
            assert_eq!(found, expected);
        }
        fetched.first
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn any_event_that_the_log_has_is_found_by_its_number() {
    let runtime = runtime();
    let mut member = Member::new();
    let mut snapshot = (Machine::new(), None);
    for round in 0..300_u64 {
        member.append();
        match round % 50 {
            20 => snapshot = (member.machine.clone(), member.last),
            30 => {
                let upto = snapshot.1.expect("taken before");
                member.log.purge(upto).expect("purged");
            }
            40 => member.restart(snapshot.clone()),
            _ => {}
        }
        let from = member.random.below(member.machine.next() + 2);
        let max_bytes = u32::try_from(member.random.below(4000)).expect("short");
        let first = member.check(&runtime, from, max_bytes);
        let (purged, _) = member.log.ends();
        assert!(purged.is_some() || first == 0, "nothing was purged, and {first} is the first");
        // Sequentially, too, as a host reads that was away.
        let mut next = first;
        while next < member.machine.next() {
            let Some(events) = member.fetch(&runtime, next, 2000).events else {
                panic!("{next} is missing, and {first} the first")
            };
            member.check(&runtime, next, 2000);
            let found = events.commands().count() as u64;
            assert!(found > 0, "nothing from {next} on");
            next += found;
        }
    }
    assert!(member.machine.next() > 300);
    assert!(member.archive.first() > 0);
}

#[test]
fn a_state_that_is_damaged_or_of_another_log_is_not_believed() {
    let runtime = runtime();
    let mut member = Member::new();
    (0..200).for_each(|_| member.append());
    let states = member.log.directory().join("states");
    let files = || {
        let files = std::fs::read_dir(&states).expect("a directory");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    };
    let found = files();
    assert!(found.len() > 2, "{}", found.len());
    for (at, path) in found.iter().enumerate() {
        let mut bytes = std::fs::read(path).expect("readable");
        // In the log's id, in the place, in the machine; or torn.
        match at % 4 {
            0 => bytes[9] ^= 1,
            1 => bytes[24] ^= 1,
            2 => bytes[70] ^= 1,
            _ => bytes.truncate(50),
        }
        std::fs::write(path, bytes).expect("written");
    }
    std::fs::write(states.join("state.tmp"), b"torn").expect("written");
    let (machine, last) = (member.machine.clone(), member.last);
    member.restart((machine, last));
    for from in 0..member.machine.next() {
        assert_eq!(member.check(&runtime, from, 100), 0);
    }
    assert_eq!(files().len(), 1, "the rest was removed: only that of the start is right");
}

#[test]
fn who_asks_for_the_next_event_waits_for_it() {
    let runtime = runtime();
    let mut member = Member::new();
    member.append();
    let archive = member.archive.clone();
    let next = member.machine.next();
    runtime.block_on(async {
        let wait = Duration::from_secs(4);
        let asked = tokio::spawn(async move {
            archive.fetch(Fetch { from: next, max_bytes: 1000, wait }).await.expect("readable")
        });
        tokio::task::yield_now().await;
        while member.machine.next() == next {
            member.append();
        }
        let events = asked.await.expect("no panic").events.expect("they follow");
        assert!(!events.is_empty());
    });
    // What is beyond the next event is nothing to wait for.
    let fetched = member.fetch(&runtime, u64::MAX, 1000);
    assert_eq!((fetched.events, fetched.now), (None, member.machine.chain()));
}
