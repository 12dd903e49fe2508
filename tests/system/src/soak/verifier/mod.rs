//! What one subscriber can check by itself, message by message.
//!
//! It remembers, of each publisher that it has seen, what must come next; of the order, sums of stretches
//! of [`STRETCH`] messages, which others compare ([`super::order`]).
//!
//! After a reported loss, the chains of publishers may have holes. A subscriber of all lanes checks that the holes
//! together are no larger than the loss.

use super::mix::{Filter, LANES, Lane};
use super::source::{Label, Read, read};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Messages of a stretch of the order, which is summed up in one number for each lane.
pub const STRETCH: u64 = 256;
/// Publishers that were not seen for this number of messages are forgotten: most of them are dead.
const FORGOTTEN_AFTER: u64 = 8 << 20;

/// A message as it was delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its number in the bus.
    pub sequence: u64,
    /// Its position in the stream.
    pub position: u64,
    /// The position after it, if it is known.
    pub next_position: Option<u64>,
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes that no publisher wrote.
    Torn,
    /// Lost without a report, or more than was reported.
    Missing,
    Doubled,
    /// Before another that should come first, or not where others saw it.
    Order,
    /// A loss was reported that was none, or of another size.
    Miscounted,
    /// A part of a batch.
    Half,
    Foreign,
    /// A process or a call failed, or something was left over.
    Failed,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Torn,
        Self::Missing,
        Self::Doubled,
        Self::Order,
        Self::Miscounted,
        Self::Half,
        Self::Foreign,
        Self::Failed,
    ];

    /// Its word in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Torn => "torn",
            Self::Missing => "lost-without-report",
            Self::Doubled => "doubled",
            Self::Order => "order",
            Self::Miscounted => "miscounted-loss",
            Self::Half => "half-a-batch",
            Self::Foreign => "not-asked-for",
            Self::Failed => "failed",
        }
    }
}

/// Something is wrong: what, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    /// Who, which sequence, which bytes.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind.word(), self.evidence)
    }
}

/// Sums of a stretch that was seen from its first to its last message: of each lane, how many messages
/// and the sum of their places, topics and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its number: that of its first message by [`STRETCH`].
    pub number: u64,
    /// Of each lane; those that were not asked for are empty.
    pub lanes: [(u64, u64); LANES],
}

/// How far a publisher has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Messages that it has published, up to the last one that was seen.
    pub next: u64,
    /// That one's number in the bus.
    pub sequence: u64,
    /// Whether `next` is exact. Behind a loss, tiny messages do not say how many were lost before them: it
    /// is then the least that it can be.
    pub is_exact: bool,
}

/// Checks one subscription, from its first message to its last.
#[derive(Debug)]
pub struct Verifier {
    filter: Filter,
    /// Publishers from this number on had not begun when this subscription began, or lost messages last.
    newcomers_from: u32,
    first: Option<u64>,
    last: Option<Last>,
    /// Messages and bytes lost since the last delivery.
    lost_now: Option<(u64, u64)>,
    received: u64,
    lost: u64,
    lapses: u64,
    /// Of the lost ones, those that chains of publishers have shown.
    found_lost: u64,
    chains: HashMap<(u32, Lane), Chain>,
    totals: HashMap<u32, Total>,
    forgotten: HashSet<u32>,
    /// The next message must be of this worker, with this index.
    batch: Option<(u32, u8)>,
    stretch: Option<(Stretch, bool)>,
    whole: Vec<Stretch>,
    progress: BTreeMap<u32, Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u64,
    position: u64,
    next_position: Option<u64>,
}

/// The last message of a publisher in a lane; known for certain if none was lost since.
#[derive(Clone, Copy, Debug)]
struct Chain {
    counter: u64,
    nonce: Option<u8>,
    lapses: u64,
    sequence: u64,
}

/// What all lanes of a publisher tell together.
#[derive(Clone, Copy, Debug)]
struct Total {
    next: u64,
    /// Tiny messages that came since messages were lost, and before one with a label.
    uncounted: u64,
    lapses: u64,
    sequence: u64,
}

