//! Nodes that are killed, and are back later: real processes, on the loopback interface and between hosts.

use crate::node_observed::{address as metrics_address, metrics, with};
use crate::node_tcp::{Checked, Counted, address, bus, leave, listen};
use crate::nodes::{file, group, start};
use crate::openmetrics::Samples;
use crate::support::{Buses, wait_until};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toroni_testkit::network::{Host, Setup};
use toroni_testkit::{Program, Random};

/// More datagrams than a sender repairs for one receiver, with a message each.
const MISSED: u64 = 6_000;
const BYTES: usize = 1_000;
const OBSERVED: &str = "metrics = '127.0.0.1:0'\n";
/// Longer than `generation` is by default.
const GENERATION: Duration = Duration::from_secs(1);

fn kill(mut node: Program) {
    node.signal(Signal::KILL);
    assert!(!node.wait().success());
}

fn on(host: &Host, buses: &Buses, path: &str) -> Program {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text.replace("'lo'", "'eth0'")).unwrap();
    let mut command: Command = host.command(crate::program());
    command.env("TORONI_DIR", buses.path()).args(["node", "--config", path]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut node = Program::start_with_ready_fd(command);
    node.wait_ready();
    node
}

/// Waits until a sender has sent `count` messages.
fn has_sent(count: u64, metrics: impl Fn() -> Samples) {
    wait_until("all is sent", || {
        let sent = metrics().value("toroni_net_sent_messages_total", &[("stream", "1")]);
        sent == Some(toroni_testkit::units::as_f64(count))
    });
}

/// A receiver is away for longer than a repair may take, while the ring of the sender keeps everything.
fn away(section: &str) -> Option<Checked> {
    let network = Setup::new(2).switched(0x70_726f_6e69)?;
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let buses = Buses::new();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 32 << 20));
    let (mut checked, mut counted) = (Checked::new(&b), Counted::new(&a, "t"));
    let sending = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '100Mbit/s'\n";
    let path = file(&buses, "a", &(sending.to_owned() + section));
    with(&path, OBSERVED);
    let sender = on(from, &buses, &path);
    let receiving = file(&buses, "b", "[[receive]]\n");
    let receiver = on(to, &buses, &receiving);
    receiver.wait_for_error("follows stream 1 of ");
    counted.publish(10, BYTES);
    checked.receive_all_to(10);
    kill(receiver);
    counted.publish(MISSED, BYTES);
    has_sent(counted.next, || from.enter(|| metrics(&metrics_address(&sender))));
    std::thread::sleep(GENERATION);
    let receiver = on(to, &buses, &receiving);
    receiver.wait_for_error("follows stream 1 of ");
    counted.publish(100, BYTES);
    checked.receive_to(counted.next);
    leave(receiver);
    leave(sender);
    Some(checked)
}

#[test]
fn a_receiver_that_was_killed_loses_nothing_if_the_sender_listens() {
    if let Some(checked) = away("[listen]\naddress = '0.0.0.0:4480'\n") {
        assert_eq!(checked.lost, 0);
    }
}

/// [`Checked`] compares what is missing with what was reported.
#[test]
fn a_receiver_that_was_killed_reports_exactly_what_it_missed_otherwise() {
    if let Some(checked) = away("") {
        assert!((1_000..=MISSED).contains(&checked.lost), "{}", checked.lost);
    }
}

/// After silence, the last checkpoint before a burst is older than what a sender repairs.
#[test]
fn a_sender_that_is_killed_after_silence_and_a_burst_sends_the_burst_again() {
    assert!((0..5).any(|_| kill_after_a_burst() != Some(false)), "it is always killed too late");
}

