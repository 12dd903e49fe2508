//! What goes wrong, for how long, and with whom.

use crate::random::Random;
use crate::time::{MILLISECOND, SECOND};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Which sender, receiver or leg, modulo their number.
    pub(super) who: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    // The network.
    Loss {
        permille: u64,
    },
    /// Losses come in bursts (Gilbert and Elliott).
    Bursts {
        permille: u64,
    },
    /// A receiver loses this many datagrams in a row.
    Burst {
        count: u64,
    },
    Duplicate {
        permille: u64,
    },
    Reorder {
        permille: u64,
    },
    Corrupt {
        permille: u64,
    },
    /// What is longer does not reach a receiver.
    Mtu {
        bytes: usize,
    },
    /// A receiver hears nothing.
    Deaf,
    /// A receiver's datagrams do not arrive.
    Mute,
    /// A sender hears nothing.
    DeafSender,
    /// A sender reaches no receiver.
    Partition,
    /// A leg is cut.
    LegCut,
    /// What receivers send does not arrive over a leg.
    LegOneWay,
    /// A receiver loses some of what it should hear.
    Crybaby {
        permille: u64,
    },

    // Clocks and processes.
    /// A receiver does not run.
    Stop,
    /// A sender does not run.
    StopSender,
    /// The timers of a receiver and of a sender are late.
    Late {
        by: u64,
    },
    /// A receiver and a sender handle timeouts before they are due.
    Early,
    /// The calendar of a sender jumps by up to an hour.
    ClockStep,
    /// A sender is killed, and comes back with the same series at `until`.
    KillSender {
        again: u64,
        skip: u64,
        /// It lost its state, and its clock went back: its session is below the last one.
        forgets: bool,
    },
    /// A sender ends in order, for good.
    EndSender,
    /// A sender is killed, for good.
    Die,
    /// A sender ends in order, and comes back.
    RestartSender,
    /// A sender's bus was emptied: it comes back with another series.
    NewSeries,
    /// A sender is killed, and its bus and state are restored from a backup: it comes back with numbers that it has used.
    Revert {
        /// How many sessions older than the last backup.
        back: usize,
        again: u64,
    },
    /// A receiver is killed and comes back, with or without what it had received.
    KillReceiver {
        remembers: bool,
    },

    // Others.
    /// A second node has the id of a sender.
    Twin,
    /// A stranger sends garbage, old datagrams and forged ones.
    Hostile,
    /// A stranger sends datagrams that were changed anywhere, also where no node has a key.
    Noise,
    /// A stranger sends again what any node has sent before, to any node and from any address. All nodes have a key.
    Recorder,
    /// A stranger sends 100,000 NAKs in a second from one address.
    Flood,
}

impl Kind {
    /// Whether it ends the life of a sender.
    pub(super) fn ends_a_sender(self) -> bool {
        matches!(
            self,
            Self::KillSender { .. }
                | Self::NewSeries
                | Self::Revert { .. }
                | Self::RestartSender
                | Self::Die
        )
    }

    /// For how long after its end a source may not be believed.
    pub(super) fn settles_ns(self, keyed: bool) -> u64 {
        match self {
            // Without a key, a stranger may take over a stream that the network has silenced. Its sender is
            // believed again when the stranger has been silent for long.
            Self::Hostile if !keyed => 4 * SECOND,
            // As is a sender whose session is below that of another one with its id.
            Self::Twin | Self::KillSender { forgets: true, .. } => 4 * SECOND,
            _ => 0,
        }
    }

    fn draw(random: &mut Random) -> Self {
        let coin = |random: &mut Random| random.below(2) == 0;
        match random.below(33) {
            0 | 1 => Self::Loss { permille: random.between(1, 300) },
            2 | 3 => Self::Bursts { permille: random.between(1, 50) },
            4 => Self::Burst { count: 10_u64.pow(u32::from(coin(random)) + 1) },
            5 => Self::Duplicate { permille: random.between(1, 300) },
            6 => Self::Reorder { permille: random.between(1, 300) },
            7 => Self::Corrupt { permille: random.between(1, 200) },
            8 => Self::Mtu { bytes: usize::try_from(random.between(200, 1_400)).unwrap() },
            9 => Self::Deaf,
            10 => Self::Mute,
            11 => Self::Partition,
            12 => Self::LegCut,
            13 => Self::LegOneWay,
            14 => Self::Crybaby { permille: 300 },
            15 => Self::Stop,
            16 => Self::StopSender,
            17 => Self::Late { by: random.below(60) * MILLISECOND },
            18 => Self::Early,
            19 => Self::ClockStep,
            20..=22 => Self::KillSender {
                again: random.below(40),
                skip: random.below(2) * random.below(10),
                forgets: random.below(4) == 0,
            },
            23 if coin(random) => Self::EndSender,
            23 => Self::Die,
            24 => Self::RestartSender,
            25 => Self::NewSeries,
            26 | 27 => Self::KillReceiver { remembers: coin(random) },
            28 => Self::Hostile,
            29 => Self::DeafSender,
            30 | 31 => Self::Revert {
                back: usize::try_from(random.below(3)).unwrap(),
                again: random.below(2) * random.below(40),
            },
            _ => Self::Twin,
        }
    }
}

impl Fault {
    /// Draws a fault that ends at `end` at the latest. A few last for seconds, if there is time.
    pub(super) fn draw(random: &mut Random, end: u64) -> Self {
        let kind = Kind::draw(random);
        let from = random.below(end - 300 * MILLISECOND);
        let long = random.below(3) == 0;
        let length = random.between(1, if long { 10_000 } else { 800 }) * MILLISECOND;
        // A stranger sends much, so it does so for a short time.
        let length = if kind == Kind::Hostile { length.min(800 * MILLISECOND) } else { length };
        Self {
            kind,
            from,
            until: (from + length).min(end),
            who: usize::try_from(random.below(6)).unwrap(),
        }
    }
}
