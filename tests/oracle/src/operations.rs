//! Lists of operations on a bus. Property tests, the fuzzer and the simulator make them; they are performed on the ring in
//! plain memory and on a whole bus.
//!
//! Every eight bytes are an operation, so all bytes are a valid list. A fuzzer that changes a few bytes changes one
//! operation, and a test that shrinks towards 0 reaches simple operations. The performer brings numbers into range, so
//! that every list is valid on every bus.

use crate::numbers::Numbers;

/// Bytes of an operation, and of the [`Setup`] before the first.
pub const BYTES: usize = 8;

/// A bus and what is done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub setup: Setup,
    /// What is done with it, in turn.
    pub operations: Vec<Operation>,
}

/// What the bus is like. The ring on plain memory looks at its size only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// 0, 1 or 2: how often the smallest size is doubled.
    pub size: u8,
    /// The writer lock is a robust mutex.
    pub robust: bool,
    /// Subscribers are woken by sockets.
    pub sockets: bool,
    /// Messages carry the time.
    pub timestamps: bool,
    /// What publishers do about slow subscribers.
    pub policy: Policy,
}

/// What publishers do about slow subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    Overwrite,
    /// They wait for some microseconds.
    WaitBriefly,
    /// They wait as long as it takes.
    WaitForever,
    /// They wait for some microseconds in all.
    Bounded,
}

/// A step of the whole system. A `die_at` is the number of the step within the operation at which the participant dies,
/// if it gets that far; with 0 it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A publisher, which is opened if need be, publishes.
    Write {
        writer: u8,
        /// On which topic; the highest bit: and to its descendants; the next two: not exclusively, even if it is the
        /// exclusive publisher.
        topic: u8,
        work: Work,
        /// See [`Operation`].
        die_at: u8,
    },
    Receive {
        reader: u8,
        /// The most messages that it takes.
        most: u8,
        by: By,
        /// See [`Operation`].
        die_at: u8,
    },
    /// A subscriber comes, in the place of the one of this number.
    Subscribe {
        reader: u8,
        start: Start,
        /// What it asks for.
        patterns: u8,
        /// Whether publishers wait for it.
        gating: bool,
        /// Whether it passes over what comes from elsewhere.
        local_only: bool,
        /// Whether it continues with the newest message after a loss.
        newest: bool,
        /// Whether it first receives the values of retained topics.
        retained: bool,
        /// See [`Operation`].
        die_at: u8,
    },
    Unsubscribe {
        reader: u8,
        /// See [`Operation`].
        die_at: u8,
    },
    Close {
        writer: u8,
        /// See [`Operation`].
        die_at: u8,
    },
    /// An observer reads the whole state.
    Look,
    /// A publisher, which is opened if need be, becomes exclusive: from then on it publishes exclusively.
    BecomeExclusive {
        writer: u8,
        by: Attempt,
        /// See [`Operation`].
        die_at: u8,
    },
    /// The exclusive publisher, if there is one, gives up the lock.
    GiveUp {
        /// See [`Operation`].
        die_at: u8,
    },
    /// An inlet, which is opened if need be, brings what comes from elsewhere.
    Bring {
        inlet: u8,
        stream: u8,
        cargo: Cargo,
        /// See [`Operation`].
        die_at: u8,
    },
    CloseInlet {
        inlet: u8,
        /// See [`Operation`].
        die_at: u8,
    },
    /// A publisher, which is opened if need be, or an inlet declares a topic: the bus keeps its newest message.
    Retain {
        /// Beyond the publishers, it is an inlet.
        writer: u8,
        /// As in [`Self::Write`].
        topic: u8,
        /// See [`Operation`].
        die_at: u8,
    },
    /// Another program reads the values of all topics.
    ReadValues,
}

/// What an inlet brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// `count` messages in one call, of these sizes in turn.
    Messages { topic: u8, count: u8, numbers: Numbers, sizes: [Size; 3], timed: bool },
    /// The news that `count` numbers were lost. `scope` is how the inlet says which topics the loss concerns.
    Loss { scope: u8, count: u8, numbers: Numbers, timed: bool },
    /// Nothing: it asks how far the stream has arrived.
    Question,
    /// Nothing: it no longer brings the stream.
    Release { is_over: bool },
}

