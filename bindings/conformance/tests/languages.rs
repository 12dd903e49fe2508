//! Every pair of languages, in processes of their own: the same order, the same bytes, the same losses. A process
//! that is killed harms no other.
//!
//! Rust is always there. `TORONI_CONFORMANCE_C` is the folder with the programs of C and C++, and
//! `TORONI_CONFORMANCE_PYTHON` a Python that has the module: `cargo xtask bindings` makes and sets both, and
//! with `TORONI_CONFORMANCE_ALL` a language that is missing is a failure.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod process;

use process::{Fixture, LANGUAGES, Language, Process};
use rustix::process::{Resource, Rlimit};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};
use system_tests::core_dump::Morgue;
use toroni::{Bus, BusConfig, Limit, Origin, Policy, RacyBytesMut, ReceiveError, Start};
use toroni_conformance::{Messages, from_elsewhere, hash};
use toroni_testkit::wait::LIMIT;

const PUBLISH: [&str; 6] = ["one", "try", "batch", "burst", "in-place", "numbered"];
const INLET: &str = "inlet";
const SUBSCRIBE: [&str; 4] = ["receive", "timeout", "in-place", "descriptor"];
const NOTHING_IS_LOST: Policy = Policy::Wait { limit: None };

/// Two numbers, so that no two languages publish the same.
fn id(publisher: Language, mode: usize) -> u64 {
    publisher as u64 * 100 + mode as u64
}

fn expected(sequence: u64, topic: &str, message: &[u8]) -> String {
    expected_from(sequence, topic, message, "-\t-")
}

fn expected_from(sequence: u64, topic: &str, message: &[u8], from: &str) -> String {
    format!("message\t{sequence}\t{topic}\t{}\t{:016x}\t{from}", message.len(), hash(message))
}

/// Checks what the program `publish` wrote, which is the only one that has published.
fn check_published(lines: &[String], mode: &str, count: u64) {
    let numbered = if mode.ends_with("numbered") { count } else { 0 };
    let mut wanted: Vec<String> =
        (0..numbered).map(|sequence| format!("sequence\t{sequence}")).collect();
    wanted.push(format!("published\t{count}"));
    assert_eq!(lines, wanted, "{mode}");
}

/// Origin and number of a message that the program `publish` of this id publishes with an inlet.
fn brought(id: u64, number: u64) -> String {
    let source = u32::try_from(id).unwrap();
    let origin = Origin { source, series: 1, stream: 2, number: 10 + number };
    from_elsewhere(Some(origin), Some(3 * number))
}

#[test]
fn every_pair_understands_each_other_in_every_way() {
    const COUNT: u64 = 150;
    const SIZE: u64 = 3000;
    let fixture = Fixture::new();
    for publisher in process::languages() {
        for subscriber in process::languages() {
            for (mode, publish) in PUBLISH.iter().enumerate() {
                let receive = SUBSCRIBE[(mode + subscriber as usize) % SUBSCRIBE.len()];
                let name = format!("pair.{publisher:?}.{subscriber:?}.{mode}");
                let bus = fixture.config().policy(NOTHING_IS_LOST).open(&name).unwrap();
                let id = id(publisher, mode);
                let mut receiver = fixture.subscribe(subscriber, &name, "**", COUNT, receive);
                let mut sender = fixture.publish(publisher, &name, "a/b", id, COUNT, SIZE, publish);
                receiver.go();
                sender.go();
                check_published(&sender.ends(), publish, COUNT);
                let lines = receiver.ends();
                let messages = Messages { id, size: SIZE };
                let mut wanted: Vec<String> =
                    (0..COUNT).map(|n| expected(n, "a/b", &messages.message(n))).collect();
                wanted.push(format!("done\t{COUNT}\t0\t0"));
                assert_eq!(lines, wanted, "{publisher:?} {publish}, {subscriber:?} {receive}");
                drop(bus);
            }
        }
    }
}

