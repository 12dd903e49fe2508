//! Publishing what comes from elsewhere: another host, another bus, or a recording.
//!
//! An inlet publishes as a shared publisher does (`publishing.rs`), with three differences. A call publishes on any
//! topics. Each message can carry where it comes from. And a message or loss that has an origin passes the table of
//! arrivals (`ring/arrivals.rs`), which drops what has arrived before.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::participant::{Held, Participant, of_publisher};
use super::publisher::{encode, stream_bytes};
use super::publishing::{Publishing, WakeOnDrop};
use super::terms::{Limit, Terms, at_most};
use super::topics::TableShare;
use super::wake::audience_of;
use crate::bus::views::{arrivals_of, values_of};
use crate::bus::{Bus, clock};
use crate::error::{BurstError, PublishError, PublisherError, RetainError};
use crate::hook::{self, CrashPoint, mutant};
use crate::notify::Audience;
use crate::ring::arrivals::{
    Arrival, Arrivals, Bringing, KnownBringers, Reach, Refused, Room, StreamKey,
};
use crate::ring::layout::ALIGNMENT;
use crate::ring::position::to_index;
use crate::ring::racy::RacyBytesMut;
use crate::settings::{InvalidSetting, Policy};
use crate::shm::lock::Blind;
use crate::sync::{AtomicU64, Ordering};
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, TopicId};
use crate::topic::{Lost, LostBound, LostReason, Origin, Pattern, Topic};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An inlet keeps the sessions of as many streams. Beyond, it forgets them: a stream of which nothing has come yet is then known without.
const MOST_BEGUN: usize = 4_096;

/// What a record has besides its payload, at most.
const LONGEST_OVERHEAD: u64 = ALIGNMENT + MAX_EXTENSIONS_BYTES as u64;

/// Publishes messages that were first published elsewhere, and reports those that were lost on the way.
///
/// It is for programs that connect buses: a bridge, a receiver of a network, a replay. It is a participant of its own,
/// apart from the publishers of its [`Bus`].
///
/// # Each message arrives once
///
/// A message with an [`Origin`] belongs to a stream. The bus remembers how far each stream has arrived, even if the
/// process that brings it is killed at any instruction. A message whose number has arrived already is dropped, and
/// counted ([`Self::duplicates`]). So a program that restarts, or a second one, may send everything again. This holds
/// for messages that come in the order of their numbers; for others see [`Entry::open_from`].
///
/// One inlet at a time brings a stream. Another one gets [`PublishError::Taken`], until the first is dropped, its process has
/// ended or it has [released](Self::release) the stream; then it continues where the first has stopped.
///
/// The bus has [room](crate::BusConfig::max_arrivals) for a number of streams. Once it is full, a stream that no inlet brings
/// any more makes room for a new one. If more of it may be missing than subscribers know, that is reported before.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-inlet-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::{Entry, Limit, Origin};
///
/// let mut subscriber = bus.subscribe("**")?;
/// let inlet = bus.inlet()?;
/// let temperature = inlet.topic("plant/boiler/temperature")?;
/// let origin = Origin { source: 0x0B01_1E12, series: 1, stream: 0, number: 7 };
/// let entry = Entry { origin: Some(origin), ..Entry::new(&temperature, &[b"351.2"]) };
/// inlet.publish(&[entry], Limit::Policy)?;
/// inlet.publish(&[entry], Limit::Policy)?; // has arrived already
/// assert_eq!(inlet.duplicates(), 1);
///
/// let message = subscriber.receive()?;
/// assert_eq!((message.payload(), message.origin()), (&b"351.2"[..], Some(origin)));
/// assert!(subscriber.try_receive()?.is_none());
/// # drop((subscriber, inlet, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Inlet {
    bus: Bus,
    publishing: Arc<Publishing>,
    policy: Policy,
    awaits: bool,
    duplicates: AtomicU64,
    /// The sessions of streams, for those that have no entry in the table of arrivals yet.
    begun: Mutex<HashMap<StreamKey, u32>>,
}

/// A topic on which an [`Inlet`] publishes. It does not keep the inlet alive.
#[derive(Clone)]
pub struct InletTopic {
    /// A topic that outlives its inlet must not keep the lease: the inlet's series would stay taken.
    publishing: Weak<Publishing>,
    topic: Topic,
    /// `None` where the name travels with each message.
    id: Option<TopicId>,
}

impl InletTopic {
    fn is_of(&self, publishing: &Arc<Publishing>) -> bool {
        std::ptr::eq(self.publishing.as_ptr(), Arc::as_ptr(publishing))
    }
}

/// A message for [`Inlet::publish`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its topic.
    pub topic: &'a InletTopic,
    /// Its bytes, in any number of parts.
    pub parts: &'a [&'a [u8]],
    /// Whether it is also for the subscribers of everything below its topic.
    pub to_descendants: bool,
    /// When it was first published: CLOCK_REALTIME, in nanoseconds. If it is `None` and the publishers of this
    /// [`Bus`] stamp messages ([`BusConfig::timestamps`](crate::BusConfig::timestamps)), it is stamped now.
    pub published_ns: Option<u64>,
    /// Where it was first published. Without it, the message is never taken for a duplicate.
    pub origin: Option<Origin>,
    /// If the stream's messages arrive in any order: the lowest number of the stream that is still missing. Then no
    /// message with this or a higher number is dropped as a duplicate. `None` means that they arrive in the order of their
    /// numbers: none with a lower number than this message's comes later.
    pub open_from: Option<u64>,
    /// Its place in an order over several buses.
    pub number: Option<u64>,
    /// The stream that brings it here, and its number there, if that is not its [`origin`](Self::origin). The bus then
    /// remembers how far that stream has arrived: a sequencer's feed is one stream, although its events come from many.
    pub arrival: Option<Origin>,
}