/// How a publisher becomes exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Without waiting.
    Try,
    /// Unless it takes long.
    Timed,
    /// It waits as long as it takes, unless that is for another one of the same list.
    Wait,
}

/// What a publisher does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Publishes, and waits if it has to.
    One(Size),
    /// Publishes, if it need not wait for any subscriber.
    Try(Size),
    /// Publishes, unless it takes long.
    Timed(Size),
    /// Publishes what it writes in place.
    InPlace(Size),
    /// Begins to write in place, and gives up half-way.
    Abort(Size),
    /// Publishes this number of messages together, of these sizes in turn.
    Batch(u8, [Size; 3]),
    /// Publishes this number of messages one by one, under one lock.
    Burst(u8, [Size; 3]),
    /// Tries to publish more than there can be.
    TooLong,
    /// Clears the value of its topic.
    Clear,
}

/// How long a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Bytes(u8),
    /// In parts in 127 of the longest.
    Part(u8),
}

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Latest,
    /// With the oldest that is there.
    Oldest,
    /// This number of 256ths of one and a half rings before the end.
    Back(u8),
}

/// How a subscriber receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Copy,
    InPlace,
    /// A copy, and it waits for some microseconds where there is none.
    Waiting,
    /// Several in place, with one call.
    Run,
}

impl Scenario {
    /// The list that bytes are; at most `most` operations.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], most: usize) -> Self {
        let mut chunks = bytes.chunks(BYTES).map(|chunk| {
            let mut whole = [0; BYTES];
            whole[..chunk.len()].copy_from_slice(chunk);
            whole
        });
        let setup = Setup::from_bytes(chunks.next().unwrap_or_default());
        Self { setup, operations: chunks.take(most).map(Operation::from_bytes).collect() }
    }

    /// Returns a list of `count` operations, the same for the same seed. Unlike in bytes of a fuzzer, one in six is
    /// that of an inlet, and one in six about values.
    #[must_use]
    pub fn from_seed(seed: u64, count: usize) -> Self {
        let mut state = seed;
        // SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (word ^ word >> 31).to_le_bytes()
        };
        let setup = Setup::from_bytes(next());
        let mut operation = || {
            let [turn, ..] = next();
            let bytes = next();
            match turn {
                0..40 => Operation::of_inlet(bytes),
                40..80 => Operation::of_values(bytes),
                _ => Operation::from_bytes(bytes),
            }
        };
        Self { setup, operations: (0..count).map(|_| operation()).collect() }
    }
}

/// First bytes of operations of inlets. Hardly any collected input has them, so those still mean what they did.
const BRING: [u8; 4] = [127, 143, 175, 223];
const CLOSE_INLET: u8 = 239;
/// Those of operations about values, which some collected inputs have.
const RETAIN: u8 = 31;
const CLEAR: u8 = 47;
const READ_VALUES: u8 = 111;
/// Topics of [`Operation::of_values`]: few, so that their values change.
const VALUES: u8 = 6;

impl Setup {
    /// The setup that bytes are.
    #[must_use]
    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        let policies =
            [Policy::Overwrite, Policy::WaitBriefly, Policy::WaitForever, Policy::Bounded];
        Self {
            size: bytes[0] % 3,
            robust: bytes[1] % 4 == 1,
            sockets: bytes[2] % 4 == 1,
            timestamps: bytes[3] % 4 == 1,
            policy: policies[usize::from(bytes[4] % 4)],
        }
    }
}

impl Operation {
    /// The operation of an inlet that bytes are.
    #[must_use]
    pub fn of_inlet([kind, rest @ ..]: [u8; BYTES]) -> Self {
        let kind = if kind < 40 { CLOSE_INLET } else { BRING[0] };
        let [who, death, how, a, b, c, d] = rest;
        Self::from_bytes([kind, who, death, how, a, b, c, d])
    }

    /// The operation about values that bytes are: on a few topics, so that something comes of it.
    #[must_use]
    pub fn of_values([kind, who, death, how, a, b, c, d]: [u8; BYTES]) -> Self {
        let topic = (a % VALUES) | (a & 0x80);
        let kind = match kind {
            0..64 => RETAIN,
            64..80 => CLEAR,
            80..96 => READ_VALUES,
            96..120 => {
                let retained = d & !0x18 | 8;
                return Self::from_bytes([12, who, death, how, a, b, c, retained]);
            }
            _ => 0,
        };
        Self::from_bytes([kind, who, death, how, topic, b, c, d])
    }

