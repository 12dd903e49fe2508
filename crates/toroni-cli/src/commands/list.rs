//! `toroni ls`: lists the buses of the directory.

use clap::Args;
use serde_json::json;
use std::io::Write;
use toroni::admin;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, Table, printable};

/// The options of `ls`.
#[derive(Args)]
pub(crate) struct List {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a line for each bus, also for those that cannot be opened.
pub(crate) fn run(location: &BusLocation, arguments: &List) -> Result<(), Failure> {
    let buses = admin::list(location.dir.as_deref())?;
    let mut output = Output::new()?;
    let mut table = Table::new(&["NAME", ">CAPACITY", "STATE", "PATH"]);
    let mut problems = Vec::new();
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
            // The header may be damaged or of another release: the text says which.
            state.push("cannot be opened");
            problems.push(printable(&format!("{}: {problem}", bus.name)));
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
        for (index, problem) in problems.iter().enumerate() {
            if index == 0 {
                output.line("")?;
            }
            output.line(problem)?;
        }
    } else if !arguments.json {
        // Scripts expect only buses on standard output. If standard error is closed, nothing is said.
        let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
        let _ = writeln!(
            std::io::stderr(),
            "No buses in {}. `toroni create NAME` and `toroni pub` create one.",
            directory.display()
        );
    }
    output.flush()
}