impl std::hash::Hash for Lane {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

impl Verifier {
    /// Of a subscription that begins now. Publishers from number `newcomers_from` on have not begun yet.
    #[must_use]
    pub fn new(filter: Filter, newcomers_from: u32) -> Self {
        Self {
            filter,
            newcomers_from,
            first: None,
            last: None,
            lost_now: None,
            received: 0,
            lost: 0,
            lapses: 0,
            found_lost: 0,
            chains: HashMap::new(),
            totals: HashMap::new(),
            forgotten: HashSet::new(),
            batch: None,
            stretch: None,
            whole: Vec::new(),
            progress: BTreeMap::new(),
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// If it is not what must come next.
    pub fn take(&mut self, delivery: &Delivery<'_>) -> Result<(), Violation> {
        self.check(delivery).map_err(|(kind, what)| Violation {
            kind,
            evidence: format!(
                "{what}; at sequence {}, position {}, topic {:?}, {} bytes beginning with {:02x?}; before \
                 it came {:?}, and a loss of {:?}",
                delivery.sequence,
                delivery.position,
                delivery.topic,
                delivery.payload.len(),
                &delivery.payload[..delivery.payload.len().min(32)],
                self.last,
                self.lost_now,
            ),
        })?;
        self.last = Some(Last {
            sequence: delivery.sequence,
            position: delivery.position,
            next_position: delivery.next_position,
        });
        self.lost_now = None;
        self.received += 1;
        Ok(())
    }

    /// Takes the news that this number of messages and bytes were lost here. Publishers from number `newcomers_from` on
    /// have not begun yet.
    pub fn lose(&mut self, messages: u64, bytes: u64, newcomers_from: u32) {
        let (before, bytes_before) = self.lost_now.unwrap_or_default();
        self.lost_now = Some((before + messages, bytes_before + bytes));
        self.lost += messages;
        self.lapses += 1;
        self.newcomers_from = newcomers_from;
        self.batch = None;
    }

    /// Number of the first message.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// Number of the message after the last one that came or was lost: exact where all lanes are seen.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let lost = self.lost_now.map_or(0, |(messages, _)| messages);
        self.last.map(|last| last.sequence + 1 + lost)
    }

    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Messages lost, as reported.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.lapses
    }

    /// Whether all lanes are seen.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        self.filter.is_all()
    }

    /// The stretches that are complete since the last call.
    pub fn take_stretches(&mut self) -> Vec<Stretch> {
        std::mem::take(&mut self.whole)
    }

    /// How far publishers have come that were seen since the last call; nothing unless all lanes are seen.
    pub fn take_progress(&mut self) -> BTreeMap<u32, Progress> {
        self.forget();
        std::mem::take(&mut self.progress)
    }

    /// The bus has seen `end` messages, and no more will come.
    ///
    /// # Errors
    /// If they have not all been received or reported as lost.
    pub fn finish(&self, end: u64) -> Result<(), Violation> {
        let wrong = |kind, evidence| Err(Violation { kind, evidence });
        if let Some((worker, index)) = self.batch {
            let evidence = format!("message {index} of a batch of worker {worker} never came");
            return wrong(Kind::Half, evidence);
        }
        let is_exact = self.filter.is_all() || self.lost_now.is_none();
        match self.next() {
            Some(next) if is_exact && next < end => wrong(
                Kind::Missing,
                format!(
                    "of messages {:?} to {end}, {} came and {} were told to be lost, the last before {next}",
                    self.first, self.received, self.lost
                ),
            ),
            _ => Ok(()),
        }
    }

    fn check(&mut self, delivery: &Delivery<'_>) -> Result<(), (Kind, String)> {
        let Some((lane, number)) = Lane::of_topic(delivery.topic) else {
            return Err((Kind::Torn, "no publisher uses this topic".to_owned()));
        };
        let what = read(lane, number, delivery.payload).map_err(|error| (Kind::Torn, error))?;
        if !self.filter.has(lane) {
            return Err((Kind::Foreign, format!("the subscriber asked for {:?}", self.filter)));
        }
        self.check_place(delivery)?;
        self.check_batch(delivery, &what)?;
        match what {
            Read::Labelled(label) => self.check_label(lane, &label, delivery.sequence)?,
            Read::Tiny(worker, nonce) => self.check_tiny(worker, nonce, delivery.sequence)?,
        }
        if self.filter.is_all() {
            self.check_total(delivery.sequence, &what)?;
        }
        self.first.get_or_insert(delivery.sequence);
        self.add_to_stretch(lane, delivery);
        Ok(())
    }

