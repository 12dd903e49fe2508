//! The checker accepts what a correct sequencer does, and rejects each kind of mistake by the rule that is meant.

use super::*;
use crate::Random;

const SOURCES: u32 = 4;
/// How many histories of each mutant are rejected.
const REJECTED: usize = 50;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A sequencer that makes no mistake, with its senders and hosts.
struct World {
    random: Random,
    history: History,
    now: u64,
    order: Vec<Event>,
    /// The next command of each source.
    next: Vec<Id>,
    /// Commands that are no events yet, as places in `history.sent`. Those of a source become events in order.
    waiting: Vec<usize>,
    /// Commands that are events, and were not answered yet.
    unanswered: Vec<usize>,
    term: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            history: History::default(),
            now: 1,
            order: vec![],
            next: (0..SOURCES).map(|source| Id { source, series: 1, number: 0 }).collect(),
            waiting: vec![],
            unanswered: vec![],
            term: 1,
        }
    }

    fn append(&mut self, command: Option<Id>, payload: &str) {
        let number = self.order.len() as u64;
        self.order.push(Event::new(number, command, "t", payload.as_bytes()));
    }

    fn send(&mut self) {
        let next = self.random.index(self.next.len());
        let id = self.next[next];
        self.next[next].number += 1;
        self.waiting.push(self.history.sent.len());
        let payload = id.to_string();
        self.history.sent.push(Sent::new(id, "t", payload.as_bytes(), ms(self.now)));
    }

    /// Makes the next command of any source an event.
    fn sequence(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let source = |at: usize| self.history.sent[at].id.source;
        let any = source(self.waiting[self.random.index(self.waiting.len())]);
        let first = self.waiting.iter().position(|at| source(*at) == any).unwrap();
        let at = self.waiting.remove(first);
        let id = self.history.sent[at].id;
        self.append(Some(id), &id.to_string());
        self.unanswered.push(at);
    }

    fn answer(&mut self) {
        if self.unanswered.is_empty() {
            return;
        }
        let at = self.unanswered.swap_remove(self.random.index(self.unanswered.len()));
        let id = self.history.sent[at].id;
        let event = self.order.iter().find(|event| event.command == Some(id)).unwrap().number;
        let sent = Sent { answered: Some(ms(self.now)), ..self.history.sent[at] };
        if self.random.below(4) > 0 {
            self.history.sent[at] = Sent { event: Some(event), ..sent };
        } else {
            // The answer was lost. It was sent again a moment ago, and found to be a duplicate.
            self.history.sent.push(Sent { sent: ms(self.now - 1), ..sent });
        }
    }

    /// Commands that have arrived, and are no events yet, never become events.
    fn begin_series(&mut self) {
        let next = self.random.pick(&self.next).source;
        self.waiting.retain(|at| self.history.sent[*at].id.source != next);
        let next = &mut self.next[next as usize];
        (next.series, next.number) = (next.series + 1, 0);
        self.append(None, "open");
    }

    /// A source lost its next commands before they could arrive.
    fn overwrite(&mut self) {
        let id = *self.random.pick(&self.next);
        if self.waiting.iter().all(|at| self.history.sent[*at].id.source != id.source) {
            let until = id.number + self.random.between(1, 4);
            self.next[id.source as usize].number = until;
            self.history.overwritten.push((id, until));
            self.append(None, "lost");
        }
    }

    /// Confirms a term. While the leader of a new one confirms it, the old one may still do so.
    fn confirm(&mut self) {
        let old = self.term;
        self.term += self.random.below(2);
        for term in old..=self.term {
            let (asked, answered) = (ms(self.now), ms(self.now + self.random.below(30)));
            self.history.confirms.push(Confirm { term, asked, answered });
        }
    }

    /// If every command is to have an answer, no sender is killed.
    fn step(&mut self, answers_all: bool) {
        self.now += self.random.below(3);
        match self.random.below(if answers_all { 73 } else { 80 }) {
            0..25 => self.send(),
            25..45 => self.sequence(),
            45..67 => self.answer(),
            67..70 => self.confirm(),
            70..73 => self.overwrite(),
            73..76 => self.begin_series(),
            _ => {
                self.unanswered.pop();
            }
        }
    }

    /// Returns what a host or log has of the order. Buses have commands only.
    fn trace(&self, name: &str, numbers: Range<u64>) -> Trace {
        let is_log = name.starts_with("log");
        let all = self.order.iter().copied();
        let events = all.filter(|event| is_log || event.command.is_some());
        let events = events.filter(|event| numbers.contains(&event.number)).collect();
        Trace::new(name, numbers, events)
    }
}

