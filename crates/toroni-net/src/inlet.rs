//! Inlet: from streams to a bus.
//!
//! ```text
//!   receivers ──► message ──► staged, with others of this turn ──► one call of the bus
//!             ──► loss    ──► staged at its place              ──► the bus
//! ```
//!
//! Messages lie in receive buffers only while they are handed over, so they are copied to a stage first: one call then
//! publishes all of a turn, with one lock and one wake-up. A long message is published from the receive buffers.
//!
//! An inlet never waits for a slow subscriber. If the ring has no room, messages wait in the stage and in the receive
//! buffers (`stage.rs`), and the window that STATUS states closes.
//!
//! The bus remembers how far each stream has arrived. A message that has been there is dropped by the bus, whichever way
//! it comes, and whichever process has brought it.

mod history;
mod stage;
mod ways;

pub(crate) use self::ways::Ways;

use self::stage::{Attempt, Item, LONG_BYTES, Lane, Patience, STAGE_BYTES, Staged};
use crate::losses::Losses;
use crate::now::now;
use crate::times::{self, Committed};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;
use toroni::{InletTopic, Lost, LostBound, Origin, Pattern, PublishError, PublisherError, Topic};
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::budget::{Budget, Exceeded, Limits};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Session, Source, Stream};
use toroni_proto::reassembly::{Bound, Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::time::{Monotonic, Wall};
use toroni_proto::wire::{
    Address, LostReason, MAX_PATTERNS, Policy, SessionInfo, Start, TableName, TopicNumber,
};

/// How many names of topics an inlet knows, of all sources together. Messages on others are reported as lost.
const MAX_NAMES: usize = 1 << 18;

/// What an inlet brings to its bus.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Topics that are accepted, as they are on the stream.
    pub accept: Vec<Pattern>,
    /// Segments that are prepended to each topic, without a slash at the end; or nothing.
    pub prefix: String,
    /// The order in which the receivers deliver.
    pub order: Order,
}

/// Why an inlet cannot go on.
#[derive(Debug, Error)]
pub enum InletError {
    /// The bus refuses to publish.
    #[error("cannot publish what comes from the network: {0}")]
    Publish(#[from] PublishError),
    /// The bus refuses a topic.
    #[error("cannot publish what comes from the network: {0}")]
    Topic(#[from] PublisherError),
}

/// What an inlet has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that the bus took, or knew already.
    pub messages: u64,
    /// Messages that `accept` leaves out.
    pub filtered: u64,
    /// Losses that were reported.
    pub losses: u64,
    /// Messages that were reported as lost, as far as their number is known.
    pub lost: u64,
    /// Messages that are too long for the bus. They were reported as lost.
    pub too_long: u64,
    /// Messages whose topic, with its prefix, cannot be one of the bus. They were reported as lost.
    pub no_topic: u64,
    /// Messages and losses that the bus refused: another inlet brings their series, or its table of arrivals is full.
    pub refused: u64,
    /// How often the ring had no room when it was asked.
    pub full: u64,
}

impl Counters {
    /// Returns the sums of these and those of another inlet.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            filtered: self.filtered.saturating_add(other.filtered),
            losses: self.losses.saturating_add(other.losses),
            lost: self.lost.saturating_add(other.lost),
            too_long: self.too_long.saturating_add(other.too_long),
            no_topic: self.no_topic.saturating_add(other.no_topic),
            refused: self.refused.saturating_add(other.refused),
            full: self.full.saturating_add(other.full),
        }
    }
}

/// A topic of a stream.
enum Name {
    Unknown,
    Accepted(InletTopic),
    /// `accept` takes only topics below it, so what is posted to its descendants as well.
    Above(InletTopic),
    /// `accept` leaves it out, or it is a pattern.
    Filtered,
    /// It is no topic of this bus.
    Invalid,
}

/// Whether the sender of a stream waits for its receivers: the place of its lane.
const HASTY: usize = 0;
const PATIENT: usize = 1;

