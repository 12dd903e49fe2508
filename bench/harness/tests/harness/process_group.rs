//! Children that misbehave: the run ends with an error that says which child failed and how, and nothing is left behind.
//! The children are shell scripts, because no adapter should do such things.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toroni_bench_harness::Failure;
use toroni_bench_harness::child::Child;
use toroni_bench_harness::process_group::{
    Begin, Launch, NoObserver, Observer, Outcome, Program, run,
};
use toroni_bench_harness::registry::Work;
use toroni_bench_harness::transport::{Setup, Transport, Wait};
use toroni_testkit::Directory;

/// Work that only scripts do: each reports a number.
#[derive(serde::Serialize, serde::Deserialize)]
struct Numbers;

impl Work for Numbers {
    const NAME: &'static str = "numbers";
    type Sent = u64;
    type Received = u64;

    fn perform<T: Transport>(&self, _: &mut Child) -> Result<(), Failure> {
        Err(Failure::new("only scripts do this"))
    }
}

const ABOUT: &str = r#"{"version":"0","settings":"","guarantees":{"lossless":true,"total_order":true,"in_place":true}}"#;

/// Runs a host, a sender and a receiver that are all this script, which has its job in `$job`.
fn run_script(
    root: &Path,
    script: &str,
    silence_timeout: Duration,
    observer: &dyn Observer,
) -> Result<Outcome<u64, u64>, Failure> {
    let script = format!("about='{ABOUT}'; read -r job; {script}");
    let program =
        Program { path: PathBuf::from("/bin/sh"), arguments: vec!["-c".to_owned(), script] };
    let mut launch = Launch::new(program, "script", observer);
    launch.root = root.to_path_buf();
    launch.silence_timeout = silence_timeout;
    let setup = Setup {
        senders: 1,
        receivers: 1,
        message_bytes: 8,
        capacity_bytes: 65536,
        wait: Wait::Blocking,
        in_place: false,
    };
    run(&launch, &setup, &Numbers, Begin::AtTheGate)
}

/// Returns the error of a run, after which no file and no process is left.
fn failure_of(script: &str, silence_timeout: Duration) -> String {
    let root = Directory::new();
    let failure =
        run_script(root.path(), script, silence_timeout, &NoObserver).unwrap_err().to_string();
    assert_eq!(root.entries(), [""; 0], "{failure}");
    assert_eq!(children_of(root.path()), 0, "{failure}");
    failure
}

/// Returns the number of processes whose run is in this directory: scripts keep it in their environment.
fn children_of(root: &Path) -> usize {
    // The name of this directory may begin that of another test's.
    let wanted = format!("HARNESS_TEST_ROOT={}", root.display());
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("environ")).ok())
        .filter(|environment| {
            environment.split(|byte| *byte == 0).any(|it| it == wanted.as_bytes())
        })
        .count()
}

const LONG: Duration = Duration::from_secs(60);

/// Sleeps, and can be found by its root.
const SLEEP: &str = r#"place=${job#*'"path":"'}; root=${place%%/toroni-bench-*}; HARNESS_TEST_ROOT=$root exec sleep 60"#;

#[test]
fn a_sound_run_collects_results() {
    let root = Directory::new();
    // Prints other lines, as libraries do. It has the gate before it is ready: afterwards, the parent may already have let
    // go of the gate, and to open a pipe that has no writer would take for ever.
    let script = r#"
        place=${job#*'"path":"'}; place=${place%%\"*}
        case $job in
            *'"role":"Host"'*) echo "{\"toroni_bench\":\"ready\",\"about\":$about}"; cat >/dev/null; exit ;;
        esac
        exec 3<"$place/gate"
        echo '{"toroni_bench":"ready","about":null}'; echo noise; cat <&3
        case $job in
            *Sender*)
                      echo '{"toroni_bench":"progress","done":3}'; echo '{"toroni_bench":"result","value":11}' ;;
            *) echo '{"toroni_bench":"result","value":22}' ;;
        esac"#;
    let outcome = run_script(root.path(), script, LONG, &NoObserver).unwrap();
    assert_eq!((outcome.senders, outcome.receivers), (vec![11], vec![22]));
    assert_eq!(outcome.about.version, "0");
    assert_eq!(root.entries(), [""; 0]);
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
            *'"role":"Host"'*) echo "{{\"toroni_bench\":\"ready\",\"about\":$about}}"; {SLEEP} ;;
            *Sender*) echo '{{"toroni_bench":"ready","about":null}}'; exit 7 ;;
            *) echo '{{"toroni_bench":"ready","about":null}}'; {SLEEP} ;;
        esac"#
    );
    let failure = failure_of(&script, LONG);
    assert!(failure.contains("sender 0"), "{failure}");
    assert!(failure.contains("exit status: 7 before"), "{failure}");
}

#[test]
fn the_failure_that_a_child_reports_is_the_error_of_the_run() {
    let failure =
        failure_of(r#"echo '{"toroni_bench":"failed","text":"there is no space"}'; exit 1"#, LONG);
    assert_eq!(failure, "the host failed: there is no space");
}

#[test]
fn children_that_are_silent_for_too_long_are_ended() {
    let started = Instant::now();
    let failure = failure_of(SLEEP, Duration::from_millis(300));
    assert!(failure.contains("no child sent anything for 300ms"), "{failure}");
    assert!(failure.contains("waited for the host (pid "), "{failure}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let root = Directory::new();
    let program = Program { path: PathBuf::from("/nonexistent/peer"), arguments: Vec::new() };
    let mut launch = Launch::new(program, "script", &NoObserver);
    launch.root = root.path().to_owned();
    let setup = Setup {
        senders: 1,
        receivers: 1,
        message_bytes: 8,
        capacity_bytes: 65536,
        wait: Wait::Busy,
        in_place: false,
    };
    let failure = run(&launch, &setup, &Numbers, Begin::AtTheGate).unwrap_err();
    assert!(failure.to_string().contains("cannot start the host (/nonexistent/peer)"), "{failure}");
    assert_eq!(root.entries(), [""; 0]);
}

#[test]
fn an_observer_can_cancel() {
    struct Impatient(Cell<u32>);
    impl Observer for Impatient {
        fn is_cancelled(&self) -> bool {
            self.0.set(self.0.get() + 1);
            // Not before something has been started.
            self.0.get() > 3
        }
    }
    let root = Directory::new();
    let failure = run_script(root.path(), SLEEP, LONG, &Impatient(Cell::new(0))).unwrap_err();
    assert!(matches!(failure, Failure::Interrupted), "{failure}");
    assert_eq!(root.entries(), [""; 0]);
    assert_eq!(children_of(root.path()), 0);
}
