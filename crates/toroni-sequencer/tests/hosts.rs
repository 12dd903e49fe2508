//! Three members, two hosts and ten senders, each a process, any of which is killed: the same events are on both hosts, and
//! every command whose event was seen is among them once.
//!
//! `TORONI_KILLS` says how many are killed, and `TORONI_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use toroni::{Bus, BusConfig, Policy, ReceiveError, Start, Subscriber};
use toroni_proto::wire::{Key, Keys};
use toroni_sequencer::commands::{Commands, Courier, CourierOptions};
use toroni_sequencer::entry::{Member, Members};
use toroni_sequencer::feed::{
    FeedStart, Follower, FollowerOptions, OnDivergence, RewindOptions, rewind,
};
use toroni_sequencer::log::Options;
use toroni_sequencer::machine;
use toroni_sequencer::raft::{Events, Group, GroupOptions, Timing, feed_id};
use toroni_sequencer::rpc::{Answer, Link, Request, Role, Status, Target};
use toroni_testkit::history::{Event, History, Id, Sent, Trace, now};
use toroni_testkit::{Directory, Process, Random, wait};

const FEED: &str = "orders";
const ROLE: &str = "TORONI_FEED_ROLE";
const ID: &str = "TORONI_FEED_ID";
const LIFE: &str = "TORONI_FEED_LIFE";
const DIRECTORY: &str = "TORONI_FEED_DIRECTORY";
const MEMBERS: &str = "TORONI_FEED_MEMBERS";
/// Where a sender writes which of its commands are events.
const SEEN: &str = "TORONI_FEED_SEEN";
const TOPIC: &str = "order/new";
const HOSTS: usize = 2;
const SENDERS: usize = 10;
/// At most this many commands of a sender wait for their events.
const BURST: usize = 10;

fn variable(name: &str) -> String {
    std::env::var(name).expect("started by the test")
}

fn number(name: &str) -> u32 {
    variable(name).parse().expect("a number")
}

fn target(address: &str) -> Target {
    let keys = Some(Keys { first: Key::new([7; 32]), next: None });
    Target {
        address: address.to_owned(),
        feed: feed_id(FEED),
        keys,
        role: Role::Follower { source: None },
        log: None,
        bind: None,
    }
}

fn targets() -> Vec<Target> {
    variable(MEMBERS).split(' ').map(target).collect()
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).capacity(1 << 20).policy(Policy::Wait { limit: None })
}

fn subscribe(bus: &Bus, start: Start) -> Subscriber {
    bus.subscriber().pattern("**").start(start).gating(true).build().expect("subscribed")
}

fn runtime() -> Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

/// Not a test: a member, host or sender, until it is killed.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    match &*variable(ROLE) {
        "member" => member(),
        "host" => host(),
        _ => sender(),
    }
}

struct Ignores;

