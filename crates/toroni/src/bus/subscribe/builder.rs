//! Making a subscriber: its options, and how it joins the stream.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::WaitStrategy;
use super::claim::{ReaderClaim, Subscribing};
use super::decision::{Decision, never_still};
use super::freshness::Freshness;
use super::subscriber::Subscriber;
use crate::bus::Bus;
use crate::bus::views::ring_of;
use crate::error::{FileError, SubscriberError};
use crate::ring::gate::{self, ClaimedSlot};
use crate::ring::layout::READER_GATES;
use crate::ring::reader::{Cursor, NoSuchStart};
use crate::topic::interest::Interest;
use crate::topic::{Pattern, PatternSet};
use std::time::Duration;

/// Where in the stream a subscriber begins.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-start-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// # use toroni::{Limit, Start};
/// let publisher = bus.publisher("plant/pump")?;
/// publisher.publish_batch(&["on", "off"], Limit::Policy)?;
///
/// let mut all = bus.subscriber().pattern("**").start(Start::Oldest).build()?;
/// let after_first = all.receive()?.next_position();
/// let mut rest = bus.subscriber().pattern("**").start(Start::Position(after_first)).build()?;
/// assert_eq!(rest.receive()?.text(), "off");
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the first message that is published after it subscribed. The default.
    #[default]
    Latest,
    /// With the oldest message that is still in the ring.
    Oldest,
    /// With the message at this position: [`Message::position`](crate::Message::position), or
    /// [`Message::next_position`](crate::Message::next_position) of the last message of the stream that was handled. A
    /// position belongs to one bus: if you save it, save [`Bus::id`], too, and compare the id before you
    /// use the position.
    Position(u64),
    /// With the message that has this sequence ([`Message::sequence`](crate::Message::sequence)). If no
    /// message has it yet, it must be that of the next one. A sequence belongs to one bus, as a position
    /// does.
    Sequence(u64),
}

/// Where a subscriber continues after it has lost messages ([`ReceiveError::Lapped`](crate::ReceiveError::Lapped)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Continue {
    /// With the oldest message that it can still read, and then all that follow. The default.
    #[default]
    Oldest,
    /// With the newest message that matches its patterns. If there is none, it continues with the next one that is published.
    Newest,
}

/// Makes a subscriber with options. [`Bus::subscriber`] returns the builder.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-builder-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::{Start, WaitStrategy};
///
/// bus.publisher("plant/pump")?.publish(b"on")?;
/// let mut subscriber = bus
///     .subscriber()
///     .pattern("plant/**")
///     .pattern("alarm/*")
///     .start(Start::Oldest)
///     .gating(false)
///     .wait(WaitStrategy::Block)
///     .build()?;
/// assert_eq!(subscriber.receive()?.payload(), b"on");
/// # drop((subscriber, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build()"]
pub struct SubscriberBuilder {
    bus: Bus,
    patterns: Vec<String>,
    start: Start,
    gating: bool,
    name: Option<String>,
    wait: WaitStrategy,
    local_only: bool,
    after_loss: Continue,
    max_age: Option<Duration>,
    retained: bool,
}

impl SubscriberBuilder {
    pub(in crate::bus) fn new(bus: Bus) -> Self {
        Self {
            bus,
            patterns: Vec::new(),
            start: Start::default(),
            gating: true,
            name: None,
            wait: WaitStrategy::default(),
            local_only: false,
            after_loss: Continue::default(),
            max_age: None,
            retained: false,
        }
    }

