//! The rules, one after another.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::{Event, History, Id, Sent, Trace};

/// The events that any trace has, by number, each with the first trace that has it.
type Order<'a> = BTreeMap<u64, (Event, &'a str)>;

pub(super) fn violations(history: &History) -> Vec<String> {
    let mut found = vec![];
    let commands = commands(&history.sent, &mut found);
    let order = contents(&history.traces, &commands, &mut found);
    let places = places(&order, &mut found);
    answers(history, &commands, &order, &places, &mut found);
    for trace in &history.traces {
        presence(trace, &order, history.purged, &mut found);
        numbers(trace, &history.overwritten, &mut found);
    }
    real_time(&commands, &places, &mut found);
    terms(history, &mut found);
    waits(history, &commands, &mut found);
    found
}

/// H2: no command has two answers. Returns each command as if it had been sent once.
fn commands(all: &[Sent], found: &mut Vec<String>) -> BTreeMap<Id, Sent> {
    let mut commands: BTreeMap<Id, Sent> = BTreeMap::new();
    for again in all {
        let known = commands.entry(again.id).or_insert(*again);
        known.sent = known.sent.min(again.sent);
        known.answered = known.answered.into_iter().chain(again.answered).min();
        if let (Some(first), Some(second)) = (known.event, again.event)
            && first != second
        {
            found.push(format!("H2: {} was answered with events {first} and {second}", again.id));
        }
        known.event = known.event.or(again.event);
    }
    commands
}

/// H1. Returns the order.
fn contents<'a>(
    traces: &'a [Trace],
    commands: &BTreeMap<Id, Sent>,
    found: &mut Vec<String>,
) -> Order<'a> {
    let mut order = Order::new();
    for Trace { name, numbers, events, .. } in traces {
        let mut next = numbers.start;
        for event in events {
            let number = event.number;
            if number < next || number >= numbers.end {
                let end = numbers.end;
                found.push(format!(
                    "H1: {name} has event {number} where {next} to {end} may follow"
                ));
            }
            next = number + 1;
            match order.entry(number) {
                Entry::Vacant(entry) => {
                    entry.insert((*event, name));
                }
                Entry::Occupied(entry) => {
                    let (known, first) = entry.get();
                    if known.command != event.command {
                        let (one, other) = (what(known), what(event));
                        found.push(format!(
                            "H1: event {number} is {one} on {first}, and {other} on {name}"
                        ));
                    } else if known.content != event.content {
                        let what = what(event);
                        found.push(format!(
                            "H1: event {number}, {what}, has other contents on {first} than on {name}"
                        ));
                    }
                }
            }
        }
    }
    for (number, (event, name)) in &order {
        if let Some(sent) = event.command.and_then(|id| commands.get(&id))
            && sent.content != event.content
        {
            let id = sent.id;
            found.push(format!(
                "H1: event {number}, {id}, has other contents on {name} than were sent"
            ));
        }
    }
    order
}

fn what(event: &Event) -> String {
    event.command.map_or_else(|| "no command".to_owned(), |id| id.to_string())
}

/// H2. Returns the event of each command.
fn places(order: &Order<'_>, found: &mut Vec<String>) -> HashMap<Id, u64> {
    let mut places = HashMap::new();
    for (number, (event, name)) in order {
        let Some(id) = event.command else { continue };
        let first = *places.entry(id).or_insert(*number);
        if first != *number {
            found.push(format!("H2: {id} is event {first}, and also event {number} on {name}"));
        }
    }
    places
}

/// H3, for the commands that were answered.
fn answers(
    history: &History,
    commands: &BTreeMap<Id, Sent>,
    order: &Order<'_>,
    places: &HashMap<Id, u64>,
    found: &mut Vec<String>,
) {
    let purged = history.purged;
    for (id, Sent { answered, event, .. }) in commands {
        match event.map(|number| (number, order.get(&number))) {
            None if answered.is_some() && purged == 0 && !places.contains_key(id) => {
                found.push(format!("H3: {id} was answered, and is no event"));
            }
            Some((number, None)) => {
                let lacks =
                    |trace: &&Trace| trace.numbers.contains(&number) && !is_lost(trace, number);
                let name = history.traces.iter().find(lacks).map(|trace| &*trace.name);
                if number >= purged || name.is_some() {
                    let name = name.unwrap_or("any host");
                    found.push(format!(
                        "H3: {id} was answered with event {number}, which is not on {name}"
                    ));
                }
            }
            Some((number, Some((event, name)))) if event.command != Some(*id) => {
                let what = what(event);
                found.push(format!(
                    "H3: {id} was answered with event {number}, which is {what} on {name}"
                ));
            }
            None | Some(_) => {}
        }
    }
}

fn is_lost(trace: &Trace, number: u64) -> bool {
    trace.losses.iter().any(|lost| lost.contains(&number))
}

