//! The panels of the network: the feeds that nodes take part in, the streams that they send, who receives them, and what
//! nodes hear.

use super::super::keys::Choices;
use super::super::model::BusModel;
use super::super::network::NodeModel;
use super::table::{Cell, Column, Table};
use super::text;
use super::theme::Theme;
use ratatui::style::Style;
use toroni_shell::notice::{OrderMember, Sequencer};

/// Returns the three tables, and that of feeds if a node takes part in one.
pub(super) fn tables(model: &BusModel, choices: &Choices, theme: &Theme) -> Vec<Table> {
    let nodes = model.network.as_ref().map_or(&[][..], |network| &network.nodes);
    let streams = [
        sent(nodes, choices, theme),
        heard(nodes, choices, theme),
        receivers(nodes, choices, theme),
    ];
    let has_feed = nodes.iter().any(|node| node.feed.is_some());
    has_feed.then(|| feeds(nodes, choices, theme)).into_iter().chain(streams).collect()
}

/// Returns what is wrong with the nodes, for the lines below the header.
pub(super) fn problems(model: &BusModel) -> impl Iterator<Item = String> {
    let nodes = model.network.iter().flat_map(|network| &network.nodes);
    nodes.flat_map(|node| {
        let silent = node.silent_seconds.map(|silent| {
            format!("node {}: no notice for {}", node.node, text::seconds(silent.round()))
        });
        let dropped = (node.kernel_dropped > 0).then(|| {
            let count = text::count(node.kernel_dropped);
            format!(
                "node {}: {count} datagrams had no room in its sockets: see toroni net buffer",
                node.node
            )
        });
        let left_out = (node.left_out > 0).then(|| {
            format!(
                "node {}: its notices have no room for {} entries: see its metrics",
                node.node,
                text::count(node.left_out)
            )
        });
        let feed = node.feed.iter().flat_map(|feed| problems_of_feed(&node.node, &feed.now));
        [silent, dropped, left_out].into_iter().flatten().chain(feed)
    })
}

/// Returns why a host does not take part in a feed as its node should, in the words of the node's log.
fn problems_of_feed(node: &str, now: &Sequencer) -> impl Iterator<Item = String> {
    let feed = &now.feed;
    let refused = now.refused.as_ref().map(|why| {
        format!("node {node}: the order of the feed {feed} takes no commands of this host: {why}")
    });
    let multicast = now.multicast.as_ref().and_then(|multicast| multicast.problem.as_ref());
    let multicast = multicast.map(|why| {
        format!(
            "node {node}: events of the feed {feed} go over TCP alone, because multicast fails: {why}"
        )
    });
    let stopped = now.stopped.as_ref().map(|why| format!("node {node}: {why}"));
    refused.into_iter().chain(multicast).chain(stopped)
}

fn empty(nodes: &[NodeModel], choices: &Choices, none: &str) -> String {
    if !choices.filter.is_empty() {
        "none with this text".to_owned()
    } else if nodes.is_empty() {
        "no node connects this bus, or its notices cannot be read".to_owned()
    } else {
        none.to_owned()
    }
}

fn feeds(nodes: &[NodeModel], choices: &Choices, theme: &Theme) -> Table {
    let columns = vec![
        Column::names("FEEDS", 12),
        Column::left("MEMBER", 8, 2),
        Column::left("ROLE", 13, 0),
        Column::right("TERM", 6, 3),
        Column::right("EVENTS", 8, 0),
        Column::right("EVENTS/S", 8, 0),
        Column::right("COMMANDS/S", 10, 1),
        Column::left("EVENTS BY", 10, 0),
        Column::right("ASKED/S", 7, 4),
        Column::right("LIVE/S", 7, 6),
        Column::right("WAITING", 9, 5),
    ];
    let mut table = Table::new(columns, empty(nodes, choices, "none"));
    for node in nodes.iter().filter(|node| choices.shows(&node.node)) {
        let Some(feed) = &node.feed else { continue };
        let now = &feed.now;
        let member = now.member.as_ref();
        let comes_live = member.is_some() || now.multicast.is_some();
        let asks = comes_live && feed.asked_per_second.is_some_and(|asked| asked > 0.0);
        let asked = if asks { theme.warning() } else { theme.dim() };
        table.row(vec![
            Cell::from(format!("{} at {}", now.feed, node.node)),
            Cell::from(member.map_or("-", |member| member.name.as_str())),
            role(member, theme),
            Cell::from(member.map_or_else(String::new, |member| text::count(member.term))),
            Cell::from(text::count(now.events())),
            Cell::from(text::rate(feed.events_per_second)),
            Cell::from(text::rate(feed.commands_per_second)),
            way(now, asked, theme),
            Cell::new(text::rate(feed.asked_per_second), asked),
            Cell::from(text::rate(feed.came_per_second)),
            Cell::from(text::bytes(Some(toroni_shell::human::as_f64(now.waiting_bytes)))),
        ]);
    }
    table
}

