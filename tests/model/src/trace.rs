//! Prints a counterexample: one line a step, with what it changed.

use crate::model::Action;
use crate::search::Broken;
use crate::state::State;
use std::fmt::Write;

/// The whole way to a state that breaks a property.
#[must_use]
pub fn render(broken: &Broken) -> String {
    let mut text = format!("broken after {} steps: {}\n", broken.way.len(), broken.property);
    let mut before = &broken.first;
    for (number, (action, after)) in (1..).zip(&broken.way) {
        let changes = changes(before, after);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{number:4}  {:44}{changes}", step(*action, before));
        before = after;
    }
    let _ = writeln!(text, "      {}", picture(before));
    text
}

fn step(action: Action, before: &State) -> String {
    let word = |debug: String| debug.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
    match action {
        Action::Publisher(me, _) => {
            let doing = &before.publishers[usize::from(me)].doing;
            format!("publisher {me}: {}", word(format!("{doing:?}")))
        }
        Action::Subscriber(me, _) => {
            let reading = &before.subscribers[usize::from(me)].reading;
            format!("subscriber {me}: {}", word(format!("{reading:?}")))
        }
        Action::PublisherDies(me) => format!("publisher {me} dies"),
        Action::SubscriberDies(me) => format!("subscriber {me} dies"),
        Action::PublisherStops(me) => format!("publisher {me} is stopped"),
        Action::SubscriberStops(me) => format!("subscriber {me} is stopped"),
        Action::PublisherLosesLease(me) => format!("publisher {me} loses its lease"),
        Action::PublisherReturns(me) => format!("publisher {me} is started again"),
        Action::SubscriberReturns(me) => format!("subscriber {me} is started again"),
        Action::SubscriberLeaves(me) => format!("subscriber {me} leaves"),
        Action::SubscriberAdds(me) => format!("subscriber {me} adds a pattern"),
    }
}

fn changes(before: &State, after: &State) -> String {
    let mut changes = Vec::new();
    let mut note = |name: &str, old: u8, new: u8| {
        if old != new {
            changes.push(format!("{name} {old} -> {new}"));
        }
    };
    note("lock", before.ring.lock.owner, after.ring.lock.owner);
    let is_exclusive = |state: &State| u8::from(state.ring.lock.exclusive);
    note("exclusive", is_exclusive(before), is_exclusive(after));
    note("reserved", before.ring.reserved, after.ring.reserved);
    note("sequence", before.ring.sequence, after.ring.sequence);
    note("tail", before.ring.tail, after.ring.tail);
    note("next", before.ring.next, after.ring.next);
    note("topics", before.ring.topics, after.ring.topics);
    for (place, (old, new)) in before.ring.words.iter().zip(after.ring.words.iter()).enumerate() {
        note(&format!("word[{place}]"), *old, *new);
    }
    for (block, (old, new)) in before.ring.index.iter().zip(after.ring.index.iter()).enumerate() {
        note(&format!("index[{block}].sequence"), old.sequence, new.sequence);
        note(&format!("index[{block}].position"), old.position, new.position);
    }
    for (number, (old, new)) in before.slots.iter().zip(after.slots.iter()).enumerate() {
        if old != new {
            changes.push(format!("slot[{number}] {new:?}"));
        }
    }
    for (number, (old, new)) in before.subscribers.iter().zip(after.subscribers.iter()).enumerate()
    {
        if old.at != new.at {
            let at = new.at;
            changes
                .push(format!("subscriber {number} at {}, message {}", at.position, at.sequence));
        }
    }
    if let (None, Some(fault)) = (before.fault, after.fault) {
        changes.push(format!("FAULT {fault:?}"));
    }
    changes.join(", ")
}

/// A state in a few words.
fn picture(state: &State) -> String {
    let ring = &state.ring;
    format!(
        "tail {}, committed to {}, reserved {}, words {:02x?}, index {:?}\n      {:?}\n      {:?}",
        ring.tail,
        state.truth.end,
        ring.reserved,
        &ring.words[..],
        &ring.index[..],
        state.publishers.iter().map(|one| (one.life, one.doing)).collect::<Vec<_>>(),
        state.subscribers.iter().map(|one| (one.life, one.reading)).collect::<Vec<_>>(),
    )
}