/// Returns false if the sender was killed when it did not repair the burst any more, `None` if there can be no hosts here.
fn kill_after_a_burst() -> Option<bool> {
    const GENERATION: Duration = Duration::from_millis(500);
    // While nothing is sent, the time between two checkpoints doubles: one comes after 0.6 s, and the next after 1.3 s.
    const SILENCE: Duration = Duration::from_millis(1_200);
    const BURST: u64 = 60;
    let network = Setup::new(2).switched(0x62_7572_7374)?;
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let buses = Buses::new();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 32 << 20));
    let (mut checked, mut counted) = (Checked::new(&b), Counted::new(&a, "t"));
    let sending = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '100Mbit/s'\n";
    let sending = file(&buses, "a", sending);
    let sender = on(from, &buses, &sending);
    let receiver = on(to, &buses, &file(&buses, "b", "[[receive]]\n"));
    receiver.wait_for_error("follows stream 1 of ");
    counted.publish(10, BYTES);
    checked.receive_all_to(10);
    std::thread::sleep(SILENCE);
    network.switch().cut(1);
    let blocked = || network.switch().counts(1).blocked;
    let before = blocked();
    let begin = Instant::now();
    // Each message is a datagram.
    counted.publish(BURST, BYTES);
    wait_until("the burst is sent", || blocked() >= before + BURST);
    // Until there is a checkpoint after it.
    std::thread::sleep(GENERATION / 10);
    kill(sender);
    if begin.elapsed() > GENERATION / 2 {
        return Some(false);
    }
    network.switch().rejoin(1);
    let sender = on(from, &buses, &sending);
    counted.publish(10, BYTES);
    checked.receive_all_to(counted.next);
    leave(receiver);
    leave(sender);
    Some(true)
}

/// A receiver with little memory, which was killed after 10 messages, and its sender, which has a server for history.
struct Away {
    buses: Buses,
    sending: String,
    receiving: String,
    sender: Program,
    counted: Counted,
    checked: Checked,
}

impl Away {
    /// `more` is of the server. Without state, the sender does not know its last session when it is started again.
    fn new(more: &str, has_state: bool) -> Self {
        let buses = Buses::new();
        let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 64 << 20));
        let (mut checked, mut counted) = (Checked::new(&b), Counted::new(&a, "t"));
        let group = group();
        let sending = format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '40Mbit/s'\nloop = true\nttl = 0\n\
             group = '{group}'\n{}{more}",
            listen(address())
        );
        let sending = file(&buses, "a", &sending);
        with(&sending, OBSERVED);
        if !has_state {
            let text = std::fs::read_to_string(&sending).unwrap();
            std::fs::write(&sending, text.replace("state = 'state-a'\n", "")).unwrap();
        }
        let sender = start(&buses, &sending);
        let receiving = format!(
            "[[receive]]\ngroup = '{group}'\nmessage_max = '64KiB'\nreorder_memory = '256KiB'\n"
        );
        let receiving = file(&buses, "b", &receiving);
        let receiver = start(&buses, &receiving);
        receiver.wait_for_error("follows stream 1 of ");
        counted.publish(10, BYTES);
        checked.receive_all_to(10);
        kill(receiver);
        Self { buses, sending, receiving, sender, counted, checked }
    }

    /// Waits until all that was published was sent.
    fn has_sent_all(&self) {
        has_sent(self.counted.next, || metrics(&metrics_address(&self.sender)));
    }
}

const SLOW_HISTORY: &str = "replay_rate = '40Mbit/s'\n";

