//! The published experiments, with tiny volumes.

use crate::support::Runs;
use serde_json::Value;
use toroni_testkit::turn;

/// A workload with arguments for a short run, and the expected parts of its report.
struct Case {
    arguments: &'static [&'static str],
    /// Parts of the text output.
    shown: &'static [&'static str],
    /// The tables in the JSON output, and the rows of the first table.
    tables: &'static [&'static str],
    rows: &'static [&'static str],
    goals: usize,
}

const CASES: [Case; 8] = [
    Case {
        arguments: &["rmp-tcp", "--sizes", "8,1000", "--messages", "2000"],
        shown: &["TCP, buffered", "bursts", "1,000 B", "22.0 (the prototype)"],
        tables: &["ratio", "time"],
        rows: &["8 B", "1,000 B"],
        goals: 2,
    },
    Case {
        arguments: &["p2mp", "--objects", "50001", "--receivers", "2", "--packets", "4"],
        shown: &[
            "reliably transfer 50,001 objects",
            "rep. 2",
            "stdev",
            "queue, adaptive mutex",
            "TCP",
        ],
        tables: &["seconds", "comparison"],
        rows: &["Toroni", "queue, standard mutex", "queue, adaptive mutex", "TCP, send and recv"],
        goals: 2,
    },
    Case {
        arguments: &["sweep", "--objects", "20001", "--batches", "100000,200", "--receivers", "2"],
        shown: &[
            "Toroni: Time in seconds",
            "queue, standard mutex: Time",
            "6.03 (the published queue)",
        ],
        tables: &["toroni", "queue", "ratio"],
        rows: &["100,000", "200"],
        goals: 1,
    },
    Case {
        arguments: &["fanout", "--subscribers", "1,3", "--messages", "200", "--interval", "20us"],
        shown: &["each more", "99.999% max", "UDP multicast, a socket each", "0 over Toroni"],
        tables: &[
            "fastest",
            "mean",
            "toroni-first",
            "toroni-last",
            "router-last",
            "multicast-last",
        ],
        rows: &["1", "3", "each more"],
        goals: 3,
    },
    Case {
        arguments: &["bystanders", "--quick", "--bystanders", "3"],
        shown: &[
            "bystanders of other topics",
            "bystanders of the same topic",
            "500 messages of 64 bytes a second",
        ],
        tables: &["processor_others", "processor_same", "sleeps_others", "sleeps_same"],
        rows: &["3"],
        goals: 0,
    },
    Case {
        arguments: &[
            "scale",
            "--messages",
            "500",
            "--subscribers",
            "1,2",
            "--topics",
            "1,30",
            "--patterns",
            "1,20",
            "--sizes",
            "8,100KiB",
            "--capacities",
            "64KiB,1MiB",
        ],
        shown: &["Patterns of the subscriber", "no subscriber", "4 that want it", "100 KiB"],
        tables: &["subscribers", "topics", "patterns", "size", "ring", "wanted"],
        rows: &["1", "2"],
        goals: 0,
    },
    Case {
        arguments: &["proactor", "--rows", "3,2", "--milliseconds", "30", "--costs"],
        shown: &[
            "auto",
            "epoll shared",
            "ppoll dedicated",
            "tp-reactor",
            "auto pairs",
            "auto each apart",
            "reactor apart",
            "congestion control",
            "auto, as dealt best / the thread-pool reactor",
            "auto reaches the best reactor or runtime",
            "spin 10 µs",
        ],
        tables: &["rates", "user", "system", "sleeps", "comparison"],
        rows: &[
            "1 × 1, 8192 B, w 8192",
            "1 × 1, 512 B, w 1024, sleep 10 µs",
            "1 × 1, 512 B, w 1024, spin 10 µs",
        ],
        goals: 8,
    },
    Case {
        // The other classes need rights.
        arguments: &["jitter", "--minutes", "0.001", "--classes", "other", "--receivers", "1,2"],
        shown: &["real-time processes run", "stall = \"", "did not come:", "too few samples"],
        tables: &["latency", "contention"],
        rows: &[
            "gaps, other",
            "timer, other",
            "datagram, other",
            "bus, other",
            "1 receiver, other",
            "2 receivers, other",
        ],
        goals: 0,
    },
];

#[test]
fn every_workload_has_a_case() {
    let _turn = turn();
    for workload in toroni_bench_harness::registry::all() {
        let is_tested = ["throughput", "latency", "stress"].contains(&workload.name)
            || CASES.iter().any(|case| case.arguments[0] == workload.name);
        assert!(is_tested, "{} is in no test: add a case here", workload.name);
    }
}

