//! A snapshot of a bus, for `toroni info` and `toroni topics`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::bus::views::{number_of, ring_of, table_of, values_of};
use crate::bus::{Bus, BusId, clock};
use crate::error::{Corrupt, FileError};
use crate::ring::copy::Scratch;
use crate::ring::layout::{Control, PATTERN_SEPARATOR, READER_GATES, SLOT_ACTIVE};
use crate::ring::reader::{Cursor, Interrupted, Seen};
use crate::ring::values::Value;
use crate::settings::{LockKind, NotifyKind, Policy};
use crate::shm::directory::{BusDirectory, BusFile, SOCKETS};
use crate::shm::dumping::is_dumping;
use crate::shm::header::Header;
use crate::shm::lease::LeaseTester;
use crate::shm::lock;
use crate::shm::mapping::{MapOptions, Protection};
use crate::shm::participants::{ReaderView, read_publishers, read_readers};
use crate::shm::platform::KernelContext;
use crate::shm::segment::RingSegment;
use crate::shm::snapshot::PatternsSnapshot;
use crate::sync::Ordering;
use crate::topic::Pattern;
use crate::topic::frame::{MAX_EXTENSIONS_BYTES, Tag, TopicId, decode};
use crate::topic::table::TopicCache;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The state of a bus at one moment; [`Bus::stats`] takes it. Positions and sizes are in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BusStats {
    /// The name of the bus.
    pub name: String,
    /// The directory of the bus.
    pub path: PathBuf,
    /// The identity of the bus.
    pub id: BusId,
    /// Size of the ring.
    pub capacity: u64,
    /// Size of the topic table.
    pub topic_table_bytes: u64,
    /// What publishers do when a subscriber is slow.
    pub policy: Policy,
    /// How publishers exclude one another.
    pub lock: LockKind,
    /// How sleeping subscribers are woken.
    pub notify: NotifyKind,
    /// Whether a clean-up keeps it although no process has it open.
    pub persistent: bool,
    /// Whether its directory is on a file system that outlives a reboot.
    pub on_disk: bool,
    /// When it was created.
    pub created: SystemTime,
    /// Slots for publishing participants.
    pub max_publishers: u32,
    /// Slots for subscribers.
    pub max_subscribers: u32,
    /// The number of streams from elsewhere whose arrival the bus can keep track of.
    pub max_arrivals: u32,
    /// Bytes published since it was created: where the next message will start.
    pub tail: u64,
    /// The sequence of the next message: how many messages and losses from elsewhere
    /// ([`Inlet::publish_lost`](crate::Inlet::publish_lost)) were published since it was created. On a bus without
    /// inlets, it is the number of messages.
    pub sequence: u64,
    /// Position of the oldest message that can still be read.
    pub oldest_position: u64,
    /// When that message was published; `None` if it has no [timestamp](crate::BusConfig::timestamps), if there is no
    /// message, or if publishers overwrote the oldest ones faster than this process read them. The publisher states
    /// the time, and nothing checks it.
    pub oldest_timestamp: Option<SystemTime>,
    /// Number of names in the topic table.
    pub topics: u32,
    /// What it keeps of retained topics.
    pub retained: RetainedStats,
    /// The owner of the writer lock, if it was taken at this moment.
    pub lock_owner: Option<LockOwner>,
    /// The publishing participants; `None` if this process may not read them.
    pub publishers: Option<Vec<PublisherStats>>,
    /// The subscribers; `None` if this process may not read them.
    pub subscribers: Option<Vec<SubscriberSlotStats>>,
    /// Names of the files in `sockets/`, each `<slot>.<generation>`.
    pub sockets: Vec<String>,
}

/// What a bus keeps of retained topics ([`Publisher::retained`](crate::Publisher::retained)). All is 0 on a bus that keeps no
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetainedStats {
    /// How many topics are retained.
    pub topics: u32,
    /// How many may be.
    pub max_topics: u32,
    /// How many of them have a value that is missing: the bus had no room for it, and its record has left the ring.
    pub missing: u32,
    /// Bytes in use for values. They only grow.
    pub used_bytes: u64,
    /// Bytes that there are for values.
    pub bytes: u64,
}

