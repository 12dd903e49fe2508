//! A subscriber, step by step: `ring/read_ahead.rs`, `ring/reader.rs`, `bus/subscribe/receive.rs`,
//! `notify/eventcount.rs`. How it joins and comes back is in `joining.rs`.

use crate::mistakes::Mistake;
use crate::passing::Look;
use crate::setup::{Setup, small};
use crate::state::{Fault, Life, MOST_TOPICS, RecordStart, State};
use crate::word;

/// Words of the longest record that is read ahead.
const LONGEST_READ_AHEAD: u8 = 2;

/// Words that were copied.
pub type Copied = [u8; 4];

/// What a subscriber does when it has written its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum After {
    Read,
    Sleep,
    /// Continues to read, after it was lapped.
    ReadBack,
}

/// What a subscriber does next. Each is one load or store of words that others may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reading {
    /// Claims a slot, whose lease it holds: makes it free.
    ClaimState,
    ClaimGeneration,
    /// Clears the bit of a topic in its column, which an earlier owner left.
    ClearColumn {
        topic: u8,
    },
    /// Seeks its place, to join or after a lapse: loads `tail`.
    FindTail {
        /// Number of the attempt.
        attempt: u8,
        /// Comes back after a lapse.
        back: bool,
    },
    /// Loads `reserved`.
    FindReserved {
        /// As in [`Reading::FindTail`].
        attempt: u8,
        /// As in [`Reading::FindTail`].
        back: bool,
        tail: u8,
    },
    /// Reads the entries of the blocks index, one by one.
    FindEntries {
        /// As in [`Reading::FindTail`].
        attempt: u8,
        /// As in [`Reading::FindTail`].
        back: bool,
        tail: u8,
        reserved: u8,
        /// The entry that is read next.
        next: u8,
        /// The oldest that is far enough from being overwritten.
        first: Option<RecordStart>,
        newest: Option<RecordStart>,
    },
    /// Joining at the end: counts records from an entry on. Loads a header.
    WalkLoad {
        /// As in [`Reading::FindTail`].
        attempt: u8,
        tail: u8,
        /// How far it has come.
        at: RecordStart,
    },
    /// Asks whether what it loaded is intact.
    WalkCheck {
        /// As in [`Reading::FindTail`].
        attempt: u8,
        tail: u8,
        /// How far it has come.
        at: RecordStart,
        word: u8,
    },
    /// Asks whether the place that it found is intact.
    FindCheck {
        /// As in [`Reading::FindTail`].
        attempt: u8,
        /// As in [`Reading::FindTail`].
        back: bool,
        to: RecordStart,
    },
    /// Writes the position of its slot.
    JoinPosition,
    /// Activates the slot.
    JoinState,
    /// Raises `joins`.
    CountJoin,
    /// Loads a writer's proposal: is the writer about to overtake it?
    JoinProposal,
    /// Loads `tail`: is it far enough from a writer that scanned before this slot was active?
    JoinTail,
    /// Checks whether a writer has lapped it in the meantime.
    JoinCheck,
    /// Reads ahead: seeks the end of the records that fit, and is here so far.
    Scan(RecordStart),
    /// Copies them, word by word.
    Copy {
        /// The position after the last of them.
        end: RecordStart,
        /// Words that are copied.
        done: u8,
        copied: Copied,
    },
    /// Asks whether they are intact, and hands them out.
    Validate {
        /// The position after the last of them.
        end: RecordStart,
        copied: Copied,
    },
    /// A mistake: writes its position before it copies.
    PositionFirst {
        /// After the last record that was read ahead.
        end: RecordStart,
    },
    /// Peeks at a single record: loads its header.
    Peek,
    /// Asks whether it is intact.
    PeekCheck {
        word: u8,
    },
    /// Copies a long record by itself.
    CopyLong {
        word: u8,
        /// Words that are copied.
        done: u8,
        copied: Copied,
    },
    /// Asks whether it is intact, and hands it out.
    ValidateLong {
        word: u8,
        copied: Copied,
    },
    /// Writes its position to its slot.
    StorePosition(After),
    /// Asks whether the position that it replaced, here, was lapped.
    AskLapse(After, u8),
    /// It was, so that writers did not wait for it: raises `joins`.
    CountReturn(After),
    /// Loads `waits.count`.
    LoadWaits(After),
    /// Loads `waits.until`.
    LoadUntil(After),
    /// Loads it again, to find out which other readers are before it.
    AnswerUntil(After),
    /// Loads `reserved`.
    AnswerReserved(After, u8),
    /// Reads the slots, one by one, in any order.
    AnswerSlots {
        /// What it does afterwards.
        after: After,
        until: u8,
        reserved: u8,
        /// Bits of the slots that are not read yet.
        left: u8,
    },
    /// Raises `space`, and wakes a publisher that waits for space.
    RaiseSpace(After),
    /// Before a sleep: loads the number of topics.
    LoadTopics,
    /// Says of a topic whether it wants it, up to `until`.
    MarkTopic {
        topic: u8,
        until: u8,
        /// It has more patterns, and continues to read.
        adds: bool,
    },
    /// Loads the futex word of its slot.
    Token,
    /// Raises its own count of sleeps.
    ArmOwn,
    /// Raises `sleeps`.
    ArmCommon,
    /// Rechecks: loads the header.
    Recheck,
    /// Asks whether that is intact.
    RecheckValidate {
        word: u8,
    },
    /// Sleeps, if the futex word is what it loaded.
    Sleep,
    Asleep,
    /// Passes over what it does not want: loads `tail`.
    PassTail(Look),
    /// Loads `sequence`.
    PassSequence(Look),
    /// Loads `next`: is a commit under way?
    PassNext(Look),
    /// Loads the number of topics.
    PassTopics(Look),
    /// Loads the bound of a topic that it wants.
    PassBound {
        look: Look,
        topic: u8,
    },
    /// Leaves: its slot is free; raises `joins`.
    CountLeave,
    Gone,
}

