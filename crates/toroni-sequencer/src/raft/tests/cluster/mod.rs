//! Members that are processes: killed, stopped, cut off, without room on their disks, added and removed, while senders
//! bring commands. What is checked afterwards knows no Raft.
//!
//! | file | what happens to the members |
//! |---|---|
//! | `kills.rs` | they are killed |
//! | `faults.rs` | they are stopped, and cut off from each other |
//! | `changes.rs` | they are added, removed, told to lead, and recovered from |
//! | `reboots.rs` | their hosts reboot before entries were synced |
//! | `room.rs` | their disks fill up |

mod changes;
mod faults;
mod kills;
mod reboots;
mod room;
mod senders;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command as Program;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::runtime::{Builder as Runtimes, Runtime};
use toroni_proto::wire::{Key, Keys};
use toroni_testkit::network::Host;
use toroni_testkit::{Directory, Place, Places, Process, wait};

use self::senders::submission;
use super::super::{Events, Group, GroupOptions, Timing, feed_id};
use crate::batch::{Command, CommandId, Open, Publish};
use crate::entry::{Member, Members};
use crate::log::{Options, Sync};
use crate::machine::Event;
use crate::rpc::{Answer, Link, Request, Role, Status, Target};

const FEED: &str = "orders";
const ID: &str = "TORONI_SEQUENCER_ID";
const ADDRESS: &str = "TORONI_SEQUENCER_ADDRESS";
const DIRECTORY: &str = "TORONI_SEQUENCER_DIRECTORY";
const EVENTS: &str = "TORONI_SEQUENCER_EVENTS";
const SEGMENT: &str = "TORONI_SEQUENCER_SEGMENT";
/// The length of a segment, of members that purge. An append brings up to 256 KiB, and a member that cannot put it into one
/// segment has no room for it.
const SMALL: &str = "393216";
/// As long as the whole test.
const LARGE: &str = "67108864";
/// With any value, entries are synced in intervals.
const INTERVAL: &str = "TORONI_SEQUENCER_INTERVAL";
/// A member that does not answer for this long does not lead.
const ANSWER_TIME: Duration = Duration::from_millis(700);
/// Members elect another leader if the one that they have is late. If the members of many tests share the processors,
/// each is late.
static CLUSTERS: Places = Places::new(4);

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
    let is_small = variable(SEGMENT) == SMALL;
    let segment_bytes = variable(SEGMENT).parse().expect("a number");
    runtime(2).block_on(async {
        let listener =
            tokio::net::TcpListener::bind(variable(ADDRESS)).await.expect("the port is free");
        let _group = Group::start(GroupOptions {
            feed: FEED.to_owned(),
            id: variable(ID).parse().expect("a number"),
            listener,
            keys: keys(),
            listed: vec![],
            directory: variable(DIRECTORY).into(),
            log: Options {
                segment_bytes,
                sync: if std::env::var_os(INTERVAL).is_some() { Sync::OFTEN } else { Sync::Always },
            },
            // Members of small segments purge as soon as they can.
            snapshot_bytes: if is_small { 64 << 10 } else { segment_bytes },
            retain_bytes: if is_small { 1 } else { u64::MAX },
            timing: Timing::default(),
            events: Box::new(Lines(File::create(variable(EVENTS)).expect("created"))),
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        std::future::pending::<()>().await;
    });
}

/// How members are started.
#[derive(Clone, Copy)]
struct Setup<'a> {
    segment: &'static str,
    sync: Sync,
    /// Hosts of the members; without, all are on this one.
    hosts: &'a [Host],
    /// The member whose directory lies on a small disk, and the size of that disk in KiB.
    small_disk: Option<(usize, u32)>,
    /// The member that purges nothing, whatever the others do.
    keeps_all: Option<usize>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { segment: LARGE, sync: Sync::Always, hosts: &[], small_disk: None, keeps_all: None }
    }
}

struct Cluster<'a> {
    directory: Directory,
    addresses: Vec<String>,
    members: Vec<Option<Process>>,
    setup: Setup<'a>,
    /// How often each was started.
    lives: Vec<u32>,
    /// None if the only member has no other to elect. Declared last, so that it is free again when the members have
    /// ended.
    _place: Option<Place<'static>>,
}

impl<'a> Cluster<'a> {
    fn new(count: usize, setup: Setup<'a>) -> Self {
        let place = (count > 1).then(|| CLUSTERS.take());
        let addresses = if setup.hosts.is_empty() {
            (0..count).map(|_| toroni_testkit::port::free().to_string()).collect()
        } else {
            setup.hosts.iter().take(count).map(|host| format!("{}:4481", host.address())).collect()
        };
        let mut cluster = Self {
            directory: Directory::new(),
            addresses,
            members: vec![],
            setup,
            lives: vec![],
            _place: place,
        };
        (0..count).for_each(|id| cluster.start(id));
        cluster
    }

    fn events(&self, id: usize) -> PathBuf {
        self.directory.join(format!("events-{id}-{}", self.lives[id]))
    }

    fn log(&self, id: usize) -> PathBuf {
        self.directory.join(format!("log-{id}"))
    }