/// The owner of the writer lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOwner {
    /// Its slot among the publishers; `None` for the lock kind `robust`.
    pub slot: Option<u32>,
    /// Its process id, if it is known; for `robust`, its thread id. The number is of its own PID
    /// namespace.
    pub pid: Option<u32>,
    /// Whether it is an [exclusive](crate::Exclusive) publisher, which keeps the lock for as long as it exists.
    pub exclusive: bool,
    /// Whether it lives; `None` if this process cannot find out.
    pub alive: Option<bool>,
    /// Whether it is stopped (SIGSTOP): it is not dead, and all publishers wait for it.
    pub stopped: bool,
    /// Whether it crashed and its core dump is being written. With the lock kind `lease` the next
    /// publisher takes over at once; with `robust` all publishers wait until the dump is written.
    pub dumping: bool,
}

/// A publishing participant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublisherStats {
    /// The number of its slot.
    pub slot: u32,
    /// The name that it gave itself.
    pub name: String,
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// Whether that is also the namespace of this process.
    pub same_pid_namespace: bool,
    /// Whether it lives, that is, holds its lease. If the kernel does not say, it counts as alive.
    pub alive: bool,
    /// Whether it is stopped (SIGSTOP), as far as this process's PID namespace shows.
    pub stopped: bool,
    /// Whether it crashed and its core dump is being written, as far as this process's PID namespace shows.
    pub dumping: bool,
    /// When it opened the bus for publishing.
    pub started: SystemTime,
    /// Messages that it published; for an inlet, with the losses that it published.
    pub messages: u64,
    /// Bytes of the stream that they took.
    pub bytes: u64,
    /// How often it waited for slow subscribers.
    pub waits: u64,
    /// How long it waited for slow subscribers in all.
    pub waited: Duration,
    /// How often it overwrote what a slow subscriber had not read, after it had waited as long as its policy says. A
    /// call that waits for no subscriber, with [`Policy::Overwrite`](crate::Policy::Overwrite) or
    /// [`Limit::Overwrite`](crate::Limit::Overwrite), does not look for slow ones, and counts nothing.
    pub overwrites: u64,
    /// Wake-ups that it sent.
    pub wakes: u64,
}

/// A subscriber.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriberSlotStats {
    /// The number of its slot.
    pub slot: u32,
    /// The name that it gave itself.
    pub name: String,
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// Whether that is also the namespace of this process.
    pub same_pid_namespace: bool,
    /// Whether it lives, that is, holds its lease. If the kernel does not say, it counts as alive.
    pub alive: bool,
    /// Whether it is stopped (SIGSTOP), as far as this process's PID namespace shows.
    pub stopped: bool,
    /// Whether it crashed and its core dump is being written, as far as this process's PID namespace shows.
    pub dumping: bool,
    /// Whether publishers wait for it.
    pub gating: bool,
    /// When it subscribed.
    pub started: SystemTime,
    /// The position up to which it has read, or from which it holds messages
    /// ([`Subscriber::hold`](crate::Subscriber::hold)), as it last published it: at least once a block, and whenever
    /// it has read all.
    pub position: u64,
    /// Bytes from there to the end of the stream.
    pub lag_bytes: u64,
    /// Messages that it received.
    pub received: u64,
    /// Messages of the bus, on any topic, that were overwritten before it read them.
    pub lost_messages: u64,
    /// How often it lost some.
    pub lapses: u64,
    /// Losses on the way to this bus that it was told of ([`ReceiveError::Lost`](crate::ReceiveError::Lost)), at most
    /// `u32::MAX`.
    pub losses: u64,
    /// Messages that were lost on the way to this bus: the sum of what these losses state, exact or not.
    pub lost_on_the_way: u64,
    /// Whether writers have overtaken it since it last published its position.
    pub lapped_now: bool,
    /// Its patterns, or the first of them if `patterns_truncated`. `None` if they are unreadable because
    /// the subscriber is changing them at this moment or another subscriber wrote over them.
    pub patterns: Option<Vec<Pattern>>,
    /// Whether it has more patterns than fit into the bus, which keeps 496 bytes for each subscriber.
    pub patterns_truncated: bool,
}