    fn check_place(&mut self, delivery: &Delivery<'_>) -> Result<(), (Kind, String)> {
        let Delivery { sequence, position, .. } = *delivery;
        let Some(last) = self.last else { return Ok(()) };
        if sequence <= last.sequence {
            let kind = if sequence == last.sequence { Kind::Doubled } else { Kind::Order };
            return Err((kind, "its sequence does not grow".to_owned()));
        }
        let (lost, lost_bytes) = self.lost_now.unwrap_or_default();
        let next = last.sequence + 1 + lost;
        let wrong = |what: String| {
            let kind = match self.lost_now {
                None => Kind::Missing,
                Some(_) => Kind::Miscounted,
            };
            Err((kind, what))
        };
        if sequence < next || self.filter.is_all() && sequence != next {
            return wrong(format!("sequence {sequence} where {next} should come"));
        }
        let next = last.next_position.unwrap_or(last.position + 8) + lost_bytes;
        let is_exact = self.filter.is_all() && last.next_position.is_some();
        if position < next || is_exact && position != next {
            return wrong(format!("position {position} where {next} should come"));
        }
        Ok(())
    }

    /// A batch is there as a whole, in a row.
    fn check_batch(&mut self, delivery: &Delivery<'_>, what: &Read) -> Result<(), (Kind, String)> {
        let label = match what {
            Read::Labelled(label) => Some(label),
            Read::Tiny(..) => None,
        };
        let is_in_row = self.last.is_some_and(|last| last.sequence + 1 == delivery.sequence);
        let found = label.filter(|label| label.index > 0).map(|label| (label.worker, label.index));
        let is_known = self.last.is_some() && self.lost_now.is_none();
        let expected = self.batch.take();
        if is_known && (found != expected || found.is_some() && !is_in_row) {
            let what =
                format!("{found:?} where {expected:?} (worker, index in a batch) should come");
            return Err((Kind::Half, what));
        }
        self.batch =
            label.filter(|label| label.behind > 0).map(|label| (label.worker, label.index + 1));
        Ok(())
    }

    fn check_label(
        &mut self,
        lane: Lane,
        label: &Label,
        sequence: u64,
    ) -> Result<(), (Kind, String)> {
        let Label { worker, counter, since, .. } = *label;
        let Some(before) = counter.checked_sub(since) else {
            return Err((Kind::Torn, format!("{label:?} makes no sense")));
        };
        let is_first = since == 0;
        let lapses = self.lapses;
        let chain = Chain { counter, nonce: None, lapses, sequence };
        let known = self.chains.insert((worker, lane), chain);
        let wrong = |kind, what: &str| {
            Err((
                kind,
                format!("{label:?} {what}; the last that was seen in {lane:?} is {known:?}"),
            ))
        };
        match known {
            None if !is_first && self.is_newcomer(worker) => {
                wrong(Kind::Missing, "is not the first of a new publisher")
            }
            None => Ok(()),
            Some(chain) if counter == chain.counter => wrong(Kind::Doubled, "was there before"),
            Some(chain) if counter < chain.counter => wrong(Kind::Order, "comes too late"),
            Some(_) if is_first => wrong(Kind::Order, "says that it is the first"),
            Some(chain) if before < chain.counter => {
                wrong(Kind::Order, "does not know its predecessor")
            }
            Some(chain) if before > chain.counter && chain.lapses == lapses => {
                wrong(Kind::Missing, "misses its predecessor")
            }
            Some(_) => Ok(()),
        }
    }