/// What is known of a stream.
struct Known {
    stream: (Source, Stream),
    session: Session,
    lane: usize,
    names: Vec<Name>,
    /// How many patterns the stream has; what is known of them.
    patterns: u8,
    scope: Vec<Option<Pattern>>,
    /// Where the series continues: of messages that arrive in any order, all below have arrived.
    open_from: u64,
}

impl Known {
    fn new(flow: Flow, lane: usize, patterns: u8, open_from: u64) -> Self {
        let patterns = patterns.min(MAX_PATTERNS);
        let scope = vec![None; usize::from(patterns)];
        let (stream, session) = ((flow.source, flow.stream), flow.session);
        Self { stream, session, lane, names: Vec::new(), patterns, scope, open_from }
    }
}

/// Brings what arrives from all sources to a bus. It is the [`Inbox`] of a realm's arrivals.
pub struct Inlet {
    bus: Arc<toroni::Inlet>,
    selection: Selection,
    /// What arrives was selected where it comes from: the counts of losses are those of the selection.
    is_selected: bool,
    /// By which way it comes, among others that may bring the same stream.
    way: (usize, Ways),
    /// Streams that another way brings otherwise, for the log.
    aside: Vec<(Source, Stream)>,
    /// The names of the nodes whose streams are taken. Empty: all.
    sources: Vec<String>,
    /// Which subscribers learn of losses, if not those of the streams' patterns.
    lost_scope: Option<Vec<Pattern>>,
    /// The place of each stream in `known`.
    streams: HashMap<(Source, Stream), usize>,
    /// The same for streams whose history is being brought beside them.
    histories: HashMap<(Source, Stream), usize>,
    /// All streams, also those of earlier sessions of which something is staged.
    known: Vec<Known>,
    /// Places in `known` that are free, and those that are once nothing is staged.
    free: Vec<usize>,
    retired: Vec<usize>,
    /// The stream that was looked up last: most messages are of the same one as those before them.
    latest: Option<usize>,
    /// A stream whose sender waits for its receivers, as its SESSION has just said.
    slowest: Option<(Source, Stream)>,
    /// How many names `known` holds.
    names: usize,
    lanes: [Lane; 2],
    counters: Counters,
    losses: Losses,
    times: Committed,
    /// When the first of those that are staged was delivered.
    staged_at: Option<Monotonic>,
    /// The last refusal, for the log.
    refusal: Option<PublishError>,
    failed: Option<InletError>,
}

impl Inlet {
    /// Makes an inlet of this one, which several may share: a stream that comes by two ways is then brought once, and
    /// different settings may hold for different streams of one source.
    #[must_use]
    pub fn new(bus: impl Into<Arc<toroni::Inlet>>, selection: Selection) -> Self {
        let bus = bus.into();
        let policy = bus.policy();
        Self {
            lanes: [Patience::hasty(policy), Patience::of_bus(policy)].map(Lane::new),
            bus,
            selection,
            is_selected: false,
            way: (0, Ways::default()),
            aside: Vec::new(),
            sources: Vec::new(),
            lost_scope: None,
            streams: HashMap::new(),
            histories: HashMap::new(),
            known: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            latest: None,
            slowest: None,
            names: 0,
            counters: Counters::default(),
            losses: Losses::default(),
            times: Committed::default(),
            staged_at: None,
            refusal: None,
            failed: None,
        }
    }

    /// Says that sources send only what `accept` matches, and count only that as lost.
    #[must_use]
    pub fn selected_by_the_source(self) -> Self {
        Self { is_selected: true, ..self }
    }

    /// Says by which way it brings what it brings. The number differs from those of the other ways.
    #[must_use]
    pub(crate) fn by_way(self, way: usize, ways: &Ways) -> Self {
        Self { way: (way, ways.clone()), ..self }
    }

    /// Takes a stream that it does not bring, because another way brings it with other topics, another prefix or in
    /// another order.
    pub(crate) fn aside(&mut self) -> Option<(Source, Stream)> {
        self.aside.pop()
    }

