//! The feed once more: its events, as members still have them, into a new bus.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use toroni::BusConfig;

use super::FollowError;
use super::event_bus::EventBus;
use super::follow::{Following, fetch, in_turn, series_of, turn};
use super::vouch::Alone;
use crate::machine::Chain;
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
    let wanted = from.unwrap_or(first);
    if wanted < first || wanted > next {
        return Err(FollowError::NoEvent { wanted, first, next });
    }
    let alone = if first_of_members.is_some() { Alone::Nothing } else { Alone::All };
    let mut find = |from: u64| {
        (0..ROUNDS).find_map(|_| {
            let series = series_of(&mut members, from, (None, 0), alone);
            if series.is_none() {
                turn(&mut members);
            }
            series.map(|series| (from, series))
        })
    };
    // An archive that has the event may have another one than the order.
    let (from, series) = match (find(wanted), first_of_members) {
        (Some(found), _) => found,
        (None, Some(first)) if wanted < first && from.is_some() => {
            return Err(FollowError::NoEvent { wanted, first, next });
        }
        (None, Some(first)) if wanted < first => find(first).ok_or(FollowError::NoAnswer)?,
        (None, _) => return Err(FollowError::NoAnswer),
    };
    let bus = EventBus::open(&bus, &name, &feed)?;
    if !bus.is_fresh()? {
        return Err(FollowError::NotFresh(name));
    }
    let mut following = Following::new(bus, members, Arc::new(AtomicBool::new(false)));
    following.alone = alone;
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
    /// The first one that a member has. None if no member answers.
    first_of_members: Option<u64>,
    /// The next one that happens.
    next: u64,
}

/// Asks members and archives which events they have. Archives count alone only if no member answers for some time: after a recovery,
/// they may have more than the order.
fn ask_all(members: &mut InTurn) -> Result<Reach, FollowError> {
    let mut archives: Vec<(u64, Chain)> = vec![];
    for _ in 0..ROUNDS {
        let mut found = vec![];
        archives.clear();
        for _ in 0..members.count() {
            if let Some(Fetched { first, now, .. }) = fetch(members, u64::MAX) {
                let of = if members.is_at_member() { &mut found } else { &mut archives };
                of.push((first, now));
            }
            members.turn_to_any();
        }
        if !found.is_empty() {
            return Ok(reach(&found, &archives));
        }
        turn(members);
    }
    if archives.is_empty() { Err(FollowError::NoAnswer) } else { Ok(reach(&[], &archives)) }
}

fn reach(members: &[(u64, Chain)], archives: &[(u64, Chain)]) -> Reach {
    let first = |of: &[(u64, Chain)]| of.iter().map(|(first, _)| *first).min();
    let ends = if members.is_empty() { archives } else { members };
    // One in an earlier series has stayed behind.
    let end = ends.iter().map(|(_, now)| now.place()).max();
    let next = end.map_or(0, |(_, next)| next);
    let first_of_members = first(members);
    let all = first(archives).into_iter().chain(first_of_members);
    Reach { first: all.min().unwrap_or(next), first_of_members, next }
}
