//! Hosts whose bus and state are restored from a backup: what is published then has numbers that receivers have met already.

use crate::node_tcp::{address, bus, connect, leave, listen};
use crate::nodes::{file, group, receiving, sending, start};
use crate::support::Buses;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni::{BusConfig, LostReason, ReceiveError, Start, Subscriber};
use toroni_testkit::{Directory, Program, wait};

/// How a backup is put back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Restored {
    /// As a copy, in the place of what was there.
    Copied,
    /// As a disk that goes back to a snapshot: the files are the same ones.
    Reverted,
}

/// Copies the files of a directory. Files that are there already remain the same ones.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Publishes these, and leaves the bus closed.
fn publish(buses: &Buses, texts: &[String]) {
    let bus = BusConfig::new().directory(buses.path()).open_existing("a").unwrap();
    let publisher = bus.publisher("t").unwrap();
    texts.iter().for_each(|text| _ = publisher.publish(text.as_bytes()).unwrap());
}

fn receive(subscriber: &mut Subscriber, count: usize) -> Vec<String> {
    let mut got = Vec::new();
    while got.len() < count {
        match subscriber.receive_timeout(wait::LIMIT) {
            Ok(Some(message)) => got.push(message.text().into_owned()),
            Ok(None) => panic!("no more than {got:?}"),
            Err(ReceiveError::Lost(lost)) => got.push(match lost.reason {
                LostReason::Diverged | LostReason::Restart => format!("{:?}", lost.reason),
                _ => panic!("{lost:?} after {got:?}"),
            }),
            Err(error) => panic!("{error}"),
        }
    }
    got
}

/// Sessions are seconds: a backup is not restored within one.
fn next_second() {
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let begun = second();
    while second() == begun {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends 10 messages, makes a backup, sends 10 more, restores the backup, and sends 15. `receiver_restarts` says whether the receiving
/// node is another process then.
fn restore([sending, receiving, joined]: [&str; 3], how: Restored, receiver_restarts: bool) {
    let buses = Buses::new();
    drop(bus(&buses, "a", 1 << 20));
    let b = bus(&buses, "b", 1 << 20);
    let mut subscriber = b.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
    let (from, to) = (file(&buses, "a", sending), file(&buses, "b", receiving));
    let texts = |kind: &str, numbers: std::ops::Range<u32>| -> Vec<String> {
        numbers.map(|number| format!("{kind}{number}")).collect()
    };
    let mut receiver = start(&buses, &to);
    let mut life = |texts: &[String], told: &[&str], first: Option<&Program>| {
        let sender = start(&buses, &from);
        if let Some(receiver) = first {
            receiver.wait_for_error(joined);
        }
        publish(&buses, texts);
        let told: Vec<String> = told.iter().map(|text| (*text).to_owned()).collect();
        let got = receive(&mut subscriber, told.len() + texts.len());
        assert_eq!(got, [&told[..], texts].concat(), "{how:?} {receiver_restarts} {joined}");
        let is_new = told.iter().any(|told| told == "Restart");
        if is_new {
            sender.wait_for_error("event=new_series");
        }
        assert_eq!(sender.errors().contains("event=new_series"), is_new);
        leave(sender);
        next_second();
    };
    life(&texts("old", 0..10), &[], Some(&receiver));
    let paths = ["a", "state-a"]
        .map(|name| (buses.path().join(name), buses.path().join(format!("{name}.bak"))));
    paths.iter().for_each(|(path, backup)| copy(path, backup));
    life(&texts("old", 10..20), &[], None);
    if receiver_restarts {
        leave(receiver);
        receiver = start(&buses, &to);
    }
    for (path, backup) in &paths {
        if how == Restored::Copied {
            std::fs::remove_dir_all(path).unwrap();
        }
        copy(backup, path);
    }
    let told = match how {
        Restored::Copied => "Restart",
        Restored::Reverted => "Diverged",
    };
    life(&texts("new", 10..25), &[told], None);
    leave(receiver);
}

/// All cases at once: most of the time passes until sessions end.
fn restore_all(ways: impl Fn() -> [String; 3]) {
    let cases =
        [(Restored::Copied, false), (Restored::Reverted, false), (Restored::Reverted, true)];
    std::thread::scope(|scope| {
        for (how, receiver_restarts) in cases {
            let ways = ways();
            scope.spawn(move || {
                restore(ways.each_ref().map(String::as_str), how, receiver_restarts)
            });
        }
    });
}

#[test]
fn a_backup_that_is_restored_is_reported_and_what_follows_arrives() {
    restore_all(|| {
        let group = group();
        let sending = sending(&group).replace("'9s'", "'1s'");
        [sending, receiving(&group), "follows stream 1 of ".to_owned()]
    });
}

/// Nothing says what was sent before. With `state`, there would be no loss.
#[test]
fn a_bus_on_a_disk_is_another_series_after_each_start_without_state() {
    let disk = Directory::below(env!("CARGO_TARGET_TMPDIR"));
    let (buses, address) = (Buses::new(), address());
    let config = BusConfig::new().directory(disk.path()).capacity(1 << 20);
    let (a, b) = (config.open("a").unwrap(), bus(&buses, "b", 1 << 20));
    let mut subscriber = b.subscribe("**").unwrap();
    let to = file(&buses, "b", &connect(address));
    let from = file(&buses, "a", &(listen(address) + "patterns = ['**']\n"));
    let directory = disk.path().to_str().unwrap();
    let text = std::fs::read_to_string(&from).unwrap();
    let on_disk = format!("bus = {{ name = 'a', directory = '{directory}' }}\n");
    let text = text.replace("bus = 'a'\n", &on_disk).replace("state = 'state-a'\n", "");
    std::fs::write(&from, text).unwrap();
    let receiver = start(&buses, &to);
    let publisher = a.publisher("t").unwrap();
    for (text, told) in [("first", &[][..]), ("second", &["Restart"])] {
        let sender = start(&buses, &from);
        if told.is_empty() {
            receiver.wait_for_error("connected to");
        } else {
            sender.wait_for_error("this node has no `state` that knows it");
        }
        publisher.publish(text.as_bytes()).unwrap();
        assert_eq!(receive(&mut subscriber, told.len() + 1), [told, &[text]].concat());
        leave(sender);
        next_second();
    }
    leave(receiver);
}

#[test]
fn a_backup_that_is_restored_is_reported_over_tcp() {
    restore_all(|| {
        let address = address();
        let listen = listen(address) + "patterns = ['**']\n";
        [listen, connect(address), "connected to".to_owned()]
    });
}
