//! One host exports, another imports.

use crate::hosts::{BRIDGE, Network, Pair, meet, toroni};
use std::os::unix::fs::symlink;
use std::process::Command;
use toroni_testkit::{Program, wait};

/// The first commands of the guide: `toroni zenoh` without a file, found by scouting.
#[test]
fn two_commands_connect_two_hosts() {
    let Some(network) = Network::new(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    // `toroni zenoh` finds `toroni-zenoh` in PATH.
    let programs = a.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    symlink(BRIDGE, programs.join("toroni-zenoh")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let start = |mut command: Command| {
        let mut bridge = Program::start_with_ready_fd(command.env("PATH", &path));
        bridge.wait_ready();
        bridge
    };
    let exporter = start(a.toroni(&["zenoh", "--export", "plant/**"]));
    let _importer = start(b.toroni(&["zenoh", "--import", "plant/**"]));
    exporter.wait_for_error("can be reached at: tcp/10.77.0.1:");
    let listener = b.listen(&["**"]);
    meet(a, "plant/hello", &[&listener]);
    a.publish("plant/line", 0..10_000, &["--rate", "20k/s"]);
    a.publish("office/line", 0..10, &[]);
    listener.wait_settled("plant/line", 10_000);
    let account = listener.account();
    account.balance("plant/line", 10_000);
    assert!(account.received("plant/line") > 0, "{}", account.summary());
    assert_eq!(account.received("office/line"), 0, "only what is exported leaves the host");
}

/// Each topic is in order, and what Zenoh had no room for is reported with the exact number.
#[test]
fn a_flood_is_in_order_and_its_losses_are_exact() {
    let Some(Pair { network, exporter: _exporter, importer: _importer, listener }) = Pair::new()
    else {
        return;
    };
    let [a, _] = &network.hosts[..] else { unreachable!() };
    let count = 200_000;
    let topics = ["line/1", "line/2", "line/3"];
    let mut publishers: Vec<Program> =
        topics.iter().map(|topic| a.start_publishing(topic, 0..count, &[])).collect();
    for publisher in &mut publishers {
        assert!(publisher.wait().success());
    }
    for topic in topics {
        listener.wait_settled(topic, count);
    }
    let account = listener.account();
    let lost: u64 = topics.iter().map(|topic| account.balance_within_bounds(topic, count)).sum();
    eprintln!("of {} messages, {lost} were lost and reported", 3 * count);
}

/// Payloads of any bytes and sizes up to megabytes arrive as they are. The export waits for the link: one that drops
/// would report a message of megabytes as lost if either host is busy for 50 ms.
#[test]
fn payloads_arrive_as_they_are() {
    let Some(Pair { network, exporter: _exporter, importer: _importer, listener: _listener }) =
        Pair::exporting("congestion = 'block'", &["hello"])
    else {
        return;
    };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let bytes: Vec<u8> = (0..5 << 20).map(|n: u32| n.to_le_bytes()[n as usize % 4]).collect();
    let file = a.path().join("bytes");
    std::fs::write(&file, &bytes).unwrap();
    let mut raw = b.toroni(&["sub", "--payload-only", "--format", "raw", "-n", "1", "big"]);
    let mut receiver = Program::start_with_ready_fd(&mut raw);
    receiver.wait_ready();
    let publish = ["pub", "big", "--quiet", "--chunk", "5MiB", "--file", file.to_str().unwrap()];
    let _ = Program::start(a.toroni(&publish)).succeed();
    let received = receiver.finish();
    assert_eq!(received.stdout.len(), bytes.len(), "{}", String::from_utf8_lossy(&received.stderr));
    assert!(received.stdout == bytes, "other bytes arrived");
}

/// A post to descendants reaches an importer that asks for the descendants only.
#[test]
fn posts_to_descendants_reach_imports_of_the_descendants() {
    let Some(network) = Network::new(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let _exporter = a.bridge(&["--export", "**"]);
    let _importer = b.bridge(&["--import", "plant/boiler/**"]);
    let listener = b.listen(&["plant/boiler/**"]);
    meet(a, "plant/boiler/hello", &[&listener]);
    let _ = Program::start(a.toroni(&["pub", "plant", "stop", "--to-descendants"])).succeed();
    listener.wait_for("plant");
    let _ = Program::start(a.toroni(&["pub", "plant", "only for plant"])).succeed();
    let _ = Program::start(a.toroni(&["pub", "plant/boiler/end", "x"])).succeed();
    listener.wait_for("plant/boiler/end");
    assert_eq!(listener.account().received("plant"), 1);
}

/// A bridge that joins later gets the newest message of each topic.
#[test]
fn a_late_importer_gets_the_newest_message_of_each_topic() {
    let Some(network) = Network::new(2) else { return };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let _exporter = a.bridge(&["--export", "**", "--history"]);
    for (topic, value) in [("plant/a", "old a"), ("plant/b", "b"), ("plant/a", "new a")] {
        let _ = Program::start(a.toroni(&["pub", topic, value])).succeed();
    }
    let listener = b.listen(&["plant/**"]);
    let _importer = b.bridge(&["--import", "**", "--history"]);
    listener.wait_for("plant/a");
    listener.wait_for("plant/b");
    let mut messages = listener.account().messages().to_vec();
    messages.sort();
    let wanted = [("plant/a", "new a"), ("plant/b", "b")];
    assert_eq!(messages, wanted.map(|(topic, value)| (topic.to_owned(), value.to_owned())));
}

/// Two bridges of one bus: the second waits, and takes over when the first is gone. Nothing is doubled.
#[test]
fn a_second_bridge_of_a_bus_takes_over() {
    let Some(Pair { network, exporter: mut first, importer: _importer, listener }) = Pair::new()
    else {
        return;
    };
    let [a, _] = &network.hosts[..] else { unreachable!() };
    // It is not ready before it works, or it says that it stands by; both are correct.
    let second = Program::start(a.command(BRIDGE, &["--export", "**"]));
    second.wait_for_error("stand");
    let publisher = a.start_publishing("line", 0..20_000, &["--rate", "4k/s"]);
    wait::until("the first messages arrive", || listener.account().received("line") > 2_000);
    first.kill();
    let _ = publisher.succeed();
    listener.wait_settled("line", 20_000);
    let lost = listener.account().balance_within_bounds("line", 20_000);
    assert!(listener.account().received("line") > 15_000, "{}", listener.account().summary());
    eprintln!("the takeover cost {lost} messages, all of them reported");
}

/// The program that the tests start is the one that they name.
#[test]
fn the_programs_exist() {
    if let Ok(toroni) = toroni() {
        let output = Command::new(toroni).arg("--version").output().unwrap();
        assert!(output.stdout.starts_with(b"toroni "));
    }
    let output = Command::new(BRIDGE).arg("--version").output().unwrap();
    assert!(output.stdout.starts_with(b"toroni zenoh "), "{output:?}");
}
