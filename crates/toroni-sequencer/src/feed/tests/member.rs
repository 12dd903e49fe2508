//! A member without Raft, for the tests of this module.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder as Runtimes, Runtime};
use tokio::task::JoinHandle;
use toroni_testkit::{Directory, Random};

use super::super::keeper::Answers;
use super::super::*;
use crate::batch::{Batch, Builder, Command, CommandId, Open, Publish};
use crate::entry::{Entry, Payload, Place};
use crate::log::{Log, Options, Sync};
use crate::machine::{Chain, Machine};
use crate::rpc::{Fetch, Fetched, Identity, Peer, Role, Serve, Target, listen};

/// A member without Raft: what is appended is applied.
pub(super) struct Member {
    directory: Directory,
    pub(super) log: Log,
    pub(super) machine: Machine,
    pub(super) last: Option<Place>,
    pub(super) archive: Archive,
    pub(super) random: Random,
    /// Numbers of the commands of each source.
    wanted: [u64; 3],
    /// The chain before each event, and its bytes.
    pub(super) all: Vec<(Chain, Vec<u8>)>,
}

pub(super) const OPTIONS: Options = Options { segment_bytes: 8 << 10, sync: Sync::OFTEN };

impl Member {
    pub(super) fn new() -> Self {
        let directory = Directory::below("/dev/shm");
        let log = Log::open(&directory.join("log"), OPTIONS).expect("a new log");
        let machine = Machine::new();
        let archive = Archive::open(log.clone(), &machine, None).expect("opened");
        let random = Random::from_environment();
        Self { directory, log, machine, last: None, archive, random, wanted: [0; 3], all: vec![] }
    }

    /// Appends an entry, with commands that become events and others that do not.
    pub(super) fn append(&mut self) {
        let mut builder = Builder::new();
        for (source, wanted) in (0_u32..).zip(&mut self.wanted) {
            let open = Command::Open(Open {
                source,
                series: 9,
                session: 1,
                bus: [3; 16],
                earlier: Some(&[]),
            });
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
        self.append_batch(builder);
    }

    pub(super) fn append_batch(&mut self, builder: Builder) {
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
    pub(super) fn restart(&mut self, snapshot: (Machine, Option<Place>)) {
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

    pub(super) fn fetch(
        &self,
        runtime: &tokio::runtime::Runtime,
        from: u64,
        max_bytes: u32,
    ) -> Fetched {
        let wait = Duration::ZERO;
        let fetched =
            runtime.block_on(self.archive.fetch(Fetch { from, max_bytes, wait, series: None }));
        fetched.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Compares what is fetched from a number on with what was applied. Returns the number of the first event.
    pub(super) fn check(
        &self,
        runtime: &tokio::runtime::Runtime,
        from: u64,
        max_bytes: u32,
    ) -> u64 {
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
        let bytes: usize = events.commands().map(|(_, bytes)| bytes.len()).sum();
        let is_short = bytes <= usize::try_from(max_bytes).expect("a small number");
        assert!(is_short || events.count() == 1, "{bytes} bytes instead of {max_bytes}");
        for ((_, found), (_, expected)) in events.commands().zip(&self.all[at..]) {
            assert_eq!(found, expected);
        }
        fetched.first
    }
}

pub(super) fn runtime() -> Runtime {
    Runtimes::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A port at which an archive is served, until it is dropped.
pub(super) struct Served {
    pub(super) target: Target,
    task: JoinHandle<()>,
}

impl Served {
    pub(super) fn start(runtime: &Runtime, archive: &Archive) -> Self {
        Self::with(runtime, Arc::new(Answers(archive.clone())))
    }

    pub(super) fn with(runtime: &Runtime, serve: Arc<dyn Serve>) -> Self {
        let _inside = runtime.enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("bound").to_string();
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let own = Peer { log: [1; 16], id: 0 };
        let identity = Identity { feed: [9; 16], keys: None, own, listed: vec![] };
        let task = runtime.spawn(listen(listener, identity, serve, runtime.handle().clone()));
        Self { target: target(address), task }
    }
}

impl Served {
    /// Answers no more. Its port stays its own until it is dropped.
    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

/// A member at this address.
pub(super) fn target(address: String) -> Target {
    let role = Role::Follower { source: None };
    Target { address, feed: [9; 16], keys: None, role, log: None, bind: None }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}
