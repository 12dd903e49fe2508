//! Nodes that are connected by TCP: real processes on the loopback interface.

use crate::node_observed::{address as metrics_address, metrics, with};
use crate::nodes::{file, refused, start};
use crate::support::{Buses, LIMIT, wait_until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, LostBound, Policy, ReceiveError, Subscriber};
use toroni_testkit::Program;
use toroni_testkit::network::{Host, Setup};

/// An address that no other test uses now.
pub(crate) fn address() -> SocketAddr {
    toroni_testkit::port::free()
}

/// Nothing becomes too old: a busy machine may be late.
pub(crate) fn listen(address: SocketAddr) -> String {
    format!("[listen]\naddress = '{address}'\nlatency_bound = '9s'\n")
}

pub(crate) fn connect(address: SocketAddr) -> String {
    format!("[[connect]]\naddress = '{address}'\nretry = '20ms'\n")
}

pub(crate) fn bus(buses: &Buses, name: &str, capacity: u64) -> Bus {
    let config = BusConfig::new().directory(buses.path()).capacity(capacity);
    // A test's subscriber is a thread that may have to wait for the others.
    config.policy(Policy::Wait { limit: Some(LIMIT) }).open(name).unwrap()
}

/// Numbers that are published one after the other, and checked one after the other.
pub(crate) struct Counted {
    bus: Bus,
    topic: &'static str,
    pub(crate) next: u64,
}

impl Counted {
    pub(crate) fn new(bus: &Bus, topic: &'static str) -> Self {
        Self { bus: bus.clone(), topic, next: 0 }
    }

    pub(crate) fn publish(&mut self, count: u64, length: usize) {
        let publisher = self.bus.publisher(self.topic).unwrap();
        for _ in 0..count {
            let mut payload = vec![b' '; length.saturating_sub(20)];
            payload.extend(self.next.to_string().into_bytes());
            publisher.publish(payload).unwrap();
            self.next += 1;
        }
    }
}

/// Checks that every number comes once and in order, or was reported as lost, as often as it was.
pub(crate) struct Checked {
    subscriber: Subscriber,
    pub(crate) next: u64,
    pub(crate) lost: u64,
}

