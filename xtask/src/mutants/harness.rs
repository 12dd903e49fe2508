//! Compiles the tests of the library, of the proactor, of the network protocol, of its nodes and of the sequencer with all mutants in them,
//! and runs them with one mutant switched on.
//!
//! Only that crate gets the flag (`cargo rustc -- --cfg …`), so that it shares its dependencies with the ordinary
//! builds. For the tests of the fuzz harness, the library is a dependency, and all crates get the flag.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::table::Checker;
use crate::command::{Failure, cargo, shown, tests_of};
use crate::{loom, metadata};

/// A mutant may make a test wait for ever. The limit is far more than any of these tests takes.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The compiled tests of one of these crates.
pub(super) struct Harness {
    executable: PathBuf,
}

/// How a run of the tests ended.
pub(super) enum Verdict {
    Passed { count: usize },
    Failed { first: String },
    Hung,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { .. } => write!(formatter, "SURVIVED"),
            Self::Failed { first } => write!(formatter, "noticed by {first}"),
            Self::Hung => write!(formatter, "noticed: it hung for {} s", TIME_LIMIT.as_secs()),
        }
    }
}

pub(super) struct Run<'a> {
    pub(super) tests: &'a [&'a str],
    pub(super) mutant: Option<&'a str>,
    pub(super) stop_at: StopAt,
}

/// When a run stops that has a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StopAt {
    End,
    /// When the harness reports the first failure. Not for tests that remove their files at their end.
    FirstFailure,
    /// [`CLEAN_UP`] after the first panic. A thread that was never woken never ends, and neither does its test.
    FirstPanic,
}

/// How long a test that has panicked may take to remove its files.
const CLEAN_UP: Duration = Duration::from_secs(2);

