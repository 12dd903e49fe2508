//! Runs cases in child processes, which may die or hang, and reports what happened.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use toroni_testkit::{Directory, Process};

/// A case that takes longer hangs. Each takes some milliseconds on an idle machine.
fn patience() -> Duration {
    let seconds = std::env::var("TORONI_HOSTILE_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(120))
}

/// After this number of failures the rest is not worth the time.
const MOST_FAILURES: usize = 25;
/// Processes that a test runs at a time. A case mostly waits, so there are more than processors.
const SHARES: u64 = 4;
const CHILD: &str = "TORONI_HOSTILE_CHILD";
const ONLY: &str = "TORONI_HOSTILE_ONLY";
const CASE_BYTES: usize = 512;

/// Runs `cases` in child processes, each of which runs its share. If one dies or hangs, another one continues with the
/// next case of that share. `test` is the name of the calling test.
pub(crate) fn run(test: &str, cases: impl FnOnce(&mut Child)) {
    if let Some(child) = Child::from_environment() {
        return child.run(cases);
    }
    let directory = Directory::new();
    let shares = std::thread::scope(|scope| {
        let run = |share: u64| {
            let directory = directory.join(share.to_string());
            scope.spawn(move || run_share(test, share, &directory))
        };
        let threads: Vec<_> = (0..SHARES).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let failures: Vec<&String> = shares.iter().flat_map(|share| &share.failures).collect();
    assert!(failures.is_empty(), "{} failures:\n{failures:#?}", failures.len());
    let done: u64 = shares.iter().map(|share| share.done).sum();
    assert!(done > 0 || std::env::var_os(ONLY).is_some(), "the children ran no case at all");
    eprintln!("{test}: {done} cases");
}

/// What came of the cases of one share.
struct Share {
    done: u64,
    failures: Vec<String>,
}

fn run_share(test: &str, share: u64, directory: &Path) -> Share {
    std::fs::create_dir(directory).unwrap();
    let mut failures = Vec::new();
    let mut first = 0;
    loop {
        let mut started = start(test, share, directory, first);
        let ending = watch(&mut started, directory);
        failures.extend(read_panics(directory));
        let (number, case) = read_case(directory);
        let has_run = directory.join("case").exists();
        let what = match ending {
            Ending::Exit(status) if status.success() => {
                let done = if has_run { number / SHARES + 1 } else { 0 };
                return Share { done, failures };
            }
            Ending::Exit(status) => {
                let panic = read(&directory.join("panic"));
                format!("the process died: {status} {}", panic.replace('\n', " "))
            }
            Ending::Hang => format!("no end within {:?}", patience()),
        };
        eprintln!("{case}: {what}");
        failures.push(format!("{case}: {what}"));
        first = number + 1;
        if failures.len() >= MOST_FAILURES || !has_run {
            return Share { done: first / SHARES, failures };
        }
    }
}

/// The process in which cases run.
pub(crate) struct Child {
    directory: PathBuf,
    share: u64,
    next: u64,
    /// Earlier ones have been run by another child.
    first: u64,
    only: Option<String>,
    case_file: Option<File>,
}

impl Child {
    /// A directory in memory, for the buses of the cases.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the next case is not for this child, which then is not to be prepared.
    pub(crate) fn skip_of_others(&mut self) -> bool {
        let is_skipped = self.next < self.first || self.next % SHARES != self.share;
        self.next += u64::from(is_skipped);
        is_skipped
    }

    /// Runs a case, unless another child does or did. A panic in it is noted.
    pub(crate) fn case(&mut self, name: &str, case: impl FnOnce()) {
        if self.skip_of_others() {
            return;
        }
        let number = self.next;
        self.next += 1;
        if self.only.as_ref().is_some_and(|only| only != name) {
            return;
        }
        let mut text = format!("{number} {name}").into_bytes();
        text.resize(CASE_BYTES, b' ');
        let file = self.case_file.get_or_insert_with(|| {
            File::create(self.directory.join("case")).expect("a directory of this test")
        });
        file.write_all_at(&text, 0).unwrap();
        if catch_unwind(AssertUnwindSafe(case)).is_err() {
            let mut panics = read(&self.directory.join("panics"));
            let message = read(&self.directory.join("panic"));
            writeln!(panics, "{name}: {}", message.replace('\n', " ")).unwrap();
            std::fs::write(self.directory.join("panics"), panics).unwrap();
            let _ = std::fs::remove_file(self.directory.join("panic"));
        }
    }

    fn from_environment() -> Option<Self> {
        let task = std::env::var(CHILD).ok()?;
        let [share, first, directory] = task.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let [share, first] = [share, first].map(|number: &str| number.parse().unwrap());
        let only = std::env::var(ONLY).ok();
        Some(Self { directory: directory.into(), share, next: 0, first, only, case_file: None })
    }

    fn run(mut self, cases: impl FnOnce(&mut Self)) {
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
        let message = self.directory.join("panic");
        std::panic::set_hook(Box::new(move |panic| {
            // The first one counts: what follows while it unwinds is its consequence.
            if !message.exists() {
                let _ = std::fs::write(&message, panic.to_string());
            }
        }));
        cases(&mut self);
        let _ = std::panic::take_hook();
    }
}

enum Ending {
    Exit(ExitStatus),
    Hang,
}

fn start(test: &str, share: u64, directory: &Path, first: u64) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{share} {first} {}", directory.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Process::spawn(&mut command).unwrap()
}

fn watch(child: &mut Process, directory: &Path) -> Ending {
    let mut seen = (String::new(), Instant::now());
    loop {
        if let Some(status) = child.wait_within(Duration::from_millis(500)).unwrap() {
            return Ending::Exit(status);
        }
        let now = read(&directory.join("case"));
        if now != seen.0 {
            seen = (now, Instant::now());
        } else if seen.1.elapsed() > patience() {
            child.end().unwrap();
            return Ending::Hang;
        }
    }
}

/// Number and name of the last case that was begun.
fn read_case(directory: &Path) -> (u64, String) {
    let text = read(&directory.join("case"));
    let (number, name) = text.trim().split_once(' ').unwrap_or(("0", "before the first case"));
    (number.parse().unwrap(), name.to_owned())
}

fn read_panics(directory: &Path) -> Vec<String> {
    let path = directory.join("panics");
    let panics = read(&path).lines().map(str::to_owned).collect();
    let _ = std::fs::remove_file(path);
    panics
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
