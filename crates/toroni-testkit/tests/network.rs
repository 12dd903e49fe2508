//! Real datagrams between real namespaces: the network connects its hosts, its switch does to them what it says, and
//! nothing is left of it.

#![cfg(feature = "network")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toroni_testkit::network::switch::{
    Corruption, Direction, Faults, Loss, Reach, Reordering, Snooping,
};
use toroni_testkit::network::{Host, Network, Setup};
use toroni_testkit::{Program, wait};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 84, 79);
const PORT: u16 = 4479;

/// Opens a socket on a host that receives the group.
fn member(host: &Host) -> UdpSocket {
    let socket = bind(host, GROUP);
    socket.join_multicast_v4(&GROUP, &host.address()).unwrap();
    roomy(socket)
}

/// Opens a socket of a host that receives what is sent to its own address.
fn socket(host: &Host) -> UdpSocket {
    roomy(bind(host, host.address()))
}

fn bind(host: &Host, address: Ipv4Addr) -> UdpSocket {
    let mut socket = None;
    // A child that another test is starting may still hold a socket that was closed here.
    wait::until("the address is free", || {
        socket = host.enter(|| UdpSocket::bind((address, PORT))).ok();
        socket.is_some()
    });
    socket.unwrap()
}

fn roomy(socket: UdpSocket) -> UdpSocket {
    set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
    socket.set_read_timeout(Some(wait::LIMIT)).unwrap();
    socket
}

/// Faults that reach only the test's datagrams.
fn faults() -> Faults {
    Faults { reach: Reach::UdpTo(PORT), ..Faults::default() }
}

/// Makes a network whose switch counts only the test's datagrams.
fn switched(hosts: u8, seed: u64) -> Option<Network> {
    let network = Setup::new(hosts).switched(seed)?;
    network.switch().set_all_faults(Direction::In, &faults());
    network.switch().set_all_faults(Direction::Out, &faults());
    Some(network)
}

/// Sends the numbers below `count`, and waits until the switch has had them all.
fn send_numbers(network: &Network, socket: &UdpSocket, to: Ipv4Addr, count: u64) {
    /// Less than a processor's queue of frames holds (`net.core.netdev_max_backlog`), also while others keep the kernel's thread
    /// from it.
    const AHEAD: u64 = 250;
    let received = || network.switch().counts(0).received.frames;
    let before = received();
    for number in 0..count {
        if number.is_multiple_of(AHEAD) {
            wait::until("the switch keeps up", || received() + AHEAD >= before + number);
        }
        socket.send_to(&number.to_le_bytes(), (to, PORT)).unwrap();
    }
    wait::until("the switch has received all", || received() == before + count);
}

/// Receives `count` numbers.
fn receive_numbers(socket: &UdpSocket, count: u64) -> Vec<u64> {
    let mut bytes = [0; 8];
    let mut receive = |_| {
        let (length, _) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!(length, 8);
        u64::from_le_bytes(bytes)
    };
    (0..count).map(&mut receive).collect()
}

#[track_caller]
fn assert_silent(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let result = socket.recv_from(&mut [0; 2048]);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

/// Asserts that each host hears each other one, alone and by the group.
fn assert_connected(network: &Network) {
    let members: Vec<_> = network.hosts.iter().map(member).collect();
    let sockets: Vec<_> = network.hosts.iter().map(socket).collect();
    for (from, sender) in sockets.iter().enumerate() {
        sender.set_multicast_loop_v4(false).unwrap();
        sender.send_to(b"all", (GROUP, PORT)).unwrap();
        for (to, host) in network.hosts.iter().enumerate().filter(|(to, _)| *to != from) {
            let source = network.hosts[from].address();
            sender.send_to(b"one", (host.address(), PORT)).unwrap();
            for (socket, text) in [(&members[to], b"all"), (&sockets[to], b"one")] {
                let mut bytes = [0; 9];
                let (length, heard) = socket.recv_from(&mut bytes).unwrap();
                assert_eq!((&bytes[..length], heard.ip()), (&text[..], source.into()));
            }
        }
    }
}

#[test]
fn hosts_hear_one_another_on_a_bridge_and_on_a_switch() {
    for network in [Setup::new(3).bridged(), Setup::new(3).switched(1)] {
        let Some(network) = network else { return };
        assert_connected(&network);
    }
}

#[test]
fn hosts_have_ipv6_and_several_legs_and_what_sys_shows_is_theirs() {
    let Some(network) = Setup::new(2).legs(2).mtu(9000).switched(1) else { return };
    let [one, two] = &network.hosts[..] else { panic!() };
    for leg in [0, 1] {
        let [from, to] = [one, two].map(|host| {
            roomy(host.enter(|| UdpSocket::bind((host.address_v6_on(leg), PORT))).unwrap())
        });
        let payload = [7; 8952];
        from.send_to(&payload, (two.address_v6_on(leg), PORT)).unwrap();
        let mut bytes = [0; 9000];
        assert_eq!(to.recv_from(&mut bytes).unwrap().0, payload.len());
        let counts = network.switch_of(leg).counts(0).received;
        assert!(counts.frames > 0, "it went by leg {leg}");
    }
    let listed = one.namespace().run("ls", &["/sys/class/net"]);
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["eth0", "eth1", "lo"]);
    let mtu = one.enter(|| std::fs::read_to_string("/sys/class/net/eth1/mtu")).unwrap();
    assert_eq!(mtu, "9000\n");
}