    fn check_tiny(
        &mut self,
        worker: u32,
        nonce: Option<u8>,
        sequence: u64,
    ) -> Result<(), (Kind, String)> {
        let lapses = self.lapses;
        let known = self.chains.get(&(worker, Lane::Tiny)).copied();
        let expected = match known {
            Some(Chain { nonce: Some(nonce), lapses: then, .. }) => {
                (then == lapses).then(|| nonce.wrapping_add(1))
            }
            // Nothing is known that could be continued.
            Some(_) => None,
            None => self.is_newcomer(worker).then_some(0),
        };
        let next = nonce.or(expected);
        let chain = Chain { counter: 0, nonce: next, lapses, sequence };
        self.chains.insert((worker, Lane::Tiny), chain);
        match (expected, nonce) {
            (Some(expected), Some(nonce)) if expected != nonce => {
                let kind = match expected.wrapping_sub(nonce) {
                    1 => Kind::Doubled,
                    2..128 => Kind::Order,
                    _ => Kind::Missing,
                };
                Err((
                    kind,
                    format!("tiny message {nonce} of worker {worker} where {expected} should come"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Of all lanes together, no message of a publisher is missing, but for those lost.
    fn check_total(&mut self, sequence: u64, what: &Read) -> Result<(), (Kind, String)> {
        let worker = match what {
            Read::Labelled(label) => label.worker,
            Read::Tiny(worker, _) => *worker,
        };
        let lapses = self.lapses;
        let known = self.totals.get(&worker).copied();
        let is_newcomer = self.is_newcomer(worker);
        let total = known
            .or_else(|| is_newcomer.then_some(Total { next: 0, uncounted: 0, lapses, sequence }));
        let Some(mut total) = total else {
            // It was there before; where it is, only a label says.
            if let Read::Labelled(label) = what {
                let total = Total { next: label.counter + 1, uncounted: 0, lapses, sequence };
                self.learn_total(worker, total);
            } else {
                self.progress.insert(worker, Progress { next: 0, sequence, is_exact: false });
            }
            return Ok(());
        };
        total.sequence = sequence;
        if total.lapses == lapses {
            if let Read::Labelled(label) = what
                && label.counter != total.next
            {
                let kind = if label.counter < total.next { Kind::Order } else { Kind::Missing };
                let what = format!("{label:?} where {} should come, of all lanes", total.next);
                return Err((kind, what));
            }
            total.next += 1;
        } else if let Read::Labelled(label) = what {
            let Some(hole) = label.counter.checked_sub(total.next + total.uncounted) else {
                let what = format!("{label:?} where at least {} should come", total.next);
                return Err((Kind::Order, what));
            };
            self.found_lost += hole;
            if self.found_lost > self.lost {
                let what = format!(
                    "publishers miss {} messages, and {} were told to be lost",
                    self.found_lost, self.lost
                );
                return Err((Kind::Missing, what));
            }
            total = Total { next: label.counter + 1, uncounted: 0, lapses, sequence };
        } else {
            total.uncounted += 1;
            self.totals.insert(worker, total);
            let next = total.next + total.uncounted;
            self.progress.insert(worker, Progress { next, sequence, is_exact: false });
            return Ok(());
        }
        self.learn_total(worker, total);
        Ok(())
    }

    fn learn_total(&mut self, worker: u32, total: Total) {
        self.totals.insert(worker, total);
        let Total { next, sequence, .. } = total;
        self.progress.insert(worker, Progress { next, sequence, is_exact: true });
    }

    fn is_newcomer(&self, worker: u32) -> bool {
        worker >= self.newcomers_from && !self.forgotten.contains(&worker)
    }

    /// Of publishers that have not been seen for long, only the number is remembered.
    fn forget(&mut self) {
        let Some(last) = self.last else { return };
        let is_old = |sequence: u64| sequence + FORGOTTEN_AFTER < last.sequence;
        let forgotten = &mut self.forgotten;
        self.totals.retain(|_, total| !is_old(total.sequence));
        self.chains.retain(|(worker, _), chain| {
            let is_kept = !is_old(chain.sequence);
            if !is_kept {
                forgotten.insert(*worker);
            }
            is_kept
        });
    }

    fn add_to_stretch(&mut self, lane: Lane, delivery: &Delivery<'_>) {
        let number = delivery.sequence / STRETCH;
        let starts_here = delivery.sequence.is_multiple_of(STRETCH);
        let is_lossless = self.last.is_some() && self.lost_now.is_none();
        let empty = |number| Stretch { number, lanes: [(0, 0); LANES] };
        let (mut stretch, mut is_whole) = match self.stretch.take() {
            Some((stretch, is_whole)) if stretch.number == number => {
                (stretch, is_whole && is_lossless)
            }
            Some((stretch, is_whole)) if is_lossless => {
                if is_whole {
                    self.whole.push(stretch);
                }
                self.whole.extend((stretch.number + 1..number).map(empty));
                (empty(number), true)
            }
            _ => (empty(number), starts_here),
        };
        let (count, sum) = &mut stretch.lanes[lane.number()];
        *count += 1;
        *sum = sum.wrapping_add(fingerprint(delivery));
        // A complete one is reported at once: the next message may take long.
        if delivery.sequence % STRETCH == STRETCH - 1 && is_whole {
            self.whole.push(stretch);
            is_whole = false;
        }
        self.stretch = Some((stretch, is_whole));
    }
}

/// A number for the place, the topic and the bytes of a message, which were found to be whole: of long
/// ones the checksum they begin with is enough.
fn fingerprint(delivery: &Delivery<'_>) -> u64 {
    let mix = |sum: u64, word: u64| {
        let sum = (sum.rotate_left(9) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum ^ sum >> 32
    };
    let mut sum = mix(delivery.sequence, delivery.position);
    sum = mix(sum, delivery.payload.len() as u64);
    for bytes in [delivery.topic.as_bytes(), &delivery.payload[..delivery.payload.len().min(24)]] {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = mix(sum, u64::from_le_bytes(word));
        }
    }
    sum
}

#[cfg(test)]
mod tests;
