//! Children that misbehave: a run ends with an error that says which and how, and nothing stays behind.
//! They are shell scripts, since no adapter should do such things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use toroni_bench_harness::Failure;
use toroni_bench_harness::process_group::{
    Begin, Launch, NoObserver, Observer, Outcome, Program, run,
};
use toroni_bench_harness::sequence::Lengths;
use toroni_bench_harness::transport::{Setup, Wait};
use toroni_bench_harness::workload::Work;
use toroni_bench_harness::workload::flow::Flow;

/// A directory for runs; nothing may be left in it.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/toroni-test-family-{}-{number}", std::process::id());
        // Of a process that was killed, and had this number before.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(PathBuf::from(path))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ABOUT: &str = r#"{"version":"0","settings":"","guarantees":{"lossless":true,"total_order":true,"in_place":true}}"#;

/// One sender, one receiver, all of them this script, which has its job in `$job`.
fn run_script(
    root: &Path,
    script: &str,
    patience: Duration,
    observer: &dyn Observer,
) -> Result<Outcome<u64, u64>, Failure> {
    let script = format!("about='{ABOUT}'; read -r job; {script}");
    let program =
        Program { path: PathBuf::from("/bin/sh"), arguments: vec!["-c".to_owned(), script] };
    let mut launch = Launch::new(program, "script", observer);
    launch.root = root.to_path_buf();
    launch.patience = patience;
    let setup = Setup {
        senders: 1,
        receivers: 1,
        message_bytes: 8,
        capacity_bytes: 65536,
        wait: Wait::Blocking,
        in_place: false,
    };
    let work =
        Work::Flow(Flow { messages: 1, lengths: Lengths::Fixed(8), group: 1, stamped: false });
    run(&launch, &setup, &work, Begin::AtTheGate)
}

/// The error of a run, after which no file and no process is left.
fn failure_of(script: &str, patience: Duration) -> String {
    let root = Root::new();
    let failure = run_script(&root.0, script, patience, &NoObserver).unwrap_err().to_string();
    assert_eq!(std::fs::read_dir(&root.0).unwrap().count(), 0, "{failure}");
    assert_eq!(children_of(&root.0), 0, "{failure}");
    failure
}

/// Processes that have their job from a run in this directory: scripts keep it in their environment.
fn children_of(root: &Path) -> usize {
    let wanted = format!("RIG_TEST_ROOT={}", root.display());
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("environ")).ok())
        .filter(|environment| String::from_utf8_lossy(environment).contains(&wanted))
        .count()
}

const LONG: Duration = Duration::from_secs(60);

/// Sleeps, and can be found: the directory of the run is the one above its path.
const SLEEP: &str = r#"place=${job#*'"path":"'}; root=${place%%/toroni-bench-*}; RIG_TEST_ROOT=$root exec sleep 60"#;

#[test]
fn a_sound_run_collects_results() {
    let root = Root::new();
    // Talks in between, as libraries do.
    let script = r#"
        place=${job#*'"path":"'}; place=${place%%\"*}
        case $job in
            *'"role":"Host"'*) echo "{\"rig\":\"ready\",\"about\":$about}"; cat >/dev/null; exit ;;
        esac
        echo '{"rig":"ready","about":null}'; echo noise; cat "$place/gate"
        case $job in
            *Sender*)
                      echo '{"rig":"progress","done":3}'; echo '{"rig":"result","value":11}' ;;
            *) echo '{"rig":"result","value":22}' ;;
        esac"#;
    let outcome = run_script(&root.0, script, LONG, &NoObserver).unwrap();
    assert_eq!((outcome.senders, outcome.receivers), (vec![11], vec![22]));
    assert_eq!(outcome.about.version, "0");
    assert_eq!(std::fs::read_dir(&root.0).unwrap().count(), 0);
}

#[test]
fn a_child_that_ends_too_early_is_an_error() {
    let failure = failure_of("exit 3", LONG);
    assert!(failure.contains("the host") && failure.contains("exit status: 3"), "{failure}");
    assert!(failure.contains("before it was ready"), "{failure}");
}

#[test]
fn a_child_that_is_killed_is_an_error() {
    let failure = failure_of("kill -9 $$", LONG);
    assert!(failure.contains("signal: 9"), "{failure}");
}

#[test]
fn a_child_that_dies_at_work_ends_the_others() {
    let script = format!(
        r#"case $job in
            *'"role":"Host"'*) echo "{{\"rig\":\"ready\",\"about\":$about}}"; {SLEEP} ;;
            *Sender*) echo '{{"rig":"ready","about":null}}'; exit 7 ;;
            *) echo '{{"rig":"ready","about":null}}'; {SLEEP} ;;
        esac"#
    );
    let failure = failure_of(&script, LONG);
    assert!(failure.contains("sender 0"), "{failure}");
    assert!(failure.contains("exit status: 7 before"), "{failure}");
}

#[test]
fn what_a_child_says_of_its_failure_is_told() {
    let failure = failure_of(r#"echo '{"rig":"failed","text":"there is no room"}'; exit 1"#, LONG);
    assert_eq!(failure, "the host failed: there is no room");
}

#[test]
fn children_that_are_silent_for_too_long_are_ended() {
    let started = Instant::now();
    let failure = failure_of(SLEEP, Duration::from_millis(300));
    assert!(failure.contains("no child said anything for 300ms"), "{failure}");
    assert!(failure.contains("waited for the host (pid "), "{failure}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let root = Root::new();
    let program = Program { path: PathBuf::from("/nonexistent/peer"), arguments: Vec::new() };
    let mut launch = Launch::new(program, "script", &NoObserver);
    launch.root.clone_from(&root.0);
    let setup = Setup {
        senders: 1,
        receivers: 1,
        message_bytes: 8,
        capacity_bytes: 65536,
        wait: Wait::Busy,
        in_place: false,
    };
    let work =
        Work::Flow(Flow { messages: 1, lengths: Lengths::Fixed(8), group: 1, stamped: false });
    let failure = run::<u64, u64>(&launch, &setup, &work, Begin::AtTheGate).unwrap_err();
    assert!(failure.to_string().contains("cannot start the host (/nonexistent/peer)"), "{failure}");
    assert_eq!(std::fs::read_dir(&root.0).unwrap().count(), 0);
}

#[test]
fn whoever_looks_on_can_cancel() {
    struct Impatient(Cell<u32>);
    impl Observer for Impatient {
        fn is_cancelled(&self) -> bool {
            self.0.set(self.0.get() + 1);
            // Not before something has been started.
            self.0.get() > 3
        }
    }
    let root = Root::new();
    let failure = run_script(&root.0, SLEEP, LONG, &Impatient(Cell::new(0))).unwrap_err();
    assert!(matches!(failure, Failure::Interrupted), "{failure}");
    assert_eq!(std::fs::read_dir(&root.0).unwrap().count(), 0);
    assert_eq!(children_of(&root.0), 0);
}
