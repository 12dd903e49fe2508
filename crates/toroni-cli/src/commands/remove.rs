//! `toroni rm`: removes buses, persistent or not, that no process has open.

use crate::participants;
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use toroni::admin::{self, CleanAction};
use toroni::{DirectoryError, FileError};
use toroni_shell::complete;
use toroni_shell::failure::{Failure, no_bus};
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, printable};

#[derive(Args)]
#[command(after_help = "Example:
  toroni rm plant ticks

A bus that a process has open is not removed.")]
pub(crate) struct Remove {
    /// Names of the buses
    #[arg(required = true, add = ArgValueCompleter::new(complete::buses))]
    names: Vec<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Removes each bus that no process has open. Fails at the end if a bus could not be removed.
pub(crate) fn run(location: &BusLocation, arguments: &Remove) -> Result<(), Failure> {
    let mut output = Output::new()?;
    let mut left = Vec::new();
    for name in &arguments.names {
        let report = match admin::clean_persistent(location.dir.as_deref(), name, false) {
            Err(DirectoryError::File(FileError::NotFound { path })) => {
                left.push(no_bus(&path));
                continue;
            }
            answer => answer?,
        };
        for action in &report.actions {
            if arguments.json {
                output.json(&json!({ "action": action.to_string(), "done": true }))?;
            } else {
                output.line(&printable(&action.to_string()))?;
            }
        }
        let is_removed = |action: &CleanAction| {
            matches!(action, CleanAction::RemoveBus(_) | CleanAction::RemoveLeftover(_))
        };
        if !report.actions.iter().any(is_removed) {
            let reasons: Vec<&str> = report.skipped.iter().map(|(_, why)| &**why).collect();
            let users = participants::users(location, name);
            let by = if users.is_empty() {
                String::new()
            } else {
                format!(" (open in {})", users.join(", "))
            };
            left.push(format!("cannot remove {name}: {}{by}", reasons.join("; ")));
        }
    }
    output.flush()?;
    if left.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(printable(&left.join("; "))))
}
