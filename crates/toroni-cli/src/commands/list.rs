//! `toroni ls`: the buses of the directory.

use crate::cli::{List, Place};
use crate::failure::Failure;
use crate::human;
use crate::output::{Output, Table};
use serde_json::json;
use toroni::admin;

/// Prints a line for each bus, those that cannot be opened included.
pub(crate) fn run(place: &Place, arguments: &List) -> Result<(), Failure> {
    let buses = admin::list(place.dir.as_deref())?;
    let mut output = Output::new()?;
    let mut table = Table::new(&["NAME", ">CAPACITY", "STATE", "PATH"]);
    for bus in buses {
        if arguments.json {
            output.json(&json!({
                "name": bus.name,
                "path": bus.path.to_string_lossy(),
                "capacity": bus.capacity,
                "in_use": bus.in_use,
                "persistent": bus.persistent,
                "problem": bus.problem,
            }))?;
            continue;
        }
        let mut state = vec![match bus.in_use {
            Some(true) => "in use",
            Some(false) => "idle",
            None => "unknown",
        }];
        if bus.persistent {
            state.push("persistent");
        }
        if let Some(problem) = &bus.problem {
            state = vec![problem];
        }
        table.row(vec![
            bus.name.clone(),
            bus.capacity.map_or_else(|| "?".to_owned(), human::bytes),
            state.join(", "),
            bus.path.to_string_lossy().into_owned(),
        ]);
    }
    if !table.is_empty() {
        output.table(&table)?;
    } else if !arguments.json && output.is_terminal() {
        output.line(
            "There is no bus yet: `toroni create NAME`, `toroni pub` and `toroni sub` make one.",
        )?;
    }
    output.flush()
}
