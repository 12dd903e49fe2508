//! The machine against a naive list of all commands that were ever admitted.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::batch::{Builder, CommandId};

/// A command of few sources, buses and numbers, so that all cases meet.
#[derive(Debug, Clone)]
enum Step {
    Publish {
        source: u32,
        bus: u8,
        number: u64,
    },
    Open {
        source: u32,
        bus: u8,
        session: u32,
        /// The earlier buses that it names; none if an earlier version wrote it.
        earlier: Option<(usize, usize)>,
    },
    Lost {
        source: u32,
        bus: u8,
        first: u64,
        length: u64,
    },
    Begin(u32),
    Release(u32),
    Remove(u32),
    /// The number that is wanted, of the bus that is open: what a node sends.
    Next(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u32, 0..3_u8, 0..6_u64).prop_map(|(source, bus, number)| Step::Publish { source, bus, number }),
        3 => (0..3_u32, 0..3_u8, 0..5_u32, proptest::option::of((0..=3_usize, 0..=3_usize))).prop_map(
            |(source, bus, session, earlier)| Step::Open { source, bus, session, earlier }
        ),
        1 => (0..3_u32, 0..3_u8, 0..6_u64, 0..3_u64)
            .prop_map(|(source, bus, first, length)| Step::Lost { source, bus, first, length }),
        1 => (0..4_u32).prop_map(Step::Begin),
        1 => (0..3_u32).prop_map(Step::Release),
        1 => (0..3_u32).prop_map(Step::Remove),
        8 => (0..3_u32).prop_map(Step::Next),
    ]
}

const fn bus(bus: u8) -> [u8; 16] {
    [bus; 16]
}

static BUSES: [[u8; 16]; 3] = [bus(0), bus(1), bus(2)];

fn named((one, other): (usize, usize)) -> &'static [[u8; 16]] {
    &BUSES[one.min(other)..one.max(other)]
}

fn series(bus: u8) -> u32 {
    100 + u32::from(bus)
}

/// Everything that was admitted, in order, and nothing else: each answer is searched in it.
#[derive(Default)]
struct Naive(Vec<Step>);

impl Naive {
    /// The bus that is open, with the place of its first OPEN and its last session.
    fn open(&self, of: u32) -> Option<(u8, usize, u32)> {
        let mut open = None;
        for (place, step) in self.0.iter().enumerate() {
            match *step {
                Step::Open { source, bus, session, .. } if source == of => {
                    open = match open {
                        Some((last, begun, _)) if last == bus => Some((bus, begun, session)),
                        _ => Some((bus, place, session)),
                    };
                }
                Step::Remove(source) if source == of => open = None,
                _ => {}
            }
        }
        open
    }

    /// Every bus that was open and is not any more.
    fn closed(&self, of: u32) -> Vec<u8> {
        let mut opened: Vec<u8> = vec![];
        for step in &self.0 {
            match *step {
                Step::Open { source, bus, .. } if source == of => opened.push(bus),
                _ => {}
            }
        }
        let open = self.open(of).map(|(bus, ..)| bus);
        opened.retain(|bus| Some(*bus) != open);
        opened
    }

    fn is_released(&self, of: u32) -> bool {
        let last = self.0.iter().rfind(|step| match step {
            Step::Open { source, .. } => *source == of,
            Step::Release(source) | Step::Remove(source) => *source == of,
            _ => false,
        });
        matches!(last, Some(Step::Release(_)))
    }

    fn wanted(&self, of: u32, since: usize) -> u64 {
        let mut ends = self.0[since..].iter().filter_map(|step| match *step {
            Step::Publish { source, number, .. } if source == of => Some(number + 1),
            Step::Lost { source, first, length, .. } if source == of => Some(first + length + 1),
            _ => None,
        });
        ends.next_back().unwrap_or(0)
    }