    /// Takes only what nodes of these names send. With none, it takes what all send.
    #[must_use]
    pub fn with_sources(self, sources: Vec<String>) -> Self {
        Self { sources, ..self }
    }

    /// Reports losses to the subscribers of these topics of the bus, at most 16, instead of those of the streams' patterns.
    #[must_use]
    pub fn with_lost_scope(self, lost_scope: Option<Vec<Pattern>>) -> Self {
        Self { lost_scope, ..self }
    }

    /// Publishes what is staged, as far as the ring has room. Call it at the end of each turn, before the process waits.
    /// `marks` are those of the
    /// arrivals; they matter only if messages arrive in any order.
    ///
    /// # Errors
    /// If the bus cannot be written: see [`PublishError`]. What concerns a single message or source is no error; it is
    /// counted, and [`Self::refusal`] says why.
    pub fn publish(
        &mut self,
        marks: impl Iterator<Item = (Source, Stream, Mark)>,
    ) -> Result<(), InletError> {
        self.publish_staged();
        if self.selection.order == Order::Arrival {
            for (source, stream, mark) in marks {
                if let Some(at) = self.streams.get(&(source, stream)) {
                    self.known[*at].open_from = mark.next.get();
                }
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns whether the ring had no room for something. Then [`Self::publish`] must be called again at
    /// [`Self::next_attempt`], and what waits in receive buffers is delivered once this returns `false`.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.has_room())
    }

    /// Returns when to call [`Self::publish`] again, if something waits for room.
    #[must_use]
    pub fn next_attempt(&self) -> Option<Monotonic> {
        self.lanes.iter().filter_map(Lane::due).min()
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns what it has reported as lost.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    pub(crate) const fn losses_mut(&mut self) -> &mut Losses {
        &mut self.losses
    }

    /// Returns how long messages took from the delivery, and in all, until they were in the ring.
    #[must_use]
    pub const fn times(&self) -> [&Budget; 2] {
        [&self.times.ring, &self.times.total]
    }

    /// Sets how long that may take.
    pub fn set_limits(&mut self, limits: &Limits) {
        times::set_limits(self.times.budgets_mut(), limits);
    }

    /// Returns what took longer than that, at most once in 10 s for each part.
    pub fn exceeded(&mut self, now: Monotonic) -> Option<Exceeded> {
        times::exceeded(self.times.budgets_mut(), now)
    }

    /// Takes why the bus has refused something since the last call.
    pub fn refusal(&mut self) -> Option<PublishError> {
        self.refusal.take()
    }

    /// Returns the inlet of the bus.
    #[must_use]
    pub fn bus(&self) -> &toroni::Inlet {
        &self.bus
    }

    /// Publishes all that is staged and finds room. If the bus refuses something, what follows is published nevertheless.
    fn publish_staged(&mut self) {
        for lane in [HASTY, PATIENT] {
            self.publish_lane(lane);
        }
        if self.lanes.iter().all(Lane::is_empty) {
            self.staged_at = None;
            for at in std::mem::take(&mut self.retired) {
                self.forget(at);
            }
        }
    }

    fn publish_lane(&mut self, lane: usize) {
        while !self.lanes[lane].is_empty()
            && self.lanes[lane].due().is_none_or(|due| due <= now().monotonic)
        {
            let Self { lanes, known, bus, losses, times, staged_at, .. } = self;
            let topic = |staged: &Staged| topic_of(known, staged);
            let mut clock = None;
            let committed = |staged: &Staged| match &staged.item {
                Item::Loss(lost) => losses.note(lost),
                Item::Message { .. } => {
                    let at = *clock.get_or_insert_with(now);
                    let waited_ns = staged_at.map_or(0, |since| at.monotonic.since(since));
                    let (source, stream) = known[staged.stream].stream;
                    let place = (source, stream, staged.origin.number);
                    times.record(place, waited_ns, at.wall, staged.began);
                }
            };
            let (attempt, taken) = lanes[lane].publish(bus, || now().monotonic, topic, committed);
            self.counters.messages += taken.messages;
            self.counters.losses += taken.losses;
            self.counters.lost = self.counters.lost.saturating_add(taken.lost);
            match attempt {
                Attempt::Done => return,
                Attempt::Full => {
                    self.counters.full += 1;
                    return;
                }
                Attempt::Failed(error) => {
                    self.failed = Some(error.into());
                    return;
                }
                Attempt::Refused(error) => {
                    let refused = self.lanes[lane].first();
                    let refused =
                        refused.map(|first| (first.stream, first.origin, first.open_from));
                    let loss = refused.and_then(|first| self.refused(first, error));
                    self.lanes[lane].replace_first(loss);
                }
            }
        }
    }

    /// Counts what the bus refused. Returns the loss in its place, if the bus takes that.
    fn refused(
        &mut self,
        (stream, origin, open_from): (usize, Origin, Option<u64>),
        error: PublishError,
    ) -> Option<Staged> {
        if matches!(error, PublishError::TooLong { .. }) {
            self.counters.too_long += 1;
            return self.one_lost(stream, origin, open_from, toroni::LostReason::TooLong);
        }
        self.counters.refused += 1;
        self.refusal = Some(error);
        None
    }

    /// Returns the loss of one message.
    fn one_lost(
        &mut self,
        stream: usize,
        origin: Origin,
        open_from: Option<u64>,
        reason: toroni::LostReason,
    ) -> Option<Staged> {
        let (messages, bound, until) = (1, LostBound::Exact, origin.number + 1);
        let scope = self.scope_of(Some(stream));
        let lost = Lost { from: origin, until, messages, bound, reason, scope };
        self.loss_of(stream, lost, open_from)
    }

    /// Returns a loss to stage, unless `accept` leaves out everything that it may be about.
    fn loss_of(&mut self, stream: usize, lost: Lost, open_from: Option<u64>) -> Option<Staged> {
        if lost.scope.is_empty() {
            self.counters.filtered = self.counters.filtered.saturating_add(lost.messages);
            return None;
        }
        let origin = lost.from;
        let item = Item::Loss(Box::new(lost));
        Some(Staged { stream, origin, open_from, began: None, item })
    }

    fn stage(&mut self, lane: usize, staged: Option<Staged>) {
        if let Some(staged) = staged {
            self.lanes[lane].push(staged);
        }
    }

    /// Returns the place of a flow's stream.
    fn place_of(&mut self, flow: Flow) -> Option<usize> {
        let stream = (flow.source, flow.stream);
        let at = match self.latest {
            Some(at) if self.known[at].stream == stream => at,
            _ => *self.streams.get(&stream)?,
        };
        self.latest = Some(at);
        Some(at)
    }

    /// Enters a stream, in the place of an earlier session. Returns its place.
    fn enter(&mut self, known: Known) -> usize {
        let stream = known.stream;
        let at = self.add(known);
        self.latest = None;
        if let Some(before) = self.streams.insert(stream, at) {
            // What is staged refers to the names of the session before.
            self.retired.push(before);
        }
        at
    }

    /// Puts this where there is room.
    fn add(&mut self, known: Known) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.known[at] = known;
                at
            }
            None => {
                self.known.push(known);
                self.known.len() - 1
            }
        }
    }

