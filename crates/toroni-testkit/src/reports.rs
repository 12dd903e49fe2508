//! What the subscribers of a receiving bus learn, whatever becomes of the two programs that connect two hosts, and of the hosts. Nodes
//! keep this table, and bridges; `docs/network.md` and `docs/zenoh.md` say the same in words.
//!
//! The messages 0 to 4 have been delivered. 5 to 9 are published while a program is away, or wait unsent. 10 and 11 follow when all
//! that is to come back is back.

use crate::{Random, long};
use std::fmt::Debug;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By SIGKILL.
    Killed,
    /// By SIGTERM.
    InOrder,
}

/// How a backup is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// As a copy, in the place of what was there.
    Copied,
    /// As a disk that goes back to a snapshot: the files are the same ones.
    Reverted,
}

/// Whether a sender comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// It does.
    Comes,
    /// It does not.
    Never,
}

/// What becomes of the sending program and of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Nothing.
    Lives,
    /// Stopped in order, after it has sent all.
    Drained(Back),
    /// Stopped in order, without the time to send all.
    Undrained(Back),
    /// Killed.
    Killed(Back),
    /// Its bus is another one, as after a reboot.
    Emptied(End),
    /// Its bus and its state are from a backup.
    Restored(Restored),
    /// Its state is from a backup, and its bus is not.
    OldState,
}

/// What becomes of the receiving side, before what becomes of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// Nothing.
    Lives,
    /// It is started again after all that.
    Killed,
    /// The same, and its bus is another one.
    Emptied,
    /// There are two. The one that does not bring the stream is killed.
    StandbyKilled,
    /// There are two. The one that brings the stream is killed.
    BringerKilled,
}

/// What becomes of the state that the sender keeps beside the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Kept,
    /// It is gone when the sender comes again.
    Lost,
}

/// By which way messages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nodes, by multicast.
    Multicast,
    /// Nodes, over TCP.
    Tcp,
    /// Nodes, by both.
    Both,
    /// Bridges, over Zenoh. They keep no state beside the bus.
    Zenoh,
}

/// Which messages come first, if that depends on the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// None.
    None,
    /// The first ones of 5 to 9.
    Beginning,
    /// The last ones of 0 to 9: a receiver that knows nothing begins where the stream is, or where a young session began.
    End,
}

/// What is published while a program is away.
pub const MISSED: [&str; 5] = ["5", "6", "7", "8", "9"];
/// What is published later.
pub const LATER: [&str; 2] = ["10", "11"];
const SILENT: &str = ">=0 Silent";

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What becomes of the receiving side.
    pub receiver: Receiver,
    /// What becomes of the sending side.
    pub sender: Sender,
    /// What becomes of the sender's state.
    pub state: State,
    /// How they are connected.
    pub way: Way,
}

impl Sender {
    /// Whether it publishes 10 and 11.
    #[must_use]
    pub fn comes_back(self) -> bool {
        !matches!(
            self,
            Self::Drained(Back::Never) | Self::Undrained(Back::Never) | Self::Killed(Back::Never)
        )
    }

    /// Whether its bus, its state or both go back to what they were after message 4.
    #[must_use]
    pub fn goes_back(self) -> bool {
        matches!(self, Self::Restored(_) | Self::OldState)
    }
}

impl Case {
    /// Returns what subscribers get after message 4: numbers of messages, and losses with bound, number and reason.
    #[must_use]
    pub fn expected(&self) -> (Part, Vec<&'static str>) {
        let delivered = [&MISSED[..], &LATER].concat();
        let after = |told: &'static str| [&[told], &LATER[..]].concat();
        let lives = matches!(self.receiver, Receiver::Lives | Receiver::StandbyKilled);
        if self.receiver == Receiver::Emptied {
            // Nothing is known, so nothing is reported.
            let later = if self.sender.comes_back() { LATER.to_vec() } else { Vec::new() };
            return (Part::End, later);
        }
        match self.sender {
            // Its stream begins with what is published from then on.
            Sender::Drained(Back::Comes)
            | Sender::Undrained(Back::Comes)
            | Sender::Killed(Back::Comes)
                if self.state == State::Lost && self.way == Way::Multicast =>
            {
                (Part::None, after("<=5 Restart"))
            }
            Sender::Lives
            | Sender::Drained(Back::Comes)
            | Sender::Undrained(Back::Comes)
            | Sender::Killed(Back::Comes) => (Part::None, delivered),
            // It has said that there is nothing more. Publishers of its bus may still add to that, which is reported a minute later.
            Sender::Drained(Back::Never) if lives => (Part::None, Vec::new()),
            // Also of a receiver that takes over.
            Sender::Undrained(Back::Never) if self.receiver != Receiver::Killed => {
                (Part::Beginning, vec![SILENT])
            }
            Sender::Drained(Back::Never)
            | Sender::Undrained(Back::Never)
            | Sender::Killed(Back::Never) => (Part::None, vec![SILENT]),
            Sender::Emptied(_) => (Part::None, after(">=0 Restart")),
            Sender::Restored(Restored::Copied) if self.state == State::Kept => {
                (Part::None, after(">=0 Restart"))
            }
            // A bridge knows its bus by how far it has come, and nothing else.
            Sender::Restored(_) if self.way == Way::Zenoh => (Part::None, after(">=0 Restart")),
            Sender::Restored(_) | Sender::OldState => (Part::None, after(">=0 Diverged")),
        }
    }

    /// Compares what subscribers got with what is [expected](Self::expected).
    ///
    /// # Panics
    /// If it differs.
    pub fn compare(&self, told: &[String]) {
        let (part, wanted) = self.expected();
        let is_number = |it: &&String| it.parse().is_ok_and(|number: u32| number < 10);
        let first = told.iter().take_while(is_number).count();
        let part: Vec<_> = match part {
            Part::None => Vec::new(),
            Part::Beginning => (5..10).take(first).collect(),
            Part::End => (0..10).skip(10_usize.saturating_sub(first)).collect(),
        };
        let part = part.iter().map(u32::to_string);
        let wanted: Vec<_> = part.chain(wanted.iter().map(|it| (*it).to_owned())).collect();
        assert_eq!(told, wanted, "{self:?}");
    }
}

/// Plays the cases that are drawn, or all as a long test, or those whose text contains `$TORONI_CASE`. `at_once` are played at the same
/// time for each processor.
///
/// # Panics
/// If a case fails, or there is none to play.
pub fn play<C: Debug + Sync>(
    cases: Vec<C>,
    at_once: usize,
    mut is_drawn: impl FnMut(&mut Random, &C) -> bool,
    play: impl Fn(&C) + Sync,
) {
    let mut random = Random::from_environment();
    let wanted = std::env::var("TORONI_CASE").ok();
    let cases: Vec<_> = cases
        .into_iter()
        .filter(|case| match &wanted {
            Some(wanted) => format!("{case:?}").contains(wanted),
            None => long::is_asked() || is_drawn(&mut random, case),
        })
        .collect();
    assert!(!cases.is_empty(), "no case is like {wanted:?}");
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, NonZero::get) * at_once;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(AssertUnwindSafe(|| play(case))).is_err() {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(case);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}