#[test]
fn experiments_are_measured_and_reported() {
    let _turn = turn();
    for case in CASES {
        let runs = Runs::new();
        // Only one workload prints single repetitions.
        let repetitions = if case.shown.contains(&"rep. 2") { "2" } else { "1" };
        let report = run(&runs, case.arguments, &["--repetitions", repetitions]);
        for part in case.shown.iter().chain(&["machine", "kernel", "in turn in each"]) {
            let squeezed = report.split_whitespace().collect::<Vec<_>>().join(" ");
            let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed.contains(&part), "{part} in {report}");
        }
        let verdicts = report.lines().filter(|line| {
            [" met", " MISSED", " NOISE"].iter().any(|verdict| line.ends_with(verdict))
        });
        assert_eq!(verdicts.count(), case.goals, "{report}");
        // A machine may lack an engine, but none of them may fail.
        assert!(!report.contains("MISSING in "), "{report}");
        assert!(runs.entries().is_empty(), "{:?} left {:?}", case.arguments, runs.entries());
    }
}

#[test]
fn experiments_print_json_and_draw_charts() {
    let _turn = turn();
    for case in CASES {
        let runs = Runs::new();
        let plot = runs.path().join("plot.svg");
        let plotting = ["--repetitions", "1", "--json", "--plot", plot.to_str().unwrap()];
        let lines = run(&runs, case.arguments, &plotting);
        let lines = json_lines(&lines);
        assert_eq!(
            (&lines[0]["kind"], &lines[0]["workload"]),
            (&"report".into(), &case.arguments[0].into())
        );
        let cells: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "cell").collect();
        for table in case.tables {
            let of_table: Vec<_> = cells.iter().filter(|cell| cell["table"] == *table).collect();
            assert!(of_table.iter().any(|cell| cell["value"].is_number()), "{table} in {cells:?}");
        }
        let first = cells.iter().filter(|cell| cell["table"] == case.tables[0]);
        let mut rows: Vec<&str> = first.map(|cell| cell["row"].as_str().unwrap()).collect();
        rows.dedup();
        assert_eq!(rows, case.rows);
        let goals = lines.iter().filter(|line| line["kind"] == "goal" && line["met"].is_boolean());
        assert_eq!(goals.count(), case.goals);

        let svg = std::fs::read_to_string(&plot).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // Lines with marks, or several bars.
        assert!(svg.contains("<circle") || svg.matches("<rect").count() > 4, "{svg}");
        assert!(!svg.contains("NaN"));
        assert_eq!(runs.entries(), ["plot.svg"]);
    }
}

/// The published load has only receivers that are compared. They say what to configure, too.
#[test]
fn the_published_load_of_jitter_is_repeated() {
    let _turn = turn();
    let runs = Runs::new();
    let arguments = ["jitter", "--published", "--minutes", "0.005", "--classes", "other"];
    let report = run(&runs, &arguments, &["--repetitions", "1"]);
    // 5 senders of 10 messages a second, for 0.3 s, to 10 receivers.
    let is_row = |line: &str| line.starts_with("10 receivers, other ") && line.ends_with(" 150");
    assert!(report.lines().any(|line| is_row(line.trim())), "{report}");
    let advice = report.lines().filter(|line| line.contains(": stall = \"")).count();
    assert_eq!(advice, 2, "{report}");
}