impl<'a> Entry<'a> {
    /// Returns a message on a topic, without origin and numbers.
    #[must_use]
    pub fn new(topic: &'a InletTopic, parts: &'a [&'a [u8]]) -> Self {
        Self {
            topic,
            parts,
            to_descendants: false,
            published_ns: None,
            origin: None,
            open_from: None,
            number: None,
            arrival: None,
        }
    }
}

/// How far a stream has arrived, as [`Inlet::claim`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrived {
    /// The lowest number that has not arrived, neither as a message nor as a loss. It is 0 if nothing has.
    pub next: u64,
    /// The number after the highest that has arrived. It is above `next` only where messages come in any order
    /// ([`Entry::open_from`]). Between the two, some have arrived, and the bus does not know which.
    pub highest: u64,
    /// The session in which it last began to come, as [`Inlet::begin_session`] was told, or 0.
    pub session: u32,
    /// Whether another inlet brought the stream until now.
    pub taken_over: bool,
}

/// Decides whether a message or a loss is a duplicate, and to what it raises the mark of its stream.
#[derive(Clone, Copy)]
struct Passage {
    key: StreamKey,
    /// It is a duplicate if the mark is above this.
    highest_mark: u64,
    /// The mark once it has arrived, unless that is higher already.
    raises_to: u64,
    /// The number after its highest.
    end: u64,
    /// It says that more may be missing from its number on.
    is_open_end: bool,
}

impl Passage {
    fn of_message(origin: Origin, open_from: Option<u64>) -> Self {
        let end = origin.number.saturating_add(1);
        let raises_to = open_from.unwrap_or(end);
        let (key, highest_mark) = (origin.into(), origin.number);
        Self { key, highest_mark, raises_to, end, is_open_end: false }
    }

    fn of_loss(lost: &Lost, open_from: Option<u64>) -> Self {
        // An empty loss says that messages from `from` on may be missing. It is no duplicate while none of those has
        // arrived.
        let highest_mark = lost.from.number.max(lost.until.saturating_sub(1));
        let is_open_end = lost.until == lost.from.number;
        // What lies before an empty one may still come.
        let until = if is_open_end || mutant("loss_raises_no_mark") { 0 } else { lost.until };
        let raises_to = open_from.unwrap_or(until);
        Self { key: lost.from.into(), highest_mark, raises_to, end: until, is_open_end }
    }

    /// Whether this has arrived already.
    fn is_known(&self, reach: &Reach) -> bool {
        let is_last = || reach.mark == self.highest_mark.saturating_add(1);
        let has_arrived =
            reach.mark > self.highest_mark && !(mutant("last_arrival_again") && is_last());
        has_arrived || (self.is_open_end && reach.is_told && !mutant("told_twice"))
    }

    /// How far the stream has arrived once this has.
    fn reaches(&self, reach: &Reach) -> Reach {
        Reach {
            mark: reach.mark.max(self.raises_to),
            highest: reach.highest.max(self.raises_to).max(self.end),
            is_told: self.is_open_end || (reach.is_told && mutant("told_kept_with_message")),
        }
    }
}

impl From<Origin> for StreamKey {
    fn from(Origin { source, series, stream, number: _ }: Origin) -> Self {
        Self { source, series, stream }
    }
}

impl Inlet {
    pub(in crate::bus) fn new(bus: Bus, publishing: Publishing) -> Self {
        let policy = publishing.bus_policy();
        let (publishing, duplicates) = (Arc::new(publishing), AtomicU64::new(0));
        Self { bus, publishing, policy, awaits: false, duplicates, begun: Mutex::default() }
    }

    /// Says that what this inlet brings is awaited: its source sends on whether this process runs or not, and another inlet
    /// that says the same may find out later what is missing. See [`Self::open_streams`]. Such an inlet brings all series of a stream,
    /// one after another.
    #[must_use]
    pub fn awaiting(self) -> Self {
        Self { awaits: true, ..self }
    }

    /// Makes this inlet wait less for slow subscribers than the bus's policy says; see
    /// [`Publisher::with_policy`](crate::Publisher::with_policy). An inlet that waits cannot receive meanwhile, so what it
    /// brings may be lost on the way instead.
    ///
    /// # Errors
    /// Returns an error if `policy` could wait longer than the bus's policy, or if it is neither of the same kind nor
    /// `Overwrite`. The inlet is then closed.
    pub fn with_policy(mut self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.policy = at_most(self.publishing.bus_policy(), policy)?;
        Ok(self)
    }

    /// Returns the bus.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns how long it waits for slow subscribers: as the bus's policy says, unless [`Self::with_policy`] has changed
    /// that.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Makes a topic to publish on.
    ///
    /// While the bus's table of topics is less than half full, a new topic is entered there. Beyond that, the name travels
    /// with each message: a foreign source must not fill the table.
    ///
    /// # Errors
    /// [`PublisherError::Topic`], or an error of the files; see [`PublisherError`].
    pub fn topic(&self, topic: &str) -> Result<InletTopic, PublisherError> {
        let terms = self.terms(Limit::Policy);
        let topic = Topic::new(topic)?;
        let id = self
            .publishing
            .intern(&topic, TableShare::Half, &terms)
            .map_err(|error| of_publisher(error, "enter the topic in", self.bus.path()))?;
        Ok(InletTopic { publishing: Arc::downgrade(&self.publishing), topic, id })
    }

    /// Retains a topic: from now on the bus keeps its newest message; see [`Publisher::retained`](crate::Publisher::retained).
    /// What an inlet brings must not be lost because its value finds no room, so its messages are published as those of a
    /// publisher that has not declared the topic: such a value is missing, and readers learn that. A topic that was made while
    /// another publisher was exclusive is entered in the table of topics now.
    ///
    /// # Errors
    /// See [`RetainError`].
    pub fn retain(&self, topic: &mut InletTopic) -> Result<(), RetainError> {
        if !topic.is_of(&self.publishing) {
            return Err(PublishError::ForeignTopic.into());
        }
        let InletTopic { topic, id, .. } = topic;
        self.publishing.declare(topic, id, TableShare::Half, &self.terms(Limit::Policy))
    }