    /// Adds a pattern. Without a pattern the subscriber receives nothing. Publishers and subscribers of
    /// the bus can see the patterns
    /// ([`SubscriberSlotStats::patterns`](crate::SubscriberSlotStats::patterns)).
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.patterns.push(pattern.into());
        self
    }

    /// Sets where to begin. Default: [`Start::Latest`].
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets whether publishers wait for this subscriber as the policy says. Default: yes. Turn it off for
    /// a subscriber that only watches, and should lose messages rather than slow publishers.
    pub fn gating(mut self, gating: bool) -> Self {
        self.gating = gating;
        self
    }

    /// Sets its name in `toroni info`; at most 48 bytes are kept. Default: the name of the participant.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how its blocking calls wait. Default: [`WaitStrategy::Backoff`].
    pub fn wait(mut self, wait: WaitStrategy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets whether it passes over messages that came from elsewhere ([`Message::origin`](crate::Message::origin)), and
    /// over losses on the way here ([`ReceiveError::Lost`](crate::ReceiveError::Lost)). Default: no. A program that
    /// sends the messages of this bus to other places turns it on: otherwise it would send back what came from there.
    pub fn local_only(mut self, local_only: bool) -> Self {
        self.local_only = local_only;
        self
    }

    /// Sets where it continues after publishers have overtaken it. Default: [`Continue::Oldest`].
    ///
    /// Choose [`Continue::Newest`] if only the newest message counts. Otherwise a subscriber that was overtaken first reads
    /// all old messages that are left. The loss that it gets
    /// ([`ReceiveError::Lapped`](crate::ReceiveError::Lapped)) counts all messages that it passes over, overwritten or not.
    /// Such a subscriber takes small messages out of the ring one by one, so each costs it more.
    ///
    /// It changes nothing as long as nothing is lost: a subscriber that publishers wait for reads each message, however late.
    pub fn after_loss(mut self, after_loss: Continue) -> Self {
        self.after_loss = after_loss;
        self
    }

    /// Sets how old a message may be when it is received. Older ones are passed over, and counted
    /// ([`SubscriberStats::stale`](crate::SubscriberStats::stale)). Default: any age.
    ///
    /// The age is the time of CLOCK_REALTIME less the time at which the message was stamped
    /// ([`BusConfig::timestamps`](crate::BusConfig::timestamps)), or first published elsewhere. Messages without a stamp, or
    /// with one in the future, are received. If the clock is set forward, messages look older for once, and if
    /// it is set back, younger. Between hosts, the age is as right as their clocks agree.
    ///
    /// Each message costs such a subscriber more, and messages that it reads in place come one by one.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Sets whether it first receives the values of the topics that match: the newest message of each topic that was declared
    /// ([`Publisher::retained`](crate::Publisher::retained)), if that was published before the subscriber begins. They come in the
    /// order of the bus, and then the stream follows, without a gap and without a duplicate. After
    /// [`ReceiveError::Lapped`](crate::ReceiveError::Lapped), the values come that changed within the loss. Default: no.
    ///
    /// [`Message::is_retained`](crate::Message::is_retained) tells them from the messages of the stream, and
    /// [`Subscriber::is_current`] says when all were received. Such a subscriber also learns that a value was cleared
    /// ([`Message::is_cleared`](crate::Message::is_cleared)). A value has any age, whatever [`Self::max_age`] says.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-values-{}", std::process::id()));
    /// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
    /// let mode = bus.publisher("plant/mode")?.retained()?;
    /// mode.publish("manual")?;
    /// mode.publish("automatic")?;
    /// let mut late = bus.subscriber().pattern("plant/**").retained(true).build()?;
    /// let value = late.receive()?;
    /// assert!(value.is_retained() && value.text() == "automatic");
    /// mode.publish("off")?;
    /// let next = late.receive()?;
    /// assert!(!next.is_retained() && next.text() == "off");
    /// # drop((mode, late, bus));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retained(mut self, retained: bool) -> Self {
        self.retained = retained;
        self
    }

    /// Makes the subscriber. It receives what is published from now on, or from the start that was set.
    ///
    /// # Errors
    /// Returns [`SubscriberError::Pattern`] if a pattern is malformed,
    /// [`SubscriberError::TooManySubscribers`] if all slots are taken, [`FileError::PermissionDenied`], or
    /// an error of the start: [`SubscriberError::NotAPosition`], [`SubscriberError::PositionAhead`],
    /// [`SubscriberError::PositionLost`], [`SubscriberError::SequenceAhead`] or
    /// [`SubscriberError::SequenceLost`]; see [`SubscriberError`].
    pub fn build(self) -> Result<Subscriber, SubscriberError> {
        let mut patterns = PatternSet::default();
        for pattern in &self.patterns {
            patterns.push(Pattern::new(pattern)?);
        }
        let subscribing = self.bus.subscribing()?;
        if self.retained && subscribing.ring.header().settings.retained_topics == 0 {
            return Err(SubscriberError::NoValues);
        }
        let mut identity = self.bus.identity();
        if let Some(name) = self.name {
            identity.name = name;
        }
        let claim = subscribing.claim(&identity)?;
        claim.show_patterns(&patterns);
        let flags = if self.gating { READER_GATES } else { 0 };
        let cursor =
            join(&subscribing, &claim, self.start, flags).inspect_err(|_| claim.leave())?;
        let interest = Interest::new(patterns).local_only(self.local_only);
        let freshness = Freshness::new(self.after_loss, self.max_age);
        Ok(Subscriber::new(claim, cursor, interest, freshness, self.wait, self.retained)?)
    }
}

