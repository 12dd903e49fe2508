//! Takes the snapshots: opens buses, and opens them again after they were removed.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::model::{self, BusModel, BusRow, ListModel, TopicCounts};
use super::nodes::NodeReader;
use super::sample::{History, Owner, Participant, Publisher, Snapshot, Subscriber};
use super::topics::{NAME, TopicReader, unix_seconds};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};
use toroni::{
    Bus, BusConfig, BusStats, LockOwner, Policy, PublisherStats, SubscriberSlotStats, admin,
};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

/// How long to wait until a subscription that was refused is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// One bus, as long as it exists and whenever it exists again.
pub(super) struct BusSource {
    location: BusLocation,
    config: BusConfig,
    name: String,
    /// The time 0 of snapshots.
    began: Instant,
    bus: Option<Bus>,
    history: History,
    wants_topics: bool,
    reader: Option<TopicReader>,
    /// Dead subscribers whose slots the reader took. Without it, they would still be listed.
    buried: Vec<Subscriber>,
    counts: Option<TopicCounts>,
    topics_problem: Option<String>,
    /// The nodes that connect the bus, if they are wanted.
    nodes: Option<NodeReader>,
    try_topics_at: Instant,
    problem: Option<String>,
}

impl BusSource {
    /// Opens the bus `name`. Fails if it does not exist.
    pub(super) fn open(location: &BusLocation, name: &str) -> Result<Self, Failure> {
        let mut source = Self::new(location, name);
        source.bus = Some(source.config.open_existing(name)?);
        Ok(source)
    }

    /// Names a bus without opening it.
    fn new(location: &BusLocation, name: &str) -> Self {
        let now = Instant::now();
        Self {
            location: location.clone(),
            config: location.config().participant_name(NAME),
            name: name.to_owned(),
            began: now,
            bus: None,
            history: History::default(),
            wants_topics: false,
            reader: None,
            buried: Vec::new(),
            counts: None,
            topics_problem: None,
            nodes: None,
            try_topics_at: now,
            problem: None,
        }
    }

    pub(super) fn wants_topics(&self) -> bool {
        self.wants_topics
    }

    /// Takes a snapshot. If that fails, the model says why, and the next call opens the bus again.
    pub(super) fn look(&mut self) {
        if let Some(nodes) = &mut self.nodes {
            nodes.look();
        }
        match self.try_look() {
            Ok(()) => self.problem = None,
            Err(failure) => {
                self.problem = Some(failure.report().1.unwrap_or_default());
                (self.bus, self.reader, self.counts) = (None, None, None);
            }
        }
    }

    fn try_look(&mut self) -> Result<(), Failure> {
        let bus = match self.bus.take() {
            Some(bus) => bus,
            None => self.config.open_existing(&self.name)?,
        };
        let stats = bus.stats()?;
        self.bus = Some(bus);
        let before = self.history.current.as_ref().map(|one| (one.sequence, one.tail));
        let own_slot = self.reader.as_ref().map(TopicReader::slot);
        let mut snapshot = snapshot(&stats, self.began.elapsed(), own_slot);
        if self.history.current.as_ref().is_some_and(|current| current.id != snapshot.id) {
            self.buried.clear();
        }
        if let Some(subscribers) = &mut snapshot.subscribers {
            let is_taken =
                |dead: &Subscriber| subscribers.iter().any(|one| one.who.slot == dead.who.slot);
            self.buried.retain(|dead| !is_taken(dead));
            subscribers.extend(self.buried.iter().cloned());
        }
        let (sequence, tail, at) = (snapshot.sequence, snapshot.tail, snapshot.at);
        self.history.add(snapshot);
        // What came since the last poll belongs to this interval.
        self.read_topics();
        if let Some(reader) = &mut self.reader {
            let (messages, bytes) = before.unwrap_or((sequence, tail));
            let messages = sequence.saturating_sub(messages);
            let (counts, losses) = reader.next_interval(messages, tail.saturating_sub(bytes));
            self.counts = Some(counts);
            for loss in losses {
                self.history.note(super::sample::Loss { at, ..loss });
            }
        }
        self.subscribe();
        Ok(())
    }

