//! What only several subscribers together show: that all saw one order, and that all that publishers
//! were told to be published is in it.

use super::mix::{Filter, LANES};
use super::verifier::{Kind, Progress, STRETCH, Stretch, Violation};
use std::collections::{BTreeMap, HashMap};

/// Stretches before the newest that are remembered: a subscriber that was stopped for seconds still finds
/// its own among them.
pub const KEPT: u64 = 1 << 16;

/// The one order, as all subscribers tell it.
#[derive(Debug, Default)]
pub struct Order {
    stretches: BTreeMap<u64, Entry>,
    /// Stretches before this one are forgotten.
    start: u64,
    /// Stretches that no subscriber saw completely in all lanes, as merged half-open ranges.
    unseen: Vec<(u64, u64)>,
    progress: HashMap<u32, Seen>,
    ended: Vec<Ended>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries that were found to be as another subscriber saw them.
    pub compared: u64,
    /// Stretches that two or more subscribers reported alike.
    pub stretches: u64,
    /// Stretches of which no subscriber saw all messages of all lanes.
    pub unseen: u64,
    /// Stretches that were reported when they had been forgotten.
    pub late: u64,
    /// Publishers whose last message was found to be the one that the bus had confirmed.
    pub ends: u64,
    /// Publishers whose last messages no subscriber saw.
    pub ends_unseen: u64,
}

/// A publisher that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub worker: u32,
    /// Messages that the bus had confirmed to it.
    pub told: u64,
    /// How many more there may be, of the call in which it was killed.
    pub more: u64,
    /// How many messages the bus had seen when it was gone.
    pub sequence: u64,
}

/// How far a publisher was seen to have come.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    next: u64,
    /// Where it was last seen by somebody who knew exactly how far it had come.
    sequence: u64,
    /// Where it was last seen by somebody who did not.
    vague: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// Count, sum, and the subscriber that reported it first.
    lanes: [Option<(u64, u64, u32)>; LANES],
    is_whole: bool,
    is_compared: bool,
}

impl Order {
    /// Takes a stretch, as subscriber `who` saw it who asked for `filter`.
    ///
    /// # Errors
    /// If another saw it otherwise.
    pub fn take(&mut self, who: u32, filter: Filter, stretch: &Stretch) -> Result<(), Violation> {
        if stretch.number < self.start {
            self.counts.late += 1;
            return Ok(());
        }
        let entry = self.stretches.entry(stretch.number).or_default();
        entry.is_whole |= filter.is_all();
        for lane in filter.lanes() {
            let (count, sum) = stretch.lanes[lane.number()];
            let Some((known_count, known_sum, other)) = entry.lanes[lane.number()] else {
                entry.lanes[lane.number()] = Some((count, sum, who));
                continue;
            };
            if (known_count, known_sum) != (count, sum) {
                let kind = if known_count == count { Kind::Order } else { Kind::Missing };
                let from = stretch.number * STRETCH;
                return Err(Violation {
                    kind,
                    evidence: format!(
                        "of sequences {from} to {}, worker {who} saw {count} messages of {lane:?} with the \
                         sum {sum:016x}, and worker {other} {known_count} with the sum {known_sum:016x}",
                        from + STRETCH - 1
                    ),
                });
            }
            self.counts.compared += count;
            self.counts.stretches += u64::from(!entry.is_compared);
            entry.is_compared = true;
        }
        let oldest = stretch.number.saturating_sub(KEPT);
        self.forget_before(oldest)
    }

    /// A publisher was seen to have come so far.
    pub fn progress(&mut self, worker: u32, progress: Progress) {
        let seen = self.progress.entry(worker).or_default();
        seen.next = seen.next.max(progress.next);
        let latest = if progress.is_exact { &mut seen.sequence } else { &mut seen.vague };
        *latest = progress.sequence.max(*latest);
    }

    /// A publisher has ended. Its end is checked when all subscribers have reported it.
    pub fn ended(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// All reports have been taken, and the bus has seen `end` messages.
    ///
    /// # Errors
    /// If messages of a publisher that has ended are missing.
    pub fn finish(&mut self, end: u64) -> Result<(), Violation> {
        self.forget_before(end / STRETCH)?;
        let ended = std::mem::take(&mut self.ended);
        ended.iter().try_for_each(|ended| self.check_end(ended))
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn forget_before(&mut self, oldest: u64) -> Result<(), Violation> {
        if oldest <= self.start {
            return Ok(());
        }
        for number in self.start..oldest {
            if !self.stretches.remove(&number).is_some_and(|entry| entry.is_whole) {
                self.counts.unseen += 1;
                match self.unseen.last_mut() {
                    Some((_, end)) if *end == number => *end += 1,
                    _ => self.unseen.push((number, number + 1)),
                }
            }
        }
        self.start = oldest;
        let is_due = |ended: &Ended| ended.sequence / STRETCH < oldest;
        let (due, later) = self.ended.drain(..).partition(is_due);
        self.ended = later;
        let due: Vec<Ended> = due;
        due.iter().try_for_each(|ended| self.check_end(ended))
    }

    /// Checks that all messages that were confirmed to it are in the order, and at most those of the call in which it died.
    fn check_end(&mut self, ended: &Ended) -> Result<(), Violation> {
        let Ended { worker, told, more, sequence } = *ended;
        let seen = self.progress.remove(&worker);
        let next = seen.map_or(0, |seen| seen.next);
        let evidence = |what| {
            format!(
                "worker {worker} was told that {told} messages are published, and {what} ({seen:?})"
            )
        };
        if next > told + more {
            return Err(Violation { kind: Kind::Doubled, evidence: evidence("more came") });
        }
        if next >= told {
            self.counts.ends += 1;
            return Ok(());
        }
        // Where it was seen last, up to where it had surely ended.
        let from = seen.map_or(0, |seen| seen.sequence / STRETCH);
        let first = self.unseen.partition_point(|(_, end)| *end <= from);
        let is_hidden =
            self.unseen.get(first).is_some_and(|(start, _)| *start <= sequence / STRETCH)
                || seen.is_some_and(|seen| seen.vague > seen.sequence);
        if is_hidden {
            self.counts.ends_unseen += 1;
            return Ok(());
        }
        Err(Violation { kind: Kind::Missing, evidence: evidence("the last ones never came") })
    }
}
