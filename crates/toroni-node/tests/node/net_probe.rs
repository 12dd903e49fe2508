//! `net probe` on hosts that are network namespaces, with a switch between them that loses, cuts and snoops.

use crate::support::Buses;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use toroni_testkit::Program;
use toroni_testkit::network::switch::{Direction, Faults, Loss, Rate, Reach, Snooping};
use toroni_testkit::network::{Network, Setup};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Runs a test on all hosts at once, in which each expects the others: for each, its exit code, its objects about hosts
/// and its findings. On a busy machine, the first may begin seconds before the last: all tests here take far longer.
fn probe(network: &Network, options: &[&str]) -> Vec<(i32, Vec<Value>, Vec<String>)> {
    let hosts = network.hosts.iter().zip(NAMES);
    let programs = hosts.map(|(host, name)| {
        let mut command = host.command(crate::program());
        command.args(["net", "probe", "--json", "--name", name]).args(options);
        for other in NAMES.iter().take(network.hosts.len()).filter(|other| **other != name) {
            command.args(["--expect", other]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Program::start_with_ready_fd(command)
    });
    let mut programs: Vec<Program> = programs.collect();
    programs.iter_mut().for_each(Program::wait_ready);
    let results = programs.into_iter().map(|mut program| {
        let output = program.finish_within(Duration::from_secs(120));
        let lines = String::from_utf8(output.stdout).unwrap();
        let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let (hosts, findings): (Vec<_>, Vec<_>) =
            objects.partition(|object| object.get("host").is_some());
        let text = |object: &Value| object["message"].as_str().unwrap().to_owned();
        (output.status.code().unwrap(), hosts, findings.iter().map(text).collect())
    });
    results.collect()
}

fn of<'a>(hosts: &'a [Value], name: &str) -> &'a Value {
    hosts.iter().find(|host| host["host"] == name).unwrap_or_else(|| panic!("no {name}: {hosts:?}"))
}

/// One host loses a fifth of what the group brings: its own losses are in its row, and in its column at the others.
#[test]
fn both_directions_are_measured_at_each_host() {
    let Some(network) = Setup::new(3).switched(5) else { return };
    let reach = Reach::UdpTo(4479);
    let faults = Faults { reach, loss: Loss::Bernoulli(0.2), ..Faults::default() };
    network.switch().set_faults(2, Direction::Out, &faults);
    let doubling = Faults { reach, duplication: 1.0, ..Faults::default() };
    network.switch().set_faults(1, Direction::Out, &doubling);
    let results = probe(&network, &["--minutes", "0.3"]);
    for (code, hosts, findings) in &results {
        assert_eq!((*code, hosts.len(), &findings[..]), (0, 2, &[][..]), "{hosts:?}");
        for host in hosts {
            assert_eq!((&host["both_ways"], &host["hops"]), (&true.into(), &0.into()), "{host}");
            let least = host["round_trip"]["least_us"].as_f64().unwrap();
            let most = host["round_trip"]["most_us"].as_f64().unwrap();
            assert!(0.0 < least && least <= most && most < 60e6, "{host}");
        }
    }
    let at = |host: usize, other: &str| of(&results[host].1, other).clone();
    let loses = |value: &Value| (0.02..0.6).contains(&value.as_f64().unwrap());
    for (host, name) in NAMES.iter().enumerate().take(2) {
        assert!(loses(&at(host, "c")["loss_to"]), "{}", at(host, "c"));
        assert_eq!(at(host, "c")["loss_from"], 0.0);
        assert!(loses(&at(2, name)["loss_from"]), "{}", at(2, name));
    }
    assert!(at(1, "a")["doubled"].as_u64().unwrap() > 20, "{}", at(1, "a"));
    assert_eq!(at(0, "b")["doubled"], 0);
}

#[test]
fn a_host_that_is_heard_in_one_direction_only_fails() {
    let Some(network) = Setup::new(2).switched(5) else { return };
    network.switch().block(&[0], &[1]);
    let results = probe(&network, &["--minutes", "0.25"]);
    let (code, hosts, findings) = &results[0];
    assert_eq!((*code, &of(hosts, "b")["both_ways"]), (1, &false.into()));
    assert!(
        findings[0].starts_with("b is heard in the group, and answers nothing"),
        "{findings:?}"
    );
    let (code, hosts, findings) = &results[1];
    assert_eq!((*code, hosts.len()), (1, 0));
    assert!(findings[0].starts_with("nothing came from a: "), "{findings:?}");
}

/// A switch that forgets memberships: without a querier, the group stops, and the reason is named. With one, it does not.
#[test]
fn snooping_without_a_querier_is_named() {
    std::thread::scope(|scope| {
        scope.spawn(|| snooping(None, true));
        scope.spawn(|| snooping(Some(Duration::from_secs(1)), false));
    });
}

