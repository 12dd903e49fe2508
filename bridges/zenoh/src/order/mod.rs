//! Restores the order of each topic, drops what has arrived before, and finds out exactly what was lost.
//!
//! A sender counts its messages by topic ([`Attachment::count`](crate::attachment::Attachment::count)). A message whose
//! count is too high waits for those before it. After the reorder time they are lost. Heartbeats tell how many messages
//! there were ([`Order::told`]), so the last ones are missed as well.
//!
//! The same message can come by several ways. Its origin names it, and on one topic the numbers of a stream only grow. So
//! a message whose number is not above that of the last one is a duplicate.
//!
//! A message that is missing is seen when a later one of its topic or a heartbeat comes. Until then, messages of other
//! topics pass. So heartbeats say up to where a sender's stream is *settled* ([`Event::Settled`]): everything before has
//! arrived or was reported. An importer that begins after another one was killed continues there. It gets again what came
//! since, and what is not on its bus then was lost ([`Item::missed`]).
//!
//! The machine does no I/O and reads no clock: what happens depends on the calls alone.

use crate::beat::REPEATS;
use foldhash::{HashMap, HashMapExt};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use toroni::{LostBound, LostReason, Origin};
use unaccounted::{Base, Unaccounted};

mod unaccounted;

/// As many numbers of delivered messages are remembered for each topic that comes by several ways.
const RECENT: usize = 64;
/// As many numberings are followed.
pub(crate) const PATHS: usize = 1024;
/// As many streams are remembered, and those that have gaps.
pub(crate) const STREAMS: usize = 4096;

/// Numbers and counts are doubted that are further ahead of what a sender has told and sent.
const FAR: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    pub(crate) source: u32,
    pub(crate) series: u32,
    pub(crate) stream: u16,
}

impl StreamKey {
    pub(crate) fn of(Origin { source, series, stream, number: _ }: Origin) -> Self {
        Self { source, series, stream }
    }

    pub(crate) fn origin(self, number: u64) -> Origin {
        let Self { source, series, stream } = self;
        Origin { source, series, stream, number }
    }
}

impl From<StreamKey> for toroni::StreamKey {
    fn from(StreamKey { source, series, stream }: StreamKey) -> Self {
        Self { source, series, stream }
    }
}

/// A message on its way to the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item<T> {
    pub(crate) topic: Arc<str>,
    pub(crate) origin: Origin,
    /// How many messages its sender has sent on the topic before.
    pub(crate) count: u64,
    /// If it is a report of a loss: the first number that may be lost, and the one after the last.
    pub(crate) loss: Option<(Origin, u64)>,
    /// If it was sent again, is below the mark and is not on the bus, so that it can only be reported: whether it was lost
    /// for sure.
    pub(crate) missed: Option<LostBound>,
    pub(crate) body: T,
}

/// What becomes of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<T> {
    Deliver {
        item: Item<T>,
        /// If lower numbers of the stream may still come: the lowest one.
        open_from: Option<u64>,
    },
    Lost(Loss),
    /// Everything of a sender's stream before this number is accounted for. It is true once all earlier events are done
    /// with.
    Settled(Origin),
    Duplicate,
    /// It came after it had been reported as lost.
    Late,
}

/// Messages that will not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) from: Origin,
    pub(crate) until: u64,
    pub(crate) messages: u64,
    pub(crate) bound: LostBound,
    pub(crate) reason: LostReason,
    /// `None` if it may be any topic of the sender.
    pub(crate) topic: Option<Arc<str>>,
    pub(crate) open_from: Option<u64>,
}

/// What a heartbeat says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) numbering: u32,
    /// Counts the heartbeats of the numbering.
    pub(crate) beat: u64,
    /// The stream of what was first published on the sender's bus.
    pub(crate) key: StreamKey,
    pub(crate) begins: u64,
    pub(crate) until: u64,
    /// Where the sender's last numbering ended, and how many messages were overwritten since.
    pub(crate) overtaken: Option<(u64, u64)>,
    pub(crate) full: bool,
    pub(crate) topics: &'a BTreeMap<String, u64>,
}

impl Told<'_> {
    /// Returns where the sender's stream stands, if it stood at `base` before this numbering, and why messages are missing.
    fn since(&self, base: Base) -> (Base, LostReason) {
        match self.overtaken {
            // This number counts all messages of the bus that were overwritten; the export sends only some.
            Some((ended, messages)) if ended == base.until => {
                let until = self.begins.saturating_sub(messages);
                (Base { until, came: 0 }, LostReason::Overtaken)
            }
            _ => (base, LostReason::Restart),
        }
    }
}

/// A numbering that is followed from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) numbering: u32,
    /// How long a message waits for an earlier one.
    pub(crate) reorder: Duration,
    /// The stream of what was first published on the sender's bus, if it is known.
    pub(crate) own: Option<StreamKey>,
    /// Since when its messages have come.
    pub(crate) since: Duration,
}

/// What a sender has sent again for an importer that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// Not what was missed: the bus has nothing of the sender's stream.
    Nothing,
    /// All from this number on, but for messages that cannot be sent. From [`Origin::NUMBER_LIMIT`] on, their number is
    /// unknown.
    From { number: u64, unsent: u64 },
    /// A part, or nothing although it was asked.
    Part,
}

#[derive(Debug)]
pub(crate) struct Order<T> {
    most_topics: usize,
    most_waiting: usize,
    topics: usize,
    waiting: usize,
    /// By numbering.
    paths: HashMap<u32, Path<T>>,
    streams: HashMap<StreamKey, Stream>,
    /// When gaps are given up.
    due: BTreeSet<(Duration, u32, Arc<str>)>,
    forgotten: u64,
    reordered: u64,
}

