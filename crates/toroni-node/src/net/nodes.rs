//! `toroni net nodes`: which nodes of a realm send to a group, and what.

use super::address::{interface_for, parse_group};
use super::membership;
use super::probe::parse_minutes;
use clap::Args;
use rustix::fd::AsFd;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::nodes::{Heard, Nodes};
use toroni_proto::id::{Source, Stream};
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::{Output, Table};
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};

/// How long it listens: each stream states itself within the longest pause by default, `session_max`, of 2 s.
const LISTENS: Duration = Duration::from_secs(3);
const CHECK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net nodes --realm plant
  toroni net nodes --group 239.192.1.7 --realm plant --json | jq .patterns

It listens to a group, and asks each stream for its patterns. A node that only receives sends nothing to the group: the \
streams count it in RECEIVERS. SOURCE is the id by which losses and metrics name a node. Streams of this host come only \
with `loop`. Nodes that set `session_max` to more than 2 s may need more --minutes.")]
pub(crate) struct NodesOf {
    /// Multicast group, with or without a port
    #[arg(long, value_name = "GROUP", value_parser = parse_group, default_value_t = DEFAULT_GROUP)]
    group: SocketAddr,
    /// The realm whose nodes are listed
    #[arg(long, value_name = "REALM", default_value = "default")]
    realm: String,
    /// How long [default: 3 s]
    #[arg(long, value_name = "N", value_parser = parse_minutes)]
    minutes: Option<Duration>,
    /// Interface [default: the only one that can multicast]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// File with the key of the realm
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Print JSON: one object per stream
    #[arg(long)]
    json: bool,
    /// Write a line to this inherited file descriptor when it listens
    #[arg(long, value_name = "FD")]
    ready_fd: Option<i32>,
}

/// Listens for the given time, or until a signal arrives. Fails if no node was heard.
pub(crate) fn run(arguments: &NodesOf) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    let interface = interface_for(arguments.group, arguments.interface.as_deref())?;
    let keys = membership::keys(arguments.key_file.as_deref())?;
    let stop = Stop::install(GracePeriod::OneSecond("writing to standard output".to_owned()))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot listen: {error}"));
    let mut nodes = Nodes::open(arguments.group, &interface, &arguments.realm, keys)
        .map_err(|error| failed(&error))?;
    let wake = stop.descriptor().map_err(|error| failed(&error))?;
    ready.signal()?;
    let (begin, limit) = (Instant::now(), arguments.minutes.unwrap_or(LISTENS));
    while begin.elapsed() < limit && !stop.is_set() {
        nodes.turn().map_err(|error| failed(&error))?;
        let left = limit.saturating_sub(begin.elapsed()).min(CHECK_EVERY);
        nodes.wait(left, Some(wake.as_fd())).map_err(|error| failed(&error))?;
    }
    let mut output = Output::new()?;
    if arguments.json {
        print_json(&mut output, &nodes)?;
    } else if nodes.streams().next().is_some() {
        output.table(&table(&nodes))?;
    }
    output.flush()?;
    match (nodes.streams().next(), nodes.refused()) {
        (Some(_), _) => Ok(()),
        (None, 0) => Err(Failure::Failed(format!(
            "no node of realm {} was heard in this group: `toroni net probe` shows whether this host hears others at all",
            arguments.realm
        ))),
        (None, refused) => Err(Failure::Failed(format!(
            "no node of realm {} was heard: {} of another realm or with another key",
            arguments.realm,
            human::counted(refused, "datagram")
        ))),
    }
}

fn table(nodes: &Nodes) -> Table {
    let mut table =
        Table::new(&["NODE", "SOURCE", "ADDRESS", ">STREAM", ">RECEIVERS", ">RATE", "PATTERNS"]);
    for (source, stream, heard) in by_name(nodes) {
        let patterns = heard.patterns().map_or_else(|| "-".to_owned(), |all| all.join(", "));
        table.row(vec![
            heard.name.clone(),
            source.to_string(),
            heard.address.to_string(),
            stream.to_string(),
            heard.receivers.to_string(),
            heard.rate.map_or_else(|| "-".to_owned(), human::bit_rate),
            patterns,
        ]);
    }
    table
}

/// Returns the streams by the names of their nodes: ids have no order that means anything.
fn by_name(nodes: &Nodes) -> Vec<(Source, Stream, &Heard)> {
    let mut streams: Vec<_> = nodes.streams().collect();
    streams.sort_by(|(_, _, one), (_, _, other)| one.name.cmp(&other.name));
    streams
}

fn print_json(output: &mut Output, nodes: &Nodes) -> Result<(), Failure> {
    for (source, stream, heard) in by_name(nodes) {
        output.json(&json!({
            "node": heard.name,
            "source": source.to_string(),
            "session": heard.session.0,
            "address": heard.address.to_string(),
            "stream": stream.0,
            "receivers": heard.receivers,
            "rate_bits": heard.rate,
            "patterns": heard.patterns(),
        }))?;
    }
    Ok(())
}
