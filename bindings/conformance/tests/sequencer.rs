//! Programs of all languages come to the same state from the events of one feed, and wait for those of their own commands.
//!
//! The feed is real: a node with the only member. `TORONI_CONFORMANCE_SEQUENCER` is the folder with the program `toroni`, and
//! in `examples` the examples of the sequencer in Rust; the other variables are those of `languages.rs`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use toroni::{BusConfig, Start, Subscriber};
use toroni_testkit::wait::LIMIT;
use toroni_testkit::{Directory, Program, Random, port, wait};

/// Returns what a variable says. Without it, the test does not run, or fails if all languages must.
fn path_of(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        assert!(std::env::var_os("TORONI_CONFORMANCE_ALL").is_none(), "{variable} is not set");
        eprintln!("NOT RUN in part: {variable} is not set; `cargo xtask bindings` runs it");
    }
    found
}

/// The programs of the languages that are here, by the name of the language. `kind` is a folder.
fn programs(kind: &str, name: &str) -> Vec<(&'static str, Command)> {
    let mut programs = vec![];
    if let Some(folder) = path_of("TORONI_CONFORMANCE_C") {
        let name =
            if kind == "conformance" { format!("conformance_{name}_c") } else { name.into() };
        programs.push(("c", Command::new(folder.join(name))));
    }
    if let Some(python) = path_of("TORONI_CONFORMANCE_PYTHON") {
        let mut command = Command::new(python);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python").join(kind);
        command.arg(folder.join(format!("{name}.py")));
        programs.push(("python", command));
    }
    programs
}

/// A node with a feed `orders`, whose only member it is.
struct Feed {
    directory: Directory,
    programs: PathBuf,
    _node: Program,
}

