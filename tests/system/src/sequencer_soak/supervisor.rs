//! Runs hosts, begins and ends faults, and records what programs see.

use super::disk::own_mounts;
use super::figures::{Fault, Figures};
use super::judge;
use super::load::{KEY, Leaders, Senders, ask};
use super::nemesis::{Active, Kind};
use super::site::{FEED, Role, Site, addresses};
use super::trace::Reader;
use crate::soak::program::INTERRUPTED;
use crate::{Random, TempRoot};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toroni::Start;
use toroni_sequencer::commands::Commands;
use toroni_testkit::directory::copy;
use toroni_testkit::history::now;
use toroni_testkit::network::{Network, Setup};
use toroni_testkit::{OnDrop, wait};

/// Programs of a host that send.
const SENDERS: u32 = 3;
/// How often the supervisor looks whether something has come.
const TICK: Duration = Duration::from_millis(5);
/// Nothing takes this long, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long commands are sent after the last fault.
const CALM: Duration = Duration::from_secs(1);

/// When faults end.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// After this time.
    Time(Duration),
    /// After this number of kills of a leader.
    Kills(u64),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub length: Length,
    pub seed: u64,
    /// 3 or 5.
    pub members: usize,
    /// The kinds of faults.
    pub nemeses: Vec<Kind>,
    /// Commands in a second, of each host.
    pub rate: u32,
    /// The mean time between two faults, after everything has recovered from the first.
    pub calm: Duration,
    /// How long a command may wait for its event after the last fault has ended.
    pub limit: Duration,
    /// A mistake that must be noticed: `drop`, `double` or `swap` hides, repeats or exchanges an event before the check.
    pub sabotage: Option<String>,
    /// Where the files of the hosts are copied if something is wrong.
    pub keep: PathBuf,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    pub figures: Figures,
    /// Where the files of the hosts are, if something was wrong.
    pub kept: Option<PathBuf>,
}

/// The run.
pub(super) struct Soak<'a> {
    pub(super) plan: &'a Plan,
    pub(super) network: &'a Network,
    pub(super) members: usize,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) sites: Vec<Site>,
    /// Of each host but the archive.
    pub(super) senders: &'a [Senders],
    pub(super) readers: &'a [Reader],
    leaders: &'a Arc<Leaders>,
    /// Set also if a thread panics.
    is_over: &'a AtomicBool,
    begin: Instant,
    pub(super) random: Random,
    pub(super) figures: Figures,
}

/// Runs the plan. `None` if there can be no network namespaces here. Call it before other threads are started: this process gets mounts
/// of its own.
///
/// # Panics
/// If a node does not start, or something takes longer than it ever should.
#[must_use]
pub fn run(plan: &Plan) -> Option<Outcome> {
    drop(Setup::new(1).bridged()?);
    own_mounts().expect("mounts of its own");
    let hosts = u8::try_from(plan.members + 2).expect("few hosts");
    let network = Setup::new(hosts).switched(plan.seed)?;
    let root = TempRoot::new();
    root.write_key(KEY);
    let has_shim = plan.nemeses.iter().any(|kind| kind.needs_shim());
    let site = |number| Site::new(&root, number, &network.hosts, has_shim);
    let sites: Vec<_> = (0..plan.members + 2).map(site).collect();
    let senders: Vec<_> = sites[..=plan.members]
        .iter()
        .map(|site| {
            let commands = Commands::open_with(site.config(), FEED).expect("a bus of commands");
            Senders::new(commands, site.number)
        })
        .collect();
    let readers: Vec<_> = sites
        .iter()
        .map(|site| {
            let bus = site.config().open(FEED).expect("a bus of events");
            let subscriber = bus.subscriber().pattern("**").start(Start::Oldest).gating(true);
            let series = senders.get(site.number).map_or(0, Senders::series);
            Reader::start(subscriber.build().expect("a subscriber"), series)
        })
        .collect();
    let (leaders, is_over) = (Arc::default(), AtomicBool::new(false));
    let mut soak = Soak {
        plan,
        network: &network,
        members: plan.members,
        addresses: addresses(&network.hosts[..plan.members]),
        sites,
        senders: &senders,
        readers: &readers,
        leaders: &leaders,
        is_over: &is_over,
        begin: Instant::now(),
        random: Random::new(plan.seed),
        figures: Figures::default(),
    };
    // While the disks are there.
    let keep_if_panicking = OnDrop(|| {
        if std::thread::panicking() {
            let kept = keep(&root, plan);
            eprintln!("evidence is kept in {kept:?}");
        }
    });
    soak.run();
    judge::judge(&mut soak, &root);
    let mut figures = soak.figures;
    figures.violations.truncate(judge::SHOWN);
    let kept = (!figures.violations.is_empty()).then(|| keep(&root, plan)).flatten();
    drop(keep_if_panicking);
    Some(Outcome { figures, kept })
}

