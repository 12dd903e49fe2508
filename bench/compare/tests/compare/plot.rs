//! `--plot` is refused before the measurement if no chart can come of it.

use std::path::Path;
use std::process::Command;
use toroni_testkit::Directory;

/// Runs the program, and returns its exit code and what it said. None of these runs measures anything.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_toroni-bench")).args(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?} measured");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn reports_without_a_chart_are_not_plotted() {
    let directory = Directory::new();
    let plot = directory.join("chart.svg");
    let (code, said) = refused(&["floors", "--quick", "--plot", text(&plot)]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unexpected argument '--plot'"), "{said}");
    // The unknown peer would end the program, too, but only once it begins to measure.
    let peers = ["peers", "many", "--peer", "nonsense", "--plot", text(&plot)];
    let (code, said) = refused(&peers);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the report of many has no chart: leave out --plot"), "{said}");
    assert!(!plot.exists());
}

/// No experiment between hosts has a chart.
#[test]
fn experiments_between_hosts_are_not_plotted() {
    for experiment in [&["net", "crybaby"][..], &["net"], &["sequencer"]] {
        let (code, said) = refused(&[experiment, &["--plot", "chart.svg"]].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("unexpected argument '--plot'"), "{said}");
    }
}

#[test]
fn a_chart_in_another_format_is_refused() {
    let directory = Directory::new();
    for command in ["throughput", "fanout", "peers", "proactor"] {
        for file in ["x.png", "x.svg.pdf"] {
            let plot = directory.join(file);
            let (code, said) = refused(&[command, "--plot", text(&plot)]);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains("a chart is written as SVG"), "{said}");
            assert!(!plot.exists());
        }
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for option in ["--help", "--version"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-bench"));
        let output = command.arg(option).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
}

#[test]
fn the_files_of_all_charts_are_checked_first() {
    for workloads in [&["throughput"][..], &["latency"], &[]] {
        let options = ["--peer", "nonsense", "--plot", "/nonexistent/chart.svg"];
        let (code, said) = refused(&[&["peers"], workloads, &options].concat());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("cannot write /nonexistent/chart"), "{said}");
    }
    // If there are several reports, each has a file of its own.
    let directory = Directory::new();
    std::fs::create_dir_all(directory.join("chart-peers-latency.svg")).unwrap();
    let plot = directory.join("chart.svg");
    let (code, said) = refused(&["peers", "--peer", "nonsense", "--plot", text(&plot)]);
    let left = directory.entries().len();
    assert_eq!((code, left), (Some(1), 1), "{said}");
    assert!(said.contains("chart-peers-latency.svg: "), "{said}");
    let (code, said) = refused(&["proactor", "--rows", "99", "--plot", "/nonexistent/chart.svg"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot write /nonexistent/chart.svg"), "{said}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