/// A node as an archive: its bus has all that came, whatever happened to the node, for later subscribers. What it holds
/// behind a gap is far less.
#[test]
fn an_archive_that_is_killed_while_it_fetches_continues_there() {
    let mut away = Away::new(SLOW_HISTORY, true);
    away.counted.publish(MISSED, BYTES);
    away.has_sent_all();
    let Away { buses, receiving: path, sender, mut counted, mut checked, .. } = away;
    std::thread::sleep(GENERATION);
    // It is killed in the middle of what it fetches, again and again. Meanwhile more is sent.
    for round in 1..=4 {
        let receiver = start(&buses, &path);
        checked.receive_all_to(round * MISSED / 5);
        kill(receiver);
        counted.publish(100, BYTES);
    }
    let receiver = start(&buses, &path);
    receiver.wait_for_error("fetched ");
    counted.publish(100, BYTES);
    checked.receive_all_to(counted.next);
    leave(receiver);
    leave(sender);
    let count = counted.next.to_string();
    let output =
        buses.run(&["sub", "--bus", "b", "--from", "oldest", "--count", &count, "--strict", "**"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers =
        text.lines().map(|line| line.rsplit([' ', '\t']).next().unwrap().parse::<u64>().unwrap());
    assert!(numbers.eq(0..counted.next), "all of it, once and in order");
}

/// It reserves memory for shorter ones. What follows them is fetched over the same connection.
#[test]
fn a_receiver_that_was_away_loses_only_the_messages_that_are_longer_than_it_takes() {
    const LONG: u64 = 3;
    let mut away = Away::new("", true);
    for _ in 0..LONG {
        away.counted.publish(1, 100_000);
        away.counted.publish(MISSED / LONG, BYTES);
    }
    away.has_sent_all();
    std::thread::sleep(GENERATION);
    let Away { buses, receiving, sender, mut counted, mut checked, .. } = away;
    let receiver = start(&buses, &receiving);
    receiver.wait_for_error("fetched ");
    counted.publish(100, BYTES);
    checked.receive_to(counted.next);
    assert_eq!(checked.lost, LONG);
    leave(receiver);
    leave(sender);
}

/// A receiver that is back after it has missed [`MISSED`] messages, and its sender, which serves them slowly.
struct Missed {
    buses: Buses,
    sending: String,
    sender: Option<Program>,
    receiver: Program,
    counted: Counted,
    checked: Checked,
    random: Random,
}

impl Missed {
    fn new(has_state: bool, seed: u64) -> Self {
        println!("seed {seed:#x}");
        let mut away = Away::new(SLOW_HISTORY, has_state);
        away.counted.publish(MISSED, BYTES);
        away.has_sent_all();
        let Away { buses, sending, receiving, sender, counted, checked } = away;
        let receiver = start(&buses, &receiving);
        let random = Random::new(seed);
        let sender = Some(sender);
        Self { buses, sending, sender, receiver, counted, checked, random }
    }

    /// Kills the sender in the middle of what it serves: in this fifth.
    fn kill_sender(&mut self, fifth: u64) {
        let fetched = (5 * fifth + self.random.below(5)) * MISSED / 25;
        self.checked.receive_to(fetched);
        kill(self.sender.take().expect("it runs"));
        self.counted.publish(100, BYTES);
    }

    fn start_sender(&mut self) {
        self.sender = Some(start(&self.buses, &self.sending));
    }

    fn leave(self) {
        leave(self.receiver);
        leave(self.sender.expect("it runs"));
    }
}

#[test]
fn a_sender_that_is_killed_while_it_serves_history_continues_when_it_is_back() {
    for has_state in [true, false] {
        let mut seeds = (0x6869_7374 + u64::from(has_state)..).step_by(2).take(5);
        assert!(seeds.any(|seed| is_continued(has_state, seed)), "it is always back too late");
    }
}

/// Returns false if the sender was back too late: a server that brings nothing for 5 s has failed, and a busy machine may
/// take longer to start one.
fn is_continued(has_state: bool, seed: u64) -> bool {
    const FAILED: &str = "its server cannot be reached";
    let mut missed = Missed::new(has_state, seed);
    for fifth in 1..=3 {
        missed.kill_sender(fifth);
        missed.start_sender();
    }
    wait_until("history is fetched, or not", || {
        let said = missed.receiver.errors();
        said.contains("fetched ") || said.contains(FAILED)
    });
    missed.counted.publish(100, BYTES);
    missed.checked.receive_to(missed.counted.next);
    let has_failed = missed.receiver.errors().contains(FAILED);
    assert!(has_failed || missed.checked.lost == 0, "{} are lost", missed.checked.lost);
    missed.leave();
    !has_failed
}

/// [`Checked`] compares what is missing with what was reported.
#[test]
fn a_sender_that_stays_away_while_it_serves_history_costs_what_is_reported() {
    let mut missed = Missed::new(true, 0x6177_6179);
    missed.kill_sender(1);
    missed.receiver.wait_for_error("its server cannot be reached");
    missed.start_sender();
    wait_until("the next session is followed", || {
        missed.receiver.errors().matches("follows stream 1 of ").count() == 2
    });
    missed.counted.publish(100, BYTES);
    missed.checked.receive_to(missed.counted.next);
    assert!((MISSED / 5..MISSED).contains(&missed.checked.lost), "{}", missed.checked.lost);
    missed.leave();
}
