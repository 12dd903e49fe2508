//! Storms: bridges of several buses are killed, ended and stopped, their hosts are rebooted and restored from backups, while a
//! program of Zenoh plays back what it has heard, and another one forges. What subscribers get is compared with what was published.
//!
//! Each topic carries the numbers 0, 1, 2, …, whatever becomes of its bus. A subscriber must see them in rising order, none of them
//! twice. If numbers are missing before a message, losses must have said so since the message of the topic before it: an open end any
//! number, and others together at least as many since the beginning.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{free_port, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;
use toroni::{Bus, BusConfig, Lost, LostBound, Pattern, ReceiveError, Start, Subscriber};
use toroni_testkit::directory::copy;
use toroni_testkit::network::skip;
use toroni_testkit::{Directory, Program, Random, long};

const TOPICS: u64 = 3;

/// What becomes of a bridge or its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Kill,
    Terminate,
    Stop,
    Reboot,
    Restore,
}

const EVENTS: [Event; 5] =
    [Event::Kill, Event::Terminate, Event::Stop, Event::Reboot, Event::Restore];

/// What a subscriber knows of a topic.
#[derive(Clone, Default)]
struct Track {
    /// The next number. `None` if the bus knows nothing of it yet.
    next: Option<u64>,
    missing: u64,
    reported: u64,
    is_open: bool,
}

/// What a subscriber of a bus has seen.
#[derive(Clone, Default)]
struct Account {
    topics: BTreeMap<String, Track>,
}

impl Account {
    fn message(&mut self, topic: &str, number: u64) -> Result<(), String> {
        let track = self.topics.entry(topic.to_owned()).or_default();
        let next = track.next.unwrap_or(number);
        if number < next {
            return Err(format!("{topic}: {number} after {}", next - 1));
        }
        if !track.is_open {
            track.missing += number - next;
        }
        (track.next, track.is_open) = (Some(number + 1), false);
        if track.missing > track.reported {
            let Track { missing, reported, .. } = track;
            return Err(format!("{topic}: {missing} missing before {number}, {reported} reported"));
        }
        Ok(())
    }

    fn lost(&mut self, lost: &Lost) {
        for (topic, track) in &mut self.topics {
            if lost.scope.iter().any(|pattern: &Pattern| pattern.matches(topic)) {
                // A bound as of forged numbers must not cover all that follows.
                if lost.bound == LostBound::AtLeast || lost.messages > 1_000 {
                    track.is_open = true;
                } else {
                    track.reported += lost.messages;
                }
            }
        }
    }
}

/// A host: a bus, a bridge that exports and imports everything, and a subscriber of everything.
struct Host {
    number: u64,
    root: Directory,
    bus: Option<Bus>,
    subscriber: Option<Subscriber>,
    account: Account,
    messages: u64,
    losses: u64,
    bridge: Option<Program>,
    /// The next number of each topic.
    published: [u64; 3],
    /// What has come, for the message of a failure.
    seen: Vec<String>,
    /// What the subscriber had seen when the bus was copied, and the sequence that was next.
    backup: Option<(Account, u64)>,
}

impl Host {
    fn new(number: u64) -> Self {
        let mut host = Self {
            number,
            root: Directory::new(),
            bus: None,
            subscriber: None,
            account: Account::default(),
            messages: 0,
            losses: 0,
            bridge: None,
            published: [0; 3],
            seen: Vec::new(),
            backup: None,
        };
        host.open(None);
        host
    }

    fn open(&mut self, from: Option<u64>) {
        let config = BusConfig::new().directory(self.root.join("bus")).capacity(16 << 20);
        let bus = config.open("default").unwrap();
        let subscriber = bus.subscriber().pattern("t/**");
        let subscriber = match from {
            Some(from) => subscriber.start(Start::Sequence(from)),
            None => subscriber,
        };
        (self.subscriber, self.bus) = (Some(subscriber.build().unwrap()), Some(bus));
    }

    fn close(&mut self) {
        (self.subscriber, self.bus) = (None, None);
    }

