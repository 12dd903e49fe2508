//! `pub --exclusive`: what it publishes, and what others get meanwhile.

use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use toroni::{BusConfig, Limit};

/// Starts an exclusive publisher named `feed`, and waits until it is the only one.
fn feed(buses: &Buses) -> Process {
    let mut command = buses.command(&["pub", "t", "--exclusive", "--name", "feed"]);
    let feed = Process::start(command.stdin(Stdio::piped()));
    wait_until("it is exclusive", || buses.info("default")["lock_owner"]["exclusive"] == true);
    feed
}

/// Runs a command that has to fail while the lock is held, and returns its error message.
fn refused(buses: &Buses, arguments: &[&str]) -> String {
    let output = buses.run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_kind_of_input_can_be_published_exclusively() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let subscriber = buses.subscribe(&["**", "--count", "18"]);
    let file = buses.path().join("file");
    std::fs::write(&file, "abcde").unwrap();
    let file = file.to_str().unwrap();
    let json = "{\"topic\":\"j\",\"payload\":\"1\"}\n{\"topic\":\"k/l\",\"payload\":\"2\"}\n\
                {\"topic\":\"j\",\"to_descendants\":true,\"payload\":\"3\"}\n";
    let inputs: [(&[&str], &str, &str); 9] = [
        (&["a", "one"], "", "a\tone\n"),
        (&["b", "-1", "--repeat", "2", "--rate", "100/s"], "", "b\t-1\nb\t-1\n"),
        (&["c", "--size", "3", "--repeat", "2", "--timestamps"], "", "c\t0 a\nc\t1 a\n"),
        (&["d"], "1\n2\n", "d\t1\nd\t2\n"),
        (&["-0", "e", "--batch", "2"], "1\x002\x003", "e\t1\ne\t2\ne\t3\n"),
        (&["f", "--raw", "--to-descendants"], "all", "f\tall\n"),
        (&["g", "--file", file, "--chunk", "2"], "", "g\tab\ng\tcd\ng\te\n"),
        (&["h", "x", "--wait-subscribers", "1"], "", "h\tx\n"),
        (&["--json"], json, "j\t1\nk/l\t2\nj\t3\n"),
    ];
    let mut expected = String::new();
    for (arguments, input, published) in inputs {
        let arguments = [&["pub", "--exclusive"], arguments].concat();
        let output = buses.run_with_input(&arguments, input.as_bytes());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
        expected += published;
    }
    let output = subscriber.finish();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn others_fail_at_once_while_a_publisher_is_exclusive() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let mut feed = feed(&buses);
    let pid = feed.id();
    let said = refused(&buses, &["pub", "t", "x"]);
    let expected = format!(
        "toroni: only \"feed\", process {pid}, can publish on this bus, because it publishes exclusively: end that \
         process, or publish on another bus (option --bus)\n"
    );
    assert_eq!(said, expected);
    let said = refused(&buses, &["pub", "t", "x", "--exclusive"]);
    let expected = format!(
        "toroni: \"feed\", process {pid}, publishes exclusively on this bus: end that process, or publish on another \
         bus (option --bus)\n"
    );
    assert_eq!(said, expected);
    let mut subscriber = buses.subscribe(&["t", "--count", "2"]);
    let mut input = feed.stdin().unwrap();
    input.write_all(b"mine\n").unwrap();
    assert_eq!(subscriber.line(), "t\tmine\n");
    drop(input);
    assert!(feed.wait().success());
    buses.succeed(&["pub", "t", "next"]);
    assert_eq!(subscriber.line(), "t\tnext\n");
}

#[test]
fn info_shows_an_exclusive_publisher() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let info = || buses.succeed(&["info"]);
    assert!(info().contains("\nlock        lease, free\n"), "{}", info());
    let mut feed = feed(&buses);
    let held = format!("\nlock        lease, held exclusively by pid {} in slot 0", feed.id());
    let alive = info();
    assert!(alive.contains(&format!("{held}: other publishers fail until it ends\n")), "{alive}");
    let owner = &buses.info("default")["lock_owner"];
    assert_eq!((&owner["alive"], &owner["stopped"]), (&true.into(), &false.into()));

    feed.signal(Signal::STOP);
    wait_until("it is stopped", || buses.info("default")["lock_owner"]["stopped"] == true);
    let stopped = info();
    let until = "nothing is published until it continues (kill -CONT) or ends";
    assert!(stopped.contains(&format!("{held}, which is stopped: {until}\n")), "{stopped}");
    assert!(refused(&buses, &["pub", "t", "x"]).contains("\"feed\""));

    feed.signal(Signal::KILL);
    feed.wait();
    let dead = info();
    let next = "the next publisher takes the lock over";
    assert!(dead.contains(&format!("{held}, which is dead: {next}\n")), "{dead}");
    buses.succeed(&["pub", "t", "x"]);
    assert!(info().contains("\nlock        lease, free\n"), "{}", info());
}

#[test]
fn a_signal_ends_a_wait_to_be_exclusive() {
    let buses = Buses::new();
    let bus = BusConfig::new().directory(buses.path()).create("default").unwrap();
    let publisher = bus.publisher("t").unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        publisher
            .publish_with(1, Limit::Policy, |_| {
                let waiting = buses.start(&["pub", "t", "x", "--exclusive"]);
                let expected = "toroni: waiting for a publisher that holds the lock: \
                                `toroni info default` shows it\n";
                assert_eq!(waiting.error_line(), expected);
                waiting.signal(signal);
                let output = waiting.finish();
                assert_eq!(output.status.code(), Some(code), "{output:?}");
                let said = String::from_utf8(output.stderr).unwrap();
                let last = "toroni: interrupted while waiting for a publisher that holds the lock";
                assert_eq!(said.lines().last(), Some(last));
            })
            .unwrap();
    }
    let mut waiting = None;
    publisher
        .publish_with(1, Limit::Policy, |_| {
            let process = buses.start(&["pub", "t", "x", "--exclusive"]);
            process.error_line();
            waiting = Some(process);
        })
        .unwrap();
    assert!(waiting.unwrap().finish().status.success());
    assert_eq!(bus.stats().unwrap().sequence, 4);
}

#[test]
fn a_robust_lock_is_refused() {
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--lock", "robust"]);
    let said = refused(&buses, &["pub", "t", "x", "--exclusive"]);
    let advice = "create the bus with the lock kind `lease` (option --lock)\n";
    assert!(said.ends_with(advice), "{said}");
    assert_eq!(buses.info("default")["messages"], 0);
}
