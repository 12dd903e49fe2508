//! Joining: what is held until a SESSION says what must be known, and where the session then begins.

use super::live::Stated;
use super::{Mark, Phase, Position, Receiver};
use crate::hook::mutant;
use crate::id::{Number, Sequence};
use crate::random::Random;
use crate::reassembly::{Buffer, Counted, Deliver, Pool};
use crate::repair::MAX_QUEUED;
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::{Data, Header, LostReason, SessionInfo};

/// How many datagrams are held while a receiver joins.
pub const JOIN_HELD: usize = 64;
/// For how long they are held.
const JOIN_NS: u64 = 200 * MILLISECOND;

/// The DATA that came before the first SESSION.
#[derive(Debug)]
pub(super) struct Joining {
    held: Vec<(Sequence, Buffer, u16)>,
    since: Option<Monotonic>,
    /// The first SESSION of the session came: it began while this process ran.
    pub(super) from_start: bool,
}

impl Joining {
    pub(super) fn new() -> Self {
        Self { held: Vec::with_capacity(JOIN_HELD), since: None, from_start: false }
    }

    pub(super) const fn held(&self) -> usize {
        self.held.len()
    }

    /// Holds a datagram, or gives its buffer back. `again` says that it is repaired for others.
    pub(super) fn hold(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        again: bool,
        buffer: Buffer,
        length: u16,
        pool: &mut Pool,
    ) {
        // What is repaired for others lies before what we want.
        if again {
            return pool.give(buffer);
        }
        self.since.get_or_insert(now);
        if self.held.len() < JOIN_HELD && self.held.iter().all(|(at, ..)| *at != sequence) {
            self.held.push((sequence, buffer, length));
        } else {
            pool.give(buffer);
        }
    }

    /// When the first that is held arrived.
    pub(super) const fn since(&self) -> Option<Monotonic> {
        self.since
    }

    /// When what is held is given back.
    pub(super) fn until(&self) -> Option<Monotonic> {
        self.since.map(|since| since.after(JOIN_NS))
    }

    /// Gives back what was held for too long. It was no loss until now: the receiver joins later.
    pub(super) fn expire(&mut self, now: Monotonic, pool: &mut Pool) {
        if self.until().is_some_and(|until| until <= now) {
            self.release(pool);
        }
    }

    pub(super) fn postpone(&mut self, by_ns: u64) {
        self.since = self.since.map(|since| since.after(by_ns));
    }

    pub(super) fn release(&mut self, pool: &mut Pool) {
        self.since = None;
        self.held.drain(..).for_each(|(_, buffer, _)| pool.give(buffer));
    }
}

/// Where a receiver begins in a session.
struct Start {
    sequence: Sequence,
    /// What was counted there, if it is known.
    counted: Option<Counted>,
    /// What is received has numbers from this one on.
    number: Number,
    /// Where the same session was left, if it continues there.
    left: Option<Position>,
}

impl Receiver {
    /// Decides where to begin, from the first SESSION.
    fn start(
        &self,
        sequence: Sequence,
        info: &SessionInfo<'_>,
        known: Option<Mark>,
        pool: &Pool,
    ) -> Start {
        let held = &self.joining.held;
        let begin = info.first.max(info.trail);
        // More than a sender queues for one receiver is not asked for: it would cost all the others.
        let is_near = sequence.since(begin) <= MAX_QUEUED;
        let is_whole = begin == info.first
            && held.iter().all(|(at, ..)| *at >= info.first)
            && sequence.since(info.first) <= JOIN_HELD as u64;
        let left = self.resume.filter(|left| left.sequence >= info.first);
        if let Some((left, mark)) = left.zip(known) {
            let Position { sequence, counted, .. } = left;
            let (counted, left) = (Some(counted), Some(left));
            return Start { sequence, counted, number: mark.next, left };
        }
        let is_known = known.is_some() || self.joining.from_start;
        // An old datagram of the session that is repeated does not belong to those that come now.
        let run = held.windows(2).rposition(|pair| pair[0].0.plus(1) != pair[1].0);
        let run = run.map_or(0, |before| before + 1);
        let run = if mutant("joins_at_any_datagram") { 0 } else { run };
        let (sequence, counted, number) = match held.get(run) {
            _ if (is_known && is_near) || is_whole => {
                (info.first, Some(Counted::default()), info.begins)
            }
            Some((at, buffer, length)) => {
                let bytes = pool.get(buffer).get(..usize::from(*length)).unwrap_or_default();
                let number = Data::reopen(bytes).map_or(info.begins, |data| data.number);
                (*at, None, number)
            }
            None => {
                let counted = Counted { message: info.message, unsure: info.unsure };
                (sequence, Some(counted), info.number)
            }
        };
        Start { sequence, counted, number, left: None }
    }

    /// Leaves the phase JOINING.
    pub(super) fn join(
        &mut self,
        now: Monotonic,
        header: &Header,
        info: &SessionInfo<'_>,
        known_series: Option<Mark>,
        pool: &mut Pool,
        out: &mut impl Deliver,
    ) {
        self.joining.held.sort_unstable_by_key(|(at, ..)| *at);
        self.series = Some(info.series);
        let known = known_series.filter(|mark| mark.series == info.series || mutant("series_kept"));
        let start = self.start(header.sequence, info, known, pool);
        let before = self.delivery.begin(start.number, known, start.left);
        let random = Random::new(self.random.number());
        let first = start.sequence;
        self.phase = Phase::Live;
        let live = &mut self.live;
        let stated = Stated::new(now, header, info).before(first, start.counted, info.begins);
        live.begin(random, first, start.counted, stated, pool);
        let mut out = self.delivery.to(out);
        if let Some(loss) = before {
            out.report(loss);
        }
        // What left the window before we came cannot be repaired.
        let (least, reason) = match header.sequence.since(first) > MAX_QUEUED {
            true if start.left.is_some() => (header.sequence.max(info.trail), LostReason::Silent),
            _ => (info.trail, LostReason::Gone),
        };
        if least > first {
            live.skip_to(least, reason, pool, &mut out);
        }
        for (at, buffer, length) in self.joining.held.drain(..) {
            if at < first {
                pool.give(buffer);
                continue;
            }
            live.data(now, at, buffer, length, pool, &mut out);
        }
        // Until the names so far have come, what uses them waits.
        live.names_due = info.topics;
        self.requests.want_names(now);
        self.requests.status_due = now;
    }
}
