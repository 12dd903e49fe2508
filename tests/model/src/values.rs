//! Values: the newest message of a retained topic, kept beside the stream: `ring/values.rs`.
//!
//! A state space of its own: publishers, one after the other, each of which may die at any step; and one reader, which reads
//! again and again. The next publisher recovers the stream. There is a topic `x`, which is retained, and a topic `y`. The ring
//! is long enough for all messages, so that nothing leaves it. A long message of `y` has words that look like messages of `x`.

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;

/// Words of the ring: each publisher writes three at most, and a 0 after them.
const WORDS: u8 = 3 * PUBLISHERS + 1;
const PUBLISHERS: u8 = 3;
/// Words that are headers. Each of the short messages has only that.
const X: u8 = 1;
const SHORT_Y: u8 = 2;
/// It has two more words.
const LONG_Y: u8 = 3;
/// What publishers publish, with one commit.
const BATCHES: [&[u8]; 4] = [&[X], &[LONG_Y], &[SHORT_Y, X], &[X, X, SHORT_Y]];
/// No message.
const NONE: i8 = -1;

/// A known mistake, which must break a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A recovery does not bring the value up to date.
    NoRedo,
    /// A publisher does not say where the value will be.
    NoAnnounce,
    /// It says that a message in a batch is committed by its own header, and not by the first one.
    OwnHeader,
    /// A reader believes that an announced message is there without walking to it from the word that commits it.
    NoWalk,
}

/// All mistakes, and the property that each of them breaks.
pub const MISTAKES: [(Mistake, &str); 4] = [
    (Mistake::NoRedo, KEPT),
    (Mistake::NoAnnounce, NO_OLDER),
    (Mistake::OwnHeader, COMMITTED),
    (Mistake::NoWalk, COMMITTED),
];

/// R1.
pub const KEPT: &str = "whenever the tail is stored, the value is the newest message before it";
/// R2.
pub const NO_OLDER: &str = "a value is no older than what was received before it was read";
/// R3.
pub const COMMITTED: &str = "a value was committed, and is whole";

/// The shared words, the registers of the processes, and the truth.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    words: [u8; WORDS as usize],
    next: u8,
    tail: u8,
    /// The low bit names the valid buffer.
    version: u8,
    /// The message in it, and whether all of it is there.
    buffers: [(i8, bool); 2],
    /// Where the next value will be, and the word that commits it.
    announced: (i8, u8),
    writer: Writer,
    /// Publishers that have not begun.
    left: u8,
    reader: Reader,
    /// Committed messages of the retained topic, as a set of bits by their positions.
    committed: u16,
    broken: Option<&'static str>,
}

/// What the owner of the writer lock does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    /// It looks whether the last one died.
    Begin(u8),
    /// It looks at the message here, on its way to the end.
    Recover(u8, u8),
    RecoverTail(u8, u8),
    RecoverNext(u8, u8),
    /// It writes what follows the first header: this word of it.
    Body(u8, u8),
    EndWord(u8),
    Announce(u8),
    Next(u8),
    Commit(u8),
    Tail(u8),
    /// It copies a message to the idle buffer, and then goes on to what is behind it: a batch to end, or a recovery.
    Copy(u8, CopyStep, After),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CopyStep {
    Half,
    Whole,
    Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum After {
    Tail(u8),
    Recover(u8, u8),
}

/// What the reader does next. `low` is the newest message that its thread may have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Idle,
    Version { low: i8 },
    Kept { low: i8, version: u8 },
    Announced { low: i8, version: u8, kept: i8 },
    Walk { low: i8, version: u8, to: u8, at: u8 },
    Buffer { low: i8, version: u8 },
    Compare { low: i8, version: u8, found: (i8, bool) },
}

/// A step, or a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A publisher begins with this batch.
    Publish(u8),
    Writer,
    Dies,
    Reader,
}

/// The values of one topic.
#[derive(Clone, Debug)]
pub struct Values {
    pub mistake: Option<Mistake>,
}

impl Values {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn begin_copy(state: &State, at: u8, after: After) -> Writer {
        // What was kept already, or is not what was announced, is not copied.
        let is_kept = state.valid().0 == at.cast_signed();
        if is_kept { after.writer() } else { Writer::Copy(at, CopyStep::Half, after) }
    }