#[test]
fn all_languages_at_once_see_one_order() {
    const COUNT: u64 = 300;
    let fixture = Fixture::new();
    // A small ring, so that publishers wait for all of them.
    let config = fixture.config().capacity(64 << 10).policy(NOTHING_IS_LOST);
    let bus = config.open("all").unwrap();
    let languages: Vec<Language> = process::languages().collect();
    let total = COUNT * languages.len() as u64;
    let mut receivers: Vec<Process> = languages
        .iter()
        .flat_map(|language| SUBSCRIBE.map(|mode| (*language, mode)))
        .map(|(language, mode)| fixture.subscribe(language, "all", "**", total, mode))
        .collect();
    let mut senders: Vec<Process> = languages
        .iter()
        .enumerate()
        .map(|(i, language)| {
            let topic = format!("from/{language:?}");
            fixture.publish(*language, "all", &topic, id(*language, i), COUNT, 400, PUBLISH[i])
        })
        .collect();
    receivers.iter_mut().chain(&mut senders).for_each(Process::go);
    senders.iter_mut().for_each(|sender| drop(sender.ends()));
    let seen: Vec<Vec<String>> = receivers.iter_mut().map(Process::ends).collect();
    for other in &seen[1..] {
        assert_eq!(*other, seen[0]);
    }
    // Each publisher's messages, in its order.
    for (i, language) in languages.iter().enumerate() {
        let messages = Messages { id: id(*language, i), size: 400 };
        let topic = format!("from/{language:?}");
        let of_it = seen[0].iter().filter(|line| line.split('\t').nth(2) == Some(&topic));
        let of_it: Vec<_> = of_it.map(|line| line.splitn(3, '\t').nth(2).unwrap()).collect();
        let wanted: Vec<String> = (0..COUNT)
            .map(|n| expected(0, &topic, &messages.message(n)))
            .map(|line| line.splitn(3, '\t').nth(2).unwrap().to_owned())
            .collect();
        assert_eq!(of_it, wanted, "{language:?}");
    }
    assert_eq!(seen[0].len() as u64, total + 1);
    drop(bus);
}

#[test]
fn all_languages_report_losses_alike() {
    const COUNT: u64 = 400;
    let fixture = Fixture::new();
    for publisher in process::languages() {
        let name = format!("loss.{publisher:?}");
        let config = fixture.config().capacity(64 << 10).policy(Policy::Overwrite);
        let bus = config.open(&name).unwrap();
        let mut receivers: Vec<(Language, &str, Process)> = process::languages()
            .flat_map(|language| SUBSCRIBE.map(|mode| (language, mode)))
            .map(|(language, mode)| {
                (language, mode, fixture.subscribe(language, &name, "**", COUNT + 1, mode))
            })
            .collect();
        let mut sender = fixture.publish(publisher, &name, "data", 1, COUNT, 1000, "one");
        sender.go();
        sender.ends();
        bus.publisher("end").unwrap().publish(b"").unwrap();
        let mut first: Option<Vec<String>> = None;
        for (language, mode, receiver) in &mut receivers {
            // Only now: what it has lost is the same for each.
            receiver.go();
            let lines = receiver.ends();
            let lost: u64 = lines[0].split('\t').nth(1).unwrap().parse().unwrap();
            assert!(lines[0].starts_with("lost\t") && lost > 200, "{language:?} {mode}: {lines:?}");
            let received = lines.len() as u64 - 2;
            assert_eq!(lost + received, COUNT + 1, "{language:?} {mode}");
            assert_eq!(*lines.last().unwrap(), format!("done\t{received}\t{lost}\t1"));
            let wanted = first.get_or_insert_with(|| lines.clone());
            assert_eq!(*wanted, lines, "{language:?} {mode}");
        }
    }
}

