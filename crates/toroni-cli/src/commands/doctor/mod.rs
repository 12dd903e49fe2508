//! `toroni doctor`: looks at this machine and says how to mend what it finds.

mod files;
mod network;
mod system;

use crate::cli::{BusLocation, List};
use crate::failure::Failure;
use crate::output::{Output, printable};
use crate::stop::{GracePeriod, Stop};
use serde::Serialize;
use std::path::{Path, PathBuf};
use toroni::admin;

/// Runs every check; fails if one of them fails.
pub(crate) fn run(location: &BusLocation, arguments: &List) -> Result<(), Failure> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    // A signal must not keep it from removing the bus that it tries out.
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let mut output = Output::new()?;
    let mut failures = 0;
    let mut warnings = 0;
    let checks = CHECKS.iter().map(|check| vec![check(&directory)]);
    // Made one by one, as the loop asks for them.
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
        // A check may take a second: show each as soon as it is known.
        output.flush()?;
    }
    if failures > 0 {
        return Err(Failure::Failed(format!(
            "checks that failed: {failures}; that gave warnings: {warnings}"
        )));
    }
    if !arguments.json {
        output.line(&match warnings {
            0 => "\nEverything is well.".to_owned(),
            1 => "\nToroni works here; one finding may be worth mending.".to_owned(),
            _ => format!("\nToroni works here; {warnings} findings may be worth mending."),
        })?;
    }
    output.flush()
}

type Check = fn(&Path) -> Finding;

const CHECKS: &[Check] = &[
    files::directory,
    files::room,
    files::room_of_shm,
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
    /// Works, but something is slower, or an option has no effect.
    Warn,
    /// A bus of the default settings does not work.
    Fail,
}

/// What a check found, and how to mend it.
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

/// The trimmed content of a small file of /proc or /sys, if it can be read.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The directory itself, or the nearest parent that exists.
fn existing(directory: &Path) -> PathBuf {
    directory
        .ancestors()
        .find(|path| path.exists())
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}
