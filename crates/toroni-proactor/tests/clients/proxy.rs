//! Tests of `examples/tcp_proxy`.

use crate::common::{ANY, LOST, NoListener, next, pattern, until};
use crate::process::{Engine, Server, client, has};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

fn proxy(engine: Engine, to: &str) -> Server {
    proxy_with(engine, to, &[])
}

fn proxy_with(engine: Engine, to: &str, more: &[&str]) -> Server {
    Server::example("tcp_proxy", engine, &[&[to, "--threads", "2"], more].concat())
}

/// Returns whether the other end has closed the connection, in any way.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(LOST)).unwrap();
    match stream.read(&mut [0; 8]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A client on one side of a proxy, and its server on the other.
fn through(server: &Server, target: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(server.address).unwrap();
    let (peer, _) = target.accept().unwrap();
    for stream in [&client, &peer] {
        stream.set_read_timeout(Some(LOST)).unwrap();
        stream.set_write_timeout(Some(LOST)).unwrap();
    }
    (client, peer)
}

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

pub(crate) fn both_directions_end_by_themselves(engine: Engine) {
    let target = TcpListener::bind(ANY).unwrap();
    let server = proxy(engine, &target.local_addr().unwrap().to_string());
    let before = server.descriptors();
    let sent = pattern(2_000_000);
    for _ in 0..3 {
        let (client, peer) = through(&server, &target);
        for (mut ends, goes_on) in [(&client, &peer), (&peer, &client)]
            .map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
        {
            // One end after the other: in the second round one direction is over already.
            let reading = thread::spawn(move || read_all(goes_on));
            ends.write_all(&sent).unwrap();
            ends.shutdown(Shutdown::Write).unwrap();
            assert!(reading.join().unwrap() == sent);
        }
        drop((client, peer));
        // Nothing of a closed connection stays open.
        server.closes_all_but(before);
    }
    // If one end aborts, the other one is closed.
    for breaks_client in [true, false] {
        let (client, peer) = through(&server, &target);
        let (broken, mut other) = if breaks_client { (client, peer) } else { (peer, client) };
        rustix::net::sockopt::set_socket_linger(&broken, Some(Duration::ZERO)).unwrap();
        drop(broken);
        let end = other.read(&mut [0; 8]);
        assert!(
            matches!(&end, Ok(0))
                || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
    }
    server.closes_all_but(before);
}

pub(crate) fn no_server_behind_it(engine: Engine) {
    let absent = NoListener::new();
    let server = proxy(engine, &absent.address.to_string());
    for _ in 0..5 {
        let mut client = TcpStream::connect(server.address).unwrap();
        client.set_read_timeout(Some(LOST)).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "is dropped");
    }
}

pub(crate) fn one_too_many_is_closed(engine: Engine) {
    let target = TcpListener::bind(ANY).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let server = proxy_with(engine, &to, &["--connections", "2"]);
    let before = server.descriptors();
    let mut pairs: Vec<_> = (0..2).map(|_| through(&server, &target)).collect();
    for _ in 0..5 {
        assert!(is_closed(&TcpStream::connect(server.address).unwrap()));
    }
    for (client, peer) in &mut pairs {
        client.write_all(b"goes on").unwrap();
        peer.read_exact(&mut [0; 7]).unwrap();
    }
    drop(pairs);
    // Another connection is accepted when the proxy has seen that.
    target.set_nonblocking(true).unwrap();
    until(|| {
        let client = TcpStream::connect(server.address).unwrap();
        client.set_nonblocking(true).unwrap();
        loop {
            match ((&client).read(&mut [0; 8]), target.accept()) {
                (_, Ok(_)) => return true,
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return false,
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    server.closes_all_but(before);
}

pub(crate) fn silence_ends_a_connection(engine: Engine) {
    let target = TcpListener::bind(ANY).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let server = proxy_with(engine, &to, &["--idle-timeout", "0.3"]);
    let before = server.descriptors();
    let begun = Instant::now();
    // A connection that never sent anything, and one with one direction closed.
    let pairs: Vec<_> = (0..2).map(|_| through(&server, &target)).collect();
    pairs[1].0.shutdown(Shutdown::Write).unwrap();
    for (client, peer) in &pairs {
        assert!(is_closed(client) && is_closed(peer));
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    server.closes_all_but(before);
}

/// Writers wait when the kernel's buffers are full; the proxy has one buffer for each direction.
pub(crate) fn slow_readers_make_writers_wait(engine: Engine) {
    const CONNECTIONS: usize = 3;
    /// Far beyond what two sockets hold.
    const NEVER: usize = 100 << 20;
    let target = TcpListener::bind(ANY).unwrap();
    set_socket_recv_buffer_size(&target, 100_000).unwrap();
    let server = proxy(engine, &target.local_addr().unwrap().to_string());
    drop(through(&server, &target));
    let before_kib = server.resident_kib();
    let piece = pattern(1 << 20);
    let fill = |(mut client, peer): (TcpStream, TcpStream)| {
        set_socket_send_buffer_size(&client, 100_000).unwrap();
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut last) = (0, Instant::now());
        while last.elapsed() < Duration::from_millis(200) {
            match client.write(&piece[sent % piece.len()..]) {
                Ok(bytes) => {
                    sent += bytes;
                    last = Instant::now();
                    assert!(sent < NEVER, "nothing holds the writer back");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        (client, peer, sent)
    };
    let pairs: Vec<_> = (0..CONNECTIONS).map(|_| through(&server, &target)).collect();
    let pairs: Vec<_> = thread::scope(|scope| {
        let fill = &fill;
        let all: Vec<_> = pairs.into_iter().map(|pair| scope.spawn(move || fill(pair))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let grown_kib = server.resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 4 << 10, "{grown_kib} KiB more in memory");
    for (client, peer, sent) in pairs {
        client.shutdown(Shutdown::Write).unwrap();
        let received = read_all(peer);
        assert_eq!(received.len(), sent);
        assert!(received.chunks(piece.len()).all(|part| part == &piece[..part.len()]));
    }
}

pub(crate) fn iperf3_sessions_pass(engine: Engine) {
    const BYTES: u64 = 48 << 20;
    if !has(&[("iperf3", "iperf3")]) {
        return;
    }
    let (target, listens) = Server::iperf3();
    let server = proxy(engine, &target.address.to_string());
    let port = server.address.port().to_string();
    let bytes = BYTES.to_string();
    let common = ["--client", "127.0.0.1", "--port", &port, "--bytes", &bytes, "--json"];
    for more in [&["--parallel", "2"][..], &["--reverse"], &["--bidir"]] {
        // It serves one at a time, and refuses others.
        next(&listens);
        let said = client("iperf3", &[&common, more].concat());
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(report.get("error").is_none(), "{more:?}: {said}");
        // The session is over when everything is sent, in both directions together: bytes in transit then do not count
        // as received.
        let bidir = ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"];
        let reverse = if *more == ["--bidir"] { &bidir[..] } else { &[] };
        for sum in ["sum_sent", "sum_received"].iter().chain(reverse) {
            let bytes = report["end"][sum]["bytes"].as_u64().unwrap();
            assert!(bytes >= 1 << 20, "{more:?}: {sum}: {said}");
        }
    }
}