/// Each continues with the last message, and counts all others as lost.
#[test]
fn all_languages_continue_with_the_newest_message() {
    const COUNT: u64 = 400;
    let fixture = Fixture::new();
    let config = fixture.config().capacity(64 << 10).policy(Policy::Overwrite);
    let bus = config.open("newest").unwrap();
    let receivers = process::languages().map(|language| {
        (language, fixture.subscribe(language, "newest", "**", COUNT + 1, "newest"))
    });
    let mut receivers: Vec<(Language, Process)> = receivers.collect();
    let publisher = bus.publisher("data").unwrap();
    (0..COUNT).for_each(|_| _ = publisher.publish([7; 1000]).unwrap());
    bus.publisher("end").unwrap().publish(b"").unwrap();
    for (language, receiver) in &mut receivers {
        receiver.go();
        let lines = receiver.ends();
        let [lost, end, done] = &lines[..] else { panic!("{language:?}: {lines:?}") };
        assert!(lost.starts_with(&format!("lost\t{COUNT}\t")), "{language:?}: {lost}");
        assert!(end.starts_with(&format!("message\t{COUNT}\tend\t0\t")), "{language:?}: {end}");
        assert_eq!(*done, format!("done\t1\t{COUNT}\t1"), "{language:?}");
    }
}

#[test]
fn a_killed_process_harms_no_other() {
    let fixture = Fixture::new();
    for victim in process::languages() {
        for (mode, publish) in PUBLISH.iter().enumerate() {
            let name = format!("kill.{victim:?}.{mode}");
            let receive = SUBSCRIBE[mode % SUBSCRIBE.len()];
            let config = fixture.config().capacity(64 << 10).policy(NOTHING_IS_LOST);
            let bus = config.open(&name).unwrap();
            let mut survivor = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
            let mut reader = fixture.subscribe(victim, &name, "**", u64::MAX, receive);
            let mut sender = fixture.publish(victim, &name, "victim", 7, 0, 700, publish);
            reader.go();
            sender.go();
            let mut sequence = 0;
            // How many of a topic's messages have come: each must be the next one.
            let mut seen = [0, 0];
            let mut next = || {
                let found = match survivor.receive() {
                    Ok(found) => found,
                    Err(error) => panic!("{victim:?} {publish}: {error}"),
                };
                let of = usize::from(found.topic() == "after");
                let wanted = Messages { id: 7 + of as u64, size: 700 }.message(seen[of]);
                assert!(found.payload() == wanted, "{victim:?} {publish}: {sequence}");
                assert_eq!(found.sequence(), sequence);
                sequence += 1;
                seen[of] += 1;
                seen
            };
            // Somewhere in the midst of both of them; the ring is full of what the reader has not yet read.
            while next()[0] < 300 {}
            sender.kill();
            reader.kill();
            // What was committed comes, then what the next one publishes.
            let publisher = bus.publisher("after").unwrap();
            let survivors = std::thread::spawn(move || {
                for number in 0..500 {
                    publisher.publish(Messages { id: 8, size: 700 }.message(number)).unwrap();
                }
            });
            while next()[1] < 500 {}
            survivors.join().unwrap();
            assert!(survivor.try_receive().unwrap().is_none());
            assert_eq!(survivor.stats().lost_messages, 0);
        }
    }
}

/// Checks that a publisher of another process cannot publish, and that its error names the exclusive one.
fn is_refused(fixture: &Fixture, language: Language, bus: &str, mode: &str, exclusive: &Process) {
    let said = fixture.refused(language, [bus, "refused", "9", "1", "16", mode]);
    let holder = format!("process {}, can publish on this bus", exclusive.id());
    assert!(said.contains(&holder), "{language:?} {mode}: {said}");
}

