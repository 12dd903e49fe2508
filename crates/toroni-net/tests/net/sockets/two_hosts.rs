//! What needs a network: two hosts with cables between them.

use super::{LOOPED, group, is_empty, leg, listen, meet, receive, send};
use crate::support;
use rustix::io::Errno;
use std::net::SocketAddr;
use toroni_net::host::arp::{self, State};
use toroni_net::host::ethtool::Ethtool;
use toroni_net::host::interface::{self, InterfaceError};
use toroni_net::node::Node;
use toroni_net::socket::{Datagram, Options, Outgoing, Sender, leak, multicast};
use toroni_testkit::network::{Host, Setup};
use toroni_testkit::{Directory, wait};

fn ip(host: &Host, command: &str) {
    host.namespace().ip(&[command]);
}

const GROUPS: [&str; 2] = ["239.192.84.79:4479", "[ff18::5452:4f4e]:4479"];

#[test]
fn a_datagram_crosses_the_cable_and_brings_its_hops() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    for text in GROUPS {
        let socket = far.enter(|| listen(group(text), "eth0"));
        let to = socket.address();
        for ttl in [1, 16, 255] {
            let options = Options { ttl, ..Options::default() };
            let from = near.enter(|| leg(to.ip(), "eth0", &options));
            meet(&from, &socket);
            send(&from, to, &[[ttl; 1_408]; 3]);
            for (arrival, bytes) in receive(&socket, 3) {
                assert_eq!((arrival.from, arrival.ttl), (from.address(), Some(ttl)), "{text}");
                assert_eq!(bytes, [ttl; 1_408]);
            }
            let wanted: std::net::IpAddr =
                if to.is_ipv4() { near.address_on(0).into() } else { near.address_v6_on(0).into() };
            assert_eq!(from.address().ip(), wanted);
        }
    }
}

/// The other host gets the datagram that was sent later, and not the earlier one.
#[test]
fn a_ttl_of_0_leaves_no_host() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    for text in GROUPS {
        let there = far.enter(|| listen(group(text), "eth0"));
        let to = there.address();
        let here = near.enter(|| listen(group(text), "eth0"));
        let local = near.enter(|| leg(to.ip(), "eth0", &Options { ttl: 0, ..LOOPED }));
        let wide = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
        meet(&wide, &there);
        send(&local, to, &["stays"]);
        send(&wide, to, &["leaves"]);
        assert_eq!(receive(&there, 1)[0].1, b"leaves", "{text}");
        let both: Vec<_> = receive(&here, 2).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(both, [&b"stays"[..], b"leaves"], "{text}");
    }
}

/// Linux keeps datagrams with a TTL of 0 on the host only if a socket of it is in the group, and this node receives nothing.
#[test]
fn a_node_that_only_sends_with_a_ttl_of_0_stays_on_its_host() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let there = far.enter(|| listen(group(GROUPS[0]), "eth0"));
    let to = there.address();
    let wide = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
    meet(&wide, &there);
    let directory = Directory::new();
    let sent = near.enter(|| {
        let [bus] = support::buses(&directory);
        let config = support::config(100_000_000);
        let mut settings = support::sending(support::settings(&["eth0"], "a", 1), to, &config);
        settings.member.sockets = Options { ttl: 0, is_looped: true, ..Options::default() };
        let mut node = Node::new(&bus, &settings).unwrap();
        let publisher = bus.publisher("t").unwrap();
        wait::until("it has sent enough", || {
            publisher.publish("stays").unwrap();
            node.turn().unwrap();
            node.link().counters().sent > 20
        });
        node.link().counters().refused
    });
    assert_eq!(sent, 0);
    send(&wide, to, &["leaves"]);
    assert_eq!(receive(&there, 1)[0].1, b"leaves");
}

#[test]
fn a_leak_would_be_noticed() {
    let Some(network) = Setup::new(1).bridged() else { return };
    let [near] = &network.hosts[..] else { panic!() };
    let eth0 = near.enter(interface::only).unwrap();
    let leaves = |ttl, is_joined| near.enter(|| leak::leaves_host(&eth0, ttl, is_joined));
    // The kernel drops what leaves before it has noticed the cable.
    wait::until("datagrams leave", || leaves(1, true).unwrap());
    assert!(!leaves(0, true).unwrap());
    // This is how Linux is. A node with a TTL of 0 must be in the group. A busy machine may be late to count the datagram.
    wait::until("datagrams with a TTL of 0 leave", || leaves(0, false).unwrap());
    ip(near, "link delete eth0");
    assert!(leaves(0, true).is_err());
}