    /// Claims a stream for this inlet, and returns how far it has arrived. Publishing does the same when it first meets
    /// a stream. A program calls this to learn what it need not ask its source for. A stream of which nothing has arrived is
    /// claimed by the first message. The call waits for other publishers, and for no subscriber.
    ///
    /// # Errors
    /// [`PublishError::Taken`] if another inlet brings the stream; see [`Limit`] and [`PublishError`].
    pub fn claim(
        &self,
        stream: StreamKey,
        limit: impl Into<Limit>,
    ) -> Result<Arrived, PublishError> {
        let terms = self.terms(limit.into());
        let mut call = Call::begin(self, &terms)?;
        if mutant("claim_makes_entry") {
            let StreamKey { source, series, stream } = stream;
            call.advance(Origin { source, series, stream, number: 0 })?;
        }
        let Arrival { reach, session, taken_over, .. } = call.admit(stream)?;
        let Reach { mark: next, highest, .. } = reach;
        Ok(Arrived { next, highest, session, taken_over: taken_over.is_some() })
    }

    /// States that a stream comes in another session of its source from now on: a number that the source draws when it starts, not
    /// 0. [`Self::claim`] returns it.
    ///
    /// Numbers only grow while the source remembers which it has used. A source that was restored from a backup has forgotten
    /// some, and uses them again. If the program knows that, `back_to` is the number at which the stream continues, below
    /// those that have arrived or above them. What may be missing before is [reported](Self::publish_lost) first. A session
    /// that the bus knows already changes nothing, so two ways that notice the same go back once.
    ///
    /// The call waits for other publishers, and for no subscriber. A process that dies during it has done all of it, or its
    /// successor finds the session before.
    ///
    /// # Errors
    /// [`PublishError::OriginNumber`] if `back_to` is above the limit of numbers; see [`Self::claim`].
    pub fn begin_session(
        &self,
        stream: StreamKey,
        session: u32,
        back_to: Option<u64>,
        limit: impl Into<Limit>,
    ) -> Result<(), PublishError> {
        check_open_from(back_to)?;
        Call::begin(self, &self.terms(limit.into()))?.begin_session(stream, session, back_to)
    }

    /// Returns the streams of which more may be missing than subscribers know, each with the lowest number that has not arrived.
    /// They are those that [awaiting](Self::awaiting) inlets have brought, if no other inlet that lives brings them now, and if
    /// the last that came of them is not a loss without numbers. The call waits for other publishers, and for no subscriber.
    ///
    /// # Errors
    /// See [`Limit`] and [`PublishError`].
    pub fn open_streams(&self, limit: impl Into<Limit>) -> Result<Vec<Origin>, PublishError> {
        Call::begin(self, &self.terms(limit.into()))?.open_streams()
    }

    /// States that this inlet no longer brings a stream. Another one may then bring it, and a full table may forget it. `is_over`
    /// says that nothing follows in this series, so that nothing more can be missing. The call waits for other publishers, and
    /// for no subscriber.
    ///
    /// # Errors
    /// See [`Limit`] and [`PublishError`].
    pub fn release(
        &self,
        stream: StreamKey,
        is_over: bool,
        limit: impl Into<Limit>,
    ) -> Result<(), PublishError> {
        Call::begin(self, &self.terms(limit.into()))?.release(stream, is_over)
    }

    /// Publishes messages one by one, on any topics; each is visible at once. The call takes the writer lock once for all
    /// messages that fit without waiting, as [`Publisher::burst`](crate::Publisher::burst) does. The limit is for all
    /// messages together. It returns no sequences: a duplicate has none.
    ///
    /// # Errors
    /// [`BurstError`] says how many of the messages were published, or dropped as duplicates, before the error; see
    /// [`Limit`]. If one of them is invalid (a topic of another inlet, a number beyond its limit, too long), none is
    /// published.
    pub fn publish(
        &self,
        entries: &[Entry<'_>],
        limit: impl Into<Limit>,
    ) -> Result<(), BurstError> {
        let failed = |published, source| BurstError { published, source };
        for entry in entries {
            self.check(entry).map_err(|source| failed(0, source))?;
        }
        if entries.is_empty() {
            return Ok(());
        }
        let terms = self.terms(limit.into());
        let mut call = Call::begin(self, &terms).map_err(|source| failed(0, source))?;
        for (published, entry) in entries.iter().enumerate() {
            call.message(entry).map_err(|source| failed(published, source))?;
        }
        Ok(())
    }

    /// Reports to subscribers that messages were lost on the way here. Those whose patterns intersect the scope get
    /// [`ReceiveError::Lost`](crate::ReceiveError::Lost) at this place of the order. The numbers of the loss count as
    /// arrived: if all of them have arrived before, the loss is dropped as a duplicate. A loss without numbers (`until` is
    /// that of `from`) says that more may be missing from there on. No number counts as arrived by it. It is dropped if that number
    /// has arrived, or if no message has come since the last such loss.
    ///
    /// `open_from` is what [`Entry::open_from`] is for messages.
    ///
    /// # Errors
    /// [`PublishError::LostNumbers`] and [`PublishError::LostScope`] if the loss is invalid; see [`Limit`] and
    /// [`PublishError`]. On an error nothing is published.
    pub fn publish_lost(
        &self,
        lost: &Lost,
        open_from: Option<u64>,
        limit: impl Into<Limit>,
    ) -> Result<(), PublishError> {
        check_lost(lost)?;
        check_open_from(open_from)?;
        let passage = Passage::of_loss(lost, open_from);
        Call::begin(self, &self.terms(limit.into()))?.loss(lost, Some(passage))
    }

    /// Reports a loss as [`Self::publish_lost`] does, and remembers nothing: it is no duplicate of another one, and its numbers
    /// do not count as arrived. It is for what the bus refuses to remember ([`PublishError::TooManyArrivals`],
    /// [`PublishError::Taken`]), and for losses that were recorded.
    ///
    /// # Errors
    /// As [`Self::publish_lost`].
    pub fn publish_lost_unlisted(
        &self,
        lost: &Lost,
        limit: impl Into<Limit>,
    ) -> Result<(), PublishError> {
        check_lost(lost)?;
        Call::begin(self, &self.terms(limit.into()))?.loss(lost, None)
    }

    /// States how far a stream has arrived, without publishing anything: all numbers below that of `next` have arrived, or
    /// were reported. A number that is not above the mark of the stream changes nothing. The call waits for other
    /// publishers, and for no subscriber.
    ///
    /// It is for a program that learns later than from the messages themselves that none is missing. It keeps that in a
    /// stream of its own beside theirs, and its successor gets it from [`Self::claim`].
    ///
    /// # Errors
    /// [`PublishError::OriginNumber`] if the number is above its limit; see [`Self::claim`].
    pub fn advance(&self, next: Origin, limit: impl Into<Limit>) -> Result<(), PublishError> {
        check_open_from(Some(next.number))?;
        Call::begin(self, &self.terms(limit.into()))?.advance(next)
    }

    /// Returns how many messages and losses it has dropped because they had arrived before.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    fn check(&self, entry: &Entry<'_>) -> Result<(), PublishError> {
        if !entry.topic.is_of(&self.publishing) {
            return Err(PublishError::ForeignTopic);
        }
        for Origin { number, .. } in [entry.origin, entry.arrival].into_iter().flatten() {
            if number >= Origin::NUMBER_LIMIT {
                return Err(PublishError::OriginNumber { number });
            }
        }
        check_open_from(entry.open_from)?;
        // The longest extensions: whether a message is accepted must not depend on the time.
        let limit = self.publishing.largest_record().saturating_sub(LONGEST_OVERHEAD);
        let length = length_of(entry.parts);
        if length > limit {
            return Err(PublishError::TooLong { length, limit });
        }
        Ok(())
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<StreamKey, u32>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terms(&self, limit: Limit) -> Terms {
        Terms::shared(self.policy, limit)
    }
}

fn check_open_from(open_from: Option<u64>) -> Result<(), PublishError> {
    match open_from {
        Some(number) if number > Origin::NUMBER_LIMIT => Err(PublishError::OriginNumber { number }),
        _ => Ok(()),
    }
}

fn check_lost(lost: &Lost) -> Result<(), PublishError> {
    let Origin { number: from, .. } = lost.from;
    let until = lost.until;
    if from > until || until > Origin::NUMBER_LIMIT {
        return Err(PublishError::LostNumbers { from, until });
    }
    if !(1..=Lost::MOST_PATTERNS).contains(&lost.scope.len()) {
        return Err(PublishError::LostScope { patterns: lost.scope.len() });
    }
    Ok(())
}

fn length_of(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0, |length: u64, part| length.saturating_add(part.len() as u64))
}

