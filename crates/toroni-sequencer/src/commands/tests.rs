//! Commands through a real bus, with a courier and a leader that are stopped and started again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::runtime::{Builder as Runtimes, Runtime};
use toroni::{Limit, Origin, Start};
use toroni_testkit::{Directory, Random, wait};

use super::*;
use crate::batch::{Command, Lost, Publish};
use crate::entry::{Member, Members};
use crate::log::{Options, Sync};
use crate::machine::Event;
use crate::raft::{Events, Group, GroupOptions, Timing, feed_id};
use crate::rpc::{Answer, Request, Role, Target};

/// By event number: the source, series and number of the command, and its payload. Of lost commands: the last number, and no
/// payload.
type Seen = Arc<Mutex<BTreeMap<u64, (u32, u32, u64, String)>>>;

struct Keeps(Seen);

impl Events for Keeps {
    fn event(&mut self, event: Event<'_>) {
        let told = match event.command {
            Command::Publish(Publish { id, payload, .. }) => {
                let payload = String::from_utf8_lossy(payload).into_owned();
                (id.source, id.series, id.number, payload)
            }
            Command::Lost(Lost { source, series, last, .. }) => {
                (source, series, last, String::new())
            }
            _ => return,
        };
        let before = self.0.lock().expect("no panic").insert(event.number, told.clone());
        assert!(
            before.is_none_or(|before| before == told),
            "event {} has two contents",
            event.number
        );
    }

    fn skipped(&mut self, _: u64) {}
}