    fn program(&self, id: usize) -> Program {
        let own = std::env::current_exe().expect("the test's program");
        match (self.setup.hosts.get(id), self.setup.small_disk) {
            (Some(host), _) => host.command(own),
            (None, Some((small, kib))) if small == id => {
                // The file system ends with the process that has it mounted.
                let mut program = Program::new("unshare");
                let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\" && exec \"$@\"");
                program.args(["--mount", "sh", "-c", &mount]).arg(self.log(id)).arg(own);
                program
            }
            _ => Program::new(own),
        }
    }

    /// Starts a member, which may be a new one.
    fn start(&mut self, id: usize) {
        self.start_until(id, None);
    }

    /// Starts a member, which dies when it comes to this point of its log.
    fn start_until(&mut self, id: usize, point: Option<&str>) {
        if id == self.members.len() {
            self.members.push(None);
            self.lives.push(0);
        }
        self.lives[id] += 1;
        fs::create_dir_all(self.log(id)).expect("created");
        let mut program = self.program(id);
        program
            .args(["--exact", "raft::tests::cluster::member", "--ignored"])
            .env(ID, id.to_string())
            .env(SEGMENT, if self.setup.keeps_all == Some(id) { LARGE } else { self.setup.segment })
            .env(ADDRESS, &self.addresses[id])
            .env(DIRECTORY, self.log(id))
            .env(EVENTS, self.events(id))
            .stdout(std::process::Stdio::null());
        if let Some(point) = point {
            program.env(toroni_testkit::crash::CRASH, format!("{point}:1"));
        }
        if matches!(self.setup.sync, Sync::Interval(_)) {
            program.env(INTERVAL, "yes");
        }
        self.members[id] = Some(Process::spawn(&mut program).expect("a child"));
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.members[id].take() {
            child.kill();
            child.wait_within(wait::LIMIT).expect("waited").expect("a killed process ends");
        }
    }

    fn signal(&self, id: usize, signal: Signal) {
        self.members[id].as_ref().expect("it runs").signal(signal).expect("sent");
    }

    fn links(&self) -> Vec<Link> {
        links(&self.addresses)
    }
}

/// A source that brings its commands to one member, whether that leads or not.
struct Source {
    id: u32,
    /// The number of its next command.
    next: u64,
}

impl Source {
    const fn of(id: u32) -> Self {
        Self { id, next: 0 }
    }

    fn open(&self) -> Request {
        let (source, bus) = (self.id, [self.id.to_le_bytes()[0]; 16]);
        submission(&[Command::Open(Open {
            source,
            series: 9,
            session: 1,
            bus,
            earlier: Some(&[]),
        })])
    }

    fn command_with(&self, payload: &[u8]) -> Request {
        let id = CommandId { source: self.id, series: 9, number: self.next };
        submission(&[Command::Publish(Publish { id, to_descendants: false, topic: "t", payload })])
    }

    fn next_command(&mut self) -> Request {
        let command = self.command_with(b"next");
        self.next += 1;
        command
    }

    /// Opens the series with a member that leads.
    async fn begin(&self, link: &Link) {
        until("a series", async || match call(link, self.open()).await {
            Some(Answer::Outcomes(_)) => Some(()),
            _ => None,
        })
        .await;
    }
}

fn links(addresses: &[String]) -> Vec<Link> {
    // Each has places of its own at the members.
    static SOURCES: AtomicU32 = AtomicU32::new(1);
    let role = Role::Courier { source: SOURCES.fetch_add(1, Ordering::Relaxed) };
    let target = |address: &String| Target {
        address: address.clone(),
        feed: feed_id(FEED),
        keys: keys(),
        role,
        log: None,
        bind: None,
    };
    addresses.iter().map(|address| Link::new(target(address))).collect()
}

async fn call(link: &Link, request: Request) -> Option<Answer> {
    tokio::time::timeout(ANSWER_TIME, link.call(&request)).await.ok()?.ok()
}

async fn status(link: &Link) -> Option<Status> {
    match call(link, Request::Status).await? {
        Answer::Status(status) => Some(*status),
        _ => None,
    }
}

/// The status of a member that runs. A busy machine may keep it from answering in time.
async fn asked(link: &Link) -> Status {
    until("a status", async || status(link).await).await
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

/// Has all members form a group. Returns links to them, and who leads.
async fn init(cluster: &Cluster<'_>) -> (Vec<Link>, usize) {
    begin(&cluster.addresses, 0..cluster.members.len()).await;
    let links = cluster.links();
    let leads = until("a leader", async || leader(&links).await).await;
    (links, leads)
}

/// Has these members form a group.
async fn begin(addresses: &[String], ids: std::ops::Range<usize>) {
    let link = &links(addresses)[ids.start];
    let member = |id: usize| {
        let address = addresses[id].clone();
        (id as u64, Member { name: format!("m{id}"), address, log: [0; 16] })
    };
    let members = Members { voters: vec![], members: ids.map(member).collect() };
    until("the group begins", async || {
        match control(link, Request::Init(members.clone())).await {
            Answer::Done => Some(()),
            // An earlier request was carried out, and its answer lost.
            Answer::Failed(why) if why.contains("allowed") => Some(()),
            _ => None,
        }
    })
    .await;
}

/// Asks for a change, which takes longer than what is asked otherwise.
async fn control(link: &Link, request: Request) -> Answer {
    let answer = tokio::time::timeout(wait::LIMIT, link.call(&request)).await;
    answer.expect("an answer in time").unwrap_or_else(|error| Answer::Failed(error.to_string()))
}

/// Asks the leader for a change until it is carried out. Returns the leader.
async fn change(links: &[Link], request: Request) -> usize {
    until("a change", async || {
        let leads = leader(links).await?;
        match control(&links[leads], request.clone()).await {
            Answer::Done => Some(leads),
            answer => {
                println!("{request:?}: {answer:?}");
                None
            }
        }
    })
    .await
}

/// The member that says that it leads, in the last term: one that was cut off does not know better.
async fn leader(links: &[Link]) -> Option<usize> {
    let mut leaders = vec![];
    for (id, link) in links.iter().enumerate() {
        let status = status(link).await;
        leaders.extend(status.filter(|it| it.leader == Some(id as u64)).map(|it| (it.term, id)));
    }
    leaders.into_iter().max().map(|(_, id)| id)
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