impl SubscriberSlotStats {
    /// Returns whether one of its patterns matches `topic`. `None` means that none of the listed patterns
    /// matches, and that the list is truncated. Unreadable patterns match nothing.
    ///
    /// Any subscriber can write over the patterns of all others, so do not base a decision about rights on
    /// the answer.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-matches-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let subscriber = bus.subscribe("plant/*/speed")?;
    /// let stats = bus.stats()?;
    /// let shown = &stats.subscribers.as_deref().unwrap_or_default()[0];
    /// assert_eq!(shown.matches("plant/pump/speed"), Some(true));
    /// assert_eq!(shown.matches("plant"), Some(false));
    /// assert_eq!(shown.matches_descendants("plant"), Some(true));
    /// # drop((subscriber, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn matches(&self, topic: &str) -> Option<bool> {
        self.matches_any(|pattern| pattern.matches(topic))
    }

    /// Returns the same as [`matches`](Self::matches) for a message that is published to `topic` and its
    /// descendants.
    #[must_use]
    pub fn matches_descendants(&self, topic: &str) -> Option<bool> {
        self.matches_any(|pattern| pattern.matches_descendants(topic))
    }

    fn matches_any(&self, is_match: impl Fn(&Pattern) -> bool) -> Option<bool> {
        let Some(patterns) = &self.patterns else { return Some(false) };
        match patterns.iter().any(is_match) {
            false if self.patterns_truncated => None,
            answer => Some(answer),
        }
    }
}

/// What the ring holds of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicStats {
    /// The name of the topic.
    pub name: String,
    /// Its messages that can still be read; 0 if all of them have been overwritten.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Its value, if it is retained.
    pub value: Option<ValueStats>,
}

/// The value of a retained topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueStats {
    /// It has none: nothing was published since it was declared, or it was cleared.
    None,
    /// Its newest message.
    Kept {
        /// Its number among all messages of the bus.
        sequence: u64,
        /// Bytes of its payload.
        bytes: u64,
        /// When it was published, if publishers state that.
        published: Option<SystemTime>,
    },
    /// The bus had no room for its newest message.
    Missing {
        /// The number of that message.
        sequence: u64,
        /// Bytes of its payload and of what precedes that.
        bytes: u64,
    },
}

impl Bus {
    /// Takes a snapshot of the bus. It does not disturb other processes, and needs only the permission to
    /// read the file `ring`; parts that this process may not read are `None`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-stats-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let stats = bus.stats()?;
    /// println!("{} messages, {} bytes since {:?}", stats.sequence, stats.tail, stats.created);
    /// for subscriber in stats.subscribers.iter().flatten() {
    ///     println!("{} lags {} bytes behind", subscriber.name, subscriber.lag_bytes);
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn stats(&self) -> Result<BusStats, FileError> {
        let directory = self.directory()?;
        let ring = RingSegment::open(directory, Protection::Read, &MapOptions::default())?;
        let header = ring.header();
        let settings = header.settings;
        let control = ring.control();
        let tail = control.commit.0.tail.load(Ordering::Acquire);
        let reserved = control.reserved.0.load(Ordering::Relaxed);
        let here = KernelContext::current().pid_namespace;
        let publishers = visible(read_participating_publishers(directory, header, here))?;
        let limits = Limits { tail, reserved, capacity: settings.capacity };
        let subscribers = visible(read_subscribers(directory, header, here, &limits))?;
        let oldest = Cursor::at_oldest(ring_of(&ring))?;
        Ok(BusStats {
            name: self.name().to_owned(),
            path: self.path().to_owned(),
            id: self.id(),
            capacity: settings.capacity,
            topic_table_bytes: settings.topic_table_bytes,
            policy: settings.policy,
            lock: settings.lock,
            notify: settings.notify,
            persistent: settings.persistent,
            on_disk: ring.file().is_on_disk(),
            created: clock::from_ns(header.created_ns),
            max_publishers: settings.max_publishers,
            max_subscribers: settings.max_subscribers,
            max_arrivals: settings.max_arrivals,
            tail,
            sequence: control.commit.0.sequence.load(Ordering::Relaxed),
            oldest_position: oldest.position,
            oldest_timestamp: timestamp_of_oldest(&ring, oldest),
            topics: control.topics.0.load(Ordering::Acquire),
            retained: retained(&ring),
            lock_owner: lock_owner(settings.lock, control, publishers.as_deref()),
            publishers,
            subscribers,
            sockets: sockets(directory),
        })
    }

