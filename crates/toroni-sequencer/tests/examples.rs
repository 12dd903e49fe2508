//! The examples on two hosts: both print the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::runtime::Runtime;
use toroni::{BusConfig, Policy};
use toroni_sequencer::commands::{Courier, CourierOptions};
use toroni_sequencer::entry::{Member, Members};
use toroni_sequencer::feed::{FeedStart, Follower, FollowerOptions, OnDivergence};
use toroni_sequencer::log::Options;
use toroni_sequencer::machine::Event;
use toroni_sequencer::raft::{Events, Group, GroupOptions, Timing, feed_id};
use toroni_sequencer::rpc::{Answer, Request, Role, Target};
use toroni_testkit::{Directory, Program, Random};

struct Ignores;

impl Events for Ignores {
    fn event(&mut self, _: Event<'_>) {}
    fn skipped(&mut self, _: u64) {}
}

/// A member, and what brings commands and events of two hosts.
struct Hosts {
    directory: Directory,
    _runtime: Runtime,
    _group: Group,
    _couriers: Vec<Courier>,
    _followers: Vec<Follower>,
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).policy(Policy::Wait { limit: None })
}

impl Hosts {
    fn start() -> Self {
        let directory = Directory::new();
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().expect("a runtime");
        let (group, address) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound").to_string();
            let group = Group::start(GroupOptions {
                feed: "orders".to_owned(),
                id: 0,
                listener,
                keys: None,
                listed: vec![],
                directory: directory.join("log"),
                log: Options { segment_bytes: 4 << 20, ..Options::default() },
                snapshot_bytes: u64::MAX / 2,
                retain_bytes: u64::MAX,
                timing: Timing::default(),
                events: Box::new(Ignores),
            });
            let group = group.await.unwrap_or_else(|error| panic!("{error}"));
            let member = Member { name: "a".to_owned(), address: address.clone(), log: [0; 16] };
            let mut members = Members::default();
            members.members.insert(0, member);
            assert_eq!(group.request(Request::Init(members)).await, Answer::Done);
            (group, address)
        });
        let feed = || "orders".to_owned();
        let members = || {
            let (address, feed) = (address.clone(), feed_id("orders"));
            vec![Target {
                address,
                feed,
                keys: None,
                role: Role::Follower { source: None },
                log: None,
                bind: None,
            }]
        };
        let (mut couriers, mut followers) = (vec![], vec![]);
        for (host, source) in [("one", 1), ("two", 2)] {
            let bus = config(&directory.join(host));
            let courier = CourierOptions {
                bus: bus.clone(),
                feed: feed(),
                source,
                session: 1,
                members: members(),
                rate: None,
                buses: None,
            };
            couriers.push(Courier::start(courier).unwrap_or_else(|error| panic!("{error}")));
            let follower = FollowerOptions {
                bus,
                feed: feed(),
                members: members(),
                archives: vec![],
                start: FeedStart::Oldest,
                on_divergence: OnDivergence::Stop,
                live: None,
            };
            followers.push(Follower::start(follower).unwrap_or_else(|error| panic!("{error}")));
        }
        Self {
            directory,
            _runtime: runtime,
            _group: group,
            _couriers: couriers,
            _followers: followers,
        }
    }

    fn run(&self, host: &str, example: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(path(example));
        command.args(arguments).env("TORONI_DIR", self.directory.join(host));
        Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }
}

/// Where Cargo puts an example: beside the tests.
fn path(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's program");
    let path = test.ancestors().nth(2).expect("the folder of the profile");
    let path = path.join("examples").join(example);
    assert!(
        path.exists(),
        "{} is not built: cargo build -p toroni-sequencer --examples",
        path.display()
    );
    path
}

/// Reads lines up to the one of the event after `events` others.
fn lines(program: &mut Program, events: usize) -> Vec<String> {
    let mut lines = vec![];
    let mut found = 0;
    while found < events {
        let line = program.line().expect("it runs on");
        found += usize::from(!line.contains(" trade "));
        lines.push(line);
    }
    lines
}

#[test]
fn order_books_of_two_hosts_are_equal() {
    const ORDERS: usize = 150;
    let hosts = Hosts::start();
    let mut books = ["one", "two"].map(|host| hosts.run(host, "order_book", &[]));
    let mut random = Random::from_environment();
    for _ in 0..ORDERS {
        for book in &mut books {
            let order = match random.below(8) {
                0 => format!("cancel {}", random.below(100)),
                1 => "nonsense".to_owned(),
                what => {
                    let side = if what % 2 == 0 { "buy" } else { "sell" };
                    format!("{side} {} {}", random.between(90, 110), random.between(1, 9))
                }
            };
            book.tell(&order);
        }
    }
    let [one, two] = books.each_mut().map(|book| lines(book, 2 * ORDERS));
    assert_eq!(one, two);
    assert!(one.iter().any(|line| line.contains(" trade ")), "{one:?}");
    let last = one.last().expect("lines");
    assert_ne!(last.rsplit(' ').next(), one[0].rsplit(' ').next(), "the book has changed");
}

#[test]
fn counters_of_two_hosts_are_equal() {
    let hosts = Hosts::start();
    let mut counters = [("one", ["3", "-1"]), ("two", ["10", "4"])]
        .map(|(host, arguments)| hosts.run(host, "counter", &arguments));
    let [one, two] = counters.each_mut().map(|counter| lines(counter, 4));
    assert_eq!(one, two);
    assert!(one[3].ends_with(": 16"), "{one:?}");
}