/// Frames that the switch reads are those of a wire: none is longer than the MTU, and all checksums are finished.
#[test]
fn a_long_stream_of_tcp_arrives_whole() {
    const LENGTH: usize = 4 << 20;
    let Some(network) = Setup::new(2).switched(1) else { return };
    let [one, two] = &network.hosts[..] else { panic!() };
    let listener = one.enter(|| TcpListener::bind((one.address(), PORT))).unwrap();
    let mut client = two.enter(|| TcpStream::connect((one.address(), PORT))).unwrap();
    let mut server = listener.accept().unwrap().0;
    let sent: Vec<u8> = (0..LENGTH).map(|index| (index * index / 251).to_le_bytes()[0]).collect();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&sent).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == sent);
    let frames = network.switch().counts(1).received.frames;
    assert!(frames >= LENGTH as u64 / 1460, "{frames} frames");
}

#[test]
fn the_datagrams_that_are_lost_are_those_that_the_seed_says() {
    const COUNT: u64 = 10_000;
    let run = |seed| {
        let network = switched(3, seed)?;
        let members = [member(&network.hosts[1]), member(&network.hosts[2])];
        let loss = |probability| Faults { loss: Loss::Bernoulli(probability), ..faults() };
        network.switch().set_faults(0, Direction::In, &loss(0.02));
        network.switch().set_faults(2, Direction::Out, &loss(0.05));
        send_numbers(&network, &socket(&network.hosts[0]), GROUP, COUNT);
        let received = [1, 2].map(|port: usize| {
            let passed = network.switch().counts(port).sent.passed;
            let numbers = receive_numbers(&members[port - 1], passed);
            assert!(numbers.is_sorted_by(|a, b| a < b), "in order, none twice");
            numbers.into_iter().collect::<BTreeSet<_>>()
        });
        members.iter().for_each(assert_silent);
        assert_eq!(network.kernel_drops(), 0);
        Some(received)
    };
    let Some([one, two]) = run(5) else { return };
    let lost = COUNT - one.len() as u64;
    assert!((140..260).contains(&lost), "2 %: {lost}");
    let lost_again = one.difference(&two).count();
    assert!((380..600).contains(&lost_again), "5 % of the rest: {lost_again}");
    assert!(two.is_subset(&one), "what was lost on the way in reaches no host");
    assert!(run(5) == Some([one.clone(), two]), "the same seed");
    assert!(run(6).unwrap()[0] != one, "another seed");
}

#[test]
fn damaged_datagrams_are_dropped_by_the_kernel_or_seen_as_asked() {
    const COUNT: u64 = 1000;
    let Some(network) = switched(2, 3) else { return };
    let receiver = member(&network.hosts[1]);
    let sender = socket(&network.hosts[0]);
    for passes_checksums in [true, false] {
        let corruption = Corruption { probability: 0.5, passes_checksums };
        let before = network.switch().counts(1).sent;
        network.switch().set_faults(1, Direction::Out, &Faults { corruption, ..faults() });
        send_numbers(&network, &sender, GROUP, COUNT);
        let damaged = network.switch().counts(1).sent.corrupted - before.corrupted;
        assert!((400..600).contains(&damaged), "{damaged}");
        if passes_checksums {
            let numbers = receive_numbers(&receiver, COUNT);
            let wrong = numbers.iter().zip(0..).filter(|(number, place)| *number != place).count();
            assert_eq!(wrong as u64, damaged);
        } else {
            // A bit of a header may have gone elsewhere: at least the whole ones arrive, and nothing but them.
            let numbers = receive_numbers(&receiver, COUNT - damaged);
            assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last() < Some(&COUNT));
        }
    }
}