/// Returns what a host is in a feed, in the words of `toroni sequencer status`.
fn role(member: Option<&OrderMember>, theme: &Theme) -> Cell {
    match member {
        None => Cell::new("no member", theme.dim()),
        Some(OrderMember { leader: None, .. }) => Cell::new("has no leader", theme.alarm()),
        Some(OrderMember { leads: true, .. }) => Cell::from("leads"),
        Some(OrderMember { leader: Some(leader), .. }) => {
            Cell::new(format!("follows {leader}"), theme.dim())
        }
    }
}

/// Returns the way by which events come to the bus of a host now. `asked` is for those that members are asked for.
fn way(now: &Sequencer, asked: Style, theme: &Theme) -> Cell {
    match (now.is_live, &now.member) {
        _ if now.stopped.is_some() => Cell::new("stopped", theme.alarm()),
        (true, Some(_)) => Cell::from("own member"),
        (true, None) => Cell::from("multicast"),
        (false, _) => Cell::new("TCP", asked),
    }
}

fn sent(nodes: &[NodeModel], choices: &Choices, theme: &Theme) -> Table {
    let columns = vec![
        Column::names("STREAMS SENT", 12),
        Column::right("MSG/S", 6, 0),
        Column::right("DATAGRAMS/S", 11, 4),
        Column::right("REPEATED", 8, 1),
        Column::right("NAKS/S", 6, 2),
        Column::right("RECEIVERS", 9, 3),
        Column::right("WAITING", 9, 5),
        Column::right("OVERTAKEN", 9, 6),
    ];
    let mut table = Table::new(columns, empty(nodes, choices, "none"));
    for node in nodes.iter().filter(|node| choices.shows(&node.node)) {
        for one in &node.sent {
            let overtaken = if one.overtaken > 0 { theme.warning() } else { theme.dim() };
            let repeats = one.repaired_share.is_some_and(|share| share >= 0.01);
            table.row(vec![
                Cell::from(format!("{} stream {}", node.node, one.stream)),
                Cell::from(text::rate(one.messages_per_second)),
                Cell::from(text::rate(one.datagrams_per_second)),
                Cell::new(
                    text::percent(one.repaired_share),
                    if repeats { theme.warning() } else { theme.dim() },
                ),
                Cell::from(text::rate(one.naks_per_second)),
                Cell::from(text::count(one.receivers)),
                Cell::from(text::bytes(Some(toroni_shell::human::as_f64(one.lag_bytes)))),
                Cell::new(text::count(one.overtaken), overtaken),
            ]);
        }
    }
    table
}

fn heard(nodes: &[NodeModel], choices: &Choices, theme: &Theme) -> Table {
    let columns = vec![
        Column::names("SOURCES HEARD", 13),
        Column::right("MSG/S", 6, 0),
        Column::right("LOST", 8, 0),
        Column::right("NAKS", 8, 1),
        Column::right("REPAIRED", 8, 2),
        Column::right("GAPS", 6, 3),
        Column::right("HELD", 8, 4),
    ];
    let mut table = Table::new(columns, empty(nodes, choices, "none"));
    for one in nodes.iter().flat_map(|node| &node.heard).filter(|one| choices.shows(&one.name)) {
        let lost = if one.lost > 0 { theme.warning() } else { theme.dim() };
        table.row(vec![
            Cell::from(format!("{} stream {}", one.name, one.stream)),
            Cell::from(text::rate(one.messages_per_second)),
            Cell::new(text::count(one.lost), lost),
            Cell::from(text::count(one.naks)),
            Cell::from(text::count(one.repaired)),
            Cell::from(text::count(one.open_gaps)),
            Cell::from(text::count(one.held_datagrams)),
        ]);
    }
    table
}

fn receivers(nodes: &[NodeModel], choices: &Choices, theme: &Theme) -> Table {
    let all = || nodes.iter().flat_map(|node| &node.receivers);
    let mut columns = vec![
        Column::names("RECEIVERS", 10),
        Column::left("ADDRESS", 21, 4),
        Column::right("LAG", 8, 2),
        Column::right("LOST", 8, 0),
        Column::right("NAKS", 8, 1),
        Column::right("NO ROOM", 8, 3),
        Column::right("RTT", 8, 5),
    ];
    let has_crybabies = all().any(|one| one.is_crybaby);
    if has_crybabies {
        columns.push(Column::left("", 9, 0));
    }
    let mut table = Table::new(columns, empty(nodes, choices, "none is heard"));
    for one in all().filter(|one| choices.shows(&one.name)) {
        let warning = |count: u64| if count > 0 { theme.warning() } else { theme.dim() };
        let dropped = one.kernel_dropped.into();
        let mut row = vec![
            Cell::from(format!("{} stream {}", one.name, one.stream)),
            Cell::new(&one.address, theme.dim()),
            Cell::from(text::count(one.lag_datagrams)),
            Cell::new(text::count(one.lost), warning(one.lost)),
            Cell::from(text::count(one.naks)),
            Cell::new(text::count(dropped), warning(dropped)),
            Cell::new(text::seconds(one.rtt_seconds), theme.dim()),
        ];
        if has_crybabies {
            let mark = if one.is_crybaby { "◄ crybaby" } else { "" };
            row.push(Cell::new(mark, theme.alarm()));
        }
        table.row(row);
    }
    table
}
