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
    let (first, next) = ask_all(&mut members)?;
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
    let series = series.ok_or(FollowError::NoAnswer)?;
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

/// Asks members how far they reach: from the first event that one has to the next one.
fn ask_all(members: &mut InTurn) -> Result<(u64, u64), FollowError> {
    for _ in 0..ROUNDS {
        let mut reach: Option<(u64, u64)> = None;
        for _ in 0..members.count() {
            if let Some(Fetched { first, now, .. }) = fetch(members, u64::MAX) {
                let (earliest, latest) = reach.unwrap_or((first, now.next));
                reach = Some((earliest.min(first), latest.max(now.next)));
            }
            members.turn_to_any();
        }
        if let Some(reach) = reach {
            return Ok(reach);
        }
        turn(members);
    }
    Err(FollowError::NoAnswer)
}
