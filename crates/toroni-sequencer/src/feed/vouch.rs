//! What an archive has is believed as far as a member says that the order has it.
//!
//! A recovery can lose events that an archive has kept. An archive that learns of it stops, and still answers. So the members are asked
//! where the order departs from the series of what the archive has, and what the archive has from there on is left out. The one that is
//! furthest decides: others may have stayed behind, or not have come as far yet. A series that begins in what the archive has is asked
//! about on its own.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

use super::follow::ANSWER_TIME;
use crate::batch::Command;
use crate::hook::mutant;
use crate::machine::{Chain, Departs};
use crate::rpc::{Answer, Events, Fetch, Fetched, InTurn, Request};

/// What is believed of an archive while no member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    /// Nothing. A follower waits.
    Nothing,
    /// All: it may be what is left of a group.
    All,
}

/// Returns the answer of the one who was asked, without what only an archive says. None if it is an archive's, and nothing is known of it.
pub(super) fn vouched(members: &InTurn, fetched: Fetched, alone: Alone) -> Option<Fetched> {
    if members.is_at_member() || mutant("archives_not_vouched_for") {
        return Some(fetched);
    }
    // Where the order departs from a series, members say.
    let fetched = Fetched { departs: Departs::Nowhere, ..fetched };
    let Some(events) = &fetched.events else { return Some(fetched) };
    let kept = match word(members, events.before().series) {
        Some((now, departs)) => before(events, now, departs),
        None if alone == Alone::All => return Some(fetched),
        None => return None,
    };
    Some(match kept {
        Some(kept) => Fetched { events: Some(kept), ..fetched },
        // The archive has none of what is wanted, or of what follows.
        None => Fetched { first: u64::MAX, events: None, ..fetched },
    })
}

/// Asks all members how far the order has come, and where it departs from a series.
pub(super) fn ends_of(
    members: &InTurn,
    series: Option<u32>,
) -> impl Iterator<Item = (Chain, Departs)> {
    let fetch = Fetch { from: u64::MAX, max_bytes: 0, wait: Duration::ZERO, series };
    let answers = members.ask_members(&Request::Fetch(fetch), ANSWER_TIME);
    answers.into_iter().filter_map(|answer| match answer {
        Answer::Fetched(Fetched { now, departs, .. }) => Some((now, departs)),
        _ => None,
    })
}

/// Returns what the member says that is furthest. None if none answers that knows the series.
fn word(members: &InTurn, series: u32) -> Option<(Chain, Departs)> {
    // One that stayed behind in an earlier series does not know.
    let words = ends_of(members, Some(series)).filter(|(now, _)| now.series >= series);
    words.max_by_key(|(now, _)| now.place())
}

/// Returns the events before the order departs from their series, as far as the member has come. A series that the order begins there,
/// too, ends them. None if the order departs at the first of them, or before it.
fn before(events: &Events, now: Chain, departs: Departs) -> Option<Events> {
    let first = events.before().next;
    let limit = match departs {
        Departs::Foreign { .. } => return None,
        Departs::At { begun, .. } => begun,
        Departs::Nowhere => now.next,
        Departs::Unknown => u64::MAX,
    };
    if limit < first {
        return None;
    }
    let mut end = first;
    for (command, _) in events.commands() {
        let next = end.saturating_add(1);
        if let Command::Begin { series } = command {
            let is_of_the_order = match departs {
                Departs::At { series: other, begun } => (other, begun) == (series, end),
                Departs::Unknown => true,
                Departs::Nowhere | Departs::Foreign { .. } => false,
            };
            end = if is_of_the_order { next } else { end };
            break;
        }
        if limit <= end {
            break;
        }
        end = next;
    }
    (events.is_empty() || end > first).then(|| events.until(end))
}