/// What comes from a sender with one numbering.
#[derive(Debug)]
struct Path<T> {
    key: Option<StreamKey>,
    own: Option<StreamKey>,
    since: Duration,
    /// `None` once the sender has told what this bus has missed.
    unaccounted: Option<Unaccounted>,
    reorder: Duration,
    /// Whether topics that were not seen yet begin at 0.
    is_synced: bool,
    begins: u64,
    /// The `until` of the last heartbeat.
    told: u64,
    /// The last heartbeat, and the number up to which all counts are known by it. `None` if heartbeats are missing that had
    /// counts which no later one has.
    known: Option<(u64, u64)>,
    /// Messages of `key` that were delivered since, with a number from `told` on.
    since_told: u64,
    heard: Duration,
    topics: HashMap<Arc<str>, Counts<T>>,
    /// How many topics have gaps.
    gaps: usize,
}

/// A topic of a path.
#[derive(Debug)]
struct Counts<T> {
    next: u64,
    /// How many messages there were, as heartbeats tell.
    told: u64,
    /// The number in the stream after the last message of `next`, or before the first.
    floor: Origin,
    waiting: BTreeMap<u64, (Duration, Item<T>)>,
    gap: Option<Gap>,
    /// What was reported as lost.
    holes: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    deadline: Duration,
    low: Origin,
}

/// What has arrived of a stream, by whatever way.
#[derive(Debug, Default)]
struct Stream {
    /// What had arrived before.
    began: u64,
    mark: u64,
    /// If it is the own stream of a sender, and once that is known: up to where everything is accounted for. The numbers are
    /// places on the sender's bus, so this holds for what it relays as well.
    settled: Option<u64>,
    /// The numbers from `settled` on that an earlier import has published, in order.
    came: Vec<u64>,
    topics: HashMap<Arc<str>, Arrived>,
    /// The lowest numbers of open gaps, and how many gaps have them.
    lows: BTreeMap<u64, usize>,
}

#[derive(Debug, Default)]
struct Arrived {
    next: u64,
    recent: VecDeque<u64>,
}

impl<T> Path<T> {
    fn own_stream(&self) -> Option<StreamKey> {
        self.key.or(self.own)
    }

    /// Returns the streams of which it brings messages, as far as that is known.
    fn streams(&self) -> impl Iterator<Item = StreamKey> {
        let relayed = self.topics.values().map(|counts| StreamKey::of(counts.floor));
        self.own_stream().into_iter().chain(relayed)
    }
}

impl Stream {
    fn open_from(&self) -> Option<u64> {
        self.lows.first_key_value().map(|(low, _)| *low)
    }
}

impl<T> Order<T> {
    pub(crate) fn new(most_topics: usize, most_waiting: usize) -> Self {
        Self {
            most_topics,
            most_waiting,
            topics: 0,
            waiting: 0,
            paths: HashMap::new(),
            streams: HashMap::new(),
            due: BTreeSet::new(),
            forgotten: 0,
            reordered: 0,
        }
    }

    /// Returns whether the stream was introduced by [`Self::arrived`].
    pub(crate) fn knows_stream(&self, key: StreamKey) -> bool {
        self.streams.contains_key(&key)
    }

