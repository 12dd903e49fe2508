//! Inlet: from streams to a bus.
//!
//! ```text
//!   receivers ──► message ──► staged, with others of this turn ──► one call of the bus
//!             ──► loss    ──► what is staged, then the loss    ──► the bus
//! ```
//!
//! Messages lie in receive buffers only while they are handed over, so they are copied to a stage first: one call then
//! publishes all of a turn, with one lock and one wake-up. A long message is published from the receive buffers.
//!
//! The bus remembers how far each stream has arrived. A message that has been there is dropped by the bus, whichever way
//! it comes, and whichever process has brought it.

mod ways;

pub(crate) use self::ways::Ways;

use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;
use toroni::{
    Entry, InletTopic, Lost, LostBound, Origin, Pattern, PublishError, PublisherError, Topic,
};
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Session, Source, Stream};
use toroni_proto::reassembly::{Bound, Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::wire::{LostReason, MAX_PATTERNS, TableName, TopicNumber};

/// Messages that are longer are not staged.
const LONG_BYTES: usize = 16 << 10;
/// When so many bytes are staged, they are published.
const STAGE_BYTES: usize = 256 << 10;
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
}

/// A topic of a stream.
enum Name {
    Unknown,
    Accepted(InletTopic),
    /// `accept` leaves it out, or it is a pattern.
    Filtered,
    /// It is no topic of this bus.
    Invalid,
}

/// What is known of a stream.
struct Known {
    session: Session,
    names: Vec<Name>,
    /// How many patterns the stream has; what is known of them.
    patterns: u8,
    scope: Vec<Option<Pattern>>,
    /// Where the series continues: of messages that arrive in any order, all below have arrived.
    open_from: u64,
}

impl Known {
    fn new(session: Session, patterns: u8, open_from: u64) -> Self {
        let patterns = patterns.min(MAX_PATTERNS);
        let scope = vec![None; usize::from(patterns)];
        Self { session, names: Vec::new(), patterns, scope, open_from }
    }
}

/// A message that waits for the next call of the bus.
struct Staged {
    stream: (Source, Stream),
    topic: TopicNumber,
    from: usize,
    to: usize,
    to_descendants: bool,
    published_ns: Option<u64>,
    origin: Origin,
    open_from: Option<u64>,
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
    streams: HashMap<(Source, Stream), Known>,
    /// How many names `streams` holds.
    names: usize,
    staged: Vec<Staged>,
    bytes: Vec<u8>,
    counters: Counters,
    /// The last refusal, for the log.
    refusal: Option<PublishError>,
    failed: Option<InletError>,
}

