//! Nodes on hosts, which are network namespaces, in the cases that [`node_faults`](crate::node_faults) leaves out. Those that
//! take long run with `TORONI_LONG_TESTS=1` only.

use crate::hosts;
use crate::node_faults::{BYTES, FROM, PATIENT, RECEIVING, SENDING, Scene, TO};
use crate::node_observed::{Notices, address as metrics_address, metrics, with};
use crate::node_tcp::{Checked, Counted, bus, leave};
use crate::nodes::{file, group, receiving, sending, start};
use crate::support::{Buses, wait_until};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reach, Snooping};
use toroni_testkit::network::{Setup, skip};
use toroni_testkit::{Program, Random, long};

/// A third host.
const OTHER: usize = 2;

/// Loses the next `frames` frames of the sender.
fn lose(scene: &mut Scene, frames: u64) {
    let lost = || scene.network.switch().counts(FROM).received.lost;
    let before = lost();
    scene.network.switch().lose_next(FROM, Direction::In, frames);
    // At most two of them share a frame.
    scene.counted.publish(2 * frames + 200, BYTES);
    scene.checked.receive_to(scene.counted.next);
    assert_eq!(lost() - before, frames);
}

#[test]
fn a_loss_of_1_percent_and_bursts_of_frames_cost_no_message() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6275_7273) else { return };
    let sections = format!("{SENDING}{PATIENT}retransmit_rate = '30Mbit/s'\n");
    let sender = scene.node(FROM, "a", "", &sections);
    let receiver = scene.node(TO, "b", "", &(RECEIVING.to_owned() + PATIENT));
    receiver.wait_for_error("follows stream 1 of ");
    let one_percent = Faults { loss: Loss::Bernoulli(0.01), ..Faults::default() };
    scene.network.switch().set_faults(FROM, Direction::In, &one_percent);
    for round in 0.. {
        scene.pass(500);
        if scene.network.switch().counts(FROM).received.lost >= 10 {
            break;
        }
        assert!(round < 40, "the network loses nothing");
    }
    scene.network.switch().set_faults(FROM, Direction::In, &Faults::default());
    for frames in [10, 1_000] {
        lose(&mut scene, frames);
        assert_eq!(scene.checked.lost, 0, "a burst of {frames}");
    }
    leave(receiver);
    leave(sender);
}

/// A receiver that cannot ask for a repair holds what came after it.
#[test]
fn what_waits_for_a_missing_datagram_is_measured() {
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6865_6c64) else { return };
    let nodes = scene.pair("metrics = '127.0.0.1:0'\n", PATIENT);
    let address = metrics_address(&nodes[TO]);
    let of = |scene: &Scene, name: &str| {
        scene.network.hosts[TO].enter(|| metrics(&address)).value(name, &[("stream", "1")])
    };
    scene.network.switch().block(&[TO], &[FROM]);
    scene.network.switch().lose_next(FROM, Direction::In, 1);
    // The frame that is lost may be a SESSION.
    wait_until("datagrams wait", || {
        scene.counted.publish(10, BYTES);
        scene.network.switch().lose_next(FROM, Direction::In, 1);
        of(&scene, "toroni_net_held_datagrams") > Some(0.0)
    });
    wait_until("they become old", || of(&scene, "toroni_net_held_seconds") > Some(1.0));
    assert_eq!(of(&scene, "toroni_net_held_dropped_total"), Some(0.0));
    scene.network.switch().heal();
    scene.settle();
    wait_until("nothing waits", || {
        of(&scene, "toroni_net_held_datagrams") == Some(0.0)
            && of(&scene, "toroni_net_held_seconds") == Some(0.0)
    });
    nodes.into_iter().for_each(leave);
}

/// It takes longer to repair than a repair may take.
#[test]
fn a_burst_of_10000_frames_costs_at_most_what_is_reported() {
    if !long::or_skip() {
        return;
    }
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6275_7274) else { return };
    let nodes = scene.pair("", PATIENT);
    lose(&mut scene, 10_000);
    scene.settle();
    nodes.into_iter().for_each(leave);
}