/// Returns what senders and hosts of a correct sequencer record. The first trace has all commands. In half of the
/// histories, every command has an answer; in half of them, events were purged.
fn correct(seed: u64) -> History {
    let mut world = World::new(seed);
    let answers_all = world.random.below(2) == 0;
    (0..250).for_each(|_| world.step(answers_all));
    while !(world.waiting.is_empty() && world.unanswered.is_empty()) {
        world.now += 1;
        world.sequence();
        world.answer();
    }
    let end = world.order.len() as u64;
    let early = world.random.between(end / 2, end);
    let late = world.random.below(end / 4);
    let lost = world.random.below(end / 4)..world.random.between(end / 4, end / 2);
    let mut traces = vec![
        world.trace("bus-0", 0..end),
        world.trace("bus-1", 0..end),
        world.trace("bus-2", 0..early),
        world.trace("log-0", late..end),
        world.trace("log-1", 0..end),
    ];
    let mut history = world.history;
    if world.random.below(2) == 0 {
        traces[1].events.retain(|event| !lost.contains(&event.number));
        history.purged = lost.end;
        traces[1].losses.push(lost);
    }
    history.traces = traces;
    if answers_all {
        let start = ms(world.now / 2);
        history.calm = start..ms(100 * world.now);
        let wait = |sent: &Sent| {
            let first = history.sent.iter().find(|first| first.id == sent.id)?.sent;
            Some(sent.answered?.saturating_sub(start.max(first)))
        };
        history.limit = history.sent.iter().filter_map(wait).max().unwrap_or_default();
    }
    history
}

#[test]
fn what_a_correct_sequencer_does_is_accepted() {
    for seed in 0..200 {
        let mut history = correct(seed);
        let found = history.violations();
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
        let first = history.traces[0].numbers.end / 2;
        for trace in &mut history.traces {
            trace.numbers.start = first;
            trace.events.retain(|event| event.number >= first);
        }
        history.purged = first;
        let found = history.violations();
        assert!(found.is_empty(), "seed {seed}, the first half is gone: {found:#?}");
    }
}

/// Makes a mistake. If the history has no place for it, returns `None`.
type Mutate = fn(&mut History, &mut Random) -> Option<()>;