#[test]
fn duplicates_and_late_datagrams_arrive() {
    const COUNT: u64 = 5000;
    let Some(network) = switched(2, 4) else { return };
    let receiver = member(&network.hosts[1]);
    let reordering = Reordering { probability: 0.1, distance: 4, limit: Duration::from_millis(20) };
    let faults = Faults { duplication: 0.1, reordering, ..faults() };
    network.switch().set_faults(0, Direction::In, &faults);
    send_numbers(&network, &socket(&network.hosts[0]), GROUP, COUNT);
    let counts = network.switch().counts(0).received;
    let mut numbers = receive_numbers(&receiver, COUNT + counts.duplicated);
    assert_silent(&receiver);
    assert!(!numbers.is_sorted());
    let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert!(late > 100 && late <= counts.reordered + counts.duplicated, "{late}: {counts:?}");
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
    assert_eq!(network.kernel_drops(), 0);
}

#[test]
fn a_delay_takes_its_time_and_a_burst_its_frames() {
    const DELAY: Duration = Duration::from_millis(200);
    let Some(network) = switched(2, 4) else { return };
    let [sender, receiver] = [socket(&network.hosts[0]), member(&network.hosts[1])];
    network.switch().set_faults(1, Direction::Out, &Faults { delay: DELAY, ..faults() });
    let begin = Instant::now();
    send_numbers(&network, &sender, GROUP, 10);
    assert_eq!(receive_numbers(&receiver, 10).len(), 10);
    assert!(begin.elapsed() >= DELAY);
    network.switch().set_faults(1, Direction::Out, &faults());
    network.switch().lose_next(1, Direction::Out, 7);
    send_numbers(&network, &sender, GROUP, 10);
    assert_eq!(receive_numbers(&receiver, 3), [7, 8, 9]);
}