fn start_group(runtime: &Runtime, directory: &Directory, address: &str, seen: &Seen) -> Group {
    runtime.block_on(async {
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(begun.elapsed() < wait::LIMIT, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        let address = listener.local_addr().expect("bound").to_string();
        let group = Group::start(GroupOptions {
            feed: "orders".to_owned(),
            id: 0,
            listener,
            keys: None,
            listed: vec![],
            directory: directory.join("log"),
            log: Options { segment_bytes: 4 << 20, sync: Sync::Always },
            snapshot_bytes: u64::MAX / 2,
            retain_bytes: u64::MAX,
            timing: Timing::default(),
            events: Box::new(Keeps(Arc::clone(seen))),
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        let mut members = Members::default();
        members.members.insert(0, Member { name: "a".to_owned(), address, log: [0; 16] });
        // The second time, the group has begun already.
        let begun = group.request(Request::Init(members)).await;
        assert!(matches!(begun, Answer::Done | Answer::Failed(_)), "{begun:?}");
        group
    })
}

fn courier(directory: &Directory, address: &str, session: u32) -> Courier {
    courier_of(directory, address, session, None)
}

fn courier_of(directory: &Directory, address: &str, session: u32, rate: Option<u64>) -> Courier {
    let target = Target {
        address: address.to_owned(),
        feed: feed_id("orders"),
        keys: None,
        role: Role::Tool,
        log: None,
        bind: None,
    };
    let options = CourierOptions {
        bus: bus(directory),
        feed: "orders".to_owned(),
        source: 7,
        session,
        members: vec![target],
        rate,
        buses: Some(directory.join("commands-orders")),
    };
    Courier::start(options).unwrap_or_else(|error| panic!("{error}"))
}

fn bus(directory: &Directory) -> BusConfig {
    // As small as may be, so that publishers wait for the courier.
    BusConfig::new().directory(directory.join("buses")).capacity(64 << 10)
}

#[test]
fn commands_keep_to_their_rate() {
    const BYTES: usize = 1_000;
    const COUNT: usize = 40;
    let directory = Directory::new();
    let runtime =
        Runtimes::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let address = toroni_testkit::port::free().to_string();
    let seen = Seen::default();
    let _group = start_group(&runtime, &directory, &address, &seen);
    let commands = Commands::open_with(bus(&directory), "orders");
    let commands = commands.unwrap_or_else(|error| panic!("{error}"));
    let courier = courier_of(&directory, &address, 1, Some(160_000));
    let begun = Instant::now();
    for _ in 0..COUNT {
        commands.send("t", [0; BYTES]).unwrap_or_else(|error| panic!("{error}"));
    }
    wait::until("all are brought", || courier.counts().brought() == COUNT as u64);
    // 20,000 bytes in a second; the last batch, of 2,000 and one command, is not waited for.
    let least = (COUNT - 3) * BYTES / 20;
    assert!(begun.elapsed().as_millis() as usize >= least, "{:?}", begun.elapsed());
    courier.end().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_command_is_an_event_once_whatever_is_restarted() {
    let mut random = Random::from_environment();
    let directory = Directory::new();
    let runtime =
        Runtimes::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let address = toroni_testkit::port::free().to_string();
    let seen = Seen::default();
    let mut group = Some(start_group(&runtime, &directory, &address, &seen));
    let mut session = 1;
    let mut running = courier(&directory, &address, session);

    let config = bus(&directory);
    let sender = std::thread::spawn(move || {
        let commands =
            Commands::open_with(config, "orders").unwrap_or_else(|error| panic!("{error}"));
        let sent = (0..10_000).map(|number| commands.send("new/order", format!("order {number}")));
        sent.collect::<Result<Vec<_>, _>>().unwrap_or_else(|error| panic!("{error}"))
    });
    let mut restarts = 0;
    while !sender.is_finished() || restarts < 4 {
        std::thread::sleep(std::time::Duration::from_millis(random.below(150)));
        restarts += 1;
        if random.below(2) == 0 {
            // While no courier runs, publishers would overwrite what the order does not have.
            let commands = open_bus(bus(&directory), "orders").expect("opened");
            let holds = commands.subscriber().pattern("**").start(Start::Oldest).gating(true);
            let holds = holds.build().expect("subscribed");
            running.end().unwrap_or_else(|error| panic!("{error}"));
            session += 1;
            running = courier(&directory, &address, session);
            drop(holds);
        } else {
            let ending = group.take().expect("running");
            runtime.block_on(ending.close()).unwrap_or_else(|error| panic!("{error}"));
            group = Some(start_group(&runtime, &directory, &address, &seen));
        }
    }
    let sent = sender.join().expect("sent");
    let begun = Instant::now();
    while seen.lock().expect("no panic").len() < sent.len() {
        assert!(
            begun.elapsed() < wait::LIMIT,
            "{} of {}",
            seen.lock().expect("no panic").len(),
            sent.len()
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.end().unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.lock().expect("no panic");
    for ((number, sent), (source, series, command, payload)) in
        sent.iter().enumerate().zip(seen.values())
    {
        assert_eq!((*source, *series, *command), (7, sent.series, sent.number));
        assert_eq!(*payload, format!("order {number}"));
        let origin = Origin { source: 7, series: *series, stream: 0, number: *command };
        assert!(
            sent.is_echo(&origin) && !Sent { number: sent.number + 1, ..*sent }.is_echo(&origin)
        );
    }
    assert_eq!(seen.len(), sent.len());
}

#[test]
fn commands_that_were_overwritten_before_a_courier_ran_are_one_lost_event() {
    let directory = Directory::new();
    let runtime =
        Runtimes::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let seen = Seen::default();
    let address = toroni_testkit::port::free().to_string();
    let group = start_group(&runtime, &directory, &address, &seen);
    // No subscriber makes publishers wait, so the ring keeps only the last ones.
    let commands = Commands::open_with(bus(&directory), "orders").expect("opened");
    let sent = (0..10_000).map(|number| commands.send("new/order", format!("order {number}")));
    let last = sent.last().expect("one").expect("sent").number;
    let running = courier(&directory, &address, 1);
    let begun = Instant::now();
    while seen.lock().expect("no panic").values().all(|(_, _, number, _)| *number < last) {
        assert!(begun.elapsed() < wait::LIMIT, "the last command is no event");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.end().unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(group.close()).unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.lock().expect("no panic");
    let mut seen = seen.values();
    let (_, _, lost, payload) = seen.next().expect("the loss");
    assert_eq!(payload, "", "the oldest commands were overwritten");
    for (number, (_, _, found, payload)) in (lost + 1..=last).zip(&mut seen) {
        assert_eq!((*found, payload), (number, &format!("order {number}")));
    }
    assert_eq!(seen.next(), None);
}

#[test]
fn a_program_knows_the_events_of_its_own_commands() {
    let directory = Directory::new();
    let commands = Commands::open_with(bus(&directory), "orders").expect("opened");
    let sent = commands.send("new/order", "1").expect("sent");
    let events =
        BusConfig::new().directory(directory.join("buses")).open("orders").expect("opened");
    let mut reader =
        events.subscriber().pattern("**").start(Start::Oldest).build().expect("subscribed");
    let inlet = events.inlet().expect("an inlet");
    let topic = inlet.topic("new/order").expect("a topic");
    for series in [sent.series, sent.series ^ 1] {
        let origin = Origin { source: 7, series, stream: 0, number: sent.number };
        let parts: &[&[u8]] = &[b"1"];
        let mut entry = toroni::Entry::new(&topic, parts);
        entry.origin = Some(origin);
        inlet.publish(&[entry], Limit::Policy).expect("published");
    }
    assert!(commands.is_mine(&reader.receive().expect("the first")));
    assert!(!commands.is_mine(&reader.receive().expect("the second")));
}

#[test]
fn publishers_of_many_topics_are_not_all_kept() {
    let directory = Directory::new();
    let commands =
        Commands::open_with(bus(&directory), "orders").unwrap_or_else(|error| panic!("{error}"));
    for number in 0..3 * MOST_PUBLISHERS {
        commands.send(&format!("order/{number}"), "new").unwrap_or_else(|error| panic!("{error}"));
        assert!(
            commands.publishers.lock().expect("no panic").len() <= MOST_PUBLISHERS,
            "after {number}"
        );
    }
}

#[test]
fn a_topic_that_is_too_long_is_refused_as_the_bus_does() {
    let directory = Directory::new();
    let commands = Commands::open_with(bus(&directory), "orders").expect("opened");
    let error = commands.send(&"t".repeat(256), "7 boxes").expect_err("too long");
    assert!(error.to_string().contains("the name has 256 bytes and may have 255"), "{error}");
    let long = commands.send("new/order", vec![0; MAX_COMMAND_BYTES]).expect_err("too long");
    assert!(matches!(long, CommandsError::TooLong(_)), "{long}");
}