/// Copies the files of the hosts.
fn keep(root: &TempRoot, plan: &Plan) -> Option<PathBuf> {
    let path = plan.keep.join(format!("sequencer-seed-{}-{}", plan.seed, std::process::id()));
    // Buses are not needed: what was on them is in the logs.
    let files = root.file("");
    std::panic::catch_unwind(|| copy(&files, &path)).ok().map(|()| path)
}

impl Soak<'_> {
    /// The host without a member.
    pub(super) fn plain(&self) -> usize {
        self.members
    }

    pub(super) fn archive(&self) -> usize {
        self.members + 1
    }

    pub(super) fn ends(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || INTERRUPTED.load(Ordering::Relaxed)
    }

    pub(super) fn violation(&mut self, what: String) {
        println!("{:>7.1} s  VIOLATION {what}", self.begin.elapsed().as_secs_f64());
        self.figures.violations.push(what);
    }

    /// Waits for something that must come.
    pub(super) fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let come = wait::within(PATIENCE, || condition(self));
        assert!(come, "after {} s: not yet: {what}", PATIENCE.as_secs());
    }

    fn run(&mut self) {
        let (senders, leaders, is_over) = (self.senders, self.leaders, self.is_over);
        let asks = self.sites[self.plain()].host.clone();
        let addresses = self.addresses.clone();
        let pause = Duration::from_secs(1) * SENDERS / self.plan.rate.max(1);
        let mut calm = Duration::ZERO;
        std::thread::scope(|scope| {
            let _end = guard(is_over);
            self.begin_group();
            for (host, senders) in senders.iter().enumerate() {
                for sender in 0..SENDERS as usize {
                    let random = Random::new(self.plan.seed ^ ((host << 8 | sender) as u64) << 32);
                    scope.spawn(move || {
                        let _end = guard(is_over);
                        senders.run(sender, pause, random, is_over);
                    });
                }
            }
            scope.spawn(|| {
                let _end = guard(is_over);
                ask(&asks, &addresses, leaders, is_over);
            });
            self.begin = Instant::now();
            self.disturb();
            calm = now();
            self.pass(CALM);
        });
        self.settle(calm);
        self.compare();
    }

    /// Starts all nodes, and begins the group.
    fn begin_group(&mut self) {
        self.sites.iter_mut().for_each(Site::launch);
        self.sites.iter_mut().for_each(Site::wait_ready);
        let plain = self.plain();
        self.wait_for("the group begins", |soak| {
            let output = soak.sites[plain].sequencer(&["init"]);
            let said = String::from_utf8_lossy(&output.stderr);
            output.status.success() || said.contains("has begun already")
        });
    }

    fn is_long_enough(&self) -> bool {
        match self.plan.length {
            Length::Time(time) => self.begin.elapsed() >= time,
            Length::Kills(kills) => self.figures.leader_kills >= kills,
        }
    }

    fn disturb(&mut self) {
        self.recover("the begin", PATIENCE);
        while !self.is_long_enough() && !self.ends() {
            let calm = u64::try_from(self.plan.calm.as_millis()).unwrap_or(1);
            let calm = Duration::from_millis(self.random.below(2 * calm + 1));
            self.pass(calm);
            let leader = self.leader();
            let kind = Kind::draw(&mut self.random, &self.plan.nemeses.clone());
            let begin = now();
            let Some(Active { what, hold, undo, kill, elect }) = self.begin(kind, leader) else {
                continue;
            };
            let what = what.join(", with ");
            println!("{:>7.1} s  {what}", self.begin.elapsed().as_secs_f64());
            self.pass(hold);
            self.undo(undo);
            let recovery = self.recover(&what, self.plan.limit);
            if let Some(Err(why)) = &elect {
                println!("           the election fails: {why}");
            }
            self.figures.elects.extend(elect);
            self.figures.faults.push(Fault { kind, what, begin, recovery, kill });
        }
        self.figures.duration = self.begin.elapsed();
    }

    /// Lets time pass, in which no node may end.
    fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.check_nodes();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(TICK * 10));
        }
    }

    fn check_nodes(&mut self) {
        for at in 0..self.sites.len() {
            if let Some(what) = self.sites[at].has_ended() {
                self.violation(what);
                self.sites[at].start();
            }
        }
    }

    /// The member that leads now.
    fn leader(&mut self) -> usize {
        let (since, mut leader) = (now(), 0);
        self.wait_for("a majority confirms a leader", |soak| {
            soak.check_nodes();
            let found = soak.leaders.since(since);
            leader = found.unwrap_or(leader);
            found.is_some() || soak.is_over.load(Ordering::Relaxed)
        });
        leader
    }

    /// Waits until, on each host, commands become events that were sent after this call. Returns how long that takes.
    fn recover(&mut self, after: &str, limit: Duration) -> Duration {
        let begin = Instant::now();
        let numbers: Vec<_> = self.senders.iter().map(Senders::next).collect();
        let mut is_late = false;
        let readers = self.readers;
        self.wait_for(&format!("commands of all hosts become events after {after}"), |soak| {
            soak.check_nodes();
            let lacks = |(host, number): (usize, &u64)| {
                (readers[host].answered() <= *number).then_some(host)
            };
            let lack: Vec<_> = numbers.iter().enumerate().filter_map(lacks).collect();
            if !lack.is_empty() && begin.elapsed() > limit && !is_late {
                is_late = true;
                soak.violation(format!(
                    "H9: {limit:?} after {after}, commands of the hosts {lack:?} are no events"
                ));
            }
            lack.is_empty() || soak.is_over.load(Ordering::Relaxed)
        });
        begin.elapsed()
    }

    /// After the last fault, waits until all commands are events. None is sent any more.
    fn settle(&mut self, start: Duration) {
        let (senders, readers) = (self.senders, self.readers);
        let has_all = |(senders, reader): (&Senders, &Reader)| reader.answered() >= senders.next();
        let begin = Instant::now();
        while !senders.iter().zip(readers).all(has_all) && begin.elapsed() < PATIENCE {
            self.pass(TICK);
        }
        self.figures.calm = start..now();
    }

    /// All hosts, members and the archive must have the same.
    fn compare(&mut self) {
        let readers = self.readers;
        let next = readers.iter().map(Reader::next).max().unwrap_or(0);
        self.wait_for("each host has all events", |_| readers.iter().all(|one| one.next() >= next));
        let plain = self.plain();
        let is_equal = |soak: &mut Self| {
            let status = soak.sites[plain].sequencer_json(&["status"]);
            let is_equal = |one: &serde_json::Value| one["events"] == status["events"];
            let all = status["members"].as_array().into_iter().flatten();
            let archives = status["archives"].as_array().into_iter().flatten();
            status["events"].is_u64() && all.chain(archives).all(is_equal)
        };
        self.wait_for("all members and the archive have all events", is_equal);
        let mut digests = serde_json::Value::Null;
        self.wait_for("the members are compared", |soak| {
            digests = soak.sites[plain].sequencer_json(&["digest"]);
            !digests.is_null()
        });
        if digests["equal"] != true {
            self.violation(format!("H7: the members have different digests: {digests}"));
        }
    }

    /// Ends all nodes.
    pub(super) fn end(&mut self) {
        self.check_nodes();
        self.sites.iter_mut().for_each(Site::terminate);
        for at in 0..self.sites.len() {
            if !self.sites[at].wait_end() {
                self.violation(format!(
                    "H8: the node of host {at} did not end in order after SIGTERM"
                ));
            }
        }
    }

    pub(super) fn confirms(&self) -> Vec<toroni_testkit::history::Confirm> {
        self.leaders.all()
    }

    pub(super) fn members_of(sites: &[Site]) -> impl Iterator<Item = &Site> {
        sites.iter().filter(|site| site.role == Role::Member)
    }
}

/// Ends all threads when one of them ends: it has panicked, or the run is over.
fn guard(is_over: &AtomicBool) -> OnDrop<impl FnMut() + use<'_>> {
    OnDrop(|| is_over.store(true, Ordering::Relaxed))
}