    /// Frees the place of a stream.
    fn forget(&mut self, at: usize) {
        let names = std::mem::take(&mut self.known[at].names);
        self.names -= names.len();
        self.free.push(at);
    }

    /// Returns patterns of all topics that may be missing: the first segments of the stream's patterns, because a post to
    /// descendants may be among them, as far as they are accepted.
    fn scope_of(&self, stream: Option<usize>) -> Vec<Pattern> {
        if let Some(scope) = &self.lost_scope {
            return scope.clone();
        }
        let known = stream.and_then(|at| self.known.get(at));
        let patterns: Option<Vec<Pattern>> = known
            .filter(|known| known.patterns > 0)
            .and_then(|known| known.scope.iter().cloned().collect());
        let everything = || vec![Pattern::everything()];
        let mut scope: Vec<Pattern> = Vec::new();
        for pattern in patterns.unwrap_or_else(everything) {
            let wide = self.widened(&pattern);
            let is_new = scope.iter().all(|other| other.as_str() != wide.as_str());
            let below = Pattern::new(&format!("{pattern}/**")).unwrap_or_else(|_| pattern.clone());
            let is_accepted = self.selection.accept.iter().any(|it| it.intersects(&below));
            if is_new && is_accepted {
                scope.push(wide);
            }
        }
        scope
    }