/// One subscriber at its next step.
pub(crate) struct Turn<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) state: &'a mut State,
    pub(crate) me: usize,
}

/// In how many ways a subscriber's next step can go.
pub(crate) fn ways(setup: &Setup, state: &State, me: usize) -> u8 {
    match &state.subscribers[me].reading {
        Reading::AnswerSlots { .. } => small(setup.subscribers),
        // The second way is to look whether there is anything for it.
        Reading::Scan(_) if setup.passes => 2,
        _ => 1,
    }
}

impl crate::state::Subscriber {
    /// `futex_wake`.
    pub(crate) fn wake_up(&mut self) {
        if self.reading == Reading::Asleep {
            self.reading = Reading::Scan(self.at);
        }
    }
}

impl Turn<'_> {
    /// Takes the next step. Returns false if it can only wait for others; then nothing was changed.
    pub(crate) fn step(&mut self, way: u8) -> bool {
        let at = self.at();
        match self.state.subscribers[self.me].reading {
            Reading::Scan(end) if way == 1 => self.may_look(end) && self.look(false),
            Reading::Scan(end) => self.scan(end),
            Reading::PassTail(_)
            | Reading::PassSequence(_)
            | Reading::PassNext(_)
            | Reading::PassTopics(_)
            | Reading::PassBound { .. } => self.pass_step(),
            Reading::PositionFirst { end } => {
                self.state.slots[self.me].position = end.position;
                self.go(Reading::Copy { end, done: 0, copied: [0; 4] })
            }
            Reading::Copy { end, done, mut copied } => {
                copied[usize::from(done)] = self.state.word(at.position + done);
                let done = done + 1;
                let is_all = at.position + done == end.position;
                self.go(if is_all {
                    Reading::Validate { end, copied }
                } else {
                    Reading::Copy { end, done, copied }
                })
            }
            Reading::Validate { end, copied } => self.validate(end, &copied),
            Reading::Peek => {
                let word = self.state.word(at.position);
                self.go(Reading::PeekCheck { word })
            }
            Reading::PeekCheck { word } => self.peek(word),
            Reading::CopyLong { word, done, mut copied } => {
                copied[usize::from(done)] = self.state.word(at.position + 1 + done);
                let done = done + 1;
                self.go(if done == word::length_of(word) {
                    Reading::ValidateLong { word, copied }
                } else {
                    Reading::CopyLong { word, done, copied }
                })
            }
            Reading::ValidateLong { word, copied } => {
                if !self.is_intact(at.position) {
                    return self.lapped();
                }
                self.deliver(at, word, &copied[..usize::from(word::length_of(word))]);
                self.advance(word);
                self.read_on()
            }
            Reading::StorePosition(after) => {
                self.state.slots[self.me].position = at.position;
                let before = std::mem::replace(&mut self.mine().published, at.position);
                self.go(Reading::AskLapse(after, before))
            }
            Reading::AskLapse(after, before) => {
                let has_lapsed = match self.setup.mistake {
                    Some(Mistake::ReturnNotCounted) => false,
                    Some(Mistake::LapseOfSlotUnnoticed) => after == After::ReadBack,
                    _ => !self.state.is_intact(before),
                };
                self.go(if has_lapsed {
                    Reading::CountReturn(after)
                } else {
                    Reading::LoadWaits(after)
                })
            }
            Reading::CountReturn(after) => {
                self.state.raise_joins_on_return();
                self.go(Reading::LoadWaits(after))
            }
            Reading::LoadWaits(after) => {
                let me = self.mine();
                if me.answered {
                    return self.after_position(after);
                }
                me.counted = true;
                self.go(Reading::LoadUntil(after))
            }
            Reading::LoadUntil(after) => {
                let until = self.state.ring.until;
                let me = self.mine();
                let counted = std::mem::take(&mut me.counted);
                if at.position < until {
                    return self.after_position(after);
                }
                me.answered = counted;
                self.go(Reading::AnswerUntil(after))
            }
            Reading::AnswerUntil(after) => {
                let until = self.state.ring.until;
                self.go(Reading::AnswerReserved(after, until))
            }
            Reading::AnswerReserved(after, until) => {
                let reserved = self.state.ring.reserved;
                let left = small((1 << self.setup.subscribers) - 1);
                self.go(Reading::AnswerSlots { after, until, reserved, left })
            }
            Reading::AnswerSlots { after, until, reserved, left } => {
                self.answer_slot(way, after, until, reserved, left)
            }
            Reading::RaiseSpace(after) => {
                self.state.raise_space();
                self.after_position(after)
            }
            Reading::LoadTopics => {
                let (topic, until) = (self.mine().column, self.state.ring.topics);
                self.mark_from(topic, until, false)
            }
            Reading::MarkTopic { topic, until, adds } => {
                let unwanted = self.unwanted() & 1 << topic;
                let slot = &mut self.state.slots[self.me];
                slot.unwanted = slot.unwanted & !(1 << topic) | unwanted;
                self.mark_from(topic + 1, until, adds)
            }
            Reading::Token => {
                self.mine().token = true;
                let late = self.has(Mistake::TokenAfterArming);
                self.go(if late { Reading::Recheck } else { self.first_of_arming() })
            }
            Reading::ArmOwn => {
                self.state.raise_own_sleeps(self.me);
                let is_last = self.has(Mistake::CommonCountFirst);
                if is_last { self.armed() } else { self.go(Reading::ArmCommon) }
            }
            Reading::ArmCommon => {
                self.state.raise_sleeps();
                let is_first = self.has(Mistake::CommonCountFirst);
                if is_first { self.go(Reading::ArmOwn) } else { self.armed() }
            }
            Reading::Recheck => {
                let word = self.state.word(at.position);
                self.go(Reading::RecheckValidate { word })
            }
            Reading::RecheckValidate { word } => {
                let is_drained = word == 0 && self.is_intact_or_believed(at.position);
                if !is_drained {
                    self.mine().token = false;
                    return self.go(Reading::Scan(at));
                }
                self.go(Reading::Sleep)
            }
            Reading::Sleep => {
                let sleeps = std::mem::take(&mut self.mine().token);
                self.go(if sleeps { Reading::Asleep } else { Reading::Scan(at) })
            }
            Reading::Asleep => self.time_out(),
            Reading::CountLeave => {
                self.state.raise_joins();
                let me = self.mine();
                me.forget();
                me.life = Life::Dead;
                me.reading = Reading::Gone;
                true
            }
            Reading::Gone => false,
            _ => self.join_step(),
        }
    }

    pub(crate) fn has(&self, mistake: Mistake) -> bool {
        self.setup.mistake == Some(mistake)
    }

    pub(crate) fn mine(&mut self) -> &mut crate::state::Subscriber {
        &mut self.state.subscribers[self.me]
    }

    pub(crate) fn at(&self) -> RecordStart {
        self.state.subscribers[self.me].at
    }

    pub(crate) fn go(&mut self, reading: Reading) -> bool {
        self.mine().reading = reading;
        true
    }

    /// I2, as readers ask for it.
    pub(crate) fn is_intact(&self, position: u8) -> bool {
        if self.has(Mistake::TailForReserved) {
            return self.state.ring.tail <= position + self.setup.words;
        }
        self.state.is_intact(position)
    }

    fn is_intact_or_believed(&self, position: u8) -> bool {
        self.has(Mistake::ZeroBeforeValidation) || self.is_intact(position)
    }

    fn scan(&mut self, end: RecordStart) -> bool {
        let at = self.at();
        let word = self.state.word(end.position);
        let words = word::record_words(word);
        let after = end.position + words;
        if word != 0 && words <= LONGEST_READ_AHEAD && after <= at.position + self.setup.read_ahead
        {
            let end = RecordStart { position: after, sequence: end.sequence.wrapping_add(1) };
            return self.go(Reading::Scan(end));
        }
        if end != at {
            let early = self.has(Mistake::PositionBeforeCopy);
            return self.go(if early {
                Reading::PositionFirst { end }
            } else {
                Reading::Copy { end, done: 0, copied: [0; 4] }
            });
        }
        let is_published = self.state.subscribers[self.me].published == at.position;
        let finds_nothing = word == 0 && self.is_intact_or_believed(at.position);
        if finds_nothing && is_published && !self.setup.sleep {
            // It polls: the next check is the same as this one.
            return false;
        }
        self.go(Reading::Peek)
    }

    fn validate(&mut self, end: RecordStart, copied: &Copied) -> bool {
        let at = self.at();
        if !self.is_intact(at.position) && !self.has(Mistake::ReadAheadNotValidated) {
            return self.lapped();
        }
        if end.position >= self.state.ring.reserved && !self.has(Mistake::TailForReserved) {
            return self.go(Reading::Peek);
        }
        let words = &copied[..usize::from(end.position - at.position)];
        let mut next = 0;
        while next < words.len() {
            let header = words[next];
            let after = next + usize::from(word::record_words(header));
            if after > words.len() || !word::is_header(header) {
                // `ReadAhead::give_up`: the remaining records are read again.
                return self.go(Reading::Peek);
            }
            let place = self.at();
            self.deliver(place, header, &words[next + 1..after]);
            self.advance(header);
            next = after;
        }
        self.read_on()
    }

    fn peek(&mut self, word: u8) -> bool {
        let at = self.at();
        if word == 0 && self.has(Mistake::ZeroBeforeValidation) {
            return self.caught_up();
        }
        if !self.is_intact(at.position) {
            return self.lapped();
        }
        if word == 0 {
            return self.caught_up();
        }
        let words = word::record_words(word);
        if !word::is_header(word)
            || words > self.setup.words / 2
            || at.position + words >= self.state.ring.reserved
        {
            // The code checks once more whether it is intact. Nothing else runs between the two loads here, so the
            // answer is the same.
            if !self.has(Mistake::TailForReserved) {
                self.state.fail(Fault::Corrupt);
            }
            return self.lapped();
        }
        if word::length_of(word) == 0 {
            self.deliver(at, word, &[]);
            self.advance(word);
            return self.read_on();
        }
        self.go(Reading::CopyLong { word, done: 0, copied: [0; 4] })
    }

    fn caught_up(&mut self) -> bool {
        let at = self.at();
        if self.setup.sleep {
            return self.go(Reading::StorePosition(After::Sleep));
        }
        if self.state.subscribers[self.me].published != at.position {
            return self.go(Reading::StorePosition(After::Read));
        }
        self.go(Reading::Scan(at))
    }

    fn advance(&mut self, header: u8) {
        let me = self.mine();
        me.at.position += word::record_words(header);
        me.at.sequence += 1;
    }

    /// Publishes its position about once a block.
    fn read_on(&mut self) -> bool {
        let at = self.at();
        let block = self.setup.words / self.setup.blocks;
        let is_due = at.position >= self.state.subscribers[self.me].published + block;
        self.go(if is_due { Reading::StorePosition(After::Read) } else { Reading::Scan(at) })
    }

    fn after_position(&mut self, after: After) -> bool {
        let at = self.at();
        self.go(match after {
            After::Read | After::ReadBack => Reading::Scan(at),
            After::Sleep if self.setup.has_topics() => Reading::LoadTopics,
            After::Sleep => self.before_arming(),
        })
    }

    fn before_arming(&self) -> Reading {
        if self.has(Mistake::TokenAfterArming) { self.first_of_arming() } else { Reading::Token }
    }

    fn first_of_arming(&self) -> Reading {
        if self.has(Mistake::CommonCountFirst) { Reading::ArmCommon } else { Reading::ArmOwn }
    }

    fn armed(&mut self) -> bool {
        self.go(match self.setup.mistake {
            Some(Mistake::TokenAfterArming) => Reading::Token,
            Some(Mistake::SleepWithoutARecheck) => Reading::Sleep,
            _ => Reading::Recheck,
        })
    }

    /// Its column as it has to be.
    fn unwanted(&self) -> u8 {
        let unwanted = !self.state.subscribers[self.me].interest.wants;
        let unknown = !0 << self.state.ring.topics;
        if self.has(Mistake::NewTopicsUnwanted) { unwanted | unknown } else { unwanted }
    }

    /// Marks the topics of the column from this one on whose bits are not right.
    fn mark_from(&mut self, from: u8, until: u8, adds: bool) -> bool {
        let until = if self.has(Mistake::NewTopicsUnwanted) { MOST_TOPICS } else { until };
        let wrong = self.state.slots[self.me].unwanted ^ self.unwanted();
        let is_wrong = |topic: &u8| wrong & 1 << topic != 0;
        let me = self.mine();
        if let Some(topic) = (from..until).find(is_wrong) {
            return self.go(Reading::MarkTopic { topic, until, adds });
        }
        me.column = me.column.max(until);
        if !adds {
            let next = self.before_arming();
            return self.go(next);
        }
        let at = me.at;
        me.interest.wants |= std::mem::take(&mut me.interest.adds);
        self.go(Reading::Scan(at))
    }

    /// `add_pattern`, between two calls that receive.
    pub(crate) fn add_pattern(&mut self) {
        let until = self.state.ring.topics;
        let is_late = self.has(Mistake::BitsBeforePatterns);
        let keeps = self.has(Mistake::ColumnKeptWithANewPattern);
        let me = self.mine();
        if !is_late {
            me.interest.wants |= std::mem::take(&mut me.interest.adds);
        }
        if me.column == 0 || keeps {
            me.interest.wants |= std::mem::take(&mut me.interest.adds);
            return;
        }
        self.mark_from(0, until, true);
    }

    fn answer_slot(&mut self, way: u8, after: After, until: u8, reserved: u8, left: u8) -> bool {
        if left & 1 << way == 0 {
            return false;
        }
        let slot = self.state.slots[usize::from(way)];
        let is_before =
            slot.active && slot.position < until && slot.position + self.setup.words >= reserved;
        let left = left & !(1 << way);
        if is_before {
            self.after_position(after)
        } else if left == 0 {
            self.go(Reading::RaiseSpace(after))
        } else {
            self.go(Reading::AnswerSlots { after, until, reserved, left })
        }
    }

    /// Rechecks by itself. The model does so only if a publisher died or was stopped between commit and wake. A recheck
    /// that finds nothing is no step, because it would lead back here.
    fn time_out(&mut self) -> bool {
        let at = self.at();
        let finds = self.state.word(at.position) != 0 || !self.is_intact(at.position);
        self.state.unwoken && finds && self.go(Reading::Scan(at))
    }

    pub(crate) fn lapped(&mut self) -> bool {
        if self.setup.passes { self.look(true) } else { self.seek_back() }
    }

    /// Seeks the oldest place that is safe, to report what it has missed before that.
    pub(crate) fn seek_back(&mut self) -> bool {
        self.go(Reading::FindTail { attempt: 0, back: true })
    }

    /// Hands a message out, and compares it with the truth.
    fn deliver(&mut self, at: RecordStart, header: u8, payload: &[u8]) {
        let committed = &self.state.truth.committed;
        let length = word::length_of(header);
        let told = match committed.get(usize::from(at.sequence)) {
            Some(told) if told.start == at.position && header & 0x1F == told.stamp => *told,
            next => {
                // Another message than the next one, or no message at all.
                let is_known = committed.iter().any(|other| {
                    other.start == at.position && word::header(other.stamp, length) == header
                });
                let fault = match next {
                    _ if is_known => Fault::Disorder,
                    None => Fault::Uncommitted,
                    Some(_) => Fault::Torn,
                };
                return self.state.fail(fault);
            }
        };
        let mut words = (0..length).map(|index| word::payload(told.stamp, index));
        if length != self.setup.length(told.stamp)
            || !payload.iter().all(|word| Some(*word) == words.next())
        {
            self.state.fail(Fault::Torn);
        }
    }
}
