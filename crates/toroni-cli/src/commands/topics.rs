//! `toroni topics`: what is in the ring now, by topic.

use crate::cli::{Info, Place};
use crate::failure::Failure;
use crate::human;
use crate::output::{Output, Table};
use serde_json::json;

/// Prints a line for each topic of the bus.
pub(crate) fn run(place: &Place, arguments: &Info) -> Result<(), Failure> {
    let bus = super::open_existing(place, arguments.name.as_deref())?;
    let mut topics = bus.topics()?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let mut output = Output::new()?;
    let mut table = Table::new(&["TOPIC", ">MESSAGES", ">BYTES"]);
    for topic in topics {
        if arguments.json {
            output.json(&json!({
                "topic": topic.name,
                "messages": topic.messages,
                "bytes": topic.bytes,
            }))?;
        } else {
            table.row(vec![topic.name, human::count(topic.messages), human::bytes(topic.bytes)]);
        }
    }
    if !table.is_empty() {
        output.table(&table)?;
    } else if !arguments.json && output.is_terminal() {
        output.line("The bus has no topics yet.")?;
    }
    output.flush()
}
