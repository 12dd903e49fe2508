//! Hostile bytes in the files of a bus. Whatever the bytes are, users of the bus get messages or errors. They do not
//! panic, hang, or touch memory that is not theirs.
//!
//! The changes and what meets them are in `tests/fuzz-harness/src/hostile`, because a fuzzer uses them too.
//!
//! - `supervisor`: runs cases in child processes, and reports how these end.
//! - `truncation`: files that become shorter while they are mapped.
//!
//! A case mostly waits, for time limits and for locks that no process holds. Each test therefore deals its cases out to
//! several child processes.
//!
//! A failure names the file, offset, value and moment. Set `TORONI_HOSTILE_ONLY` to that text to run this case alone.
//! By default, every fourth value is tried for each word, and with `TORONI_LONG_TESTS=1` each.
//! `TORONI_HOSTILE_THOROUGH=1` tries even more values, `TORONI_HOSTILE_ROUNDS=100000` runs more random cases, and
//! `TORONI_HOSTILE_SEED=7` changes their seed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod supervisor;
mod truncation;

use std::time::{Duration, Instant};
use supervisor::Child;
use toroni::{ReceiveError, Start};
use toroni_fuzz_harness::hostile::expose;
use toroni_fuzz_harness::hostile::sites::{self, Change, Moment, Site};
use toroni_fuzz_harness::hostile::template::{BUS, Kind, Template};
use toroni_fuzz_harness::hostile::victim::{self, Manner, User};
use toroni_testkit::random::GATE_SEED;
use toroni_testkit::{Directory, Random, long};

/// Every word of the headers, and of the control page, of a bus with a `lease`.
#[test]
fn words_of_a_lease_bus_before_it_is_opened() {
    one_word_at_a_time("words_of_a_lease_bus_before_it_is_opened", Kind::Lease, Moment::Before);
}

#[test]
fn words_of_a_lease_bus_while_it_is_open() {
    one_word_at_a_time("words_of_a_lease_bus_while_it_is_open", Kind::Lease, Moment::Open);
}

#[test]
fn words_of_a_lease_bus_under_the_writer_lock() {
    one_word_at_a_time("words_of_a_lease_bus_under_the_writer_lock", Kind::Lease, Moment::Locked);
}

#[test]
fn words_of_a_robust_bus_before_it_is_opened() {
    one_word_at_a_time("words_of_a_robust_bus_before_it_is_opened", Kind::Robust, Moment::Before);
}

#[test]
fn words_of_a_robust_bus_while_it_is_open() {
    one_word_at_a_time("words_of_a_robust_bus_while_it_is_open", Kind::Robust, Moment::Open);
}

#[test]
fn words_of_a_robust_bus_under_the_writer_lock() {
    one_word_at_a_time("words_of_a_robust_bus_under_the_writer_lock", Kind::Robust, Moment::Locked);
}

#[test]
fn words_of_a_bus_with_a_full_topic_table() {
    one_word_at_a_time("words_of_a_bus_with_a_full_topic_table", Kind::Full, Moment::Before);
}

#[test]
fn words_of_a_young_bus() {
    one_word_at_a_time("words_of_a_young_bus", Kind::Young, Moment::Before);
}

/// What the other tests change is valid at first.
#[test]
fn losses_of_an_unchanged_bus_are_reported() {
    let directory = Directory::new();
    for kind in [Kind::Lease, Kind::Robust, Kind::Full, Kind::Young] {
        let template = Template::new(directory.path(), kind);
        template.restore();
        let bus = template.config().open_existing(BUS).unwrap();
        for (local_only, expected) in [(false, 2), (true, 0)] {
            let builder = bus.subscriber().pattern("plant/**").start(Start::Oldest);
            let mut subscriber = builder.local_only(local_only).build().unwrap();
            loop {
                match subscriber.try_receive() {
                    Ok(Some(_)) | Err(ReceiveError::Lost(_)) => {}
                    Ok(None) => break,
                    Err(error) => panic!("{kind:?}: {error}"),
                }
            }
            assert_eq!(subscriber.stats().losses, expected, "{kind:?}");
        }
    }
}

/// Several words at once, with values that fit each other badly.
#[test]
fn random_words_together() {
    supervisor::run("random_words_together", |child| {
        several_words(child, rounds(long::repetitions(375, 1500)))
    });
}

/// As above, for long: by default a hundred thousand rounds.
#[test]
#[ignore = "takes minutes; cargo test -p toroni-fuzz-harness --test hostile -- --ignored"]
fn random_words_together_for_long() {
    supervisor::run("random_words_together_for_long", |child| {
        several_words(child, rounds(100_000));
    });
}

/// Words that change all the time, while all operations run.
#[test]
fn words_that_never_stand_still() {
    supervisor::run("words_that_never_stand_still", |child| {
        scribble(child, long::repetitions(10, 40))
    });
}