impl Checked {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self::of(bus.subscribe("**").unwrap())
    }

    pub(crate) fn of(subscriber: Subscriber) -> Self {
        Self { subscriber, next: 0, lost: 0 }
    }

    /// Receives until all numbers below this one have come, or were reported.
    pub(crate) fn receive_to(&mut self, until: u64) {
        let begin = Instant::now();
        // How many are missing according to reports, before the next number.
        let (mut exact, mut at_most) = (0, 0);
        while self.next + exact < until {
            assert!(begin.elapsed() < LIMIT, "{} of {until} came", self.next);
            match self.subscriber.receive_timeout(Duration::from_millis(200)) {
                Ok(Some(message)) => {
                    let number: u64 = message.text().trim().parse().unwrap();
                    assert!(number >= self.next, "{number} came after {}", self.next);
                    let missing = number - self.next;
                    assert!(
                        (exact..=exact + at_most).contains(&missing),
                        "{missing} are missing before {number}, reported: {exact}, and at most {at_most}"
                    );
                    self.lost += missing;
                    self.next = number + 1;
                    (exact, at_most) = (0, 0);
                }
                Ok(None) => {}
                Err(ReceiveError::Lost(lost)) => {
                    println!("before {}: {lost}", self.next);
                    match lost.bound {
                        LostBound::Exact => exact += lost.messages,
                        _ => at_most += lost.messages,
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        (self.next, self.lost) = (self.next + exact, self.lost + exact);
    }

    /// Nothing may be missing.
    pub(crate) fn receive_all_to(&mut self, until: u64) {
        let before = self.lost;
        self.receive_to(until);
        assert_eq!(self.lost, before, "messages were reported as lost");
    }
}

pub(crate) fn leave(mut node: Program) {
    node.signal(Signal::TERM);
    assert!(node.wait().success(), "{}", node.errors());
}

#[test]
fn two_nodes_exchange_messages_over_tcp_alone() {
    let buses = Buses::new();
    let address = address();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    // The client first: it tries until there is a server.
    let client = start(&buses, &file(&buses, "b", &connect(address)));
    client.wait_for_error("no connection to");
    let server = start(&buses, &file(&buses, "a", &listen(address)));
    client.wait_for_error("connected to");
    server.wait_for_error("node b has connected from");
    let mut counted = Counted::new(&a, "plant/a");
    counted.publish(5_000, 100);
    // Longer than a frame.
    counted.publish(3, 500_000);
    counted.publish(5_000, 10);
    checked.receive_all_to(counted.next);
    // What it has brought, it would not send again; and what is published there, stays there.
    b.publisher("plant/b").unwrap().publish("1").unwrap();
    leave(server);
    client.wait_for_error(&format!("the connection to {address} has ended: the other end stops"));
    leave(client);
}

#[test]
fn a_client_gets_only_what_its_patterns_match_and_losses_of_that() {
    let buses = Buses::new();
    let address = address();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    let server = start(&buses, &file(&buses, "a", &listen(address)));
    let some = connect(address) + "patterns = ['plant/*', 'other/**']\n";
    let client = start(&buses, &file(&buses, "b", &some));
    client.wait_for_error("connected to");
    let mut wanted = Counted::new(&a, "plant/a");
    let mut unwanted = Counted::new(&a, "plant/a/b");
    for _ in 0..100 {
        wanted.publish(5, 50);
        unwanted.publish(7, 50);
    }
    checked.receive_all_to(wanted.next);
    leave(client);
    leave(server);
}

/// A frame is complete only after the delay, since these messages do not fill one.
#[test]
fn messages_wait_in_a_frame_for_as_long_as_the_file_says() {
    let buses = Buses::new();
    let address = address();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    let path =
        file(&buses, "a", &(listen(address) + "batch_bytes = '64KiB'\nbatch_delay = '1s'\n"));
    with(&path, "metrics = '127.0.0.1:0'");
    let server = start(&buses, &path);
    let client = start(&buses, &file(&buses, "b", &connect(address)));
    client.wait_for_error("connected to");
    let mut counted = Counted::new(&a, "t");
    let begin = Instant::now();
    for _ in 0..100 {
        counted.publish(1, 50);
        std::thread::sleep(Duration::from_millis(2));
    }
    checked.receive_all_to(100);
    let most = begin.elapsed().as_secs() + 1;
    let metrics_of = metrics_address(&server);
    let frames = || metrics(&metrics_of).value("toroni_net_tcp_frames_total", &[]);
    wait_until("the frames are counted", || frames() >= Some(1.0));
    let frames = frames().unwrap();
    assert!(
        frames <= toroni_testkit::units::as_f64(most),
        "{frames} frames in {:?}",
        begin.elapsed()
    );
    leave(client);
    leave(server);
}

/// A client that does not run learns exactly what it missed, and costs the others nothing.
#[test]
fn a_client_that_is_stopped_is_told_what_it_missed_and_harms_no_other() {
    let buses = Buses::new();
    let address = address();
    // If this takes long enough for the client to connect again, it gets what the ring of the server still has.
    let a = bus(&buses, "a", 16 << 20);
    let [b, c] = ["b", "c"].map(|name| bus(&buses, name, 64 << 20));
    let [mut stopped, mut other] = [&b, &c].map(Checked::new);
    let more = listen(address) + "queue_bytes = '256KiB'\nstall = '60s'\n";
    let server = start(&buses, &file(&buses, "a", &more));
    let clients = ["b", "c"].map(|name| {
        let client = start(&buses, &file(&buses, name, &connect(address)));
        client.wait_for_error("connected to");
        client
    });
    let mut counted = Counted::new(&a, "t");
    counted.publish(100, 1_000);
    stopped.receive_all_to(100);
    other.receive_all_to(100);
    clients[0].stop();
    // More than the buffers of the kernel take. The other one keeps up, so it misses nothing.
    for _ in 0..300 {
        counted.publish(100, 1_000);
        other.receive_all_to(counted.next);
    }
    clients[0].resume();
    // What comes after the gap ends it.
    stopped.receive_to(counted.next);
    assert!(stopped.lost > 1_000, "{} are lost", stopped.lost);
    counted.publish(100, 10);
    stopped.receive_to(counted.next);
    for client in clients {
        leave(client);
    }
    leave(server);
}

/// Both die by SIGKILL in turn, also while messages are published. The ring has everything.
#[test]
fn nodes_on_tcp_that_are_killed_lose_and_double_nothing() {
    let buses = Buses::new();
    let address = address();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    let files = [file(&buses, "a", &listen(address)), file(&buses, "b", &connect(address))];
    let [mut server, mut client] = [&files[0], &files[1]].map(|path| start(&buses, path));
    client.wait_for_error("connected to");
    let mut counted = Counted::new(&a, "t");
    for round in 0..8 {
        counted.publish(300, 500);
        // The rest is on its way when one of them dies.
        checked.receive_all_to(counted.next - 200);
        if round % 2 == 0 {
            server.kill();
            counted.publish(50, 500);
            server = start(&buses, &files[0]);
        } else {
            client.kill();
            counted.publish(50, 500);
            client = start(&buses, &files[1]);
        }
        counted.publish(50, 500);
        server.wait_for_error("node b has connected");
    }
    checked.receive_all_to(counted.next);
    leave(client);
    leave(server);
}

/// What the ring does not have any more is reported when the client is back.
#[test]
fn what_was_overwritten_while_a_client_was_away_is_reported() {
    let buses = Buses::new();
    let address = address();
    let (a, b) = (bus(&buses, "a", 1 << 20), bus(&buses, "b", 16 << 20));
    let mut checked = Checked::new(&b);
    let server = start(&buses, &file(&buses, "a", &listen(address)));
    let path = file(&buses, "b", &connect(address));
    let mut client = start(&buses, &path);
    client.wait_for_error("connected to");
    let mut counted = Counted::new(&a, "t");
    counted.publish(100, 1_000);
    checked.receive_all_to(100);
    client.kill();
    server.wait_for_error("node b at");
    counted.publish(3_000, 1_000);
    let client = start(&buses, &path);
    checked.receive_to(counted.next);
    assert!((1_000..3_000).contains(&checked.lost), "{} are lost", checked.lost);
    leave(client);
    leave(server);
}

/// A server with the pace of its client, which stands still. Publishers of the server's bus wait.
struct Held {
    address: SocketAddr,
    server: Program,
    client: Program,
    checked: Checked,
    publisher: JoinHandle<u64>,
    /// How many messages the bus has.
    head: u64,
    _buses: Buses,
}

impl Held {
    /// Publishes more than all buffers on the way to the client take.
    fn new(of_node: &str) -> Self {
        let buses = Buses::new();
        let address = address();
        let (a, b) = (bus(&buses, "a", 1 << 20), bus(&buses, "b", 64 << 20));
        let mut checked = Checked::new(&b);
        let more = "queue_bytes = '256KiB'\npace = 'receiver'\nhold_limit = '30s'\nstall = '40s'\n";
        let path = file(&buses, "a", &(listen(address) + more));
        with(&path, of_node);
        let server = start(&buses, &path);
        let client = start(&buses, &file(&buses, "b", &connect(address)));
        client.wait_for_error("connected to");
        let mut counted = Counted::new(&a, "t");
        counted.publish(10, 1_000);
        checked.receive_all_to(10);
        client.stop();
        let publisher = std::thread::spawn(move || {
            counted.publish(20_000, 1_000);
            counted.next
        });
        let begin = Instant::now();
        let mut head = 0;
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = a.stats().unwrap().sequence;
            if now == head && now > 100 {
                break;
            }
            head = now;
            assert!(begin.elapsed() < LIMIT);
        }
        assert!(!publisher.is_finished());
        Self { address, server, client, checked, publisher, head, _buses: buses }
    }
}

#[test]
fn with_the_pace_of_the_receivers_a_client_that_stops_for_a_while_loses_nothing() {
    let held = Held::new("");
    let Held { server, client, mut checked, publisher, .. } = held;
    client.resume();
    checked.receive_all_to(20_010);
    assert_eq!(publisher.join().unwrap(), 20_010);
    leave(client);
    leave(server);
}

/// What waits for the client, in the server and on its bus, is sent.
#[test]
fn a_server_that_is_stopped_waits_for_a_client_that_stands_still() {
    let held = Held::new("drain = '60s'");
    let Held { address, mut server, client, mut checked, publisher, head, .. } = held;
    server.signal(Signal::TERM);
    // One that comes now is refused: it would delay the end.
    let late = TcpStream::connect(address).unwrap();
    assert!(!said(&late).is_empty(), "BYE says why");
    client.resume();
    assert!(server.wait().success(), "{}", server.errors());
    checked.receive_all_to(head);
    // Those that are published afterwards are for the next node.
    assert_eq!(publisher.join().unwrap(), 20_010);
    leave(client);
}

#[test]
fn the_pace_of_the_receivers_needs_publishers_that_wait() {
    let buses = Buses::new();
    let path = file(&buses, "a", &(listen(address()) + "pace = 'receiver'\n"));
    refused(&buses, &path, "create it with `--policy wait:5s`");
}

/// Reads until the server closes the connection, and returns all it has said.
fn said(mut socket: &TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 1_000];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Garbage, one who says nothing, one who says it byte by byte, and one too many: each is sent away, and the others
/// notice nothing.
#[test]
fn strangers_are_sent_away_and_clients_notice_nothing() {
    let buses = Buses::new();
    let address = address();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    let server = start(&buses, &file(&buses, "a", &(listen(address) + "clients = 3\n")));
    let client = start(&buses, &file(&buses, "b", &connect(address)));
    client.wait_for_error("connected to");
    let mut counted = Counted::new(&a, "t");
    let mut still_serves = || {
        counted.publish(100, 100);
        checked.receive_all_to(counted.next);
    };
    let garbage = TcpStream::connect(address).unwrap();
    (&garbage).write_all(&[0xA5; 4_096]).unwrap();
    assert!(!said(&garbage).is_empty(), "BYE says why");
    still_serves();
    server.wait_for_error("is no node of this realm: a frame was refused");
    // A length of a frame, and then a byte at a time: HELLO never comes.
    let slow = TcpStream::connect(address).unwrap();
    let silent = TcpStream::connect(address).unwrap();
    (&slow).write_all(&200_u32.to_le_bytes()).unwrap();
    // Three are there; the server has taken them before this one.
    let full = TcpStream::connect(address).unwrap();
    assert!(!said(&full).is_empty(), "BYE says that it is full");
    server.wait_for_error("no place for");
    still_serves();
    let begin = Instant::now();
    slow.set_nonblocking(true).unwrap();
    while (&slow).write_all(&[0]).is_ok() {
        assert!(begin.elapsed() < LIMIT, "a connection without HELLO stays");
        std::thread::sleep(Duration::from_millis(100));
        still_serves();
    }
    said(&silent);
    still_serves();
    leave(client);
    leave(server);
}

#[test]
fn only_who_has_the_key_and_the_realm_is_served() {
    let buses = Buses::new();
    let address = address();
    for (name, byte) in [("key", 7), ("other-key", 8)] {
        let path = buses.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
    }
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 16 << 20));
    let mut checked = Checked::new(&b);
    let mut counted = Counted::new(&a, "t");
    let keyed = |key: &str| format!("key_file = '{key}'\n");
    let server = start(&buses, &file(&buses, "a", &(keyed("key") + &listen(address))));
    for key in [keyed("other-key"), String::new()] {
        let stranger = start(&buses, &file(&buses, "c", &(key + &connect(address))));
        stranger.wait_for_error("no connection to");
        counted.publish(10, 10);
        leave(stranger);
    }
    let path = file(&buses, "d", &(keyed("key") + &connect(address)));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("realm = 'test'", "realm = 'another'")).unwrap();
    let stranger = start(&buses, &path);
    stranger.wait_for_error("no connection to");
    leave(stranger);
    // Nothing of what was published before is for this one: it joins where the stream is.
    let client = start(&buses, &file(&buses, "b", &(keyed("key") + &connect(address))));
    client.wait_for_error("connected to");
    checked.next = counted.next;
    counted.publish(1_000, 100);
    checked.receive_all_to(counted.next);
    for name in ["c", "d"] {
        // As the node that has left made it.
        let bus = BusConfig::new().directory(buses.path()).open_existing(name).unwrap();
        assert_eq!(bus.stats().unwrap().sequence, 0, "a stranger got messages");
    }
    leave(client);
    leave(server);
}