    /// Lists the topics of the bus by name, with what the ring holds of each.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-topics-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// bus.publisher("plant/pump")?.publish(b"on")?;
    /// let topics = bus.topics()?;
    /// assert_eq!((topics[0].name.as_str(), topics[0].messages, topics[0].bytes), ("plant/pump", 1, 2));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn topics(&self) -> Result<Vec<TopicStats>, FileError> {
        let ring = RingSegment::open(self.directory()?, Protection::Read, &MapOptions::default())?;
        let settings = ring.header().settings;
        let mut topic_cache = TopicCache::default();
        let mut counts = BTreeMap::<String, (u64, u64)>::new();
        let end = Cursor::at_end(ring_of(&ring))?.position;
        let mut cursor = Cursor::at_oldest(ring_of(&ring))?;
        let mut scratch = Scratch::default();
        // Each step advances by at least a word, unless another process rewrites the ring meanwhile.
        let mut steps = (settings.capacity / 8).saturating_add(1000);
        while cursor.position < end {
            steps = steps.saturating_sub(1);
            if steps == 0 {
                let (what, position) = ("stream without an end", cursor.position);
                return Err(Corrupt { what, value: end, position }.into());
            }
            let seen = match cursor.peek(ring_of(&ring)) {
                Ok(Some(seen)) => seen,
                // What a writer overwrites is no longer in the ring.
                Err(Interrupted::Lapped) => {
                    cursor.resume(ring_of(&ring), 0)?;
                    continue;
                }
                Err(Interrupted::Corrupt(corrupt)) => return Err(corrupt.into()),
                Ok(None) => {
                    let (what, position) = ("end of the stream", cursor.position);
                    return Err(Corrupt { what, value: end, position }.into());
                }
            };
            if cursor.copy_front(ring_of(&ring), &seen, MAX_EXTENSIONS_BYTES, &mut scratch).is_err()
            {
                continue;
            }
            cursor.advance(&seen);
            let tag = Tag::from_raw(seen.tag);
            // A loss, or a value that was cleared.
            if !tag.is_message() {
                continue;
            }
            let front = (seen.length as usize).min(MAX_EXTENSIONS_BYTES);
            let Ok((extensions, offset)) = decode(tag, scratch.bytes(front)) else { continue };
            if tag.topic() != TopicId::INLINE && topic_cache.name(tag.topic()).is_none() {
                topic_cache.sync(table_of(&ring)).map_err(Corrupt::from)?;
            }
            let name = match extensions.inline_topic {
                Some(name) => name,
                None => topic_cache.name(tag.topic()).map_or("", |topic| topic.as_str()),
            };
            let count = match counts.get_mut(name) {
                Some(count) => count,
                None => counts.entry(name.to_owned()).or_default(),
            };
            count.0 = count.0.saturating_add(1);
            count.1 = count.1.saturating_add(u64::from(seen.length).saturating_sub(offset as u64));
        }
        topic_cache.sync(table_of(&ring)).map_err(Corrupt::from)?;
        for topic in topic_cache.names() {
            counts.entry(topic.as_str().to_owned()).or_default();
        }
        let topics = counts.into_iter();
        let topics = topics.map(|(name, (messages, bytes))| {
            let id = topic_cache.lookup(&name);
            let value = id.and_then(|id| value(&ring, number_of(id), &mut scratch));
            TopicStats { name, messages, bytes, value }
        });
        Ok(topics.collect())
    }
}