    fn start(&mut self, router: u16, batches: bool) {
        let text = format!(
            "bus = {{ name = 'default', directory = '{}' }}\nheartbeat = '200ms'\nsettle = '200ms'\n\
             [[export]]\npatterns = ['t/{}/**']\n[[import]]\npatterns = ['**']\nbatches = {batches}\n\
             [zenoh]\nmode = 'client'\nconnect = {{ endpoints = ['tcp/127.0.0.1:{router}'] }}\n",
            self.root.join("bus").display(),
            self.number
        );
        let mut bridge = common::start_program(&self.root.join("bridge.toml"), &text);
        bridge.wait_ready();
        self.bridge = Some(bridge);
    }

    fn end(&mut self, signal: Signal) {
        let mut bridge = self.bridge.take().unwrap();
        bridge.signal(signal);
        let _ = bridge.wait();
    }

    fn publish(&mut self, at: u64) {
        let number = &mut self.published[usize::try_from(at).unwrap()];
        let topic = format!("t/{}/{at}", self.number);
        let publisher = self.bus.as_ref().unwrap().publisher(&topic).unwrap();
        publisher.publish(number.to_string()).unwrap();
        *number += 1;
    }

    /// Compares what has come.
    fn check(&mut self) -> Result<(), String> {
        loop {
            match self.subscriber.as_mut().unwrap().try_receive() {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => {
                    let (origin, text) = (message.origin(), message.text());
                    let origin = origin.map(|origin| origin.to_string()).unwrap_or_default();
                    self.seen.push(format!("{} {text}: {origin}", message.topic()));
                    // All else is forged.
                    if let Ok(number) = message.text().parse() {
                        self.messages += 1;
                        self.account.message(message.topic(), number)?;
                    }
                }
                Err(ReceiveError::Lost(lost)) => {
                    self.seen.push(lost.to_string());
                    self.losses += 1;
                    self.account.lost(&lost);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Copies the bus while no program uses it.
    fn back_up(&mut self) {
        self.check().unwrap();
        let next = self.subscriber.as_ref().unwrap().sequence();
        self.close();
        let _ = std::fs::remove_dir_all(self.root.join("copy"));
        copy(&self.root.join("bus"), &self.root.join("copy"));
        self.backup = Some((self.account.clone(), next));
        self.open(Some(next));
    }

    fn restore(&mut self) {
        self.close();
        std::fs::remove_dir_all(self.root.join("bus")).unwrap();
        copy(&self.root.join("copy"), &self.root.join("bus"));
        let (account, next) = self.backup.clone().unwrap();
        self.account = account;
        // Of its own messages, those since then are gone.
        let own = format!("t/{}/", self.number);
        self.account.topics.retain(|topic, _| !topic.starts_with(&own));
        self.open(Some(next));
    }

    fn reboot(&mut self) {
        self.close();
        std::fs::remove_dir_all(self.root.join("bus")).unwrap();
        (self.account, self.backup) = (Account::default(), None);
        self.open(None);
    }
}

struct Storm {
    hosts: Vec<Host>,
    router: u16,
    batches: bool,
    random: Random,
    /// The last events, for the message of a failure.
    happened: Vec<(Event, usize)>,
}

impl Storm {
    fn check(&mut self) {
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            let Err(problem) = host.check() else { continue };
            let seen = host.seen.split_off(host.seen.len().saturating_sub(60));
            let bridges = self.hosts.iter().filter_map(|host| host.bridge.as_ref());
            let errors: Vec<_> = bridges.map(Program::errors).collect();
            let happened = &self.happened;
            panic!("host {at}: {problem}\n{seen:#?}\n{happened:?}{}", errors.join("\n"));
        }
    }

    /// Some messages on each host, and some time.
    fn publish(&mut self) {
        for host in &mut self.hosts {
            for _ in 0..self.random.below(20) {
                host.publish(self.random.below(TOPICS));
            }
        }
        std::thread::sleep(Duration::from_millis(self.random.below(150)));
        self.check();
    }

    fn happen(&mut self, event: Event) {
        let at = self.random.index(self.hosts.len());
        self.happened.push((event, at));
        if event == Event::Stop {
            self.hosts[at].bridge.as_ref().unwrap().stop();
            self.publish();
            self.hosts[at].bridge.as_ref().unwrap().resume();
            return self.publish();
        }
        if event == Event::Restore && self.hosts[at].backup.is_none() {
            self.hosts[at].end(Signal::TERM);
            self.hosts[at].back_up();
            self.hosts[at].start(self.router, self.batches);
            self.publish();
        }
        self.hosts[at].end(if event == Event::Terminate { Signal::TERM } else { Signal::KILL });
        self.publish();
        match event {
            Event::Reboot => self.hosts[at].reboot(),
            Event::Restore => self.hosts[at].restore(),
            _ => {}
        }
        self.hosts[at].start(self.router, self.batches);
        self.publish();
    }

    /// Waits until the last message of each topic is everywhere.
    fn settle(&mut self) {
        let topics = self.hosts.iter().flat_map(|host| {
            (0..TOPICS).map(move |at| (format!("t/{}/{at}", host.number), at, host.number))
        });
        for (topic, at, number) in topics.collect::<Vec<_>>() {
            wait_until(&format!("{topic} does not arrive everywhere"), || {
                let from = self.hosts.iter_mut().find(|host| host.number == number).unwrap();
                from.publish(at);
                let last = from.published[usize::try_from(at).unwrap()];
                std::thread::sleep(Duration::from_millis(50));
                self.check();
                let next = |host: &Host| host.account.topics.get(&topic).and_then(|it| it.next);
                self.hosts.iter().all(|host| next(host) == Some(last))
            });
        }
    }
}

/// Starts `peer.py`, whose session goes to the router.
fn peer(command: &[&str], router: u16, seed: u64) -> Option<Program> {
    let Some(python) = std::env::var_os("TORONI_ZENOH_PYTHON") else {
        skip(
            "TORONI_ZENOH_PYTHON does not name a Python with eclipse-zenoh: run `cargo xtask bridge`",
        );
        return None;
    };
    let mut peer = Command::new(python);
    peer.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/between_hosts/peer.py")).args(command);
    let config = if command[0] == "router" {
        "{scouting: {multicast: {enabled: false}}}".to_owned()
    } else {
        format!("{{mode: 'client', connect: {{endpoints: ['tcp/127.0.0.1:{router}']}}}}")
    };
    peer.env("ZENOH_CONFIG", config).env("TORONI_SEED", seed.to_string());
    peer.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut peer = Program::start(peer);
    peer.expect("ready");
    Some(peer)
}

/// Plays these events on some hosts.
fn storm(hosts: u64, batches: bool, events: &[Event], mut random: Random) {
    let router = free_port();
    let Some(_router) = peer(&["router", &format!("127.0.0.1:{router}")], router, 0) else {
        return;
    };
    let hosts = (0..hosts).map(Host::new).collect();
    let strangers =
        ["record", "forge"].map(|it| peer(&[it], router, random.number() >> 32).unwrap());
    let mut storm = Storm { hosts, router, batches, random, happened: Vec::new() };
    storm.hosts.iter_mut().for_each(|host| host.start(router, batches));
    storm.settle();
    for (at, event) in events.iter().enumerate() {
        storm.happen(*event);
        if at % 50 == 49 {
            storm.settle();
            eprintln!("{} of {} events", at + 1, events.len());
        }
    }
    storm.settle();
    for mut stranger in strangers {
        assert!(stranger.is_running(), "{}", stranger.errors());
        stranger.kill();
    }
    for host in &mut storm.hosts {
        host.end(Signal::TERM);
    }
    storm.check();
    for Host { number, messages, losses, .. } in &storm.hosts {
        eprintln!(
            "host {number}: {messages} messages, {losses} losses reported, 0 unreported, 0 doubled"
        );
    }
}

/// With two and with three hosts, with samples and with batches; each kind of event `$TORONI_STORM` times for each of these, by
/// default 200 times as a long test. Otherwise one of them, and one event of each kind.
#[test]
fn whatever_happens_each_message_arrives_once_or_is_reported() {
    let mut random = Random::from_environment();
    let wanted = std::env::var("TORONI_STORM").ok();
    let times = match &wanted {
        Some(times) => times.parse().unwrap(),
        None => long::repetitions(1, 200),
    };
    let mut kinds = vec![(2, false), (2, true), (3, false), (3, true)];
    if wanted.is_none() && !long::is_asked() {
        kinds = vec![*random.pick(&kinds)];
    }
    for (hosts, batches) in kinds {
        eprintln!("{hosts} hosts, batches: {batches}");
        let mut left = EVENTS.map(|event| vec![event; times as usize]).concat();
        let mut events = Vec::new();
        while !left.is_empty() {
            events.push(left.swap_remove(random.index(left.len())));
        }
        storm(hosts, batches, &events, Random::new(random.number()));
    }
}