impl Harness {
    /// Compiles the tests of the crate that the checker belongs to.
    pub(super) fn build(checker: Checker) -> Result<Self, Failure> {
        let mut command = cargo(["rustc", "--locked", "--quiet"]);
        command.args(match checker {
            Checker::Loom(_) | Checker::Tests(_) => &["-p", "toroni", "--lib"][..],
            Checker::Proactor(_) | Checker::ProactorLoom(_) => &["-p", "toroni-proactor", "--lib"],
            Checker::Protocol(_) => &["-p", "toroni-proto", "--lib"],
            Checker::Network(_) => &["-p", "toroni-net", "--lib"],
            Checker::Sequencer(_) => &["-p", "toroni-sequencer", "--lib"],
            Checker::Oracle(_) => &[
                "-p",
                "toroni-fuzz-harness",
                "--test",
                "operations",
                "--no-default-features",
                "--features",
                "deaths",
            ],
        });
        command.args(["--message-format=json-render-diagnostics", "--profile"]);
        match checker {
            // As in `cargo xtask loom`: the dependencies are the same.
            Checker::Loom(_) | Checker::ProactorLoom(_) => {
                command.arg("bench");
                loom::prepare(&mut command)?;
            }
            Checker::Tests(_)
            | Checker::Proactor(_)
            | Checker::Protocol(_)
            | Checker::Network(_)
            | Checker::Sequencer(_) => {
                command.arg("test");
            }
            // The mutants are in a dependency, so every crate gets the flag, in a folder of its own. Its lists are
            // long.
            Checker::Oracle(_) => {
                let target = metadata::members()?.target_directory.join("mutants");
                command.arg("bench").env("CARGO_TARGET_DIR", target);
                command.env("RUSTFLAGS", "--cfg toroni_mutants -C debug-assertions=on");
                loom::hurry(&mut command);
            }
        }
        if !matches!(checker, Checker::Oracle(_)) {
            command.args(["--", "--cfg", "toroni_mutants"]);
        }
        println!("$ {}", shown(&command));
        let built = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure(format!("cannot start cargo: {error}")))?;
        if !built.status.success() {
            return Err(Failure(format!("`{}` ended with {}", shown(&command), built.status)));
        }
        let built = executable_in(&String::from_utf8_lossy(&built.stdout))
            .ok_or_else(|| Failure("cargo named no test executable".to_owned()))?;
        // A copy: another build may replace the original.
        let folder = metadata::members()?.target_directory.join("mutants");
        let executable = folder.join(format!("{}-{}", checker.kind(), std::process::id()));
        fs::create_dir_all(&folder)
            .and_then(|()| fs::copy(&built, &executable))
            .map_err(|error| Failure(format!("cannot copy {}: {error}", built.display())))?;
        Ok(Self { executable })
    }

    pub(super) fn tests(&self) -> Result<BTreeSet<String>, Failure> {
        tests_of(&self.executable)
    }

    pub(super) fn run(&self, run: &Run<'_>) -> Result<Verdict, Failure> {
        // Several runs share the executable at a time. Each has its own output.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let output = self.executable.with_extension(format!("{number}.txt"));
        let verdict = self.run_into(run, &output).map_err(|error| self.cannot_run(&error));
        let _ = fs::remove_file(output);
        verdict
    }

    fn run_into(&self, run: &Run<'_>, output: &std::path::Path) -> io::Result<Verdict> {
        let file = fs::File::create(output)?;
        let mut command = Command::new(&self.executable);
        // A mutant may need all repetitions to be noticed.
        command.env("TORONI_LONG_TESTS", "1");
        if let Some(mutant) = run.mutant {
            command.env("TORONI_MUTANT", mutant);
        }
        let mut child = command
            .arg("--exact")
            .args(run.tests)
            .args((run.stop_at == StopAt::FirstPanic).then_some("--nocapture"))
            .current_dir(metadata::root().join("crates/toroni"))
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file)
            .spawn()?;
        Self::wait(output, &mut child, run.stop_at)
    }

    fn cannot_run(&self, error: &io::Error) -> Failure {
        Failure(format!("cannot run {}: {error}", self.executable.display()))
    }

    fn wait(output: &std::path::Path, child: &mut Child, stop_at: StopAt) -> io::Result<Verdict> {
        let start = Instant::now();
        let mut panicked: Option<Instant> = None;
        loop {
            // In this order: what the tests print before they end must not be missed.
            let ended = child.try_wait()?;
            let said = String::from_utf8_lossy(&fs::read(output)?).into_owned();
            let failure = match stop_at {
                StopAt::End => first_failure_in(&said).filter(|_| ended.is_some()),
                StopAt::FirstFailure => first_failure_in(&said),
                StopAt::FirstPanic => first_panic_in(&said).filter(|_| {
                    let since = panicked.get_or_insert_with(Instant::now).elapsed();
                    ended.is_some() || since > CLEAN_UP
                }),
            };
            let verdict = match (failure, ended) {
                (Some(first), _) => Verdict::Failed { first: first.to_owned() },
                (None, Some(status)) if status.success() => {
                    return Ok(Verdict::Passed { count: passed_in(&said) });
                }
                (None, Some(_)) => {
                    let first = "the end of the whole test process".to_owned();
                    return Ok(Verdict::Failed { first });
                }
                (None, None) if start.elapsed() > TIME_LIMIT => Verdict::Hung,
                (None, None) => {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            if ended.is_none() {
                child.kill()?;
                child.wait()?;
            }
            return Ok(verdict);
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.executable);
    }
}

fn executable_in(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .next_back()
}

fn passed_in(said: &str) -> usize {
    let results = said.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|line| line.split(' ').next()?.parse::<usize>().ok()).sum()
}

fn first_failure_in(said: &str) -> Option<&str> {
    let name =
        said.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    // The suffix is that of a test that should panic.
    name.map(|name| name.strip_suffix(" - should panic").unwrap_or(name))
}

fn first_panic_in(said: &str) -> Option<&str> {
    let line = said.lines().find(|line| line.contains(" panicked at "))?;
    let (_, thread) = line.split_once("thread '")?;
    thread.split_once('\'').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_test_harness_is_understood() {
        let good = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed_in(good), 2);
        assert_eq!(first_failure_in(good), None);
        let bad = "test ring::a ... ok\ntest ring::b ... FAILED\ntest result: FAILED. 1 passed\n";
        assert_eq!(passed_in(bad), 0);
        assert_eq!(first_failure_in(bad), Some("ring::b"));
        let panic =
            "running 1 test\ntest a::b ... \nthread 'a::b' (17) panicked at src/a.rs:1:2:\nno\n";
        assert_eq!(first_panic_in(panic), Some("a::b"));
        assert_eq!(first_panic_in(bad), None);
    }

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/toroni-1\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable_in(messages), Some(PathBuf::from("/t/toroni-1")));
        assert_eq!(executable_in("no json"), None);
    }
}
