//! One stream, as a client receives it.

use super::Counters;
use crate::arrivals::{Flow, Inbox, Opening};
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Series, Session, Source, Stream};
use crate::reassembly::{Bound, Loss, Message};
use crate::receiver::{End, Mark};
use crate::topics::Known;
use crate::wire::tcp::{Flags, Gap, Header, MAX_STREAMS, Replay, Resume, WelcomeStream};
use crate::wire::{LostReason, MAC_BYTES, MAX_PATTERNS, NodeName, Reject, TableName, TopicNumber};

/// What a HELLO needs besides its patterns, at most.
pub(super) const HELLO_BYTES: usize = 56 + 20 * MAX_STREAMS + NodeName::MAX_BYTES + MAC_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Live,
    Replay,
    /// The piece of history that was asked for has ended.
    Ended,
}

/// A stream of a server.
#[derive(Debug)]
pub(super) struct Lane {
    /// Which stream it is, once it has one.
    id: Option<(Source, Stream)>,
    /// The session and series, once they are known.
    session: Option<Session>,
    series: Option<Series>,
    pub(super) mode: Mode,
    /// Everything below was delivered or reported.
    mark: Number,
    /// What is live begins here. If the mark is below, and no replay brought what is between, it is lost.
    floor: Number,
    /// The message number of what comes next.
    due: MessageNumber,
    known: Known,
    /// The stream's patterns, each after its length.
    patterns: Vec<u8>,
    /// A replay that the caller wants.
    pub(super) ask: Option<(Number, Option<Number>)>,
    /// Where the replay begins that the server was asked for, and that has not begun.
    pub(super) asked: Option<Number>,
    /// The inbox knows the series further back than what is live, and the server was asked for what is between. Until that
    /// comes, what is live is left aside: the replay brings it again.
    awaits: bool,
}

impl Lane {
    /// Allocates the memory of a lane.
    pub(super) fn new() -> Self {
        Self {
            id: None,
            session: None,
            series: None,
            mode: Mode::Live,
            mark: Number::ZERO,
            floor: Number::ZERO,
            due: MessageNumber::ZERO,
            known: Known::new(),
            patterns: Vec::with_capacity(usize::from(MAX_PATTERNS) * (1 + TableName::MAX_BYTES)),
            ask: None,
            asked: None,
            awaits: false,
        }
    }

    pub(super) fn is(&self, source: Source, stream: Stream) -> bool {
        self.id == Some((source, stream))
    }

    pub(super) const fn is_free(&self) -> bool {
        self.id.is_none()
    }

    pub(super) const fn take(&mut self, source: Source, stream: Stream) {
        self.id = Some((source, stream));
    }

    pub(super) const fn mark(&self) -> Number {
        self.mark
    }

    pub(super) const fn remember(&mut self, resume: Resume) {
        self.series = Some(resume.series);
        self.mark = resume.next;
    }

    pub(super) fn resume(&self) -> Option<Resume> {
        let (source, stream) = self.id?;
        Some(Resume { source, series: self.series?, stream, next: self.mark })
    }

    pub(super) fn flow(&self) -> Option<Flow> {
        let (source, stream) = self.id?;
        Some(Flow { source, session: self.session?, stream, series: self.series? })
    }

