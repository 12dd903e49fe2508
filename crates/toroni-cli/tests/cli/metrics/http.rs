//! Clients that are slow, wrong or hostile.

use super::{RING, Server, is_readable};
use crate::support::{Buses, wait_until};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The maximum number of connections that the server keeps.
const CONNECTIONS: usize = 16;

/// Returns the status of an answer.
fn status(answer: &str) -> u16 {
    let line = answer.lines().next().unwrap_or_default();
    line.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"))
}

fn server(buses: &Buses) -> Server {
    buses.succeed(&["create", "plant"]);
    Server::start(buses, &[])
}

fn works(server: &Server) {
    assert_eq!(is_readable(&server.metrics(), "plant", RING), Some(1.0));
}

#[test]
fn each_request_gets_its_status() {
    let buses = Buses::new();
    let server = server(&buses);
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(8 << 10));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for (request, code) in [
        ("GET /metrics HTTP/1.1\r\n\r\n", 200),
        ("GET /metrics?name[]=x HTTP/1.0\r\n\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        ("GET http://x/metrics HTTP/1.1\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", 405),
        ("GET\r\n\r\n", 400),
        ("\0\0\0\0", 400),
        ("GET /metrics HTTP/2.5\r\n\r\n", 400),
        (&long, 431),
        (&many, 431),
    ] {
        assert_eq!(status(&server.exchange(request)), code, "{request:.60?}");
    }
    let answer = server.exchange("GET /metrics HTTP/1.1\r\n\r\n");
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(kind) && answer.ends_with("# EOF\n"), "{answer}");
    let older = server.exchange("GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n");
    assert!(older.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(older.contains("# TYPE toroni_messages_total counter\n") && !older.contains("# EOF"));
}

#[test]
fn idle_connections_do_not_keep_others_out() {
    let buses = Buses::new();
    let server = server(&buses);
    let mut idle: Vec<_> = (0..100)
        .map(|number| {
            let mut stream = server.connect();
            if number % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ").unwrap();
            }
            // Answered at once, although there is no place left.
            if number % 10 == 0 {
                works(&server);
            }
            stream
        })
        .collect();
    works(&server);
    // The oldest had to give way, and the process keeps few descriptors.
    let mut first = idle.remove(0);
    let mut answer = Vec::new();
    let _ = first.read_to_end(&mut answer);
    assert!(answer.is_empty());
    let descriptors = format!("/proc/{}/fd", server.process.id());
    wait_until("the descriptors are closed", || {
        let open = fs::read_dir(&descriptors).unwrap().flatten();
        let is_socket = |link: fs::DirEntry| {
            fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        // The listener, too.
        open.map(is_socket).filter(|is| *is).count() <= CONNECTIONS + 1
    });
}

/// The limit of time is for the head as a whole: a byte now and then does not extend it.
#[test]
fn a_slow_head_is_given_up() {
    let buses = Buses::new();
    let server = server(&buses);
    let mut slow = server.connect();
    slow.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let started = Instant::now();
    let mut byte = [0];
    wait_until("the server closes the connection", || {
        let _ = slow.write_all(b"G");
        match slow.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => panic!("an answer to half a head"),
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    });
    assert!(started.elapsed() >= Duration::from_secs(4), "{:?}", started.elapsed());
    works(&server);
}

/// Clients with a small buffer do not read their answers, which the kernel cannot take over as a whole.
#[test]
fn clients_that_do_not_read_hold_up_no_other() {
    let buses = Buses::new();
    let config = toroni::BusConfig::new().directory(buses.path()).capacity(64 << 10);
    for number in 0..300 {
        drop(config.create(&format!("bus-{number:03}")).unwrap());
    }
    let server = Server::start(&buses, &[]);
    server.process.wait_for_error("serving");
    let length = server.get("/metrics", "*/*").len();
    assert!(length > 200_000, "{length}");
    server.process.wait_for_error("there are more than 256 buses: 44 are left out");
    let _unread: Vec<_> = (0..40)
        .map(|_| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_recv_buffer_size(&socket, 4096).unwrap();
            connect(&socket, &server.address).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    assert_eq!(is_readable(&server.metrics(), "bus-000", RING), Some(1.0));
    server.process.signal(Signal::TERM);
    // 143 if the signal came in the middle of a snapshot, which took over a second on a busy machine.
    let code = server.process.finish().status.code();
    assert!(matches!(code, Some(0 | 143)), "{code:?}");
}

/// Random bytes get an error or nothing.
#[test]
fn random_bytes_are_refused() {
    let buses = Buses::new();
    let server = server(&buses);
    let mut random = toroni_testkit::Random::from_environment();
    for _ in 0..200 {
        let mut bytes = vec![0; random.index(300)];
        bytes.iter_mut().for_each(|byte| *byte = random.number().to_le_bytes()[0]);
        // An empty line would end the head, and the request be valid.
        if random.below(2) == 0 && !bytes.starts_with(b"\n") && !bytes.starts_with(b"\r\n") {
            bytes.splice(0..0, *b"GET /metrics HTTP/1.1\r\n");
        }
        let mut stream = server.connect();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
    }
    works(&server);
}