/// A switch on the way takes shorter packets than the hosts do. What is short enough passes.
#[test]
fn datagrams_that_are_too_long_for_the_way_are_reported_as_lost() {
    const LONG: u64 = 20;
    let Some(mut scene) = Scene::new(Setup::new(2), 0x6d74_7531) else { return };
    let [sender, receiver] = scene.pair("", "");
    let loss = Loss::Bernoulli(1.0);
    let faults = Faults { reach: Reach::LongerThan(1_200), loss, ..Faults::default() };
    scene.network.switch().set_faults(TO, Direction::Out, &faults);
    for _ in 0..3 {
        let lost = || scene.network.switch().counts(TO).sent.lost;
        let (before, reported) = (lost(), scene.checked.lost);
        scene.counted.publish(LONG, 1_300);
        wait_until("they are dropped on the way", || lost() >= before + LONG);
        scene.counted.publish(1, 50);
        scene.checked.receive_to(scene.counted.next);
        assert_eq!(scene.checked.lost, reported + LONG);
    }
    receiver.wait_for_error(" event=loss reason=budget ");
    let log = receiver.errors();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("event=loss")).collect();
    // The host's own counters include what others do on this machine.
    let is_elsewhere = |line: &&str| line.contains("place=before") || line.contains("place=host");
    assert!(lines.iter().all(is_elsewhere), "{log}");
    scene.network.switch().set_faults(TO, Direction::Out, &Faults::default());
    scene.pass(500);
    leave(receiver);
    leave(sender);
}

/// A switch forwards a group only to hosts that report it, and hosts report it when they are asked.
#[test]
fn snooping_without_a_querier_ends_a_stream_and_a_querier_brings_it_back() {
    let Some(mut scene) = Scene::new(Setup::new(3), 0x736e_6f6f) else { return };
    let querier = Some(Duration::from_secs(1));
    let asked = Snooping { ageing: Snooping::AGEING, query_interval: querier };
    scene.network.switch().set_snooping(Some(asked));
    // So that no line is left out because the same was said before.
    let nodes = scene.pair("log = 'trace'\n", "session_max = '1s'\nactivity = '3s'\n");
    scene.pass(500);
    let pruned = |host| scene.network.switch().counts(host).pruned;
    assert!(pruned(OTHER) > 100, "it has not joined the group");
    // What was reported is forgotten, and soon also what comes late.
    let silent = Snooping { ageing: Duration::from_secs(1), query_interval: None };
    scene.network.switch().set_snooping(Some(silent));
    let before = pruned(TO);
    wait_until("the group is not forwarded any more", || {
        scene.counted.publish(20, BYTES);
        pruned(TO) > before + 100
    });
    nodes[TO].wait_for_error("is silent level=warn event=source_silent ");
    scene.network.switch().set_snooping(Some(asked));
    wait_until("the stream is followed again", || {
        nodes[TO].errors().matches("follows stream 1 of ").count() >= 2
    });
    // What was missed meanwhile is repeated, or reported.
    scene.settle();
    nodes.into_iter().for_each(leave);
}

/// Starts a node that sends, and has the same id as every other one of this function.
fn with_one_id(scene: &Scene, host: usize, name: &str, keys: &str, more: &str) -> Program {
    let path = file(&scene.buses, name, &(SENDING.to_owned() + more));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("id", _)) => "id = 7\n".to_owned(),
        Some(("interfaces", _)) => "interfaces = ['eth0']\n".to_owned(),
        _ => format!("{line}\n"),
    });
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    with(&path, keys);
    hosts::start(&scene.network.hosts[host], &scene.buses, &["node", "--config", &path])
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Starts two nodes with one id on two hosts, and one that receives what the first one sends. Returns the first, the receiver
/// and the second.
fn collision(scene: &mut Scene, keys: &str) -> [Program; 3] {
    let quick = "session_max = '1s'\nactivity = '3s'\n";
    let first = with_one_id(scene, FROM, "a", keys, quick);
    let receiver = scene.node(TO, "b", keys, &(RECEIVING.to_owned() + quick));
    receiver.wait_for_error("follows stream 1 of ");
    scene.pass(100);
    // Sessions are numbered by seconds.
    let begun = clock();
    wait_until("the next second", || clock() > begun);
    let second = with_one_id(scene, OTHER, "c", keys, quick);
    [first, receiver, second]
}