/// A call of an inlet that has the writer lock.
struct Call<'a> {
    inlet: &'a Inlet,
    terms: &'a Terms,
    me: Bringing,
    /// What this call has found out about others since it has the lock.
    known: KnownBringers,
    /// CLOCK_REALTIME.
    now_ns: u64,
    /// `None` after a wait for free space has failed.
    held: Option<Held<'a>>,
    /// The end of the stream up to which the participant has counted.
    counted: (u64, u64),
    /// Dropped after the unlock.
    wake: WakeOnDrop<'a>,
}

impl<'a> Call<'a> {
    fn begin(inlet: &'a Inlet, terms: &'a Terms) -> Result<Self, PublishError> {
        let participant = &inlet.publishing.participant;
        participant.check_fork()?;
        let wake = WakeOnDrop::new(&inlet.publishing, terms.keeps_lock, Audience::None);
        let held = participant.hold(terms)?;
        if mutant("note_settled_late") {
            arrivals_of(&participant.ring).settle(held.appender.tail())?;
        }
        Ok(Self {
            inlet,
            terms,
            me: Bringing { by: participant.claim.bringer(), awaits: inlet.awaits },
            known: KnownBringers::default(),
            now_ns: clock::realtime_ns(),
            counted: held.end(),
            held: Some(held),
            wake,
        })
    }

