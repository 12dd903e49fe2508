//! `toroni doctor`: checks this machine and suggests a fix for each problem.

mod files;
mod network;
mod system;

use clap::Args;
use std::path::Path;
use toroni::admin;
use toroni_shell::failure::Failure;
use toroni_shell::finding::{self, Finding, existing};
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni doctor
  toroni doctor --json | jq 'select(.status != \"ok\")'

doctor checks the free space in /dev/shm and in the directory of buses, the limits of this process, namespaces, \
what dead processes left behind, what you may do with each bus, and whether each has room for the values of retained topics. It changes \
nothing, and says which command would. `toroni node doctor` checks what messages between hosts need.")]
pub(crate) struct Doctor {
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Runs every check. Fails if one of them fails.
pub(crate) fn run(location: &BusLocation, arguments: &Doctor) -> Result<(), Failure> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    let checks = CHECKS.iter().map(|check| vec![check(&directory)]);
    let checks = checks.chain(std::iter::once_with(|| files::rights(&directory)));
    let checks = checks.chain(std::iter::once_with(|| files::values(&directory)));
    finding::report(checks, "Toroni works on this machine", arguments.json)?;
    if !arguments.json {
        let mut output = Output::new()?;
        output.line("`toroni node doctor` checks what messages between hosts need.")?;
        output.flush()?;
    }
    Ok(())
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

/// Reads a small file of /proc or /sys, trimmed.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