#[test]
fn of_two_nodes_with_one_id_and_a_key_the_later_one_ends() {
    let Some(mut scene) = Scene::new(Setup::new(3), 0x6f6e_6501) else { return };
    scene.key("key", 7);
    let [first, receiver, mut second] = collision(&mut scene, "key_file = 'key'\n");
    // If it is slow, it ends before the first one has noticed it.
    assert_eq!(second.wait().code(), Some(1), "{}", second.errors());
    let said = second.errors();
    for wanted in [
        "the node ends: another node of this realm, at 10.77.0.1:",
        "has the source id 00000007, and was there first: give one of them another `name` or `id`",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let mut notices = Notices::new(&scene.buses);
    let noticed = notices.wait("source/collision", |notice| notice["node"] == "c");
    assert_eq!(noticed["stop"], true);
    assert!(noticed["address"].as_str().unwrap().starts_with("10.77.0.1:"), "{noticed}");
    // The receiver may have followed the second one.
    scene.settle();
    leave(receiver);
    leave(first);
}

/// Without a key, anybody could forge what would make a node end.
#[test]
fn two_nodes_with_one_id_and_no_key_both_report_it_and_continue() {
    let Some(mut scene) = Scene::new(Setup::new(3), 0x6f6e_6502) else { return };
    let [first, receiver, second] = collision(&mut scene, "");
    let mut notices = Notices::new(&scene.buses);
    for (node, name, other) in [(&first, "a", "10.77.0.3:"), (&second, "c", "10.77.0.1:")] {
        node.wait_for_error(&format!("another node of this realm, at {other}"));
        node.wait_for_error("has the same source id: give one of them another `name` or `id`");
        let noticed = notices.wait("source/collision", |notice| notice["node"] == name);
        assert_eq!(noticed["stop"], false);
        assert!(noticed["address"].as_str().unwrap().starts_with(other), "{noticed}");
    }
    // It ends as it was asked to, and the receiver has the other one again.
    leave(second);
    scene.settle();
    leave(receiver);
    leave(first);
}

/// A small file system in memory. It ends with the process that has it mounted.
struct Disk {
    holder: Program,
    path: PathBuf,
}

impl Disk {
    /// Mounts one of this many KiB on a directory, for the programs of [`Self::command`] alone.
    fn new(path: &Path, kib: u32) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs -o size=$1k tmpfs \"$0\" && echo mounted && exec sleep 1000";
        command.args(["--mount", "sh", "-c", script]).arg(path).arg(kib.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Program::start(command);
        if holder.line().is_none() {
            skip(&format!("no small file system can be mounted here:{}", holder.errors()));
            return None;
        }
        Some(Self { holder, path: path.to_owned() })
    }

    /// Returns the program for which it is mounted, not yet started.
    fn command(&self, buses: &Buses, arguments: &[&str]) -> Command {
        let usual = buses.command(arguments);
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command.arg(usual.get_program()).args(usual.get_args());
        command.env_remove("TORONI_BUS").env("TORONI_DIR", buses.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the path by which this process finds a file in it.
    fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.path.strip_prefix("/").unwrap()).join(name)
    }

    fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.file("other")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[1; 4_096]) {
                break error;
            }
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
    }

    fn make_room(&self) {
        std::fs::remove_file(self.file("other")).unwrap();
    }
}

