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

mod awaited;
mod history;
mod known;
mod loss;
mod messages;
mod names;
mod publishing;
mod retaining;
mod stage;
mod ways;

pub(crate) use self::awaited::Awaited;
pub use self::loss::lost_of;
pub use self::retaining::Unretained;
pub(crate) use self::ways::Ways;

use self::known::Known;
use self::loss::origin_of;
use self::retaining::Retaining;
use self::stage::{Item, Lane, Patience, Staged};
use crate::hook::mutant;
use crate::losses::Losses;
use crate::now::now;
use crate::times::{self, Committed};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;
use toroni::{
    Arrived, Limit, LostBound, LostReason, Origin, Pattern, PublishError, PublisherError,
};
use toroni_proto::arrivals::{Flow, Inbox, Opening};
use toroni_proto::budget::{Budget, Exceeded, Limits};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Session, Source, Stream};
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::{End, Mark};
use toroni_proto::time::{Monotonic, SECOND};
use toroni_proto::wire::{self, Address, Policy, SessionInfo, TableName, TopicNumber};

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
    /// Topics that could not be retained.
    pub unretained: u64,
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
            unretained: self.unretained.saturating_add(other.unretained),
            full: self.full.saturating_add(other.full),
            overwriting: self.overwriting.saturating_add(other.overwriting),
        }
    }
}

