//! Compiling the library's tests with one mutant, and running them.
//!
//! The mutant's flag goes to the library alone (`cargo rustc -- --cfg …`), so that its dependencies
//! are built once for all mutants.

use std::fmt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::table::Checker;
use crate::command::{Failure, cargo, shown};
use crate::{loom, metadata};

/// A mutant may make a test wait for ever. Far more than any of these tests takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The compiled tests of the library.
pub(super) struct Harness {
    executable: PathBuf,
    output: PathBuf,
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
            Self::Passed { count } => write!(formatter, "SURVIVED {count} tests"),
            Self::Failed { first } => write!(formatter, "noticed by {first}"),
            Self::Hung => write!(formatter, "noticed: stuck for {} s", TIME_LIMIT.as_secs()),
        }
    }
}

impl Harness {
    /// Compiles the tests of the library, with or without a mutant.
    pub(super) fn build(checker: Checker, mutant: Option<&str>) -> Result<Self, Failure> {
        let mut command = cargo(["rustc", "-p", "toroni", "--lib", "--locked", "--quiet"]);
        command.args(["--message-format=json-render-diagnostics", "--profile"]);
        let target = metadata::members()?.target_directory;
        match checker {
            // The profile for benches is the release profile with a test harness.
            Checker::Loom(_) => {
                command.arg("bench");
                loom::prepare(&mut command)?;
            }
            Checker::Tests(_) => {
                command.arg("test").env("CARGO_TARGET_DIR", target.join("mutants"));
            }
        }
        if let Some(mutant) = mutant {
            command.arg("--").arg("--cfg").arg(format!("toroni_mutant=\"{mutant}\""));
        }
        println!("$ {}", shown(&command));
        let built = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure(format!("cannot start cargo: {error}")))?;
        if !built.status.success() {
            return Err(Failure(format!("`{}` ended with {}", shown(&command), built.status)));
        }
        let executable = executable_in(&String::from_utf8_lossy(&built.stdout))
            .ok_or_else(|| Failure("cargo named no test executable".to_owned()))?;
        Ok(Self { executable, output: target.join("mutant-output.txt") })
    }

    /// Runs the tests that the checker selects.
    pub(super) fn run(&self, checker: Checker) -> Result<Verdict, Failure> {
        let cannot = |error| Failure(format!("cannot run {}: {error}", self.executable.display()));
        let output = fs::File::create(&self.output).map_err(cannot)?;
        let mut child = Command::new(&self.executable)
            .arg(checker.filter())
            .current_dir(metadata::root().join("crates/toroni"))
            .stdin(Stdio::null())
            .stderr(output.try_clone().map_err(cannot)?)
            .stdout(output)
            .spawn()
            .map_err(cannot)?;
        self.wait(&mut child, checker.touches_only_memory()).map_err(cannot)
    }

    /// Waits for the end of the tests, or, if `hasty`, for the first that fails: the others add
    /// nothing.
    fn wait(&self, child: &mut Child, hasty: bool) -> io::Result<Verdict> {
        let start = Instant::now();
        loop {
            // In this order: what the tests said before they ended must not be missed.
            let ended = child.try_wait()?;
            let said = fs::read_to_string(&self.output)?;
            let failure = first_failure_in(&said).filter(|_| hasty || ended.is_some());
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
    said.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
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
