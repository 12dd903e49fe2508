//! `toroni clean`: slots, sockets and buses of those who are gone.

use crate::cli::{Clean, Place};
use crate::failure::Failure;
use crate::output::{Output, printable};
use serde_json::json;
use toroni::admin;

/// Cleans one bus or all, and says what was done and what was left alone.
pub(crate) fn run(place: &Place, arguments: &Clean, bus_named: bool) -> Result<(), Failure> {
    let name = match &arguments.name {
        Some(name) => Some(name.as_str()),
        None => bus_named.then_some(place.bus.as_str()),
    };
    let directory = place.dir.as_deref();
    let report = match name {
        Some(name) if arguments.persistent => {
            admin::clean_persistent(directory, name, arguments.dry_run)?
        }
        None if arguments.persistent => {
            return Err(Failure::Usage(
                "--persistent needs the NAME of a bus: toroni clean NAME --persistent".to_owned(),
            ));
        }
        name => admin::clean(directory, name, arguments.dry_run)?,
    };
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
