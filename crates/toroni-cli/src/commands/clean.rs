//! `toroni clean`: slots, sockets and buses of those who are gone.

use crate::cli::BusLocation;
use crate::complete;
use crate::failure::Failure;
use crate::output::{Output, printable};
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use std::io::{IsTerminal, Write};
use toroni::{OpenError, admin};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni clean --dry-run    what would be done
  toroni clean plant        only the bus plant
  toroni clean --all        also buses that were made on purpose; asks first

A bus that was made on purpose, with `toroni create` or as persistent by a program, stays: remove it with \
`toroni rm NAME` or with --all. A bus that somebody has open is never removed. One whose header is damaged \
cannot say how it was made: it is removed only by its name.")]
pub(crate) struct Clean {
    /// Only this bus [default: all of the directory]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(super) name: Option<String>,
    /// Also remove buses that were made on purpose, if nobody has them open
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// Do not ask before --all; needed where there is no terminal
    #[arg(long, requires = "all")]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Cleans one bus or all, and says what was done and what was left alone.
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
    let made_on_purpose = match name {
        Some(_) if arguments.all => {
            return Err(Failure::Usage("--all and --bus exclude each other".to_owned()));
        }
        None if arguments.all => confirmed(arguments, &to_be_removed(location)?)?,
        _ => Vec::new(),
    };
    let mut report = admin::clean(directory, name, arguments.dry_run)?;
    for name in &made_on_purpose {
        match admin::clean_persistent(directory, name, arguments.dry_run) {
            Ok(more) => {
                report.actions.extend(more.actions);
                report.skipped.extend(more.skipped);
            }
            // Somebody else has removed it.
            Err(OpenError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Whoever named a bus wants it gone, or cleaned: that nothing could be done is no success.
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
    let mut left_alone = Vec::new();
    for (what, why) in &report.skipped {
        let what = what.to_string_lossy();
        if arguments.json {
            output.json(&json!({ "skipped": what, "reason": why }))?;
        }
        left_alone.push(printable(&format!("left alone: {what}: {why}")));
    }
    if is_refused {
        output.flush()?;
        return Err(Failure::Failed(left_alone.join("\ntoroni: ")));
    }
    if !arguments.json {
        for line in &left_alone {
            output.line(line)?;
        }
        if report.actions.is_empty() {
            output.line("Nothing to clean.")?;
        }
    }
    output.flush()
}

/// Buses that were made on purpose and that nobody has open.
fn to_be_removed(location: &BusLocation) -> Result<Vec<String>, Failure> {
    let buses = admin::list(location.dir.as_deref())?.into_iter();
    let unused = buses.filter(|bus| bus.persistent && bus.in_use != Some(true));
    Ok(unused.map(|bus| bus.name).collect())
}

/// The same names, if they may be removed: it was said beforehand, or is said now.
fn confirmed(arguments: &Clean, names: &[String]) -> Result<Vec<String>, Failure> {
    if arguments.dry_run || arguments.yes {
        return Ok(names.to_vec());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let why =
            "--all removes buses that were made on purpose: add --yes where nobody can be asked";
        return Err(Failure::Usage(why.to_owned()));
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // There is nobody to ask if standard error is closed, and no answer either.
    let _ =
        write!(std::io::stderr(), "Remove what was made on purpose: {}? [y/N] ", names.join(", "));
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(names.to_vec());
    }
    Err(Failure::Failed("nothing was removed".to_owned()))
}
