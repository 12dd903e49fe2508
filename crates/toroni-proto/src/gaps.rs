//! Gaps: the datagrams that a receiver misses, and when it asks for each.
//!
//! ```text
//!                 detected                                     arrives, no matter who asked
//!                    │        ┌──────────┐  due   ┌──────────┐ ─────────────────────────► closed
//!                    └──────► │ BACK_OFF │ ─────► │   WAIT   │
//!                             └──────────┘  NAK   └──────────┘ ─────────────────────────► lost
//!                              0 … T, random        ▲      │    deadline, or NCF gone
//!                                                   └──────┘
//!                                         due: NAK again; NCF: wait longer
//! ```
//!
//! The states are those of PGM (RFC 3208, section 6.3). The first pause has the distribution of NORM
//! (RFC 5401, section 3.2.2): of many receivers that miss the same datagram, a few draw a short pause
//! and most a long one. The NAK of the first makes the sender repair it for all, and the others never
//! ask.
//!
//! A receiver has a fixed number of gaps. When there would be one more, the oldest is given up.

use crate::config::Config;
use crate::hook::mutant;
use crate::id::Sequence;
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND, Monotonic};
use crate::wire::{LostReason, MAX_RANGES, NcfReason, Range};

/// The greatest number of gaps.
pub const MAX_GAPS: usize = 1_024;

/// Gaps that are due within this time share a NAK.
const TOGETHER_NS: u64 = MILLISECOND;

/// Sequences that will not be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    /// Which.
    pub range: Range,
    /// Why.
    pub reason: LostReason,
    /// When the gap was noticed.
    pub detected: Monotonic,
}

/// A sequence that arrived after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    /// When the gap was noticed.
    pub detected: Monotonic,
    /// How many NAKs this receiver has sent for it. 0: it was only late, or another receiver asked.
    pub naks: u32,
}

/// What a NAK asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// How many ranges.
    pub ranges: usize,
    /// How often the first of them was asked for before.
    pub tries: u32,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    range: Range,
    detected: Monotonic,
    /// When it is given up, and why.
    deadline: Monotonic,
    reason: LostReason,
    /// When the next NAK is due.
    due: Monotonic,
    naks: u32,
    /// The sender has said that it repairs later, since the last NAK.
    delayed: bool,
}

impl Gap {
    /// Cuts the gap before `at`, if that leaves something on both sides.
    fn split(self, at: Sequence) -> Option<(Self, Self)> {
        let before = Self { range: between(self.range.first(), at)?, ..self };
        let after = Self { range: between(at, self.range.end())?, ..self };
        Some((before, after))
    }
}

/// The range from `first` to before `end`, if there is anything between them.
fn between(first: Sequence, end: Sequence) -> Option<Range> {
    Range::new(first, u32::try_from(end.since(first)).ok()?)
}

/// The gaps of one stream and session, in order.
#[derive(Debug)]
pub struct Gaps {
    /// Never grows beyond [`MAX_GAPS`], for which it has memory.
    list: Vec<Gap>,
    random: Random,
    backoff_first_ns: u64,
    backoff_ns: u64,
    suppress_ns: u64,
    generation_ns: u64,
    /// The longest first pause, which depends on the round trip of the group.
    longest_first_ns: u64,
    receivers: u16,
}

impl Gaps {
    /// Allocates the gaps of one receiver.
    #[must_use]
    pub fn new(config: &Config, random: Random) -> Self {
        Self {
            list: Vec::with_capacity(MAX_GAPS),
            random,
            backoff_first_ns: config.nak_backoff_first_ns,
            backoff_ns: config.nak_backoff_ns,
            suppress_ns: config.nak_suppress_ns,
            generation_ns: config.generation_ns,
            longest_first_ns: config.nak_backoff_first_ns,
            receivers: 0,
        }
    }

    /// Begins again with no gap, in the same memory.
    pub fn restart(&mut self, random: Random) {
        self.list.clear();
        self.random = random;
        self.longest_first_ns = self.backoff_first_ns;
        self.receivers = 0;
    }