fn value(ring: &RingSegment, topic: u32, scratch: &mut Scratch) -> Option<ValueStats> {
    Some(match values_of(ring)?.read(ring_of(ring), topic, scratch)? {
        Value::Present(seen) | Value::Missing(seen) if Tag::from_raw(seen.tag).is_cleared() => {
            ValueStats::None
        }
        Value::Present(seen) => {
            let body = scratch.bytes(seen.length as usize);
            let Ok((extensions, offset)) = decode(Tag::from_raw(seen.tag), body) else {
                return Some(ValueStats::None);
            };
            ValueStats::Kept {
                sequence: seen.sequence,
                bytes: (body.len() as u64).saturating_sub(offset as u64),
                published: extensions.timestamp_ns.map(clock::from_ns),
            }
        }
        Value::Missing(Seen { sequence, length, .. }) => {
            ValueStats::Missing { sequence, bytes: length.into() }
        }
        Value::None | Value::Unstable | Value::Invalid(_) => ValueStats::None,
    })
}

fn retained(ring: &RingSegment) -> RetainedStats {
    let Some(values) = values_of(ring) else { return RetainedStats::default() };
    let mut scratch = Scratch::default();
    let (used_bytes, bytes) = values.usage();
    let max_topics = ring.header().settings.retained_topics;
    let mut stats = RetainedStats { max_topics, used_bytes, bytes, ..RetainedStats::default() };
    for topic in values.topics() {
        stats.topics = stats.topics.saturating_add(1);
        if let Some(ValueStats::Missing { .. }) = value(ring, topic, &mut scratch) {
            stats.missing = stats.missing.saturating_add(1);
        }
    }
    stats
}

/// How often to look for the oldest message again if it was overwritten meanwhile.
const ATTEMPTS: u32 = 8;

/// Returns the timestamp of the record at `oldest`, or of a later one if that was overwritten meanwhile.
fn timestamp_of_oldest(ring: &RingSegment, mut oldest: Cursor) -> Option<SystemTime> {
    let ring = ring_of(ring);
    let mut scratch = Scratch::default();
    for _ in 0..ATTEMPTS {
        match oldest.peek(ring) {
            Ok(Some(seen)) => {
                let copied = oldest.copy_front(ring, &seen, MAX_EXTENSIONS_BYTES, &mut scratch);
                if copied.is_ok() {
                    let front = (seen.length as usize).min(MAX_EXTENSIONS_BYTES);
                    let (extensions, _) =
                        decode(Tag::from_raw(seen.tag), scratch.bytes(front)).ok()?;
                    return extensions.timestamp_ns.map(clock::from_ns);
                }
            }
            Err(Interrupted::Lapped) => {}
            Ok(None) | Err(Interrupted::Corrupt(_)) => return None,
        }
        oldest = Cursor::at_oldest(ring).ok()?;
    }
    None
}

struct Limits {
    tail: u64,
    reserved: u64,
    capacity: u64,
}

fn read_participating_publishers(
    directory: &BusDirectory,
    header: &Header,
    here: u64,
) -> Result<Vec<PublisherStats>, FileError> {
    let leases = LeaseTester::open(directory, BusFile::Publishers)?;
    let slots = (0..).zip(read_publishers(directory, header)?);
    Ok(slots
        .filter(|(_, slot)| slot.state == SLOT_ACTIVE)
        .map(|(number, slot)| PublisherStats {
            slot: number,
            name: slot.name(),
            pid: slot.pid,
            same_pid_namespace: slot.pid_namespace == here,
            alive: leases.is_held(number).unwrap_or(true),
            stopped: slot.pid_namespace == here && is_stopped(slot.pid),
            dumping: slot.pid_namespace == here && is_dumping(slot.pid),
            started: clock::from_ns(slot.started_ns),
            messages: slot.messages,
            bytes: slot.bytes,
            waits: slot.waits,
            waited: Duration::from_nanos(slot.waited_ns),
            overwrites: slot.overwrites,
            wakes: slot.wakes,
        })
        .collect())
}

