//! The workloads with tiny volumes: output, clean-up and errors.

use crate::support::Runs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use toroni_testkit::{turn, wait::until as wait_until};

const THROUGHPUT: [&str; 11] = [
    "throughput",
    "--writers",
    "1,2",
    "--readers",
    "1,3",
    "--messages",
    "500",
    "--repetitions",
    "1",
    "--sustained",
    "0",
];

#[test]
fn throughput_prints_the_papers_table() {
    let _turn = turn();
    let runs = Runs::new();
    let chart = runs.path().join("throughput.svg");
    let text = runs.succeed(&[&THROUGHPUT[..], &["--plot", chart.to_str().unwrap()]].concat());
    let table = text.split("Throughput, M msg/s").nth(1).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(2).take(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["R", "\\", "W", "1", "2"]);
    assert_eq!((rows[1][0], rows[2][0]), ("1", "3"));
    assert!(rows[1..].iter().flat_map(|row| &row[1..]).all(|cell| number(cell) > 0.0), "{rows:?}");
    for part in ["W × R", "WT ms", "WN  ", "lost = 0", "prototype", "kernel", "one burst of all"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_is_svg(&chart, &["2 writers", "readers", "M msg/s"]);
    assert_eq!(runs.entries(), ["throughput.svg"]);
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap()
}

#[test]
fn throughput_prints_all_variants_as_json() {
    let _turn = turn();
    let runs = Runs::new();
    let all = ["--json", "--as-started", "--one-by-one"];
    let arguments = [&THROUGHPUT[..9], &["--sustained", "1"], &all].concat();
    let lines = json_lines(&runs.succeed(&arguments));
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["workload"]),
        (&"report".into(), &"throughput".into())
    );
    assert_eq!(lines[0]["conditions"]["repetitions"], "1");
    for table in ["burst", "as_started", "one_by_one", "sustained"] {
        let cells: Vec<&Value> = lines.iter().filter(|line| line["table"] == table).collect();
        assert_eq!(cells.len(), 4, "{table}");
        assert!(cells.iter().all(|cell| cell["value"].as_f64().unwrap() > 0.0), "{cells:?}");
        let appendix = format!("{table}_appendix");
        let lost: Vec<&Value> = lines
            .iter()
            .filter(|line| line["table"] == *appendix && line["column"] == "lost")
            .map(|line| &line["value"])
            .collect();
        assert_eq!(lost, [0.0; 4], "{table}");
    }
    // The prototype was measured with one reader only.
    let goals = lines.iter().filter(|line| line["kind"] == "goal");
    assert!(goals.clone().all(|goal| goal["met"].is_boolean() && goal["reference"].is_number()));
    assert_eq!(goals.count(), 4);
    assert!(runs.entries().is_empty());
}

#[test]
fn latency_has_percentiles_and_idle_readers() {
    let _turn = turn();
    let runs = Runs::new();
    let chart = runs.path().join("latency.svg");
    let lines = json_lines(&runs.succeed(&[
        "latency",
        "--json",
        "--writers",
        "2",
        "--readers",
        "2",
        "--repetitions",
        "2",
        "--idle",
        "1",
        "--as-started",
        "--plot",
        chart.to_str().unwrap(),
    ]));
    let cell = |table: &str, column: &str| {
        let found = lines.iter().find(|line| line["table"] == table && line["column"] == column);
        found.and_then(|line| line["value"].as_f64()).unwrap_or_else(|| panic!("{table} {column}"))
    };
    for kind in ["together", "as_started"] {
        let of = |what: &str| cell(&format!("{kind}_{what}"), "2");
        assert!(0.0 < of("p50") && of("p50") <= of("p99") && of("p99") <= of("max"), "{lines:?}");
        assert!(cell(kind, "2") <= of("max"));
        assert_eq!(cell(&format!("{kind}_appendix"), "lost"), 0.0);
    }
    assert!(cell("idle", "waited ms") >= 1000.0);
    assert!(cell("idle", "% of a core") < 50.0);
    assert_eq!(lines[0]["conditions"]["repetitions"], "2");
    assert_is_svg(&chart, &["2 writers", "readers", "µs"]);
    assert_eq!(runs.entries(), ["latency.svg"]);
}

#[test]
fn calls_are_measured_beside_bystanders() {
    let _turn = turn();
    let runs = Runs::new();
    let chart = runs.path().join("calls.svg");
    let plot = ["--plot", chart.to_str().unwrap()];
    let arguments = ["latency", "--quick", "--bystanders", "3", "--repetitions", "1", "--json"];
    let lines = json_lines(&runs.succeed(&[&arguments[..], &plot].concat()));
    let cell = |row: &str, column: &str| {
        let found = lines.iter().find(|line| line["row"] == row && line["column"] == column);
        found.and_then(|line| line["value"].as_f64()).unwrap_or_else(|| panic!("{row} {column}"))
    };
    for row in ["0", "3"] {
        for way in ["back to back", "asleep"] {
            let of = |part: &str| cell(row, &format!("{way}, {part}"));
            assert!(0.0 < of("p50") && of("p50") <= of("p99"), "{lines:?}");
        }
    }
    assert!(cell("ratio, of each repetition", "asleep, p50") > 0.0);
    assert_eq!(lines.iter().filter(|line| line["kind"] == "goal").count(), 2);
    assert_is_svg(&chart, &["bystanders", "back to back", "µs"]);
    assert_eq!(runs.entries(), ["calls.svg"]);
}