/// Each socket gets what arrives on its own interface, although both are bound to one group and port.
#[test]
fn two_interfaces_are_two_legs() {
    let Some(network) = Setup::new(2).legs(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    for text in GROUPS {
        let to: SocketAddr = group(text);
        let sockets = far.enter(|| ["eth0", "eth1"].map(|name| listen(to, name)));
        let legs = near.enter(|| ["eth0", "eth1"].map(|name| leg(to.ip(), name, &LOOPED)));
        let indexes =
            far.enter(|| ["eth0", "eth1"].map(|name| interface::named(name).unwrap().index));
        for (from, socket) in legs.iter().zip(&sockets) {
            meet(from, socket);
        }
        // What each said to meet must not be taken for what comes now.
        wait::until("nothing is left", || sockets.iter().all(is_empty));
        for (number, from) in legs.iter().enumerate() {
            send(from, to, &[format!("on leg {number}")]);
        }
        for (number, (socket, index)) in sockets.iter().zip(indexes).enumerate() {
            let (arrival, bytes) = receive(socket, 1).remove(0);
            assert_eq!(bytes, format!("on leg {number}").as_bytes(), "{text}");
            assert_eq!(arrival.from, legs[number].address());
            assert_eq!(arrival.interface, Some(index), "{text}");
        }
        assert!(sockets.iter().all(is_empty), "{text}: each datagram came once");
    }
    // A host with two of them must say which.
    let error = near.enter(interface::only).unwrap_err();
    assert!(matches!(error, InterfaceError::Ambiguous { candidates: Some(_) }));
    assert!(error.to_string().contains("eth0, eth1"), "{error}");
}

#[test]
fn an_interface_that_goes_down_and_comes_back_is_used_again() {
    for text in GROUPS {
        let Some(network) = Setup::new(2).bridged() else { return };
        let [near, far] = &network.hosts[..] else { panic!() };
        let socket = far.enter(|| listen(group(text), "eth0"));
        let to = socket.address();
        let from = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
        meet(&from, &socket);
        ip(near, "link set eth0 down");
        let down = near.enter(|| interface::named("eth0")).unwrap();
        assert!(!down.is_up() && down.carrier.is_none());
        let outgoing = [Outgoing { to, bytes: b"lost" }];
        let error = Sender::new(&from).send(&from, &outgoing).unwrap_err();
        let known = [Errno::NETUNREACH, Errno::NETDOWN, Errno::NODEV, Errno::ADDRNOTAVAIL];
        assert!(
            known.iter().any(|known| error.raw_os_error() == Some(known.raw_os_error())),
            "{error}"
        );
        ip(near, "link set eth0 up");
        if to.is_ipv6() {
            // The kernel removed the address when the interface went down.
            ip(near, &format!("address add {}/64 dev eth0 nodad", near.address_v6_on(0)));
        }
        // The same socket, once the kernel has the route again.
        wait::until("datagrams leave again", || {
            Sender::new(&from).send(&from, &[Outgoing { to, bytes: b"again" }]).is_ok()
                && !is_empty(&socket)
        });
        // The receiver's membership survives the same.
        ip(far, "link set eth0 down");
        ip(far, "link set eth0 up");
        if to.is_ipv6() {
            ip(far, &format!("address add {}/64 dev eth0 nodad", far.address_v6_on(0)));
        }
        wait::until("datagrams arrive again", || {
            Sender::new(&from).send(&from, &[Outgoing { to, bytes: b"and again" }]).is_ok()
                && !is_empty(&socket)
        });
    }
}

/// On the loopback interface, this makes no difference: there, sending is receiving.
#[test]
fn a_host_does_not_hear_itself_unless_it_wants_to() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    for text in GROUPS {
        let there = far.enter(|| listen(group(text), "eth0"));
        let here = near.enter(|| listen(group(text), "eth0"));
        let to = there.address();
        let silent = near.enter(|| leg(to.ip(), "eth0", &Options::default()));
        let looped = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
        meet(&silent, &there);
        send(&silent, to, &["for other hosts"]);
        send(&looped, to, &["for all"]);
        assert_eq!(receive(&there, 2)[1].1, b"for all", "{text}");
        let (arrival, bytes) = receive(&here, 1).remove(0);
        assert_eq!((bytes.as_slice(), arrival.from), (&b"for all"[..], looped.address()), "{text}");
        assert!(is_empty(&here), "{text}");
    }
}

#[test]
fn an_interface_that_is_gone_is_said_to_be() {
    let Some(network) = Setup::new(1).legs(2).bridged() else { return };
    let [near] = &network.hosts[..] else { panic!() };
    let gone = near.enter(|| interface::named("eth1")).unwrap();
    let socket = near.enter(|| listen(group(GROUPS[0]), "eth0"));
    ip(near, "link delete eth1");
    for text in GROUPS {
        let open = || Datagram::group(group(text), &gone, &LOOPED);
        let said = near.enter(open).unwrap_err().to_string();
        assert!(said.ends_with("(the interface is gone)"), "{said}");
    }
    let join = || multicast::join(&socket, group("239.192.84.95:1").ip(), &gone);
    let said = near.enter(join).unwrap_err().to_string();
    assert!(said.ends_with("(the interface is gone)"), "{said}");
}