    fn widened(&self, pattern: &Pattern) -> Pattern {
        let prefix = &self.selection.prefix;
        let first = if prefix.is_empty() { pattern.as_str() } else { prefix };
        let first = first.split('/').next().unwrap_or_default();
        let wide = if first.contains('*') { "**".to_owned() } else { format!("{first}/**") };
        Pattern::new(&wide).unwrap_or_else(|_| Pattern::everything())
    }

    /// Returns the lowest number of a stream that may still be missing, if messages arrive in any order.
    fn open_from(&self, stream: usize) -> Option<u64> {
        if self.selection.order == Order::Source {
            return None;
        }
        self.known.get(stream).map(|known| known.open_from)
    }

    /// Returns what a name of a stream is on this bus.
    fn resolve(&mut self, name: TableName<'_>) -> Name {
        if name.has_wildcard() {
            return Name::Filtered;
        }
        let text = name.as_str();
        let accept = &self.selection.accept;
        let is_accepted = self.is_selected || accept.iter().any(|it| it.matches(text));
        if !is_accepted && !accept.iter().any(|it| it.matches_descendants(text)) {
            return Name::Filtered;
        }
        let prefix = &self.selection.prefix;
        let topic = if prefix.is_empty() { text.to_owned() } else { format!("{prefix}/{text}") };
        if Topic::new(&topic).is_err() {
            return Name::Invalid;
        }
        match self.bus.topic(&topic) {
            Ok(topic) if is_accepted => Name::Accepted(topic),
            Ok(topic) => Name::Above(topic),
            Err(error) => {
                self.failed = Some(error.into());
                Name::Unknown
            }
        }
    }

    /// Stages a message of the stream at this place.
    fn message_at(&mut self, stream: usize, flow: Flow, message: Message<'_>) {
        let start = message.start;
        let origin = Origin {
            source: flow.source.0,
            series: flow.series.0,
            stream: flow.stream.0,
            number: start.number.get(),
        };
        let open_from = self.open_from(stream);
        let known = &self.known[stream];
        let lane = known.lane;
        let is_current = known.session == flow.session;
        let name = known.names.get(start.topic.get() as usize).filter(|_| is_current);
        match name {
            Some(Name::Accepted(_)) => {}
            Some(Name::Above(_)) if start.to_descendants => {}
            Some(Name::Filtered | Name::Above(_)) => {
                self.counters.filtered += 1;
                return;
            }
            Some(Name::Invalid | Name::Unknown) | None => {
                self.counters.no_topic += 1;
                let lost = self.one_lost(stream, origin, open_from, toroni::LostReason::Topic);
                return self.stage(lane, lost);
            }
        }
        let length = message.parts.length();
        if self.lanes[lane].length() + length > STAGE_BYTES {
            self.publish_lane(lane);
        }
        let began: Option<Wall> = start.published.or(message.sent);
        let staged = |from, to| {
            let published_ns = start.published.map(|time| time.ns());
            let Start { topic, to_descendants, .. } = start;
            let item = Item::Message { topic, from, to, to_descendants, published_ns };
            Staged { stream, origin, open_from, began, item }
        };
        let delivered = *self.staged_at.get_or_insert_with(|| now().monotonic);
        if length > LONG_BYTES && self.lanes[lane].is_empty() {
            let parts: Vec<&[u8]> = message.parts.clone().collect();
            let staged = staged(0, 0);
            let topic = topic_of(&self.known, &staged);
            let Some(entry) = topic.map(|topic| stage::entry(&staged, topic, &parts)) else {
                return;
            };
            match self.bus.try_publish(&[entry]) {
                Ok(()) => {
                    let at = now();
                    let place = (flow.source, flow.stream, origin.number);
                    self.times.record(place, at.monotonic.since(delivered), at.wall, began);
                    self.counters.messages += 1;
                    return;
                }
                // It is staged, and waits there.
                Err(error) if is_full(&error.source) => {}
                Err(error) if concerns_one(&error.source) => {
                    let lost = self.refused((stream, origin, open_from), error.source);
                    return self.stage(lane, lost);
                }
                Err(error) => {
                    self.failed = Some(error.source.into());
                    return;
                }
            }
        }
        let (from, to) = self.lanes[lane].append(message.parts);
        self.lanes[lane].push(staged(from, to));
    }

