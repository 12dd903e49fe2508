//! A node that keeps a processor busy, and how often systemd hears from an idle one.

use crate::nodes::{file, group, receiving, sending, start};
use crate::support::{Buses, LIMIT};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};
use toroni_testkit::{Program, turn};

#[test]
fn a_node_that_never_sleeps_brings_messages_too() {
    let _turn = turn();
    let buses = Buses::new();
    let group = group();
    let processor = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..).find(|cpu| processor.is_set(*cpu)).unwrap();
    let busy = format!("poll = 'busy'\ncpu = {cpu}\n{}", receiving(&group));
    let bus = |name| toroni::BusConfig::new().directory(buses.path()).open(name).unwrap();
    let [from, to] = ["from", "to"].map(bus);
    let mut subscriber = to.subscribe("**").unwrap();
    let mut receiver = start(&buses, &file(&buses, "to", &busy));
    let _sender = start(&buses, &file(&buses, "from", &sending(&group)));
    receiver.wait_for_error("follows stream 1 of from (source ");
    from.publisher("t").unwrap().publish("1").unwrap();
    assert_eq!(subscriber.receive_timeout(LIMIT).unwrap().unwrap().text(), "1");
    receiver.signal(Signal::TERM);
    assert!(receiver.wait().success());
}

/// An idle node sleeps for a second, if nothing else wakes it.
#[test]
fn systemd_hears_from_an_idle_node_within_its_watchdog_interval() {
    let _turn = turn();
    const INTERVAL: Duration = Duration::from_millis(600);
    let buses = Buses::new();
    let systemd = UnixDatagram::bind(buses.path().join("notify")).unwrap();
    systemd.set_read_timeout(Some(LIMIT)).unwrap();
    let path = file(&buses, "a", &receiving(&group()));
    let mut command = buses.command(&["node", "--config", &path]);
    command.env("NOTIFY_SOCKET", buses.path().join("notify"));
    command.env("WATCHDOG_USEC", INTERVAL.as_micros().to_string());
    let mut node = Program::start_with_ready_fd(command);
    node.wait_ready();
    let heard = || {
        let mut bytes = [0; 1_000];
        loop {
            let length = systemd.recv(&mut bytes).unwrap();
            if bytes[..length].starts_with(b"WATCHDOG=1") {
                return Instant::now();
            }
        }
    };
    // On a busy machine some come late, and a node that sleeps for a second is always late.
    let begin = heard();
    let mut last = begin;
    loop {
        let now = heard();
        if now - last < INTERVAL {
            break;
        }
        assert!(now - begin < LIMIT, "each came after more than {INTERVAL:?}");
        last = now;
    }
    // One that stands still is not fed, and fed again when it runs. The socket may have some from before.
    node.stop();
    systemd.set_nonblocking(true).unwrap();
    while systemd.recv(&mut [0; 1_000]).is_ok() {}
    std::thread::sleep(2 * INTERVAL);
    assert!(systemd.recv(&mut [0; 1_000]).is_err(), "a stopped process has said something");
    systemd.set_nonblocking(false).unwrap();
    node.resume();
    heard();
    node.signal(Signal::TERM);
    assert!(node.wait().success(), "{}", node.errors());
}