    /// Notes what SESSION says about the group: the greatest round trip, and how many receivers there
    /// are.
    pub fn set_group(&mut self, rtt_us: u32, receivers: u16) {
        let four_round_trips = u64::from(rtt_us) * 4 * MICROSECOND;
        // What a stranger states must not keep this receiver from asking in time.
        self.longest_first_ns = four_round_trips.min(self.backoff_ns).max(self.backoff_first_ns);
        self.receivers = receivers;
    }

    /// Returns whether nothing is missing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what is missing, in order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range> {
        self.list.iter().map(|gap| gap.range)
    }

    /// Adds a gap behind all others. If there are too many, gives the oldest one up and returns it.
    ///
    /// # Panics
    ///
    /// If the range is not behind all other gaps.
    pub fn open(&mut self, now: Monotonic, range: Range) -> Option<GivenUp> {
        if let Some(last) = self.list.last_mut() {
            assert!(range.first() >= last.range.end(), "gaps are opened in order");
            // What is noticed at once is one gap.
            let joined = between(last.range.first(), range.end());
            if last.range.end() == range.first()
                && last.detected == now
                && last.naks == 0
                && last.reason == LostReason::Budget
                && let Some(joined) = joined
            {
                last.range = joined;
                return None;
            }
        }
        let given_up = self.is_full().then(|| self.remove(0, LostReason::Burst));
        let due = now.after(self.first_pause());
        self.list.push(Gap {
            range,
            detected: now,
            deadline: now.after(self.generation_ns),
            reason: LostReason::Budget,
            due,
            naks: 0,
            delayed: false,
        });
        given_up
    }

    /// Closes the gap at a sequence that arrived. Returns how it was repaired, if it was missing, and
    /// what had to be given up because a gap became two.
    pub fn arrived(&mut self, sequence: Sequence) -> (Option<Repaired>, Option<GivenUp>) {
        let Some(at) = self.find(sequence) else { return (None, None) };
        let gap = self.list[at];
        let repaired = Repaired { detected: gap.detected, naks: gap.naks };
        let before = between(gap.range.first(), sequence);
        let after = between(sequence.plus(1), gap.range.end());
        let mut given_up = None;
        match (before, after) {
            (None, None) => drop(self.list.remove(at)),
            (Some(rest), None) | (None, Some(rest)) => self.list[at].range = rest,
            (Some(before), Some(after)) => {
                self.list[at].range = before;
                // The oldest gap makes room. It may be the part before.
                let mut place = at + 1;
                if self.is_full() {
                    given_up = Some(self.remove(0, LostReason::Burst));
                    place -= 1;
                }
                self.list.insert(place, Gap { range: after, ..gap });
            }
        }
        (Some(repaired), given_up)
    }

    /// Notes what the sender says about a range: it is gone, or its repair takes longer.
    pub fn answered(&mut self, now: Monotonic, about: Range, answer: NcfReason) {
        self.cut(about.first());
        self.cut(about.end());
        let from = self.list.partition_point(|gap| gap.range.end() <= about.first());
        for at in from..self.list.len() {
            let range = self.list[at].range;
            if range.first() >= about.end() {
                break;
            }
            // If there was no room to cut the gap, it is larger than what the sender speaks of.
            let whole = range.first() >= about.first() && range.end() <= about.end();
            if answer != NcfReason::Gone && mutant("nak_forgets_suppression") {
                continue;
            }
            if answer != NcfReason::Gone {
                // That the queue of another receiver is long says nothing about ours. And one that asks without
                // end must not keep us from asking again: after each NAK one answer counts.
                let gap = &mut self.list[at];
                let ours = answer == NcfReason::Ignored || gap.naks > 0 || mutant("ncf_for_all");
                if ours && (!gap.delayed || mutant("ncf_again_and_again")) {
                    gap.delayed = true;
                    gap.due = now.after(spread(&mut self.random, self.suppress_ns));
                }
            } else if whole {
                let gap = &mut self.list[at];
                gap.deadline = gap.deadline.min(now);
                gap.reason = LostReason::Gone;
            }
        }
    }

    /// Notes the sender's trail. What is before it cannot be repaired, unless a repair is on its way:
    /// it is given up after one more NAK pause.
    pub fn trail(&mut self, now: Monotonic, trail: Sequence) {
        self.cut(trail);
        let limit = now.after(self.backoff_ns);
        for gap in self.list.iter_mut().take_while(|gap| gap.range.end() <= trail) {
            if gap.deadline > limit {
                gap.deadline = limit;
                gap.reason = LostReason::Gone;
            }
        }
    }

    /// Collects what a NAK should ask for now, if there is anything. Then the caller sends it and calls again.
    pub fn nak(&mut self, now: Monotonic, ranges: &mut [Range; MAX_RANGES]) -> Option<Asked> {
        let is_open = |gap: &Gap| gap.deadline > now;
        if !self.list.iter().any(|gap| is_open(gap) && gap.due <= now) {
            return None;
        }
        let mut tries = None;
        let soon = now.after(TOGETHER_NS);
        let mut count: usize = 0;
        for gap in self.list.iter_mut().filter(|gap| is_open(gap) && gap.due <= soon) {
            let previous = count.checked_sub(1).and_then(|last| ranges.get_mut(last));
            let joined = previous.and_then(|previous| {
                let touches = previous.end() == gap.range.first();
                let joined = between(previous.first(), gap.range.end());
                joined.filter(|_| touches).map(|joined| *previous = joined)
            });
            if joined.is_none() {
                let Some(next) = ranges.get_mut(count) else { break };
                *next = gap.range;
                count += 1;
            }
            tries.get_or_insert(gap.naks);
            gap.naks = gap.naks.saturating_add(1);
            gap.delayed = false;
            gap.due = now.after(spread(&mut self.random, self.backoff_ns));
        }
        Some(Asked { ranges: count, tries: tries? })
    }

    /// Returns the next gap whose time is over, and forgets it. The caller calls again until there is
    /// none.
    pub fn give_up(&mut self, now: Monotonic) -> Option<GivenUp> {
        let at = self.list.iter().position(|gap| gap.deadline <= now)?;
        let reason = self.list[at].reason;
        Some(self.remove(at, reason))
    }

    /// Gives the oldest gap up, because something that waits behind it needs more memory than there
    /// is.
    pub fn give_up_oldest(&mut self) -> Option<GivenUp> {
        (!self.is_empty()).then(|| self.remove(0, LostReason::Memory))
    }

    /// Returns when [`Self::nak`] or [`Self::give_up`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.list.iter().map(|gap| gap.due.min(gap.deadline)).min()
    }

    /// Returns when [`Self::give_up`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Monotonic> {
        self.list.iter().map(|gap| gap.deadline).min()
    }

    /// Moves all times by the time that this process did not run: its own sleep is not a loss.
    pub fn postpone(&mut self, by_ns: u64) {
        for gap in &mut self.list {
            gap.deadline = gap.deadline.after(by_ns);
            gap.due = gap.due.after(by_ns);
        }
    }

    const fn is_full(&self) -> bool {
        self.list.len() >= MAX_GAPS
    }

    /// The place of the gap that contains a sequence.
    fn find(&self, sequence: Sequence) -> Option<usize> {
        let at = self.list.partition_point(|gap| gap.range.end() <= sequence);
        self.list.get(at).is_some_and(|gap| gap.range.first() <= sequence).then_some(at)
    }

    /// Makes two gaps of the one around `sequence`, if there is room.
    fn cut(&mut self, sequence: Sequence) {
        if self.is_full() {
            return;
        }
        if let Some(at) = self.find(sequence)
            && let Some((before, after)) = self.list[at].split(sequence)
        {
            self.list[at] = before;
            self.list.insert(at + 1, after);
        }
    }

    fn remove(&mut self, at: usize, reason: LostReason) -> GivenUp {
        let Gap { range, detected, .. } = self.list.remove(at);
        GivenUp { range, reason, detected }
    }

    /// Draws the pause before the first NAK: the truncated exponential distribution of RFC 5401.
    fn first_pause(&mut self) -> u64 {
        let group = f64::from(self.receivers.max(10));
        let lambda = group.ln() + 1.0;
        let fraction = (self.random.fraction() * lambda.exp_m1()).ln_1p() / lambda;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a pause needs no more than 53 bits, and a cast to an integer saturates"
        )]
        let pause = (self.longest_first_ns as f64 * fraction) as u64;
        pause.min(self.longest_first_ns)
    }
}

