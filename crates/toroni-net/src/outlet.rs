//! Outlet: from a bus to a stream.
//!
//! An outlet is a subscriber of the bus. It packs what is in the ring, and sends at once when it has caught up. So a
//! single message leaves without delay, and a burst leaves in full datagrams. What waits for the stream's rate waits in
//! the ring, where it shows as the lag of a subscriber, and where publishers may overwrite it; the stream then says how
//! many messages are missing.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::drain::Drain;
use crate::times::Taken;
use std::time::UNIX_EPOCH;
use thiserror::Error;
use toroni::{Bus, Message, Pattern, ReceiveError, Start, Subscriber, SubscriberError};
use toroni_proto::batcher::Now;
use toroni_proto::budget::{Budget, Exceeded, Limits};
use toroni_proto::config::Config;
use toroni_proto::id::{Number, Realm};
use toroni_proto::sender::{Identity, Sender, TooManyPatterns};
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::{self, LostReason, TableName, TopicNumber};

/// An outlet packs no more than is sent within this time.
const AHEAD_NS: u64 = 4 * MILLISECOND;
/// Bits per second, times nanoseconds, divided by this, are bytes.
const NS_OF_A_BYTE: u128 = 8 * SECOND as u128;
/// How many messages an outlet takes before others have their turn.
const MESSAGES_PER_TURN: usize = 1_024;

/// Which messages of a bus a stream brings.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The topics: 1 to 16 patterns.
    pub patterns: Vec<Pattern>,
    /// Segments that are prepended to each topic, without a slash at the end; or nothing.
    pub prefix: String,
    /// Messages that match one of these leave at once, in a datagram that may not be full.
    pub express: Vec<Pattern>,
}

/// Why there is no outlet, or no longer.
#[derive(Debug, Error)]
pub enum OutletError {
    /// The stream cannot be described to receivers.
    #[error("an outlet needs 1 to {most} patterns, and those and the prefix must be topics: {problem}", most = wire::MAX_PATTERNS)]
    Patterns {
        /// What is wrong.
        problem: String,
    },
    /// The bus refuses the subscriber.
    #[error(transparent)]
    Subscribe(#[from] SubscriberError),
    /// The bus cannot be read.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

impl From<TooManyPatterns> for OutletError {
    fn from(error: TooManyPatterns) -> Self {
        Self::Patterns { problem: error.to_string() }
    }
}

/// What an outlet has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that were packed.
    pub messages: u64,
    /// Messages of the whole bus that were overwritten before they were packed.
    pub overtaken: u64,
    /// Messages that are longer than the stream allows.
    pub too_long: u64,
    /// Messages whose topic has no place in the stream's table of names.
    pub no_topic: u64,
}

/// Brings messages of a bus to a stream.
#[derive(Debug)]
pub struct Outlet {
    subscriber: Subscriber,
    sender: Sender,
    prefix: String,
    express: Vec<Pattern>,
    /// The longest message that the stream takes, in bytes.
    message_max: usize,
    /// The most bytes that wait in the window.
    ahead_bytes: u64,
    /// Whether incomplete datagrams wait for more messages.
    delays: bool,
    /// A topic with its prefix.
    name: String,
    counters: Counters,
    times: Taken,
    bus: Bus,
    drain: Option<Drain>,
    /// No other process continues the stream.
    is_for_good: bool,
    /// How many messages of the bus were not sent when it ended.
    unsent: Option<u64>,
}

impl Outlet {
    /// Starts a stream with the messages of a bus from `start` on. If it gates, publishers of the bus wait for it. The
    /// configuration was checked by [`Config::check_sender`]. Of the identity, `patterns` and `begins` are set here.
    ///
    /// # Errors
    /// See [`OutletError`].
    pub fn new(
        bus: &Bus,
        selection: &Selection,
        config: &Config,
        identity: &Identity<'_>,
        start: Start,
        is_gating: bool,
        now: Monotonic,
    ) -> Result<Self, OutletError> {
        let Selection { patterns, prefix, express } = selection;
        let wrong = |text: &str| OutletError::Patterns { problem: format!("{text:?} is not one") };
        let names: Vec<String> =
            patterns.iter().map(|pattern| prefixed(prefix, pattern.as_str())).collect();
        let mut table = Vec::with_capacity(names.len());
        for name in &names {
            table.push(TableName::new(name).ok_or_else(|| wrong(name))?);
        }
        if table.is_empty() {
            return Err(OutletError::Patterns { problem: "there are none".to_owned() });
        }
        let label = format!("{}{}", label(identity.header.realm), identity.name.as_str());
        let builder = bus.subscriber().start(start).gating(is_gating).local_only(true).name(label);
        let builder = patterns.iter().fold(builder, |all, pattern| all.pattern(pattern.as_str()));
        let subscriber = builder.build()?;
        let begins = number(subscriber.sequence());
        let identity = Identity { begins, patterns: &table, ..*identity };
        let sender = Sender::new(config, &identity, now)?;
        let ahead_bytes = config.data_rate.map_or(u64::MAX, |rate| {
            let bytes = u128::from(rate).saturating_mul(AHEAD_NS.into()) / NS_OF_A_BYTE;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(config.datagram_bytes.saturating_mul(2))
        });
        Ok(Self {
            subscriber,
            sender,
            prefix: prefix.clone(),
            express: express.clone(),
            message_max: usize::try_from(config.message_max_bytes).unwrap_or(usize::MAX),
            ahead_bytes,
            delays: config.batch_delay_ns > 0,
            name: String::new(),
            counters: Counters::default(),
            times: Taken::new(identity.header.source, identity.header.stream),
            bus: bus.clone(),
            drain: None,
            is_for_good: false,
            unsent: None,
        })
    }

