//! Members that are processes on this machine, whose leader is killed again and again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder as Runtimes, Runtime};
use toroni_proto::wire::{Key, Keys};
use toroni_testkit::{Directory, Process, Random, wait};

use super::super::{Events, Group, GroupOptions, Timing, feed_id};
use crate::batch::{Builder, Command, CommandId, Open, Publish};
use crate::entry::{Member, Members};
use crate::log::{Options, Sync};
use crate::machine::{Event, Outcome, Refusal};
use crate::rpc::{Answer, Link, Request, Status, Target};

const FEED: &str = "orders";
const ID: &str = "TORONI_SEQUENCER_ID";
const ADDRESS: &str = "TORONI_SEQUENCER_ADDRESS";
const DIRECTORY: &str = "TORONI_SEQUENCER_DIRECTORY";
const EVENTS: &str = "TORONI_SEQUENCER_EVENTS";
const SEGMENT: &str = "TORONI_SEQUENCER_SEGMENT";
/// The length of a segment, of members that purge.
const SMALL: &str = "65536";
/// As long as the whole test.
const LARGE: &str = "67108864";
const SENDERS: u32 = 3;

fn keys() -> Option<Keys> {
    Some(Keys { first: Key::new([7; 32]), next: None })
}

/// Writes each event as a line.
struct Lines(File);

impl Events for Lines {
    fn event(&mut self, event: Event<'_>) {
        let what = match event.command {
            Command::Publish(Publish { id, payload, .. }) => {
                format!("{} {} {:?}", id.source, id.number, String::from_utf8_lossy(payload))
            }
            other => format!("- {other:?}"),
        };
        let line = format!("{} {what}\n", event.number);
        self.0.write_all(line.as_bytes()).expect("written");
    }

    fn skipped(&mut self, _: u64) {}
}