    /// Reads the notices of nodes from now on, or no longer.
    pub(super) fn want_network(&mut self, wanted: bool) {
        if wanted && self.nodes.is_none() {
            let mut nodes = NodeReader::new(&self.location, &self.name);
            nodes.look();
            self.nodes = Some(nodes);
        } else if !wanted {
            self.nodes = None;
        }
    }

    /// Reads topics from now on, or no longer.
    pub(super) fn want_topics(&mut self, wanted: bool) {
        self.wants_topics = wanted;
        if wanted {
            self.subscribe();
        } else {
            (self.reader, self.counts) = (None, None);
            self.try_topics_at = Instant::now();
        }
    }

    fn subscribe(&mut self) {
        let (true, None, Some(bus)) = (self.wants_topics, &self.reader, &self.bus) else { return };
        let Some(current) = &self.history.current else { return };
        if Instant::now() < self.try_topics_at {
            return;
        }
        match TopicReader::new(bus, current.capacity) {
            Ok(reader) => {
                let all = current.subscribers.iter().flatten();
                let is_dead = |one: &&Subscriber| one.who.slot == reader.slot() && !one.who.alive;
                let known = self.buried.iter().any(|one| one.who.slot == reader.slot());
                self.buried.extend(all.filter(is_dead).filter(|_| !known).cloned());
                (self.reader, self.topics_problem) = (Some(reader), None);
            }
            Err(error) => {
                let reason = Failure::from(error).report().1.unwrap_or_default();
                self.topics_problem = Some(format!("no rates per topic: {reason}"));
                self.try_topics_at =
                    Instant::now().checked_add(TRY_AGAIN).unwrap_or(self.try_topics_at);
            }
        }
    }

    /// Reads messages to count them. Returns when to call it again, if topics are wanted.
    pub(super) fn read_topics(&mut self) -> Option<Instant> {
        match self.reader.as_mut()?.read() {
            Ok(next) => Some(next),
            Err(error) => {
                self.topics_problem = Some(format!("no rates per topic: {error}"));
                (self.reader, self.counts) = (None, None);
                self.try_topics_at = Instant::now();
                None
            }
        }
    }

    /// Returns what is to be shown.
    pub(super) fn model(&self) -> BusModel {
        let mut model = model::build(&self.history, self.counts.as_ref());
        model.name.clone_from(&self.name);
        model.network = self.nodes.as_ref().map(NodeReader::model);
        model.problem.clone_from(&self.problem);
        if self.wants_topics {
            model.topics_problem.clone_from(&self.topics_problem);
        }
        if self.problem.is_some() {
            model.time = unix_seconds();
        }
        model
    }
}

/// All buses of the directory.
pub(super) struct ListSource {
    location: BusLocation,
    buses: BTreeMap<String, BusSource>,
    model: ListModel,
}

impl ListSource {
    pub(super) fn new(location: &BusLocation) -> Self {
        let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
        let directory = directory.to_string_lossy().into_owned();
        let model = ListModel { directory, ..ListModel::default() };
        Self { location: location.clone(), buses: BTreeMap::new(), model }
    }

    /// Takes a snapshot of each bus.
    pub(super) fn look(&mut self) {
        self.model.time = unix_seconds();
        let entries = match admin::list(self.location.dir.as_deref()) {
            Ok(entries) => entries,
            Err(error) => {
                self.model.problem = Failure::from(error).report().1;
                self.model.buses.clear();
                self.buses.clear();
                return;
            }
        };
        self.model.problem = None;
        self.buses.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
        self.model.buses = entries
            .into_iter()
            .map(|entry| {
                if entry.problem.is_some() {
                    self.buses.remove(&entry.name);
                    let admin::BusEntry { name, problem, in_use, capacity, .. } = entry;
                    return BusRow { name, problem, in_use, capacity, ..BusRow::default() };
                }
                let source = self
                    .buses
                    .entry(entry.name.clone())
                    .or_insert_with(|| BusSource::new(&self.location, &entry.name));
                source.look();
                BusRow {
                    in_use: entry.in_use,
                    capacity: entry.capacity,
                    ..BusRow::of(&source.model())
                }
            })
            .collect();
    }

    pub(super) fn model(&self) -> &ListModel {
        &self.model
    }
}

