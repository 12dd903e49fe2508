//! `toroni doctor`: checks this machine and suggests a fix for each problem.

mod files;
mod network;
mod system;

use crate::cli::{BusLocation, List};
use crate::failure::Failure;
use crate::human;
use crate::output::{Output, printable};
use crate::stop::{GracePeriod, Stop};
use serde::Serialize;
use std::path::{Path, PathBuf};
use toroni::admin;

/// Runs every check. Fails if one of them fails.
pub(crate) fn run(location: &BusLocation, arguments: &List) -> Result<(), Failure> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    // After a signal, it still has to remove the bus that it created for a check.
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let mut output = Output::new()?;
    let mut failures = 0;
    let mut warnings = 0;
    let checks = CHECKS.iter().map(|check| vec![check(&directory)]);
    // Lazy: the loop runs one check after the other.
    for finding in checks.chain(std::iter::once_with(|| files::rights(&directory))).flatten() {
        if stop.is_set() {
            return Err(stop.interrupted("interrupted"));
        }
        match finding.status {
            Status::Ok => {}
            Status::Warn => warnings += 1,
            Status::Fail => failures += 1,
        }
        if arguments.json {
            output.json(&finding)?;
        } else {
            show(&finding, &mut output)?;
        }
        // A check may take a second: show each result as soon as it is known.
        output.flush()?;
    }
    if failures > 0 {
        return Err(Failure::Failed(format!(
            "{} failed, with {}: follow the lines that start with ->",
            human::counted(failures, "check"),
            human::counted(warnings, "warning")
        )));
    }
    if !arguments.json {
        output.line(&match warnings {
            0 => "\nNo problems found.".to_owned(),
            1 => "\nToroni works on this machine, with one warning.".to_owned(),
            _ => format!("\nToroni works on this machine, with {warnings} warnings."),
        })?;
    }
    output.flush()
}

type Check = fn(&Path) -> Finding;

const CHECKS: &[Check] = &[
    files::directory,
    files::free_space,
    files::free_space_of_shm,
    files::round_trip,
    files::leftovers,
    files::remove_ipc,
    system::kernel,
    system::container,
    system::pid_namespace,
    system::locked_memory,
    system::open_files,
    system::huge_pages,
    system::processors,
    system::governor,
    system::clock,
    network::receive_buffer,
    network::loopback,
    network::multicast,
];

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Toroni works, but something is slower, or an option has no effect.
    Warn,
    /// A bus with the default settings does not work.
    Fail,
}

/// The result of a check, and how to fix the problem.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    message: String,
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, message: message.into(), remedy: None }
    }

    fn warn(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, status: Status::Warn, message, remedy }
    }

    fn fail(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, status: Status::Fail, message, remedy }
    }
}

fn show(finding: &Finding, output: &mut Output) -> Result<(), Failure> {
    let status = match finding.status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
    };
    output.line(&format!("{status:<5} {:<16} {}", finding.check, printable(&finding.message)))?;
    if let Some(remedy) = &finding.remedy {
        output.line(&format!("{:<22} -> {}", "", printable(remedy)))?;
    }
    Ok(())
}

/// Reads a small file of /proc or /sys, trimmed.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the directory itself, or the nearest ancestor that exists.
fn existing(directory: &Path) -> PathBuf {
    directory
        .ancestors()
        .find(|path| path.exists())
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}