fn assert_is_svg(path: &Path, texts: &[&str]) {
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(texts.iter().all(|text| svg.contains(text)) && !svg.contains("NaN"));
}

#[test]
fn stress_loses_nothing() {
    let _turn = turn();
    let runs = Runs::new();
    let chart = runs.path().join("stress.svg");
    let text = runs.succeed(&[
        "stress",
        "--writers",
        "3",
        "--readers",
        "4",
        "--messages",
        "400",
        "--repetitions",
        "2",
        "--plot",
        chart.to_str().unwrap(),
    ]);
    assert!(text.contains("each of 4 readers got all of 1200 messages, in order"), "{text}");
    assert!(text.contains("CPU time of all processes") && text.contains("3 × 4"), "{text}");
    // There are goals only for the paper's numbers of writers and readers.
    assert!(!text.contains("MISSED") && !text.contains("  met"));
    assert_is_svg(&chart, &["measured", "prototype"]);
    assert_eq!(runs.entries(), ["stress.svg"]);
}

#[test]
fn a_chart_that_cannot_be_written_does_not_cost_the_report() {
    let _turn = turn();
    let runs = Runs::new();
    // It can be opened, but every write to it fails, as on a file system that became full.
    let output = runs.run(&[&THROUGHPUT[..], &["--plot", "/dev/full"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write /dev/full"), "{said}");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("Throughput, M msg/s") && report.contains("lost = 0"), "{report}");
}

/// The first run has a host, a writer and a reader, and is idle for ten minutes.
const IDLE: [&str; 5] = ["latency", "--idle", "600", "--readers", "1"];

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let _turn = turn();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let runs = Runs::new();
        let plot = runs.path().join("plot.svg");
        let mut bench = runs.start(&[&IDLE[..], &["--plot", plot.to_str().unwrap()]].concat());
        wait_until("the children run", || children(bench.id()).len() >= 3);
        bench.signal(signal);
        let output = bench.finish();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "toroni-bench: interrupted\n");
        assert!(output.stdout.is_empty() && runs.entries().is_empty());
    }
}

#[test]
fn children_die_with_their_parent_and_leftovers_are_removed() {
    let _turn = turn();
    let runs = Runs::new();
    let mut bench = runs.start(&IDLE);
    wait_until("the children run", || children(bench.id()).len() >= 3);
    let orphans = children(bench.id());
    bench.signal(Signal::KILL);
    bench.wait();
    wait_until("all are dead", || orphans.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(runs.entries().len(), 1, "SIGKILL leaves no time to clean up");
    runs.succeed(&THROUGHPUT);
    assert!(runs.entries().is_empty());
}

#[test]
fn a_child_that_dies_ends_the_benchmark() {
    let _turn = turn();
    let runs = Runs::new();
    let mut bench = runs.start(&IDLE);
    wait_until("the children run", || children(bench.id()).len() >= 3);
    let victim = children(bench.id()).into_iter().max().unwrap();
    kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    let output = bench.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("(pid {victim}) ended with signal: 9")), "{said}");
    assert!(output.stdout.is_empty() && runs.entries().is_empty());
}

#[test]
fn invalid_benchmarks_are_rejected() {
    let _turn = turn();
    let runs = Runs::new();
    for arguments in [
        &[][..],
        &["throughput", "--writers", "17"],
        &["throughput", "--quick", "--full"],
        &["stress", "--repetitions", "0"],
        &["latency", "--bystanders", "0"],
        &["latency", "--bystanders", "4", "--readers", "1"],
        &["speed"],
    ] {
        assert_eq!(runs.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let output = runs.run(&["stress", "--plot", "/nonexistent/chart.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cannot write /nonexistent/chart.svg")
    );
    // Before TORONI_DIR, which is set.
    let output = runs.run(&["stress", "--quick", "--dir", "/dev/null/runs"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null"), "{output:?}");
    let output = runs.run_with_input(&["child"], b"hello\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no command for people"));
    assert!(runs.entries().is_empty());
}

/// Returns the child processes of a process, without zombies.
fn children(parent: u32) -> Vec<i32> {
    let wanted = parent.to_string();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(state, parent)| state != "Z" && parent == wanted))
        .collect()
}

fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

/// Returns the state and the parent of a process.
fn stat(pid: i32) -> Option<(String, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ').map(str::to_owned);
    Some((fields.next()?, fields.next()?))
}