/// As above, for long.
#[test]
#[ignore = "takes minutes; cargo test -p toroni-fuzz-harness --test hostile -- --ignored"]
fn words_that_never_stand_still_for_long() {
    supervisor::run("words_that_never_stand_still_for_long", |child| scribble(child, 4000));
}

#[test]
fn a_note_of_a_dead_inlet() {
    supervisor::run("a_note_of_a_dead_inlet", |child| {
        let template = Template::new(child.directory(), Kind::Lease);
        for site in sites::of(&template).iter().filter(|site| site.is_arrival()) {
            for change in sites::changes(&template, site) {
                let name = change.to_string();
                let mut changes = sites::of_death_with_note();
                changes.push(change);
                child.case(&name, || {
                    template.restore();
                    changes.iter().for_each(|change| template.apply(change));
                    victim::publish_beside_wrong_arrivals(&template);
                    template.restore();
                    expose(&template, Moment::Before, Manner::Limited, &changes);
                });
            }
        }
    });
}

fn one_word_at_a_time(test: &str, kind: Kind, moment: Moment) {
    supervisor::run(test, |child| {
        let template = Template::new(child.directory(), kind);
        for site in sites::of(&template) {
            if !site.is_for(moment) {
                continue;
            }
            for change in some_of(sites::changes(&template, &site)) {
                child.case(&format!("{kind:?} {change} {moment:?}"), || {
                    template.restore();
                    expose(&template, moment, site.manner(moment), &[change]);
                });
            }
        }
    });
}

/// Returns every fourth change of a word, and all with `TORONI_LONG_TESTS=1`. So each word is changed at each moment. The
/// seed of the gate says which of four comes first, so commits take turns over the changes.
fn some_of(changes: Vec<Change>) -> impl Iterator<Item = Change> {
    let is_named = ["TORONI_HOSTILE_ONLY", "TORONI_HOSTILE_THOROUGH"]
        .iter()
        .any(|variable| std::env::var_os(variable).is_some());
    let step = if is_named { 1 } else { long::repetitions(4, 1) } as usize;
    let first = usize::try_from(number(GATE_SEED).unwrap_or(0) % 4).unwrap();
    let first = first % step.min(changes.len().max(1));
    changes.into_iter().skip(first).step_by(step)
}

fn several_words(child: &mut Child, rounds: u64) {
    let templates = [Kind::Lease, Kind::Robust, Kind::Full, Kind::Young]
        .map(|kind| Template::new(child.directory(), kind));
    for round in 0..rounds {
        if child.skip_of_others() {
            continue;
        }
        let seed = seed() + round;
        let mut random = Random::new(seed);
        let template = random.pick(&templates);
        let sites: Vec<Site> = sites::of(template)
            .into_iter()
            .filter(|site| site.is_for(Moment::Open) && !site.is_mutex())
            .collect();
        let changes: Vec<Change> = (0..2 + random.below(5))
            .filter_map(|_| {
                let changes = sites::changes(template, random.pick(&sites));
                (!changes.is_empty()).then(|| random.pick(&changes).clone())
            })
            .collect();
        let moment = *random.pick(&[Moment::Before, Moment::Open, Moment::Locked]);
        let text: Vec<String> = changes.iter().map(Change::to_string).collect();
        let name = format!("seed {seed} {:?} {} {moment:?}", template.kind, text.join(", "));
        child.case(&name, || {
            template.restore();
            expose(template, moment, Manner::Limited, &changes);
        });
    }
}

fn scribble(child: &mut Child, rounds: u32) {
    let templates = [Kind::Lease, Kind::Robust].map(|kind| Template::new(child.directory(), kind));
    for round in 0..rounds {
        let seed = seed() + u64::from(round);
        let template = Random::new(seed).pick(&templates);
        child.case(&format!("seed {seed} {:?}", template.kind), || {
            template.restore();
            let sites: Vec<Site> = sites::of(template)
                .into_iter()
                .filter(|site| site.is_for(Moment::Open) && !site.is_mutex())
                .collect();
            let changes: Vec<Change> =
                sites.iter().flat_map(|site| sites::changes(template, site)).collect();
            let end = Instant::now() + Duration::from_millis(100);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut random = Random::new(seed);
                    while Instant::now() < end {
                        template.apply(random.pick(&changes));
                        if random.below(8) == 0 {
                            template.mend(random.pick(&sites));
                        }
                    }
                });
                while Instant::now() < end {
                    if let Some(mut user) = User::try_open(template) {
                        user.work(Manner::Limited);
                    }
                }
            });
        });
    }
}

fn rounds(default: u32) -> u64 {
    number("TORONI_HOSTILE_ROUNDS").unwrap_or(default.into())
}

fn seed() -> u64 {
    number("TORONI_HOSTILE_SEED").unwrap_or(1) << 32
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}