impl Events for Ignores {
    fn event(&mut self, _: machine::Event<'_>) {}
    fn skipped(&mut self, _: u64) {}
}

fn member() {
    let id = number(ID);
    let members = targets();
    let own = &members[usize::try_from(id).expect("small")];
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind(&own.address).await.expect("the port is free");
        let _group = Group::start(GroupOptions {
            feed: FEED.to_owned(),
            id: id.into(),
            listener,
            keys: own.keys,
            listed: vec![],
            directory: variable(DIRECTORY).into(),
            log: Options::default(),
            snapshot_bytes: 256 << 10,
            retain_bytes: u64::MAX,
            timing: Timing::default(),
            events: Box::new(Ignores),
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        std::future::pending::<()>().await;
    });
}

fn host() {
    let directory = PathBuf::from(variable(DIRECTORY));
    let courier = Courier::start(CourierOptions {
        bus: BusConfig::new().directory(&directory).capacity(1 << 20),
        feed: FEED.to_owned(),
        source: number(ID),
        session: number(LIFE),
        members: targets(),
        rate: None,
        buses: Some(directory.join("buses")),
    });
    let _courier = courier.unwrap_or_else(|error| panic!("{error}"));
    let follower = Follower::start(FollowerOptions {
        bus: config(&directory),
        feed: FEED.to_owned(),
        members: targets(),
        archives: vec![],
        start: FeedStart::Oldest,
        on_divergence: OnDivergence::Stop,
        live: None,
    });
    let follower = follower.unwrap_or_else(|error| panic!("{error}"));
    while !follower.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the follower has ended: {:?}", follower.end());
}

fn sender() {
    let (id, life) = (number(ID), number(LIFE));
    let directory = PathBuf::from(variable(DIRECTORY));
    let mut seen = File::create(variable(SEEN)).expect("created");
    let bus = config(&directory).open(FEED).expect("opened");
    let mut reader = subscribe(&bus, Start::Latest);
    let config = BusConfig::new().directory(&directory).capacity(1 << 20);
    let commands = Commands::open_with(config, FEED).expect("opened");
    let mut count = 0;
    loop {
        let mut waiting = BTreeMap::new();
        for _ in 0..BURST {
            let payload = format!("{id} {life} {count}");
            let before = now();
            let sent = commands.send(TOPIC, &payload).expect("sent");
            waiting.insert(sent.number, (before, payload));
            count += 1;
        }
        while !waiting.is_empty() {
            let message = reader.receive().expect("no loss");
            if !commands.is_mine(&message) {
                continue;
            }
            let origin = message.origin().expect("a command's");
            // Others on this host send, too.
            if let Some((sent, payload)) = waiting.remove(&origin.number) {
                let event = message.number().expect("an event");
                let (sent, answered) = (sent.as_nanos(), now().as_nanos());
                let (source, series, number) = (origin.source, origin.series, origin.number);
                let line =
                    format!("{sent} {answered} {source} {series} {number} {event} {payload}\n");
                seen.write_all(line.as_bytes()).expect("written");
            }
        }
    }
}

/// A subscriber of a host, which sees everything.
struct Observer {
    seen: Arc<Mutex<Vec<Event>>>,
    count: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Observer {
    fn start(bus: Bus) -> Self {
        let (seen, count) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicU64::new(0)));
        let ends = Arc::new(AtomicBool::new(false));
        let (all, counted, ended) = (Arc::clone(&seen), Arc::clone(&count), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let mut reader = subscribe(&bus, Start::Oldest);
            while !ended.load(Ordering::Relaxed) {
                let found = match reader.receive_timeout(Duration::from_millis(50)) {
                    Ok(None) => continue,
                    Ok(Some(message)) => {
                        let origin = message.origin().expect("a command's");
                        let (source, series) = (origin.source, origin.series);
                        let id = Id { source, series, number: origin.number };
                        let event = message.number().expect("an event");
                        Event::new(event, Some(id), message.topic(), message.payload())
                    }
                    Err(ReceiveError::Lost(lost)) => panic!("{lost:?}"),
                    Err(error) => panic!("{error}"),
                };
                all.lock().expect("no panic").push(found);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { seen, count, ends, thread }
    }

    fn end(self) -> Vec<Event> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("no loss");
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }
}

/// All processes, by role and id.
struct World {
    directory: Directory,
    addresses: Vec<String>,
    running: BTreeMap<(&'static str, usize), Process>,
    lives: BTreeMap<(&'static str, usize), u32>,
}

impl World {
    fn new() -> Self {
        Self {
            directory: Directory::new(),
            addresses: (0..3).map(|_| toroni_testkit::port::free().to_string()).collect(),
            running: BTreeMap::new(),
            lives: BTreeMap::new(),
        }
    }

    fn directory_of(&self, (role, id): (&str, usize)) -> PathBuf {
        match role {
            "member" => self.directory.join(format!("log-{id}")),
            "host" => self.directory.join(format!("host-{id}")),
            _ => self.directory.join(format!("host-{}", id % HOSTS)),
        }
    }

    fn start(&mut self, who: (&'static str, usize)) {
        let life = self.lives.entry(who).or_insert(0);
        *life += 1;
        let seen = self.directory.join(format!("seen-{}-{life}", who.1));
        let child = Process::spawn(
            Command::new(std::env::current_exe().expect("the test's program"))
                .args(["--exact", "child", "--ignored", "--nocapture"])
                .env(ROLE, who.0)
                .env(ID, who.1.to_string())
                .env(LIFE, life.to_string())
                .env(MEMBERS, self.addresses.join(" "))
                .env(DIRECTORY, self.directory_of(who))
                .env(SEEN, seen)
                .stdout(Stdio::null()),
        );
        self.running.insert(who, child.expect("a child"));
    }

    fn kill(&mut self, who: (&'static str, usize)) {
        let mut process = self.running.remove(&who).expect("it runs");
        assert!(matches!(process.ended(), Ok(None)), "{who:?} has ended by itself");
        process.kill();
        process.wait_within(wait::LIMIT).expect("waited").expect("a killed process ends");
    }

    /// The commands whose events their senders have seen.
    fn sent(&self) -> Vec<Sent> {
        let mut all = vec![];
        for name in self.directory.entries().iter().filter(|name| name.starts_with("seen-")) {
            let text = fs::read_to_string(self.directory.join(name)).expect("readable");
            // The last line may have been cut by a kill.
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let words: Vec<_> = line.trim_end().splitn(7, ' ').collect();
                let number = |at: usize| words[at].parse().expect("a number");
                let small = |at: usize| words[at].parse().expect("a small number");
                let [sent, answered] = [0, 1].map(|at| Duration::from_nanos(number(at)));
                let id = Id { source: small(2), series: small(3), number: number(4) };
                let sent = Sent::new(id, TOPIC, words[6].as_bytes(), sent);
                all.push(Sent { answered: Some(answered), event: Some(number(5)), ..sent });
            }
        }
        all
    }
}

/// Asks members.
struct Asking {
    runtime: Runtime,
    links: Vec<Link>,
}

impl Asking {
    fn new(addresses: &[String]) -> Self {
        let runtime = runtime();
        let _inside = runtime.enter();
        let links = addresses.iter().map(|address| Link::new(target(address))).collect();
        drop(_inside);
        Self { runtime, links }
    }

    fn call(&self, member: usize, request: &Request) -> Option<Answer> {
        let call = self.links[member].call(request);
        let limited = async { tokio::time::timeout(Duration::from_secs(2), call).await };
        self.runtime.block_on(limited).ok()?.ok()
    }

    fn status(&self, member: usize) -> Option<Status> {
        match self.call(member, &Request::Status)? {
            Answer::Status(status) => Some(*status),
            _ => None,
        }
    }

    fn init(&self, addresses: &[String]) {
        let mut members = Members::default();
        for (id, address) in (0..).zip(addresses) {
            let member = Member { name: format!("m{id}"), address: address.clone(), log: [0; 16] };
            members.members.insert(id, member);
        }
        let begin = Request::Init(members);
        wait::until("the group begins", || match self.call(0, &begin) {
            Some(Answer::Done) => true,
            // An earlier request was carried out, and its answer came too late.
            Some(Answer::Failed(why)) => why.contains("allowed"),
            _ => false,
        });
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        wait::until("a member leads", || {
            leader = (0..self.links.len()).find(|member| {
                self.status(*member).is_some_and(|status| status.leader == Some(*member as u64))
            });
            leader.is_some()
        });
        leader.expect("found")
    }

    /// Waits until all members are at the same event, and returns the number of the next one.
    fn equal(&self) -> u64 {
        let mut next = 0;
        wait::until("members are equal", || {
            let all: Vec<_> = (0..self.links.len())
                .filter_map(|member| self.status(member))
                .map(|status| (status.next, status.digest))
                .collect();
            next = all.first().map_or(0, |(next, _)| *next);
            all.len() == self.links.len() && all.windows(2).all(|pair| pair[0] == pair[1])
        });
        next
    }
}

#[test]
fn hosts_see_one_order_whoever_is_killed() {
    let kills = std::env::var("TORONI_KILLS").map_or(8, |kills| kills.parse().expect("a number"));
    let mut random = Random::from_environment();
    let mut world = World::new();
    (0..3).for_each(|id| world.start(("member", id)));
    let asking = Asking::new(&world.addresses);
    asking.init(&world.addresses);
    let buses: Vec<_> = (0..HOSTS)
        .map(|id| config(&world.directory_of(("host", id))).open(FEED).expect("opened"))
        .collect();
    let observers: Vec<_> = buses.iter().cloned().map(Observer::start).collect();
    (0..HOSTS).for_each(|id| world.start(("host", id)));
    (0..SENDERS).for_each(|id| world.start(("sender", id)));

    let progress = |hosts: &[usize]| {
        for host in hosts {
            let count = &observers[*host].count;
            let before = count.load(Ordering::Relaxed);
            wait::until("events arrive", || count.load(Ordering::Relaxed) >= before + 50);
        }
    };
    for kill in 0..kills {
        progress(&[0, 1]);
        std::thread::sleep(Duration::from_millis(random.below(100)));
        let leader = asking.leader();
        let who = match kill % 4 {
            0 => ("member", leader),
            1 => ("host", random.index(HOSTS)),
            2 => ("sender", random.index(SENDERS)),
            _ => ("member", (leader + 1 + random.index(2)) % 3),
        };
        world.kill(who);
        // At times the others go on without it for longer.
        if random.below(2) == 0 {
            let others = if who.0 == "host" { vec![1 - who.1] } else { vec![0, 1] };
            progress(&others);
        }
        world.start(who);
    }
    progress(&[0, 1]);
    (0..SENDERS).for_each(|id| world.kill(("sender", id)));

    // Couriers bring what is left: until the members, and hosts, come to rest.
    let mut before = (0, vec![]);
    wait::until("nothing is under way", || {
        std::thread::sleep(Duration::from_millis(500));
        let counts =
            observers.iter().map(|observer| observer.count.load(Ordering::Relaxed)).collect();
        let now = (asking.equal(), counts);
        std::mem::replace(&mut before, now.clone()) == now && now.1[0] == now.1[1]
    });
    let again = rewind(RewindOptions {
        bus: config(world.directory.path()).capacity(64 << 20),
        name: "again".to_owned(),
        feed: FEED.to_owned(),
        members: world.addresses.iter().map(|address| target(address)).collect(),
        archives: vec![],
        from: None,
    });
    assert_eq!(again.map(|rewound| (rewound.from, rewound.until)).ok(), Some((0, before.0)));
    let mut orders: Vec<_> = observers.into_iter().map(Observer::end).collect();
    let again = config(world.directory.path()).open("again").expect("opened");
    let again = Observer::start(again);
    let count = orders[0].len();
    wait::until("all of the rewind is read", || {
        again.count.load(Ordering::Relaxed) == count as u64
    });
    orders.push(again.end());

    let sources: BTreeSet<_> =
        orders[0].iter().map(|event| event.command.map(|id| id.source)).collect();
    assert_eq!(sources.len(), HOSTS);
    let contents: BTreeSet<_> = orders[0].iter().map(|event| event.content).collect();
    assert_eq!(contents.len(), count, "a payload is there twice");
    let sent = world.sent();
    assert!(sent.len() > 100, "{}", sent.len());
    let names = ["host 0", "host 1", "the rewound bus"];
    let traces = names.into_iter().zip(orders);
    let traces = traces.map(|(name, events)| Trace::new(name, 0..before.0, events)).collect();
    History { sent, traces, ..History::default() }.check();
    println!("{kills} killed, {count} events of {} numbers", before.0);
}
