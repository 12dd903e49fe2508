//! Tests of the example `daemon` as a process, on every engine. One thread serves its two
//! subscribers, socket, file, timer and signals. It survives the deaths of publishers, and leaves
//! nothing behind. That it is idle when nothing happens is measured in `tests/measured`.

use super::subscribers_in_a_proactor::until;
use crate::common::Fixture;
use crate::daemon::{ENGINES, Setup};
use crate::example::Example;
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use toroni::NotifyKind;

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
