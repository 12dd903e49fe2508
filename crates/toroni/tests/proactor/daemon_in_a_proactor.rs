//! Tests of the example `daemon` as a process, on every engine. One thread serves its two
//! subscribers, socket, file, timer and signals. It survives the deaths of publishers, is idle when
//! nothing happens, and leaves nothing behind.

use crate::common::Fixture;
use crate::example::{Example, assert_nothing_left};
use crate::subscribers_in_a_proactor::{ENGINES, until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Bus, NotifyKind};
use toroni_testkit::wait::LIMIT;

/// A daemon on its own bus, and a client that queries it.
struct Setup {
    engine: &'static str,
    daemon: Example,
    client: BufReader<TcpStream>,
    log: PathBuf,
    bus: Bus,
    /// Declared last, so that it is dropped after everything that uses it.
    fixture: Fixture,
}

impl Setup {
    fn new(engine: (&'static str, &str), notify: NotifyKind) -> Self {
        let fixture = Fixture::new();
        let log = fixture.path().join(".log");
        std::fs::write(&log, "there before\n").unwrap();
        Self::with(engine, notify, fixture, log)
    }

    fn with(
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

    fn status(&mut self) -> String {
        self.client.get_mut().write_all(b"status\n").unwrap();
        let mut line = String::new();
        self.client.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    fn wait_for_status(&mut self, wanted: impl Fn(&str) -> bool) -> String {
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
    fn end(self, signal: Signal) -> String {
        let last = self.daemon.end(signal).pop();
        assert!(last.unwrap().starts_with("hello "), "{}", self.engine);
        drop((self.client, self.bus));
        assert_nothing_left(&self.fixture, "default");
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// Runs the test on each engine, and with each notifier at least once.
fn each(test: impl Fn(Setup, Signal)) {
    let notifiers =
        [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];
    let kinds = ENGINES.iter().map(|engine| (*engine, NotifyKind::Futex));
    let more = notifiers[1..].iter().flat_map(|notify| {
        let engines = ENGINES.iter().filter(|(name, _)| ["uring", "epoll"].contains(name));
        engines.map(|engine| (*engine, *notify))
    });
    for (turn, (engine, notify)) in kinds.chain(more).enumerate() {
        println!("{}, {notify:?}", engine.0);
        test(Setup::new(engine, notify), if turn % 2 == 0 { Signal::TERM } else { Signal::INT });
    }
}

#[test]
fn it_serves_subscribers_socket_file_and_timer() {
    const ROUNDS: usize = 100;
    each(|mut setup, signal| {
        let mut statuses = setup.bus.subscribe("daemon/status").unwrap();
        let hello = setup.bus.publisher("hello/world").unwrap();
        let alarm = setup.bus.publisher("alarm/fire").unwrap();
        // One by one: each message finds the daemon asleep, or about to fall asleep, at a different
        // step.
        let mut expected = "there before\n".to_owned();
        for round in 1..=ROUNDS {
            hello.publish(format!("{round}")).unwrap();
            expected += &format!("hello/world {round}\n");
            if round % 2 == 0 {
                alarm.publish(format!("{round}")).unwrap();
            }
            let wanted = format!("hello {round}, alarms {}, lost 0\n", round / 2);
            setup.wait_for_status(|status| status == wanted);
        }
        // The timer: the status that it publishes shows this too.
        let wanted = format!("hello {ROUNDS}, alarms {}, lost 0", ROUNDS / 2);
        while statuses.receive().unwrap().text() != wanted {}
        drop((statuses, hello, alarm));
        let written = setup.end(signal);
        let alarms = written.lines().filter(|line| line.starts_with("alarm/fire "));
        assert!(alarms.map(|line| &line[11..]).eq((1..=ROUNDS / 2).map(|it| (2 * it).to_string())));
        let others: Vec<_> =
            written.split_inclusive('\n').filter(|line| !line.starts_with("alarm")).collect();
        assert_eq!(others.concat(), expected);
    });
}

#[test]
fn publishers_are_killed_beside_it() {
    fn seen(status: &str) -> u64 {
        status["hello ".len()..].split(',').next().unwrap().parse().unwrap()
    }

    each(|mut setup, signal| {
        let mut before = 0;
        for _ in 0..2 {
            let publish = Example::start(&setup.fixture, "publish", &[]);
            before = seen(&setup.wait_for_status(|status| seen(status) > before));
            // kill -9.
            drop(publish);
        }
        let publisher = setup.bus.publisher("hello/world").unwrap();
        publisher.publish("from the living").unwrap();
        // Messages of the dead publishers come before it.
        let log = setup.log.clone();
        let is_last =
            || std::fs::read_to_string(&log).unwrap().ends_with("hello/world from the living\n");
        setup.wait_for_status(|_| is_last());
        drop(publisher);
        let written = setup.end(signal);
        assert!(written.ends_with("hello/world from the living\n"), "{written}");
    });
}

/// The daemon wakes four times a second to poll as a safety net, and once for its own timer.
#[test]
fn it_is_idle_when_nothing_happens() {
    /// After this time, polls are far apart.
    const WARM: Duration = Duration::from_millis(1500);
    const ROUND: Duration = Duration::from_millis(1500);
    // Measures until one round is below the limit: on a busy machine, a process that wakes up pays
    // for what others do to the caches.
    const ROUNDS: usize = 60;
    let mut setups: Vec<_> =
        ENGINES.iter().map(|engine| Setup::new(*engine, NotifyKind::Futex)).collect();
    std::thread::sleep(WARM);
    let mut busy: Vec<_> = setups.iter().collect();
    for _ in 0..ROUNDS {
        let before: Vec<_> = busy.iter().map(|setup| ran_ns(setup.daemon.pid())).collect();
        let started = Instant::now();
        std::thread::sleep(ROUND);
        let share = |(setup, before): (&&Setup, u64)| {
            let ran_ns = ran_ns(setup.daemon.pid()) - before;
            let permille = u128::from(ran_ns) * 1000 / started.elapsed().as_nanos();
            println!("{}: {} us", setup.engine, ran_ns / 1000);
            permille
        };
        let shares: Vec<u128> = busy.iter().zip(before).map(share).collect();
        let mut shares = shares.into_iter();
        busy.retain(|_| shares.next().unwrap() >= 3);
        if busy.is_empty() {
            break;
        }
    }
    let busy: Vec<_> = busy.iter().map(|setup| setup.engine).collect();
    assert!(busy.is_empty(), "more than three thousandths of a processor: {busy:?}");
    // It still responds.
    for setup in &mut setups {
        setup.bus.publisher("hello/world").unwrap().publish("x").unwrap();
        setup.wait_for_status(|status| status.starts_with("hello 1, "));
    }
    setups.into_iter().for_each(|setup| drop(setup.end(Signal::TERM)));
}

#[test]
fn the_end_of_the_bus_ends_the_daemon() {
    let mut setup = Setup::new(ENGINES[0], NotifyKind::Futex);
    // The daemon listens before it has everything that it needs of the bus.
    setup.wait_for_status(|status| status.starts_with("hello 0, "));
    std::fs::remove_dir_all(setup.fixture.path().join("default")).unwrap();
    assert!(!setup.daemon.wait().success());
    let errors = setup.daemon.errors();
    assert!(errors.contains("Unlinked"), "{errors}");
}

/// A message was overwritten while the daemon was stopped. The other messages are still received.
#[test]
fn an_invalid_message_does_not_end_the_daemon() {
    let mut setup = Setup::new(ENGINES[0], NotifyKind::Futex);
    setup.wait_for_status(|status| status.starts_with("hello 0, "));
    setup.daemon.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", setup.daemon.pid());
    until(|| std::fs::read_to_string(&stat).unwrap().contains(") T "));
    let hello = setup.bus.publisher("hello/world").unwrap();
    hello.publish("one").unwrap();
    let second = setup.bus.subscribe("**").unwrap().position();
    hello.publish("two").unwrap();
    hello.publish("three").unwrap();
    // A topic that does not exist, in the second half of the header. The stream is at the end of
    // the file.
    let path = setup.fixture.path().join("default/ring");
    let capacity = setup.bus.stats().unwrap().capacity;
    let begin = std::fs::metadata(&path).unwrap().len() - capacity;
    let ring = std::fs::File::options().write(true).open(path).unwrap();
    let offset = begin + second % capacity + 4;
    ring.write_all_at(&0x00AB_CDEF_u32.to_ne_bytes(), offset).unwrap();
    setup.daemon.signal(Signal::CONT);
    setup.wait_for_status(|status| status == "hello 2, alarms 0, lost 0\n");
    setup.daemon.signal(Signal::TERM);
    assert!(setup.daemon.wait().success());
    let errors = setup.daemon.errors();
    assert!(errors.contains("continues after: the shared memory"), "{errors}");
    let written = std::fs::read_to_string(&setup.log).unwrap();
    assert!(written.ends_with("hello/world one\nhello/world three\n"), "{written}");
}

/// For example, the disk is full: the daemon reports that at once, continues, and reports it again
/// at the end.
#[test]
fn write_errors_are_reported() {
    let mut setup = Setup::with(ENGINES[0], NotifyKind::Futex, Fixture::new(), "/dev/full".into());
    let hello = setup.bus.publisher("hello/world").unwrap();
    for number in 1..=2 {
        hello.publish("x").unwrap();
        setup.wait_for_status(|status| status == format!("hello {number}, alarms 0, lost 0\n"));
    }
    setup.daemon.wait_for_error("daemon: WRITE_FILE");
    setup.daemon.signal(Signal::TERM);
    assert!(!setup.daemon.wait().success());
    let errors = setup.daemon.errors();
    assert!(errors.contains("code: 28"), "{errors}");
}

/// Returns the processor time of all threads in ns: the first number of
/// `/proc/<pid>/task/*/schedstat`.
fn ran_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let ran = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    ran.sum()
}
