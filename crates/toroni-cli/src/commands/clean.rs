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
    let report = admin::clean(place.dir.as_deref(), name, arguments.dry_run)?;
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
    for (what, why) in &report.skipped {
        let what = what.to_string_lossy();
        if arguments.json {
            output.json(&json!({ "skipped": what, "reason": why }))?;
        } else {
            output.line(&printable(&format!("left alone: {what}: {why}")))?;
        }
    }
    if report.actions.is_empty() && !arguments.json {
        output.line("Nothing to clean.")?;
    }
    output.flush()
}
