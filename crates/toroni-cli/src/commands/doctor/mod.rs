//! `toroni doctor`: checks this machine and suggests a fix for each problem.

mod files;
#[cfg(feature = "net")]
mod hosts;
mod network;
#[cfg(feature = "net")]
mod node;
mod system;

use clap::Args;
#[cfg(feature = "net")]
use clap::ValueHint;
use serde::Serialize;
use std::path::{Path, PathBuf};
use toroni::admin;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, printable};
use toroni_shell::stop::{GracePeriod, Stop};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni doctor
  toroni doctor --json | jq 'select(.status != \"ok\")'
  toroni doctor --net --rate 200Mbit/s      also what several hosts need
  toroni doctor --net --config node.toml    also what the node of this file needs

doctor checks the free space in /dev/shm and in the directory of buses, the limits of this process, namespaces, \
what dead processes left behind, and what you may do with each bus. With --net it also checks what multicast between hosts \
needs: buffers, drops, interfaces, network cards, the clock; with --config also whether this host suits the node of that file, for the user who runs doctor. It changes nothing, and says which command would.")]
pub(crate) struct Doctor {
    /// Also check what messages between hosts need
    #[cfg(feature = "net")]
    #[arg(long)]
    net: bool,
    /// Also check what the node of this file needs, and only its interfaces
    #[cfg(feature = "net")]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "net")]
    config: Option<PathBuf>,
    /// Show every parameter of interrupt coalescing, not only those that are set
    #[cfg(feature = "net")]
    #[arg(long, requires = "net")]
    verbose: bool,
    /// Rate at which this host receives, for the check of buffers [default: 100Mbit/s; with --config the speed of the interface]
    #[cfg(feature = "net")]
    #[arg(long, value_name = "R", value_parser = crate::commands::net::parse_bit_rate, requires = "net")]
    rate: Option<u64>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Runs every check. Fails if one of them fails.
pub(crate) fn run(location: &BusLocation, arguments: &Doctor) -> Result<(), Failure> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    // After a signal, it still has to remove the bus that it created for a check.
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let mut output = Output::new()?;
    let mut failures = 0;
    let mut warnings = 0;
    let checks = CHECKS.iter().map(|check| vec![check(&directory)]);
    let checks = checks.chain(std::iter::once_with(|| files::rights(&directory)));
    #[cfg(feature = "net")]
    let checks = {
        let wanted = arguments.config.as_deref().map(node::Wanted::read).transpose()?;
        let scope = hosts::Scope::new(arguments.rate, arguments.verbose, wanted.as_ref());
        let rate = arguments.rate;
        let of_node = wanted.into_iter().map(move |wanted| wanted.checks(rate));
        checks
            .chain(of_node)
            .chain(arguments.net.then(|| hosts::checks(scope)).into_iter().flatten())
    };
    // Lazy: the loop runs one check after the other.
    for finding in checks.flatten() {
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