fn read_subscribers(
    directory: &BusDirectory,
    header: &Header,
    here: u64,
    limits: &Limits,
) -> Result<Vec<SubscriberSlotStats>, FileError> {
    let leases = LeaseTester::open(directory, BusFile::Readers)?;
    let subscriber = |ReaderView { number, slot, patterns }| {
        let (patterns, patterns_truncated) = patterns.as_ref().and_then(parse_patterns).unzip();
        SubscriberSlotStats {
            slot: number,
            name: slot.name(),
            pid: slot.pid,
            same_pid_namespace: slot.pid_namespace == here,
            alive: leases.is_held(number).unwrap_or(true),
            stopped: slot.pid_namespace == here && is_stopped(slot.pid),
            dumping: slot.pid_namespace == here && is_dumping(slot.pid),
            gating: slot.flags & READER_GATES != 0,
            started: clock::from_ns(slot.started_ns),
            position: slot.position,
            lag_bytes: limits.tail.saturating_sub(slot.position),
            received: slot.received,
            lost_messages: slot.lost_messages,
            lapses: slot.lapses,
            losses: slot.losses.into(),
            lost_on_the_way: slot.lost_on_the_way,
            lapped_now: slot.position.saturating_add(limits.capacity) < limits.reserved,
            patterns,
            patterns_truncated: patterns_truncated.unwrap_or(false),
        }
    };
    Ok(read_readers(directory, header)?.into_iter().map(subscriber).collect())
}

/// Returns the patterns in the text, and whether some are missing. `None` if a part of it is no pattern.
fn parse_patterns(shown: &PatternsSnapshot) -> Option<(Vec<Pattern>, bool)> {
    let (text, is_truncated) = shown.text()?;
    if text.is_empty() {
        // The longest pattern fits: no subscriber has to leave out its first one.
        return (!is_truncated).then_some((Vec::new(), false));
    }
    let patterns = text.split(char::from(PATTERN_SEPARATOR)).map(Pattern::new);
    Some((patterns.collect::<Result<_, _>>().ok()?, is_truncated))
}

