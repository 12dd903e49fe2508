//! Faults: how each begins, and what ends it.

use super::disk::Disk;
use super::figures::Killed;
use super::hostile::Hostile;
use super::shim::{PWRITE, RENAME, SYNC};
use super::site::{Role, Site};
use super::supervisor::Soak;
use crate::Random;
use serde_json::Value;
use std::time::{Duration, Instant};
use toroni_testkit::history::now;
use toroni_testkit::network::switch::{Direction, Faults, Loss};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes are killed (SIGKILL), mostly that of the leader.
    Kill,
    /// A node is ended in order (SIGTERM).
    Terminate,
    /// A node is stopped for a while (SIGSTOP).
    Stop,
    /// A host is cut off.
    Cut,
    /// Nothing passes from one host to another, but the other way.
    OneWay,
    /// The frames of a host are late, and some vanish.
    Lossy,
    /// Disks of members are full.
    FullDisk,
    /// Another member is to lead.
    Elect,
    /// A member is removed, and added with an empty log.
    Change,
    /// The wall clock of a member is set.
    Clock,
    /// The disk of a member reports errors, which must end its node.
    DiskError,
    /// A member's host loses its power, and its disk what was not synced.
    Power,
    /// A member is killed, and continues with an earlier copy of its log.
    Restore,
    /// A host holds connections to all members, and their leader is killed.
    Hostile,
    /// Two at the same time.
    Pair,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Kill,
        Self::Terminate,
        Self::Stop,
        Self::Cut,
        Self::OneWay,
        Self::Lossy,
        Self::FullDisk,
        Self::Elect,
        Self::Change,
        Self::Clock,
        Self::DiskError,
        Self::Power,
        Self::Restore,
        Self::Hostile,
        Self::Pair,
    ];

    /// Its name in options and figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Terminate => "terminate",
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::OneWay => "one-way",
            Self::Lossy => "lossy",
            Self::FullDisk => "full-disk",
            Self::Elect => "elect",
            Self::Change => "change",
            Self::Clock => "clock",
            Self::DiskError => "disk-error",
            Self::Power => "power",
            Self::Restore => "restore",
            Self::Hostile => "hostile",
            Self::Pair => "pair",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether something must stand between the nodes of members and the kernel.
    pub(super) fn needs_shim(self) -> bool {
        matches!(self, Self::Clock | Self::DiskError | Self::Power | Self::Pair)
    }

    /// Draws one of these. Kills are drawn more often than the others.
    pub(super) fn draw(random: &mut Random, kinds: &[Self]) -> Self {
        let often = kinds.contains(&Self::Kill) && random.below(4) == 0;
        if often { Self::Kill } else { *random.pick(kinds) }
    }
}

/// A step that ends a fault. They are taken in this order.
pub(super) enum Undo {
    /// The disk of a host has room again.
    Free(usize),
    /// All hosts reach each other.
    Heal,
    /// The clock and the disk of a host are as they should be.
    Repair(usize),
    /// The connections of a hostile host are closed.
    Close(Hostile),
    Resume(usize),
    Start(usize),
    /// A member that was removed is added again.
    Join(usize),
}

impl Undo {
    fn rank(&self) -> u8 {
        match self {
            Self::Free(_) => 0,
            Self::Heal => 1,
            Self::Repair(_) => 2,
            Self::Close(_) => 3,
            Self::Resume(_) => 4,
            Self::Start(_) => 5,
            Self::Join(_) => 6,
        }
    }
}

/// A fault that has begun, and has not ended.
#[derive(Default)]
pub(super) struct Active {
    pub(super) what: Vec<String>,
    pub(super) hold: Duration,
    pub(super) undo: Vec<Undo>,
    /// When the leader was killed, and how. Not if anything else went on.
    pub(super) kill: Option<(Duration, Killed)>,
    /// How long an election on demand took, if it was the only fault.
    pub(super) elect: Option<Result<Duration, String>>,
}

impl Active {
    fn new(what: String, hold: Duration, undo: Vec<Undo>) -> Self {
        Self { what: vec![what], hold, undo, ..Self::default() }
    }

