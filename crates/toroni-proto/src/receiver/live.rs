//! A session that is followed: from DATA and SESSION to gaps, and from gaps to losses.

use super::Position;
use super::delivery::Out;
use crate::config::Config;
use crate::gaps::{Gaps, GivenUp};
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Sequence};
use crate::random::Random;
use crate::reassembly::{AHEAD, Arrival, Buffer, Counted, Deliver, Pool, Reassembly, Refused};
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::{Flags, Header, LostReason, Ncf, Policy, Range, Repairers, SessionInfo};

/// What SESSION said last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    sequence: Sequence,
    counted: Counted,
    number: Number,
    pub(super) arrived: Monotonic,
    pub(super) policy: Policy,
    pub(super) receivers: u16,
    pub(super) next_ns: u64,
    ended: bool,
    pub(super) sealed: bool,
    /// Who repairs, besides the sender.
    pub(super) repairers: Repairers,
}

impl Stated {
    const NOTHING: Self = Self {
        sequence: Sequence::ZERO,
        counted: Counted { message: MessageNumber::ZERO, unsure: 0 },
        number: Number::ZERO,
        arrived: Monotonic::from_ns(0),
        policy: Policy::Bounded,
        receivers: 0,
        next_ns: 0,
        ended: false,
        sealed: false,
        repairers: Repairers::NONE,
    };

    pub(super) fn new(now: Monotonic, header: &Header, info: &SessionInfo<'_>) -> Self {
        Self {
            sequence: header.sequence,
            counted: Counted { message: info.message, unsure: info.unsure },
            number: info.number,
            arrived: now,
            policy: info.policy,
            receivers: info.receivers,
            next_ns: u64::from(info.next_ms) * MILLISECOND,
            ended: header.flags.has(Flags::END),
            sealed: header.flags.has(Flags::SEALED),
            repairers: info.repairers.into(),
        }
    }

    /// The same without its counts: what was before `first` is not missing, and the rest is taken in its turn.
    pub(super) fn before(self, first: Sequence, counted: Option<Counted>, begins: Number) -> Self {
        let counted = counted.unwrap_or_default();
        Self { sequence: first, counted, number: begins, ended: false, ..self }
    }
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) reassembly: Reassembly,
    pub(super) gaps: Gaps,
    /// The greatest sequence that is accounted for, plus 1.
    pub(super) next: Sequence,
    /// A datagram or SESSION that is too far ahead to be believed alone.
    jump: Option<Sequence>,
    pub(super) stated: Stated,
    /// When the datagrams that wait for names are given up.
    pub(super) names_until: Option<Monotonic>,
    /// All names below should be known.
    pub(super) names_due: u32,
}

impl Live {
    /// Allocates what a session needs.
    pub(super) fn new(config: &Config) -> Self {
        let datagram = config.datagram_bytes.max(1);
        let held_max =
            usize::try_from(config.reorder_memory_bytes / datagram).unwrap_or(usize::MAX);
        Self {
            reassembly: Reassembly::new(config.order, held_max),
            gaps: Gaps::new(config, Random::new(0)),
            next: Sequence::ZERO,
            jump: None,
            stated: Stated::NOTHING,
            names_until: None,
            names_due: 0,
        }
    }

    /// Begins a session at `first`. `counted` is what was counted there, if that is known.
    pub(super) fn begin(
        &mut self,
        random: Random,
        first: Sequence,
        counted: Option<Counted>,
        stated: Stated,
        pool: &mut Pool,
    ) {
        self.reassembly.restart(pool, first, counted);
        self.gaps.restart(random);
        self.next = first;
        self.jump = None;
        self.stated = stated;
        self.names_until = None;
        self.names_due = 0;
    }