/// One lost fragment would lose a whole datagram, and would be counted nowhere.
#[test]
fn a_datagram_that_is_longer_than_the_mtu_is_refused_and_not_fragmented() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let roomy = Options { receive_buffer: Some(4 << 20), ..LOOPED };
    for (text, headers) in GROUPS.into_iter().zip([28, 48]) {
        let open = || Datagram::group(group(text), &interface::named("eth0").unwrap(), &roomy);
        let socket = far.enter(open).unwrap();
        let to = socket.address();
        let from = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
        meet(&from, &socket);
        let datagrams: Vec<_> = (0..64_u8).map(|number| vec![number; 1_408]).collect();
        let outgoing: Vec<_> = datagrams.iter().map(|bytes| Outgoing { to, bytes }).collect();
        let mut sender = Sender::new(&from);
        for mtu in [1500, 1280, 1500] {
            ip(near, &format!("link set eth0 mtu {mtu}"));
            let longest = vec![255; mtu - headers];
            if mtu == 1280 {
                for bytes in [&datagrams[0], &vec![0; longest.len() + 1]] {
                    let error = sender.send(&from, &[Outgoing { to, bytes }; 3]).unwrap_err();
                    let known = Some(Errno::MSGSIZE.raw_os_error());
                    assert_eq!(error.raw_os_error(), known, "{text}: {} bytes", bytes.len());
                }
            } else {
                assert_eq!(sender.send(&from, &outgoing).unwrap(), 64);
                let arrived = receive(&socket, 64).into_iter().map(|(_, bytes)| bytes);
                assert!(arrived.eq(datagrams.iter().cloned()), "{text}: MTU {mtu}");
            }
            assert_eq!(sender.send(&from, &[Outgoing { to, bytes: &longest }]).unwrap(), 1);
            assert_eq!(receive(&socket, 1)[0].1, longest, "{text}: MTU {mtu}");
            // What is too long for itself says nothing about what is joined.
            assert_eq!(sender.is_joining(), from.can_segment(), "{text}: MTU {mtu}");
        }
    }
}

/// A socket of another kind, whose datagrams IP fragments: the kernel cannot cut what is joined into those, and takes each
/// alone.
#[test]
fn what_the_kernel_cannot_cut_is_sent_one_by_one() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let roomy = Options { receive_buffer: Some(4 << 20), ..LOOPED };
    let socket = far.enter(|| leg(far.address_on(0).into(), "eth0", &roomy));
    let to = socket.address();
    let known = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
    meet(&known, &socket);
    let from = near.enter(|| std::net::UdpSocket::bind((near.address_on(0), 0))).unwrap();
    let datagrams: Vec<_> = (0..64_u8).map(|number| vec![number; 1_408]).collect();
    let outgoing: Vec<_> = datagrams.iter().map(|bytes| Outgoing { to, bytes }).collect();
    let mut sender = Sender::new(&known);
    for mtu in [1500, 600] {
        ip(near, &format!("link set eth0 mtu {mtu}"));
        assert_eq!(sender.send(&from, &outgoing).unwrap(), 64);
        assert_eq!(sender.is_joining(), mtu == 1500 && known.can_segment(), "{mtu}");
        let arrived: Vec<_> = receive(&socket, 64).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(arrived == datagrams, "MTU {mtu}");
    }
}

#[test]
fn the_host_tells_about_its_interfaces_and_neighbours() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let eth0 = near.enter(interface::only).unwrap();
    assert_eq!((eth0.name.as_str(), eth0.mtu, eth0.carrier), ("eth0", 1500, Some(true)));
    assert_eq!(eth0.addresses[0], near.address_on(0));
    assert!(eth0.addresses.contains(&near.address_v6_on(0).into()));
    assert!(eth0.mac.is_some());
    let (link, ring) = near.enter(|| {
        let driver = Ethtool::open("eth0").unwrap();
        // A veth has counters, and no interrupts.
        assert_eq!(driver.coalescing().map(|found| found.is_adaptive()), None);
        assert!(driver.counters().is_some_and(|counters| !counters.is_empty()));
        (driver.link().unwrap(), driver.ring())
    });
    assert_eq!((link.speed, link.is_full_duplex), (Some(10_000_000_000), Some(true)));
    assert_eq!(ring, None);

    let address = far.address_on(0);
    let there = far.enter(|| leg(address.into(), "eth0", &LOOPED));
    let here = near.enter(|| leg(address.into(), "eth0", &LOOPED));
    send(&here, there.address(), &["who are you?"]);
    let _ = receive(&there, 1);
    let neighbours = near.enter(arp::neighbours).unwrap();
    let found = neighbours.iter().find(|one| one.address == address).unwrap();
    assert!(matches!(found.state, State::Reachable | State::Stale) && found.mac.is_some());
    // Without a cable there is no carrier, but the host still hears itself.
    let cut =
        ["link add v0 type veth peer name v1", "address add 10.78.0.1/24 dev v0", "link set v0 up"];
    near.namespace().ip(&cut);
    assert_eq!(near.enter(|| interface::named("v0")).unwrap().carrier, Some(false));
    let socket = near.enter(|| listen(group(GROUPS[0]), "v0"));
    let alone = near.enter(|| leg(address.into(), "v0", &LOOPED));
    send(&alone, socket.address(), &["is anyone there?"]);
    assert_eq!(receive(&socket, 1)[0].0.from, alone.address());
}
