//! A subscriber that claims a slot and joins at the end of the stream, or at its oldest message, and one
//! that comes back after it was lapped: `ring/gate.rs`, `ring/slots.rs`, `bus/subscribe/builder.rs`,
//! `bus/subscribe/progress.rs`, `ring/reader.rs`.
//!
//! An index entry is read in one step. The loom models of the seqlock show that its two words belong together.

use crate::mistakes::Mistake;
use crate::publisher::Doing;
use crate::setup::Start;
use crate::state::{Fault, Life, MOST_TOPICS, NO_ENTRY, Publisher, RecordStart};
use crate::subscriber::{After, Reading, Turn};
use crate::{word, writing};

/// More attempts than writers can spoil in one run.
const ATTEMPTS: u8 = 12;

impl Turn<'_> {
    pub(crate) fn join_step(&mut self) -> bool {
        match self.state.subscribers[self.me].reading {
            Reading::ClaimState => {
                self.state.slots[self.me].active = false;
                self.go(Reading::ClaimGeneration)
            }
            Reading::ClaimGeneration => {
                self.state.slots[self.me].generation += 1;
                self.clear_from(0)
            }
            Reading::ClearColumn { topic } => {
                self.state.slots[self.me].unwanted &= !(1 << topic);
                self.clear_from(topic + 1)
            }
            Reading::FindTail { attempt, back } => {
                let tail = self.state.ring.tail;
                self.go(Reading::FindReserved { attempt, back, tail })
            }
            Reading::FindReserved { attempt, back, tail } => {
                let reserved = self.state.ring.reserved;
                let (next, first, newest) = (0, None, None);
                self.go(Reading::FindEntries { attempt, back, tail, reserved, next, first, newest })
            }
            Reading::FindEntries { .. } => self.read_entry(),
            Reading::WalkLoad { attempt, tail, at } => {
                let word = self.state.word(at.position);
                self.go(Reading::WalkCheck { attempt, tail, at, word })
            }
            Reading::WalkCheck { attempt, tail, at, word } => self.walk(attempt, tail, at, word),
            Reading::FindCheck { attempt, back, to } => self.arrive(attempt, back, to),
            Reading::JoinPosition => {
                let position = self.at().position;
                self.state.slots[self.me].position = position;
                self.go(Reading::JoinState)
            }
            Reading::JoinState => {
                self.state.slots[self.me].active = true;
                self.go(Reading::CountJoin)
            }
            Reading::CountJoin => {
                self.state.raise_joins();
                self.go(if self.is_near() { Reading::JoinCheck } else { Reading::JoinProposal })
            }
            Reading::JoinProposal => self.await_decision(),
            Reading::JoinCheck => {
                let at = self.at();
                if !self.is_intact(at.position) {
                    if !self.has(Mistake::JoinNotChecked) {
                        return self.go(Reading::FindTail { attempt: 0, back: false });
                    }
                    self.state.fail(Fault::Overrun);
                }
                let at_end = self.setup.start == Start::End && !self.is_near();
                if at_end { self.go(Reading::JoinTail) } else { self.joined() }
            }
            Reading::JoinTail => {
                // A writer raises `reserved` for at most the largest record after the tail.
                let half = self.setup.words / 2;
                let reach = writing::wanted(self.setup, self.state.ring.tail, half);
                if reach <= self.at().position + self.setup.words {
                    return self.joined();
                }
                self.go(Reading::FindTail { attempt: 0, back: false })
            }
            _ => unreachable!("the steps of reading are in subscriber.rs"),
        }
    }

    /// Clears the column where it is set, from this topic on. Then it seeks its place.
    fn clear_from(&mut self, from: u8) -> bool {
        let unwanted = self.state.slots[self.me].unwanted;
        let mut set = (from..MOST_TOPICS).filter(|topic| unwanted & 1 << topic != 0);
        match set.next() {
            Some(topic) if !self.has(Mistake::ColumnOfTheLastOwner) => {
                self.go(Reading::ClearColumn { topic })
            }
            _ => self.go(Reading::FindTail { attempt: 0, back: false }),
        }
    }

    /// Whether a mistake is built in that makes it ignore what writers do.
    fn is_near(&self) -> bool {
        matches!(self.setup.mistake, Some(Mistake::JoinNearAWriter | Mistake::JoinNotChecked))
    }

    /// Waits while a writer proposes to overwrite the start and has not decided. If that writer is dead or stopped, a
    /// time limit ends the wait, which is a step here.
    fn await_decision(&mut self) -> bool {
        let position = self.at().position;
        let floor = self.state.ring.proposed.saturating_sub(self.setup.words);
        // No writer proposes to overwrite what is not written yet.
        let would_be_overwritten = position < floor && floor <= self.state.ring.tail;
        if would_be_overwritten && self.has(Mistake::ProposalTakenForAFact) {
            return self.go(Reading::FindTail { attempt: 1, back: false });
        }
        let decides = |publisher: &Publisher| {
            publisher.life == Life::Running
                && matches!(
                    publisher.doing,
                    Doing::LoadJoins { .. }
                        | Doing::ReadSlots { .. }
                        | Doing::Withdraw { .. }
                        | Doing::Reserve
                        | Doing::RecoverProposal { .. }
                )
        };
        let will_be_decided = self.state.publishers.iter().any(decides)
            || self.has(Mistake::DecisionOfTheDeadAwaited);
        if would_be_overwritten && self.is_intact(position) && will_be_decided {
            return false;
        }
        self.go(Reading::JoinCheck)
    }

    fn joined(&mut self) -> bool {
        let at = self.at();
        let sought = self.mine().sought.take();
        if sought.is_some_and(|start| start < at.position && self.is_intact(start)) {
            self.state.fail(Fault::Late);
        }
        self.mine().published = at.position;
        self.go(Reading::Scan(at))
    }

    fn read_entry(&mut self) -> bool {
        let reading = self.state.subscribers[self.me].reading;
        let Reading::FindEntries { attempt, back, tail, reserved, next, first, newest } = reading
        else {
            unreachable!("called for this step only")
        };
        let capacity = self.setup.words;
        let oldest = reserved.saturating_sub(capacity);
        let entry = self.state.ring.index[usize::from(next)];
        let is_of_use = entry.position != NO_ENTRY && (oldest..=tail).contains(&entry.position);
        let entry = is_of_use.then_some(entry);
        let newest = newest.max(entry);
        // A reader that comes back keeps a distance, and a greater one at each attempt.
        let distance = if back { capacity / 8 } else { 0 };
        let margin = distance + attempt * (capacity / self.setup.blocks);
        let safe = (oldest + margin).min(tail);
        let first =
            [first, entry.filter(|entry| entry.position >= safe)].into_iter().flatten().min();
        if next + 1 < self.setup.blocks {
            let next = next + 1;
            return self.go(Reading::FindEntries {
                attempt,
                back,
                tail,
                reserved,
                next,
                first,
                newest,
            });
        }
        match (back, first.or(newest), newest) {
            (_, Some(to), _) if back || self.setup.start == Start::Oldest => {
                self.go(Reading::FindCheck { attempt, back, to })
            }
            (false, _, Some(at)) if at.position < tail => {
                self.go(Reading::WalkLoad { attempt, tail, at })
            }
            (false, _, Some(to)) => self.go(Reading::FindCheck { attempt, back, to }),
            _ => self.try_again(attempt, back),
        }
    }

    fn walk(&mut self, attempt: u8, tail: u8, at: RecordStart, word: u8) -> bool {
        let words = word::record_words(word);
        let is_record = word::is_header(word) && at.position + words <= tail;
        if !self.is_intact(at.position) {
            return self.try_again(attempt, false);
        }
        if !is_record {
            self.state.fail(Fault::Corrupt);
            return self.try_again(attempt, false);
        }
        let at = RecordStart { position: at.position + words, sequence: at.sequence + 1 };
        self.go(if at.position < tail {
            Reading::WalkLoad { attempt, tail, at }
        } else {
            Reading::FindCheck { attempt, back: false, to: at }
        })
    }

    fn arrive(&mut self, attempt: u8, back: bool, to: RecordStart) -> bool {
        if !self.is_intact(to.position) {
            return self.try_again(attempt, back);
        }
        if back && self.has(Mistake::LossGuessed) {
            let skipped = to.position.saturating_sub(self.at().position);
            let sequence = self.at().sequence + skipped / 2;
            self.mine().at = RecordStart { position: to.position, sequence };
        } else {
            self.mine().at = to;
        }
        if !back && self.setup.start == Start::Oldest {
            self.mine().sought.get_or_insert(to.position);
        }
        self.go(if back { Reading::StorePosition(After::ReadBack) } else { Reading::JoinPosition })
    }

    fn try_again(&mut self, attempt: u8, back: bool) -> bool {
        if attempt == ATTEMPTS {
            self.state.fail(Fault::Corrupt);
            return false;
        }
        self.go(Reading::FindTail { attempt: attempt + 1, back })
    }
}