/// Returns `None` for what this process may not read.
fn visible<T>(answer: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(FileError::PermissionDenied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn lock_owner(
    kind: LockKind,
    control: &Control,
    publishers: Option<&[PublisherStats]>,
) -> Option<LockOwner> {
    match kind {
        LockKind::Lease => {
            let (owner, exclusive) = lock::lease_owner(control)?;
            let slot = owner.slot();
            let owner = publishers
                .and_then(|publishers| publishers.iter().find(|one| Some(one.slot) == slot));
            let pid = owner.map(|owner| owner.pid);
            let near = owner.is_some_and(|owner| owner.same_pid_namespace);
            Some(LockOwner {
                slot,
                pid,
                exclusive,
                alive: publishers.map(|_| owner.is_some_and(|owner| owner.alive)),
                stopped: near && pid.is_some_and(is_stopped),
                dumping: near && pid.is_some_and(is_dumping),
            })
        }
        LockKind::Robust => {
            let pid = lock::robust_owner(control)?;
            let alive = std::path::Path::new("/proc").join(pid.to_string()).exists();
            Some(LockOwner {
                slot: None,
                pid: Some(pid),
                exclusive: false,
                alive: Some(alive),
                stopped: is_stopped(pid),
                dumping: is_dumping(pid),
            })
        }
    }
}

/// Returns whether a process is stopped: state `T` in `/proc/<pid>/stat` (proc(5)), after the name in
/// parentheses, which may contain anything.
fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

fn sockets(directory: &BusDirectory) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory.path().join(SOCKETS)) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusConfig;
    use crate::hook::{CrashPoint, rehearsal};
    use crate::shm::testing::TempDir;

    /// The patterns are there before the slot is active. A subscriber that dies on the way hides neither its
    /// successor in the slot nor that one's patterns.
    #[test]
    fn a_subscriber_shows_with_its_patterns_or_not_at_all() {
        let directory = TempDir::new();
        let bus =
            BusConfig::new().directory(directory.path()).max_subscribers(1).create("b").unwrap();
        let build = || bus.subscriber().pattern("a/*").pattern("b").build();
        let shown = || {
            let subscribers = bus.stats().unwrap().subscribers.unwrap();
            let patterns =
                subscribers.into_iter().map(|one| one.patterns.map(|all| (all, one.alive)));
            patterns.collect::<Vec<_>>()
        };
        let its_own = ["a/*", "b"].map(|pattern| Pattern::new(pattern).unwrap()).to_vec();
        for (fatal, is_active) in [
            (CrashPoint::ReaderMidClaim, false),
            (CrashPoint::ReaderMidPatterns, false),
            (CrashPoint::ReaderMidActivate, true),
            (CrashPoint::ReaderAfterClaim, true),
        ] {
            let dies = move |reached: &[CrashPoint]| reached.last() == Some(&fatal);
            let (_, built) = rehearsal::act(dies, build);
            assert!(built.is_none(), "{fatal:?} is not on the way");
            let dead = is_active.then(|| Some((its_own.clone(), false)));
            assert_eq!(shown(), Vec::from_iter(dead), "{fatal:?}");
            let subscriber = build().unwrap();
            assert_eq!(shown(), [Some((its_own.clone(), true))], "after {fatal:?}");
            drop(subscriber);
            assert_eq!(shown(), []);
        }
    }

    /// The time is that of the oldest message which the ring still holds, and moves on with it.
    #[test]
    fn the_oldest_timestamp_is_that_of_the_oldest_message() {
        let directory = TempDir::new();
        let config = BusConfig::new().directory(directory.path()).capacity(64 << 10);
        let bus = config.clone().timestamps(true).create("b").unwrap();
        assert_eq!(bus.stats().unwrap().oldest_timestamp, None);
        let before = SystemTime::now();
        let publisher = bus.publisher("t").unwrap();
        publisher.publish(b"first").unwrap();
        let first = bus.stats().unwrap().oldest_timestamp.unwrap();
        assert!(before <= first && first <= SystemTime::now(), "{first:?}");
        publisher.publish(b"second").unwrap();
        assert_eq!(bus.stats().unwrap().oldest_timestamp, Some(first));
        for _ in 0..3000 {
            publisher.publish([0; 60]).unwrap();
        }
        assert!(bus.stats().unwrap().oldest_timestamp.unwrap() > first);
        // Messages without a time overwrite those that have one.
        let unstamped = config.open_existing("b").unwrap().publisher("t").unwrap();
        for _ in 0..3000 {
            unstamped.publish([0; 60]).unwrap();
        }
        assert_eq!(bus.stats().unwrap().oldest_timestamp, None);
    }

    /// In the middle of adding a pattern the old ones are gone and the new ones are not there.
    #[test]
    fn a_pattern_that_is_added_shows_whole_or_not_at_all() {
        let directory = TempDir::new();
        let bus = BusConfig::new().directory(directory.path()).create("b").unwrap();
        let mut subscriber = bus.subscribe("a").unwrap();
        let shown = || bus.stats().unwrap().subscribers.unwrap().remove(0);
        subscriber.add_pattern("b/**").unwrap();
        assert_eq!(shown().matches("b/c"), Some(true));
        assert!(subscriber.add_pattern("c//d").is_err());
        assert_eq!(shown().patterns.map(|patterns| patterns.len()), Some(2));
        let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::ReaderMidPatterns);
        let (_, added) = rehearsal::act(dies, || subscriber.add_pattern("c"));
        assert!(added.is_none());
        assert_eq!((shown().patterns, shown().matches("a")), (None, Some(false)));
        rehearsal::bury(subscriber);
    }
}