    pub(super) fn patterns(&self) -> impl Iterator<Item = TableName<'_>> {
        let mut rest = &self.patterns[..];
        core::iter::from_fn(move || {
            let (length, names) = rest.split_first()?;
            let (name, after) = names.split_at_checked(usize::from(*length))?;
            rest = after;
            core::str::from_utf8(name).ok().and_then(TableName::new)
        })
    }

    /// Begins with what WELCOME says.
    pub(super) fn join(
        &mut self,
        offer: &WelcomeStream<'_>,
        counters: &mut Counters,
        out: &mut impl Inbox,
    ) {
        let before = self.before();
        let continues = before.filter(|mark| mark.series == offer.series);
        let WelcomeStream { past, session, .. } = *offer;
        let forgotten = continues.filter(|it| past.has_forgotten(session, it.session, it.next));
        let forgotten = forgotten.filter(|_| !mutant("prior_ignored"));
        let why = match forgotten {
            Some(_) => Some(LostReason::Diverged),
            None => (before.is_some() && continues.is_none()).then_some(LostReason::Restart),
        };
        if let Some(reason) = why {
            // What the other series, or the life that is forgotten, brought last is unknown.
            let (after, until) = (self.mark.before(), None);
            let (message, count, bound) = (self.due, 0, Bound::AtLeast);
            self.report(Loss { message, count, bound, reason, after, until }, counters, out);
        }
        (self.series, self.session) = (Some(offer.series), Some(offer.session));
        self.mode = Mode::Live;
        (self.floor, self.due) = (offer.number, offer.message);
        self.known.clear();
        self.keep_patterns(offer);
        (self.ask, self.asked, self.awaits) = (None, None, false);
        let begins = self.begins(offer, out);
        let kept = begins.filter(|mark| mark.series == offer.series);
        match (forgotten, continues) {
            (Some(mark), _) => {
                self.wait_for(past.continues_at(session, mark.session, offer.number));
            }
            (None, Some(_)) => {}
            _ => {
                // Another series is wanted from where its session began. One that is the first is joined where it is.
                let new = if before.is_some() { past.head.min(offer.number) } else { offer.number };
                self.wait_for(kept.map_or(new, |mark| mark.next));
            }
        }
    }

    /// Where the series continued until now.
    fn before(&self) -> Option<Mark> {
        let session = self.session.unwrap_or(Session(0));
        Some(Mark { session, series: self.series?, next: self.mark })
    }

    /// The stream continues here. If that is before what is live, asks for what is between.
    const fn wait_for(&mut self, next: Number) {
        self.mark = next;
        if next.get() < self.floor.get() {
            (self.ask, self.awaits) = (Some((next, None)), true);
        }
    }

    /// What has come since this number was not delivered: asks for it.
    pub(super) fn rejoin(&mut self, next: Number) {
        if self.mode == Mode::Live && next < self.mark {
            self.floor = self.mark;
            self.wait_for(next);
        }
    }

    /// Waits for the history that it will ask for. What WELCOME says of the stream is known then.
    pub(super) fn attend(&mut self, offer: &WelcomeStream<'_>, out: &mut impl Inbox) {
        (self.series, self.session) = (Some(offer.series), Some(offer.session));
        self.mode = Mode::Ended;
        (self.mark, self.floor, self.due) = (offer.number, Number::ZERO, MessageNumber::ZERO);
        self.known.clear();
        self.keep_patterns(offer);
        (self.ask, self.asked, self.awaits) = (None, None, false);
        self.begins(offer, out);
    }

    fn keep_patterns(&mut self, offer: &WelcomeStream<'_>) {
        self.patterns.clear();
        for name in offer.patterns() {
            self.patterns.push(u8::try_from(name.as_str().len()).unwrap_or(0));
            self.patterns.extend_from_slice(name.as_str().as_bytes());
        }
    }

    /// Tells the inbox what begins. Returns where that continues, if the inbox knows it.
    fn begins(&self, offer: &WelcomeStream<'_>, out: &mut impl Inbox) -> Option<Mark> {
        let flow = self.flow()?;
        self.patterns().for_each(|pattern| out.carries(flow, pattern));
        out.begins(flow, &Opening { patterns: 0, past: offer.past, taken: offer.number })
    }

    fn report(&self, loss: Loss, counters: &mut Counters, out: &mut impl Inbox) {
        counters.lost = counters.lost.saturating_add(loss.count);
        if let Some(flow) = self.flow() {
            out.loss(flow, loss);
        }
    }

    /// Reports what lies between the mark and what is live, if no replay brought it.
    pub(super) fn settle(&mut self, counters: &mut Counters, out: &mut impl Inbox) {
        if self.mode == Mode::Live && self.mark < self.floor && !self.awaits {
            self.skip_to(self.floor, counters, out);
        }
    }

    fn skip_to(&mut self, until: Number, counters: &mut Counters, out: &mut impl Inbox) {
        let (first, count) = (self.mark, until.since(self.mark));
        let (bound, reason) = (Bound::AtMost, LostReason::Gone);
        self.lost(self.due, &Gap { first, until, count, bound, reason }, counters, out);
    }

    /// Returns the message number of what comes next, if frames with these flags can.
    pub(super) fn expected(&self, flags: Flags) -> Result<MessageNumber, Reject> {
        match (self.mode, flags.has(Flags::REPLAY)) {
            (Mode::Live, false) | (Mode::Replay, true) => Ok(self.due),
            _ => Err(Reject::Unexpected),
        }
    }

    pub(super) fn expect(&self, flags: Flags, message: MessageNumber) -> Result<(), Reject> {
        if self.expected(flags)? == message { Ok(()) } else { Err(Reject::Unexpected) }
    }

    /// Whether everything has come that the server has sent before the message with this number.
    pub(super) fn has_come(&self, message: MessageNumber) -> bool {
        self.due == message || mutant("heartbeat_count_unchecked")
    }

    pub(super) const fn advance(&mut self, due: MessageNumber) {
        self.due = due;
    }

    pub(super) fn topic(&mut self, number: TopicNumber, name: TableName<'_>, out: &mut impl Inbox) {
        if self.known.add(number)
            && let Some(flow) = self.flow()
        {
            out.topic(flow, number, name);
        }
    }

    /// Delivers a message, unless it came before. The server has told the name of its topic: if not, a host on the path has taken that
    /// out.
    pub(super) fn message(
        &mut self,
        message: Message<'_>,
        counters: &mut Counters,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let number = message.start.number;
        if self.awaits {
            return Ok(());
        }
        if number < self.mark {
            counters.known += 1;
        } else if !self.known.has(message.start.topic) {
            return Err(Reject::Unexpected);
        } else if let Some(flow) = self.flow() {
            self.mark = number.plus(1);
            counters.messages += 1;
            out.message(flow, message);
        }
        Ok(())
    }

    /// Reports a loss, unless it lies below the mark.
    pub(super) fn lost(
        &mut self,
        message: MessageNumber,
        gap: &Gap,
        counters: &mut Counters,
        out: &mut impl Inbox,
    ) {
        if gap.until <= self.mark || self.awaits {
            return;
        }
        // Some of them may have come before.
        let partly = gap.first < self.mark;
        let bound = if partly { Bound::AtMost } else { gap.bound };
        let count = if partly { gap.count.min(gap.until.since(self.mark)) } else { gap.count };
        let after = self.mark.get().checked_sub(1).and_then(Number::new);
        self.mark = gap.until;
        if count > 0 || bound == Bound::AtLeast {
            let (reason, until) = (gap.reason, Some(gap.until));
            self.report(Loss { message, count, bound, reason, after, until }, counters, out);
        }
    }

    /// Everything below this number was sent, or reported.
    pub(super) fn heartbeat(
        &mut self,
        number: Number,
        counters: &mut Counters,
        out: &mut impl Inbox,
    ) {
        self.settle(counters, out);
        if !self.awaits {
            self.mark = self.mark.max(number);
        }
    }

    /// The server has sent everything. If the history has come that was asked for, the stream has ended in order.
    pub(super) fn complete(&self, out: &mut impl Inbox) {
        let waits = self.awaits || self.ask.is_some() || self.asked.is_some();
        let waits = waits && !mutant("end_before_history");
        if self.mode == Mode::Live
            && !waits
            && let Some(flow) = self.flow()
        {
            out.ends(flow, End::Complete);
        }
    }

    /// A replay begins or ends.
    pub(super) fn replay(
        &mut self,
        header: &Header,
        replay: &Replay,
        counters: &mut Counters,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let first = replay.first;
        if header.flags.has(Flags::REPLAY) {
            // One that begins later is that of the resume point, which the server read before.
            if let Some(asked) = self.asked.take_if(|asked| first <= *asked) {
                // The caller wants it, perhaps again. The server begins earlier if it has not sent all before, which may have
                // come in another replay.
                self.mark = first.max(asked.min(self.mark));
                self.awaits = false;
            } else if self.mark < first {
                self.skip_to(first, counters, out);
            }
            self.mode = Mode::Replay;
            (self.floor, self.due) = (Number::ZERO, MessageNumber::ZERO);
            return Ok(());
        }
        if self.mode != Mode::Replay {
            return Err(Reject::Unexpected);
        }
        self.mark = self.mark.max(first);
        self.due = header.message;
        self.mode = if header.flags.has(Flags::END) { Mode::Ended } else { Mode::Live };
        Ok(())
    }
}