const MUTANTS: &[(&str, &str, Mutate)] = &[
    ("H1", "an event has another payload on one host", |history, random| {
        any_event(history, random).content ^= 1;
        Some(())
    }),
    ("H1", "an event is another command on one host", |history, random| {
        any_event(history, random).command.as_mut()?.source += 1;
        Some(())
    }),
    ("H1", "two events have changed places on one host", |history, random| {
        let (events, at) = any_place(history, random);
        let (one, other) = (events[at - 1], events[at]);
        (events[at - 1].command, events[at - 1].content) = (other.command, other.content);
        (events[at].command, events[at].content) = (one.command, one.content);
        Some(())
    }),
    ("H1", "one host has its events in another order", |history, random| {
        let (events, at) = any_place(history, random);
        events.swap(at - 1, at);
        Some(())
    }),
    ("H1", "one host has an event twice", |history, random| {
        let (events, at) = any_place(history, random);
        events.insert(at, events[at]);
        Some(())
    }),
    ("H1", "a host has more events than it says", |history, _| {
        history.traces[0].numbers.end = history.traces[0].events.last()?.number;
        Some(())
    }),
    ("H1", "an event has another payload than was sent", |history, random| {
        let number = any_event(history, random).number;
        everywhere(history, |event| event.content ^= u64::from(event.number == number));
        Some(())
    }),
    ("H2", "a command is two events", |history, random| {
        let again = *any_event(history, random);
        append(history, again);
        Some(())
    }),
    ("H2", "a command has two answers", |history, random| {
        let mut again = *any_answered(history, random);
        again.event = Some(again.event? + 1);
        history.sent.push(again);
        Some(())
    }),
    ("H3", "an answer names another event", |history, random| {
        *any_answered(history, random).event.as_mut()? += 1;
        Some(())
    }),
    ("H3", "one host lacks an event", |history, random| {
        let (events, at) = any_place(history, random);
        events.remove(at);
        Some(())
    }),
    ("H3", "all lack an event that an answer names", |history, random| {
        let event = any_answered(history, random).event?;
        remove(history, event..event + 1);
        Some(())
    }),
    ("H3", "all lack the last event that an answer names", |history, _| {
        let last = history.sent.iter().filter_map(|sent| sent.event).max()?;
        remove(history, last..u64::MAX);
        history.traces.iter_mut().for_each(|trace| trace.numbers.end = last.min(trace.numbers.end));
        Some(())
    }),
    ("H3", "all lack the event of a duplicate", |history, random| {
        let Sent { id, event: None, .. } = *any_answered(history, random) else { return None };
        let is_its = |event: &&Event| event.command == Some(id);
        let event = history.traces[0].events.iter().find(is_its)?.number;
        remove(history, event..event + 1);
        (history.purged == 0).then_some(())
    }),
    ("H3", "a host reports a loss of what was not purged", |history, random| {
        let event = any_answered(history, random).event.filter(|event| *event >= history.purged)?;
        let bus = &mut history.traces[0];
        bus.events.retain(|other| other.number != event);
        bus.losses.push(event..event + 1);
        Some(())
    }),
    ("H3", "a loss is too short", |history, _| {
        let Range { start, end } = history.traces[1].losses.pop()?;
        let lost = |event: &&Event| (start..end).contains(&event.number);
        let last = history.traces[0].events.iter().rfind(lost)?.number;
        history.traces[1].losses.push(start..last);
        Some(())
    }),
    ("H4", "two commands of a source have changed places", |history, random| {
        let (one, other) = any_two(history, random, |one, other| {
            (one.id.source, one.id.series) == (other.id.source, other.id.series)
        })?;
        swap(history, one, other);
        Some(())
    }),
    ("H4", "a command is skipped", |history, random| {
        // A later command of its source is an event.
        let (one, other) = any_two(history, random, |one, other| {
            (one.id.source, one.id.series) == (other.id.source, other.id.series)
        })?;
        remove(history, one.min(other)..one.min(other) + 1);
        Some(())
    }),
    ("H4", "commands are skipped, and none is reported as lost", |history, _| {
        let later = |lost: &(Id, u64)| {
            let next = Id { number: lost.1, ..lost.0 };
            history.traces[0].events.iter().any(|event| event.command == Some(next))
        };
        let at = history.overwritten.iter().position(later)?;
        history.overwritten.remove(at);
        Some(())
    }),
    ("H4", "a series comes back", |history, random| {
        let mut again = *any_event(history, random);
        let id = again.command?;
        let last = last_of(history, id.source)?;
        again.command = Some(Id { number: 0, ..id });
        append(history, again);
        (last.series != id.series).then_some(())
    }),
    ("H4", "a number comes again", |history, random| {
        let again = *any_event(history, random);
        let id = again.command?;
        let last = last_of(history, id.source)?;
        append(history, again);
        (last.series == id.series).then_some(())
    }),
    ("H5", "a command is before one that was answered before it was sent", |history, random| {
        let (one, other) = any_two(history, random, |one, other| {
            // What was answered as a duplicate had been sent before.
            let is_first = other.answered.is_none() || other.event.is_some();
            is_first && one.answered.is_some_and(|answered| answered < other.sent)
        })?;
        swap(history, one, other);
        Some(())
    }),
    ("H6", "an old term is confirmed", |history, random| {
        let Confirm { term, answered, .. } = *random.pick(&history.confirms);
        let asked = answered + ms(1);
        history.confirms.push(Confirm { term: term - 1, asked, answered: asked });
        Some(())
    }),
    ("H9", "an answer comes too late", |history, random| {
        let (start, limit) = (history.calm.start, history.limit);
        let sent = any_answered(history, random);
        sent.answered = Some(start.max(sent.sent) + limit + ms(1));
        (!history.calm.is_empty()).then_some(())
    }),
    ("H9", "a command waits for ever", |history, random| {
        any_answered(history, random).answered = None;
        (!history.calm.is_empty()).then_some(())
    }),
];