/// A node whose `state` is on a full disk continues, and can only not start again until there is room.
#[test]
fn a_full_disk_costs_a_node_no_message() {
    let (buses, group) = (Buses::new(), group());
    let Some(disk) = Disk::new(&buses.path().join("state-from"), 64) else { return };
    let [from, to] = ["from", "to"].map(|name| bus(&buses, name, 16 << 20));
    let (mut counted, mut checked) = (Counted::new(&from, "t"), Checked::new(&to));
    let receiver = start(&buses, &file(&buses, "to", &receiving(&group)));
    let path = file(&buses, "from", &sending(&group));
    let arguments = ["node", "--config", &path];
    let start = || {
        let mut node = Program::start_with_ready_fd(disk.command(&buses, &arguments));
        node.wait_ready();
        node
    };
    let mut pass = |count| {
        counted.publish(count, BYTES);
        checked.receive_all_to(counted.next);
    };
    let mut sender = start();
    receiver.wait_for_error("follows stream 1 of ");
    pass(100);
    let journal = || std::fs::read(disk.file("stream-1")).unwrap();
    wait_until("a checkpoint", || journal().len() > 32);

    // The journal has its room already.
    disk.fill();
    let before = journal();
    wait_until("another checkpoint", || {
        pass(50);
        journal() != before
    });
    sender.kill();
    let refused = Program::start(disk.command(&buses, &arguments)).finish();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    let session = buses.path().join("state-from/session");
    let wanted = format!("cannot write {}: No space left on device", session.display());
    assert!(error.contains(&wanted), "{error}");
    disk.make_room();
    let sender = start();
    pass(100);

    // A file system that copies what is written may have no room for the journal later, either. This one has none if its
    // room was taken away.
    sender.stop();
    File::create(disk.file("stream-1")).unwrap();
    disk.fill();
    sender.resume();
    pass(100);
    sender.wait_for_error("cannot write the journal: No space left on device");
    pass(100);
    assert_eq!(journal(), [0; 0]);
    disk.make_room();
    sender.wait_for_error("writes the journal again: ");
    pass(100);
    assert!(journal().len() > 32);
    leave(sender);
    leave(receiver);
}

/// A bus takes all its room when it is made. So a disk that is full later costs nothing, and a node whose bus finds no room
/// does not start, until there is room. What it missed is fetched then.
#[test]
fn a_full_disk_costs_an_archive_no_message() {
    let (buses, group) = (Buses::new(), group());
    let Some(disk) = Disk::new(&buses.path().join("disk"), 6_328) else { return };
    let from = bus(&buses, "from", 16 << 20);
    let mut counted = Counted::new(&from, "t");
    let address = toroni_testkit::port::free();
    let listen = format!("[listen]\naddress = '{address}'\nlatency_bound = '9s'\n");
    let sender = start(&buses, &file(&buses, "from", &(sending(&group) + &listen)));
    let path = file(&buses, "to", &(receiving(&group) + "join = 'window'\n"));
    let text = std::fs::read_to_string(&path).unwrap();
    let on_disk = format!(
        "bus = {{ name = 'to', directory = '{}', capacity = '4MiB', policy = 'wait:60s' }}",
        disk.path.display()
    );
    std::fs::write(&path, text.replace("bus = 'to'", &on_disk)).unwrap();
    let arguments = ["node", "--config", &path];
    let start = || {
        let mut node = Program::start_with_ready_fd(disk.command(&buses, &arguments));
        node.wait_ready();
        node
    };
    counted.publish(100, BYTES);

    disk.fill();
    let refused = Program::start(disk.command(&buses, &arguments)).finish();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    let wanted = "the node does not start: cannot open the bus to: not enough space in ";
    assert!(error.contains(wanted) && error.contains("0 are available"), "{error}");
    disk.make_room();
    // There is none for another bus beside it.
    let mut archive = start();
    archive.wait_for_error("cannot publish notices on the bus node.test: not enough space in ");
    let bus = || {
        let config = toroni::BusConfig::new().directory(disk.file("."));
        config.open_existing("to").unwrap()
    };
    let from_the_oldest = || {
        let subscriber = bus().subscriber().start(toroni::Start::Oldest).pattern("**");
        Checked::of(subscriber.build().unwrap())
    };
    let mut checked = from_the_oldest();
    checked.receive_all_to(counted.next);

    disk.fill();
    // More than the ring holds.
    let mut pass = |count: u64, counted: &mut Counted| {
        for _ in (0..count).step_by(200) {
            counted.publish(200, BYTES);
            checked.receive_all_to(counted.next);
        }
    };
    pass(12_000, &mut counted);
    archive.kill();
    counted.publish(500, BYTES);
    let archive = start();
    pass(1_000, &mut counted);
    disk.make_room();
    pass(1_000, &mut counted);
    // Who reads the archive from its beginning finds the same.
    let held = bus().stats().unwrap().sequence;
    assert_eq!(held, counted.next);
    leave(archive);
    leave(sender);
}