    fn write(&self, state: &mut State) {
        let step = state.writer;
        state.writer = match step {
            Writer::Idle => return,
            Writer::Begin(batch) if state.next == state.tail => Writer::body(batch, 1),
            Writer::Begin(batch) => Writer::Recover(batch, state.tail),
            Writer::Recover(batch, at) => match state.words[usize::from(at)] {
                0 => Writer::RecoverTail(batch, at),
                word => {
                    let after = After::Recover(batch, at + length_of(word));
                    let is_due = word == X && self.is_announced(state, at);
                    if is_due && !self.has(Mistake::NoRedo) {
                        Self::begin_copy(state, at, after)
                    } else {
                        after.writer()
                    }
                }
            },
            Writer::RecoverTail(batch, at) => {
                state.store_tail(at);
                Writer::RecoverNext(batch, at)
            }
            Writer::RecoverNext(batch, at) => {
                state.next = at;
                Writer::body(batch, 1)
            }
            Writer::Body(batch, word) => {
                let at = state.tail + word;
                state.words[usize::from(at)] = words_of(batch)[usize::from(word)];
                Writer::body(batch, word + 1)
            }
            Writer::EndWord(batch) => {
                let end = state.tail + length_of_batch(batch);
                state.words[usize::from(end)] = 0;
                if newest_of(batch).is_some() && !self.has(Mistake::NoAnnounce) {
                    Writer::Announce(batch)
                } else {
                    Writer::Next(batch)
                }
            }
            Writer::Announce(batch) => {
                let at = state.tail + newest_of(batch).unwrap_or_default();
                let commit = if self.has(Mistake::OwnHeader) { at } else { state.tail };
                state.announced = (at.cast_signed(), commit);
                Writer::Next(batch)
            }
            Writer::Next(batch) => {
                state.next = state.tail + length_of_batch(batch);
                Writer::Commit(batch)
            }
            Writer::Commit(batch) => {
                state.words[usize::from(state.tail)] = words_of(batch)[0];
                let mut at = state.tail;
                for word in BATCHES[usize::from(batch)] {
                    state.committed |= u16::from(*word == X) << at;
                    at += length_of(*word);
                }
                match newest_of(batch) {
                    Some(newest) => {
                        Self::begin_copy(state, state.tail + newest, After::Tail(batch))
                    }
                    None => Writer::Tail(batch),
                }
            }
            Writer::Tail(batch) => {
                state.store_tail(state.tail + length_of_batch(batch));
                Writer::Idle
            }
            Writer::Copy(at, copy, after) => {
                let idle = usize::from(state.version & 1 ^ 1);
                match copy {
                    CopyStep::Half => {
                        state.buffers[idle] = (at.cast_signed(), false);
                        Writer::Copy(at, CopyStep::Whole, after)
                    }
                    CopyStep::Whole => {
                        state.buffers[idle] = (at.cast_signed(), true);
                        Writer::Copy(at, CopyStep::Version, after)
                    }
                    CopyStep::Version => {
                        state.version += 1;
                        after.writer()
                    }
                }
            }
        };
    }

    fn is_announced(&self, state: &State, at: u8) -> bool {
        self.has(Mistake::NoAnnounce) || state.announced.0 == at.cast_signed()
    }

    fn read(&self, state: &mut State) {
        state.reader = match state.reader {
            Reader::Idle => Reader::Version { low: state.newest_before(WORDS) },
            Reader::Version { low } => Reader::Kept { low, version: state.version },
            Reader::Kept { low, version } => {
                let kept = state.buffers[usize::from(version & 1)].0;
                Reader::Announced { low, version, kept }
            }
            Reader::Announced { low, version, kept } => {
                let (to, commit) = state.announced;
                if to <= kept {
                    Reader::Buffer { low, version }
                } else {
                    let to = to.cast_unsigned();
                    let at = if self.has(Mistake::NoWalk) { to } else { commit };
                    Reader::Walk { low, version, to, at }
                }
            }
            Reader::Walk { low, version, to, at } => match state.words[usize::from(at)] {
                X if at == to => {
                    state.compare(low, (at.cast_signed(), true));
                    Reader::Idle
                }
                word if word != 0 && at < to => {
                    Reader::Walk { low, version, to, at: at + length_of(word) }
                }
                _ => Reader::Buffer { low, version },
            },
            Reader::Buffer { low, version } => {
                let found = state.buffers[usize::from(version & 1)];
                Reader::Compare { low, version, found }
            }
            Reader::Compare { low, version, .. } if state.version != version => {
                Reader::Version { low }
            }
            Reader::Compare { low, found, .. } => {
                state.compare(low, found);
                Reader::Idle
            }
        };
    }
}