#[test]
fn an_exclusive_publisher_is_the_only_one_until_it_ends() {
    const COUNT: u64 = 150;
    const SIZE: u64 = 3000;
    let fixture = Fixture::new();
    let languages: Vec<Language> = process::languages().collect();
    for exclusive in process::languages() {
        for (mode, publish) in PUBLISH.iter().enumerate() {
            let name = format!("exclusive.{exclusive:?}.{mode}");
            let bus = fixture.config().policy(NOTHING_IS_LOST).open(&name).unwrap();
            let subscriber = languages[(mode + exclusive as usize) % languages.len()];
            let receive = SUBSCRIBE[mode % SUBSCRIBE.len()];
            let publish = format!("exclusive-{publish}");
            let mut receiver = fixture.subscribe(subscriber, &name, "**", COUNT + 1, receive);
            let mut sender = fixture.publish(exclusive, &name, "a/b", 3, COUNT, SIZE, &publish);
            for other in &languages {
                let mode = PUBLISH[(mode + *other as usize) % PUBLISH.len()];
                is_refused(&fixture, *other, &name, mode, &sender);
            }
            receiver.go();
            sender.go();
            check_published(&sender.ends(), &publish, COUNT);
            // The next one, of another language, need not wait.
            let next = languages[(mode + exclusive as usize + 1) % languages.len()];
            let mut next = fixture.publish(next, &name, "end", 4, 1, SIZE, &publish);
            next.go();
            next.ends();
            let messages = Messages { id: 3, size: SIZE };
            let mut wanted: Vec<String> =
                (0..COUNT).map(|n| expected(n, "a/b", &messages.message(n))).collect();
            wanted.push(expected(COUNT, "end", &Messages { id: 4, size: SIZE }.message(0)));
            wanted.push(format!("done\t{}\t0\t0", COUNT + 1));
            assert_eq!(receiver.ends(), wanted, "{exclusive:?} {publish}, {subscriber:?}");
            drop(bus);
        }
    }
}

#[test]
fn others_publish_after_an_exclusive_publisher_was_killed() {
    const EACH: u64 = 10;
    let fixture = Fixture::new();
    for victim in process::languages() {
        for (mode, publish) in PUBLISH.iter().enumerate() {
            let name = format!("succeed.{victim:?}.{mode}");
            let config = fixture.config().capacity(64 << 10).policy(NOTHING_IS_LOST);
            let bus = config.open(&name).unwrap();
            let mut survivor = bus.subscribe("**").unwrap();
            let publish = format!("exclusive-{publish}");
            let mut sender = fixture.publish(victim, &name, "victim", 7, 0, 700, &publish);
            sender.go();
            let mut sequence = 0;
            let victims = Messages { id: 7, size: 700 };
            while sequence < 300 {
                let found = survivor.receive().unwrap();
                assert!(found.payload() == victims.message(sequence), "{victim:?} {publish}");
                sequence += 1;
            }
            // The victim waits for the survivor by now, or soon, and keeps the lock.
            for other in process::languages() {
                let mode = PUBLISH[(mode + other as usize) % PUBLISH.len()];
                is_refused(&fixture, other, &name, mode, &sender);
            }
            sender.kill();
            while let Some(found) = survivor.try_receive().unwrap() {
                assert!(found.payload() == victims.message(sequence), "{victim:?} {publish}");
                sequence += 1;
            }
            for other in process::languages() {
                let mode = PUBLISH[(mode + other as usize) % PUBLISH.len()];
                let mut next = fixture.publish(other, &name, "next", 8, EACH, 700, mode);
                next.go();
                next.ends();
                for number in 0..EACH {
                    let found = survivor.try_receive().unwrap().expect("a published message");
                    let wanted = Messages { id: 8, size: 700 }.message(number);
                    assert!(found.payload() == wanted, "{victim:?} {publish}, {other:?} {mode}");
                    assert_eq!((found.topic(), found.sequence()), ("next", sequence));
                    sequence += 1;
                }
            }
            assert!(survivor.try_receive().unwrap().is_none());
            assert_eq!(survivor.stats().lost_messages, 0);
        }
    }
}