impl Inlet {
    /// Makes an inlet of this one, which several may share: a stream that comes by two ways is then brought once.
    #[must_use]
    pub fn new(bus: impl Into<Arc<toroni::Inlet>>, selection: Selection) -> Self {
        Self {
            bus: bus.into(),
            selection,
            is_selected: false,
            way: (0, Ways::default()),
            aside: Vec::new(),
            streams: HashMap::new(),
            names: 0,
            staged: Vec::new(),
            bytes: Vec::with_capacity(STAGE_BYTES),
            counters: Counters::default(),
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

    /// Publishes what is staged. Call it at the end of each turn, before the process waits. `marks` are those of the
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
                if let Some(known) = self.streams.get_mut(&(source, stream)) {
                    known.open_from = mark.next.get();
                }
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
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

    /// Publishes all staged messages. If the bus refuses one, the others follow nevertheless.
    fn publish_staged(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        let bytes = std::mem::take(&mut self.bytes);
        let parts: Vec<[&[u8]; 1]> =
            staged.iter().map(|message| [&bytes[message.from..message.to]]).collect();
        let entries: Vec<Entry<'_>> =
            staged.iter().zip(&parts).filter_map(|(it, parts)| self.entry(it, parts)).collect();
        let mut refused = Vec::new();
        let (mut counted, mut done) = (0, 0);
        let mut failed = None;
        while let Some(rest) = entries.get(done..).filter(|rest| !rest.is_empty()) {
            let Err(error) = self.bus.publish(rest) else {
                counted += rest.len() as u64;
                break;
            };
            counted += error.published as u64;
            let Some(entry) = entries.get(done + error.published) else { break };
            if !concerns_one(&error.source) {
                failed = Some(error.source);
                break;
            }
            refused.push((entry.origin, error.source));
            done += error.published + 1;
        }
        drop(entries);
        self.counters.messages += counted;
        if let Some(error) = failed {
            self.failed = Some(error.into());
        }
        for (origin, error) in refused {
            self.refused(origin, error);
        }
        (self.staged, self.bytes) = (staged, bytes);
        self.staged.clear();
        self.bytes.clear();
    }

    fn entry<'a>(&'a self, staged: &Staged, parts: &'a [&'a [u8]]) -> Option<Entry<'a>> {
        let names = &self.streams.get(&staged.stream)?.names;
        let Name::Accepted(topic) = names.get(staged.topic.get() as usize)? else { return None };
        Some(Entry {
            to_descendants: staged.to_descendants,
            published_ns: staged.published_ns,
            origin: Some(staged.origin),
            open_from: staged.open_from,
            ..Entry::new(topic, parts)
        })
    }

    /// Counts a message that the bus refused, and reports it as lost if the bus takes that.
    fn refused(&mut self, origin: Option<Origin>, error: PublishError) {
        if let (PublishError::TooLong { .. }, Some(origin)) = (&error, origin) {
            self.counters.too_long += 1;
            let stream = (Source(origin.source), Stream(origin.stream));
            let lost = Lost {
                from: origin,
                until: origin.number + 1,
                messages: 1,
                bound: LostBound::Exact,
                reason: toroni::LostReason::TooLong,
                scope: self.scope_of(stream),
            };
            let open_from = self.open_from(stream);
            return self.report(&lost, open_from);
        }
        self.counters.refused += 1;
        self.refusal = Some(error);
    }

    fn report(&mut self, lost: &Lost, open_from: Option<u64>) {
        if lost.scope.is_empty() {
            // `accept` leaves out everything that it may be about.
            self.counters.filtered = self.counters.filtered.saturating_add(lost.messages);
            return;
        }
        match self.bus.publish_lost(lost, open_from) {
            Ok(()) => {
                self.counters.losses += 1;
                self.counters.lost = self.counters.lost.saturating_add(lost.messages);
            }
            Err(error) if concerns_one(&error) => {
                self.counters.refused += 1;
                self.refusal = Some(error);
            }
            Err(error) => self.failed = Some(error.into()),
        }
    }

    /// Returns patterns of all topics that may be missing: the first segments of the stream's patterns, because a post to
    /// descendants may be among them, as far as they are accepted.
    fn scope_of(&self, stream: (Source, Stream)) -> Vec<Pattern> {
        let known = self.streams.get(&stream);
        let patterns: Option<Vec<Pattern>> = known
            .filter(|known| known.patterns > 0)
            .and_then(|known| known.scope.iter().cloned().collect());
        let everything = || vec![Pattern::everything()];
        let mut scope: Vec<Pattern> = Vec::new();
        for pattern in patterns.unwrap_or_else(everything) {
            let wide = self.widened(&pattern);
            let is_new = scope.iter().all(|other| other.as_str() != wide.as_str());
            let is_accepted = self.selection.accept.iter().any(|it| it.intersects(&pattern));
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
    fn open_from(&self, stream: (Source, Stream)) -> Option<u64> {
        if self.selection.order == Order::Source {
            return None;
        }
        self.streams.get(&stream).map(|known| known.open_from)
    }

    /// Returns what a name of a stream is on this bus.
    fn resolve(&mut self, name: TableName<'_>) -> Name {
        if name.has_wildcard() {
            return Name::Filtered;
        }
        let text = name.as_str();
        let accept = &self.selection.accept;
        if !self.is_selected && !accept.iter().any(|pattern| pattern.matches(text)) {
            return Name::Filtered;
        }
        let prefix = &self.selection.prefix;
        let topic = if prefix.is_empty() { text.to_owned() } else { format!("{prefix}/{text}") };
        if Topic::new(&topic).is_err() {
            return Name::Invalid;
        }
        match self.bus.topic(&topic) {
            Ok(topic) => Name::Accepted(topic),
            Err(error) => {
                self.failed = Some(error.into());
                Name::Unknown
            }
        }
    }
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

impl Inbox for Inlet {
    fn begins(&mut self, flow: Flow, patterns: u8) -> Option<Mark> {
        // What is staged refers to the names of the session before.
        self.publish_staged();
        let stream = (flow.source, flow.stream);
        let (way, ways) = &self.way;
        if !ways.may_bring(*way, stream, &self.selection) {
            self.aside.push(stream);
            if let Some(before) = self.streams.remove(&stream) {
                self.names -= before.names.len();
            }
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
        let known = Known::new(flow.session, patterns, next);
        if let Some(before) = self.streams.insert((flow.source, flow.stream), known) {
            self.names -= before.names.len();
        }
        // The bus has nothing of a series that is new to it: the stream is joined where it is.
        let (session, series) = (flow.session, flow.series);
        Number::new(next).filter(|_| next > 0).map(|next| Mark { session, series, next })
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let stream = (flow.source, flow.stream);
        let start = message.start;
        let origin = Origin {
            source: flow.source.0,
            series: flow.series.0,
            stream: flow.stream.0,
            number: start.number.get(),
        };
        let open_from = self.open_from(stream);
        let known = self.streams.get(&stream);
        if known.is_none() {
            // Another way brings it.
            return;
        }
        let known = known.filter(|known| known.session == flow.session);
        let name = known.and_then(|known| known.names.get(start.topic.get() as usize));
        match name {
            Some(Name::Accepted(_)) => {}
            Some(Name::Filtered) => {
                self.counters.filtered += 1;
                return;
            }
            Some(Name::Invalid | Name::Unknown) | None => {
                self.counters.no_topic += 1;
                self.publish_staged();
                let lost = Lost {
                    from: origin,
                    until: origin.number + 1,
                    messages: 1,
                    bound: LostBound::Exact,
                    reason: toroni::LostReason::Topic,
                    scope: self.scope_of(stream),
                };
                return self.report(&lost, open_from);
            }
        }
        let length = message.parts.length();
        if self.bytes.len() + length > STAGE_BYTES {
            self.publish_staged();
        }
        let from = self.bytes.len();
        let mut staged = Staged {
            stream,
            topic: start.topic,
            from,
            to: from,
            to_descendants: start.to_descendants,
            published_ns: start.published.map(|time| time.ns()),
            origin,
            open_from,
        };
        if length <= LONG_BYTES {
            message.parts.for_each(|part| self.bytes.extend_from_slice(part));
            staged.to = self.bytes.len();
            self.staged.push(staged);
            return;
        }
        self.publish_staged();
        let parts: Vec<&[u8]> = message.parts.collect();
        let Some(entry) = self.entry(&staged, &parts) else { return };
        match self.bus.publish(&[entry]) {
            Ok(()) => self.counters.messages += 1,
            Err(error) if concerns_one(&error.source) => self.refused(Some(origin), error.source),
            Err(error) => self.failed = Some(error.source.into()),
        }
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let at = number.get() as usize;
        let resolved = self.resolve(name);
        let Some(known) = self.streams.get_mut(&(flow.source, flow.stream)) else { return };
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

    fn loss(&mut self, flow: Flow, loss: Loss) {
        self.publish_staged();
        let stream = (flow.source, flow.stream);
        if !self.streams.contains_key(&stream) {
            // Another way brings it.
            return;
        }
        // Without numbers it stands where the stream is.
        let first = loss.after.map_or_else(
            || loss.until.map_or(0, |until| until.get().saturating_sub(loss.count)),
            |after| after.get() + 1,
        );
        let until = loss.until.map_or(first, |until| until.get().max(first));
        // What a bus has overwritten, it counts for all topics together.
        let is_counted = self.is_selected && loss.reason != LostReason::Overtaken;
        let is_narrowed =
            !is_counted && !self.selection.accept.iter().any(|it| it.as_str() == "**");
        let bound = match loss.bound {
            // Some of them may have had topics that are not accepted.
            Bound::Exact | Bound::AtMost if is_narrowed => LostBound::AtMost,
            Bound::Exact => LostBound::Exact,
            Bound::AtMost => LostBound::AtMost,
            Bound::AtLeast => LostBound::AtLeast,
        };
        let lost = Lost {
            from: Origin {
                source: flow.source.0,
                series: flow.series.0,
                stream: flow.stream.0,
                number: first,
            },
            until,
            messages: loss.count,
            bound,
            reason: reason_of(loss.reason),
            scope: self.scope_of(stream),
        };
        let open_from = self.open_from(stream);
        self.report(&lost, open_from);
    }
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
