//! `cargo xtask sanitize`: runs tests of the library and of the proactor under AddressSanitizer or Valgrind's memcheck.
//!
//! The sanitizers are unstable options of rustc. rustup's toolchains have their runtimes, stable ones too, so the build
//! needs only `RUSTC_BOOTSTRAP=1`. Debian's compiler has no runtime. The standard library is not instrumented: that
//! would need its source.
//!
//! This is also why there is no ThreadSanitizer. It does not see how the standard library synchronises the end of a
//! scope, the count of an `Arc` or the channel of the test harness, and reports dozens of false races in each run. It
//! would need `-Zbuild-std`, and for that a nightly toolchain with `rust-src`. It does not understand fences, on which
//! the ring is built; loom does. It also does not know when io_uring and the threads of the C library access the
//! buffers of a proactor.
//!
//! With `--cfg toroni_words`, loops of relaxed atomic words copy into and out of the ring. The sanitizer sees them. It
//! does not see the assembly that they replace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::command::{Failure, Steps, answers, cargo, run as run_command, tests_of};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Which sanitizers [default: address]
    kinds: Vec<Kind>,
    /// Run only the tests whose names contain this
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// If something is missing, say so and succeed
    #[arg(long)]
    if_possible: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// AddressSanitizer, and LeakSanitizer with it
    Address,
    /// Valgrind's memcheck, on an ordinary build
    Memcheck,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let kinds = if options.kinds.is_empty() { &[Kind::Address][..] } else { &options.kinds };
    let mut steps = Steps::default();
    for kind in kinds {
        steps.step(&format!("sanitize {}", kind.name()), || {
            if let Some(missing) = kind.missing()? {
                if options.if_possible {
                    println!("NOT RUN: {missing}");
                    return Ok(format!("NOT RUN: {missing}"));
                }
                return Err(Failure(missing));
            }
            kind.check(options.test.as_deref())
        });
    }
    steps.finish()
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Memcheck => "memcheck",
        }
    }

    /// What this machine lacks, and how to get it.
    fn missing(self) -> Result<Option<String>, Failure> {
        if self == Self::Memcheck {
            let is_there = answers(Command::new("valgrind").arg("--version"));
            return Ok((!is_there).then(|| "no valgrind: install Debian's package".to_owned()));
        }
        let wanted = "_rt.asan.a";
        let folder = PathBuf::from(rustc(&["--print", "target-libdir"])?.trim());
        let is_runtime = |path: &Path| path.to_string_lossy().ends_with(wanted);
        let is_there = folder
            .read_dir()
            .is_ok_and(|entries| entries.flatten().any(|entry| is_runtime(&entry.path())));
        Ok((!is_there)
            .then(|| format!("no *{wanted} in {}: use a toolchain of rustup", folder.display())))
    }

    fn check(self, only: Option<&str>) -> Result<String, Failure> {
        let mut passed = Vec::new();
        for test in self.build()? {
            let mut command = self.command(&test)?;
            match only {
                Some(only) => command.arg(only),
                None => {
                    let selected = self.selected(&test);
                    each_selects_a_test(selected, &tests_of(&test.executable)?, &test.name)?;
                    // Other tests leave some of these engines out by default.
                    command.args(
                        (self == Self::Address && !selected.is_empty())
                            .then_some("--include-ignored"),
                    );
                    command.args(selected).args(self.skips())
                }
            };
            run_command(&mut command)?;
            passed.push(test.name);
        }
        Ok(passed.join(", "))
    }

    fn build(self) -> Result<Vec<Test>, Failure> {
        let host = host()?;
        let target = metadata::members()?.target_directory.join("sanitize").join(self.name());
        let mut command = cargo(["test", "-p", "toroni", "--no-run", "--locked", "--lib"]);
        command.arg("--message-format=json");
        if self == Self::Address {
            command.args(["-p", "toroni-proactor", "--features", "toroni/proactor"]);
            command.args(TESTS.iter().flat_map(|test| ["--test", test]));
        }
        // With --target, the flags do not apply to build scripts and procedural macros.
        command.args(["--target", &host]).env("CARGO_TARGET_DIR", target);
        let mut flags = vec!["--cfg toroni_words".to_owned()];
        if self != Self::Memcheck {
            flags.push(format!("-Zsanitizer={}", self.name()));
            // Newer compilers refuse to link a standard library that is not instrumented.
            let allowed = "-Cunsafe-allow-abi-mismatch=sanitizer";
            if rustc(&[allowed, "--print", "cfg"]).is_ok() {
                flags.push(allowed.to_owned());
            }
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command.env("RUSTFLAGS", flags.join(" "));
        println!("$ {}", crate::command::shown(&command));
        let built = command
            .stderr(std::process::Stdio::inherit())
            .output()
            .map_err(|error| Failure(format!("cannot start cargo: {error}")))?;
        if !built.status.success() {
            return Err(Failure(format!("the build ended with {}", built.status)));
        }
        let tests = tests_in(&String::from_utf8_lossy(&built.stdout));
        if tests.is_empty() {
            return Err(Failure("cargo named no test executable".to_owned()));
        }
        Ok(tests)
    }

    fn command(self, test: &Test) -> Result<Command, Failure> {
        let settings = metadata::root().join("xtask/sanitize");
        let suppressions = settings.join(format!("{}.supp", self.name()));
        let suppressions = format!("suppressions={}", suppressions.display());
        let mut command = Command::new(&test.executable);
        match self {
            Self::Address => {
                // Some tests are about the library's own SIGBUS handler.
                let options = "detect_stack_use_after_return=1:handle_segv=0:handle_sigbus=0";
                command.env("ASAN_OPTIONS", options).env("LSAN_OPTIONS", suppressions);
            }
            Self::Memcheck => {
                command = Command::new("valgrind");
                command.args(["--quiet", "--error-exitcode=1", "--fair-sched=yes"]);
                command.arg(&test.executable).arg("--test-threads=1");
            }
        }
        command.current_dir(&test.folder);
        Ok(command)
    }

    /// Parts of the names of the tests to run, or none to run all.
    fn selected(self, test: &Test) -> &'static [&'static str] {
        match (self, test.name.as_str()) {
            (Self::Memcheck, "toroni") => MEMCHECK_TESTS,
            (Self::Address, "conformance") => ENGINES,
            (Self::Address, "bus") => OF_THE_LIBRARY,
            (Self::Address, "proactor") => OF_THE_PROACTOR,
            _ => &[],
        }
    }

    /// Arguments of the test harness that leave tests out.
    fn skips(self) -> impl Iterator<Item = &'static str> {
        let skipped = match self {
            Self::Address => SKIPPED,
            Self::Memcheck => &[],
        };
        skipped.iter().flat_map(|test| ["--skip", test])
    }
}

