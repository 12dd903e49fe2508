//! A subscriber passes over what it does not want: `bus/subscribe/passing.rs`, `ring/bounds.rs`.
//!
//! It may look whenever there is a record that it has not read, and looks when it was lapped.

use crate::mistakes::Mistake;
use crate::state::{FORGOTTEN, Fault, RecordStart};
use crate::subscriber::{After, Reading, Turn};

/// What a subscriber has loaded that checks whether it can pass over something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Look {
    /// It was lapped.
    is_lapped: bool,
    /// `tail` and `sequence`.
    end: RecordStart,
    /// The number of topics.
    topics: u8,
    /// The highest of the bounds.
    highest: u8,
}

impl Turn<'_> {
    /// Whether it may look now. If it looked in vain, it does not look again before it has come as far as it saw.
    pub(crate) fn may_look(&self, end: RecordStart) -> bool {
        let me = &self.state.subscribers[self.me];
        self.setup.passes
            && end == me.at
            && me.at.position >= me.not_before
            && self.state.word(me.at.position) != 0
    }

    pub(crate) fn look(&mut self, is_lapped: bool) -> bool {
        let not_before = self.at().position + 1;
        self.mine().not_before = not_before;
        let look = Look { is_lapped, ..Look::default() };
        self.go(match self.setup.mistake {
            Some(Mistake::BoundsBeforeTheEnd | Mistake::TopicsBeforeTheEnd) => {
                Reading::PassTopics(look)
            }
            _ => Reading::PassTail(look),
        })
    }

    pub(crate) fn pass_step(&mut self) -> bool {
        match self.state.subscribers[self.me].reading {
            Reading::PassTail(mut look) => {
                look.end.position = self.state.ring.tail;
                self.go(Reading::PassSequence(look))
            }
            Reading::PassSequence(mut look) => {
                look.end.sequence = self.state.ring.sequence;
                self.go(Reading::PassNext(look))
            }
            Reading::PassNext(look) => {
                let is_settled = self.state.ring.next == look.end.position;
                if !is_settled && !self.has(Mistake::NextNotCompared) {
                    return self.look_in_vain(look);
                }
                match self.setup.mistake {
                    Some(Mistake::BoundsBeforeTheEnd) => self.judge(look),
                    Some(Mistake::TopicsBeforeTheEnd) => self.next_bound(look, 0),
                    _ => self.go(Reading::PassTopics(look)),
                }
            }
            Reading::PassTopics(mut look) => {
                look.topics = self.state.ring.topics;
                if self.has(Mistake::TopicsBeforeTheEnd) {
                    return self.go(Reading::PassTail(look));
                }
                self.next_bound(look, 0)
            }
            Reading::PassBound { mut look, topic } => {
                look.highest = look.highest.max(self.state.ring.bounds[usize::from(topic)]);
                self.next_bound(look, topic + 1)
            }
            _ => unreachable!("called for these steps only"),
        }
    }

    /// Continues with the bound of the next topic that it wants.
    fn next_bound(&mut self, look: Look, from: u8) -> bool {
        let wants = self.state.subscribers[self.me].interest.wants;
        match (from..look.topics).find(|topic| wants & 1 << topic != 0) {
            Some(topic) => self.go(Reading::PassBound { look, topic }),
            None if self.has(Mistake::BoundsBeforeTheEnd) => self.go(Reading::PassTail(look)),
            None => self.judge(look),
        }
    }

    /// Continues at the end that it found, if it wants nothing before it.
    fn judge(&mut self, look: Look) -> bool {
        let (at, Look { is_lapped, end, highest, .. }) = (self.at(), look);
        if highest > at.position || end.position <= at.position {
            return self.look_in_vain(look);
        }
        self.compare(at, end);
        let me = self.mine();
        (me.at, me.not_before) = (end, end.position + 1);
        self.go(if is_lapped {
            Reading::StorePosition(After::ReadBack)
        } else {
            Reading::Scan(end)
        })
    }

    fn look_in_vain(&mut self, look: Look) -> bool {
        let at = self.at();
        if look.is_lapped {
            return self.seek_back();
        }
        let me = self.mine();
        me.not_before = me.not_before.max(look.highest);
        self.go(Reading::Scan(at))
    }

    /// Compares what is passed over with the truth.
    fn compare(&mut self, at: RecordStart, end: RecordStart) {
        let wants = self.state.subscribers[self.me].interest.wants;
        let committed = &self.state.truth.committed;
        let place = usize::from(end.sequence);
        let is_true = match committed.get(place) {
            Some(told) => *told == FORGOTTEN || told.start == end.position,
            None => place == committed.len() && end.position == self.state.truth.end,
        };
        let passed = committed.get(usize::from(at.sequence)..place).unwrap_or_default();
        let is_wanted = passed.iter().any(|told| wants & self.setup.topic_bit(told.stamp) != 0);
        if !is_true {
            self.state.fail(Fault::Disorder);
        } else if is_wanted {
            self.state.fail(Fault::Missed);
        }
    }
}