/// Draws a pause between half of the mean and one and a half.
fn spread(random: &mut Random, mean_ns: u64) -> u64 {
    random.between(mean_ns / 2, mean_ns.saturating_add(mean_ns / 2))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::samples::sequence;

    const MS: u64 = MILLISECOND;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(1_000 * MS).after(ms * MS)
    }

    fn range(first: u64, count: u32) -> Range {
        Range::new(sequence(first), count).unwrap()
    }

    fn gaps() -> Gaps {
        Gaps::new(&Config::default(), Random::new(7))
    }

    /// One NAK, as (first, count).
    fn nak(gaps: &mut Gaps, now: Monotonic) -> Vec<(u64, u32)> {
        let mut ranges = [range(0, 1); MAX_RANGES];
        let count = gaps.nak(now, &mut ranges).map_or(0, |asked| asked.ranges);
        pairs(ranges[..count].iter().copied())
    }

    fn pairs(ranges: impl IntoIterator<Item = Range>) -> Vec<(u64, u32)> {
        ranges.into_iter().map(|range| (range.first().get(), range.count())).collect()
    }

    fn given_up(gaps: &mut Gaps, now: Monotonic) -> Vec<(u64, u32, LostReason)> {
        std::iter::from_fn(|| gaps.give_up(now))
            .map(|lost| (lost.range.first().get(), lost.range.count(), lost.reason))
            .collect()
    }

    #[test]
    fn a_gap_is_asked_for_after_a_short_pause_again_and_again_and_then_given_up() {
        let mut gaps = gaps();
        assert_eq!(gaps.poll_timeout(), None);
        assert_eq!(gaps.open(at(0), range(10, 3)), None);
        let mut times = Vec::new();
        let end = loop {
            let now = gaps.poll_timeout().unwrap();
            let asked = nak(&mut gaps, now);
            if asked.is_empty() {
                break now;
            }
            assert_eq!(asked, [(10, 3)]);
            times.push(now.since(at(0)));
        };
        assert_eq!(end, at(500));
        assert!(times[0] <= 2 * MS, "{times:?}");
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| (10 * MS..=30 * MS).contains(pause)), "{pauses:?}");
        assert!(pauses.len() >= 16, "{pauses:?}");
        assert_eq!(given_up(&mut gaps, at(499)), []);
        assert_eq!(given_up(&mut gaps, at(500)), [(10, 3, LostReason::Budget)]);
        assert!(gaps.is_empty());
    }

    #[test]
    fn what_arrives_is_cut_out_of_its_gap_and_the_rest_keeps_its_times() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 5));
        let due = gaps.poll_timeout().unwrap();
        let never = Some(Repaired { detected: at(0), naks: 0 });
        assert_eq!(gaps.arrived(sequence(12)), (never, None));
        assert_eq!(pairs(gaps.ranges()), [(10, 2), (13, 2)]);
        assert_eq!(gaps.poll_timeout(), Some(due));
        assert_eq!(nak(&mut gaps, due), [(10, 2), (13, 2)]);
        let once = Some(Repaired { detected: at(0), naks: 1 });
        assert_eq!(gaps.arrived(sequence(10)), (once, None));
        assert_eq!(gaps.arrived(sequence(14)), (once, None));
        assert_eq!(pairs(gaps.ranges()), [(11, 1), (13, 1)]);
        for known in [9, 10, 12, 14, 15] {
            assert_eq!(gaps.arrived(sequence(known)), (None, None));
        }
        gaps.arrived(sequence(11));
        gaps.arrived(sequence(13));
        assert!(gaps.is_empty());
    }

    #[test]
    fn gaps_that_are_noticed_together_are_one_and_later_ones_keep_their_own_deadline() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 2));
        gaps.open(at(0), range(12, 2));
        assert_eq!(pairs(gaps.ranges()), [(10, 4)]);
        gaps.open(at(100), range(14, 1));
        assert_eq!(pairs(gaps.ranges()), [(10, 4), (14, 1)]);
        // What touches is one range for the sender.
        assert_eq!(nak(&mut gaps, at(102)), [(10, 5)]);
        assert_eq!(given_up(&mut gaps, at(500)), [(10, 4, LostReason::Budget)]);
        assert_eq!(given_up(&mut gaps, at(600)), [(14, 1, LostReason::Budget)]);
    }

    #[test]
    fn gaps_that_are_due_within_a_millisecond_share_a_nak() {
        let mut gaps = gaps();
        for place in 0..100 {
            gaps.open(at(0), range(place * 2, 1));
        }
        // All pauses are at most 2 ms, so all are due 1 ms later at the latest.
        assert_eq!(nak(&mut gaps, at(1)).len(), MAX_RANGES);
        let rest = nak(&mut gaps, at(1));
        assert_eq!(rest.first(), Some(&(128, 1)));
        assert_eq!(rest.len(), 100 - MAX_RANGES);
        assert_eq!(nak(&mut gaps, at(1)), []);
    }

    #[test]
    fn while_the_sender_repairs_the_receiver_keeps_quiet() {
        for answer in [NcfReason::Ignored, NcfReason::Delayed, NcfReason::Shed] {
            let mut gaps = gaps();
            gaps.open(at(0), range(10, 10));
            assert_eq!(nak(&mut gaps, at(2)), [(10, 10)]);
            gaps.answered(at(2), range(12, 3), answer);
            assert_eq!(pairs(gaps.ranges()), [(10, 2), (12, 3), (15, 5)]);
            // A NAK is repeated after 10 to 30 ms, and after such an answer 25 to 75 ms.
            let mut first = None;
            while let Some(now) = gaps.poll_timeout().filter(|now| *now <= at(77)) {
                let asked = nak(&mut gaps, now);
                let has =
                    |(first, count): &(u64, u32)| (*first..first + u64::from(*count)).contains(&12);
                if asked.iter().any(has) {
                    first.get_or_insert(now.since(at(2)));
                }
            }
            assert!(first.is_some_and(|pause| pause >= 24 * MS), "{answer:?}: {first:?}");
        }
    }

    /// A receiver with much loss has a long queue, and the others queues of their own.
    #[test]
    fn what_the_sender_says_to_others_keeps_no_receiver_from_asking() {
        for (answer, asks) in [
            (NcfReason::Delayed, true),
            (NcfReason::Shed, true),
            // The repair is on its way to all.
            (NcfReason::Ignored, false),
        ] {
            let mut gaps = gaps();
            gaps.open(at(0), range(10, 3));
            gaps.answered(at(0), range(10, 3), answer);
            assert_eq!(!nak(&mut gaps, at(2)).is_empty(), asks, "{answer:?}");
        }
    }

    #[test]
    fn however_often_others_ask_a_receiver_asks_again() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 3));
        assert_eq!(nak(&mut gaps, at(2)), [(10, 3)]);
        let again = (3..200).find(|ms| {
            gaps.answered(at(*ms), range(10, 3), NcfReason::Shed);
            !nak(&mut gaps, at(*ms)).is_empty()
        });
        assert!(again.is_some_and(|ms| ms <= 3 + 75), "{again:?}");
    }

    #[test]
    fn what_is_gone_is_given_up_at_once_and_only_that() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 10));
        gaps.open(at(1), range(30, 5));
        gaps.answered(at(2), range(15, 17), NcfReason::Gone);
        let lost = given_up(&mut gaps, at(2));
        assert_eq!(lost, [(15, 5, LostReason::Gone), (30, 2, LostReason::Gone)]);
        assert_eq!(pairs(gaps.ranges()), [(10, 5), (32, 3)]);
        gaps.answered(at(2), range(100, 5), NcfReason::Gone);
        assert_eq!(given_up(&mut gaps, at(2)), []);
    }

    #[test]
    fn what_the_trail_has_passed_has_one_more_pause() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 10));
        gaps.trail(at(100), sequence(14));
        assert_eq!(given_up(&mut gaps, at(119)), []);
        // The same trail again gives no more time.
        gaps.trail(at(110), sequence(14));
        assert_eq!(given_up(&mut gaps, at(120)), [(10, 4, LostReason::Gone)]);
        assert_eq!(pairs(gaps.ranges()), [(14, 6)]);
        // Where the deadline is nearer, that remains the reason.
        gaps.trail(at(490), sequence(99));
        assert_eq!(given_up(&mut gaps, at(500)), [(14, 6, LostReason::Budget)]);
    }

    #[test]
    fn without_repairs_nothing_is_asked_for() {
        let config = Config { generation_ns: 0, ..Config::default() };
        let mut gaps = Gaps::new(&config, Random::new(1));
        gaps.open(at(0), range(10, 2));
        assert_eq!(gaps.poll_timeout(), Some(at(0)));
        assert_eq!(nak(&mut gaps, at(5)), []);
        assert_eq!(given_up(&mut gaps, at(0)), [(10, 2, LostReason::Budget)]);
    }

    #[test]
    fn the_oldest_gap_makes_room_for_one_too_many() {
        let mut gaps = gaps();
        for place in 0..1_024 {
            assert_eq!(gaps.open(at(0), range(place * 10, 5)), None);
        }
        let lost = |first, count| {
            let reason = LostReason::Burst;
            Some(GivenUp { range: range(first, count), reason, detected: at(0) })
        };
        assert_eq!(gaps.open(at(1), range(20_000, 1)), lost(0, 5));
        // A split needs room too, and the oldest may be the one that is split.
        assert_eq!(gaps.arrived(sequence(505)).1, None, "not in a gap");
        assert_eq!(gaps.arrived(sequence(502)).1, lost(10, 5));
        assert_eq!(gaps.arrived(sequence(22)).1, lost(20, 2));
        assert_eq!(gaps.ranges().len(), MAX_GAPS);
        assert_eq!(pairs(gaps.ranges().take(1)), [(23, 2)]);
        // Without room for a cut, a part that is gone is asked for again, and not lost with the rest.
        gaps.answered(at(2), range(31, 2), NcfReason::Gone);
        assert_eq!(given_up(&mut gaps, at(2)), []);
        assert_eq!(gaps.give_up_oldest().map(|lost| lost.reason), Some(LostReason::Memory));
    }

    #[test]
    fn ones_own_sleep_is_not_a_loss() {
        let mut gaps = gaps();
        gaps.open(at(0), range(10, 2));
        gaps.postpone(1_000 * MS);
        assert_eq!(given_up(&mut gaps, at(1_499)), []);
        assert!(gaps.poll_timeout().unwrap() >= at(1_000));
        assert_eq!(given_up(&mut gaps, at(1_500)).len(), 1);
    }

    #[test]
    fn most_receivers_of_a_group_wait_for_the_nak_of_a_few() {
        let mut gaps = gaps();
        let pauses: Vec<u64> = (0..10_000).map(|_| gaps.first_pause()).collect();
        assert!(pauses.iter().all(|pause| *pause <= 2 * MS));
        let early = pauses.iter().filter(|pause| **pause < MS).count();
        // (e^(λ/2) − 1) / (e^λ − 1) with λ = ln 10 + 1 is 16.1 %.
        assert!((1_400..1_850).contains(&early), "{early}");
        gaps.set_group(0, 1_000);
        let early = (0..10_000).filter(|_| gaps.first_pause() < MS).count();
        // With λ = ln 1000 + 1: 1.9 %.
        assert!((130..260).contains(&early), "{early}");
    }

    #[test]
    fn a_long_round_trip_makes_the_first_pause_longer_up_to_the_usual_one() {
        let mut gaps = gaps();
        gaps.set_group(3_000, 10);
        let longest = (0..1_000).map(|_| gaps.first_pause()).max();
        assert!(longest.is_some_and(|pause| (11 * MS..=12 * MS).contains(&pause)), "{longest:?}");
        gaps.set_group(u32::MAX, u16::MAX);
        let longest = (0..1_000).map(|_| gaps.first_pause()).max();
        assert!(longest.is_some_and(|pause| pause <= 20 * MS), "{longest:?}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Open { skip: u64, count: u32 },
        Arrive(u64),
        Answer { first: u64, count: u32, gone: bool },
        Trail(u64),
        Sleep(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            3 => (0..4_u64, 1..20_u32).prop_map(|(skip, count)| Step::Open { skip, count }),
            6 => (0..400_u64).prop_map(Step::Arrive),
            2 => (0..400_u64, 1..50_u32, any::<bool>())
                .prop_map(|(first, count, gone)| Step::Answer { first, count, gone }),
            1 => (0..300_u64).prop_map(Step::Trail),
            3 => (0..40_u64).prop_map(Step::Sleep),
        ];
        prop::collection::vec(one, 1..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Compares the gaps with a set of integers.
        #[test]
        fn the_gaps_are_exactly_what_is_missing(steps in steps(), seed: u64) {
            let first = 1 << 62;
            let mut gaps = Gaps::new(&Config::default(), Random::new(seed));
            let mut missing: BTreeSet<u64> = BTreeSet::new();
            let mut next = first;
            let mut now = at(0);
            for step in steps {
                match step {
                    Step::Open { skip, count } => {
                        let start = next + skip;
                        next = start + u64::from(count);
                        missing.extend(start..next);
                        prop_assert_eq!(gaps.open(now, range(start, count)), None);
                    }
                    Step::Arrive(offset) => {
                        let (repaired, lost) = gaps.arrived(sequence(first + offset));
                        prop_assert_eq!(repaired.is_some(), missing.remove(&(first + offset)));
                        prop_assert_eq!(lost, None);
                    }
                    Step::Answer { first: offset, count, gone } => {
                        let answer = if gone { NcfReason::Gone } else { NcfReason::Delayed };
                        let about = range(first + offset, count);
                        gaps.answered(now, about, answer);
                        if gone {
                            let is_gone = |at: &u64| {
                                (about.first().get()..about.end().get()).contains(at)
                            };
                            let wanted: Vec<u64> =
                                missing.iter().copied().filter(is_gone).collect();
                            let mut lost = Vec::new();
                            while let Some(given_up) = gaps.give_up(now) {
                                if given_up.reason == LostReason::Gone {
                                    lost.extend(
                                        given_up.range.first().get()..given_up.range.end().get(),
                                    );
                                }
                                for at in given_up.range.first().get()..given_up.range.end().get() {
                                    prop_assert!(missing.remove(&at));
                                }
                            }
                            // The trail may have ended others at this moment.
                            prop_assert!(wanted.iter().all(|at| !missing.contains(at)));
                            prop_assert!(lost.is_sorted());
                        }
                    }
                    Step::Trail(offset) => gaps.trail(now, sequence(first + offset)),
                    Step::Sleep(ms) => {
                        now = now.after(ms * MS);
                        loop {
                            let asked = nak(&mut gaps, now);
                            if asked.is_empty() {
                                break;
                            }
                            for pair in asked.windows(2) {
                                prop_assert!(pair[0].0 + u64::from(pair[0].1) < pair[1].0);
                            }
                            for (first, count) in asked {
                                let asked = first..first + u64::from(count);
                                prop_assert!(asked.into_iter().all(|at| missing.contains(&at)));
                            }
                        }
                        while let Some(given_up) = gaps.give_up(now) {
                            for at in given_up.range.first().get()..given_up.range.end().get() {
                                prop_assert!(missing.remove(&at));
                            }
                        }
                        // Whatever is still open has a time at which something happens.
                        prop_assert_eq!(gaps.poll_timeout().is_some(), !gaps.is_empty());
                        prop_assert!(gaps.poll_timeout().is_none_or(|at| at > now));
                    }
                }
                let found: Vec<u64> = gaps
                    .ranges()
                    .flat_map(|range| range.first().get()..range.end().get())
                    .collect();
                prop_assert!(found.is_sorted());
                prop_assert_eq!(found, missing.iter().copied().collect::<Vec<_>>());
            }
            let end = now.after(500 * MS);
            while gaps.give_up(end).is_some() {}
            prop_assert!(gaps.is_empty(), "nothing is missing for longer than the interval");
        }
    }
}