    fn expect(&mut self, step: &Step) -> Outcome {
        let verdict = self.judge(step);
        match verdict {
            Ok(true) => {
                self.0.push(step.clone());
                Outcome::Sequenced(self.0.len() as u64 - 1)
            }
            Ok(false) => Outcome::Duplicate,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn judge(&self, step: &Step) -> Result<bool, Refusal> {
        let range = |of, bus, first: u64, last: u64| match self.open(of) {
            Some((open, since, _)) if open == bus => match self.wanted(of, since) {
                wanted if last < wanted => Ok(false),
                wanted if first == wanted => Ok(true),
                wanted => Err(Refusal::Wanted(wanted)),
            },
            _ => Err(Refusal::NotOpen),
        };
        match *step {
            Step::Publish { source, bus, number } => range(source, bus, number, number),
            Step::Lost { source, bus, first, length } => range(source, bus, first, first + length),
            Step::Begin(series) => {
                let begun =
                    |step: &Step| if let Step::Begin(series) = step { Some(*series) } else { None };
                match self.0.iter().filter_map(begun).next_back().unwrap_or(0) {
                    last if series > last => Ok(true),
                    last if series == last => Ok(false),
                    last => Err(Refusal::FeedSeries(last)),
                }
            }
            Step::Open { source: of, bus: wanted, session, earlier } => {
                if self.closed(of).contains(&wanted) {
                    return Err(Refusal::Closed);
                }
                match self.open(of) {
                    None => Ok(true),
                    Some((open, _, last)) if open == wanted && session == last => Ok(false),
                    Some((open, ..))
                        if open != wanted
                            && !self.is_released(of)
                            && !earlier.is_none_or(|range| named(range).contains(&bus(open))) =>
                    {
                        Err(Refusal::OtherHost)
                    }
                    Some((.., last)) if session > last => Ok(true),
                    Some((.., last)) => Err(Refusal::Session(last)),
                }
            }
            Step::Release(of) => Ok(self.open(of).is_some() && !self.is_released(of)),
            Step::Remove(of) => Ok(self.open(of).is_some()),
            Step::Next(_) => unreachable!("made concrete before"),
        }
    }
}

fn command(step: &Step) -> Command<'static> {
    match *step {
        Step::Publish { source, bus, number } => Command::Publish(Publish {
            id: CommandId { source, series: series(bus), number },
            to_descendants: false,
            topic: "orders/new",
            payload: b"buy",
        }),
        Step::Open { source, bus: id, session, earlier } => Command::Open(Open {
            source,
            series: series(id),
            session,
            bus: bus(id),
            earlier: earlier.map(named),
        }),
        Step::Release(source) => Command::Release { source },
        Step::Remove(source) => Command::Remove { source },
        Step::Lost { source, bus, first, length } => {
            Command::Lost(Lost { source, series: series(bus), first, last: first + length })
        }
        Step::Begin(series) => Command::Begin { series },
        Step::Next(_) => unreachable!("made concrete before"),
    }
}

fn batch(commands: &[Command<'_>]) -> Vec<u8> {
    let mut builder = Builder::new();
    for command in commands {
        builder.push(command).expect("a small command fits");
    }
    builder.finish().expect("there is a command")
}

fn apply(machine: &mut Machine, bytes: &[u8]) -> Vec<Outcome> {
    let mut outcomes = vec![];
    let mut numbers = vec![];
    let batch = Batch::check(bytes).expect("what was built is a batch");
    machine.apply(batch, |event| numbers.push(event.number), |_, outcome| outcomes.push(outcome));
    let sequenced = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Sequenced(number) => Some(*number),
        _ => None,
    });
    assert!(sequenced.eq(numbers), "each event has its outcome");
    outcomes
}

proptest! {
    #[test]
    fn each_command_is_admitted_as_a_naive_list_would(steps in vec(step(), 1..120)) {
        let (mut machine, mut naive) = (Machine::new(), Naive::default());
        for step in &steps {
            let step = match *step {
                Step::Next(source) => match naive.open(source) {
                    Some((bus, since, _)) => {
                        Step::Publish { source, bus, number: naive.wanted(source, since) }
                    }
                    None => Step::Open { source, bus: 0, session: 1, earlier: None },
                },
                ref step => step.clone(),
            };
            let expected = naive.expect(&step);
            let found = apply(&mut machine, &batch(&[command(&step)]));
            prop_assert_eq!(&found, &[expected], "{:?}", step);
        }
        prop_assert_eq!(machine.next(), naive.0.len() as u64);
    }

    #[test]
    fn how_commands_are_batched_changes_nothing(steps in vec(step(), 1..60), cut in 1..20_usize) {
        let steps = steps.into_iter().filter(|step| !matches!(step, Step::Next(_)));
        let commands: Vec<_> = steps.map(|step| command(&step)).collect();
        let (mut one, mut many) = (Machine::new(), Machine::new());
        let mut by_one = vec![];
        for command in &commands {
            by_one.extend(apply(&mut one, &batch(&[*command])));
        }
        let mut by_batch = vec![];
        for commands in commands.chunks(cut) {
            by_batch.extend(apply(&mut many, &batch(commands)));
        }
        prop_assert_eq!(by_one, by_batch);
        prop_assert_eq!(one, many);
    }

    #[test]
    fn a_snapshot_is_the_machine(steps in vec(step(), 0..60)) {
        let mut machine = Machine::new();
        for step in steps.iter().filter(|step| !matches!(step, Step::Next(_))) {
            apply(&mut machine, &batch(&[command(step)]));
        }
        prop_assert_eq!(Machine::from_snapshot(&machine.snapshot()), Ok(machine));
    }
}