    /// Packs what is in the ring, as far as the stream's rate allows. Returns whether there may be more that can be
    /// packed at once.
    ///
    /// # Errors
    /// If the bus cannot be read: it was removed, or is damaged.
    pub fn turn(&mut self, now: Now) -> Result<bool, OutletError> {
        let has_more = self.pack(now);
        self.finish(now);
        has_more
    }

    fn pack(&mut self, now: Now) -> Result<bool, OutletError> {
        for _ in 0..MESSAGES_PER_TURN {
            // It goes on when datagrams were sent.
            if !self.wants_more() {
                return Ok(false);
            }
            match self.subscriber.try_receive() {
                Ok(Some(message)) => {
                    let Self {
                        sender, prefix, name, express, message_max, counters, times, ..
                    } = self;
                    let mut packing = Packing { now, sender, counters, times };
                    let topic = topic_of(prefix, message.topic(), name);
                    packing.message(&message, topic, *message_max);
                    if express.iter().any(|pattern| pattern.matches(message.topic())) {
                        sender.flush(now);
                    }
                }
                Ok(None) => {
                    self.sender.taken(number(self.subscriber.sequence()));
                    if !self.delays {
                        self.sender.flush(now);
                    }
                    return Ok(false);
                }
                Err(ReceiveError::Lapped { lost_messages, .. }) => {
                    let until = number(self.subscriber.sequence());
                    let Self { sender, counters, times, .. } = self;
                    counters.overtaken = counters.overtaken.saturating_add(lost_messages);
                    let mut packing = Packing { now, sender, counters, times };
                    packing.lost(lost_messages, until, LostReason::Overtaken);
                }
                Err(ReceiveError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Returns whether it would pack another message now. If not, it waits for the stream's rate, or has ended.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        let window = self.sender.window();
        let is_ahead = window.unsent_total() >= self.ahead_bytes || !window.is_half_free();
        let is_done = self.drain.is_some_and(|drain| drain.is_taken(self.subscriber.sequence()));
        !is_ahead && !is_done && !self.sender.is_ending()
    }

    /// Ends the session once all that is on the bus now was sent. If that takes longer than `longest_ns`, it ends without END:
    /// receivers then report that more may be missing, and the next process continues the stream there. `for_good` says that none
    /// does.
    pub fn end(&mut self, now: Now, longest_ns: u64, for_good: bool) {
        if self.drain.is_none() {
            let taken = self.subscriber.sequence();
            self.drain = Some(Drain::begin(&self.bus, taken, now.monotonic, longest_ns));
            self.is_for_good = for_good;
            self.finish(now);
        }
    }

    /// Ends the session at once, after [`Self::end`].
    pub(crate) fn abandon(&mut self, now: Now) {
        self.drain.iter_mut().for_each(|drain| drain.hurry(now.monotonic));
        self.finish(now);
    }

    /// Ends the session, if it is time.
    fn finish(&mut self, now: Now) {
        let Some(drain) = &mut self.drain else { return };
        let is_over = drain.take_end(now.monotonic);
        let taken = self.subscriber.sequence();
        let (goal, is_taken) = (drain.goal(), drain.is_taken(taken));
        if is_taken && !self.sender.is_ending() {
            self.sender.taken(number(taken));
            // Otherwise others may publish on the bus, and the next process sends that.
            self.sender.end(now, self.is_for_good);
        }
        if is_over && !self.sender.is_closed() {
            let sent = self.sender.unsent_from().get();
            if self.sender.abandon() || !is_taken {
                self.unsent = Some(goal.saturating_sub(sent));
            }
        }
    }

    /// Takes how many messages of the bus were not sent when it ended: at most that many are of this stream.
    pub(crate) fn unsent(&mut self) -> Option<u64> {
        self.unsent.take()
    }

    /// Returns when it must have a turn next.
    pub(crate) fn poll_timeout(&self) -> Option<Monotonic> {
        let until = self.drain.and_then(|drain| drain.until());
        let until = until.filter(|_| !self.sender.is_closed());
        self.sender.poll_timeout().into_iter().chain(until).min()
    }

    /// Returns the sender: the caller gives it datagrams and time, and sends what it has to send.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Returns the subscriber, to wait for its next message.
    pub fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    /// Returns how long messages took from the publisher's time stamp until it had them.
    #[must_use]
    pub const fn bus_times(&self) -> &Budget {
        &self.times.bus
    }

    /// Sets how long that, batching and pacing may take.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.times.bus.set_limits(limits);
        self.sender.set_limits(limits);
    }

    /// Returns whether messages took longer to come here than they may, at most once in 10 s.
    pub fn exceeded(&mut self, now: Monotonic) -> Option<Exceeded> {
        self.times.bus.poll(now)
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// Packs into a stream. The window always has room: at most half of it waits, a message is no longer than a quarter of it, and
/// a datagram than a sixteenth.
struct Packing<'a> {
    now: Now,
    sender: &'a mut Sender,
    counters: &'a mut Counters,
    times: &'a mut Taken,
}

impl Packing<'_> {
    fn message(&mut self, message: &Message<'_>, topic: Option<TableName<'_>>, message_max: usize) {
        let next = number(message.sequence().saturating_add(1));
        if message.payload().len() > message_max {
            self.counters.too_long = self.counters.too_long.saturating_add(1);
            return self.lost(1, next, LostReason::TooLong);
        }
        let topic = topic.and_then(|name| self.sender.topic(self.now, name).expect(ROOM));
        let Some(topic) = topic else {
            self.counters.no_topic = self.counters.no_topic.saturating_add(1);
            return self.lost(1, next, LostReason::Topic);
        };
        let start = start_of(message, topic);
        if let Some(published) = start.published {
            self.times.record(self.now.wall, published, start.number.get());
        }
        self.sender.message(self.now, start, message.payload()).expect(ROOM);
        self.counters.messages = self.counters.messages.saturating_add(1);
    }

    fn lost(&mut self, count: u64, until: Number, reason: LostReason) {
        self.sender.lost(self.now, count, until, reason).expect(ROOM);
    }
}

const ROOM: &str = "half of the window is free, which is enough for any message";

/// Returns what a stream says of a message besides its payload.
pub(crate) fn start_of(message: &Message<'_>, topic: TopicNumber) -> wire::Start {
    let published = message.timestamp().and_then(|time| {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        Some(Wall::from_ns(u64::try_from(since.as_nanos()).ok()?))
    });
    wire::Start {
        topic,
        number: number(message.sequence()),
        to_descendants: message.to_descendants(),
        published,
        origin: None,
    }
}

/// Returns how the names of outlets begin that send to this realm, as `toroni info` shows them. The name of the node follows.
pub(crate) fn label(realm: Realm) -> String {
    format!("outlet {realm} ")
}

/// A bus publishes fewer messages than a stream can number.
pub(crate) fn number(sequence: u64) -> Number {
    Number::new(sequence).unwrap_or(Number::MAX)
}

pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") }
}

/// Returns the name of a topic on the stream, or `None` if it is too long with its prefix. Uses the memory of `scratch`.
pub(crate) fn topic_of<'a>(
    prefix: &str,
    topic: &'a str,
    scratch: &'a mut String,
) -> Option<TableName<'a>> {
    if prefix.is_empty() {
        return TableName::new(topic);
    }
    scratch.clear();
    scratch.extend([prefix, "/", topic]);
    TableName::new(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::id::{Sequence, Series, Session, Source, Stream};
    use toroni_proto::past::Past;
    use toroni_proto::random::Random;
    use toroni_proto::wire::{Flags, Header, LegAddresses, NodeName, Repairers};

    fn now(ms: u64) -> Now {
        let ns = SECOND + ms * MILLISECOND;
        Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
    }

    fn sender(config: &Config) -> Sender {
        let table = [TableName::new("**").unwrap()];
        Sender::new(config, &identity(&table), now(0).monotonic).unwrap()
    }

    fn identity<'a>(patterns: &'a [TableName<'a>]) -> Identity<'a> {
        let header = Header {
            flags: Flags::NONE,
            ttl: 16,
            realm: Realm::of("test"),
            stream: Stream(1),
            source: Source(1),
            session: Session(1),
            sequence: Sequence::ZERO,
        };
        Identity {
            header,
            keys: None,
            name: NodeName::new("a").unwrap(),
            instance: [1; 16],
            series: Series(1),
            begins: Number::ZERO,
            past: Past::NONE,
            patterns,
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        }
    }

    /// Receivers may ask for longer than that what they miss.
    #[test]
    fn nothing_is_due_at_once_after_the_time_for_what_is_unsent_is_over() {
        let directory = toroni_testkit::Directory::new();
        let bus = toroni::BusConfig::new().directory(directory.path()).open("bus").unwrap();
        let config = Config { generation_ns: 9 * SECOND, ..Config::with_rate(80_000_000) };
        let patterns = vec![Pattern::everything()];
        let selection = Selection { patterns, prefix: String::new(), express: Vec::new() };
        let at = now(0).monotonic;
        let start = Start::Latest;
        let identity = identity(&[]);
        let mut outlet =
            Outlet::new(&bus, &selection, &config, &identity, start, false, at).unwrap();
        outlet.end(now(0), SECOND, false);
        let mut is_said = false;
        for ms in 0..2_000 {
            assert!(!outlet.turn(now(ms)).unwrap());
            outlet.sender().handle_timeout(now(ms));
            while outlet.sender().poll_transmit(now(ms)).is_some() {}
            is_said |= outlet.sender().is_ending();
            let due = outlet.poll_timeout().expect("it closes once");
            assert!(due > now(ms).monotonic, "at {ms} ms it is due at {due:?}");
        }
        assert!(is_said && !outlet.sender().is_closed() && outlet.unsent().is_none());
    }

    fn start(of: u64) -> wire::Start {
        let topic = TopicNumber::new(0).unwrap();
        let (published, origin) = (None, None);
        wire::Start { topic, number: number(of), to_descendants: false, published, origin }
    }

    fn one_of(random: &mut Random, values: &[u64]) -> u64 {
        values[usize::try_from(random.below(values.len() as u64)).unwrap()]
    }

    /// The promise by which [`Packing`] does not ask whether there is room.
    #[test]
    fn half_of_a_window_has_room_for_any_message_of_any_configuration() {
        let mut checked = 0;
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let window_bytes = random.between(1 << 18, 1 << 20);
            let datagrams = [512, 1_408, 8_972, window_bytes / 16, 65_507];
            let datagram_bytes = one_of(&mut random, &datagrams);
            let most = window_bytes / 4;
            let any = random.between(1, most);
            let message_max_bytes = one_of(&mut random, &[most, any]);
            let config = Config {
                window_bytes,
                datagram_bytes,
                message_max_bytes,
                generation_ns: 0,
                batch_bytes: (random.below(2) == 0).then_some(512),
                ..Config::with_rate(80_000_000)
            };
            if config.check_sender().is_err() {
                continue;
            }
            checked += 1;
            let mut sender = sender(&config);
            let mut ms = 1;
            for count in 0..100 {
                while !sender.window().is_half_free() {
                    ms += 1;
                    sender.handle_timeout(now(ms));
                    // Not all that may leave, so that less than half of it waits now and then.
                    _ = sender.poll_transmit(now(ms));
                }
                let near = datagram_bytes.saturating_sub(random.below(200));
                let any = random.between(0, message_max_bytes);
                let length = one_of(&mut random, &[message_max_bytes, any, near, 0]);
                let length = length.min(message_max_bytes);
                let name = format!("plant/{count:0>240}");
                sender.topic(now(ms), TableName::new(&name).unwrap()).expect("room for a name");
                let payload = vec![7; usize::try_from(length).unwrap()];
                sender.message(now(ms), start(count), &payload).unwrap_or_else(|_| {
                    panic!("no room for {length} bytes, seed {seed}: {config:?}")
                });
                if random.below(3) == 0 {
                    sender.flush(now(ms));
                }
            }
        }
        assert!(checked > 200, "{checked}");
    }
}