    /// Takes DATA. Returns whether it is new.
    pub(super) fn data<D: Deliver>(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) -> bool {
        if sequence >= self.next.plus(AHEAD as u64) && !mutant("jump_unlimited") {
            match self.jump {
                Some(before) if sequence > before && sequence.since(before) < AHEAD as u64 => {
                    self.jump_to(before, pool, out);
                }
                _ => {
                    self.jump = Some(sequence);
                    pool.give(buffer);
                    return false;
                }
            }
        } else if sequence >= self.next.minus(AHEAD as u64) {
            self.jump = None;
        }
        if sequence >= self.next {
            self.missing(now, self.next, sequence, pool, out);
            self.next = if mutant("high_water_off_by_one") { sequence } else { sequence.plus(1) };
        }
        pool.arrived(&buffer, now);
        let Some(arrival) = self.keep(now, sequence, buffer, length, pool, out) else {
            return false;
        };
        let counters = &mut out.delivery.counters;
        if arrival == Arrival::Duplicate {
            counters.duplicates += 1;
        } else if !self.gaps.is_empty() {
            let (repaired, lost) = self.gaps.arrived(sequence);
            if let Some(repaired) = repaired {
                counters.repaired += 1;
                let took = now.since(repaired.detected);
                counters.repair_max_ns = counters.repair_max_ns.max(took);
                out.delivery.timing.repaired(sequence, repaired.detected);
            }
            if let Some(lost) = lost {
                self.given_up(&lost, pool, out);
            }
        }
        if out.named {
            self.retry(false, pool, out);
        }
        self.after_turn(pool, out);
        arrival != Arrival::Duplicate
    }

    /// Gives a datagram to the reassembly, and makes room for it if it must. Returns `None` if there is none.
    fn keep<D: Deliver>(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) -> Option<Arrival> {
        let mut buffer = buffer;
        loop {
            match self.reassembly.datagram(pool, sequence, buffer, length, out) {
                Ok(arrival) => return Some(arrival),
                Err(refused) => {
                    // While the caller has no room, giving up a gap makes none here. Only what is too far ahead to be
                    // remembered as missing makes what waits be delivered nevertheless.
                    let waits = out.delivery.paused && matches!(refused, Refused::Full(_));
                    let (Refused::Full(back) | Refused::TooFar(back)) = refused;
                    if waits || !self.shed(pool, out) {
                        out.delivery.counters.dropped += 1;
                        // Its sequence is asked for again.
                        self.missing_again(now, sequence, pool, out);
                        pool.give(back);
                        return None;
                    }
                    buffer = back;
                }
            }
        }
    }

    pub(super) fn session<D: Deliver>(
        &mut self,
        now: Monotonic,
        header: &Header,
        info: &SessionInfo<'_>,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let sequence = header.sequence;
        // One that was overtaken by a later one says nothing new.
        if sequence < self.stated.sequence || info.message < self.stated.counted.message {
            return;
        }
        if sequence >= self.next.plus(AHEAD as u64) {
            match self.jump {
                Some(before) if sequence >= before => self.jump_to(before, pool, out),
                _ => {
                    self.jump = Some(sequence);
                    return;
                }
            }
            if sequence >= self.next.plus(AHEAD as u64) {
                return;
            }
        }
        self.gaps.set_group(info.rtt_us, info.receivers);
        if sequence > self.next {
            self.missing(now, self.next, sequence, pool, out);
            self.next = sequence;
        }
        self.gaps.trail(now, info.trail);
        self.stated = Stated::new(now, header, info);
        self.after_turn(pool, out);
        if self.reassembly.next() >= sequence {
            self.names_due = self.names_due.max(info.topics);
        }
    }

    pub(super) fn ncf(&mut self, now: Monotonic, ncf: &Ncf<'_>) {
        if self.gaps.is_empty() {
            return;
        }
        for range in ncf.ranges.iter() {
            self.gaps.answered(now, range, ncf.reason);
        }
    }

    /// Delivers what waited for names that are known now, or with `force` all that waits for names.
    pub(super) fn retry<D: Deliver>(&mut self, force: bool, pool: &mut Pool, out: &mut Out<'_, D>) {
        out.named = false;
        self.reassembly.retry(pool, force, out);
        self.after_turn(pool, out);
    }