/// A process that alone may publish on a bus, so that nothing can be brought there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusive {
    /// The name of the bus.
    pub bus: String,
    /// What the process calls itself.
    pub name: String,
    /// Its process id, in its own PID namespace.
    pub pid: u32,
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
    retaining: Retaining,
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
    /// The patterns of the stream that begins next.
    carried: Vec<Pattern>,
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
    /// Who publishes exclusively, as the bus has said when it was asked last.
    exclusive: Option<Exclusive>,
    /// Of some stream, the bus could not be asked how far it has arrived.
    is_unclaimed: bool,
    /// The last refusal, for the log.
    refusal: Option<PublishError>,
    failed: Option<InletError>,
    /// Of which streams it was told since then that the bus cannot remember them.
    unlisted: (Monotonic, Vec<(Source, Stream)>),
    /// How often streams had gone back when it last looked.
    gone_back: u64,
    /// When it looks again whether another process still brings what it could bring.
    looks: Monotonic,
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
            retaining: Retaining::default(),
            streams: HashMap::new(),
            histories: HashMap::new(),
            known: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            latest: None,
            slowest: None,
            carried: Vec::new(),
            names: 0,
            parts: Vec::new(),
            counters: Counters::default(),
            losses: Losses::default(),
            times: Committed::default(),
            delivered_at: None,
            exclusive: None,
            is_unclaimed: false,
            refusal: None,
            failed: None,
            unlisted: (Monotonic::default(), Vec::new()),
            gone_back: 0,
            looks: Monotonic::default(),
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
        if self.selection.order == Order::Arrival {
            for (source, stream, mark) in marks {
                let Some(at) = self.streams.get(&(source, stream)).copied() else { continue };
                let known = &mut self.known[at];
                if known.series == mark.series {
                    known.open_from = mark.next.get();
                    // The bus has all that was delivered once it has the last.
                    self.lanes[known.lane].complete(at, known.open_from);
                }
            }
        }
        self.publish_staged();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns whether the ring had no room for something. Then [`Self::publish`] must be called again at
    /// [`Self::next_attempt`], and what waits in receive buffers is delivered once this returns `false`.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_unclaimed || self.lanes.iter().any(|lane| !lane.has_room())
    }

    /// Returns which process publishes exclusively on the bus, if that is why something waits.
    #[must_use]
    pub const fn exclusive(&self) -> Option<&Exclusive> {
        self.exclusive.as_ref()
    }

    /// Returns when to call [`Self::publish`] again, if something waits for room.
    #[must_use]
    pub fn next_attempt(&self) -> Option<Monotonic> {
        let claims = self.is_unclaimed.then_some(self.looks);
        self.lanes.iter().filter_map(Lane::due).chain(claims).min()
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

    /// The connection by which the streams come is lost. Those that have ended in order are not silent.
    pub(crate) fn lose_way(&mut self) {
        let (way, ways) = &self.way;
        let known = self.streams.values().map(|at| &self.known[*at]);
        let known = known.filter(|known| ways.comes_by(*way, known.stream));
        let flows: Vec<Flow> = known.map(Known::flow).collect();
        flows.into_iter().for_each(|flow| self.ends(flow, End::Silent));
    }

    /// Returns the lane of a stream. One of which something waits for room keeps its lane: otherwise what follows could overtake
    /// it.
    fn lane_of(&mut self, stream: (Source, Stream)) -> usize {
        let wanted = if self.slowest.take() == Some(stream) { PATIENT } else { HASTY };
        let is_of_it = |staged: &Staged| self.known[staged.stream].stream == stream;
        [HASTY, PATIENT].into_iter().find(|lane| self.lanes[*lane].has(is_of_it)).unwrap_or(wanted)
    }

    /// Asks the bus how far a stream has arrived. If another process brings it, this one stands by. If the bus cannot be asked
    /// now, it is asked again.
    fn claim(&mut self, at: usize) -> Option<Arrived> {
        let flow = self.known[at].flow();
        let ended =
            if self.known[at].is_unclaimed { self.end_other_series(at, flow) } else { Ok(()) };
        let claimed = ended.and_then(|()| self.bus.claim(origin_of(flow, 0).into(), Limit::Policy));
        let known = &mut self.known[at];
        match claimed {
            Ok(arrived) => {
                (known.is_standby, known.is_unclaimed) = (false, false);
                Some(arrived)
            }
            Err(error) => {
                let was_standby = known.is_standby;
                known.is_standby = matches!(error, PublishError::Taken { .. });
                known.is_unclaimed = error.is_temporary();
                if known.is_unclaimed {
                    self.is_unclaimed = true;
                    self.note_exclusive(&error);
                } else if !(was_standby && self.known[at].is_standby) {
                    self.note_error(error);
                }
                None
            }
        }
    }

    /// Takes over streams that other processes have brought and no longer do, and those of which the bus could not be asked, once
    /// a second. Returns where each continues: what came since then is asked for again.
    pub(crate) fn take_over(&mut self, now: Monotonic) -> Vec<(Source, Stream, Mark)> {
        if now < self.looks || mutant("standby_never_rejoins") {
            return Vec::new();
        }
        self.looks = now.after(SECOND);
        self.is_unclaimed = false;
        let comes = |stream| self.way.1.has(stream);
        let waits = |at: &usize| {
            let known = &self.known[*at];
            let is_unclaimed = known.is_unclaimed && comes(known.stream);
            !known.is_void && (known.is_standby || is_unclaimed)
        };
        let waiting: Vec<usize> = self.streams.values().copied().filter(waits).collect();
        let mut taken = Vec::new();
        for at in waiting {
            let was_unclaimed = self.known[at].is_unclaimed;
            let Some(arrived) = self.claim(at) else { continue };
            let Flow { source, session, stream, series } = self.known[at].flow();
            let next = self.continues_at(at, Some(arrived), false);
            let known = &mut self.known[at];
            let missed = known.missed.take();
            // What this process has brought itself, it continues.
            let continues = was_unclaimed && known.before.is_some_and(|it| it.series == series);
            // If the bus has nothing of it, the stream goes on where it is, too.
            match Number::new(next).filter(|next| !continues && *next > Number::ZERO) {
                Some(next) => taken.push((source, stream, Mark { session, series, next })),
                None => {
                    let (lane, open_from) = (known.lane, self.open_from(at));
                    let lost = missed.and_then(|lost| self.loss_of(at, lost, open_from));
                    self.stage(lane, lost);
                }
            }
        }
        taken
    }

    /// A session follows one of the stream at this place. Returns whether the bus could not be asked about that one, and still
    /// must be: the way by which the stream comes does not know that more is wanted than what follows.
    fn unclaimed_before(&mut self, at: usize, follows: &mut Known) -> bool {
        let known = &mut self.known[at];
        if !known.is_unclaimed {
            follows.before = Some(known.as_before());
            return false;
        }
        (follows.before, known.is_unclaimed) = (known.before, false);
        let missed = known.missed.take();
        if known.series == follows.series {
            follows.missed = missed;
            self.is_unclaimed = true;
            return true;
        }
        let (lane, open_from) = (known.lane, self.open_from(at));
        let lost = missed.and_then(|lost| self.loss_of(at, lost, open_from));
        self.stage(lane, lost);
        false
    }

    /// Returns where a stream continues of which the bus has said how far it has arrived: 0 where it is. `is_new` says that its
    /// session has just been heard.
    fn continues_at(&mut self, at: usize, arrived: Option<Arrived>, is_new: bool) -> u64 {
        let (next, highest) = arrived.map_or((0, 0), |arrived| (arrived.next, arrived.highest));
        if let Some(number) = arrived.and_then(|arrived| self.begin_session(at, arrived, is_new)) {
            return number;
        }
        let known = &self.known[at];
        let before = known.before.filter(|before| before.series == known.series);
        let end = before.map(|before| before.end);
        let mut continues_at = next;
        if self.selection.order == Order::Arrival && !mutant("gaps_fetched_by_arrival") {
            // What came above the mark would come again. A process that has not brought it itself does not know which.
            continues_at = end.unwrap_or(0).max(highest);
            if end.is_none() && highest > next {
                self.stage_gone(at, next, highest);
            }
        }
        let known = &mut self.known[at];
        known.open_from = continues_at;
        known.end = end.unwrap_or(0).max(highest);
        continues_at
    }

    /// Has the bus note the session of a stream that it knows. Returns where that continues if its sender has forgotten an
    /// earlier one, of which the bus has something.
    fn begin_session(&mut self, at: usize, arrived: Arrived, is_new: bool) -> Option<u64> {
        let known = &mut self.known[at];
        let (flow, taken, past) = (known.flow(), known.taken, known.past);
        if arrived.session > flow.session.0 && !is_new {
            // Another way has begun a later one meanwhile.
            return None;
        }
        let has_forgotten = |reached: Session, next: u64| {
            let next = Number::new(next).unwrap_or(Number::MAX);
            next > Number::ZERO && past.has_forgotten(flow.session, reached, next)
        };
        if arrived.session == flow.session.0 {
            // Another way has begun it. What this one brought of a session that is forgotten says nothing more.
            known.before = known.before.filter(|it| !has_forgotten(it.session, it.end));
            return None;
        }
        let before = known.before.filter(|before| before.series == known.series);
        let here = before.map(|before| (before.session, before.end));
        let mut reached = here.into_iter().chain([(Session(arrived.session), arrived.highest)]);
        let forgotten = reached.find(|(reached, next)| has_forgotten(*reached, *next));
        let forgotten = forgotten.filter(|_| !mutant("forgotten_session_kept"));
        let back_to =
            forgotten.map(|(reached, _)| past.continues_at(flow.session, reached, taken).get());
        if let Some(number) = back_to {
            let end = before.map_or(0, |before| before.end).max(arrived.highest);
            self.stage_open_end(at, origin_of(flow, end), LostReason::Diverged);
            let known = &mut self.known[at];
            (known.before, known.open_from, known.end) = (None, number, number);
        }
        self.stage_item(at, origin_of(flow, 0), Item::Begin { session: flow.session.0, back_to });
        back_to
    }

    /// A stream begins, of which the bus may have another series. More of that may have been published than has come: says so,
    /// unless that was said already.
    fn end_other_series(&mut self, at: usize, flow: Flow) -> Result<(), PublishError> {
        let open = self.bus.open_streams(Limit::Policy)?;
        let before = self.known[at].before;
        let is_other = |it: &Origin| {
            (it.source, it.stream) == (flow.source.0, flow.stream.0) && it.series != flow.series.0
        };
        for origin in open.into_iter().filter(is_other) {
            // What is staged comes before this.
            let staged = before.filter(|before| before.series.0 == origin.series);
            let number = staged.map_or(0, |before| before.end).max(origin.number);
            let origin = Origin { number, ..origin };
            self.stage_open_end(at, origin, LostReason::Restart);
            self.stage_release(at, origin, false);
        }
        Ok(())
    }

    /// Notes which process publishes exclusively, if that is why the bus must wait.
    fn note_exclusive(&mut self, error: &PublishError) {
        self.exclusive = match error {
            PublishError::Exclusive { name, pid } => {
                let bus = self.bus.bus().name().to_owned();
                Some(Exclusive { bus, name: name.clone(), pid: *pid })
            }
            _ => None,
        };
    }

    /// Notes why the bus did not do something that concerns one stream.
    fn note_error(&mut self, error: PublishError) {
        if error.concerns_one_message() || error.is_temporary() {
            self.refusal = Some(error);
        } else {
            self.failed = Some(error.into());
        }
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

    fn carries(&mut self, _: Flow, pattern: TableName<'_>) {
        let pattern = Pattern::new(pattern.as_str());
        self.carried.push(pattern.unwrap_or_else(|_| Pattern::everything()));
    }

    #[inline]
    fn has_room(&mut self, flow: Flow) -> bool {
        // The usual case first.
        if !self.is_unclaimed && self.lanes.iter().all(Lane::has_room) {
            return true;
        }
        let Some(at) = self.place_of(flow) else { return true };
        !self.known[at].is_unclaimed && self.lanes[self.known[at].lane].has_room()
    }

    fn begins(&mut self, flow: Flow, opening: &Opening) -> Option<Mark> {
        let Opening { patterns, past, taken } = *opening;
        let stream = (flow.source, flow.stream);
        let carried = std::mem::take(&mut self.carried);
        let (way, ways) = &self.way;
        if !ways.join(*way, stream, &self.selection) {
            self.aside.push(stream);
            self.latest = None;
            self.retired.extend(self.streams.remove(&stream));
            return None;
        }
        // The bus then knows all that came before, as far as it has room.
        self.publish_staged();
        let lane = self.lane_of(stream);
        let mut known =
            Known { past, taken, is_unclaimed: true, carried, ..Known::new(flow, lane, patterns) };
        let mut still_unclaimed = false;
        if let Some(at) = self.streams.get(&stream).copied() {
            still_unclaimed = self.unclaimed_before(at, &mut known);
        }
        let at = self.enter(known);
        let arrived = if still_unclaimed { None } else { self.claim(at) };
        let continues_at = self.continues_at(at, arrived, true);
        // The bus has nothing of a series that is new to it: the stream is joined where it is.
        let (session, series) = (flow.session, flow.series);
        let next = Number::new(continues_at).filter(|next| *next > Number::ZERO);
        next.map(|next| Mark { session, series, next })
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        if let Some(stream) = self.place_of(flow) {
            self.message_at(stream, flow, message);
        }
    }

    fn ends(&mut self, flow: Flow, end: End) {
        let stream = (flow.source, flow.stream);
        let Some(at) = self.streams.get(&stream).copied() else { return };
        // What does not come cannot be taken over.
        self.known[at].is_standby = false;
        let (way, ways) = &self.way;
        if !ways.leave(*way, stream, end == End::Complete) {
            self.stage_release(at, origin_of(flow, self.known[at].end), end == End::Sealed);
        }
    }

    fn forgets(&mut self, source: Source, stream: Stream) {
        self.latest = None;
        self.retired.extend(self.streams.remove(&(source, stream)));
        let (way, ways) = &self.way;
        ways.leave(*way, (source, stream), false);
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let place = self.place_of(flow);
        self.topic_at(place, number, name);
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        // Else another way brings it.
        let Some(stream) = self.place_of(flow) else { return };
        let known = &mut self.known[stream];
        if known.is_standby || known.is_void {
            return;
        }
        let is_open_end = loss.until.is_none() && loss.count == 0;
        if is_open_end && loss.reason == wire::LostReason::Diverged {
            // The inlet reports this when the session begins, if the bus has something that is forgotten: another way may have
            // begun it already.
            return;
        }
        if is_open_end {
            let (way, ways) = &self.way;
            let nothing_came = known.series == flow.series && known.end == 0;
            let is_silent = loss.reason == wire::LostReason::Silent;
            if nothing_came || (is_silent && ways.has_other(*way, known.stream)) {
                return;
            }
        } else if let Some(until) = loss.until.filter(|_| known.series == flow.series) {
            known.end = known.end.max(until.get());
        }
        let is_narrowed =
            !self.is_selected && !self.selection.accept.iter().any(|it| it.as_str() == "**");
        let mut lost = lost_of(flow, &loss, self.scope_of(Some(stream)));
        if is_narrowed && lost.bound == LostBound::Exact {
            // Some of them may have had topics that are not accepted.
            lost.bound = LostBound::AtMost;
        }
        let open_from = self.open_from(stream).filter(|_| !is_open_end);
        let from = lost.from;
        let (lane, lost) = (self.known[stream].lane, self.loss_of(stream, lost, open_from));
        if self.known[stream].is_unclaimed {
            if !is_open_end {
                self.miss(stream, lost);
            }
            return;
        }
        self.stage(lane, lost);
        if is_open_end && loss.reason == wire::LostReason::Restart {
            self.stage_release(stream, from, false);
        }
    }
}

#[cfg(test)]
mod tests;
