//! A process is killed at each step of the log. Everything that it had been answered must be there, and nothing that it
//! never began.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command as Program, Stdio};

use toroni_testkit::Process;

use super::super::crash_point::CrashPoint;
use super::*;

const DIRECTORY: &str = "TORONI_SEQUENCER_LOG";
const STEPS: usize = 1500;

/// Not a test: what is killed. Prints the number of each step before and after it.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let directory = std::env::var_os(DIRECTORY).expect("started by the test");
    let seed =
        std::env::var("TORONI_SEED").expect("started by the test").parse().expect("a number");
    let mut random = Random::new(seed);
    let log = open(Path::new(&directory));
    let mut model = Model::default();
    let mut out = std::io::stdout().lock();
    for number in 0..STEPS {
        let step = model.choose(&mut random);
        writeln!(out, "begin {number}").and_then(|()| out.flush()).expect("the parent lives");
        take(&log, &step);
        model.take(&step);
        writeln!(out, "end {number}").and_then(|()| out.flush()).expect("the parent lives");
    }
}

#[test]
fn a_kill_at_any_step_loses_nothing_that_was_answered() {
    let mut random = Random::from_environment();
    let mut reached = BTreeMap::new();
    for &step in CrashPoint::ALL {
        for _ in 0..3 {
            let times = match step {
                CrashPoint::BeforeWrite | CrashPoint::MidWrite | CrashPoint::BeforeSync => {
                    random.between(1, 200)
                }
                _ => random.between(1, 8),
            };
            let died = kill_at(step, times, random.number());
            *reached.entry(step.name()).or_insert(0) += u32::from(died);
        }
    }
    for (name, times) in reached {
        assert!(times > 0, "no run reached {name}");
    }
}

/// Returns whether the step was reached.
fn kill_at(step: CrashPoint, times: u64, seed: u64) -> bool {
    let directory = in_memory();
    let name = step.name();
    let mut child = Process::spawn(
        Program::new(std::env::current_exe().expect("the test's program"))
            .args(["--exact", "log::tests::crash::child", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env("TORONI_SEED", seed.to_string())
            .env("TORONI_CRASH", format!("{name}:{times}"))
            .stdout(Stdio::piped()),
    )
    .expect("a child");
    let (mut begun, mut ended) = (0, 0);
    for line in BufReader::new(child.stdout().expect("piped")).lines() {
        match line.expect("text").split_once(' ') {
            Some(("begin", number)) => begun = 1 + number.parse::<usize>().expect("a number"),
            Some(("end", number)) => ended = 1 + number.parse::<usize>().expect("a number"),
            _ => {}
        }
    }
    let status = child.wait_within(wait::LIMIT).expect("waited").expect("its output has ended");

    let mut random = Random::new(seed);
    let mut model = Model::default();
    for _ in 0..ended {
        let step = model.choose(&mut random);
        model.take(&step);
    }
    let log = open(directory.path());
    let found = Model::of(&log);
    let mut with_next = model.clone();
    let mut next = None;
    if begun > ended {
        let step = model.choose(&mut random);
        with_next.take(&step);
        next = Some(step);
    }
    // Of entries that were being appended, some may be there.
    let is_part = match &next {
        Some(Step::Append(_)) => {
            let mut cut = with_next.clone();
            cut.entries.truncate(found.entries.len());
            found.entries.len() >= model.entries.len() && cut == found
        }
        _ => found == model || found == with_next,
    };
    assert!(
        is_part,
        "{name}:{times}, seed {seed}: {ended} steps, then {next:?}\nwanted {model:?}\nfound  {found:?}"
    );

    // The log goes on, and what was torn does not come back.
    let mut model = found;
    for _ in 0..20 {
        let step = model.choose(&mut random);
        take(&log, &step);
        model.take(&step);
    }
    drop(log);
    assert_eq!(Model::of(&open(directory.path())), model, "{name}:{times}, seed {seed}");
    !status.success()
}

/// A log that cannot be synced is often on the same disk as the text that says so.
#[test]
fn a_failed_sync_ends_the_process_although_nothing_can_be_said() {
    const CHILD: &str = "TORONI_TEST_FAILED_SYNC";
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    if std::env::var_os(CHILD).is_some() {
        // A device that cannot be synced.
        super::super::sync_or_die(&full(), std::path::Path::new("log"));
        return;
    }
    let name = std::thread::current().name().expect("the name of the test").to_owned();
    let mut child =
        std::process::Command::new(std::env::current_exe().expect("the test's program"));
    child
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null());
    let status = child.stderr(full()).status().expect("the child starts");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}");
}
