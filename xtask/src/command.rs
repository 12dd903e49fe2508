//! Starts cargo and other programs. Each command is printed before it runs, so that a developer can repeat a single
//! one by hand.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metadata;

/// Says why a task failed.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// `cargo` with these arguments, from the root of the workspace.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(metadata::root());
    command
}

/// `cargo build` or `cargo test` of what the arguments name, in the profile of the tests. Cargo compiles a crate again for
/// each other selection of features. This names all members, so that cargo selects the features of the tests. A build also
/// names a small test, because cargo otherwise ignores the features of dev-dependencies.
pub(crate) fn of_workspace<'a>(what: &'a str, arguments: &[&'a str]) -> Command {
    let small_test = if what == "build" { &["--test", "user_code"][..] } else { &[] };
    cargo([&[what, "--locked", "--workspace"], small_test, arguments].concat())
}

/// Whether the program exists and succeeds.
pub(crate) fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Prints the command, runs it on this terminal, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    ended(command, status)
}

/// Like [`run`], but prints what the command prints when it has ended. `log` keeps that.
pub(crate) fn run_into(log: &Path, command: &mut Command) -> Result<(), Failure> {
    let failed = |error| Failure(format!("cannot write {}: {error}", log.display()));
    let file = File::create(log).map_err(failed)?;
    command.stderr(file.try_clone().map_err(failed)?).stdout(file);
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    let printed = fs::read(log).map_err(failed)?;
    println!("\n$ {}\n{}", shown(command), String::from_utf8_lossy(&printed));
    ended(command, status)
}

/// Like [`run`], for a command that runs tests. The failure has what the failed tests printed. A log of thousands
/// of lines may be cut, and then the end of it is what is left. It is also a failure if no test ran: a name that has
/// changed would otherwise select nothing for ever.
pub(crate) fn run_tests(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", shown(command));
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| cannot_start(command, &error))?;
    let output = child.stdout.take().expect("it is piped");
    let mut reports = Reports::default();
    for line in BufReader::new(output).split(b'\n') {
        let line =
            line.map_err(|error| Failure(format!("cannot read what tests print: {error}")))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        reports.read(&line);
    }
    std::io::stdout().flush().ok();
    let status =
        child.wait().map_err(|error| Failure(format!("cannot wait for tests: {error}")))?;
    ended(command, status).map_err(|Failure(why)| Failure(why + &reports.text))?;
    if reports.ran == 0 {
        return Err(Failure(format!("`{}` ran no test", shown(command))));
    }
    Ok(())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let package = DEBIAN.iter().find(|(name, _)| program == *name).map(|(_, package)| package);
    let remedy = match package {
        Some(package) if error.kind() == std::io::ErrorKind::NotFound => {
            format!(": install Debian's package `{package}`")
        }
        _ => String::new(),
    };
    Failure(format!("cannot start `{}`: {error}{remedy}", shown(command)))
}

/// Programs that tasks start, and the packages of Debian that have them.
const DEBIAN: &[(&str, &str)] = &[
    ("cmake", "cmake"),
    ("ctest", "cmake"),
    ("dpkg-deb", "dpkg-dev"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("git", "git"),
    ("man", "man-db"),
    ("objcopy", "binutils"),
    ("python3", "python3-venv"),
    ("readelf", "binutils"),
    ("unshare", "util-linux"),
    ("valgrind", "valgrind"),
];

fn ended(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure(format!("`{}` ended with {status}", shown(command))))
}

/// Collects what libtest prints after all tests of an executable, if one of them failed: from `failures:` to
/// `test result: FAILED`.
#[derive(Default)]
struct Reports {
    text: String,
    within: bool,
    lines: usize,
    /// How many tests have passed or failed.
    ran: u64,
}

impl Reports {
    /// How many lines of one executable are kept.
    const LINES: usize = 200;

    fn read(&mut self, line: &str) {
        if !self.within && line == "failures:" {
            self.within = true;
            self.lines = 0;
        }
        let last = line.starts_with("test result: FAILED");
        if self.within && (self.lines < Self::LINES || last) {
            self.text.push('\n');
            self.text.push_str(line);
            self.lines += 1;
        }
        self.within &= !last;
        if let Some(counts) = line.strip_prefix("test result: ") {
            let numbers = counts.split(['.', ';']).filter_map(|count| {
                let number = count
                    .trim()
                    .strip_suffix(" passed")
                    .or(count.trim().strip_suffix(" failed"))?;
                number.parse::<u64>().ok()
            });
            self.ran += numbers.sum::<u64>();
        }
    }
}

/// The names of all tests of a test executable.
pub(crate) fn tests_of(executable: &Path) -> Result<BTreeSet<String>, Failure> {
    let listed = Command::new(executable)
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|error| Failure(format!("cannot run {}: {error}", executable.display())))?;
    if !listed.status.success() {
        let status = listed.status;
        return Err(Failure(format!("{} --list ended with {status}", executable.display())));
    }
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// The command as one would type it: the variables that are set for it, the program, the arguments.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.display(), quoted(value)));
        }
    }
    let program = Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(program.as_os_str()).display().to_string());
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_=/.,:+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The steps of a task. If one fails, the others still run.
#[derive(Default)]
pub(crate) struct Steps(Vec<Step>);

/// How many of these steps [`Steps::side_by_side`] runs at a time.
pub(crate) fn at_a_time(steps: usize) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(steps)
}

