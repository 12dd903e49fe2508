//! Tests of `examples/http_server`.

use crate::common::{LOST, directory, pattern, until};
use crate::message::Connection;
use crate::process::{Engine, Server, client, has};
use rustix::net::sockopt::set_socket_linger;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use toroni_testkit::Directory;

/// Files of all sizes at a boundary, and one of many pieces.
const SIZES: [usize; 7] = [0, 1, 65_000, 65_535, 65_536, 65_537, 3_000_003];

struct Fixture {
    server: Server,
    directory: Directory,
}

impl Fixture {
    fn new(engine: Engine) -> Self {
        Self::with(engine, &[])
    }

    fn with(engine: Engine, more: &[&str]) -> Self {
        let directory = directory();
        let root = directory.join("root");
        fs::create_dir_all(root.join("folder")).unwrap();
        for size in SIZES {
            fs::write(root.join(size.to_string()), pattern(size)).unwrap();
        }
        fs::write(root.join("a name, 100%.txt"), "named").unwrap();
        fs::write(root.join("folder/index.html"), "<p>").unwrap();
        fs::write(directory.join("secret"), "not for clients").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("leads-out")).unwrap();
        std::os::unix::fs::symlink("1", root.join("stays-in")).unwrap();
        let pipe = std::ffi::CString::new(root.join("pipe").to_str().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let mut arguments = vec![root.to_str().unwrap(), "--threads", "2"];
        arguments.extend(more);
        Self { server: Server::example("http_server", engine, &arguments), directory }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.server.address)
    }

    fn connect(&self) -> Connection {
        Connection::new(self.server.address)
    }
}

fn curl(arguments: &[&str]) -> String {
    client("curl", &[&["--silent", "--show-error"], arguments].concat())
}

pub(crate) fn curl_gets_the_same_bytes(engine: Engine) {
    if !has(&[("curl", "curl")]) {
        return;
    }
    let fixture = Fixture::new(engine);
    let target = |size: usize| fixture.directory.join(format!("got-{size}"));
    let targets: Vec<_> = SIZES.iter().map(|size| target(*size).display().to_string()).collect();
    let urls: Vec<_> = SIZES.iter().map(|size| fixture.url(&size.to_string())).collect();
    let mut arguments = vec!["--write-out", "%{http_code} %{num_connects}\n"];
    for (target, url) in targets.iter().zip(&urls) {
        arguments.extend(["--output", target, url]);
    }
    let said = curl(&arguments);
    // One connection for all of them.
    let mut wanted = vec!["200 0"; SIZES.len()];
    wanted[0] = "200 1";
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
    for size in SIZES {
        let got = fs::read(target(size)).unwrap();
        assert!(got == pattern(size), "{} bytes of {size}", got.len());
    }
    let mut parts = vec!["--range", "65530-65535", &urls[6]];
    assert_eq!(curl(&[&parts[..], &["--output", &targets[0]]].concat()), "");
    assert_eq!(fs::read(target(0)).unwrap(), &pattern(65_536)[65_530..]);
    parts = vec!["--head", &urls[6]];
    assert!(curl(&parts).contains("Content-Length: 3000003\r\n"));
    assert_eq!(curl(&[&fixture.url("a%20name,%20100%25.txt?with=question")]), "named");
    assert_eq!(curl(&[&fixture.url("folder/")]), "<p>");
    assert_eq!(curl(&["--http1.0", &fixture.url("stays-in")]).len(), 1);
    // Not modified since then.
    let file = fixture.directory.join("root/65000");
    let since =
        ["--time-cond", file.to_str().unwrap(), "--write-out", "%{http_code} %{size_download}"];
    assert_eq!(curl(&[&since[..], &[&urls[2]]].concat()), "304 0");
}