    fn participant(&self) -> &'a Participant {
        &self.inlet.publishing.participant
    }

    fn held(&mut self) -> Result<&mut Held<'a>, PublishError> {
        self.held.as_mut().ok_or(PublishError::Busy)
    }

    fn table(&self) -> Arrivals<'a> {
        arrivals_of(&self.participant().ring)
    }

    fn admit(&mut self, key: StreamKey) -> Result<Arrival, PublishError> {
        let claim = &self.participant().claim;
        let has_left = |other| claim.has_left(other);
        let arrival = self.table().bring(key, self.me, &mut self.known, has_left);
        arrival.map_err(|refused| self.refusal(key, refused))
    }

    /// Finds room for a stream that has no entry. If another one makes room for it, of which more may be missing, tells that
    /// first and returns nothing: the caller decides again.
    #[cold]
    fn find_room(&mut self, key: StreamKey) -> Result<Option<Arrival>, PublishError> {
        let claim = &self.participant().claim;
        let session = self.inlet.begun().get(&key).copied().unwrap_or(0);
        let (me, now_ns) = ((self.me, session), self.now_ns);
        let has_left = |other| claim.has_left(other);
        let room = self.table().room_for(key, me, now_ns, &mut self.known, has_left);
        let (stream, arrival) = match room.map_err(|refused| self.refusal(key, refused))? {
            Room::Here(arrival) => return Ok(Some(arrival)),
            Room::Tell(stream, arrival) => (stream, arrival),
        };
        let StreamKey { source, series, stream } = stream;
        let from = Origin { source, series, stream, number: arrival.reach.mark };
        let lost = Lost {
            from,
            until: from.number,
            messages: 0,
            bound: LostBound::AtLeast,
            reason: LostReason::Silent,
            // What its patterns were is not known here.
            scope: vec![Pattern::everything()],
        };
        let passage = Passage::of_loss(&lost, None);
        let (payload, reach) = (lost.encode(), passage.reaches(&arrival.reach));
        self.write(Tag::loss().raw(), &[], &[&payload], Some((&arrival, &reach)))?;
        Ok(None)
    }

    fn refusal(&self, key: StreamKey, refused: Refused<Blind>) -> PublishError {
        let participant = self.participant();
        match refused {
            Refused::Taken(other) => {
                let (name, pid) = participant.claim.name_and_pid_of(other);
                let StreamKey { source, series, .. } = key;
                PublishError::Taken { from_source: source, series, name, pid }
            }
            Refused::Full => PublishError::TooManyArrivals {
                limit: participant.ring.header().settings.max_arrivals,
            },
            Refused::Unknown(Blind) => PublishError::LeaseLost,
            Refused::Corrupt(corrupt) => corrupt.into(),
        }
    }

    fn open_streams(&self) -> Result<Vec<Origin>, PublishError> {
        let claim = &self.participant().claim;
        let open = self.table().open(self.me.by, |other| claim.has_left(other));
        let origin = |(key, reach): (StreamKey, Reach)| {
            let StreamKey { source, series, stream } = key;
            Origin { source, series, stream, number: reach.mark }
        };
        match open {
            Ok(open) => Ok(open.into_iter().map(origin).collect()),
            Err(Refused::Corrupt(corrupt)) => Err(corrupt.into()),
            Err(_) => Err(PublishError::LeaseLost),
        }
    }

    fn begin_session(
        &mut self,
        key: StreamKey,
        session: u32,
        back_to: Option<u64>,
    ) -> Result<(), PublishError> {
        let arrival = self.admit(key)?;
        self.table().begin_session(&arrival, session, back_to);
        // Its entry may come with the first record.
        let mut begun = self.inlet.begun();
        if begun.len() >= MOST_BEGUN {
            begun.clear();
        }
        begun.insert(key, session);
        Ok(())
    }

    fn release(&self, key: StreamKey, is_over: bool) -> Result<(), PublishError> {
        Ok(self.table().release(key, self.me.by, is_over)?)
    }

    fn message(&mut self, entry: &Entry<'_>) -> Result<(), PublishError> {
        let mut buffer = [0; MAX_EXTENSIONS_BYTES];
        let InletTopic { topic, id, .. } = entry.topic;
        let stamp = self.inlet.bus.has_timestamps().then_some(self.now_ns);
        let extensions = Extensions {
            timestamp_ns: entry.published_ns.or(stamp),
            origin: entry.origin,
            number: entry.number,
            inline_topic: id.is_none().then(|| topic.as_str()),
        };
        let (tag, extensions) = encode(*id, entry.to_descendants, &extensions, &mut buffer);
        let passage = entry.arrival.or(entry.origin);
        let passage = passage.map(|origin| Passage::of_message(origin, entry.open_from));
        self.record(tag, extensions, entry.parts, passage)
    }

    fn loss(&mut self, lost: &Lost, passage: Option<Passage>) -> Result<(), PublishError> {
        self.record(Tag::loss().raw(), &[], &[&lost.encode()], passage)
    }

    fn advance(&mut self, next: Origin) -> Result<(), PublishError> {
        let key = next.into();
        let arrival = loop {
            let arrival = self.admit(key)?;
            let arrival = if arrival.has_room() { Some(arrival) } else { self.find_room(key)? };
            if let Some(arrival) = arrival {
                break arrival;
            }
        };
        self.table().raise(&arrival, next.number, self.now_ns);
        Ok(())
    }

    /// Writes and commits a record, unless it is a duplicate, and raises the mark of its stream.
    fn record(
        &mut self,
        tag: u32,
        extensions: &[u8],
        parts: &[&[u8]],
        passage: Option<Passage>,
    ) -> Result<(), PublishError> {
        loop {
            // A call may have many messages, and hold the lock for long. If other code has closed its lease, another
            // publisher takes over, and may have taken over the marks as well.
            if !self.participant().has_lock() {
                return Err(PublishError::LeaseLost);
            }
            let Some(passage) = passage else {
                if self.write(tag, extensions, parts, None)? {
                    return Ok(());
                }
                continue;
            };
            let arrival = self.admit(passage.key)?;
            if passage.is_known(&arrival.reach) {
                self.inlet.duplicates.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            let arrival =
                if arrival.has_room() { Some(arrival) } else { self.find_room(passage.key)? };
            let Some(arrival) = arrival else { continue };
            let reach = passage.reaches(&arrival.reach);
            if self.write(tag, extensions, parts, Some((&arrival, &reach)))? {
                return Ok(());
            }
        }
    }

    /// Returns whether there is room for a record. If there was none, it has waited for it, and another inlet may have had the
    /// lock meanwhile, and have taken over.
    #[inline]
    fn has_room(&mut self, extensions: &[u8], parts: &[&[u8]]) -> Result<bool, PublishError> {
        let length = (extensions.len() as u64).saturating_add(length_of(parts));
        let bytes = stream_bytes(length);
        if self.held()?.appender.fits(bytes) {
            return Ok(true);
        }
        self.make_space(bytes)?;
        Ok(false)
    }

    /// Writes and commits a record, and stores how far its stream has arrived then. Returns `false` if it had to wait for room:
    /// then nothing is written, and the caller decides again.
    fn write(
        &mut self,
        tag: u32,
        extensions: &[u8],
        parts: &[&[u8]],
        arrival: Option<(&Arrival, &Reach)>,
    ) -> Result<bool, PublishError> {
        if !self.has_room(extensions, parts)? {
            return Ok(false);
        }
        let (inlet, table, now_ns) = (self.inlet, self.table(), self.now_ns);
        let appender = &mut self.held()?.appender;
        if let Some((arrival, reach)) = arrival {
            table.begin(arrival, reach, appender.tail(), now_ns);
        }
        let length = to_index(length_of(parts));
        let payload_length = u32::try_from(length).unwrap_or(u32::MAX);
        let fill = |words: &[AtomicU64]| {
            let mut payload =
                RacyBytesMut::new(words, length).expect("the double mapping holds any record");
            let mut offset = 0;
            for part in parts {
                payload.write(offset, part);
                offset = part.len().saturating_add(offset);
                hook::point(CrashPoint::MidCopy);
            }
            Ok::<(), PublishError>(())
        };
        if appender.may_retain(tag) {
            let values = values_of(&inlet.publishing.participant.ring);
            appender.append_with_values(values, |appender| {
                appender.write_with(tag, extensions, payload_length, fill)
            })?;
        } else {
            appender.write_with(tag, extensions, payload_length, fill)?;
        }
        if let Some((arrival, reach)) = arrival {
            table.finish(arrival, reach);
        }
        self.wake.audience = self.wake.audience.and(audience_of(tag));
        Ok(true)
    }

    #[cold]
    fn make_space(&mut self, bytes: u64) -> Result<(), PublishError> {
        let held = self.held.take().ok_or(PublishError::Busy)?;
        self.participant().count_since(&held, self.counted);
        let held = self.inlet.publishing.make_space(held, bytes, self.terms)?;
        self.counted = held.end();
        self.held = Some(held);
        // Others may have had the lock meanwhile.
        self.known = KnownBringers::default();
        Ok(())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.participant().count_since(held, self.counted);
        }
    }
}