    /// Opens a gap from `first` to before `end`.
    fn missing<D: Deliver>(
        &mut self,
        now: Monotonic,
        first: Sequence,
        end: Sequence,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let count = u32::try_from(end.since(first)).unwrap_or(u32::MAX);
        let Some(range) = Range::new(first, count) else { return };
        if let Some(lost) = self.gaps.open(now, range) {
            self.given_up(&lost, pool, out);
        }
    }

    /// A datagram came but could not be kept. If it was the newest, it becomes a gap; else it still is one.
    fn missing_again<D: Deliver>(
        &mut self,
        now: Monotonic,
        sequence: Sequence,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        let is_newest = sequence.plus(1) == self.next;
        let is_gap = self.gaps.ranges().any(|range| range.end() > sequence);
        if is_newest && !is_gap {
            self.missing(now, sequence, self.next, pool, out);
        }
    }

    fn given_up<D: Deliver>(&mut self, lost: &GivenUp, pool: &mut Pool, out: &mut Out<'_, D>) {
        self.reassembly.give_up(pool, lost.range, lost.reason, out);
        self.after_turn(pool, out);
    }

    /// Gives up all gaps whose time is over.
    pub(super) fn expire<D: Deliver>(
        &mut self,
        now: Monotonic,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        while let Some(lost) = self.gaps.give_up(now) {
            self.given_up(&lost, pool, out);
        }
    }

    /// Makes room. Returns whether it could.
    pub(super) fn shed<D: Deliver>(&mut self, pool: &mut Pool, out: &mut Out<'_, D>) -> bool {
        if self.reassembly.is_blocked() {
            self.retry(true, pool, out);
            return true;
        }
        let Some(lost) = self.gaps.give_up_oldest() else { return false };
        self.given_up(&lost, pool, out);
        true
    }

    /// Believes that the stream has gone far ahead.
    fn jump_to<D: Deliver>(&mut self, sequence: Sequence, pool: &mut Pool, out: &mut Out<'_, D>) {
        self.jump = None;
        self.skip_to(sequence, LostReason::Jump, pool, out);
    }

    /// Gives up all before `sequence` that has not arrived.
    pub(super) fn skip_to<D: Deliver>(
        &mut self,
        sequence: Sequence,
        reason: LostReason,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) {
        while self.gaps.give_up_oldest().is_some() {}
        self.reassembly.skip_to(pool, sequence, reason, out);
        self.next = self.next.max(sequence);
    }

    /// Reports all that is known to be missing. Returns where the session was left.
    pub(super) fn give_up_all<D: Deliver>(
        &mut self,
        reason: LostReason,
        pool: &mut Pool,
        out: &mut Out<'_, D>,
    ) -> Position {
        self.skip_to(self.next, reason, pool, out);
        self.after_turn(pool, out);
        self.position(out.delivery.skip)
    }

    /// Returns where the session is, if nothing is missing.
    pub(super) fn position(&self, skip: Number) -> Position {
        let counted = self.reassembly.counted().unwrap_or(self.stated.counted);
        Position { sequence: self.next, counted, skip }
    }

    /// Whether the session has ended, with all that came before.
    pub(super) fn is_complete(&self) -> bool {
        let has_all = self.reassembly.next() >= self.stated.sequence && self.gaps.is_empty();
        self.stated.ended && (has_all || mutant("end_closes_gaps"))
    }

    /// If all before the last SESSION had their turn, what is missing is lost, although no datagram follows.
    fn after_turn<D: Deliver>(&mut self, pool: &mut Pool, out: &mut Out<'_, D>) {
        let Stated { sequence, counted, number, .. } = self.stated;
        if self.reassembly.next() == sequence {
            self.reassembly.session(pool, sequence, counted, number, out);
            // If nothing is being collected, all that the source has taken from its bus had its turn.
            if self.reassembly.next_message() == Some(counted.message) {
                out.delivery.raise_mark(Some(number));
            }
        }
        let settled = self.reassembly.settled();
        out.delivery.raise_mark(settled.map(|number| number.plus(1)));
    }
}
