//! The feed once more: its events, as members still have them, into a new bus.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use toroni::BusConfig;

use super::FollowError;
use super::event_bus::EventBus;
use super::follow::{Following, fetch, in_turn, series_of, turn};
use crate::rpc::{Fetched, InTurn, Target};

/// All members are asked this many times before the feed counts as unavailable.
const ROUNDS: usize = 50;

/// What is brought to which bus.
#[derive(Debug)]
pub struct RewindOptions {
    /// The settings of the new bus, such as its directory and capacity.
    pub bus: BusConfig,
    /// Its name.
    pub name: String,
    /// The name of the feed.
    pub feed: String,
    /// The members of the group, in the order in which they are asked.
    pub members: Vec<Target>,
    /// Archives, which are asked for what members no longer have.
    pub archives: Vec<Target>,
    /// The first event [the first that a member has].
    pub from: Option<u64>,
}

/// What a rewind has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// The number of the first event.
    pub from: u64,
    /// The number after the last one.
    pub until: u64,
    /// Numbers between that no member has any more.
    pub lost: u64,
}

/// Writes the events of a feed, up to the last one that there is now, to a bus without messages. Returns when it has.
/// A bus that exists must be fresh; subscribers that are there already miss nothing.
///
/// # Errors
///
/// If the bus has messages, no member answers, or none has the first event.
pub fn rewind(options: RewindOptions) -> Result<Rewound, FollowError> {
    let RewindOptions { bus, name, feed, members, archives, from } = options;
    let mut members = in_turn(members, archives)?;
    // Asked before the bus is opened: what cannot be had leaves no bus.
    let Reach { first, first_of_members, next } = ask_all(&mut members)?;
    let from = from.unwrap_or(first);
    if from < first || from > next {
        return Err(FollowError::NoEvent { wanted: from, first, next });
    }
    let series = (0..ROUNDS).find_map(|_| {
        let series = series_of(&mut members, from, (None, 0));
        if series.is_none() {
            turn(&mut members);
        }
        series
    });
    // An archive that has it may have another event than the order.
    let series = series.ok_or(if from < first_of_members {
        FollowError::NoEvent { wanted: from, first: first_of_members, next }
    } else {
        FollowError::NoAnswer
    })?;
    let bus = EventBus::open(&bus, &name, &feed)?;
    if !bus.is_fresh()? {
        return Err(FollowError::NotFresh(name));
    }
    let mut following = Following::new(bus, members, Arc::new(AtomicBool::new(false)));
    following.bus.begin_with(from, series)?;
    while following.bus.next() < next {
        following.step()?;
    }
    let until = following.bus.next();
    Ok(Rewound { from, until, lost: following.followed().lost() })
}

/// Which events there are.
struct Reach {
    /// The first one that a member or an archive has.
    first: u64,
    /// The first one that a member has.
    first_of_members: u64,
    /// The next one that happens.
    next: u64,
}

/// Asks members and archives which events they have.
fn ask_all(members: &mut InTurn) -> Result<Reach, FollowError> {
    for _ in 0..ROUNDS {
        let (mut of_members, mut of_archives): (Vec<_>, Vec<_>) = (vec![], vec![]);
        for _ in 0..members.count() {
            if let Some(Fetched { first, now, .. }) = fetch(members, u64::MAX) {
                let of = if members.is_at_member() { &mut of_members } else { &mut of_archives };
                of.push((first, now.next));
            }
            members.turn_to_any();
        }
        // After a recovery, an archive may have more than the order.
        let ends = if of_members.is_empty() { &of_archives } else { &of_members };
        if let Some(next) = ends.iter().map(|(_, next)| *next).max() {
            let least = |of: &[(u64, u64)]| of.iter().map(|(first, _)| *first).min();
            let first_of_members = least(&of_members).unwrap_or(next);
            let first = least(&of_archives).map_or(first_of_members, |of| of.min(first_of_members));
            return Ok(Reach { first, first_of_members, next });
        }
        turn(members);
    }
    Err(FollowError::NoAnswer)
}