struct Step {
    title: String,
    time: Duration,
    outcome: Result<String, Failure>,
}

impl Steps {
    /// Runs a step under its title. Its text appears in the table at the end.
    pub(crate) fn step(&mut self, title: &str, step: impl FnOnce() -> Result<String, Failure>) {
        println!("\n== {title}");
        let start = Instant::now();
        let outcome = step();
        if let Err(failure) = &outcome {
            println!("FAILED: {}", failure.0.lines().next().unwrap_or_default());
        }
        self.0.push(Step { title: title.to_owned(), time: start.elapsed(), outcome });
    }

    /// Runs a step for each item, as many at a time as there are processors. A step runs its commands with
    /// [`run_into`], so that what they print does not mix.
    pub(crate) fn side_by_side<T: Sync>(
        &mut self,
        items: &[T],
        title: impl Fn(&T) -> String + Sync,
        step: impl Fn(&T) -> Result<String, Failure> + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let start = Instant::now();
                let outcome = step(item);
                let step = Step { title: title(item), time: start.elapsed(), outcome };
                done.lock().unwrap_or_else(PoisonError::into_inner).push(step);
            }
        };
        std::thread::scope(|scope| {
            (0..at_a_time(items.len())).for_each(|_| drop(scope.spawn(work)));
        });
        self.0.extend(done.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// Prints the table, and fails if a step failed.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.finish_under("done")
    }

    /// Like [`Steps::finish`], with this line above the table.
    pub(crate) fn finish_under(self, heading: &str) -> Result<(), Failure> {
        println!("\n== {heading}");
        for Step { title, time, outcome } in &self.0 {
            let remark = outcome.as_deref().unwrap_or("FAILED");
            println!("{:>7.1} s  {title:<34} {remark}", time.as_secs_f64());
        }
        let mut failed = Vec::new();
        for Step { title, outcome, .. } in self.0 {
            if let Err(failure) = outcome {
                println!("\n== failed: {title}\n{failure}");
                failed.push(title);
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure(format!("failed: {}", failed.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.env("RUSTFLAGS", "--cfg loom").args(["test", "-p", "toroni", "it's"]);
        assert_eq!(shown(&command), r"RUSTFLAGS='--cfg loom' cargo test -p toroni 'it'\''s'");
    }

    #[test]
    fn steps_that_run_side_by_side_all_run_and_a_failure_is_named() {
        let log = std::env::temp_dir().join(format!("toroni-steps-{}", std::process::id()));
        let mut steps = Steps::default();
        let all = [0, 1, 2, 3, 4];
        steps.side_by_side(&all, ToString::to_string, |number| {
            let log = log.with_extension(number.to_string());
            let script = format!("echo says {number}; exit {}", u8::from(*number == 3));
            let outcome = run_into(&log, Command::new("sh").args(["-c", &script]));
            assert_eq!(fs::read_to_string(&log).unwrap(), format!("says {number}\n"));
            fs::remove_file(log).unwrap();
            outcome.map(|()| String::new())
        });
        let mut titles: Vec<&str> = steps.0.iter().map(|step| &*step.title).collect();
        titles.sort_unstable();
        assert_eq!(titles, ["0", "1", "2", "3", "4"]);
        assert_eq!(steps.finish().unwrap_err().0, "failed: 3");
    }

    #[test]
    fn a_command_that_fails_is_a_failure() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("/no/such/program")).is_err());
        assert!(run(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_failure_of_tests_says_what_they_printed() {
        let printed = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                       panicked at b.rs:1\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\
                       running 1 test\ntest c ... ok\n";
        let script = format!("printf '%s' '{printed}'; exit 101");
        let Failure(why) = run_tests(Command::new("sh").args(["-c", &script])).unwrap_err();
        let (_, reports) = why.split_once("ended with exit status: 101\n").unwrap();
        assert!(
            reports.starts_with("failures:\n\n---- b stdout ----\npanicked at b.rs:1\n"),
            "{why}"
        );
        assert!(reports.ends_with("    b\n\ntest result: FAILED. 1 passed; 1 failed"), "{why}");
    }

    #[test]
    fn tests_that_were_not_found_are_a_failure() {
        let run = |counts: &str| {
            let script = format!("echo 'test result: ok. {counts}; finished in 0.00s'");
            run_tests(Command::new("sh").args(["-c", &script]))
        };
        assert!(run("3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out").is_ok());
        let nothing = run("0 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out");
        assert!(nothing.unwrap_err().0.ends_with("ran no test"));
        assert!(run_tests(&mut Command::new("true")).is_err());
    }

    #[test]
    fn a_missing_tool_has_a_package() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        let Failure(why) = cannot_start(&Command::new("/usr/bin/valgrind"), &error);
        assert!(why.ends_with(": install Debian's package `valgrind`"), "{why}");
        let Failure(why) = cannot_start(&Command::new("/usr/bin/other"), &error);
        assert!(!why.contains("install"), "{why}");
    }

    #[test]
    fn a_step_that_fails_is_named_and_the_next_one_runs() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.step("first", || Err(Failure("broken".to_owned())));
        steps.step("second", || {
            ran = true;
            Ok(String::new())
        });
        assert!(ran);
        assert_eq!(steps.finish().unwrap_err().0, "failed: first");
    }
}