impl State {
    fn valid(&self) -> (i8, bool) {
        self.buffers[usize::from(self.version & 1)]
    }

    /// The newest message of the topic before a position.
    fn newest_before(&self, end: u8) -> i8 {
        let before = |at: &u8| self.committed >> at & 1 == 1;
        (0..end).rev().find(before).map_or(NONE, |at| at.cast_signed())
    }

    fn store_tail(&mut self, tail: u8) {
        self.tail = tail;
        if self.valid() != (self.newest_before(tail), true) {
            self.broken = Some(KEPT);
        }
    }

    fn compare(&mut self, low: i8, (found, is_whole): (i8, bool)) {
        if !is_whole || found != NONE && self.committed >> found & 1 == 0 {
            self.broken = Some(COMMITTED);
        } else if found < low {
            self.broken = Some(NO_OLDER);
        }
    }
}

impl Writer {
    /// Continues with this word of a batch, or with what follows the last one.
    fn body(batch: u8, word: u8) -> Self {
        let is_left = usize::from(word) < words_of(batch).len();
        if is_left { Self::Body(batch, word) } else { Self::EndWord(batch) }
    }
}

impl After {
    fn writer(self) -> Writer {
        match self {
            Self::Tail(batch) => Writer::Tail(batch),
            Self::Recover(batch, at) => Writer::Recover(batch, at),
        }
    }
}

/// The words of a batch in the ring.
fn words_of(batch: u8) -> Vec<u8> {
    let words = BATCHES[usize::from(batch)].iter();
    words.flat_map(|word| if *word == LONG_Y { vec![LONG_Y, X, X] } else { vec![*word] }).collect()
}

fn length_of(word: u8) -> u8 {
    if word == LONG_Y { 3 } else { 1 }
}

fn length_of_batch(batch: u8) -> u8 {
    BATCHES[usize::from(batch)].iter().map(|word| length_of(*word)).sum()
}

/// The words before the last message of the topic that is retained.
fn newest_of(batch: u8) -> Option<u8> {
    let last = BATCHES[usize::from(batch)].iter().rposition(|word| *word == X)?;
    // No long message is in a batch.
    u8::try_from(last).ok()
}

impl Model for Values {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            words: [0; WORDS as usize],
            next: 0,
            tail: 0,
            version: 0,
            buffers: [(NONE, true); 2],
            announced: (NONE, 0),
            writer: Writer::Idle,
            left: PUBLISHERS,
            reader: Reader::Idle,
            committed: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.writer != Writer::Idle {
            actions.extend([Action::Writer, Action::Dies]);
        } else if state.left > 0 {
            actions.extend((0..).take(BATCHES.len()).map(Action::Publish));
        }
        actions.push(Action::Reader);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Publish(batch) => {
                state.writer = Writer::Begin(batch);
                state.left -= 1;
            }
            Action::Writer => self.write(&mut state),
            Action::Dies => state.writer = Writer::Idle,
            Action::Reader => self.read(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| state.broken != Some(KEPT)),
            Property::always(NO_OLDER, |_, state: &State| state.broken != Some(NO_OLDER)),
            Property::always(COMMITTED, |_, state: &State| state.broken != Some(COMMITTED)),
        ]
    }
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Report {
    pub states: usize,
    pub seconds: f64,
    /// Properties that do not hold, each with the shortest way to a state that shows it.
    pub broken: Vec<(&'static str, Vec<Action>)>,
}

/// Visits all states, or those up to the first that breaks a property.
#[must_use]
pub fn search(mistake: Option<Mistake>) -> Report {
    let began = Instant::now();
    let checker = Values { mistake }.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let broken = checker.discoveries().into_iter();
    Report {
        states: checker.unique_state_count(),
        broken: broken.map(|(property, path)| (property, path.into_actions())).collect(),
        seconds: began.elapsed().as_secs_f64(),
    }
}