#[test]
fn a_peer_that_is_missing_is_named_beside_toroni() {
    let _turn = turn();
    let runs = Runs::new();
    let peer = ["--peer", "nng", "--peers-directory", "/nonexistent"];
    let arguments =
        [&["bystanders", "--quick", "--bystanders", "1", "--others"][..], &peer].concat();
    let report = run(&runs, &arguments, &["--repetitions", "1"]);
    for part in
        ["MISSING: nng: there is no /nonexistent", "bench/install-peers", "MISSING, see below"]
    {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert!(!report.contains("the same topic"), "{report}");
    assert!(runs.entries().is_empty());
}

/// Values that are kept, without peers: the times of Toroni, its goals, and a chart.
#[test]
fn values_are_measured_beside_messages_that_are_not_retained() {
    let _turn = turn();
    let runs = Runs::new();
    let plot = runs.path().join("plot.svg");
    let options = ["--repetitions", "1", "--json", "--plot", plot.to_str().unwrap()];
    let peer = ["--peer", "nats", "--peers-directory", "/nonexistent"];
    let printed = run(&runs, &["peers", "values", "--quick"], &[&peer[..], &options].concat());
    let values = Values(json_lines(&printed));
    for column in VALUES {
        assert!(values.of("toroni", column).unwrap() > 0.0, "{column} in {printed}");
        assert_eq!(values.of("nats", column), None);
    }
    for column in &VALUES[..2] {
        assert!(values.of("toroni, not retained", column).unwrap() > 0.0, "{column}");
        assert!(values.of("toroni / not retained", column).unwrap() > 0.0, "{column}");
    }
    assert_eq!(values.of("toroni, not retained", "get, 64 B"), None, "it cannot be read");
    let of_kind = |kind: &'static str| values.0.iter().filter(move |line| line["kind"] == kind);
    let goals: Vec<_> = of_kind("goal").map(|goal| goal["what"].as_str().unwrap()).collect();
    let expected =
        ["update, 64 B: ≤ 1.15 ×", "update, 1024 B: ≤ 1.8 ×", "get, 64 B", "join of 500, 64 B"];
    assert_eq!(goals, expected);
    assert!(printed.contains("wrong = 0") && !printed.contains("FAILED"), "{printed}");
    let warm_up = "a tenth of the updates or reads, at most 1000, or one join;";
    assert!(printed.contains(warm_up), "{printed}");
    assert!(printed.contains("MISSING: nats: there is no /nonexistent"), "{printed}");
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(VALUES.iter().all(|column| svg.contains(column)) && !svg.contains("NaN"), "{svg}");
    assert_eq!(runs.entries(), ["plot.svg"]);
}

/// Builds two peers that keep values, which takes two minutes.
#[test]
fn values_are_measured_beside_peers() {
    let _turn = turn();
    if !toroni_testkit::long::is_asked() {
        return;
    }
    let runs = Runs::new();
    let peers = ["--peer", "nats", "--peer", "mosquitto"];
    let arguments = [&["peers", "values", "--quick", "--json"][..], &peers].concat();
    let printed = run(&runs, &arguments, &["--repetitions", "1"]);
    let values = Values(json_lines(&printed));
    for (peer, column) in
        ["nats", "mosquitto"].iter().flat_map(|peer| VALUES.map(|column| (peer, column)))
    {
        assert!(
            values.of(peer, column).is_some_and(|value| value > 0.0),
            "{peer}, {column}: {printed}"
        );
    }
    assert!(printed.contains("wrong = 0"), "{printed}");
}

/// The columns of `peers values`.
const VALUES: [&str; 4] = ["update, 64 B", "update, 1024 B", "get, 64 B", "join of 500, 64 B"];

/// What `peers values` has printed.
struct Values(Vec<Value>);

impl Values {
    fn of(&self, row: &str, column: &str) -> Option<f64> {
        let is_it = |line: &&Value| {
            line["table"] == "values" && line["row"] == row && line["column"] == column
        };
        self.0.iter().find(is_it)?["value"].as_f64()
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Builds a peer, which takes a minute.
#[test]
fn a_peer_is_measured_beside_toroni() {
    let _turn = turn();
    if !toroni_testkit::long::is_asked() {
        return;
    }
    let runs = Runs::new();
    let arguments = ["bystanders", "--quick", "--bystanders", "2", "--peer", "zeromq", "--json"];
    let printed = run(&runs, &arguments, &["--repetitions", "1"]);
    let lines = json_lines(&printed);
    for table in ["processor_others", "processor_same"] {
        for column in ["toroni", "zeromq"] {
            let value = lines.iter().find_map(|line| {
                let is_it = line["table"] == table && line["column"] == column;
                is_it.then(|| line["value"].as_f64()).flatten()
            });
            assert!(value.is_some_and(|value| value > 0.0), "{table}, {column} in {printed}");
        }
    }
    assert!(runs.entries().is_empty());
}

#[test]
fn invalid_experiments_are_rejected() {
    let _turn = turn();
    let runs = Runs::new();
    for (arguments, said) in [
        (&["rmp-tcp", "--sizes", "7"][..], "use 8 bytes or more"),
        (&["rmp-tcp", "--sizes", "1MiB", "--capacity", "1MiB"], "or a larger ring"),
        (&["p2mp", "--batch", "100"], "a batch has 200 bytes"),
        (&["p2mp", "--batch", "1MiB", "--capacity", "1MiB"], "or a larger ring"),
        (&["p2mp", "--receivers", "16"], "16"),
        (&["sweep", "--batches", "1000,1GiB"], "or a larger ring"),
        (&["fanout", "--interval", "2s"], "from 1us to 1s"),
        (&["fanout", "--subscribers", "0"], "0"),
        (&["bystanders", "--rate", "0"], "0"),
        (&["bystanders", "--bystanders", "1001"], "1001"),
        (&["bystanders", "--same", "--others"], "cannot be used with"),
        (&["bystanders", "--peer", "aeron"], "no peer with topics \"aeron\": use some of zeromq"),
        (&["scale", "--sizes", "4MiB"], "or a larger ring"),
        (&["scale", "--capacities", "100000"], "use a power of two"),
        (&["proactor", "--rows", "13"], "use some of 1 to 12"),
        (&["proactor", "--columns", "auto sideways"], "no column \"auto sideways\""),
        (&["jitter", "--minutes", "0"], "from 0.001 to 120"),
        (&["jitter", "--published", "--only", "gaps"], "cannot be used with"),
        (&["jitter", "--published", "--receivers", "3"], "cannot be used with"),
    ] {
        let output = runs.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{arguments:?}: {output:?}");
    }
    assert!(runs.entries().is_empty());
}

fn run(runs: &Runs, arguments: &[&str], more: &[&str]) -> String {
    runs.succeed(&[arguments, more].concat())
}