    /// Notes a name of the stream at this place.
    fn topic_at(&mut self, place: Option<usize>, number: TopicNumber, name: TableName<'_>) {
        let at = number.get() as usize;
        let resolved = self.resolve(name);
        let Some(place) = place else { return };
        let known = &mut self.known[place];
        if let Some(scope) = known.scope.get_mut(at) {
            *scope = Pattern::new(name.as_str()).ok();
        }
        let more = (at + 1).saturating_sub(known.names.len());
        if self.names + more > MAX_NAMES {
            return;
        }
        self.names += more;
        if more > 0 {
            known.names.resize_with(at + 1, || Name::Unknown);
        }
        known.names[at] = resolved;
    }
}

/// Whether an error says that something must wait: for a slow subscriber, which may be an outlet of the same thread, or for
/// another publisher.
fn is_full(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Full
            | PublishError::Busy
            | PublishError::Timeout
            | PublishError::WouldWaitForItself
    )
}

/// Whether an error says something about one message or one source, and not about the bus.
fn concerns_one(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::TooLong { .. }
            | PublishError::Taken { .. }
            | PublishError::TooManyArrivals { .. }
            | PublishError::OriginNumber { .. }
            | PublishError::LostNumbers { .. }
    )
}

/// Returns the topic of a staged message on the bus.
fn topic_of<'a>(known: &'a [Known], staged: &Staged) -> Option<&'a InletTopic> {
    let Item::Message { topic, .. } = &staged.item else { return None };
    match known.get(staged.stream)?.names.get(topic.get() as usize)? {
        Name::Accepted(topic) | Name::Above(topic) => Some(topic),
        _ => None,
    }
}

impl Inbox for Inlet {
    fn wants(&mut self, flow: Flow, _: Address, session: &SessionInfo<'_>) -> bool {
        let waits = session.policy == Policy::Slowest;
        self.slowest = waits.then_some((flow.source, flow.stream));
        let name = session.name.as_str();
        self.sources.is_empty() || self.sources.iter().any(|source| source == name)
    }

    #[inline]
    fn has_room(&mut self, flow: Flow) -> bool {
        // The usual case first.
        if self.lanes.iter().all(Lane::has_room) {
            return true;
        }
        self.place_of(flow).is_none_or(|at| self.lanes[self.known[at].lane].has_room())
    }

    fn begins(&mut self, flow: Flow, patterns: u8) -> Option<Mark> {
        let stream = (flow.source, flow.stream);
        let (way, ways) = &self.way;
        if !ways.may_bring(*way, stream, &self.selection) {
            self.aside.push(stream);
            self.latest = None;
            self.retired.extend(self.streams.remove(&stream));
            return None;
        }
        let claimed = self.bus.claim(flow.source.0, flow.series.0, flow.stream.0);
        let next = match claimed {
            Ok(arrived) => arrived.next,
            Err(error) if concerns_one(&error) => {
                self.refusal = Some(error);
                0
            }
            Err(error) => {
                self.failed = Some(error.into());
                0
            }
        };
        let lane = if self.slowest.take() == Some(stream) { PATIENT } else { HASTY };
        self.enter(Known::new(flow, lane, patterns, next));
        // The bus has nothing of a series that is new to it: the stream is joined where it is.
        let (session, series) = (flow.session, flow.series);
        Number::new(next).filter(|_| next > 0).map(|next| Mark { session, series, next })
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        if let Some(stream) = self.place_of(flow) {
            self.message_at(stream, flow, message);
        }
    }