#[test]
fn a_host_that_sees_the_events_alone_comes_to_the_same_digest() {
    let mut machine = machine_with_events(5);
    let mut chain = machine.chain();
    assert_eq!((chain.series, chain.begun, chain.next), (0, 0, 5));
    let begin = batch(&[Command::Begin { series: 3 }]);
    for (command, bytes) in Batch::check(&begin).expect("a batch").commands() {
        assert_eq!(chain.append(command, bytes), Event { series: 3, number: 5, command });
    }
    apply(&mut machine, &begin);
    assert_eq!((chain.series, chain.begun, chain.next), (3, 5, 6));
    assert_eq!(machine.chain(), chain);
    assert_eq!(
        Machine::from_snapshot(&machine.snapshot()).map(|machine| machine.chain()),
        Ok(chain)
    );
}

fn machine_with_events(count: u64) -> Machine {
    let mut machine = Machine::new();
    let open =
        Command::Open(Open { source: 1, series: 7, session: 1, bus: bus(1), earlier: Some(&[]) });
    apply(&mut machine, &batch(&[open]));
    for number in 0..count - 1 {
        let id = CommandId { source: 1, series: 7, number };
        let publish = Publish { id, to_descendants: false, topic: "t", payload: &[] };
        apply(&mut machine, &batch(&[Command::Publish(publish)]));
    }
    machine
}

#[test]
fn digests_are_kept_each_4096_events() {
    let machine = machine_with_events(2 * DIGEST_EVERY + 10);
    assert_eq!(machine.digest_after(2 * DIGEST_EVERY + 9), Some(machine.digest()));
    assert_eq!(
        machine.digest_after(DIGEST_EVERY - 1),
        Some(machine_with_events(DIGEST_EVERY).digest())
    );
    assert!(machine.digest_after(2 * DIGEST_EVERY - 1).is_some());
    assert_eq!(machine.digest_after(DIGEST_EVERY), None);
    assert_eq!(machine.digest_after(u64::MAX), None);
    assert_eq!(Machine::from_snapshot(&machine.snapshot()), Ok(machine));
}

#[test]
fn no_changed_byte_of_a_snapshot_goes_unnoticed() {
    let snapshot = machine_with_events(DIGEST_EVERY).snapshot();
    for place in 0..snapshot.len() {
        let mut changed = snapshot.clone();
        changed[place] ^= 1;
        assert!(Machine::from_snapshot(&changed).is_err(), "byte {place}");
        assert!(Machine::from_snapshot(&snapshot[..place]).is_err(), "{place} bytes");
    }
}

#[test]
fn a_restored_bus_cannot_double_its_commands() {
    let mut machine = Machine::new();
    let open = |id, session| {
        Command::Open(Open {
            source: 1,
            series: series(id),
            session,
            bus: bus(id),
            earlier: Some(&BUSES),
        })
    };
    assert_eq!(apply(&mut machine, &batch(&[open(1, 1)])), [Outcome::Sequenced(0)]);
    assert_eq!(apply(&mut machine, &batch(&[open(2, 2)])), [Outcome::Sequenced(1)]);
    assert_eq!(apply(&mut machine, &batch(&[open(1, 3)])), [Outcome::Refused(Refusal::Closed)]);
}

#[test]
fn sources_are_bounded() {
    let mut machine = Machine::new();
    for source in 0..=u32::try_from(MAX_SOURCES).expect("a small number") {
        let open =
            Command::Open(Open { source, series: 1, session: 1, bus: bus(1), earlier: Some(&[]) });
        let outcome = apply(&mut machine, &batch(&[open]))[0];
        let full = usize::try_from(source).expect("a small number") == MAX_SOURCES;
        assert_eq!(outcome == Outcome::Refused(Refusal::TooManySources), full);
    }
    assert!(machine.snapshot().len() <= snapshot::MAX_SNAPSHOT_BYTES);
}