    /// Introduces a stream, of which all numbers below the mark have arrived.
    pub(crate) fn arrived(&mut self, key: StreamKey, mark: u64) {
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&key) {
            // The others are introduced again when they continue.
            let of_paths: BTreeSet<StreamKey> =
                self.paths.values().flat_map(|path| [path.key, path.own]).flatten().collect();
            self.streams.retain(|key, stream| !stream.lows.is_empty() || of_paths.contains(key));
        }
        let stream = self.streams.entry(key).or_default();
        stream.began = stream.began.max(mark);
        stream.mark = stream.mark.max(mark);
    }

    /// Returns the number from which on nothing of the stream has arrived.
    pub(crate) fn mark(&self, key: StreamKey) -> u64 {
        self.streams.get(&key).map_or(0, |stream| stream.mark)
    }

    /// Introduces the own stream of a sender, of which everything before `until` is accounted for. `came` are the numbers
    /// from there on that an earlier import has published.
    pub(crate) fn settled(&mut self, key: StreamKey, until: u64, came: Vec<u64>) {
        let stream = self.streams.entry(key).or_default();
        (stream.settled, stream.came) = (Some(until), came);
    }

    /// Returns the number up to which everything of a stream is accounted for. `None` if nothing has come of it.
    pub(crate) fn accounted(&self, key: StreamKey) -> Option<u64> {
        let stream = self.streams.get(&key)?;
        stream.settled.or((stream.mark > 0).then_some(stream.mark))
    }

    /// Returns whether a number is accounted for.
    pub(crate) fn is_settled(&self, origin: Origin) -> bool {
        let stream = self.streams.get(&StreamKey::of(origin));
        stream.and_then(|stream| stream.settled).is_some_and(|settled| origin.number < settled)
    }

    pub(crate) fn knows_path(&self, numbering: u32) -> bool {
        self.paths.contains_key(&numbering)
    }

    /// Returns whether all counts of a path are known.
    pub(crate) fn is_synced(&self, numbering: u32) -> bool {
        self.paths.get(&numbering).is_some_and(|path| path.is_synced && path.known.is_some())
    }

    /// Returns how many topics were forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns how many messages had to wait since the last call.
    pub(crate) fn take_reordered(&mut self) -> u64 {
        std::mem::take(&mut self.reordered)
    }

    /// Begins to follow a numbering.
    pub(crate) fn open(&mut self, now: Duration, opening: Opening, out: &mut Vec<Event<T>>) {
        let Opening { numbering, reorder, own, since } = opening;
        if self.paths.contains_key(&numbering) {
            return;
        }
        if self.paths.len() >= PATHS
            && let Some(oldest) = self
                .paths
                .iter()
                .min_by_key(|(_, path)| path.heard)
                .map(|(numbering, _)| *numbering)
        {
            self.close(oldest, out);
        }
        self.paths.insert(
            numbering,
            Path {
                key: None,
                own,
                since,
                unaccounted: Some(Unaccounted::default()),
                reorder,
                is_synced: false,
                begins: 0,
                told: 0,
                known: None,
                since_told: 0,
                heard: now,
                topics: HashMap::new(),
                gaps: 0,
            },
        );
    }

    /// Forgets a path. Nothing of it is reported. Returns the messages that wait for others; those of one topic are in order.
    pub(crate) fn abandon(&mut self, numbering: u32) -> Vec<Item<T>> {
        let gaps: Vec<_> = self.due.iter().filter(|(_, of, _)| *of == numbering).cloned().collect();
        for (_, _, topic) in gaps {
            self.clear_gap(numbering, &topic);
        }
        let Some(path) = self.paths.remove(&numbering) else { return Vec::new() };
        self.topics -= path.topics.len();
        let waiting = path.topics.into_values().flat_map(|counts| counts.waiting.into_values());
        let waiting: Vec<_> = waiting.map(|(_, item)| item).collect();
        self.waiting -= waiting.len();
        waiting
    }

    /// Takes messages of a numbering whose sender has begun another series. Reports those that did not arrive and are below the
    /// mark. For the others, the open end of the series stands, or what is missing of a relayed stream before its next message.
    pub(crate) fn discard(&mut self, items: Vec<Item<T>>, out: &mut Vec<Event<T>>) {
        for item in items {
            if item.origin.number < self.mark(StreamKey::of(item.origin)) {
                self.deliver_now(item, out);
            }
        }
    }

    /// Ends a path: what is missing is lost. Returns the streams that no other path brings.
    pub(crate) fn end(&mut self, numbering: u32, out: &mut Vec<Event<T>>) -> Vec<StreamKey> {
        let brought: BTreeSet<StreamKey> =
            self.paths.get(&numbering).map(|path| path.streams().collect()).unwrap_or_default();
        self.close(numbering, out);
        let others: BTreeSet<StreamKey> = self.paths.values().flat_map(Path::streams).collect();
        brought.difference(&others).copied().collect()
    }

    /// Forgets a stream. It has to be introduced again.
    pub(crate) fn forget_stream(&mut self, key: StreamKey) {
        self.streams.remove(&key);
    }

    /// Reports messages of a stream that this import had to drop, and that did not arrive another way. They end before a number.
    pub(crate) fn missed_before(
        &mut self,
        key: StreamKey,
        until: u64,
        messages: u64,
        out: &mut Vec<Event<T>>,
    ) {
        if messages > 0 {
            let mark = self.mark(key);
            let loss = self.loss_before(key, mark, until, messages, LostReason::Restart);
            out.push(Event::Lost(loss));
        }
    }

    /// Returns the paths with such a sender.
    pub(crate) fn paths_of(&self, is_it: impl Fn(StreamKey) -> bool) -> Vec<u32> {
        let of_it = self.paths.iter().filter(|(_, path)| path.own_stream().is_some_and(&is_it));
        of_it.map(|(numbering, _)| *numbering).collect()
    }

    /// Returns whether a path brings messages of a stream.
    pub(crate) fn brings(&self, key: StreamKey) -> bool {
        self.paths.values().flat_map(Path::streams).any(|other| other == key)
    }

    /// Returns the sender's own stream of a path, once it is known.
    pub(crate) fn own_stream(&self, numbering: u32) -> Option<StreamKey> {
        self.paths.get(&numbering)?.own_stream()
    }

    /// Returns when something last came by a path.
    pub(crate) fn heard(&self, numbering: u32) -> Option<Duration> {
        self.paths.get(&numbering).map(|path| path.heard)
    }

    /// Returns whether a number of a stream is too far ahead to be believed: of what has come, and of what the sender of the
    /// path has told, if the stream is its own. If nothing has come, the sender must have told something.
    fn is_far(&self, path: &Path<T>, Origin { number, .. }: Origin, key: StreamKey) -> bool {
        if path.key == Some(key) && number <= path.told.saturating_add(FAR) {
            // Most messages, and none of the tables is asked.
            return false;
        }
        let mark = self.streams.get(&key).map(|stream| stream.mark).filter(|mark| *mark > 0);
        let told = (path.key == Some(key)).then_some(path.told);
        match mark.max(told) {
            Some(known) => number > known.saturating_add(FAR),
            // Any program can begin a numbering and name any stream. So the sender has to tell first what it has sent.
            None => path.key.is_none(),
        }
    }

    /// Returns whether a heartbeat is too far ahead to be believed. The first one of a path is believed.
    pub(crate) fn is_doubtful(&self, told: &Told<'_>) -> bool {
        let Some(path) = self.paths.get(&told.numbering).filter(|path| path.key.is_some()) else {
            return false;
        };
        let is_far = |(topic, count): (&String, &u64)| {
            let known = path.topics.get(topic.as_str()).map(|counts| counts.next.max(counts.told));
            let known = known.or(path.is_synced.then_some(0));
            known.is_some_and(|known| *count > known.saturating_add(FAR))
        };
        self.is_far(path, told.key.origin(told.until), told.key) || told.topics.iter().any(is_far)
    }

    /// Takes a message. The path must be open, and its stream introduced. Returns false if it is too far ahead to be believed.
    pub(crate) fn message(
        &mut self,
        now: Duration,
        numbering: u32,
        item: Item<T>,
        out: &mut Vec<Event<T>>,
    ) -> bool {
        let Some(path) = self.paths.get(&numbering) else { return true };
        let end = item.loss.map(|(from, until)| Origin { number: until, ..from });
        if [Some(item.origin), end]
            .into_iter()
            .flatten()
            .any(|origin| self.is_far(path, origin, StreamKey::of(origin)))
        {
            return false;
        }
        let Some(path) = self.paths.get_mut(&numbering) else { return true };
        path.heard = now;
        let Item { ref topic, origin, count, .. } = item;
        if path.unaccounted.as_ref().is_some_and(|open| open.is_open(StreamKey::of(origin))) {
            let is_known =
                |counts: &Counts<T>| count < counts.next || counts.waiting.contains_key(&count);
            let counts = path.topics.get(topic);
            if !counts.is_some_and(is_known) {
                let is_new = counts.is_none();
                self.doubt(numbering, origin, origin.number, 1, is_new, out);
            }
        }
        self.settle_first(numbering, origin, out);
        let Some(path) = self.paths.get_mut(&numbering) else { return true };
        let topic = topic.clone();
        if !path.topics.contains_key(&topic) {
            let next = if path.is_synced { 0 } else { count };
            let floor = match path.key {
                Some(key) if path.is_synced => key.origin(path.begins),
                _ => origin,
            };
            self.make_room(numbering);
            self.insert(numbering, topic.clone(), next, floor);
        }
        let Some(counts) = self.counts(numbering, &topic) else { return true };
        if count > counts.next.saturating_add(FAR) {
            return false;
        }
        if count < counts.next {
            let was_lost =
                counts.holes.iter().any(|(from, until)| (*from..*until).contains(&count));
            out.push(if was_lost { Event::Late } else { Event::Duplicate });
        } else if count == counts.next {
            counts.next += 1;
            counts.floor = after(origin);
            let has_gap = counts.gap.is_some();
            self.deliver(numbering, item, out);
            if has_gap {
                self.drain(now, numbering, &topic, out);
                self.settle_told(numbering, out);
            }
        } else if let Entry::Vacant(place) = counts.waiting.entry(count) {
            place.insert((now, item));
            self.waiting += 1;
            self.reordered += 1;
            self.note_gap(now, numbering, &topic);
            if self.waiting > self.most_waiting {
                self.give_up_first(out);
            }
        } else {
            out.push(Event::Duplicate);
        }
        true
    }

    /// Ends the join of a path. `items` were published before the sender's counts were as `told` says, and are in order:
    /// what the sender has sent again, and what came meanwhile.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        told: &Told<'_>,
        replay: Replay,
        items: Vec<Item<T>>,
        out: &mut Vec<Event<T>>,
    ) {
        let (missed, items): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| item.missed.is_some());
        if let Some(base) = self.head(now, told, out) {
            self.account(told, replay, base, &items, out);
        }
        self.miss(missed, replay, out);
        for item in items {
            self.deliver_now(item, out);
        }
        for (topic, count) in told.topics {
            let (topic, floor) = (Arc::<str>::from(topic.as_str()), told.key.origin(told.until));
            if self.counts(told.numbering, &topic).is_none() {
                self.make_room(told.numbering);
                self.insert(told.numbering, topic, *count, floor);
            }
        }
        self.set_synced(told);
        self.settle_told(told.numbering, out);
    }

    /// Takes a part of what a sender has sent again: all of its stream before `told.until`. Its counts are not known yet.
    pub(crate) fn catch_up(
        &mut self,
        now: Duration,
        told: &Told<'_>,
        replay: Replay,
        items: Vec<Item<T>>,
        out: &mut Vec<Event<T>>,
    ) {
        let Told { numbering, key, until, .. } = *told;
        let reorder = Duration::ZERO;
        self.open(now, Opening { numbering, reorder, own: Some(key), since: now }, out);
        self.join(now, told, replay, items, out);
        self.settle_until(key, until, out);
        // It is opened again with its counts.
        self.close(numbering, out);
    }

    /// Reports what is missing before a join. The sender's stream stood at `base`.
    fn account(
        &mut self,
        told: &Told<'_>,
        replay: Replay,
        base: Option<Base>,
        items: &[Item<T>],
        out: &mut Vec<Event<T>>,
    ) {
        if let Some(base) = base {
            let (standing, reason) = told.since(base);
            let (number, messages) = match replay {
                Replay::Nothing => (told.begins, self.missing(told.key, standing, told.begins)),
                Replay::From { number, unsent } => {
                    (number, self.missing(told.key, standing, number).saturating_add(unsent))
                }
                Replay::Part => {
                    let (mark, stream) = (self.mark(told.key), self.streams.get(&told.key));
                    let numbers = items.iter().map(|item| item.origin);
                    let mut numbers: BTreeSet<u64> = numbers
                        .filter(|origin| {
                            StreamKey::of(*origin) == told.key && origin.number >= mark
                        })
                        .map(|origin| origin.number)
                        .collect();
                    let first = numbers.first().map_or(told.until, |first| *first);
                    for came in stream.map_or(&[][..], |stream| &stream.came) {
                        numbers.remove(came);
                    }
                    let missing = self.missing(told.key, standing, told.until);
                    (first, missing.saturating_sub(numbers.len() as u64))
                }
            };
            if messages > 0 {
                let number = number.max(base.until);
                let mut loss = self.loss_before(told.key, base.until, number, messages, reason);
                if messages >= Origin::NUMBER_LIMIT {
                    (loss.messages, loss.bound) = (0, LostBound::AtLeast);
                }
                out.push(Event::Lost(loss));
            }
        }
        if base.is_some() && replay != Replay::Nothing {
            // The numbers of its stream are places on its bus, so they account for what it relays as well.
            if let Some(path) = self.paths.get_mut(&told.numbering) {
                path.unaccounted = None;
            }
            return;
        }
        // First and last number, and how many.
        let mut streams: BTreeMap<StreamKey, (u64, u64, u64)> = BTreeMap::new();
        for item in items.iter().filter(|item| item.loss.is_none()) {
            let (key, number) = (StreamKey::of(item.origin), item.origin.number);
            if key != told.key && number >= self.mark(key) {
                let (first, last, count) = streams.entry(key).or_insert((number, number, 0));
                (*first, *last, *count) = (number.min(*first), number.max(*last), *count + 1);
            }
        }
        for (key, (first, last, count)) in streams {
            self.doubt(told.numbering, key.origin(first), last, count, true, out);
        }
        // Nothing of its own stream was missed.
        self.settle(told, None, out);
    }

    /// Returns how many messages of a sender's stream before a number are missing at most, if it stood at `base`.
    fn missing(&self, key: StreamKey, base: Base, number: u64) -> u64 {
        let came = self.streams.get(&key).map_or(&[][..], |stream| &stream.came);
        let later = (came.len() - came.partition_point(|came| *came < number)) as u64;
        Base { came: base.came.saturating_sub(later), ..base }.missing_before(number)
    }

    /// Reports messages that were sent again, and that earlier imports have not published. They cannot be published any
    /// more, because the mark of their stream is above them.
    fn miss(&mut self, missed: Vec<Item<T>>, replay: Replay, out: &mut Vec<Event<T>>) {
        // First and last number, and how many. What is known for sure is reported by topic.
        let mut losses: BTreeMap<_, (u64, u64, u64)> = BTreeMap::new();
        for Item { topic, origin, missed, .. } in missed {
            let (key, number) = (StreamKey::of(origin), origin.number);
            let stream = self.streams.entry(key).or_default();
            let arrived = stream.topics.entry(topic.clone()).or_default();
            if number < arrived.next {
                out.push(Event::Duplicate);
                continue;
            }
            arrived.next = number + 1;
            let topic = (missed == Some(LostBound::Exact)).then_some(topic);
            let (_, until, messages) = losses.entry((key, topic)).or_insert((number, number, 0));
            (*until, *messages) = (number + 1, *messages + 1);
        }
        if replay == Replay::Part {
            // All that is missing was reported already.
            return;
        }
        for ((key, topic), (from, until, messages)) in losses {
            let (bound, reason) = match topic {
                Some(_) => (LostBound::Exact, LostReason::Gone),
                None => (LostBound::AtMost, LostReason::Restart),
            };
            let (from, open_from) = (key.origin(from), None);
            let loss = Loss { from, until, messages, bound, reason, topic, open_from };
            let loss = self.passable(loss);
            out.push(Event::Lost(loss));
        }
    }

    /// Reports what may be missing before messages of a stream whose sender has not told.
    fn doubt(
        &mut self,
        numbering: u32,
        first: Origin,
        last: u64,
        count: u64,
        is_new: bool,
        out: &mut Vec<Event<T>>,
    ) {
        let key = StreamKey::of(first);
        let path = self.paths.get(&numbering);
        let Some(open) = path.and_then(|path| path.unaccounted.as_ref()) else { return };
        let base = if open.has_met(key) { None } else { self.base(key, numbering) };
        let path = self.paths.get_mut(&numbering);
        let Some(open) = path.and_then(|path| path.unaccounted.as_mut()) else { return };
        let messages = open.before(first, last, count, base, is_new);
        if messages > 0 && !self.is_brought(key, numbering) {
            let mark = self.mark(key);
            let until = first.number.max(mark);
            let loss = self.loss_before(key, mark, until, messages, LostReason::Restart);
            out.push(Event::Lost(loss));
            if self.paths.get(&numbering).is_some_and(|path| path.own == Some(key)) {
                // What was reported at most needs no other report.
                self.settle_until(key, first.number, out);
            }
        }
    }

    /// Reports what may be missing before a heartbeat of a sender that has not told. Its stream stood at `base`.
    fn settle(&mut self, told: &Told<'_>, base: Option<Base>, out: &mut Vec<Event<T>>) {
        let (standing, reason) = base.map(|base| told.since(base)).unzip();
        let path = self.paths.get_mut(&told.numbering);
        let Some(open) = path.and_then(|path| path.unaccounted.as_mut()) else { return };
        let messages = open.told(told.key, told.until, told.full, standing);
        if messages > 0 {
            let from = base.map_or_else(|| self.mark(told.key), |base| base.until);
            let reason = reason.unwrap_or(LostReason::Restart);
            let until = told.begins.max(from);
            let loss = self.loss_before(told.key, from, until, messages, reason);
            out.push(Event::Lost(loss));
        }
    }

    /// Returns where a stream stands before a path brings it. `None` if nothing of it has arrived.
    fn base(&self, key: StreamKey, numbering: u32) -> Option<Base> {
        let others = self.paths.iter().filter(|(other, _)| **other != numbering);
        let others = others.map(|(_, path)| path).filter(|path| path.key == Some(key));
        // What came after the last heartbeat has gaps that are still unknown.
        let told = others.map(|path| Base { until: path.told, came: path.since_told });
        told.max().or_else(|| self.standing(key))
    }

    /// Returns where a stream stands that no path brings. `None` if nothing of it has arrived.
    fn standing(&self, key: StreamKey) -> Option<Base> {
        let stream = self.streams.get(&key)?;
        let settled = stream.settled.map(|until| Base { until, came: stream.came.len() as u64 });
        settled.or((stream.mark > 0).then_some(Base { until: stream.mark, came: 0 }))
    }

    /// Returns whether another path brings a stream that this one only relays, and so finds what is missing of it.
    fn is_brought(&self, key: StreamKey, numbering: u32) -> bool {
        let Some(this) = self.paths.get(&numbering) else { return false };
        let brings = |path: &Path<T>| {
            path.key == Some(key)
                || path.topics.values().any(|counts| StreamKey::of(counts.floor) == key)
        };
        this.own != Some(key)
            && self.paths.iter().any(|(other, path)| {
                *other != numbering && path.heard >= this.since && brings(path)
            })
    }

    /// Takes a heartbeat. `covers` says whether messages of a topic come here at all.
    pub(crate) fn told(
        &mut self,
        now: Duration,
        told: &Told<'_>,
        covers: impl Fn(&str) -> bool,
        out: &mut Vec<Event<T>>,
    ) {
        let base = self.head(now, told, out).flatten();
        self.settle(told, base, out);
        for (topic, count) in told.topics {
            if !covers(topic) {
                continue;
            }
            let topic = Arc::<str>::from(topic.as_str());
            let Some(path) = self.paths.get(&told.numbering) else { return };
            if !path.topics.contains_key(&topic) {
                let (next, number) =
                    if path.is_synced { (0, path.begins) } else { (*count, told.until) };
                self.make_room(told.numbering);
                self.insert(told.numbering, topic.clone(), next, told.key.origin(number));
            }
            if let Some(counts) = self.counts(told.numbering, &topic)
                && *count > counts.told
            {
                counts.told = *count;
                self.note_gap(now, told.numbering, &topic);
            }
        }
        self.set_synced(told);
        self.settle_told(told.numbering, out);
    }

    /// Reports what has been missing for longer than the reorder time.
    pub(crate) fn expire(&mut self, now: Duration, out: &mut Vec<Event<T>>) {
        while let Some((deadline, numbering, topic)) = self.due.first().cloned()
            && deadline <= now
        {
            self.give_up(now, numbering, &topic, out);
            self.settle_told(numbering, out);
        }
    }

    /// Returns when to call [`Self::expire`].
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(deadline, ..)| *deadline)
    }

    fn counts(&mut self, numbering: u32, topic: &Arc<str>) -> Option<&mut Counts<T>> {
        self.paths.get_mut(&numbering)?.topics.get_mut(topic)
    }

    fn insert(&mut self, numbering: u32, topic: Arc<str>, next: u64, floor: Origin) {
        let Some(path) = self.paths.get_mut(&numbering) else { return };
        let (waiting, holes) = (BTreeMap::new(), VecDeque::new());
        let counts = Counts { next, told: next, floor, waiting, gap: None, holes };
        if path.topics.insert(topic, counts).is_none() {
            self.topics += 1;
        }
    }

    /// Forgets the topics of the path that has most, if there are too many. Those that come again start where they are.
    fn make_room(&mut self, numbering: u32) {
        if self.topics < self.most_topics {
            return;
        }
        let largest = self.paths.iter().max_by_key(|(_, path)| path.topics.len());
        let largest = largest.map_or(numbering, |(numbering, _)| *numbering);
        if self.forget(|of| of == largest) == 0 {
            self.forget(|_| true);
        }
    }

    /// Forgets the topics of paths, but those with gaps.
    fn forget(&mut self, of: impl Fn(u32) -> bool) -> usize {
        let mut forgotten = 0;
        for (_, path) in self.paths.iter_mut().filter(|(numbering, _)| of(**numbering)) {
            let before = path.topics.len();
            path.topics.retain(|_, counts| counts.gap.is_some());
            path.is_synced &= path.topics.len() == before;
            forgotten += before - path.topics.len();
        }
        self.topics -= forgotten;
        self.forgotten += forgotten as u64;
        forgotten
    }

    /// Learns from a heartbeat whose path it is. The first one ends the sender's earlier numberings. For that one,
    /// returns where the sender's stream stood then, if anything of it has arrived.
    fn head(
        &mut self,
        now: Duration,
        told: &Told<'_>,
        out: &mut Vec<Event<T>>,
    ) -> Option<Option<Base>> {
        let path = self.paths.get_mut(&told.numbering)?;
        path.heard = now;
        path.told = path.told.max(told.until);
        path.since_told = 0;
        if path.key.is_some() {
            return None;
        }
        (path.key, path.begins) = (Some(told.key), told.begins);
        let earlier: Vec<u32> = self
            .paths
            .iter()
            .filter(|(numbering, path)| path.key == Some(told.key) && **numbering != told.numbering)
            .map(|(numbering, _)| *numbering)
            .collect();
        let ended = earlier.into_iter().map(|numbering| self.close(numbering, out)).max();
        Some(ended.or_else(|| self.standing(told.key)))
    }

    /// Returns a loss between two numbers of a sender's own stream. It can have been any topic.
    fn loss_before(
        &mut self,
        key: StreamKey,
        from: u64,
        until: u64,
        messages: u64,
        reason: LostReason,
    ) -> Loss {
        let loss = Loss {
            from: key.origin(from),
            until,
            messages,
            bound: LostBound::AtMost,
            reason,
            topic: None,
            open_from: None,
        };
        self.passable(loss)
    }

    /// Takes a loss that another bridge was told of. Returns the lowest number that is open after it; `None` if all its
    /// numbers have arrived.
    fn relayed(&mut self, key: StreamKey, from: u64, until: u64) -> Option<u64> {
        let stream = self.streams.entry(key).or_default();
        if stream.mark > from.max(until.saturating_sub(1)) {
            return None;
        }
        let open_from = stream.open_from().unwrap_or(until).min(until);
        stream.mark = stream.mark.max(open_from);
        Some(open_from)
    }

    /// Learns from a heartbeat, after its counts, up to where all counts are known.
    fn set_synced(&mut self, told: &Told<'_>) {
        let Some(path) = self.paths.get_mut(&told.numbering) else { return };
        path.is_synced |= told.full;
        // An answer may come after a younger heartbeat, which need not have all counts that have changed since.
        let is_older = path.known.is_some_and(|(_, until)| told.until < until);
        if is_older {
            return;
        }
        let follows = path.known.is_some_and(|(beat, _)| told.beat <= beat.saturating_add(REPEATS));
        path.known = (told.full || follows).then_some((told.beat, told.until));
    }

    /// Settles the stream of a sender with a heartbeat, once all that the heartbeat told has arrived or was reported.
    fn settle_told(&mut self, numbering: u32, out: &mut Vec<Event<T>>) {
        let Some(path) = self.paths.get(&numbering) else { return };
        if let (Some(key), Some((_, until))) = (path.key, path.known)
            && path.is_synced
            && path.gaps == 0
        {
            self.settle_until(key, until, out);
        }
    }

    /// Settles the stream of a sender, of which nothing has come yet, before its first message: a later one may be missed
    /// before a heartbeat comes.
    fn settle_first(&mut self, numbering: u32, first: Origin, out: &mut Vec<Event<T>>) {
        let key = StreamKey::of(first);
        let Some(path) = self.paths.get(&numbering).filter(|path| path.own == Some(key)) else {
            return;
        };
        if path.unaccounted.is_some() && self.accounted(key).is_none() {
            self.settle_until(key, first.number, out);
        }
    }

    fn settle_until(&mut self, key: StreamKey, until: u64, out: &mut Vec<Event<T>>) {
        let stream = self.streams.entry(key).or_default();
        if stream.settled.is_none_or(|settled| settled < until) {
            stream.settled = Some(until);
            stream.came.retain(|number| *number >= until);
            out.push(Event::Settled(key.origin(until)));
        }
    }

    /// Ends a path: what is missing is lost. Returns where the sender's stream stands then.
    fn close(&mut self, numbering: u32, out: &mut Vec<Event<T>>) -> Base {
        let gaps: Vec<_> = self.due.iter().filter(|(_, of, _)| *of == numbering).cloned().collect();
        for (_, _, topic) in gaps {
            while self.counts(numbering, &topic).is_some_and(|counts| counts.gap.is_some()) {
                self.give_up(Duration::MAX, numbering, &topic, out);
            }
        }
        let Some(path) = self.paths.remove(&numbering) else {
            return Base { until: 0, came: 0 };
        };
        self.topics -= path.topics.len();
        Base { until: path.told, came: path.since_told }
    }

    fn give_up_first(&mut self, out: &mut Vec<Event<T>>) {
        if let Some((now, numbering, topic)) = self.due.first().cloned() {
            self.give_up(now, numbering, &topic, out);
        }
    }

    /// Reports the first gap of a topic as lost, and delivers what waited for it.
    fn give_up(
        &mut self,
        now: Duration,
        numbering: u32,
        topic: &Arc<str>,
        out: &mut Vec<Event<T>>,
    ) {
        let Some(path) = self.paths.get_mut(&numbering) else { return };
        let (key, until) = (path.key, path.told);
        let Some(counts) = path.topics.get_mut(topic) else { return };
        let from = counts.floor;
        let first =
            counts.waiting.first_key_value().map(|(count, (_, item))| (*count, item.origin));
        let (end, beyond) = match first {
            Some((count, origin)) => (count, Some(origin)),
            None => (counts.told, key.map(|key| key.origin(until))),
        };
        let missing = end.saturating_sub(counts.next);
        if counts.holes.len() == 16 {
            counts.holes.pop_front();
        }
        counts.holes.push_back((counts.next, end));
        counts.next = end;
        if let Some(beyond) = beyond {
            counts.floor = beyond;
        }
        if let Some(open) = &mut path.unaccounted
            && beyond.is_some_and(|beyond| StreamKey::of(beyond) == StreamKey::of(from))
        {
            open.found(from, missing);
        }
        self.clear_gap(numbering, topic);
        self.report(from, beyond, missing, topic, out);
        self.drain(now, numbering, topic, out);
    }

    /// Reports the loss of messages between two numbers, unless they came another way.
    fn report(
        &mut self,
        from: Origin,
        beyond: Option<Origin>,
        missing: u64,
        topic: &Arc<str>,
        out: &mut Vec<Event<T>>,
    ) {
        let key = StreamKey::of(from);
        let until =
            beyond.filter(|beyond| StreamKey::of(*beyond) == key).map(|beyond| beyond.number);
        // Where the range ends is not known if the next message is of another source, which the sender relays.
        let mut bound = if until.is_some() { LostBound::Exact } else { LostBound::AtMost };
        let mut messages = missing;
        if let Some(arrived) = self.streams.get(&key).and_then(|known| known.topics.get(topic)) {
            // What came by this way is outside of the range, or not counted in `missing`.
            let range = from.number..until.unwrap_or(u64::MAX).max(from.number);
            let came = arrived.recent.iter().filter(|number| range.contains(number)).count() as u64;
            messages = messages.saturating_sub(came);
            if arrived.recent.len() == RECENT && arrived.recent.front() > Some(&from.number) {
                bound = LostBound::AtMost;
            }
        }
        if messages == 0 {
            return;
        }
        let until = until.unwrap_or(from.number).max(from.number);
        let loss = Loss {
            from,
            until,
            messages,
            bound,
            reason: LostReason::Gone,
            topic: Some(topic.clone()),
            open_from: None,
        };
        let loss = self.passable(loss);
        out.push(Event::Lost(loss));
    }

    /// Makes a loss that the bus does not take for one that has arrived: other topics may have gone further.
    pub(crate) fn passable(&mut self, loss: Loss) -> Loss {
        let stream = self.streams.entry(StreamKey::of(loss.from)).or_default();
        let until = loss.until.max(loss.from.number);
        let mut loss = Loss { until, ..loss };
        if stream.mark >= loss.until {
            // An empty range at the mark passes.
            loss.from.number = stream.mark;
            loss.until = stream.mark;
        }
        let open_from = stream.open_from().unwrap_or(loss.until).min(loss.until);
        stream.mark = stream.mark.max(open_from);
        loss.open_from = Some(open_from);
        loss
    }

    /// Delivers what waited and has its turn now.
    fn drain(&mut self, now: Duration, numbering: u32, topic: &Arc<str>, out: &mut Vec<Event<T>>) {
        self.clear_gap(numbering, topic);
        while let Some(counts) = self.counts(numbering, topic)
            && let Some((_, item)) = counts.waiting.remove(&counts.next)
        {
            counts.next += 1;
            counts.floor = after(item.origin);
            self.waiting -= 1;
            self.deliver(numbering, item, out);
        }
        self.note_gap(now, numbering, topic);
    }

    fn clear_gap(&mut self, numbering: u32, topic: &Arc<str>) {
        let Some(gap) = self.counts(numbering, topic).and_then(|counts| counts.gap.take()) else {
            return;
        };
        if let Some(path) = self.paths.get_mut(&numbering) {
            path.gaps -= 1;
        }
        self.due.remove(&(gap.deadline, numbering, topic.clone()));
        if let Some(stream) = self.streams.get_mut(&StreamKey::of(gap.low))
            && let Some(count) = stream.lows.get_mut(&gap.low.number)
        {
            *count -= 1;
            if *count == 0 {
                stream.lows.remove(&gap.low.number);
            }
        }
    }

    /// Notes whether messages are missing. They get the reorder time from when that was seen.
    fn note_gap(&mut self, now: Duration, numbering: u32, topic: &Arc<str>) {
        let Some(path) = self.paths.get_mut(&numbering) else { return };
        let reorder = path.reorder;
        let Some(counts) = path.topics.get_mut(topic) else { return };
        if counts.gap.is_some() {
            return;
        }
        let seen = match counts.waiting.first_key_value() {
            Some((_, (arrived, _))) => *arrived,
            None if counts.told > counts.next => now,
            None => return,
        };
        let gap = Gap { deadline: seen.saturating_add(reorder), low: counts.floor };
        counts.gap = Some(gap);
        path.gaps += 1;
        self.due.insert((gap.deadline, numbering, topic.clone()));
        let stream = self.streams.entry(StreamKey::of(gap.low)).or_default();
        *stream.lows.entry(gap.low.number).or_default() += 1;
    }

    fn deliver(&mut self, numbering: u32, item: Item<T>, out: &mut Vec<Event<T>>) {
        let (origin, key) = (item.origin, StreamKey::of(item.origin));
        if self.deliver_now(item, out)
            && let Some(path) = self.paths.get_mut(&numbering)
            && path.key == Some(key)
            && origin.number >= path.told
        {
            path.since_told += 1;
        }
    }

    fn deliver_now(&mut self, item: Item<T>, out: &mut Vec<Event<T>>) -> bool {
        let number = item.origin.number;
        let has_ways = self.paths.len() > 1;
        let stream = self.streams.entry(StreamKey::of(item.origin)).or_default();
        if number < stream.began {
            out.push(Event::Duplicate);
            return false;
        }
        if !stream.topics.contains_key(&item.topic) {
            if stream.topics.len() >= self.most_topics {
                stream.topics.clear();
            }
            stream.topics.insert(item.topic.clone(), Arrived::default());
        }
        let Some(arrived) = stream.topics.get_mut(&item.topic) else { return false };
        if number < arrived.next {
            out.push(Event::Duplicate);
            return false;
        }
        arrived.next = number + 1;
        if let Some((from, until)) = item.loss {
            let open_from = self.relayed(StreamKey::of(from), from.number, until);
            out.push(match open_from {
                Some(_) => Event::Deliver { item, open_from },
                None => Event::Duplicate,
            });
            return false;
        }
        if has_ways {
            if arrived.recent.len() == RECENT {
                arrived.recent.pop_front();
            }
            arrived.recent.push_back(number);
        }
        if number < stream.mark {
            // Messages of other topics have come before it that were published after it, and the bus takes it for one that
            // has arrived. It is rare: Zenoh keeps the order of all that one sender sends with one priority.
            let topic = Some(item.topic);
            let loss = Loss {
                from: item.origin,
                until: number + 1,
                messages: 1,
                bound: LostBound::Exact,
                reason: LostReason::Jump,
                topic,
                open_from: None,
            };
            let loss = self.passable(loss);
            out.push(Event::Lost(loss));
            return true;
        }
        let mark = stream.open_from().unwrap_or(number + 1).min(number + 1);
        stream.mark = stream.mark.max(mark);
        let open_from = Some(mark).filter(|mark| *mark <= number);
        out.push(Event::Deliver { item, open_from });
        true
    }
}

fn after(origin: Origin) -> Origin {
    Origin { number: origin.number + 1, ..origin }
}

#[cfg(test)]
mod tests;
