//! What an archive has is believed as far as a member says that the order has it.
//!
//! A recovery can lose events that an archive has kept. An archive that learns of it stops, and still answers. So a member is asked
//! where the order departs from the series of what the archive has, and what the archive has from there on is left out. A series that
//! begins in it is asked about on its own. If no member answers, all is believed: an archive may be what is left of a group.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

use super::follow::ANSWER_TIME;
use crate::batch::Command;
use crate::hook::mutant;
use crate::machine::Departs;
use crate::rpc::{Answer, Events, Fetch, Fetched, InTurn, Request};

/// Returns the answer of the one who was asked, without what only an archive says.
pub(super) fn vouched(members: &InTurn, fetched: Fetched) -> Fetched {
    if members.is_at_member() || mutant("archives_not_vouched_for") {
        return fetched;
    }
    // Members alone say whether a bus has diverged.
    let fetched = Fetched { departs: Departs::Nowhere, ..fetched };
    let Some(events) = fetched.events else { return fetched };
    match of_the_order(members, &events) {
        Some(events) => Fetched { events: Some(events), ..fetched },
        // The archive has none of what is wanted, or of what follows.
        None => Fetched { first: u64::MAX, events: None, ..fetched },
    }
}

/// Returns those of these events that the order has; none if they are others from the first one on, or from before it.
fn of_the_order(members: &InTurn, events: &Events) -> Option<Events> {
    let series = events.before().series;
    let fetch = Fetch { from: u64::MAX, max_bytes: 0, wait: Duration::ZERO, series: Some(series) };
    let mut has_answered = false;
    let departs = members.ask_members(&Request::Fetch(fetch), ANSWER_TIME, |answer| {
        let Answer::Fetched(Fetched { now, departs, .. }) = answer else { return None };
        has_answered = true;
        // One that stayed behind in an earlier series does not know.
        (now.series >= series).then_some(departs)
    });
    match departs {
        Some(departs) => before(events, departs),
        None => (!has_answered).then(|| events.clone()),
    }
}

/// Returns the events before the order departs from their series. A series that the order begins there, too, ends them.
fn before(events: &Events, departs: Departs) -> Option<Events> {
    let first = events.before().next;
    match departs {
        Departs::Foreign { .. } => return None,
        Departs::At { begun, .. } if begun < first => return None,
        _ => {}
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
        if matches!(departs, Departs::At { begun, .. } if begun <= end) {
            break;
        }
        end = next;
    }
    (events.is_empty() || end > first).then(|| events.until(end))
}