#[test]
fn every_pair_understands_messages_from_elsewhere() {
    const COUNT: u64 = 150;
    const SIZE: u64 = 3000;
    let fixture = Fixture::new();
    for publisher in process::languages() {
        for (mode, receive) in SUBSCRIBE.iter().enumerate() {
            for subscriber in process::languages() {
                let name = format!("elsewhere.{publisher:?}.{subscriber:?}.{mode}");
                let bus = fixture.config().policy(NOTHING_IS_LOST).open(&name).unwrap();
                let id = id(publisher, mode);
                let mut receiver = fixture.subscribe(subscriber, &name, "**", COUNT, receive);
                let mut sender = fixture.publish(publisher, &name, "a/b", id, COUNT, SIZE, INLET);
                receiver.go();
                sender.go();
                sender.ends();
                let messages = Messages { id, size: SIZE };
                let mut wanted = vec![format!("gone\t{id}.1.2.0\t10\t7\t1\t4\ta/*,end")];
                wanted.extend((0..COUNT).map(|n| {
                    // The loss has the first sequence.
                    expected_from(n + 1, "a/b", &messages.message(n), &brought(id, n))
                }));
                wanted.push(format!("done\t{COUNT}\t0\t0"));
                assert_eq!(receiver.ends(), wanted, "{publisher:?}, {subscriber:?} {receive}");
                // The second time was dropped.
                assert_eq!(bus.stats().unwrap().sequence, COUNT + 1);
            }
        }
    }
}

#[test]
fn what_a_killed_inlet_has_brought_does_not_come_again() {
    const SIZE: u64 = 700;
    let fixture = Fixture::new();
    let languages: Vec<Language> = process::languages().collect();
    for victim in process::languages() {
        for heir in &languages {
            let name = format!("brought.{victim:?}.{heir:?}");
            let config = fixture.config().capacity(64 << 10).policy(NOTHING_IS_LOST);
            let bus = config.open(&name).unwrap();
            let mut survivor = bus.subscribe("**").unwrap();
            let mut sender = fixture.publish(victim, &name, "a", 7, 0, SIZE, INLET);
            sender.go();
            let messages = Messages { id: 7, size: SIZE };
            let mut number = 0;
            let mut expect = |found: toroni::Message<'_>| {
                assert!(found.payload() == messages.message(number), "{victim:?}, {heir:?}");
                let from = from_elsewhere(found.origin(), found.number());
                assert_eq!(from, brought(7, number), "{victim:?}, {heir:?}");
                assert_eq!(found.timestamp(), Some(UNIX_EPOCH + Duration::from_nanos(number)));
                number += 1;
                assert_eq!(found.sequence(), number);
                number
            };
            let Err(ReceiveError::Lost(lost)) = survivor.receive() else { panic!("{victim:?}") };
            assert_eq!((lost.from.source, lost.until), (7, 10));
            while expect(survivor.receive().unwrap()) < 300 {}
            sender.kill();
            while let Some(found) = survivor.try_receive().unwrap() {
                expect(found);
            }
            // It brings everything again, from the first number on.
            let mut sender = fixture.publish(*heir, &name, "a", 7, 600, SIZE, INLET);
            sender.go();
            while expect(survivor.receive().unwrap()) < 600 {}
            sender.ends();
            assert!(survivor.try_receive().unwrap().is_none());
            assert_eq!(survivor.stats().lost_messages, 0);
        }
    }
}

/// It has read everything, and holds the last 21 messages. Publishers of each language wait for it until it releases
/// them.
#[test]
fn no_language_overwrites_what_another_one_holds() {
    const COUNT: u64 = 200;
    const SIZE: u64 = 1000;
    let fixture = Fixture::new();
    for holder in process::languages() {
        for publisher in process::languages() {
            let name = format!("held.{holder:?}.{publisher:?}");
            let config = fixture.config().capacity(64 << 10).policy(NOTHING_IS_LOST);
            let bus = config.open(&name).unwrap();
            let mut receiver = fixture.subscribe(holder, &name, "**", COUNT, "hold");
            let mut sender = fixture.publish(publisher, &name, "a", 7, COUNT, SIZE, "one");
            receiver.go();
            sender.go();
            sender.ends();
            let messages = Messages { id: 7, size: SIZE };
            for number in 0..COUNT {
                assert_eq!(receiver.line(), expected(number, "a", &messages.message(number)));
            }
            let first = COUNT - 21;
            assert_eq!(receiver.line(), format!("held\t{first}"), "{holder:?}");
            let mut more = fixture.publish(publisher, &name, "a", 8, 0, SIZE, "one");
            more.go();
            // Until it waits.
            let waits = || {
                let publishers = bus.stats().unwrap().publishers.unwrap();
                publishers.iter().any(|publisher| publisher.waits > 0 && publisher.pid == more.id())
            };
            toroni_testkit::wait::until("the publisher waits", waits);
            let published = bus.stats().unwrap().sequence;
            let start = Start::Sequence(first);
            let again = bus.subscriber().pattern("**").gating(false).start(start).build();
            let mut again = again.unwrap();
            for number in first..COUNT {
                let message = again.try_receive().unwrap().unwrap();
                assert_eq!(message.sequence(), number);
                assert!(message.payload() == messages.message(number), "{holder:?} {number}");
            }
            receiver.go();
            assert_eq!(receiver.line(), "held\t-", "{holder:?}");
            // There is now space for the messages that were held.
            let goes_on = || bus.stats().unwrap().sequence >= published + 10;
            toroni_testkit::wait::until("the publisher goes on", goes_on);
            more.kill();
            receiver.go();
            assert_eq!(receiver.ends(), [format!("done\t{COUNT}\t0\t0")], "{holder:?}");
        }
    }
}