fn snapshot(stats: &BusStats, at: Duration, own_slot: Option<u32>) -> Snapshot {
    let own_pid = std::process::id();
    let is_own = |one: &SubscriberSlotStats| Some(one.slot) == own_slot && one.pid == own_pid;
    Snapshot {
        at,
        time: unix_seconds(),
        name: stats.name.clone(),
        id: stats.id.to_string(),
        capacity: stats.capacity,
        policy: stats.policy.to_string(),
        can_wait: stats.policy != Policy::Overwrite,
        lock: stats.lock.to_string(),
        tail: stats.tail,
        sequence: stats.sequence,
        oldest_position: stats.oldest_position,
        topics: stats.topics,
        max_publishers: stats.max_publishers,
        max_subscribers: stats.max_subscribers,
        owner: stats.lock_owner.as_ref().map(owner),
        publishers: stats.publishers.as_ref().map(|all| all.iter().map(publisher).collect()),
        subscribers: stats
            .subscribers
            .as_ref()
            .map(|all| all.iter().filter(|one| !is_own(one)).map(subscriber).collect()),
    }
}

fn owner(owner: &LockOwner) -> Owner {
    Owner {
        slot: owner.slot,
        pid: owner.pid,
        exclusive: owner.exclusive,
        alive: owner.alive,
        stopped: owner.stopped,
        dumping: owner.dumping,
    }
}

fn publisher(one: &PublisherStats) -> Publisher {
    Publisher {
        who: Participant {
            slot: one.slot,
            name: one.name.clone(),
            pid: one.pid,
            same_pid_namespace: one.same_pid_namespace,
            alive: one.alive,
            stopped: one.stopped,
            dumping: one.dumping,
            started_ns: one.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
        },
        messages: one.messages,
        bytes: one.bytes,
        waited: one.waited,
        overwrites: one.overwrites,
        wakes: one.wakes,
    }
}

fn subscriber(one: &SubscriberSlotStats) -> Subscriber {
    Subscriber {
        who: Participant {
            slot: one.slot,
            name: one.name.clone(),
            pid: one.pid,
            same_pid_namespace: one.same_pid_namespace,
            alive: one.alive,
            stopped: one.stopped,
            dumping: one.dumping,
            started_ns: one.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
        },
        gating: one.gating,
        position: one.position,
        lag_bytes: one.lag_bytes,
        received: one.received,
        lost_messages: one.lost_messages,
        lapses: one.lapses,
        lost_on_the_way: one.lost_on_the_way,
        lapped_now: one.lapped_now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_all_messages_up_to_its_end() {
        let directory = toroni_testkit::Directory::new();
        let location =
            BusLocation { bus: "b".to_owned(), dir: Some(directory.path().to_path_buf()) };
        let config = toroni::BusConfig::new().directory(directory.path());
        let publisher = config.create("b").unwrap().publisher("t").unwrap();
        let mut source = BusSource::open(&location, "b").unwrap();
        source.look();
        source.want_topics(true);
        for _ in 0..100 {
            publisher.publish(b"x").unwrap();
        }
        source.look();
        let counts = source.counts.unwrap();
        let [count] = &counts.counts[..] else { panic!("{counts:?}") };
        assert_eq!((count.topic.as_str(), count.messages, count.bytes), ("t", 100, 100));
        assert_eq!(count.age, None, "they have no stamp");
    }

    #[test]
    fn stamps_give_the_ages_of_an_interval() {
        let directory = toroni_testkit::Directory::new();
        let location =
            BusLocation { bus: "b".to_owned(), dir: Some(directory.path().to_path_buf()) };
        let config = toroni::BusConfig::new().directory(directory.path()).timestamps(true);
        let publisher = config.create("b").unwrap().publisher("t").unwrap();
        let mut source = BusSource::open(&location, "b").unwrap();
        source.look();
        source.want_topics(true);
        publisher.publish(b"x").unwrap();
        std::thread::sleep(Duration::from_millis(30));
        publisher.publish(b"x").unwrap();
        source.look();
        let model = source.model();
        let age = model.topics.unwrap().rows[0].age.unwrap();
        // The second message may be as old if this process had to wait for a processor.
        assert!(age.longest >= 0.03 && age.p50 <= age.longest, "{age:?}");
        // The next interval begins without any.
        source.look();
        assert_eq!(source.model().topics.unwrap().rows[0].age, None);
    }
}