/// Fails if a part of a name selects nothing: the test harness would not complain.
fn each_selects_a_test(
    selected: &[&str],
    tests: &BTreeSet<String>,
    what: &str,
) -> Result<(), Failure> {
    let idle = selected.iter().find(|part| !tests.iter().any(|test| test.contains(**part)));
    idle.map_or(Ok(()), |part| {
        Err(Failure(format!(
            "no test of `{what}` has `{part}` in its name: see xtask/src/sanitize.rs"
        )))
    })
}

/// The integration tests to run, besides the unit tests: `bus` of the library, the others of the proactor.
const TESTS: &[&str] = &["bus", "proactor", "conformance"];

const OF_THE_LIBRARY: &[&str] = &["messages::", "disk::", "proactor::"];

const OF_THE_PROACTOR: &[&str] = &["posix::", "processors::", "refusals::", "starts::"];

/// The engines of the conformance suite that share memory with the kernel, with the C library, or among threads that
/// attempt transfers at the same time.
const ENGINES: &[&str] = &[
    "uring_signal_shared",
    "combined_eventfd_shared",
    "epoll_pipe_shared",
    "callback_itself_shared",
];

const SKIPPED: &[&str] = &[
    // Runs under a system call filter, and the sanitizer makes calls that the filter does not allow.
    "no_sleeper_no_system_call",
    // Measures processor time, which the sanitizer changes.
    "idle_costs_no_processor",
    // Tens of thousands of rounds that test timing, not memory.
    "wakeups::",
    // Runs an example, which is another process.
    "daemon_in_a_proactor::",
];

/// Tests of memory that is passed or copied. The others take too long, because Valgrind runs one thread at a time.
const MEMCHECK_TESTS: &[&str] = &[
    "ring::copy",
    "ring::racy",
    "ring::run",
    "ring::read_ahead",
    "ring::tests::torn",
    "topic::frame",
    "notify::eventcount",
];

struct Test {
    /// The name of cargo's target.
    name: String,
    executable: PathBuf,
    /// The folder of the crate, in which the test runs.
    folder: PathBuf,
}

fn tests_in(messages: &str) -> Vec<Test> {
    let test_in = |line: &str| {
        let message = serde_json::from_str::<serde_json::Value>(line).ok()?;
        let manifest = Path::new(message.get("manifest_path")?.as_str()?);
        Some(Test {
            executable: message.get("executable")?.as_str()?.into(),
            folder: manifest.parent()?.into(),
            name: message.get("target")?.get("name")?.as_str()?.to_owned(),
        })
    };
    messages.lines().filter_map(test_in).collect()
}

fn host() -> Result<String, Failure> {
    rustc(&["-vV"])?
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .ok_or_else(|| Failure("rustc -vV names no host".to_owned()))
}

fn rustc(arguments: &[&str]) -> Result<String, Failure> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| Failure(format!("cannot start rustc: {error}")))?;
    if !output.status.success() {
        return Err(Failure(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executables_are_found_among_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"executable\":\"/t/bus-1\",\"target\":{\"name\":\"bus\"},\
                        \"manifest_path\":\"/s/Cargo.toml\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        let tests = tests_in(messages);
        assert_eq!(tests.len(), 1);
        assert_eq!((tests[0].name.as_str(), &*tests[0].executable), ("bus", Path::new("/t/bus-1")));
        assert_eq!(tests[0].folder, Path::new("/s"));
    }

    #[test]
    fn what_selects_no_test_is_named() {
        let tests = BTreeSet::from(["uring::reads".to_owned(), "epoll::reads".to_owned()]);
        assert!(each_selects_a_test(&["uring", "epoll"], &tests, "t").is_ok());
        assert!(each_selects_a_test(&[], &tests, "t").is_ok());
        let failure = each_selects_a_test(&["uring", "select"], &tests, "t").unwrap_err();
        assert!(failure.to_string().contains("`select`"));
    }

    #[test]
    fn this_compiler_names_its_host() {
        assert!(host().unwrap().contains("linux"));
    }
}
