//! The demo passes, and leaves nothing behind, however it ends.

use crate::support::{Buses, json_lines, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use toroni_testkit::turn;

fn run(buses: &Buses, arguments: &[&str]) -> Value {
    let mut all = vec!["demo", "--json"];
    all.extend(arguments);
    let output = buses.run(&all);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert!(buses.entries().is_empty(), "{:?}", buses.entries());
    json_lines(&output.stdout).remove(0)
}

#[test]
fn all_checks_pass() {
    let _turn = turn();
    let buses = Buses::new();
    let result = run(&buses, &["--messages", "100000"]);
    assert_eq!(result["passed"], true);
    assert_eq!(result["messages"], 100_000);
    assert_eq!(result["publishers"], 3);
    assert_eq!(result["subscribers"], 4);
    let victim = result["victim_messages"].as_u64().unwrap();
    assert!(victim >= result["victim_confirmed_messages"].as_u64().unwrap() && victim > 0);
    let checks = result["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 5);
    assert!(checks.iter().all(|check| check["passed"] == true));
    // Each of 2000 messages reached each of 4 subscribers.
    assert_eq!(result["latency_paced_ns"]["count"], 8000);
    assert!(result["latency_full_speed_ns"]["p50"].as_u64().unwrap() > 0);
}

#[test]
fn it_works_at_the_edges() {
    let _turn = turn();
    let buses = Buses::new();
    let few = ["--messages", "1", "--publishers", "3", "--subscribers", "1"];
    assert_eq!(run(&buses, &few)["passed"], true);
    let large = ["--messages", "50", "--publishers", "2", "--subscribers", "2", "--size", "1MiB"];
    assert_eq!(run(&buses, &large)["size"], 1 << 20);
    let odd = ["--messages", "1000", "--publishers", "1", "--subscribers", "3", "--size", "17"];
    assert_eq!(run(&buses, &odd)["passed"], true);
}

#[test]
fn the_text_has_a_verdict() {
    let _turn = turn();
    let buses = Buses::new();
    let text = buses.succeed(&["demo", "--messages", "2000"]);
    for word in [
        "at a steady rate",
        "in total",
        "THROUGHPUT",
        "P99.9",
        "one identical order",
        "SIGKILL",
        "PASSED",
    ] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
}

#[test]
fn a_signal_leaves_nothing() {
    let _turn = turn();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let buses = Buses::new();
        let demo = buses.start(&["demo", "--messages", "1000000000"]);
        wait_until("the demo runs", || processes(&buses) >= 9);
        demo.signal(signal);
        let output = demo.finish();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty());
        assert!(buses.entries().is_empty(), "{:?}", buses.entries());
        assert_eq!(processes(&buses), 0);
    }
}

#[test]
fn its_processes_die_with_it() {
    let _turn = turn();
    let buses = Buses::new();
    let demo = buses.start(&["demo", "--messages", "1000000000"]);
    wait_until("the demo runs", || processes(&buses) >= 9);
    demo.signal(Signal::KILL);
    wait_until("all processes have ended", || processes(&buses) == 0);
    // No process was left to remove the bus: `toroni clean` does.
    assert_eq!(buses.entries().len(), 1);
    // A dying process loses its memory, by which this test finds it, before its leases.
    wait_until("clean removes it", || {
        buses.succeed(&["clean"]);
        buses.entries().is_empty()
    });
}

#[test]
fn the_death_of_another_process_is_no_success() {
    let _turn = turn();
    let buses = Buses::new();
    let demo = buses.start(&["demo", "--messages", "1000000000"]);
    let mut victim = None;
    wait_until("a subscriber runs", || {
        victim = pids(&buses).into_iter().find(|(_, line)| line.contains("demo-subscriber"));
        victim.is_some() && processes(&buses) >= 9
    });
    let pid = rustix::process::Pid::from_raw(victim.unwrap().0).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let output = demo.finish();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended unexpectedly"), "{output:?}");
    assert!(buses.entries().is_empty());
    assert_eq!(processes(&buses), 0);
}

/// Counts the processes of a demo on these buses: the demo itself and its children, but no zombies.
fn processes(buses: &Buses) -> usize {
    pids(buses).len()
}

/// Returns their process IDs and command lines.
fn pids(buses: &Buses) -> Vec<(i32, String)> {
    let wanted = format!("TORONI_DIR={}\0", buses.path().display());
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let ours = String::from_utf8_lossy(&environment).contains(&wanted);
            (ours && line.contains("demo")).then_some((pid, line))
        })
        .collect()
}
