//! `toroni sequencer sources`: which hosts the order takes commands from.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::feed::{Feed, OfNode, Reach, block_on, hex, unexpected};
use clap::{Args, Subcommand};
use serde_json::json;
use toroni_net::node::start;
use toroni_sequencer::rpc::{Answer, Request, SourceInfo};
use toroni_shell::failure::Failure;
use toroni_shell::note;
use toroni_shell::output::{Output, Table};

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  toroni sequencer sources --config /etc/toroni/orders.toml
  toroni sequencer sources release 4f0b11aa --config /etc/toroni/orders.toml
  toroni sequencer sources remove 4f0b11aa --config /etc/toroni/orders.toml

A host becomes a source with its first command. Its number is made of its machine and of the realm and the name of its node; the \
log of the node has it, too. Without a key, run `release` and `remove` on the leader's own host.

Columns:
  SOURCE   the number of the host
  NODE     the name of the node, if it is this host
  SERIES   the series of its bus of commands
  NEXT     the number of its next command
  LAST     its last event
  COURIER  the address from which it brings commands to the leader now"
)]
pub(super) struct Sources {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON: one object for each source
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    change: Option<Change>,
}

#[derive(Subcommand)]
enum Change {
    /// Let a host that was installed again bring commands: it does not know its earlier bus any more
    Release {
        /// The source
        #[arg(value_name = "SOURCE", value_parser = number)]
        source: u32,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove a host that is gone for good: the order takes no more commands of its bus
    Remove {
        /// The source
        #[arg(value_name = "SOURCE", value_parser = number)]
        source: u32,
        #[command(flatten)]
        reach: Reach,
    },
}

fn number(text: &str) -> Result<u32, String> {
    let wrong = || "write the number as `sources` prints it, such as 4f0b11aa".to_owned();
    u32::from_str_radix(text, 16).map_err(|_| wrong())
}

pub(super) fn run(arguments: &Sources) -> Result<(), Failure> {
    match &arguments.change {
        None => list(&arguments.reach, arguments.json),
        Some(Change::Release { source, reach }) => {
            let feed = reach.find()?.feed;
            feed.change(&Request::ReleaseSource(*source))?;
            let name = feed.name;
            note::remark(&format!("the feed {name} takes the next bus that {source:08x} opens"));
            Ok(())
        }
        Some(Change::Remove { source, reach }) => {
            let feed = reach.find()?.feed;
            let known = block_on(feed.ask_leader(&Request::Sources(*source)))?;
            feed.change(&Request::RemoveSource(*source))?;
            let bus = match known {
                Ok(Answer::Sources(known)) => known.first().map(|known| known.state.bus),
                _ => None,
            };
            let bus = bus
                .map_or_else(String::new, |bus| format!(", and its bus {} is closed", hex(&bus)));
            let name = feed.name;
            note::remark(&format!("{source:08x} is no source of the feed {name} any more{bus}"));
            Ok(())
        }
    }
}

fn list(reach: &Reach, as_json: bool) -> Result<(), Failure> {
    let OfNode { node, feed } = reach.find()?;
    let own = node.and_then(|node| start::identity(&node).ok());
    let name_of =
        |source: u32| own.as_ref().filter(|(_, own)| own.0 == source).map(|(name, _)| name.clone());
    let sources = block_on(all(&feed))?.map_err(Failure::Failed)?;
    let mut output = Output::new()?;
    if as_json {
        for source in &sources {
            output.json(&json!({
                "source": format!("{:08x}", source.source),
                "node": name_of(source.source),
                "bus": hex(&source.state.bus),
                "session": source.state.session,
                "series": format!("{:08x}", source.state.series),
                "next": source.state.next,
                "last_event": source.last,
                "is_released": source.is_released,
                "courier": source.address,
            }))?;
        }
        return output.flush();
    }
    let mut table = Table::new(&["SOURCE", "NODE", "SERIES", ">NEXT", ">LAST", "COURIER"]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for source in sources {
        let courier = if source.is_released && source.address.is_none() {
            "released".to_owned()
        } else {
            or_dash(source.address)
        };
        table.row(vec![
            format!("{:08x}", source.source),
            or_dash(name_of(source.source)),
            format!("{:08x}", source.state.series),
            source.state.next.to_string(),
            or_dash(source.last.map(|last| last.to_string())),
            courier,
        ]);
    }
    output.table(&table)?;
    output.flush()
}

/// Asks the leader for all sources, some at a time.
async fn all(feed: &Feed) -> Result<Vec<SourceInfo>, String> {
    let mut all: Vec<SourceInfo> = vec![];
    let mut from = Some(0);
    while let Some(first) = from {
        match feed.ask_leader(&Request::Sources(first)).await? {
            Answer::Sources(more) => {
                // What does not go on would be asked for without end.
                let more: Vec<_> = more.into_iter().filter(|one| one.source >= first).collect();
                from = more.last().and_then(|last| last.source.checked_add(1));
                all.extend(more);
            }
            answer => return Err(unexpected(&answer)),
        }
    }
    Ok(all)
}