/// Returns the events of any trace, and the place of a command among them that is not the first event.
fn any_place<'a>(history: &'a mut History, random: &mut Random) -> (&'a mut Vec<Event>, usize) {
    let trace = random.index(history.traces.len());
    let events = &mut history.traces[trace].events;
    let places: Vec<_> = (1..events.len()).filter(|at| events[*at].command.is_some()).collect();
    let at = *random.pick(&places);
    (events, at)
}

fn any_event<'a>(history: &'a mut History, random: &mut Random) -> &'a mut Event {
    let (events, at) = any_place(history, random);
    &mut events[at]
}

fn any_answered<'a>(history: &'a mut History, random: &mut Random) -> &'a mut Sent {
    let places = (0..history.sent.len()).filter(|at| history.sent[*at].answered.is_some());
    let at = *random.pick(&places.collect::<Vec<_>>());
    &mut history.sent[at]
}

/// Returns the events of two commands that fit together.
fn any_two(
    history: &History,
    random: &mut Random,
    fit: impl Fn(&Sent, &Sent) -> bool,
) -> Option<(u64, u64)> {
    let event = |sent: &Sent| {
        let is_its = |event: &&Event| event.command == Some(sent.id);
        Some(history.traces[0].events.iter().find(is_its)?.number)
    };
    let pairs =
        history.sent.iter().flat_map(|one| history.sent.iter().map(move |other| (one, other)));
    let pairs = pairs.filter(|(one, other)| one.id != other.id && fit(one, other));
    let pairs: Vec<_> =
        pairs.filter_map(|(one, other)| Some((event(one)?, event(other)?))).collect();
    (!pairs.is_empty()).then(|| *random.pick(&pairs))
}

/// Returns the last command of a source.
fn last_of(history: &History, source: u32) -> Option<Id> {
    let mut commands = history.traces[0].events.iter().rev().filter_map(|event| event.command);
    commands.find(|id| id.source == source)
}

fn everywhere(history: &mut History, change: impl FnMut(&mut Event)) {
    history.traces.iter_mut().flat_map(|trace| &mut trace.events).for_each(change);
}

fn remove(history: &mut History, numbers: Range<u64>) {
    let events = history.traces.iter_mut().map(|trace| &mut trace.events);
    events.for_each(|events| events.retain(|event| !numbers.contains(&event.number)));
}

/// Has all hosts that have the last event have one more.
fn append(history: &mut History, event: Event) {
    let number = history.traces[0].numbers.end;
    for trace in history.traces.iter_mut().filter(|trace| trace.numbers.end == number) {
        trace.events.push(Event { number, ..event });
        trace.numbers.end += 1;
    }
}

/// Has two commands change places everywhere, also in the answers.
fn swap(history: &mut History, one: u64, other: u64) {
    let swapped = |number: u64| match number {
        _ if number == one => other,
        _ if number == other => one,
        _ => number,
    };
    for sent in &mut history.sent {
        sent.event = sent.event.map(swapped);
    }
    let all = history.traces[0].events.clone();
    everywhere(history, |event| {
        let from = swapped(event.number);
        if from != event.number {
            let from = all.iter().find(|event| event.number == from);
            *event = Event { number: event.number, ..*from.expect("the first trace has all") };
        }
    });
}

#[test]
fn every_mistake_is_rejected_by_its_rule() {
    for (rule, what, mutate) in MUTANTS {
        let mut rejected = 0;
        for seed in 0.. {
            let mut history = correct(seed);
            if mutate(&mut history, &mut Random::new(seed)).is_none() {
                assert!(
                    seed < 20 * REJECTED as u64,
                    "{what}: too few histories have a place for it"
                );
                continue;
            }
            let found = history.violations();
            let is_meant = found.iter().any(|violation| violation.starts_with(rule));
            assert!(is_meant, "{what}, seed {seed}: {found:#?}");
            rejected += 1;
            if rejected == REJECTED {
                break;
            }
        }
    }
}

#[test]
#[should_panic(
    expected = "1 violations:\nH3: event 0, command 0 of source 7 in series 1, is on a and not on b"
)]
fn a_violation_names_the_rule_the_numbers_and_the_hosts() {
    let command = Some(Id { source: 7, series: 1, number: 0 });
    let event = Event::new(0, command, "t", b"payload");
    let traces = vec![Trace::new("a", 0..1, vec![event]), Trace::new("b", 0..1, vec![])];
    History { traces, ..History::default() }.check();
}
