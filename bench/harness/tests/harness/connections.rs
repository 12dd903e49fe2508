//! A column of `proactor` that fails is missing with its error, and the others are measured. The columns are shell scripts,
//! because no adapter should do such things.

use clap::Parser;
use std::path::PathBuf;
use toroni_bench_harness::Failure;
use toroni_bench_harness::experiment::connections::{Column, Kind, Proactor};
use toroni_bench_harness::process_group::{Launch, NoObserver, Program};
use toroni_bench_harness::report::Report;
use toroni_testkit::Directory;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    measured: Proactor,
}

/// A column whose process does this when the gate has opened. It has the gate before it is ready: afterwards, the gate may
/// already be gone.
fn column(name: &str, kind: Kind, at_work: &str) -> Column {
    let script = format!(
        r#"read -r job; place=${{job#*'"path":"'}}; place=${{place%%\"*}}
        about='{{"version":"0","settings":"","guarantees":{{"lossless":true,"total_order":true,"in_place":true}}}}'
        case $job in
            *'"role":"Host"'*) echo "{{\"toroni_bench\":\"ready\",\"about\":$about}}"; cat >/dev/null; exit ;;
        esac
        exec 3<"$place/gate"
        echo '{{"toroni_bench":"ready","about":null}}'; cat <&3
        {at_work}"#
    );
    let program =
        Program { path: PathBuf::from("/bin/sh"), arguments: vec!["-c".to_owned(), script] };
    Column { name: name.to_owned(), kind, program: Ok(program) }
}

const MOVES: &str = r#"echo '{"toroni_bench":"result","value":{"bytes":2000000,"operations":10,"usage":{"user_ns":1,"system_ns":1,"sleeps":1}}}'"#;
const RESETS: &str =
    r#"echo '{"toroni_bench":"failed","text":"cannot read: Connection reset by peer"}'; exit 1"#;

/// Measures a row of 100 ms twice, and leaves nothing behind.
fn compare(columns: &[Column]) -> Result<Report, Failure> {
    let arguments = ["proactor", "--rows", "1", "--repetitions", "2", "--milliseconds", "100"];
    let root = Directory::new();
    let nothing = Program { path: PathBuf::from("/bin/false"), arguments: Vec::new() };
    let mut launch = Launch::new(nothing, "script", &NoObserver);
    launch.root = root.path().to_path_buf();
    let outcome = Line::parse_from(arguments).measured.compare(&launch, columns);
    assert_eq!(root.entries(), [""; 0]);
    outcome
}

#[test]
fn a_column_that_fails_is_missing_and_the_others_are_measured() {
    // The second one fails in its second run only: what it has measured before does not count.
    let directory = Directory::new();
    let once = format!(
        "if mkdir {} 2>/dev/null; then {MOVES}; else {RESETS}; fi",
        directory.join("x").display()
    );
    let report = compare(&[
        column("tokio apart", Kind::Rival, RESETS),
        column("tokio pairs", Kind::Rival, &once),
        column("auto", Kind::Auto, MOVES),
        column("tp-reactor", Kind::Reactor, MOVES),
    ])
    .unwrap();
    let (label, cells) = &report.tables[0].rows[0];
    let shown: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(shown[..4], ["MISSING", "MISSING", "20.0", "20.0"]);
    let runs = cells[2].summary.map(|summary| summary.count);
    assert_eq!(runs, Some(2), "auto was measured in each repetition");
    let why = "sender 0 failed: cannot read: Connection reset by peer";
    let notes = ["tokio apart", "tokio pairs"]
        .map(|column| format!("{column} is MISSING in {label}: {why}"));
    assert_eq!(report.notes, notes);
    let reference = report.goals[0].reference.as_ref().map(|(_, whose)| whose.as_str());
    assert_eq!(reference, Some("tp-reactor"), "{:?}", report.goals);
}

#[test]
fn if_all_columns_fail_nothing_was_measured() {
    let failure = compare(&[column("auto", Kind::Auto, RESETS)]).unwrap_err().to_string();
    assert!(failure.starts_with("auto is MISSING in 1 × 1, 512 B, w 1024: sender 0"), "{failure}");
}