impl fmt::Debug for InletTopic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("InletTopic").field(&self.topic).finish()
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Inlet")
            .field("bus", &self.bus)
            .field("policy", &self.policy)
            .field("duplicates", &self.duplicates())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{BusConfig, Start, Subscriber};
    use crate::error::ReceiveError;
    use crate::hook::rehearsal;
    use crate::settings::LockKind;
    use crate::shm::lock::LockAttempt;
    use crate::shm::testing::TempDir;
    use std::ops::Range;
    use std::sync::Mutex;

    fn origin(stream: u16, number: u64) -> Origin {
        Origin { source: 1, series: 2, stream, number }
    }

    fn stream(stream: u16) -> StreamKey {
        StreamKey { source: 1, series: 2, stream }
    }

    /// Publishes the numbers in one call, alternately on two streams. The largest message takes more than a block.
    fn bring(bus: &Bus, numbers: Range<u64>) -> Result<Inlet, BurstError> {
        let inlet = bus.inlet().unwrap();
        bring_by(&inlet, numbers)?;
        Ok(inlet)
    }

    fn bring_by(inlet: &Inlet, numbers: Range<u64>) -> Result<(), BurstError> {
        let topic = inlet.topic("a").unwrap();
        let text: Vec<_> = numbers.clone().map(|number| format!("{number:x<1100}")).collect();
        let parts: Vec<_> = text.iter().map(|text| [text.as_bytes()]).collect();
        let entries: Vec<_> = numbers
            .zip(&parts)
            .map(|(number, parts)| Entry {
                origin: Some(origin(u16::from(number % 2 == 0), number)),
                ..Entry::new(&topic, parts)
            })
            .collect();
        inlet.publish(&entries, Limit::Policy)
    }

    /// A bus, once more for an inlet that dies, and a subscriber that gets all.
    fn mortal(root: &TempDir) -> (Bus, Bus, Subscriber) {
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let config = config.lock(LockKind::Lease).policy(Policy::Overwrite);
        let (bus, doomed) = (config.open("b").unwrap(), config.open("b").unwrap());
        let subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
        (bus, doomed, subscriber)
    }

    /// An inlet dies at each step of its work in turn. Another one then brings everything again, as a restarted
    /// program does.
    #[test]
    fn each_message_arrives_once_wherever_its_inlet_died() {
        let mut seen = Vec::new();
        for step in 1.. {
            let root = TempDir::new();
            let (bus, doomed, mut subscriber) = mortal(&root);
            let dies = move |reached: &[CrashPoint]| reached.len() == step;
            let (reached, lived) = rehearsal::act(dies, || bring(&doomed, 0..4));
            seen.extend(reached.last());
            let has_lived = lived.is_some();
            rehearsal::bury((lived, doomed));

            let inlet = bring(&bus, 0..6).unwrap();
            assert_eq!(
                inlet.claim(stream(0), Limit::Policy).unwrap(),
                Arrived { next: 6, highest: 6, session: 0, taken_over: false }
            );
            assert_eq!(
                inlet.claim(stream(1), Limit::Policy).unwrap(),
                Arrived { next: 5, highest: 5, session: 0, taken_over: false }
            );
            for number in 0..6 {
                let message = subscriber.receive().unwrap();
                let expected = origin(u16::from(number % 2 == 0), number);
                assert_eq!(message.origin(), Some(expected), "died at {:?}", reached.last());
                assert!(message.text().starts_with(&format!("{number}x")));
            }
            assert!(subscriber.try_receive().unwrap().is_none(), "died at {:?}", reached.last());
            if has_lived {
                break;
            }
        }
        for point in [
            CrashPoint::MidArrival,
            CrashPoint::ArrivalPending,
            CrashPoint::MidCopy,
            CrashPoint::BeforeCommit,
            CrashPoint::AfterCommit,
            CrashPoint::BetweenSequenceAndTail,
            CrashPoint::BeforeMark,
            CrashPoint::MidMark,
            CrashPoint::AfterMark,
            CrashPoint::BeforeUnlock,
        ] {
            assert!(seen.contains(&point), "{point:?} is not on its way");
        }
    }

    /// The loss that says that from this number on more may be missing of stream 1, which has the even ones.
    fn open_end(number: u64) -> Lost {
        Lost {
            from: origin(1, number),
            until: number,
            messages: 0,
            bound: LostBound::AtLeast,
            reason: LostReason::Silent,
            scope: vec![Pattern::everything()],
        }
    }

    /// Returns what a subscriber gets, by the numbers: of messages, and of losses.
    fn received(subscriber: &mut Subscriber) -> Vec<Result<u64, u64>> {
        let mut all = Vec::new();
        loop {
            match subscriber.try_receive() {
                Ok(Some(message)) => all.push(Ok(message.origin().unwrap().number)),
                Ok(None) => return all,
                Err(ReceiveError::Lost(lost)) => all.push(Err(lost.from.number)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A message, and twice that more may be missing after it: the second time by another inlet, wherever the first one died.
    #[test]
    fn it_is_told_once_that_more_may_be_missing_wherever_its_inlet_died() {
        let mut seen = Vec::new();
        for step in 1.. {
            let root = TempDir::new();
            let (bus, doomed, mut subscriber) = mortal(&root);
            let dies = move |reached: &[CrashPoint]| reached.len() == step;
            let tell = || {
                let inlet = doomed.inlet().unwrap().awaiting();
                bring_by(&inlet, 0..1).unwrap();
                inlet.publish_lost(&open_end(1), None, Limit::Policy).unwrap();
                bring_by(&inlet, 2..3).unwrap();
                inlet.publish_lost(&open_end(3), None, Limit::Policy).unwrap();
                inlet
            };
            let (reached, lived) = rehearsal::act(dies, tell);
            seen.extend(reached.last());
            let has_lived = lived.is_some();
            rehearsal::bury((lived, doomed));

            let inlet = bus.inlet().unwrap().awaiting();
            let open = inlet.open_streams(Limit::Policy).unwrap();
            for origin in &open {
                inlet.publish_lost(&open_end(origin.number), None, Limit::Policy).unwrap();
            }
            assert!(inlet.open_streams(Limit::Policy).unwrap().is_empty());
            let all = received(&mut subscriber);
            let expected = [vec![], vec![Ok(0), Err(1)], vec![Ok(0), Err(1), Ok(2), Err(3)]];
            let what = format!("died at {:?}: {all:?}, open {open:?}", reached.last());
            assert!(expected.contains(&all), "{what}");
            inlet.publish_lost(&open_end(3), None, Limit::Policy).unwrap();
            if has_lived {
                assert_eq!(inlet.duplicates(), 1);
                break;
            }
        }
        for point in [CrashPoint::MidMark, CrashPoint::AfterMark, CrashPoint::BeforeMark] {
            assert!(seen.contains(&point), "{point:?} is not on its way");
        }
    }

    /// The source was restored from a backup: it has forgotten its last session, and uses the numbers from 2 on again. An inlet
    /// goes back, and dies at each step of that in turn. Another one then does the same.
    #[test]
    fn a_stream_goes_back_once_wherever_its_inlet_died() {
        let mut seen = Vec::new();
        for step in 1.. {
            let root = TempDir::new();
            let (bus, doomed, mut subscriber) = mortal(&root);
            let message = |inlet: &Inlet, number| {
                let (topic, origin) = (inlet.topic("a").unwrap(), Some(origin(1, number)));
                inlet.publish(&[Entry { origin, ..Entry::new(&topic, &[]) }], Limit::Policy)
            };
            let before = bus.inlet().unwrap().awaiting();
            before.begin_session(stream(1), 7, None, Limit::Policy).unwrap();
            (0..5).for_each(|number| message(&before, number).unwrap());
            assert_eq!(before.claim(stream(1), Limit::Policy).unwrap().session, 7);
            drop(before);
            let bring = |bus: &Bus| {
                let inlet = bus.inlet().unwrap().awaiting();
                let Arrived { next, session, .. } = inlet.claim(stream(1), Limit::Policy).unwrap();
                if session == 7 {
                    inlet.publish_lost(&open_end(next), None, Limit::Policy).unwrap();
                    inlet.begin_session(stream(1), 8, Some(2), Limit::Policy).unwrap();
                }
                (2..6).for_each(|number| message(&inlet, number).unwrap());
                inlet
            };
            let dies = move |reached: &[CrashPoint]| reached.len() == step;
            let (reached, lived) = rehearsal::act(dies, || bring(&doomed));
            seen.extend(reached.last());
            let has_lived = lived.is_some();
            rehearsal::bury((lived, doomed));

            let inlet = bring(&bus);
            let arrived = Arrived { next: 6, highest: 6, session: 8, taken_over: false };
            assert_eq!(inlet.claim(stream(1), Limit::Policy).unwrap(), arrived);
            // Another way notices the same later.
            inlet.begin_session(stream(1), 8, Some(2), Limit::Policy).unwrap();
            message(&inlet, 5).unwrap();
            let old = (0..5).map(Ok).chain([Err(5)]);
            let expected: Vec<_> = old.chain((2..6).map(Ok)).collect();
            assert_eq!(received(&mut subscriber), expected, "died at {:?}", reached.last());
            if has_lived {
                break;
            }
        }
        for point in [CrashPoint::MidRewind, CrashPoint::AfterRewind, CrashPoint::AfterMark] {
            assert!(seen.contains(&point), "{point:?} is not on its way");
        }
    }

    #[test]
    fn what_is_told_unlisted_is_told_each_time_and_takes_no_entry() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).max_arrivals(0);
        let bus = config.open("b").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        let inlet = bus.inlet().unwrap();
        let refused = inlet.publish_lost(&open_end(1), None, Limit::Policy).unwrap_err();
        assert!(matches!(refused, PublishError::TooManyArrivals { limit: 0 }), "{refused}");
        for _ in 0..2 {
            inlet.publish_lost_unlisted(&open_end(1), Limit::Policy).unwrap();
            assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lost(_))));
        }
        assert_eq!(inlet.duplicates(), 0);
        let invalid = Lost { scope: vec![], ..open_end(1) };
        let refused = inlet.publish_lost_unlisted(&invalid, Limit::Policy).unwrap_err();
        assert!(matches!(refused, PublishError::LostScope { patterns: 0 }), "{refused}");
    }

    /// The table has room for one stream. No inlet brings it any more, and nothing of it came for a minute.
    #[test]
    fn a_full_table_tells_of_a_stream_before_it_forgets_it() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).max_arrivals(1);
        let bus = config.open("b").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        let inlet = bus.inlet().unwrap();
        let topic = inlet.topic("a").unwrap();
        let message = |stream, number| {
            let origin = Some(origin(stream, number));
            inlet.publish(&[Entry { origin, ..Entry::new(&topic, &[]) }], Limit::Policy)
        };
        let age = || {
            for entry in arrivals_of(&inlet.publishing.participant.ring).entries {
                entry.reached_ns.store(0, Ordering::Relaxed);
            }
        };
        // What is only claimed takes no place.
        (5..9).for_each(|it| _ = inlet.claim(stream(it), Limit::Policy).unwrap());
        message(0, 4).unwrap();
        age();
        let refused = message(1, 7).unwrap_err().source;
        assert!(matches!(refused, PublishError::TooManyArrivals { limit: 1 }), "it is brought");
        inlet.release(stream(0), false, Limit::Policy).unwrap();
        message(1, 7).unwrap();
        assert_eq!(received(&mut subscriber), [Ok(4), Err(5), Ok(7)]);
        // Of this one, nothing can be missing.
        inlet.release(stream(1), true, Limit::Policy).unwrap();
        age();
        message(0, 9).unwrap();
        assert_eq!(received(&mut subscriber), [Ok(9)]);
        inlet.release(stream(0), false, Limit::Policy).unwrap();
        age();
        inlet.advance(origin(3, 1), Limit::Policy).unwrap();
        assert_eq!(received(&mut subscriber), [Err(10)]);
    }

    #[test]
    fn a_stream_that_advances_without_messages_is_continued_there() {
        let root = TempDir::new();
        let bus = BusConfig::new().directory(root.path()).open("b").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        let inlet = bus.inlet().unwrap();
        inlet.advance(origin(1, 7), Limit::Policy).unwrap();
        inlet.advance(origin(1, 5), Limit::Policy).unwrap();
        let error = inlet.advance(origin(1, Origin::NUMBER_LIMIT + 1), Limit::Policy).unwrap_err();
        assert!(matches!(error, PublishError::OriginNumber { .. }), "{error}");
        let second = bus.inlet().unwrap();
        assert!(matches!(
            second.advance(origin(1, 8), Limit::Policy),
            Err(PublishError::Taken { .. })
        ));
        drop(inlet);
        assert_eq!(
            second.claim(stream(1), Limit::Policy).unwrap(),
            Arrived { next: 7, highest: 7, session: 0, taken_over: true }
        );
        assert!(subscriber.try_receive().unwrap().is_none());
        assert_eq!(bus.stats().unwrap().sequence, 0);
        bring_by(&second, 3..9).unwrap();
        assert_eq!(second.duplicates(), 2, "3 and 5 are of the stream");
    }

    /// Does something once, when the inlet has come to this point.
    fn at(point: CrashPoint, deed: impl Fn() + 'static) -> impl Fn(&[CrashPoint]) -> bool {
        move |reached| {
            if reached.last() == Some(&point)
                && reached.iter().filter(|other| **other == point).count() == 1
            {
                deed();
            }
            false
        }
    }

    #[test]
    fn an_inlet_whose_lock_was_taken_over_stops_before_the_next_message() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let (bus, other) = (config.open("b").unwrap(), config.open("b").unwrap());
        let successor = other.publishing().unwrap();
        let lock = || &successor.participant.ring.control().commit.0.lock;
        successor.participant.keep_lock(LockAttempt::Try).unwrap();
        let word = lock().load(Ordering::Relaxed);
        successor.participant.give_up_lock();
        let seized = other.clone();
        let seize = at(CrashPoint::AfterMark, move || {
            let publishing = seized.publishing().unwrap();
            publishing.participant.ring.control().commit.0.lock.store(word, Ordering::Relaxed);
        });
        let error = rehearsal::act(seize, || bring(&bus, 0..3)).1.unwrap().unwrap_err();
        assert!(matches!(error.source, PublishError::LeaseLost), "{error}");
        assert_eq!((error.published, bus.stats().unwrap().sequence), (1, 1));
        assert_eq!(lock().load(Ordering::Relaxed), word, "it gives back no lock of another");
    }

    /// It waits for free space. Meanwhile it counts as dead, and another one brings everything.
    #[test]
    fn an_inlet_that_was_taken_over_while_it_waited_publishes_nothing_twice() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let config = config.policy(Policy::Wait { limit: None });
        let (bus, other) = (config.open("b").unwrap(), config.open("b").unwrap());
        // Another thread makes it: this one would wait for itself.
        let subscribe = || config.open("b").unwrap().subscribe("**").unwrap();
        let subscriber = std::thread::scope(|scope| scope.spawn(subscribe).join().unwrap());
        let subscriber = Arc::new(Mutex::new(subscriber));
        let origins = Arc::new(Mutex::new(Vec::new()));
        let receive = {
            let (subscriber, origins) = (subscriber.clone(), origins.clone());
            move || {
                let mut subscriber = subscriber.lock().unwrap();
                while let Some(message) = subscriber.try_receive().unwrap() {
                    origins.lock().unwrap().push(message.origin().unwrap());
                }
            }
        };
        let inlet = bus.inlet().unwrap();
        let waiting = inlet.publishing.clone();
        let take_over = at(CrashPoint::WaitingForSpace, {
            let receive = receive.clone();
            move || {
                // As if another participant had claimed its slot.
                waiting.participant.claim.slot().generation.fetch_add(1, Ordering::Release);
                let bring = || {
                    receive();
                    let successor = other.inlet().unwrap();
                    for number in 0..80 {
                        bring_by(&successor, number..number + 1).unwrap();
                        receive();
                    }
                };
                std::thread::scope(|scope| scope.spawn(bring).join().unwrap());
            }
        });
        let brought = rehearsal::act(take_over, || bring_by(&inlet, 0..80)).1.unwrap();
        receive();
        let expected: Vec<_> =
            (0..80).map(|number| origin(u16::from(number % 2 == 0), number)).collect();
        assert_eq!(*origins.lock().unwrap(), expected);
        // The other one has left, so this one takes over again, and finds that everything has arrived.
        brought.unwrap();
        assert!(inlet.duplicates() > 20);
        assert_eq!(
            inlet.claim(stream(0), Limit::Policy).unwrap(),
            Arrived { next: 80, highest: 80, session: 0, taken_over: false }
        );
    }

    #[test]
    fn a_topic_that_outlives_its_inlet_does_not_keep_the_series() {
        let root = TempDir::new();
        let bus = BusConfig::new().directory(root.path()).open("b").unwrap();
        let first = bus.inlet().unwrap();
        let topic = first.topic("a").unwrap();
        first.advance(origin(0, 1), Limit::Policy).unwrap();
        drop(first);
        let second = bus.inlet().unwrap();
        assert!(second.claim(stream(0), Limit::Policy).unwrap().taken_over);
        let error = second.publish(&[Entry::new(&topic, &[])], Limit::Policy).unwrap_err();
        assert!(matches!(error.source, PublishError::ForeignTopic));
    }

    /// An inlet dies before its commit. Another publisher recovers, and writes its own record at the position of the note.
    /// What the inlet did not publish must still come.
    #[test]
    fn a_publisher_that_recovers_does_not_believe_a_mark_before_its_commit() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let (bus, doomed) = (config.open("b").unwrap(), config.open("b").unwrap());
        let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::ArrivalPending);
        let (_, lived) = rehearsal::act(dies, || bring(&doomed, 0..1));
        assert!(lived.is_none());
        rehearsal::bury((lived, doomed));
        bus.publisher("b").unwrap().publish(b"recovers").unwrap();
        assert_eq!(bus.inlet().unwrap().claim(stream(1), Limit::Policy).unwrap().next, 0);
    }
}