/// H3, for the commands that are events on any trace.
fn presence(trace: &Trace, order: &Order<'_>, purged: u64, found: &mut Vec<String>) {
    let name = &trace.name;
    let own: HashSet<u64> = trace.events.iter().map(|event| event.number).collect();
    for (number, (event, other)) in order.range(trace.numbers.clone()) {
        if let Some(id) = event.command
            && !own.contains(number)
            && !is_lost(trace, *number)
        {
            found.push(format!("H3: event {number}, {id}, is on {other} and not on {name}"));
        }
    }
    for lost in &trace.losses {
        if lost.end > purged {
            let (from, until) = (lost.start, lost.end);
            found.push(format!(
                "H3: {name} reports events {from} to before {until} as lost, and only those before {purged} were purged"
            ));
        }
    }
}

/// H4.
fn numbers(trace: &Trace, overwritten: &[(Id, u64)], found: &mut Vec<String>) {
    let name = &trace.name;
    // The last command of each source, and its event.
    let mut last: HashMap<u32, (Id, u64)> = HashMap::new();
    let mut series = HashSet::new();
    for (id, event) in trace.events.iter().filter_map(|event| Some((event.command?, event.number)))
    {
        let before = last.insert(id.source, (id, event));
        let begins = before.is_none_or(|(before, _)| before.series != id.series);
        if begins && !series.insert((id.source, id.series)) {
            found.push(format!(
                "H4: on {name}, event {event} is {id}, which another series followed"
            ));
        }
        let mut expected = match before {
            Some((before, _)) if !begins => before.number + 1,
            _ => 0,
        };
        if id.number < expected {
            let first = expected - 1;
            found.push(format!("H4: on {name}, event {event} is {id}, after number {first}"));
        }
        while expected < id.number {
            let first = Id { number: expected, ..id };
            let lost = overwritten.iter().find(|lost| lost.0 == first && lost.1 > expected);
            let Some((_, next)) = lost else { break };
            expected = *next;
        }
        // What is before is known from the trace's beginning, or from the last command of the source.
        let known = before.map_or(0, |(_, event)| event);
        let is_known = (before.is_some() || trace.numbers.start == 0)
            && !trace.losses.iter().any(|lost| lost.start < event && lost.end > known);
        if expected < id.number && is_known {
            found.push(format!(
                "H4: on {name}, event {event} is {id}, and number {expected} is skipped"
            ));
        }
    }
}

/// H5.
fn real_time(commands: &BTreeMap<Id, Sent>, places: &HashMap<Id, u64>, found: &mut Vec<String>) {
    let event = |sent: &Sent| sent.event.or_else(|| places.get(&sent.id).copied());
    let spans = commands.values().filter_map(|sent| {
        Some(Span { begin: sent.sent, end: sent.answered, rank: event(sent)?, what: sent.id })
    });
    for (one, other) in overtaken(spans.collect()) {
        found.push(format!(
            "H5: {}, event {}, was answered before {}, event {}, was sent",
            one.what, one.rank, other.what, other.rank
        ));
    }
}

/// H6.
fn terms(history: &History, found: &mut Vec<String>) {
    let spans = history.confirms.iter().map(|confirm| Span {
        begin: confirm.asked,
        end: Some(confirm.answered),
        rank: confirm.term,
        what: (),
    });
    for (one, other) in overtaken(spans.collect()) {
        found.push(format!(
            "H6: term {} was confirmed at {:?}, and term {} was asked at {:?} and confirmed",
            one.rank,
            one.end.unwrap_or_default(),
            other.rank,
            other.begin
        ));
    }
}

/// Something that took this time, and its place among the others.
#[derive(Clone, Copy)]
struct Span<T> {
    begin: Duration,
    end: Option<Duration>,
    rank: u64,
    what: T,
}

/// Returns those that began after another one of a higher rank had ended, each with the highest one.
fn overtaken<T: Copy>(mut spans: Vec<Span<T>>) -> Vec<(Span<T>, Span<T>)> {
    let mut ended: Vec<_> = spans.iter().filter_map(|span| Some((span.end?, *span))).collect();
    ended.sort_by_key(|(end, _)| *end);
    spans.sort_by_key(|span| span.begin);
    let mut ended = ended.into_iter().peekable();
    let mut highest: Option<Span<T>> = None;
    let mut found = vec![];
    for span in spans {
        while let Some((_, before)) = ended.next_if(|(end, _)| *end < span.begin) {
            highest = highest.into_iter().chain([before]).max_by_key(|span| span.rank);
        }
        found.extend(highest.filter(|before| before.rank > span.rank).map(|before| (before, span)));
    }
    found
}

/// H9.
fn waits(history: &History, commands: &BTreeMap<Id, Sent>, found: &mut Vec<String>) {
    let calm = &history.calm;
    for (id, Sent { sent, answered, .. }) in commands {
        let deadline = calm.start.max(*sent) + history.limit;
        if deadline < calm.end && answered.is_none_or(|answered| answered > deadline) {
            let limit = history.limit;
            let answered = answered.map_or_else(|| "never".to_owned(), |at| format!("at {at:?}"));
            found.push(format!(
                "H9: {id} was sent at {sent:?} and answered {answered}, later than {limit:?} after that and the last fault"
            ));
        }
    }
}