#[test]
fn a_partition_is_one_way_if_asked_and_a_cut_link_is_joined_again() {
    let Some(network) = switched(2, 1) else { return };
    // They know each other's hardware addresses.
    assert_connected(&network);
    let [one, two] = [socket(&network.hosts[0]), socket(&network.hosts[1])];
    let [first, second] = [0, 1].map(|host: usize| network.hosts[host].address());
    network.switch().block(&[0], &[1]);
    one.send_to(b"lost", (second, PORT)).unwrap();
    two.send_to(b"back", (first, PORT)).unwrap();
    assert_eq!(one.recv_from(&mut [0; 9]).unwrap().0, 4);
    wait::until("it was stopped", || network.switch().counts(1).blocked > 0);
    assert_silent(&two);
    network.switch().heal();
    drop([one, two]);
    for network in [network, Setup::new(2).bridged().unwrap()] {
        network.cut(0, 0);
        let [one, two] = [socket(&network.hosts[0]), member(&network.hosts[1])];
        one.send_to(b"lost", (GROUP, PORT)).unwrap();
        two.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert_eq!(two.recv_from(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
        two.set_read_timeout(Some(wait::LIMIT)).unwrap();
        network.rejoin(0, 0);
        one.send_to(b"found", (GROUP, PORT)).unwrap();
        let mut bytes = [0; 9];
        let (length, _) = two.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"found");
        drop([one, two]);
        assert_connected(&network);
    }
}

/// Seed 004 §13: multicast that works, and ends after some minutes, because no querier asks who wants it.
#[test]
fn without_a_querier_snooping_ends_multicast_after_its_ageing_and_with_one_it_lasts() {
    const AGEING: Duration = Duration::from_millis(1500);
    let Some(network) = Setup::new(3).switched(1) else { return };
    let switch = network.switch();
    let sender = socket(&network.hosts[0]);
    // A membership from before the switch snooped: the host does not report it again.
    let early = member(&network.hosts[2]);
    let reported = |port| switch.counts(port).received.frames;
    let is_quiet = |port| {
        // The kernel repeats a report of IGMPv3 once, within a second.
        let before = reported(port);
        !wait::within(Duration::from_secs(3), || reported(port) > before)
    };
    wait::until("the early member has no more to report", || is_quiet(2));
    for query_interval in [None, Some(Duration::from_millis(500))] {
        switch.set_snooping(Some(Snooping { ageing: AGEING, query_interval }));
        let receiver = member(&network.hosts[1]);
        let mut number = 0_u64;
        let mut hears = || {
            number += 1;
            sender.send_to(&number.to_le_bytes(), (GROUP, PORT)).unwrap();
            receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut bytes = [0; 8];
            // Older ones may come first.
            std::iter::from_fn(|| receiver.recv_from(&mut bytes).ok().map(|_| bytes))
                .any(|bytes| u64::from_le_bytes(bytes) == number)
        };
        wait::until("the report has arrived", &mut hears);
        match query_interval {
            None => {
                assert_silent(&early);
                wait::until("the host has no more to report", || is_quiet(1));
                // Silence alone may be a busy machine's.
                wait::until("the switch has forgotten", || {
                    let pruned = switch.counts(1).pruned;
                    !hears() && switch.counts(1).pruned > pruned
                });
            }
            Some(_) => {
                let end = Instant::now() + AGEING * 3;
                let mut last = Instant::now();
                while Instant::now() < end {
                    if hears() {
                        last = Instant::now();
                    }
                    // One query and its answer may be late on a busy machine.
                    assert!(last.elapsed() < wait::LIMIT / 10, "it ended");
                }
                wait::until("it goes on", &mut hears);
                assert!(early.recv_from(&mut [0; 9]).is_ok(), "asked, the other host answers too");
            }
        }
        switch.set_snooping(None);
    }
}

#[test]
fn a_killed_test_leaves_neither_processes_nor_namespaces() {
    const CHILD: &str = "TORONI_TEST_NETWORK_CHILD";
    let name = "a_killed_test_leaves_neither_processes_nor_namespaces";
    if std::env::var_os(CHILD).is_some() {
        let Some(network) = Setup::new(1).switched(1) else {
            println!("\nskipped");
            return;
        };
        let mut sleep = network.hosts[0].command("sleep");
        let sleep = Program::start(sleep.arg("infinity").stdin(Stdio::null()));
        println!("\nready {}", sleep.id());
        loop {
            std::thread::park();
        }
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
    let mut child = Program::start(command);
    let line = child.line_where(|line| line.starts_with("ready") || line == "skipped");
    let Some(sleep) = line.strip_prefix("ready ") else { return };
    let namespace = |process: &str| {
        std::fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|data| data.ino())
    };
    let theirs = namespace(sleep).expect("its process runs");
    assert_ne!(Some(theirs), namespace("self"));
    child.kill();
    wait::until("no process is in the namespace", || {
        let processes = std::fs::read_dir("/proc").unwrap();
        let mut names = processes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.all(|name| namespace(&name) != Some(theirs))
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&format!("net:[{theirs}]")), "{mounts}");
}

/// How much processor time the switch has taken, with that of the kernel on its behalf.
fn switch_nanoseconds() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let paths = threads.map(|thread| thread.unwrap().path());
    let is_switch = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "switch\n")
    };
    let path = paths.into_iter().find(is_switch).expect("its thread").join("schedstat");
    let text = std::fs::read_to_string(path).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Prints how many frames of 1,400 bytes the switch moves in a second: from one host to another, and to three others.
#[test]
#[ignore = "it measures: run it alone, with --release --nocapture"]
fn speed() {
    const COUNT: u64 = 400_000;
    // The most that is on its way: less than any buffer holds.
    const AHEAD: u64 = 4000;
    let payload = [1; 1400 - 42];
    for receivers in [1, 3] {
        let Some(network) = Setup::new(receivers + 1).switched(1) else { return };
        let members: Vec<_> = network.hosts[1..].iter().map(member).collect();
        let sender = socket(&network.hosts[0]);
        let begin = Instant::now();
        for number in 0..COUNT {
            if number % (AHEAD / 2) == 0 {
                let passed = || network.switch().counts(1).sent.passed + AHEAD >= number;
                wait::until("the switch keeps up", passed);
            }
            sender.send_to(&payload, (GROUP, PORT)).unwrap();
        }
        wait::until("all have passed", || network.switch().counts(1).sent.passed >= COUNT);
        let seconds = begin.elapsed().as_secs_f64();
        let each = switch_nanoseconds() / COUNT;
        let rate = u64::try_from(begin.elapsed().as_micros()).map(|us| COUNT * 1_000_000 / us);
        let rate = toroni_testkit::units::count(rate.unwrap());
        println!(
            "to {receivers}: {rate} frames/s ({seconds:.2} s), {each} ns of the switch for each"
        );
        assert_eq!(network.kernel_drops(), 0);
        drop(members);
    }
}
