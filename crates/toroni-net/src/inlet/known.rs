//! The streams of an inlet, and the names of their topics.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::Inlet;
use toroni::{InletTopic, Lost, Pattern};
use toroni_proto::arrivals::Flow;
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Series, Session, Source, Stream};
use toroni_proto::past::Past;
use toroni_proto::wire::MAX_PATTERNS;

/// A topic of a stream.
pub(super) enum Name {
    Unknown,
    Accepted(InletTopic),
    /// `accept` takes only topics below it, so what is posted to its descendants as well.
    Above(InletTopic),
    /// `accept` leaves it out, or it is a pattern.
    Filtered,
    /// It is no topic of this bus.
    Invalid,
}

/// What is known of a stream.
pub(super) struct Known {
    pub(super) stream: (Source, Stream),
    pub(super) series: Series,
    pub(super) session: Session,
    /// What the sender remembers of earlier sessions.
    pub(super) past: Past,
    /// How far this one had come when it began here.
    pub(super) taken: Number,
    pub(super) lane: usize,
    pub(super) names: Vec<Name>,
    /// How many patterns the stream has; what is known of them.
    pub(super) patterns: u8,
    pub(super) scope: Vec<Option<Pattern>>,
    /// The patterns of a stream that comes over TCP, whose names do not begin with them.
    pub(super) carried: Vec<Pattern>,
    /// Where the series continues: of messages that arrive in any order, all below have arrived.
    pub(super) open_from: u64,
    /// The number after the highest that has come, as a message or as a loss: 0 if the bus knows nothing of the series.
    pub(super) end: u64,
    /// Another process brings it.
    pub(super) is_standby: bool,
    /// The bus could not be asked how far it has arrived. Until then, nothing of it is published.
    pub(super) is_unclaimed: bool,
    /// What had to be let go meanwhile.
    pub(super) missed: Option<Lost>,
    /// What this process brought of the stream before, and how far.
    pub(super) before: Option<Before>,
    /// The sender has forgotten its session, and uses its numbers again. Nothing of it is published any more.
    pub(super) is_void: bool,
}

/// How far a session has come that was followed before.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) session: Session,
    pub(super) series: Series,
    pub(super) end: u64,
}

impl Known {
    /// What another session finds of it.
    pub(super) const fn as_before(&self) -> Before {
        let Self { session, series, end, .. } = *self;
        Before { session, series, end }
    }

    pub(super) fn flow(&self) -> Flow {
        let Self { stream: (source, stream), series, session, .. } = *self;
        Flow { source, session, stream, series }
    }

    pub(super) fn new(flow: Flow, lane: usize, patterns: u8) -> Self {
        let patterns = patterns.min(MAX_PATTERNS);
        let scope = vec![None; usize::from(patterns)];
        let Flow { source, session, stream, series } = flow;
        let (stream, names) = ((source, stream), Vec::new());
        Self {
            stream,
            series,
            session,
            past: Past::NONE,
            taken: Number::ZERO,
            lane,
            names,
            patterns,
            scope,
            carried: Vec::new(),
            open_from: 0,
            end: 0,
            is_standby: false,
            is_unclaimed: false,
            missed: None,
            before: None,
            is_void: false,
        }
    }
}

impl Inlet {
    /// Returns the place of a flow's stream.
    pub(super) fn place_of(&mut self, flow: Flow) -> Option<usize> {
        let stream = (flow.source, flow.stream);
        let at = match self.latest {
            Some(at) if self.known[at].stream == stream => at,
            _ => *self.streams.get(&stream)?,
        };
        self.latest = Some(at);
        Some(at)
    }

    /// Enters a stream, in the place of an earlier session. Returns its place.
    pub(super) fn enter(&mut self, known: Known) -> usize {
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
    pub(super) fn add(&mut self, known: Known) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.known[at] = known;
                at
            }
            None => {
                let at = self.known.len();
                self.known.push(known);
                at
            }
        }
    }

    /// Frees the place of a stream.
    pub(super) fn forget(&mut self, at: usize) {
        let names = std::mem::take(&mut self.known[at].names);
        self.names = self.names.saturating_sub(names.len());
        self.retaining.forget(at);
        self.free.push(at);
    }

    /// Returns the lowest number of a stream that may still be missing, if messages arrive in any order.
    pub(super) fn open_from(&self, stream: usize) -> Option<u64> {
        if self.selection.order == Order::Source {
            return None;
        }
        self.known.get(stream).map(|known| known.open_from)
    }
}