/// The line of a message as that of its value.
fn as_value(line: &str) -> String {
    line.replacen("message", "value", 1)
}

/// What the program `get` writes of the statistics of the bus, and of these topics.
fn facts(bus: &Bus, topics: &[&str]) -> Vec<String> {
    let seen = bus.stats().unwrap().retained;
    let (topic_count, max, missing) = (seen.topics, seen.max_topics, seen.missing);
    let (used, bytes) = (seen.used_bytes, seen.bytes);
    let mut facts = vec![format!("retained\t{topic_count}\t{max}\t{missing}\t{used}\t{bytes}")];
    facts.extend(topics.iter().map(|topic| format!("topic\t{topic}")));
    facts
}

/// A subscriber of each language that asks for values, each of which receives in another way.
fn asking(fixture: &Fixture, bus: &str, pattern: &str, count: u64, mode: usize) -> Vec<Process> {
    let asks = |language: Language| {
        let receive = SUBSCRIBE[(mode + language as usize) % SUBSCRIBE.len()];
        fixture.subscribe(language, bus, pattern, count, &format!("retained-{receive}"))
    };
    process::languages().map(asks).collect()
}

/// Each language reads a value without a subscriber, and late subscribers receive it before the stream, whatever the way
/// it was published.
#[test]
fn every_language_reads_the_values_of_every_other() {
    const COUNT: u64 = 20;
    const SIZE: u64 = 3000;
    let fixture = Fixture::new();
    let languages: Vec<Language> = process::languages().collect();
    for publisher in &languages {
        for (mode, publish) in PUBLISH.iter().chain(&["exclusive-one", INLET]).enumerate() {
            let name = format!("value.{publisher:?}.{mode}");
            let bus = fixture.config().policy(NOTHING_IS_LOST).open(&name).unwrap();
            let _empty = bus.publisher("a/empty").unwrap().retained().unwrap();
            let first = bus.publisher("a/first").unwrap().retained().unwrap();
            let (id, (other, text)) = (id(*publisher, mode), (id(*publisher, 99), b"first"));
            assert_eq!(first.publish(text).unwrap(), 0);
            let retained = format!("retained-{publish}");
            let mut sender = fixture.publish(*publisher, &name, "a/b", id, COUNT, SIZE, &retained);
            sender.go();
            sender.ends();
            let message = Messages { id, size: SIZE }.message(COUNT - 1);
            let (sequence, from) = if *publish == INLET {
                (COUNT + 1, brought(id, COUNT - 1))
            } else {
                (COUNT, "-\t-".to_owned())
            };
            let value = as_value(&expected_from(sequence, "a/b", &message, &from));
            let first = as_value(&expected(0, "a/first", text));
            let facts = facts(
                &bus,
                &[
                    &format!("a/b\tkept\t{sequence}\t{}", message.len()),
                    "a/empty\tnone\t-\t-",
                    &format!("a/first\tkept\t0\t{}", text.len()),
                ],
            );
            let wanted = [&[value.clone(), first.clone(), value.clone()], &facts[..]].concat();
            for reader in &languages {
                let found = fixture.get(*reader, &name, "a/b", "a/*");
                assert_eq!(found, wanted, "{publisher:?} {publish}, {reader:?}");
            }
            let mut late = asking(&fixture, &name, "a/*", 2 + COUNT, mode);
            for receiver in &mut late {
                receiver.go();
                assert_eq!([(); 3].map(|()| receiver.line()), [&first, &value, "current"]);
            }
            let mut sender = fixture.publish(*publisher, &name, "a/b", other, COUNT, SIZE, "one");
            sender.go();
            sender.ends();
            let messages = Messages { id: other, size: SIZE };
            let mut wanted: Vec<String> = (0..COUNT)
                .map(|n| expected(sequence + 1 + n, "a/b", &messages.message(n)))
                .collect();
            wanted.push(format!("done\t{}\t0\t0", 2 + COUNT));
            for mut receiver in late {
                assert_eq!(receiver.ends(), wanted, "{publisher:?} {publish}");
            }
        }
    }
}

