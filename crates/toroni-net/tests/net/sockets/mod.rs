//! Real sockets: on the loopback interface, and between hosts that are network namespaces.

mod failures;
mod loopback;
mod speed;
mod two_hosts;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use toroni_net::host::interface::{self, Interface};
use toroni_net::socket::{Arrival, Datagram, Options, Outgoing, Receiver, Sender};
use toroni_testkit::wait;

/// Datagrams that other sockets of this host also get.
pub(crate) const LOOPED: Options = Options {
    ttl: 16,
    is_looped: true,
    dscp: 0,
    receive_buffer: None,
    busy_poll: std::time::Duration::ZERO,
};

pub(crate) fn group(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A group's socket on the interface of this name.
pub(crate) fn listen(group: SocketAddr, on: &str) -> Datagram {
    Datagram::group(group, &interface::named(on).unwrap(), &LOOPED).unwrap()
}

/// A socket that sends on the interface of this name, to groups of the family of `like`.
pub(crate) fn leg(like: IpAddr, on: &str, options: &Options) -> Datagram {
    let on: Interface = interface::named(on).unwrap();
    Datagram::leg(on.source(like).unwrap(), &on, options).unwrap()
}

/// Sends all, and returns how many messages the kernel got.
pub(crate) fn send(from: &Datagram, to: SocketAddr, datagrams: &[impl AsRef<[u8]>]) -> u64 {
    let mut sender = Sender::new(from);
    let outgoing: Vec<_> =
        datagrams.iter().map(|bytes| Outgoing { to, bytes: bytes.as_ref() }).collect();
    assert_eq!(sender.send(from, &outgoing).unwrap(), datagrams.len());
    sender.messages()
}

/// Receives `count` datagrams, each with its bytes.
pub(crate) fn receive(socket: &Datagram, count: usize) -> Vec<(Arrival, Vec<u8>)> {
    receive_into(socket, count, 65_536)
}

pub(crate) fn receive_into(
    socket: &Datagram,
    count: usize,
    buffer_bytes: usize,
) -> Vec<(Arrival, Vec<u8>)> {
    let mut memory = vec![vec![0; buffer_bytes]; 64];
    let mut receiver = Receiver::new();
    let mut all = Vec::new();
    let started = Instant::now();
    while all.len() < count {
        let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]);
        let arrived = receiver.receive(socket, buffers).unwrap().to_vec();
        assert!(
            started.elapsed() < wait::LIMIT,
            "{} of {count} came to {}",
            all.len(),
            socket.address()
        );
        if arrived.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let bytes = memory.iter().cloned();
        let arrived = arrived.into_iter().zip(bytes).map(|(arrival, mut bytes)| {
            bytes.truncate(arrival.length);
            (arrival, bytes)
        });
        all.extend(arrived.filter(|(_, bytes)| !bytes.starts_with(HELLO)));
    }
    all
}

/// Of no interest to [`receive`].
const HELLO: &[u8] = b"hello?";

/// Sends until something arrives. For a second after a cable is plugged in, IPv6 has no route or drops datagrams.
pub(crate) fn meet(from: &Datagram, socket: &Datagram) {
    let hello = [Outgoing { to: socket.address(), bytes: HELLO }];
    wait::until("a datagram arrives", || {
        Sender::new(from).send(from, &hello).is_ok() && !is_empty(socket)
    });
}

/// Whether there is nothing to receive. If there is something, it is gone.
pub(crate) fn is_empty(socket: &Datagram) -> bool {
    let mut buffer = [0; 10];
    Receiver::new().receive(socket, [&mut buffer[..]]).unwrap().is_empty()
}
