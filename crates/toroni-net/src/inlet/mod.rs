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
mod known;
mod loss;
mod messages;
mod names;
mod publishing;
mod stage;
mod ways;

pub use self::loss::lost_of;
pub(crate) use self::ways::Ways;

use self::known::Known;
use self::publishing::concerns_one;
use self::stage::{Lane, Patience, Staged};
use crate::losses::Losses;
use crate::now::now;
use crate::times::{self, Committed};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;
use toroni::{Limit, LostBound, Pattern, PublishError, PublisherError, StreamKey};
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::budget::{Budget, Exceeded, Limits};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Source, Stream};
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::{Address, Policy, SessionInfo, TableName, TopicNumber};

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
    /// Messages and losses that were published when the wait for slow subscribers was over: these may have missed others.
    pub overwriting: u64,
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
            overwriting: self.overwriting.saturating_add(other.overwriting),
        }
    }
}

/// Whether the sender of a stream waits for its receivers: the place of its lane.
const HASTY: usize = 0;
const PATIENT: usize = 1;

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
    /// Memory for the parts of a long message.
    parts: Vec<&'static [u8]>,
    counters: Counters,
    losses: Losses,
    times: Committed,
    /// When the first of this turn was delivered.
    delivered_at: Option<Monotonic>,
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
            parts: Vec::new(),
            counters: Counters::default(),
            losses: Losses::default(),
            times: Committed::default(),
            delivered_at: None,
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

    /// Returns how many bytes of messages wait for room in the ring, and when the oldest of what waits was delivered.
    #[must_use]
    pub fn staged(&self) -> (u64, Option<Monotonic>) {
        let bytes = self.lanes.iter().map(Lane::waiting_bytes).sum();
        let first = |lane: &Lane| lane.first().map(|it| it.since);
        (bytes, self.lanes.iter().filter_map(first).min())
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

    /// Returns when the first of this turn was delivered.
    fn delivered(&mut self) -> Monotonic {
        *self.delivered_at.get_or_insert_with(|| now().monotonic)
    }

    fn stage(&mut self, lane: usize, staged: Option<Staged>) {
        if let Some(staged) = staged {
            self.lanes[lane].push(staged);
        }
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
        let Flow { source, series, stream: Stream(number), .. } = flow;
        let key = StreamKey { source: source.0, series: series.0, stream: number };
        let claimed = self.bus.claim(key, Limit::Policy);
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

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::id::{Series, Session};

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