#[test]
fn every_language_learns_that_a_value_was_cleared() {
    const COUNT: u64 = 3;
    let fixture = Fixture::new();
    let languages: Vec<Language> = process::languages().collect();
    for publisher in &languages {
        for (at, mode) in ["retained-clear", "retained-exclusive-clear"].into_iter().enumerate() {
            let name = format!("cleared.{publisher:?}.{at}");
            let bus = fixture.config().policy(NOTHING_IS_LOST).open(&name).unwrap();
            let mut receivers = asking(&fixture, &name, "*", COUNT + 1, at);
            let mut sender = fixture.publish(*publisher, &name, "a", 7, COUNT, 100, mode);
            sender.go();
            let said = sender.ends();
            assert_eq!(said, [format!("cleared\t{COUNT}"), format!("published\t{COUNT}")]);
            let messages = Messages { id: 7, size: 100 };
            let mut wanted = vec!["current".to_owned()];
            wanted.extend((0..COUNT).map(|n| expected(n, "a", &messages.message(n))));
            wanted.push(expected(COUNT, "a", b"").replacen("message", "cleared", 1));
            wanted.push(format!("done\t{}\t0\t0", COUNT + 1));
            for receiver in &mut receivers {
                receiver.go();
                assert_eq!(receiver.ends(), wanted, "{publisher:?} {mode}");
            }
            let none = [vec!["none".to_owned()], facts(&bus, &["a\tnone\t-\t-"])].concat();
            for reader in &languages {
                assert_eq!(
                    fixture.get(*reader, &name, "a", "**"),
                    none,
                    "{publisher:?}, {reader:?}"
                );
            }
            let said = fixture.refused(*publisher, [&name, "a", "7", "1", "16", "clear"]);
            assert!(said.contains("has not declared its topic"), "{publisher:?}: {said}");
        }
    }
}