    fn and(mut self, other: Self) -> Self {
        self.what.extend(other.what);
        self.undo.extend(other.undo);
        Self { hold: self.hold.max(other.hold), kill: None, elect: None, ..self }
    }
}

/// At most this many bytes are sent so that a log needs more room on a full disk: more than two segments have.
const FLOOD_BYTES: usize = 160 << 20;
const FLOOD_COMMAND: usize = 256 << 10;
const FLOOD_TIME: Duration = Duration::from_secs(10);
/// After this number of them, members are asked whether they are full.
const FLOOD_PART: usize = 16;

/// An error of a disk must end a node within this time.
const ERROR_TIME: Duration = Duration::from_secs(5);

/// How many members have this trouble, as a status says.
fn members_with(status: &Value, trouble: &str) -> usize {
    let has = |member: &&Value| {
        let troubles = member["troubles"].as_array().into_iter().flatten();
        troubles.filter_map(Value::as_str).any(|one| one.contains(trouble))
    };
    status["members"].as_array().into_iter().flatten().filter(has).count()
}

impl Soak<'_> {
    /// Begins a fault. `None` if it is not possible now, because of another one.
    pub(super) fn begin(&mut self, kind: Kind, leader: usize) -> Option<Active> {
        match kind {
            Kind::Kill => self.kill(leader),
            Kind::Terminate => self.terminate(leader),
            Kind::Stop => self.stop(leader),
            Kind::Cut => self.cut(leader),
            Kind::OneWay => self.one_way(leader),
            Kind::Lossy => self.lossy(leader),
            Kind::FullDisk => self.full_disk(leader),
            Kind::Elect => self.elect(leader),
            Kind::Change => self.change(leader),
            Kind::Clock => self.clock(leader),
            Kind::DiskError => self.disk_error(leader),
            Kind::Power => self.power(leader),
            Kind::Restore => self.restore(leader),
            Kind::Hostile => self.hostile(leader),
            Kind::Pair => self.pair(leader),
        }
    }

    /// A time in milliseconds.
    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.between(least, most))
    }

    fn follower(&mut self, leader: usize) -> usize {
        (leader + 1 + self.random.index(self.members - 1)) % self.members
    }

    /// Draws one host, mostly a member.
    fn victim(&mut self, leader: usize) -> usize {
        match self.random.below(10) {
            0..4 => leader,
            4..7 => self.follower(leader),
            7 | 8 => self.plain(),
            _ => self.archive(),
        }
    }

    fn list(&self, hosts: &[usize], leader: usize) -> String {
        let name = |host: &usize| match self.sites[*host].role {
            Role::Member if *host == leader => format!("m{host}, which leads"),
            Role::Member => format!("m{host}"),
            Role::Plain => "the host without a member".to_owned(),
            Role::Archive => "the archive".to_owned(),
        };
        hosts.iter().map(name).collect::<Vec<_>>().join(" and ")
    }

    fn kill(&mut self, leader: usize) -> Option<Active> {
        let victims = match self.random.below(20) {
            0..12 => vec![leader],
            12 => vec![self.follower(leader)],
            13..16 => vec![leader, self.follower(leader)],
            16 => (0..self.members).collect(),
            17 | 18 => vec![self.plain()],
            _ => vec![self.archive()],
        };
        if !victims.iter().all(|victim| self.sites[*victim].is_up()) {
            return None;
        }
        let at = now();
        Site::kill(&mut self.sites, &victims);
        let hold = self.between(200, 1_500);
        let undo = victims.iter().map(|victim| Undo::Start(*victim)).collect();
        let what = format!("kill {}", self.list(&victims, leader));
        let has_majority = 2 * victims.len() < self.members;
        let how = if victims.len() == 1 { Killed::Alone } else { Killed::WithAnother };
        let kill = (victims.contains(&leader) && has_majority).then_some((at, how));
        self.figures.leader_kills += u64::from(victims.contains(&leader));
        Some(Active { kill, ..Active::new(what, hold, undo) })
    }

    fn terminate(&mut self, leader: usize) -> Option<Active> {
        let victim = self.victim(leader);
        if !self.sites[victim].is_up() {
            return None;
        }
        self.sites[victim].terminate();
        if !self.sites[victim].wait_end() {
            self.violation(format!(
                "H8: the node of host {victim} did not end in order after SIGTERM"
            ));
        }
        let hold = self.between(100, 1_000);
        let what = format!("terminate {}", self.list(&[victim], leader));
        Some(Active::new(what, hold, vec![Undo::Start(victim)]))
    }

    fn stop(&mut self, leader: usize) -> Option<Active> {
        let mut victims = vec![self.victim(leader)];
        let other = self.victim(leader);
        if self.random.below(5) == 0 && !victims.contains(&other) {
            victims.push(other);
        }
        if !victims.iter().all(|victim| self.sites[*victim].is_up()) {
            return None;
        }
        victims.iter().for_each(|victim| self.sites[*victim].stop());
        let hold = self.between(100, 5_000);
        let what = format!("stop {}", self.list(&victims, leader));
        Some(Active::new(what, hold, victims.into_iter().map(Undo::Resume).collect()))
    }

    fn cut(&mut self, leader: usize) -> Option<Active> {
        let victim = self.victim(leader);
        self.network.switch().cut(victim);
        let hold = self.between(200, 5_000);
        Some(Active::new(format!("cut {}", self.list(&[victim], leader)), hold, vec![Undo::Heal]))
    }

    fn one_way(&mut self, leader: usize) -> Option<Active> {
        let (from, mut to) = (self.random.index(self.members), self.random.index(self.members));
        if from == to {
            to = (to + 1) % self.members;
        }
        let others: Vec<_> = (0..self.sites.len()).filter(|host| *host != leader).collect();
        let (from, to) = match self.random.below(4) {
            0 => (vec![leader], others),
            1 => (others, vec![leader]),
            _ => (vec![from], vec![to]),
        };
        self.network.switch().block(&from, &to);
        let hold = self.between(200, 5_000);
        let (from, to) = (self.list(&from, leader), self.list(&to, leader));
        Some(Active::new(format!("one-way: nothing from {from} to {to}"), hold, vec![Undo::Heal]))
    }

    fn lossy(&mut self, leader: usize) -> Option<Active> {
        let victim = self.victim(leader);
        let loss = self.random.between(1, 20);
        let delay = self.between(1, 20);
        let loss_of_frame = Loss::Bernoulli(f64::from(u32::try_from(loss).unwrap_or(0)) / 100.0);
        let faults = Faults { loss: loss_of_frame, delay, jitter: delay / 2, ..Faults::default() };
        for direction in [Direction::In, Direction::Out] {
            self.network.switch().set_faults(victim, direction, &faults);
        }
        let hold = self.between(500, 5_000);
        let list = self.list(&[victim], leader);
        let what = format!("lossy: {loss} % and {} ms each way for {list}", delay.as_millis());
        Some(Active::new(what, hold, vec![Undo::Heal]))
    }

    fn full_disk(&mut self, leader: usize) -> Option<Active> {
        let victims = match self.random.below(5) {
            0 | 1 => vec![leader],
            2 | 3 => vec![self.follower(leader)],
            _ => (0..self.members).collect(),
        };
        for victim in &victims {
            self.sites[*victim].disk.as_ref().expect("the disk of a member").fill();
        }
        // What the logs have allocated is used up first.
        let (begin, fault) = (Instant::now(), self.figures.faults.len());
        let (mut bytes, mut number, mut full) = (0, 0, 0);
        while full == 0 && bytes < FLOOD_BYTES && begin.elapsed() < FLOOD_TIME && !self.ends() {
            let payload = format!("{fault} {number} {}", "x".repeat(FLOOD_COMMAND));
            let is_sent = self.senders[self.plain()].send("large", &payload);
            bytes += if is_sent { FLOOD_COMMAND } else { 0 };
            number += 1;
            if number % FLOOD_PART == 0 || !is_sent {
                full = self.full_members();
            }
        }
        let hold = self.between(200, 3_000);
        let (list, mebibytes) = (self.list(&victims, leader), bytes >> 20);
        self.figures.full_members += full as u64;
        let what = format!("full-disk {list}: {full} full after {mebibytes} MiB of commands");
        Some(Active::new(what, hold, victims.into_iter().map(Undo::Free).collect()))
    }

    /// How many members say that their disks are full.
    fn full_members(&self) -> usize {
        let status = self.sites[self.plain()].sequencer_json(&["status"]);
        members_with(&status, "its disk is full")
    }

    fn elect(&mut self, leader: usize) -> Option<Active> {
        let next = self.follower(leader);
        let name = format!("m{next}");
        let begin = Instant::now();
        let output = self.sites[self.plain()].sequencer(&["elect", "--member", &name]);
        let took = begin.elapsed();
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let elect = if output.status.success() { Ok(took) } else { Err(said) };
        let what = format!("elect {name} after m{leader}");
        Some(Active { elect: Some(elect), ..Active::new(what, Duration::ZERO, vec![]) })
    }

    fn change(&mut self, leader: usize) -> Option<Active> {
        let leaves = self.follower(leader);
        let output =
            self.sites[self.plain()].sequencer(&["members", "remove", &format!("m{leaves}")]);
        let outcome = if output.status.success() { "" } else { ", which fails" };
        let hold = self.between(0, 1_000);
        let what = format!("change: remove m{leaves}{outcome}, and add it");
        Some(Active::new(what, hold, vec![Undo::Join(leaves)]))
    }

    /// A member that is up, mostly the leader.
    fn member(&mut self, leader: usize) -> Option<usize> {
        let member = if self.random.below(2) == 0 { leader } else { self.follower(leader) };
        self.sites[member].is_up().then_some(member)
    }

    fn kill_one(&mut self, victim: usize, leader: usize) {
        Site::kill(&mut self.sites, &[victim]);
        self.figures.leader_kills += u64::from(victim == leader);
    }

    fn clock(&mut self, leader: usize) -> Option<Active> {
        let victim = self.member(leader)?;
        let (ahead, is_back) = *self.random.pick(&[(3_600, false), (3_600, true), (10, true)]);
        let mut undo = vec![Undo::Repair(victim)];
        let is_restarted = self.random.below(2) == 0;
        if is_restarted {
            self.kill_one(victim, leader);
        }
        self.sites[victim].shim().set_clock(Duration::from_secs(ahead), is_back);
        if is_restarted {
            // It starts with this clock, and has the other one soon.
            self.sites[victim].launch();
            undo.push(Undo::Start(victim));
        }
        let direction = if is_back { "back" } else { "ahead" };
        let restarted = if is_restarted { ", and start it again" } else { "" };
        let list = self.list(&[victim], leader);
        let what = format!("clock: set {list} {ahead} s {direction}{restarted}");
        let hold = self.between(500, 3_000);
        Some(Active::new(what, hold, undo))
    }

    fn disk_error(&mut self, leader: usize) -> Option<Active> {
        let victim = self.member(leader)?;
        let (name, calls) =
            *self.random.pick(&[("write", PWRITE), ("sync", SYNC), ("rename", RENAME)]);
        self.sites[victim].shim().fail(calls);
        let has_ended = self.sites[victim].ends_within(ERROR_TIME);
        let failed = self.sites[victim].shim().failed();
        self.figures.failed_disks += u64::from(failed > 0);
        if failed > 0 && !has_ended {
            self.violation(format!("H8: {failed} errors of {name} did not end m{victim}"));
        }
        let how = if has_ended { "it ends" } else { "nothing fails" };
        let list = self.list(&[victim], leader);
        let what = format!("disk-error: {name} of {list}: {how}");
        let hold = self.between(200, 1_500);
        Some(Active::new(what, hold, vec![Undo::Repair(victim), Undo::Start(victim)]))
    }

    fn power(&mut self, leader: usize) -> Option<Active> {
        let victim = self.member(leader)?;
        self.sites[victim].shim().keep();
        let time = self.between(100, 1_500);
        std::thread::sleep(time);
        self.kill_one(victim, leader);
        let lost = self.sites[victim].shim().lose_power(&mut self.random);
        self.figures.lost_writes += lost as u64;
        let list = self.list(&[victim], leader);
        let what = format!("power: {list} loses {lost} writes");
        let hold = self.between(200, 1_500);
        Some(Active::new(what, hold, vec![Undo::Repair(victim), Undo::Start(victim)]))
    }

    fn restore(&mut self, leader: usize) -> Option<Active> {
        let victim = self.member(leader)?;
        if self.sites[victim].disk.as_ref().is_some_and(Disk::is_full) {
            return None;
        }
        self.kill_one(victim, leader);
        let is_restored = self.sites[victim].restore();
        self.figures.restored += u64::from(is_restored);
        let how = if is_restored { "restores its log" } else { "copies its log" };
        let what = format!("restore: kill {}, which {how}", self.list(&[victim], leader));
        let hold = self.between(200, 1_500);
        Some(Active::new(what, hold, vec![Undo::Start(victim)]))
    }

    fn hostile(&mut self, leader: usize) -> Option<Active> {
        let host = &self.sites[self.plain()].host;
        let hostile = Hostile::start(host, &self.addresses);
        std::thread::sleep(Duration::from_secs(1));
        let mut active = Active::default();
        if self.sites[leader].is_up() {
            active.kill = Some((now(), Killed::AmongHostile));
            Site::kill(&mut self.sites, &[leader]);
            self.figures.leader_kills += 1;
            active.undo.push(Undo::Start(leader));
        }
        active.undo.push(Undo::Close(hostile));
        let hold = self.between(2_000, 5_000);
        let what = format!("hostile connections, and kill m{leader}");
        Some(Active { hold, what: vec![what], ..active })
    }

    fn pair(&mut self, leader: usize) -> Option<Active> {
        let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pair).collect();
        let first = *self.random.pick(&kinds);
        let second = *self.random.pick(&kinds);
        let active = self.begin(first, leader)?;
        let pause = self.between(0, 500);
        std::thread::sleep(pause);
        let second = (second != first).then(|| self.begin(second, leader)).flatten();
        let Some(second) = second else { return Some(active) };
        Some(active.and(second))
    }

    /// Ends a fault.
    pub(super) fn undo(&mut self, mut steps: Vec<Undo>) {
        steps.sort_by_key(Undo::rank);
        for step in steps {
            match step {
                Undo::Free(host) => {
                    self.sites[host].disk.as_ref().expect("the disk of a member").free();
                }
                Undo::Heal => {
                    let switch = self.network.switch();
                    switch.heal();
                    for direction in [Direction::In, Direction::Out] {
                        switch.set_all_faults(direction, &Faults::default());
                    }
                }
                Undo::Repair(host) => self.sites[host].shim().heal(),
                Undo::Close(hostile) => drop(hostile),
                Undo::Resume(host) => self.sites[host].resume(),
                Undo::Start(host) => self.sites[host].launch(),
                Undo::Join(host) => {
                    self.sites.iter_mut().for_each(Site::wait_ready);
                    self.join(host);
                }
            }
        }
        self.sites.iter_mut().for_each(Site::wait_ready);
        // Another one may lose something next, and a group can bear one at a time.
        let plain = self.plain();
        self.wait_for("no member lacks entries", |soak| {
            let status = soak.sites[plain].sequencer_json(&["status"]);
            status["leader"].is_string() && members_with(&status, "may lack entries") == 0
        });
    }

    /// Adds a member that was removed, as the documentation says: its node starts with an empty log.
    fn join(&mut self, host: usize) {
        let name = format!("m{host}");
        let member = format!("{name}={}", self.addresses[host]);
        let absent = format!("{name} ({host}) is in the list, and no member of the group");
        let plain = self.plain();
        let mut is_new = false;
        self.wait_for(&format!("{name} is a member again"), |soak| {
            let status = soak.sites[plain].sequencer_json(&["status"]);
            let Some(differences) = status["differences"].as_array() else { return false };
            if status["leader"].is_null() {
                return false;
            }
            if !differences.iter().any(|difference| difference == absent.as_str()) {
                return true;
            }
            if !is_new {
                Site::kill(&mut soak.sites, &[host]);
                soak.sites[host].wipe();
                soak.sites[host].start();
                is_new = true;
            }
            let _ = soak.sites[plain].sequencer(&["members", "add", &member]);
            false
        });
    }
}