    fn forgets(&mut self, source: Source, stream: Stream) {
        self.latest = None;
        self.retired.extend(self.streams.remove(&(source, stream)));
        let (way, ways) = &self.way;
        ways.forget(*way, (source, stream));
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let place = self.place_of(flow);
        self.topic_at(place, number, name);
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        // Else another way brings it.
        let Some(stream) = self.place_of(flow) else { return };
        let is_narrowed =
            !self.is_selected && !self.selection.accept.iter().any(|it| it.as_str() == "**");
        let mut lost = lost_of(flow, &loss, self.scope_of(Some(stream)));
        if is_narrowed && lost.bound == LostBound::Exact {
            // Some of them may have had topics that are not accepted.
            lost.bound = LostBound::AtMost;
        }
        let open_from = self.open_from(stream);
        let (lane, lost) = (self.known[stream].lane, self.loss_of(stream, lost, open_from));
        self.stage(lane, lost);
    }
}

/// Returns a loss of a stream in the words of the bus.
#[must_use]
pub fn lost_of(flow: Flow, loss: &Loss, scope: Vec<Pattern>) -> Lost {
    // Without numbers it stands where the stream is.
    let number = loss.after.map_or_else(
        || loss.until.map_or(0, |until| until.get().saturating_sub(loss.count)),
        |after| after.get() + 1,
    );
    let until = loss.until.map_or(number, |until| until.get().max(number));
    let (source, series, stream) = (flow.source.0, flow.series.0, flow.stream.0);
    let from = Origin { source, series, stream, number };
    let bound = match loss.bound_for_subscribers() {
        Bound::Exact => LostBound::Exact,
        Bound::AtMost => LostBound::AtMost,
        Bound::AtLeast => LostBound::AtLeast,
    };
    Lost { from, until, messages: loss.count, bound, reason: reason_of(loss.reason), scope }
}

/// Returns the same reason in the words of the bus.
fn reason_of(reason: LostReason) -> toroni::LostReason {
    match reason {
        LostReason::Gone => toroni::LostReason::Gone,
        LostReason::Budget => toroni::LostReason::Budget,
        LostReason::Memory => toroni::LostReason::Memory,
        LostReason::Burst => toroni::LostReason::Burst,
        LostReason::Jump => toroni::LostReason::Jump,
        LostReason::Restart => toroni::LostReason::Restart,
        LostReason::Silent => toroni::LostReason::Silent,
        LostReason::Topic => toroni::LostReason::Topic,
        LostReason::TooLong => toroni::LostReason::TooLong,
        LostReason::Overtaken => toroni::LostReason::Overtaken,
        LostReason::Diverged => toroni::LostReason::Diverged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::id::Series;

    #[test]
    fn names_of_streams_that_are_gone_are_freed() {
        let directory = toroni_testkit::Directory::new();
        let bus = toroni::BusConfig::new().directory(directory.path()).open("bus").unwrap();
        let (accept, prefix) = (vec![Pattern::everything()], String::new());
        let selection = Selection { accept, prefix, order: Order::Source };
        let mut inlet = Inlet::new(bus.inlet().unwrap(), selection);
        for source in (1..=5).map(Source) {
            let (session, stream, series) = (Session(1), Stream(1), Series(1));
            let flow = Flow { source, session, stream, series };
            inlet.begins(flow, 1);
            inlet.topic(flow, TopicNumber::new(0).unwrap(), TableName::new("plant").unwrap());
            assert_eq!(inlet.names, 1);
            inlet.forgets(source, stream);
            inlet.publish(std::iter::empty()).unwrap();
        }
        assert_eq!((inlet.names, inlet.known.len(), inlet.streams.len()), (0, 1, 0));
        assert_eq!(inlet.way.1.count(), 0);
    }
}