#[test]
fn every_language_reports_a_missing_value() {
    const COUNT: u64 = 40;
    let fixture = Fixture::new();
    let languages: Vec<Language> = process::languages().collect();
    for publisher in &languages {
        let name = format!("missing.{publisher:?}");
        let config = fixture.config().capacity(64 << 10).policy(Policy::Overwrite);
        let bus = config.retained_topics(4).retained_bytes(4 << 10).open(&name).unwrap();
        let kept = bus.publisher("b").unwrap().retained().unwrap();
        kept.publish(b"kept").unwrap();
        let _declared = bus.publisher("a").unwrap().retained().unwrap();
        // Its last message is longer than a quarter of the bytes.
        let mut sender = fixture.publish(*publisher, &name, "a", 7, COUNT, 3000, "one");
        sender.go();
        sender.ends();
        let (noise, end) = (bus.publisher("noise").unwrap(), bus.publisher("end").unwrap());
        (0..100).for_each(|_| _ = noise.publish([7; 1000]).unwrap());
        let length = Messages { id: 7, size: 3000 }.message(COUNT - 1).len();
        let missing = format!("missing\t{COUNT}\ta\t{length}");
        let value = as_value(&expected(0, "b", b"kept"));
        let facts = facts(
            &bus,
            &[
                &format!("a\tmissing\t{COUNT}\t{length}"),
                "b\tkept\t0\t4",
                "end\t-\t-\t-",
                "noise\t-\t-\t-",
            ],
        );
        let wanted = [&[missing.clone(), value.clone(), missing.clone()], &facts[..]].concat();
        for reader in &languages {
            let found = fixture.get(*reader, &name, "a", "*");
            assert_eq!(found, wanted, "{publisher:?}, {reader:?}");
            for receive in SUBSCRIBE {
                let receive = format!("retained-{receive}");
                let mut late = fixture.subscribe(*reader, &name, "*", 2, &receive);
                late.go();
                let lines = [(); 3].map(|()| late.line());
                assert_eq!(
                    lines,
                    [&value, &missing, "current"],
                    "{publisher:?}, {reader:?} {receive}"
                );
                let sequence = end.publish(b"").unwrap();
                let end = [expected(sequence, "end", b""), "done\t2\t0\t0".to_owned()];
                assert_eq!(late.ends(), end, "{publisher:?}, {reader:?} {receive}");
            }
        }
        let said = fixture.refused(*publisher, [&name, "a", "7", "40", "3000", "retained-one"]);
        assert!(said.contains("more bytes for retained topics"), "{publisher:?}: {said}");
    }
}

/// The directory of buses of [`victim`], which is a process of its own.
const VICTIM: &str = "TORONI_CONFORMANCE_VICTIM";

/// Crashes while it publishes, and dumps core in its working directory.
#[test]
fn victim() {
    let Some(directory) = std::env::var_os(VICTIM) else { return };
    let limit = rustix::process::getrlimit(Resource::Core);
    let limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Core, limit).unwrap();
    let config = BusConfig::new().directory(directory).participant_name("victim");
    let bus = config.open_existing("dump").unwrap();
    let _subscriber = bus.subscribe("**").unwrap();
    let publisher = bus.publisher("t").unwrap();
    let abort = |_: &mut RacyBytesMut<'_>| -> () { std::process::abort() };
    publisher.publish_with(1, Limit::Policy, abort).unwrap();
}

#[test]
fn every_language_reports_a_core_dump() {
    let fixture = Fixture::new();
    let _bus = fixture.config().open("dump").unwrap();
    let Some(mut morgue) = Morgue::open(fixture.file("cores")) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim"]).current_dir(morgue.directory());
    command.env(VICTIM, morgue.directory().parent().unwrap());
    let mut victim = toroni_testkit::Process::spawn(&mut command).unwrap();
    let dump = morgue.hold(victim.id());
    for language in process::languages() {
        let output = fixture.command(language, "observe").arg("dump").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let dumping = "lock\t-\t1\t0\t1\npublisher\tvictim\t1\t0\t1\nsubscriber\tvictim\t1\t0\t1\n";
        assert_eq!(said, dumping, "{language:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    drop(dump);
    victim.wait_within(LIMIT).unwrap().expect("its end");
    for language in process::languages() {
        let output = fixture.command(language, "observe").arg("dump").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let dead = "lock\t-\t0\t0\t0\npublisher\tvictim\t0\t0\t0\nsubscriber\tvictim\t0\t0\t0\n";
        assert_eq!(said, dead, "{language:?}");
    }
}

#[test]
fn a_wrong_call_ends_with_a_line_and_a_code() {
    let fixture = Fixture::new();
    for language in process::languages() {
        for (role, arguments) in [
            ("publish", &["missing", "t", "1", "1", "16", "one"][..]),
            ("subscribe", &["missing", "t", "1", "receive"]),
            ("get", &["missing", "t", "**"]),
            ("observe", &["missing"]),
        ] {
            let output = fixture.command(language, role).args(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{language:?} {role}");
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(told.contains("there is no bus at"), "{language:?} {role}: {told}");
        }
    }
    assert_eq!(LANGUAGES.len(), 4);
}
