//! `toroni clean`: frees what dead processes held, and removes unused buses.

use crate::participants;
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use std::io::{IsTerminal, Write};
use toroni::{DirectoryError, FileError, admin};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, printable};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni clean --dry-run    show what would be done
  toroni clean plant        clean only the bus plant
  toroni clean --all        also remove persistent buses; asks first

clean frees the slots and sockets of dead processes, and removes buses that no process has open. It keeps \
persistent buses: those of `toroni create`, and those that a program created as persistent. Remove them with \
`toroni rm NAME` or with --all. A bus with a damaged header may be persistent, so it is removed only by name. \
A bus that a process has open is never removed.")]
pub(crate) struct Clean {
    /// Clean only this bus [default: all buses in the directory]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(super) name: Option<String>,
    /// Also remove persistent buses that no process has open; not with NAME or --bus
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// With --all, do not ask; required if there is no terminal
    #[arg(long, requires = "all")]
    yes: bool,
    /// Show what would be done, but do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Cleans one bus or all, and prints what was done and what was skipped.
pub(crate) fn run(
    location: &BusLocation,
    arguments: &Clean,
    bus_named: bool,
) -> Result<(), Failure> {
    let name = match &arguments.name {
        Some(name) => Some(name.as_str()),
        None => bus_named.then_some(location.bus.as_str()),
    };
    let directory = location.dir.as_deref();
    let persistent = match name {
        Some(_) if arguments.all => {
            return Err(Failure::Usage("--all and --bus exclude each other".to_owned()));
        }
        None if arguments.all => confirmed(arguments, &unused_persistent(location)?)?,
        _ => Vec::new(),
    };
    let mut report = admin::clean(directory, name, arguments.dry_run)?;
    for name in &persistent {
        match admin::clean_persistent(directory, name, arguments.dry_run) {
            Ok(more) => {
                report.actions.extend(more.actions);
                report.skipped.extend(more.skipped);
            }
            // Another process has removed the bus.
            Err(DirectoryError::File(FileError::NotFound { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // If a bus is named and nothing could be done for it, the command has failed.
    let is_refused = name.is_some() && report.actions.is_empty() && !report.skipped.is_empty();
    let mut output = Output::new()?;
    for action in &report.actions {
        let action = action.to_string();
        if arguments.json {
            output.json(&json!({ "action": action, "done": !arguments.dry_run }))?;
        } else if arguments.dry_run {
            output.line(&format!("would {}", printable(&action)))?;
        } else {
            output.line(&printable(&action))?;
        }
    }
    let mut skipped = Vec::new();
    for (what, why) in &report.skipped {
        let what = what.to_string_lossy();
        if arguments.json {
            output.json(&json!({ "skipped": what, "reason": why }))?;
        }
        skipped.push(printable(&format!("skipped {what}: {why}")));
    }
    if is_refused {
        output.flush()?;
        let users = name.map(|name| participants::users(location, name)).unwrap_or_default();
        if !users.is_empty() {
            skipped.push(printable(&format!("open in {}", users.join(", "))));
        }
        return Err(Failure::Failed(skipped.join("\ntoroni: ")));
    }
    if !arguments.json {
        for line in &skipped {
            output.line(line)?;
        }
        if report.actions.is_empty() {
            output.line("Nothing to clean.")?;
        }
    }
    output.flush()
}

/// Returns the persistent buses that no process has open.
fn unused_persistent(location: &BusLocation) -> Result<Vec<String>, Failure> {
    let buses = admin::list(location.dir.as_deref())?.into_iter();
    let unused = buses.filter(|bus| bus.persistent && bus.in_use != Some(true));
    Ok(unused.map(|bus| bus.name).collect())
}

/// Asks whether the buses may be removed, unless --yes was given, and returns their names.
fn confirmed(arguments: &Clean, names: &[String]) -> Result<Vec<String>, Failure> {
    if arguments.dry_run || arguments.yes {
        return Ok(names.to_vec());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let why = "--all removes persistent buses, and without a terminal cannot ask for confirmation: add --yes";
        return Err(Failure::Usage(why.to_owned()));
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // One write: a terminal shows what is typed at any time between two. If standard error is closed, there is no answer
    // either.
    let question = format!("Remove the persistent buses {}? [y/N] ", names.join(", "));
    let _ = std::io::stderr().write_all(question.as_bytes());
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(names.to_vec());
    }
    Err(Failure::Failed("nothing was removed".to_owned()))
}
