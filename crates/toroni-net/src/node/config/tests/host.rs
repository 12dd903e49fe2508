//! Whether a file suits the interfaces of a host.

use super::super::finding::{Finding, Severity};
use super::super::{Link, check_host};
use super::accepted;

const SEND: &str =
    "[node]\nrealm = 'plant'\nstate = '/s'\n[[send]]\nstream = 1\npatterns = ['plant/**']\n";

/// An interface of 1 Gbit/s that a node may choose.
fn eth(number: u8) -> Link {
    Link { name: format!("eth{number}"), mtu: 1500, speed: Some(1_000_000_000), is_candidate: true }
}

/// Returns what is wrong with a file on a host with these interfaces.
fn found(text: &str, links: &[Link]) -> Vec<String> {
    let found = check_host(&accepted(text), links);
    assert!(found.iter().all(|finding: &Finding| finding.severity == Severity::Error));
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn interfaces_of_the_host_must_exist_and_bear_the_streams() {
    let text =
        format!("{SEND}data_rate = '200Mbit/s'\n").replace("state", "interfaces = ['eth0']\nstate");
    let found = |links: &[Link]| found(&text, links);
    assert_eq!(found(&[eth(0)]), [""; 0]);
    assert_eq!(found(&[Link { speed: None, ..eth(0) }]), [""; 0]);
    assert_eq!(
        found(&[eth(1)]),
        ["error: [node]: interfaces: this host has no \"eth0\", only eth1: did you mean `eth1`?"]
    );
    assert_eq!(
        found(&[Link { mtu: 1400, ..eth(0) }]),
        [
            "error: interface eth0: datagram is 1408 bytes, and the interface's MTU of 1400 bytes leaves less beside the 28 \
          bytes of IP and UDP: IP fragments nothing, so no full datagram would leave"
        ]
    );
    assert_eq!(
        found(&[Link { speed: Some(100_000_000), ..eth(0) }]),
        [
            "error: interface eth0: the data rates of this interface add up to 200 Mbit/s, and its speed is 100 Mbit/s"
        ]
    );
}

/// The node would take the only interface that it can, so the file is compared with that one.
#[test]
fn without_interfaces_the_only_one_must_bear_the_streams() {
    let text = format!("{SEND}data_rate = '2Gbit/s'\nwindow = '256MiB'\n");
    let lo = Link { name: "lo".to_owned(), mtu: 65_536, speed: None, is_candidate: false };
    let too_fast = "error: interface eth0: the data rates of this interface add up to 2 Gbit/s, and its speed is 1 Gbit/s";
    assert_eq!(found(&text, &[lo.clone(), eth(0)]), [too_fast]);
    // A host that has no speed to compare with, or a faster one, is no problem.
    for speed in [None, Some(10_000_000_000)] {
        assert_eq!(found(&text, &[Link { speed, ..eth(0) }]), [""; 0]);
    }
    assert_eq!(
        found(&text, &[lo.clone(), eth(0), eth(1)]),
        [
            "error: [node]: interfaces: is missing: several interfaces can multicast: name one of eth0, eth1"
        ]
    );
    assert_eq!(
        found(&text, &[lo]),
        [
            "error: [node]: interfaces: is missing: no interface of this host is up, has an address and can multicast: name \
             one, such as lo"
        ]
    );
    // TCP finds its way without.
    let tcp = "[node]\nrealm = 'plant'\nstate = '/s'\n[listen]\naddress = '0.0.0.0:4480'\n";
    assert_eq!(found(tcp, &[eth(0), eth(1)]), [""; 0]);
}

/// What follows from the length of datagrams is checked when that is known.
#[test]
fn datagrams_as_long_as_an_interface_takes_must_suit_the_stream() {
    let text = format!(
        "{SEND}data_rate = '1Mbit/s'\ndatagram = 'mtu'\nwindow = '256KiB'\nmessage_max = '64KiB'\n"
    );
    assert_eq!(found(&text, &[eth(0)]), [""; 0]);
    let problems = found(&text, &[Link { mtu: 65_536, ..eth(0) }]);
    let wanted = "error: interface eth0: datagram is 65488 bytes and window is 256 KiB: `datagram` must be at most a sixteenth";
    assert!(problems.len() == 1 && problems[0].starts_with(wanted), "{problems:?}");
    let problems = found(&text, &[Link { mtu: 500, ..eth(0) }]);
    assert!(problems.len() == 1 && problems[0].contains("datagram is 452 bytes"), "{problems:?}");
}

/// What leaves counts, whatever the datagrams look like and however often each is sent.
#[test]
fn all_that_leaves_counts_against_the_speed() {
    let speed = "error: interface eth0: the data rates of this interface add up to ";
    let full = format!("{SEND}data_rate = '1100Mbit/s'\ndatagram = 'mtu'\nwindow = '256MiB'\n");
    let problems = found(&full, &[eth(0)]);
    assert!(problems.len() == 1 && problems[0].starts_with(speed), "{problems:?}");
    // Two addresses get two copies.
    let to = |rate: &str| {
        let text = format!("{SEND}data_rate = '{rate}'\nto = ['10.0.0.2:4479', '10.0.0.3:4479']\n");
        found(&text, &[eth(0)])
    };
    assert_eq!(to("500Mbit/s"), [""; 0]);
    let problems = to("501Mbit/s");
    assert!(problems.len() == 1 && problems[0].contains("add up to 1002 Mbit/s"), "{problems:?}");
}