/// More clients than a process usually may have open: the node asks for more.
#[test]
fn as_many_as_the_file_says_are_taken() {
    let buses = Buses::new();
    let address = address();
    let _bus = bus(&buses, "a", 1 << 20);
    let path = file(&buses, "a", &(listen(address) + "clients = 200\n"));
    let usual = buses.command(&["node", "--config", &path]);
    // 80 are enough for one that does not ask.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -S -n 80 && exec \"$0\" \"$@\""]).arg(usual.get_program());
    command.args(usual.get_args()).env("TORONI_DIR", buses.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Program::start_with_ready_fd(command);
    server.wait_ready();
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    let full = TcpStream::connect(address).unwrap();
    assert!(!said(&full).is_empty(), "BYE says that it is full");
    assert!(!server.errors().contains("cannot take a connection"), "{}", server.errors());
    drop(silent);
    leave(server);
}

/// The command of a node on a host whose names of hosts are those of a file.
fn with_names(host: &Host, buses: &Buses, names: &str, path: &str) -> Command {
    const SCRIPT: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut command = host.command("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, names]).arg(crate::program());
    command.args(["node", "--config", path]).env("TORONI_DIR", buses.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_host_may_be_named_and_get_another_address() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [from, to] = &network.hosts[..] else { panic!("two hosts") };
    let buses = Buses::new();
    let [a, b] = ["a", "b"].map(|name| bus(&buses, name, 8 << 20));
    let (mut counted, mut checked) = (Counted::new(&a, "t"), Checked::new(&b));
    let names = buses.path().join("hosts");
    // Nothing listens at the first address.
    std::fs::write(&names, format!("{} server\n", to.address())).unwrap();
    let server = file(&buses, "a", "[listen]\naddress = '0.0.0.0:4480'\n");
    let _server = crate::hosts::start(from, &buses, &["node", "--config", &server]);
    let client = "[[connect]]\naddress = 'Server:4480'\nretry = '20ms'\n";
    let client = file(&buses, "b", client);
    let command = with_names(to, &buses, names.to_str().unwrap(), &client);
    let mut client = Program::start_with_ready_fd(command);
    client.wait_ready();
    client.wait_for_error("no connection to server:4480: Connection refused");
    // One of its addresses is right now.
    let both = format!("{} server\n{} server\n", to.address(), from.address());
    std::fs::write(&names, both).unwrap();
    client.wait_for_error("connected to server:4480");
    counted.publish(100, 100);
    checked.receive_all_to(counted.next);
}