#[test]
fn closed_buses_and_series_of_the_feed_are_bounded() {
    let mut machine = Machine::new();
    let buses = u32::try_from(CLOSED_KEPT).expect("a small number") + 3;
    let bus = |number: u32| u128::from(number + 1).to_le_bytes();
    for number in 0..buses {
        // Each source has every second bus.
        let earlier = [bus(number.saturating_sub(2))];
        let open = Open {
            source: number % 2,
            series: number,
            session: number,
            bus: bus(number),
            earlier: Some(&earlier),
        };
        let outcome = apply(&mut machine, &batch(&[Command::Open(open)]))[0];
        assert!(matches!(outcome, Outcome::Sequenced(_)), "{number}: {outcome:?}");
    }
    for series in 1..100 {
        apply(&mut machine, &batch(&[Command::Begin { series }]));
    }
    assert_eq!(machine.closed.len(), CLOSED_KEPT);
    let Lineage { begun, complete_from } = machine.lineage();
    assert_eq!((begun.len(), *complete_from), (SERIES_KEPT, 36));
    assert!(machine.snapshot().len() <= snapshot::MAX_SNAPSHOT_BYTES);
    assert_eq!(Machine::from_snapshot(&machine.snapshot()), Ok(machine));
}

/// What version 1 has written: two sources, of which one has closed a bus, and the second series of the feed.
#[test]
fn a_state_of_version_1_is_read_and_says_what_it_lacks() {
    let mut bytes = b"TNSEQST\x01".to_vec();
    let words = |bytes: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    };
    words(&mut bytes, &[7, 2, 0]);
    bytes.extend(5_u64.to_le_bytes());
    bytes.extend(9_u64.to_le_bytes());
    bytes.extend([3; 32]);
    for (source, closed) in [(1_u32, &[][..]), (4, &[bus(1)])] {
        words(&mut bytes, &[source, 11, series(2), u32::try_from(closed.len()).expect("few")]);
        bytes.extend(6_u64.to_le_bytes());
        bytes.extend(bus(2));
        bytes.extend(closed.as_flattened());
    }
    bytes.extend(blake3::hash(&bytes).as_bytes());
    let mut machine = Machine::from_snapshot(&bytes).expect("a state");
    assert_eq!(machine.source(4).map(|source| (source.next, source.last)), Some((6, None)));
    assert_eq!(*machine.lineage(), Lineage { begun: vec![(7, 5)], complete_from: 7 });
    assert_eq!(Machine::from_snapshot(&machine.snapshot()), Ok(machine.clone()));
    let open = |source, id, session, earlier| {
        let open = Open { source, series: series(id), session, bus: bus(id), earlier };
        Command::Open(open)
    };
    // Its logs go on with OPEN as it wrote it, which any greater session may take over.
    assert_eq!(
        apply(&mut machine, &batch(&[open(4, 1, 12, None), open(4, 0, 12, None)])),
        [Outcome::Refused(Refusal::Closed), Outcome::Sequenced(9)]
    );
    assert_eq!(
        apply(&mut machine, &batch(&[open(4, 2, 13, None), open(1, 0, 12, Some(&[]))])),
        [Outcome::Refused(Refusal::Closed), Outcome::Refused(Refusal::OtherHost)]
    );
}

#[test]
fn no_bus_of_a_source_that_was_removed_comes_back() {
    let mut machine = machine_with_events(5);
    let open = |id, session| {
        let earlier = Some(&BUSES[..]);
        Command::Open(Open { source: 1, series: series(id), session, bus: bus(id), earlier })
    };
    let all =
        [Command::Remove { source: 1 }, Command::Remove { source: 1 }, open(1, 9), open(2, 1)];
    assert_eq!(
        apply(&mut machine, &batch(&all)),
        [
            Outcome::Sequenced(5),
            Outcome::Duplicate,
            Outcome::Refused(Refusal::Closed),
            Outcome::Sequenced(6)
        ]
    );
}

/// Members go on from different snapshots of version 1, and must come to the same order.
#[test]
fn what_version_1_has_refused_is_refused_when_its_log_is_applied_again() {
    let mut machine = Machine::new();
    let open = |source, id: u32, session| Open {
        source,
        series: id,
        session,
        bus: u128::from(id).to_le_bytes(),
        earlier: None,
    };
    for source in 0..=1024 {
        let outcome = apply(&mut machine, &batch(&[Command::Open(open(source, 1, 1))]))[0];
        assert_eq!(outcome == Outcome::Refused(Refusal::TooManySources), source == 1024);
    }
    for session in 2..70 {
        let outcome = apply(&mut machine, &batch(&[Command::Open(open(7, session, session))]))[0];
        assert!(matches!(outcome, Outcome::Sequenced(_)));
    }
    // Of 68 buses that were closed, it knew the last 64.
    let outcomes =
        [5, 4].map(|id| apply(&mut machine, &batch(&[Command::Open(open(7, id, 90))]))[0]);
    assert!(matches!(outcomes, [Outcome::Refused(Refusal::Closed), Outcome::Sequenced(_)]));
}