fn snooping(query_interval: Option<Duration>, is_named: bool) {
    let Some(network) = Setup::new(2).switched(5) else { return };
    // Longer than a busy machine keeps the switch from its work: then the group would stop with a querier, too.
    let ageing = Duration::from_secs(10);
    network.switch().set_snooping(Some(Snooping { ageing, query_interval }));
    let results = probe(&network, &["--minutes", "0.6"]);
    for (code, hosts, findings) in results {
        // They heard each other.
        assert_eq!(code, 0, "{hosts:?} {findings:?}");
        let found = findings.iter().find(|text| text.contains("IGMP snooping"));
        assert_eq!(found.is_some(), is_named, "{findings:?}");
        assert!(!is_named || findings[0].contains("this host heard "), "{findings:?}");
    }
}

/// The interface of one host takes less than those between: what is too large does not reach it, and the third host gets it.
#[test]
fn sizes_that_do_not_arrive_are_named() {
    let Some(network) = Setup::new(3).bridged() else { return };
    network.hosts[1].namespace().ip(&["link set eth0 mtu 1100"]);
    let results = probe(&network, &["--sizes", "--minutes", "0.5"]);
    let answered = |host: usize, other: &str| -> Vec<u64> {
        let sizes = of(&results[host].1, other)["sizes"].as_array().unwrap().clone();
        sizes.iter().map(|size| size["bytes"].as_u64().unwrap()).collect()
    };
    let all = [256, 512, 1024, 1280, 1408, 1472];
    for (host, other) in [(0, "c"), (2, "a")] {
        let (code, hosts, findings) = &results[host];
        assert_eq!((*code, answered(host, "b")), (0, vec![256, 512, 1024]), "{hosts:?}");
        assert_eq!(answered(host, other), all, "{hosts:?}");
        assert_eq!(findings.len(), 1, "{findings:?}");
        let wanted = "datagrams of 1280 bytes do not reach b, those of 1024 bytes do";
        assert!(findings[0].starts_with(wanted), "{findings:?}");
    }
    // It tries what its own interface takes.
    let (code, _, findings) = &results[1];
    assert_eq!((*code, findings.len()), (0, 0), "{findings:?}");
    assert_eq!(answered(1, "a").last(), Some(&1072));
}

#[test]
fn a_table_is_printed_and_bad_options_are_refused() {
    let Some(network) = Setup::new(1).bridged() else { return };
    let run = |arguments: &[&str]| {
        let mut command = network.hosts[0].command(crate::program());
        command.args(["net", "probe"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = Program::start(command).finish();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, stdout, stderr) = run(&["--minutes", "0.005"]);
    assert_eq!((code, stdout.as_str()), (0, "no other host was heard\n"));
    assert!(stderr.contains("asks 239.192.84.79:4479 on eth0 for 300 ms"), "{stderr}");
    let (code, stdout, stderr) = run(&["--minutes", "0.005", "--expect", "z"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("fail  nothing came from z: "), "{stdout}");
    assert!(stderr.contains("not heard both ways: z"), "{stderr}");
    for (arguments, wanted) in [
        (&["--group", "224.0.0.9"][..], "224.0.0.9 is reserved"),
        (&["239.192.84.79"], "tip: name the group with '--group 239.192.84.79'"),
        (&["ff18::7"], "tip: name the group with '--group ff18::7'"),
        (&["--minutes", "0"], "\"0\" is no number of minutes"),
        (&["--interface", "nonesuch0"], "nonesuch0"),
    ] {
        let (code, _, stderr) = run(arguments);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(wanted), "{stderr}");
    }
    let help = Buses::new().succeed(&["net", "probe", "--help"]);
    for part in ["Examples:", "LOST FROM", "--sizes", "net probe: an"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

/// A port that carries a small part of what a host sends at a rate: the host behind it says so, and so does the sender.
#[test]
fn what_is_lost_under_load_is_measured_apart() {
    let Some(network) = Setup::new(2).switched(5) else { return };
    // Hosts that run only half of the time send half of it, and that is still far too much. They lose less than half of what
    // is not too much.
    let bits_per_second = 1_500_000;
    let rate = Some(Rate { bits_per_second, queue: 64 << 10 });
    // Answers, which are short, arrive: they say what came.
    let reach = Reach::LongerThan(600);
    network.switch().set_faults(1, Direction::Out, &Faults { reach, rate, ..Faults::default() });
    let results = probe(&network, &["--minutes", "0.3", "--rate", "8Mbit/s"]);
    let share = |host: usize, name: &str, key: &str| of(&results[host].1, name)[key].as_f64();
    // `a` sends through the slow port to `b`, and `b` to `a` through one that is fast enough.
    for (host, name, key) in [(1, "a", "load_from"), (0, "b", "load_to")] {
        let lost = share(host, name, key).unwrap();
        assert!((0.4..1.0).contains(&lost), "{key}: {lost}");
    }
    for (host, name, key) in [(0, "b", "load_from"), (1, "a", "load_to")] {
        let lost = share(host, name, key).unwrap();
        assert!(lost < 0.4, "{key}: {lost}");
    }
}