pub(crate) fn requests_in_a_row_and_in_pieces(engine: Engine) {
    let fixture = Fixture::new(engine);
    let mut connection = fixture.connect();
    // Many requests at once, before any response is read.
    let sizes: Vec<usize> = (0..60).map(|number| SIZES[number % 6]).collect();
    let mut requests = String::new();
    for (number, size) in sizes.iter().enumerate() {
        let method = if number % 4 == 3 { "HEAD" } else { "GET" };
        requests +=
            &format!("{method} /{size} HTTP/1.1\r\nHost: test\r\nX-Number: {number}\r\n\r\n");
    }
    let mut writing = connection.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        writing.write_all(requests.as_bytes()).unwrap();
    });
    for (number, size) in sizes.iter().enumerate() {
        let answer = connection.answer(number % 4 != 3);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-length"], size.to_string());
        assert!(number % 4 == 3 || answer.body == pattern(*size), "answer {number}");
    }
    writer.join().unwrap();
    // The server skips a body that comes with the head or after it, and finds the next request.
    connection.send(
        "GET /1 HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\nGET /xxGET /1 HTTP/1.1\r\n",
    );
    assert_eq!(connection.answer(true).body, pattern(1));
    // A request in single bytes; an empty line before it is allowed.
    for byte in b"Host: test\r\n\r\n\r\nGET /65000 HTTP/1.1\r\nHost: test\r\n\r\n" {
        connection.send([*byte]);
    }
    assert_eq!(connection.answer(true).body, pattern(1));
    assert_eq!(connection.answer(true).body, pattern(65_000));
    // The default of HTTP/1.0.
    connection.send("GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    assert_eq!(connection.answer(true).headers["connection"], "keep-alive");
    connection.send("GET /1 HTTP/1.0\r\n\r\n");
    assert_eq!(connection.answer(true).headers["connection"], "close");
    assert_eq!(connection.rest(), b"");
}

pub(crate) fn a_half_closed_client_is_answered(engine: Engine) {
    let fixture = Fixture::new(engine);
    for size in [1, 3_000_003] {
        let mut connection = fixture.connect();
        let request = format!("GET /{size} HTTP/1.1\r\nHost: test\r\n\r\n");
        // Two requests, and then the end of the stream.
        connection.send(request.repeat(2));
        connection.stream.shutdown(Shutdown::Write).unwrap();
        for _ in 0..2 {
            assert!(connection.answer(true).body == pattern(size));
        }
        assert_eq!(connection.rest(), b"");
    }
    // The beginning of a request gets no response.
    let mut connection = fixture.connect();
    connection.send("GET / HT");
    connection.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(connection.rest(), b"");
}