impl Feed {
    fn start() -> Option<Self> {
        let programs = path_of("TORONI_CONFORMANCE_SEQUENCER")?;
        let directory = Directory::new();
        // The realm is the test's own: on a host, a source id of a realm belongs to one process.
        let realm = directory.path().file_name().unwrap().to_str().unwrap();
        let text = format!(
            "[node]\nrealm = '{realm}'\nname = 'host'\nstate = 'state'\n[node.bus]\ndirectory = '{}'\n\
             [sequencer]\nfeed = 'orders'\nmembers = ['a={}']\nmember = 'a'\n",
            directory.path().display(),
            port::free(),
        );
        let file = directory.join("node.toml");
        std::fs::write(&file, text).unwrap();
        let toroni = |arguments: &[&str]| {
            let mut command = Command::new(programs.join("toroni"));
            command.args(arguments).arg("--config").arg(&file);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let mut node = Program::start_with_ready_fd(toroni(&["node"]));
        node.wait_ready();
        // The member may be too busy to answer in time, and may have begun all the same.
        wait::until("the group begins", || {
            let output = toroni(&["sequencer", "init"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            output.status.success() || said.contains("has begun already")
        });
        wait::until("there is a leader", || {
            toroni(&["sequencer", "status"]).output().unwrap().status.success()
        });
        Some(Self { directory, programs, _node: node })
    }

    fn run(&self, mut command: Command, arguments: &[&str]) -> Program {
        command.args(arguments).env("TORONI_DIR", self.directory.path());
        command.env_remove("TORONI_FEED").env("PYTHONUTF8", "1");
        Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts an example in each language.
    fn examples(&self, name: &str, arguments: &[&str]) -> Vec<(&'static str, Program)> {
        let rust = Command::new(self.programs.join("examples").join(name));
        let all = [("rust", rust)].into_iter().chain(programs("examples", name));
        all.map(|(language, command)| (language, self.run(command, arguments))).collect()
    }

    fn events(&self) -> Subscriber {
        let config = BusConfig::new().directory(self.directory.path());
        config
            .open("orders")
            .unwrap()
            .subscriber()
            .pattern("**")
            .start(Start::Oldest)
            .build()
            .unwrap()
    }
}

/// Reads lines until this many of them are not trades.
fn lines(program: &mut Program, events: usize) -> Vec<String> {
    let mut lines = vec![];
    let mut found = 0;
    while found < events {
        let line = program.line().expect("it continues");
        found += usize::from(!line.contains(" trade "));
        lines.push(line);
    }
    lines
}

fn check_equal(all: &[(&str, Vec<String>)]) {
    let (first, wanted) = &all[0];
    for (language, lines) in &all[1..] {
        for (line, wanted) in lines.iter().zip(wanted) {
            assert_eq!(line, wanted, "{language}, and {first}");
        }
    }
}

/// Orders that are valid, and what only looks like one: all must agree on that, too.
fn order(random: &mut Random) -> String {
    const ODD: [&str; 14] = [
        "",
        "buy",
        "buy 100",
        "buy 100 ",
        "buy  100 5",
        "sell 1_0 5",
        "sell ١٠ 5",
        "buy -0 1",
        "buy 100 -0",
        "sell 1099511627776 1",
        "buy 1 18446744073709551616",
        "cancel +00000000000000000000000000000000000000000000000000000000000000000000003 x",
        "cancel\t1",
        "hold 100 5",
    ];
    match random.below(8) {
        0 => format!("cancel {}", random.below(100)),
        1 => (*random.pick(&ODD)).to_owned(),
        what => {
            let side = if what % 2 == 0 { "buy" } else { "sell" };
            format!("{side} {} {}", random.between(90, 110), random.between(1, 9))
        }
    }
}

#[test]
fn order_books_of_all_languages_are_equal() {
    const ORDERS: usize = 80;
    let Some(feed) = Feed::start() else { return };
    let mut books = feed.examples("order_book", &[]);
    let mut random = Random::from_environment();
    for _ in 0..ORDERS {
        for (_, book) in &mut books {
            book.tell(&order(&mut random));
        }
    }
    let events = books.len() * ORDERS;
    // A program that starts later comes to the same state.
    let late = feed.examples("order_book", &[]);
    let all = books.into_iter().chain(late);
    let all = all.map(|(language, mut book)| (language, lines(&mut book, events)));
    let all: Vec<_> = all.collect();
    check_equal(&all);
    let one = &all[0].1;
    for what in [" trade ", " digest ", " no order, digest "] {
        assert!(one.iter().any(|line| line.contains(what)), "{what}: {one:?}");
    }
}

#[test]
fn counters_of_all_languages_are_equal() {
    let Some(feed) = Feed::start() else { return };
    let numbers = ["3", "-1", "9223372036854775807", "+0007"];
    let mut counters = feed.examples("counter", &numbers);
    let events = counters.len() * numbers.len();
    let each = i128::from(i64::MAX) + 9;
    let sum = each * counters.len() as i128;
    let all: Vec<_> = counters
        .iter_mut()
        .map(|(language, counter)| (*language, lines(counter, events)))
        .collect();
    check_equal(&all);
    let wrapped =
        i64::from_ne_bytes(u64::try_from(sum & i128::from(u64::MAX)).unwrap().to_ne_bytes());
    assert!(all[0].1.last().unwrap().ends_with(&format!(": {wrapped}")), "{all:?}");
}

#[test]
fn each_language_learns_the_number_of_its_event() {
    let Some(feed) = Feed::start() else { return };
    let mut events = feed.events();
    for (language, command) in programs("conformance", "command") {
        let said = feed.run(command, &["orders", "new/order", language]).succeed();
        let message = events.receive_timeout(LIMIT).unwrap().expect("the event");
        let origin = message.origin().unwrap();
        let wanted =
            format!("{}\t{}\t1\t{}", origin.series, origin.number, message.number().unwrap());
        assert_eq!((said.trim(), message.text().as_ref()), (wanted.as_str(), language));
    }
    assert!(events.receive_timeout(Duration::from_millis(10)).unwrap().is_none());
}