/// It is away for longer than `activity`, and was neither killed nor left.
#[test]
fn a_receiver_that_stands_still_for_long_reports_what_it_missed_and_continues() {
    if !long::or_skip() {
        return;
    }
    let Some(mut scene) = Scene::new(Setup::new(2), 0x7374_6f71) else { return };
    // Its socket has room for less.
    let [sender, receiver] = scene.pair("stall = '1ms'\n", "");
    receiver.stop();
    scene.counted.publish(20_000, BYTES);
    std::thread::sleep(Duration::from_secs(12));
    scene.counted.publish(1_000, BYTES);
    receiver.resume();
    scene.settle();
    assert!(scene.checked.lost > 0);
    leave(receiver);
    leave(sender);
}

/// In turn, at any place of what they send and receive. What a receiver misses meanwhile, it fetches.
#[test]
fn nodes_that_are_killed_on_two_hosts_lose_and_double_nothing() {
    let seed = 0x6b69_6c6c;
    let Some(mut scene) = Scene::new(Setup::new(2), seed) else { return };
    let sections = [
        format!("{SENDING}generation = '4s'\n[listen]\naddress = '0.0.0.0:4480'\n"),
        format!("{RECEIVING}generation = '4s'\n"),
    ];
    let start = |scene: &Scene, host: usize| {
        let node = scene.node(host, ["a", "b"][host], "", &sections[host]);
        Some(node)
    };
    let mut nodes = [FROM, TO].map(|host| start(&scene, host));
    let mut random = Random::new(seed);
    nodes[TO].as_ref().unwrap().wait_for_error("follows stream 1 of ");
    for kill in 0..2 * long::repetitions(2, 100) {
        scene.counted.publish(200, BYTES);
        let open = random.below(200);
        scene.checked.receive_all_to(scene.counted.next - open);
        let host = usize::try_from(kill % 2).unwrap();
        nodes[host].take().unwrap().kill();
        scene.counted.publish(20, BYTES);
        nodes[host] = start(&scene, host);
    }
    scene.pass(100);
    nodes.into_iter().rev().flatten().for_each(leave);
}

/// Each loses frames of its own, beside those that all lose.
#[test]
fn twenty_receivers_get_everything() {
    if !long::or_skip() {
        return;
    }
    const RECEIVERS: usize = 20;
    let Some(mut scene) = Scene::new(Setup::new(21), 0x7477_656e) else { return };
    let sender = scene.node(FROM, "a", "", &(SENDING.to_owned() + PATIENT));
    // They follow the stream before anything is published, so all get the same.
    let receive = |host: usize| {
        let name = if host == TO { "b".to_owned() } else { format!("r{host}") };
        let checked = (host != TO).then(|| Checked::new(&bus(&scene.buses, &name, 4 << 20)));
        let receiver = scene.node(host, &name, "", &(RECEIVING.to_owned() + PATIENT));
        receiver.wait_for_error("follows stream 1 of ");
        (receiver, checked)
    };
    let (receivers, mut others): (Vec<_>, Vec<_>) = (1..=RECEIVERS).map(receive).unzip();
    let loss = |share| Faults { loss: Loss::Bernoulli(share), ..Faults::default() };
    scene.network.switch().set_all_faults(Direction::Out, &loss(0.01));
    scene.network.switch().set_faults(FROM, Direction::In, &loss(0.02));
    for _ in 0..50 {
        scene.pass(100);
        for checked in others.iter_mut().flatten() {
            checked.receive_all_to(scene.counted.next);
        }
    }
    for host in 1..=RECEIVERS {
        assert!(scene.network.switch().counts(host).sent.lost > 0, "host {host} has lost nothing");
    }
    receivers.into_iter().for_each(leave);
    leave(sender);
}