/// Finds the start and makes the slot gate from there, out of reach of writers that have not seen the
/// slot.
fn join(
    subscribing: &Subscribing,
    claim: &ReaderClaim,
    start: Start,
    flags: u32,
) -> Result<Cursor, SubscriberError> {
    let ring = ring_of(&subscribing.ring);
    let of_corrupt = |corrupt| FileError::from(corrupt).into();
    let find = || match start {
        Start::Latest => Cursor::at_end(ring).map_err(of_corrupt),
        Start::Oldest => Cursor::at_oldest(ring).map_err(of_corrupt),
        Start::Position(position) => Cursor::at(ring, position).map_err(|error| match error {
            NoSuchStart::NotAPosition => SubscriberError::NotAPosition { position },
            NoSuchStart::Ahead { end } => SubscriberError::PositionAhead { position, end },
            NoSuchStart::Lost { oldest } => SubscriberError::PositionLost { position, oldest },
            NoSuchStart::Corrupt(corrupt) => of_corrupt(corrupt),
        }),
        Start::Sequence(sequence) => {
            Cursor::at_sequence(ring, sequence).map_err(|error| match error {
                NoSuchStart::Ahead { end } => SubscriberError::SequenceAhead { sequence, end },
                NoSuchStart::Lost { oldest } => SubscriberError::SequenceLost { sequence, oldest },
                NoSuchStart::Corrupt(corrupt) => of_corrupt(corrupt),
                NoSuchStart::NotAPosition => unreachable!("every number is a sequence"),
            })
        }
    };
    let control = subscribing.readers.control();
    // A subscriber that joins at the end must receive everything that comes after.
    let is_safe = |cursor: &Cursor| start != Start::Latest || cursor.is_out_of_reach(ring);
    let mut decision = Decision::default();
    let joined = gate::join(
        ring,
        control,
        ClaimedSlot { number: claim.number(), slot: claim.slot(), flags },
        find,
        is_safe,
        || decision.wait(),
    )?;
    joined.ok_or_else(|| of_corrupt(never_still(ring)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::decision::LONGEST_DECISION;
    use super::*;
    use crate::bus::BusConfig;
    use crate::hook::{CrashPoint, rehearsal};
    use crate::settings::{LockKind, Policy};
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering;
    use std::time::{Duration, Instant};

    /// A publisher dies after it has proposed to overwrite the oldest message, which another subscriber
    /// protects. No other publisher takes the proposal back. The message is there all the same.
    #[test]
    fn a_start_is_there_although_the_writer_that_wanted_it_died() {
        for fatal in [CrashPoint::Proposing, CrashPoint::BeforeWithdrawing] {
            let root = TempDir::new();
            let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
            let config = config.lock(LockKind::Lease).policy(Policy::Wait { limit: None });
            let (bus, doomed) = (config.open("b").unwrap(), config.open("b").unwrap());
            let first = bus.subscriber().start(Start::Oldest).build().unwrap();
            let publisher = bus.publisher("a").unwrap();
            while publisher.try_publish([7; 992]).is_ok() {}
            let victim = doomed.publisher("a").unwrap();
            let dies = move |reached: &[CrashPoint]| reached.last() == Some(&fatal);
            let (_, lived) = rehearsal::act(dies, || victim.try_publish([7; 992]));
            assert!(lived.is_none(), "{fatal:?} is not on its way");
            rehearsal::bury((victim, doomed));

            let control = bus.subscribing().unwrap();
            let control = control.ring.control();
            let reserved = control.reserved.0.load(Ordering::Relaxed);
            assert!(control.waits.0.proposed.load(Ordering::Relaxed) > reserved, "it stands");
            let began = Instant::now();
            let at_oldest = bus.subscriber().start(Start::Oldest).build().unwrap();
            assert!(began.elapsed() >= LONGEST_DECISION, "it waits for a decision");
            assert_eq!(at_oldest.position(), first.position(), "{fatal:?}");
            drop(at_oldest);

            // The next publisher, which needs no space, decides.
            let last = bus.publisher("a").unwrap();
            last.publish_within([], Duration::from_secs(60)).unwrap();
            assert_eq!(control.waits.0.proposed.load(Ordering::Relaxed), reserved);
            let started = bus.subscriber().start(Start::Position(first.position())).build();
            assert_eq!(started.unwrap().position(), first.position(), "{fatal:?}");
        }
    }
}