    /// The operation that bytes are.
    #[must_use]
    pub fn from_bytes([kind, who, death, how, a, b, c, d]: [u8; BYTES]) -> Self {
        // One in four dies, if the operation allows it.
        let die_at = if death % 4 == 3 { 1 + death / 4 % 40 } else { 0 };
        match kind % 16 {
            0..8 => {
                let sizes = [b, c, d].map(Size::from_byte);
                let size = sizes[0];
                let work = match how % 16 {
                    0..5 => Work::One(size),
                    5 | 6 => Work::Try(size),
                    7 => Work::Timed(size),
                    8 | 9 => Work::InPlace(size),
                    10 => Work::Abort(size),
                    11 | 12 => Work::Batch(how / 16, sizes),
                    13 | 14 => Work::Burst(how / 16, sizes),
                    _ => Work::TooLong,
                };
                Self::Write { writer: who, topic: a, work, die_at }
            }
            8..12 => {
                let by = match how % 16 {
                    0..5 | 8..12 => By::Copy,
                    5 | 13 => By::InPlace,
                    6 | 12 | 14 => By::Run,
                    _ => By::Waiting,
                };
                Self::Receive { reader: who, most: a % 64, by, die_at }
            }
            12 | 13 => {
                let start = match how % 4 {
                    0 => Start::Latest,
                    1 => Start::Oldest,
                    _ => Start::Back(a),
                };
                let (gating, local_only, newest) = (c % 4 != 1, d % 8 == 1, d % 8 > 5);
                let (reader, patterns, retained) = (who, b, d / 8 % 4 == 1);
                Self::Subscribe {
                    reader,
                    start,
                    patterns,
                    gating,
                    local_only,
                    newest,
                    retained,
                    die_at,
                }
            }
            14 if how % 2 == 0 => Self::Unsubscribe { reader: who, die_at },
            14 => Self::Close { writer: who, die_at },
            // Later than the others, and on numbers that no collected input has: these still mean what they did.
            _ if [63, 79, 95, 191].contains(&kind) => {
                let by = [Attempt::Try, Attempt::Timed, Attempt::Wait][usize::from(how) % 3];
                Self::BecomeExclusive { writer: who, by, die_at }
            }
            _ if [159, 207].contains(&kind) => Self::GiveUp { die_at },
            _ if BRING.contains(&kind) => {
                let (count, numbers, timed) = (how / 8 % 8, Numbers::from_byte(c), how >= 192);
                let cargo = match how % 8 {
                    0..5 => {
                        let sizes = [Size::from_byte(d), Size::Bytes(24), Size::Bytes(c)];
                        Cargo::Messages { topic: b, count: count + 1, numbers, sizes, timed }
                    }
                    5 | 6 => Cargo::Loss { scope: b, count, numbers, timed },
                    _ if count % 2 == 0 => Cargo::Question,
                    _ => Cargo::Release { is_over: count % 4 == 1 },
                };
                Self::Bring { inlet: who, stream: a, cargo, die_at }
            }
            _ if kind == CLOSE_INLET => Self::CloseInlet { inlet: who, die_at },
            _ if kind == RETAIN => Self::Retain { writer: who, topic: a, die_at },
            _ if kind == CLEAR => Self::Write { writer: who, topic: a, work: Work::Clear, die_at },
            _ if kind == READ_VALUES => Self::ReadValues,
            _ => Self::Look,
        }
    }
}

impl Size {
    fn from_byte(byte: u8) -> Self {
        if byte < 192 { Self::Bytes(byte) } else { Self::Part((byte - 192) * 2) }
    }

    /// In bytes, where the longest has `longest`.
    #[must_use]
    pub fn bytes(self, longest: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::from(bytes).min(longest),
            // 126 is the largest part there is.
            Self::Part(part) => longest * u64::from(part) / 126,
        }
    }
}

impl Start {
    /// The position that it asks for, where there is a stream of this capacity and end; a bit beyond
    /// the end at the least, and one in eight between two words.
    #[must_use]
    pub fn position(back: u8, capacity: u64, end: u64) -> u64 {
        let bytes = capacity * 3 / 2 * u64::from(back) / 255;
        let bytes = if back % 8 == 7 { bytes } else { bytes / 8 * 8 };
        (end + 16).saturating_sub(bytes)
    }
}
