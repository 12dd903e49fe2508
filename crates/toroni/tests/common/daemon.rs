//! The example `daemon` as a process, on an engine.

use crate::common::Fixture;
use crate::example::{Example, assert_nothing_left};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Bus, NotifyKind};
use toroni_testkit::wait::LIMIT;

/// Names of engines, and their configurations.
pub(crate) const ENGINES: [(&str, &str); 12] = [
    ("combined", "[[processor]]\nprovider = 'combined'"),
    ("uring", "[[processor]]\nprovider = 'uring'"),
    ("uring, dedicated", "[[processor]]\nprovider = 'uring'\ntype = 'dedicated'"),
    (
        "uring without words",
        "[[processor]]\nprovider = 'uring'\noperations = ['read-stream', 'write-stream', 'read-file', 'write-file', 'accept', 'wait-readable']",
    ),
    ("epoll", "[[processor]]\nprovider = 'select'\nwait = 'epoll'"),
    ("epoll, dedicated", "[[processor]]\nprovider = 'select'\nwait = 'epoll'\ntype = 'dedicated'"),
    ("combined, 3 shards", "shards = 3\n[[processor]]\nprovider = 'combined'"),
    ("uring, 3 shards", "shards = 3\n[[processor]]\nprovider = 'uring'"),
    ("epoll, 3 shards", "shards = 3\n[[processor]]\nprovider = 'select'\nwait = 'epoll'"),
    ("ppoll", "[[processor]]\nprovider = 'select'\nwait = 'native'"),
    (
        "posix and select",
        "[[processor]]\nprovider = 'posix'\n[[processor]]\nprovider = 'select'\nwait = 'epoll'",
    ),
    (
        "linux-rt",
        "[[processor]]\nprovider = 'select'\nwait = 'linux-rt'\ntype = 'dedicated'\ninterrupt = 'signal'",
    ),
];

/// A daemon on its own bus, and a client that queries it.
pub(crate) struct Setup {
    pub(crate) engine: &'static str,
    pub(crate) daemon: Example,
    pub(crate) client: BufReader<TcpStream>,
    pub(crate) log: PathBuf,
    pub(crate) bus: Bus,
    /// Declared last, so that it is dropped after everything that uses it.
    pub(crate) fixture: Fixture,
}

impl Setup {
    pub(crate) fn new(engine: (&'static str, &str), notify: NotifyKind) -> Self {
        let fixture = Fixture::new();
        let log = fixture.path().join(".log");
        std::fs::write(&log, "there before\n").unwrap();
        Self::with(engine, notify, fixture, log)
    }

    pub(crate) fn with(
        (engine, config): (&'static str, &str),
        notify: NotifyKind,
        fixture: Fixture,
        log: PathBuf,
    ) -> Self {
        let bus = fixture.config().notify(notify).open("default").unwrap();
        let arguments = ["127.0.0.1:0", log.to_str().unwrap()];
        let environment = [("TORONI_PROACTOR", config)];
        let mut daemon =
            Example::start_with(&fixture, "default", "daemon", &arguments, &environment);
        let line = daemon.wait_for_prefix("listening on ");
        let stream = TcpStream::connect(line.rsplit(' ').next().unwrap()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { engine, daemon, client: BufReader::new(stream), log, bus, fixture }
    }

    pub(crate) fn status(&mut self) -> String {
        self.client.get_mut().write_all(b"status\n").unwrap();
        let mut line = String::new();
        self.client.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    pub(crate) fn wait_for_status(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(started.elapsed() < LIMIT, "{}: {status}", self.engine);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the daemon and returns what it has written.
    pub(crate) fn end(self, signal: Signal) -> String {
        let last = self.daemon.end(signal).pop();
        assert!(last.unwrap().starts_with("hello "), "{}", self.engine);
        drop((self.client, self.bus));
        assert_nothing_left(&self.fixture, "default");
        std::fs::read_to_string(&self.log).unwrap()
    }
}