pub(crate) fn what_is_refused_and_how(engine: Engine) {
    let fixture = Fixture::new(engine);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    // The connection continues.
    let mut connection = fixture.connect();
    for (path, status) in [
        ("/nothing", 404),
        ("/folder", 404),
        ("/1/index.html", 404),
        ("/pipe", 404),
        ("/leads-out", 404),
        (&format!("/{}", "x".repeat(4000)), 404),
        ("/stays-in", 200),
        ("http://somewhere/1", 200),
    ] {
        assert_eq!(connection.get(path).status, status, "{path}");
    }
    connection.send("DELETE /1 HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    let answer = connection.answer(true);
    assert_eq!((answer.status, &answer.headers["allow"][..]), (405, "GET, HEAD"));
    connection.send("GET /1 HTTP/1.1\r\nHost: test\r\nRange: bytes=1-\r\n\r\n");
    let answer = connection.answer(true);
    assert_eq!((answer.status, &answer.headers["content-range"][..]), (416, "bytes */1"));
    assert_eq!(connection.get("/1").status, 200);
    // The connection ends.
    let much = format!("X: {}\r\n", "y".repeat(500));
    for (request, status) in [
        (get("/../secret"), 400),
        (get("/folder/../../secret"), 400),
        (get("/%2e%2e/secret"), 400),
        (get("/folder%2f..%2f..%2fsecret"), 400),
        (get("/1%00"), 400),
        (get("/%4"), 400),
        (get("/%+4"), 400),
        (get("1"), 400),
        ("\x16\x03\x01\x02 hello".to_owned(), 400),
        ("GET /1 HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("GET /1 HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), 400),
        (
            "GET /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"
                .to_owned(),
            400,
        ),
        ("GET /1 HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
        (
            "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            411,
        ),
        (
            "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(),
            413,
        ),
        ("GET /1 HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (format!("GET /1 HTTP/1.1\r\nHost: a\r\n{}\r\n", much.repeat(90)), 431),
        (format!("GET /1 HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(101)), 431),
    ] {
        let mut connection = fixture.connect();
        connection.send(&request);
        let answer = connection.answer(true);
        assert_eq!(answer.status, status, "{request:?}");
        assert_eq!(answer.headers["connection"], "close");
        assert_eq!(connection.rest(), b"");
    }
    // The response arrives although the client sends much more than the server reads.
    let mut connection = fixture.connect();
    connection.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    connection.send(vec![0; 200_000]);
    assert_eq!(connection.answer(true).status, 413);
}

pub(crate) fn aborted_clients_leak_nothing(engine: Engine) {
    let fixture = Fixture::new(engine);
    let before = fixture.server.descriptors();
    for _ in 0..2 {
        for number in 0..40 {
            let mut connection = fixture.connect();
            match number % 5 {
                0 => {}
                1 => connection.send("GET /3000003 HTTP"),
                2 => connection.send("GET /3000003 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)),
                3 => {
                    connection.send("GET /3000003 HTTP/1.1\r\nHost: a\r\n\r\n");
                    connection.stream.read_exact(&mut [0; 1000]).unwrap();
                }
                _ => connection.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\nx"),
            }
            if number % 2 == 0 {
                // Ends with a reset.
                set_socket_linger(&connection.stream, Some(Duration::ZERO)).unwrap();
            }
        }
        // The connection that is served here was accepted after all of them.
        assert_eq!(fixture.connect().get("/1").status, 200);
        fixture.server.closes_all_but(before);
    }
    assert_eq!(fixture.connect().get("/1").status, 200);
}

pub(crate) fn too_many_connections_are_refused_with_an_answer(engine: Engine) {
    let fixture = Fixture::with(engine, &["--connections", "3"]);
    let mut connections: Vec<_> = (0..3).map(|_| fixture.connect()).collect();
    for connection in &mut connections {
        assert_eq!(connection.get("/1").status, 200);
    }
    for _ in 0..5 {
        let mut refused = fixture.connect();
        assert_eq!(refused.answer(true).status, 503);
        assert_eq!(refused.rest(), b"");
    }
    assert!(connections.iter_mut().all(|connection| connection.get("/1").status == 200));
    connections.pop();
    // Another connection is accepted when the server has seen that.
    until(|| {
        let mut stream = TcpStream::connect(fixture.server.address).unwrap();
        stream.set_read_timeout(Some(LOST)).unwrap();
        let request = b"GET /1 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        let sent = stream.write_all(request);
        let mut answer = Vec::new();
        let received = stream.read_to_end(&mut answer);
        sent.is_ok() && received.is_ok() && answer.starts_with(b"HTTP/1.1 200")
    });
}

/// A byte now and then is not enough: the timeout applies to a head, and to a body, as a whole.
pub(crate) fn who_takes_too_long_is_left(engine: Engine) {
    let fixture = Fixture::with(engine, &["--timeout", "0.3"]);
    let drip = |request: &str| {
        let begun = Instant::now();
        let mut connection = fixture.connect();
        connection.send(request);
        connection.stream.set_nonblocking(true).unwrap();
        until(|| {
            // Bytes after the end are answered with a reset.
            let sent = connection.stream.write(b"x");
            let ended = connection.stream.read(&mut [0]);
            std::thread::sleep(Duration::from_millis(20));
            let is_reset = |error: &std::io::Error| error.kind() != ErrorKind::WouldBlock;
            sent.is_err_and(|error| is_reset(&error))
                || !ended.is_err_and(|error| !is_reset(&error))
        });
        assert!(begun.elapsed() >= Duration::from_millis(300));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| drip("GET /1 HTTP/1.1\r\nHost: test\r\nX: "));
        scope.spawn(|| drip("PUT /1 HTTP/1.1\r\nHost: test\r\nContent-Length: 60000\r\n\r\n"));
    });
}

pub(crate) fn wrk_and_ab_have_no_complaints(engine: Engine) {
    if !has(&[("wrk", "wrk"), ("ab", "apache2-utils")]) {
        return;
    }
    let fixture = Fixture::new(engine);
    let url = fixture.url("65000");
    // It ends by time, so on a busy machine it is repeated.
    let mut requests = 0;
    until(|| {
        let said = client("wrk", &["-t2", "-c100", "-d1s", "--timeout", "20s", &url]);
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
        let line = said.lines().find(|line| line.contains(" requests in ")).unwrap();
        requests += line.split_whitespace().next().unwrap().parse::<u64>().unwrap();
        requests >= 100
    });

    let url = fixture.url("1");
    let said = client("ab", &["-q", "-k", "-n", "1000", "-c", "30", &url]);
    let number = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok())
    };
    assert_eq!(number("Complete requests:"), Some(1000), "{said}");
    assert_eq!(number("Failed requests:"), Some(0), "{said}");
    assert_eq!(number("Keep-Alive requests:"), Some(1000), "{said}");
    assert_eq!(number("Non-2xx responses:"), None, "{said}");
    // One connection for each request.
    let said = client("ab", &["-q", "-n", "300", "-c", "30", &url]);
    assert!(
        said.lines().any(|line| line.split_whitespace().eq(["Failed", "requests:", "0"])),
        "{said}"
    );
}