fn runtime(threads: usize) -> Runtime {
    Runtimes::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Not a test: a member, until it is killed.
#[test]
#[ignore = "the child of the tests below"]
fn member() {
    let variable = |name| std::env::var(name).expect("started by the test");
    runtime(2).block_on(async {
        let listener =
            tokio::net::TcpListener::bind(variable(ADDRESS)).await.expect("the port is free");
        let _group = Group::start(GroupOptions {
            feed: FEED.to_owned(),
            id: variable(ID).parse().expect("a number"),
            listener,
            keys: keys(),
            directory: variable(DIRECTORY).into(),
            log: Options {
                segment_bytes: variable(SEGMENT).parse().expect("a number"),
                sync: Sync::Always,
            },
            // Members of small segments purge as soon as they can.
            snapshot_bytes: variable(SEGMENT).parse().expect("a number"),
            retain_bytes: if variable(SEGMENT) == SMALL { 1 } else { u64::MAX },
            timing: Timing::default(),
            events: Box::new(Lines(File::create(variable(EVENTS)).expect("created"))),
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        std::future::pending::<()>().await;
    });
}

struct Cluster {
    directory: Directory,
    addresses: Vec<String>,
    members: Vec<Option<Process>>,
    segment: &'static str,
    /// How often each was started.
    lives: Vec<u32>,
}

impl Cluster {
    fn new(count: usize, segment: &'static str) -> Self {
        let listeners: Vec<_> = (0..count)
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let address =
            |listener: &std::net::TcpListener| listener.local_addr().expect("bound").to_string();
        let mut cluster = Self {
            directory: Directory::new(),
            addresses: listeners.iter().map(address).collect(),
            members: (0..count).map(|_| None).collect(),
            segment,
            lives: vec![0; count],
        };
        drop(listeners);
        (0..count).for_each(|id| cluster.start(id));
        cluster
    }

    fn events(&self, id: usize) -> PathBuf {
        self.directory.join(format!("events-{id}-{}", self.lives[id]))
    }

    fn start(&mut self, id: usize) {
        self.lives[id] += 1;
        let child = Process::spawn(
            Program::new(std::env::current_exe().expect("the test's program"))
                .args(["--exact", "raft::tests::cluster::member", "--ignored"])
                .env(ID, id.to_string())
                .env(SEGMENT, self.segment)
                .env(ADDRESS, &self.addresses[id])
                .env(DIRECTORY, self.directory.join(format!("log-{id}")))
                .env(EVENTS, self.events(id))
                .stdout(std::process::Stdio::null()),
        );
        self.members[id] = Some(child.expect("a child"));
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.members[id].take() {
            child.kill();
            child.wait_within(wait::LIMIT).expect("waited").expect("a killed process ends");
        }
    }

    fn links(&self) -> Vec<Link> {
        links(&self.addresses)
    }
}

fn links(addresses: &[String]) -> Vec<Link> {
    let target = |address: &String| Target {
        address: address.clone(),
        feed: feed_id(FEED),
        keys: keys(),
        from: u64::MAX,
        log: None,
    };
    addresses.iter().map(|address| Link::new(target(address))).collect()
}

async fn call(link: &Link, request: Request) -> Option<Answer> {
    tokio::time::timeout(Duration::from_secs(2), link.call(&request)).await.ok()?.ok()
}

async fn status(link: &Link) -> Option<Status> {
    match call(link, Request::Status).await? {
        Answer::Status(status) => Some(*status),
        _ => None,
    }
}

/// Repeats a question until it has an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < wait::LIMIT, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn init(cluster: &Cluster) {
    let mut members = Members::default();
    for (id, address) in (0_u64..).zip(&cluster.addresses) {
        let member = Member { name: format!("m{id}"), address: address.clone(), log: [0; 16] };
        members.members.insert(id, member);
    }
    let links = cluster.links();
    until("the group begins", async || {
        (call(&links[0], Request::Init(members.clone())).await? == Answer::Done).then_some(())
    })
    .await;
}

/// The member that says that it leads.
async fn leader(links: &[Link]) -> Option<usize> {
    for (id, link) in links.iter().enumerate() {
        if let Some(status) = status(link).await
            && status.leader == Some(id as u64)
        {
            return Some(id);
        }
    }
    None
}

/// The next event and the digest of all members, if they are at the same state.
async fn common(links: &[Link]) -> Option<(u64, [u8; 32])> {
    let mut all = vec![];
    for link in links {
        let status = status(link).await?;
        all.push((status.next, status.series, status.digest, status.applied));
    }
    all.windows(2).all(|pair| pair[0] == pair[1]).then(|| (all[0].0, all[0].2))
}

/// Waits until all members are at the same state, and returns it.
async fn equal(links: &[Link]) -> (u64, [u8; 32]) {
    until("equal members", async || common(links).await).await
}

/// What senders were answered.
#[derive(Default)]
struct Acknowledged {
    stops: AtomicBool,
    count: AtomicU64,
    /// Milliseconds since the start, of the last answer, and the longest time without any.
    last_ms: AtomicU64,
    stall_ms: AtomicU64,
}

impl Acknowledged {
    fn note(&self, since: Instant, count: u64) {
        let now = u64::try_from(since.elapsed().as_millis()).expect("short");
        let last = self.last_ms.swap(now, Ordering::Relaxed);
        self.stall_ms.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
    }
}

fn payload(source: u32, number: u64) -> String {
    format!("command {number} of {source}")
}

fn submission(commands: &[Command<'_>]) -> Request {
    let mut builder = Builder::new();
    commands.iter().for_each(|command| builder.push(command).expect("short"));
    Request::Submit(builder.finish().expect("commands").into())
}

/// Sends commands until it is stopped, and returns the event numbers that it was told, by number of the command.
async fn send(
    source: u32,
    addresses: Vec<String>,
    since: Instant,
    acknowledged: Arc<Acknowledged>,
    seed: u64,
) -> BTreeMap<u64, u64> {
    let mut random = Random::new(seed);
    let links = links(&addresses);
    let mut told = BTreeMap::new();
    let mut number = 0;
    let mut at = 0;
    while !acknowledged.stops.load(Ordering::Relaxed) {
        // Where the series continues, as any new leader knows it.
        let open = Open { source, series: 9, session: 1, bus: [3; 16] };
        match call(&links[at], submission(&[Command::Open(open)])).await {
            Some(Answer::Outcomes(_)) => {}
            _ => {
                at = (at + 1) % links.len();
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        }
        match call(&links[at], Request::Source(source)).await {
            // What is known beyond the answers was sequenced, and the answer lost.
            Some(Answer::Source(Some(state))) => number = state.next.max(number),
            _ => continue,
        }
        while !acknowledged.stops.load(Ordering::Relaxed) {
            let count = random.between(1, 20);
            let payloads: Vec<_> =
                (number..number + count).map(|number| payload(source, number)).collect();
            let commands: Vec<_> = (number..)
                .zip(&payloads)
                .map(|(number, payload)| {
                    let id = CommandId { source, series: 9, number };
                    let payload = payload.as_bytes();
                    Command::Publish(Publish { id, to_descendants: false, topic: "t", payload })
                })
                .collect();
            let Some(Answer::Outcomes(outcomes)) = call(&links[at], submission(&commands)).await
            else {
                break;
            };
            assert_eq!(outcomes.len(), commands.len());
            for (command, outcome) in (number..).zip(outcomes) {
                match outcome {
                    Outcome::Sequenced(event) => {
                        assert_eq!(told.insert(command, event), None);
                    }
                    Outcome::Duplicate => {}
                    // Commands of before a reconnection arrived later than those after it.
                    Outcome::Refused(Refusal::Wanted(_)) => break,
                    Outcome::Refused(refusal) => panic!("{refusal}"),
                }
                number = command + 1;
            }
            acknowledged.note(since, count);
        }
    }
    told
}

/// The events of a member's last life, which has seen all: no snapshot was taken.
fn events_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn commands_keep_one_order_while_leaders_are_killed() {
    let kills = std::env::var("TORONI_KILLS").map_or(8, |kills| kills.parse().expect("a number"));
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, LARGE);
    runtime(2).block_on(async {
        init(&cluster).await;
        let acknowledged = Arc::new(Acknowledged::default());
        let links = cluster.links();
        until("a leader", async || leader(&links).await).await;
        let since = Instant::now();
        let senders: Vec<_> = (0..SENDERS)
            .map(|source| {
                let sends = send(
                    source,
                    cluster.addresses.clone(),
                    since,
                    Arc::clone(&acknowledged),
                    random.number(),
                );
                tokio::spawn(sends)
            })
            .collect();
        let progress = async || {
            let before = acknowledged.count.load(Ordering::Relaxed);
            until("commands come through", async || {
                (acknowledged.count.load(Ordering::Relaxed) > before + 100).then_some(())
            })
            .await;
        };
        for _ in 0..kills {
            progress().await;
            tokio::time::sleep(Duration::from_millis(random.below(200))).await;
            let id = until("a leader", async || leader(&links).await).await;
            cluster.kill(id);
            // At times a majority must live without it for longer.
            if random.below(2) == 0 {
                progress().await;
            }
            cluster.start(id);
        }
        progress().await;
        acknowledged.stops.store(true, Ordering::Relaxed);
        let mut told = vec![];
        for sender in senders {
            told.push(sender.await.expect("a sender does not fail"));
        }
        let (next, _) = equal(&links).await;
        (0..3).for_each(|id| cluster.kill(id));

        let orders: Vec<_> = (0..3).map(|id| events_of(&cluster.events(id))).collect();
        assert_eq!(orders[0], orders[1]);
        assert_eq!(orders[0], orders[2]);
        check(&orders[0], next, &told);
        println!(
            "{kills} leaders killed, {next} events, longest stall {} ms",
            acknowledged.stall_ms.load(Ordering::Relaxed)
        );
    });
}

#[test]
fn a_member_that_was_away_for_longer_than_the_log_gets_a_snapshot() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, SMALL);
    runtime(2).block_on(async {
        init(&cluster).await;
        let links = cluster.links();
        let leads = until("a leader", async || leader(&links).await).await;
        let away = (leads + 1 + random.index(2)) % 3;
        cluster.kill(away);
        let acknowledged = Arc::new(Acknowledged::default());
        let sends = send(
            0,
            cluster.addresses.clone(),
            Instant::now(),
            Arc::clone(&acknowledged),
            random.number(),
        );
        let sender = tokio::spawn(sends);
        until("the log is purged", async || {
            status(&links[leads]).await?.purged.filter(|place| place.index > 9)
        })
        .await;
        acknowledged.stops.store(true, Ordering::Relaxed);
        let told = sender.await.expect("a sender does not fail");
        cluster.start(away);
        let state = equal(&links).await;
        assert!(state.0 > told.len() as u64);
        // All of them begin from snapshots.
        (0..3).for_each(|id| cluster.kill(id));
        (0..3).for_each(|id| cluster.start(id));
        // What is committed is known when a leader has its first entry.
        until("the same state", async || common(&links).await.filter(|found| *found == state))
            .await;
    });
}

#[test]
fn a_member_alone_goes_on_after_a_kill() {
    let mut cluster = Cluster::new(1, LARGE);
    runtime(2).block_on(async {
        init(&cluster).await;
        let links = cluster.links();
        let open = Command::Open(Open { source: 1, series: 9, session: 1, bus: [3; 16] });
        until("a leader", async || leader(&links).await).await;
        let first = call(&links[0], submission(&[open])).await;
        assert_eq!(first, Some(Answer::Outcomes(vec![Outcome::Sequenced(0)])));
        cluster.kill(0);
        cluster.start(0);
        until("a leader", async || leader(&links).await).await;
        let again = until("an answer", async || match call(&links[0], submission(&[open])).await {
            Some(Answer::Outcomes(outcomes)) => Some(outcomes),
            _ => None,
        });
        assert_eq!(again.await, [Outcome::Duplicate]);
    });
}

/// Knows no Raft: each event has its number, each source's commands are there once and in order, and what was told is so.
fn check(order: &[String], next: u64, told: &[BTreeMap<u64, u64>]) {
    assert_eq!(order.len() as u64, next);
    let mut wanted = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (number, line) in order.iter().enumerate() {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().expect("a word");
        assert_eq!(word(), number.to_string());
        let Ok(source) = word().parse::<u32>() else { continue };
        let command: u64 = word().parse().expect("a number");
        assert_eq!(word(), format!("{:?}", payload(source, command)));
        let next = wanted.entry(source).or_insert(0);
        assert_eq!(command, *next, "of source {source}");
        *next += 1;
        places.insert((source, command), number as u64);
    }
    for (source, told) in (0..).zip(told) {
        assert!(told.len() > 100, "source {source}");
        for (command, event) in told {
            assert_eq!(
                places.get(&(source, *command)),
                Some(event),
                "command {command} of {source}"
            );
        }
    }
}
