//! What goes wrong, and what is said about it.

use super::{LOOPED, group, is_empty, leg, listen, receive, send};
use rustix::io::Errno;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use toroni_net::host::interface;
use toroni_net::host::sysctl;
use toroni_net::socket::{Datagram, Receiver, multicast};
use toroni_testkit::{Program, wait};

fn refused(group_text: &str) -> String {
    let lo = interface::named("lo").unwrap();
    Datagram::group(group(group_text), &lo, &LOOPED).unwrap_err().to_string()
}

#[test]
fn an_address_that_is_no_group_is_refused() {
    assert_eq!(refused("10.0.0.1:4479"), "10.0.0.1 is no multicast address");
}

#[test]
fn a_port_that_another_program_has_alone_is_named_with_what_to_do() {
    let taken = UdpSocket::bind("239.192.84.90:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = refused(&format!("239.192.84.90:{port}"));
    assert!(said.starts_with(&format!("cannot bind 239.192.84.90:{port} on lo: ")), "{said}");
    assert!(
        said.ends_with("(another program uses this port alone: end it, or choose another port)")
    );
}

#[test]
fn an_address_that_this_host_does_not_have_is_refused() {
    let lo = interface::named("lo").unwrap();
    let address: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let said = Datagram::leg(address, &lo, &LOOPED).unwrap_err().to_string();
    assert!(said.ends_with("(the interface has lost this address)"), "{said}");
}

#[test]
fn joining_twice_and_leaving_twice_are_errors() {
    let lo = interface::named("lo").unwrap();
    let socket = listen(group("239.192.84.91:0"), "lo");
    let ip = socket.address().ip();
    let said = multicast::join(&socket, ip, &lo).unwrap_err().to_string();
    assert!(said.ends_with("(this socket has joined it there already)"), "{said}");
    multicast::leave(&socket, ip, &lo).unwrap();
    let said = multicast::leave(&socket, ip, &lo).unwrap_err().to_string();
    assert!(said.starts_with("cannot leave 239.192.84.91 on lo: "), "{said}");
}

/// The limit holds for each socket, so a node with one socket for each group never reaches it.
#[test]
fn the_limit_of_groups_holds_for_each_socket() {
    let lo = interface::named("lo").unwrap();
    let limit: u8 = sysctl::read("net.ipv4.igmp_max_memberships").unwrap();
    let one = listen(group("239.192.85.0:0"), "lo");
    let others: Vec<_> =
        (1..=limit).map(|last| listen(group(&format!("239.192.85.{last}:0")), "lo")).collect();
    assert_eq!(others.len(), usize::from(limit));
    let join = |last| multicast::join(&one, group(&format!("239.192.85.{last}:0")).ip(), &lo);
    for last in 1..limit {
        join(last).unwrap();
    }
    let said = join(limit).unwrap_err().to_string();
    assert!(said.contains("net.ipv4.igmp_max_memberships"), "{said}");
}

#[test]
fn what_is_no_socket_is_an_error_and_nothing_to_read_is_none() {
    let file = File::open("/dev/null").unwrap();
    let mut buffer = [0; 10];
    let error = Receiver::new().receive(&file, [&mut buffer[..]]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTSOCK.raw_os_error()));
    assert!(is_empty(&listen(group("239.192.84.92:0"), "lo")));
}

/// A program that is executed must not stay in the group.
#[test]
fn a_child_process_does_not_keep_the_group() {
    let is_joined = || {
        // 239.192.84.93 in the machine's byte order.
        let list = std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
        list.contains("5D54C0EF")
    };
    let socket = listen(group("239.192.84.93:0"), "lo");
    assert!(is_joined());
    let mut command = Command::new("cat");
    let mut child = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let input = child.stdin();
    wait::until("it is another program", || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", child.id()));
        name.is_ok_and(|name| name.trim() == "cat")
    });
    drop(socket);
    wait::until("the group is left", || !is_joined());
    drop(input);
    let _ = child.succeed();
}

/// After a fork, both processes have the socket, and each datagram goes to one of them. As long as one of them has it,
/// the group stays joined.
#[test]
fn two_descriptors_of_one_socket_share_its_buffer() {
    let socket = listen(group("239.192.84.94:0"), "lo");
    let other = rustix::io::fcntl_dupfd_cloexec(&socket, 0).unwrap();
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    send(&from, socket.address(), &["one", "two"]);
    let mut buffer = [0; 10];
    assert_eq!(Receiver::new().receive(&other, [&mut buffer[..]]).unwrap().len(), 1);
    assert_eq!(&buffer[..3], b"one");
    assert_eq!(receive(&socket, 1)[0].1, b"two");
    let to = socket.address();
    drop(socket);
    send(&from, to, &["three"]);
    assert_eq!(Receiver::new().receive(&other, [&mut buffer[..]]).unwrap().len(), 1);
}
