//! `toroni sequencer status`: who leads, and how far each member is.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::feed::{Feed, Member, OfNode, Reach, block_on, hex};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use toroni_net::node::host_port::HostPort;
use toroni_sequencer::rpc::{Fetched, Status};
use toroni_shell::failure::Failure;
use toroni_shell::output::{Output, Table};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer status --config /etc/toroni/orders.toml
  toroni sequencer status --feed orders --members a=10.0.0.1:4481,b=10.0.0.2:4481,c=10.0.0.3:4481 --key-file plant.key --json

Columns:
  TERM    rises with each election
  EVENTS  how many events the member has applied
  FIRST   the first event that it still has
  BEHIND  entries of the log that it does not have, and the leader has
  DIGEST  the beginning of the digest of all these events")]
pub(super) struct StatusOf {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &StatusOf) -> Result<(), Failure> {
    let OfNode { feed, .. } = arguments.reach.find()?;
    let (statuses, archives, is_confirmed) = block_on(async {
        let statuses = feed.statuses().await;
        // By its place: the list may have another order than the group.
        let claims = leader(&statuses).map(|leader| leader.id);
        let answers = feed.members.iter().zip(&statuses);
        let mut found = answers.filter_map(|(member, it)| Some((member, it.as_ref().ok()?.id)));
        let is_confirmed = match found.find(|(_, id)| Some(*id) == claims) {
            Some((member, _)) => feed.is_confirmed(member).await,
            None => false,
        };
        (statuses, feed.archives_reach().await, is_confirmed)
    })?;
    let archives: Vec<_> = feed.archives.iter().zip(&archives).collect();
    let all: Vec<_> = feed.members.iter().zip(&statuses).collect();
    let leader = leader(&statuses).map(|status| Leader { status, is_confirmed });
    let mut output = Output::new()?;
    if arguments.json {
        let mut object = object(&feed, &all, leader);
        object["archives"] = archives.iter().map(archive_object).collect();
        output.json(&object)?;
    } else {
        print(&mut output, &feed, &all, leader)?;
        for archive in &archives {
            output.line(&archive_line(archive))?;
        }
    }
    output.flush()?;
    match leader {
        Some(Leader { is_confirmed: true, .. }) => Ok(()),
        Some(Leader { status, .. }) => Err(Failure::Failed(format!(
            "no majority of the members of the feed {} confirms {}, which claims to lead",
            feed.name,
            feed.name_of(status.id)
        ))),
        None if statuses.iter().flatten().any(|status| status.term > 0) => {
            Err(Failure::Failed(format!("the feed {} has no leader now", feed.name)))
        }
        None if statuses.iter().any(Result::is_ok) => {
            let advice = "toroni sequencer init begins it, when all members run";
            Err(Failure::Failed(format!("the feed {} has not begun: {advice}", feed.name)))
        }
        None => Err(Failure::Failed(format!("no member of the feed {} answers", feed.name))),
    }
}

/// A member that takes itself for the leader, and whether a majority has confirmed it.
#[derive(Clone, Copy)]
struct Leader<'a> {
    status: &'a Status,
    is_confirmed: bool,
}

/// Returns the status of the leader: of those that take themselves for one, that of the highest term.
fn leader(statuses: &[Result<Status, String>]) -> Option<&Status> {
    let leads = |status: &&Status| status.leader == Some(status.id);
    statuses.iter().flatten().filter(leads).max_by_key(|status| status.term)
}

/// Says who leads, and whether that is so.
fn leads(feed: &Feed, leader: Leader<'_>) -> String {
    let Leader { status, is_confirmed } = leader;
    let (name, term) = (feed.name_of(status.id), status.term);
    if is_confirmed {
        return format!(
            "{name} leads in term {term}, confirmed by a majority, {} events in series {}, {} commands in flight",
            status.next, status.series, status.in_flight
        );
    }
    let why = match &status.hindrance {
        Some(why) => {
            let seconds = status.contact.as_secs_f64();
            format!("{why}, so it has taken no commands for {seconds:.1} s")
        }
        None => "no majority has confirmed it within a second".to_owned(),
    };
    format!("{name} claims to lead in term {term}: {why}")
}

/// Returns the change of the members that is under way, if there is one, and who does not answer of those that it needs.
fn change(feed: &Feed, all: &[(&Member, &Result<Status, String>)]) -> Option<String> {
    let statuses = || all.iter().filter_map(|(_, status)| status.as_ref().ok());
    // The one with the longest log knows best.
    let newest = statuses().max_by_key(|status| status.last)?;
    if newest.voters.len() < 2 {
        return None;
    }
    let answers = |id: &u64| statuses().any(|status| status.id == *id);
    let name = |id: &u64| {
        let known = newest.members.iter().find(|member| member.id == *id);
        known.map_or_else(|| feed.name_of(*id), |member| member.name.clone())
    };
    let sets = newest.voters.iter().map(|set| {
        let names: Vec<_> = set.iter().map(name).collect();
        format!("{{{}}}", names.join(", "))
    });
    let sets: Vec<_> = sets.collect();
    let needed: BTreeSet<&u64> = newest.voters.iter().flatten().collect();
    let silent: Vec<_> = needed.into_iter().filter(|id| !answers(id)).map(name).collect();
    let mut text = format!("the members change: needs a majority of {}", sets.join(" and of "));
    match &silent[..] {
        [] => {}
        [one] => text.push_str(&format!("; {one} does not answer")),
        more => text.push_str(&format!("; {} do not answer", more.join(" and "))),
    }
    Some(text)
}

/// Returns how many entries a member lacks.
fn behind(status: &Status, leader: Option<&Status>) -> Option<u64> {
    let end = |status: &Status| status.last.map_or(0, |last| last.index.saturating_add(1));
    Some(end(leader?).saturating_sub(end(status)))
}

/// Returns what keeps a member from its work.
fn troubles(status: &Status) -> Vec<&str> {
    // What hinders a leader stands in the first line.
    let apart = status.hindrance.as_deref().filter(|_| status.leader != Some(status.id));
    let all = [
        (apart.is_some(), apart.unwrap_or_default()),
        (status.full, "its disk is full, so it takes no more"),
        (
            status.uncertain,
            "it may lack entries that it had answered for, so it neither votes nor leads until a leader has brought them",
        ),
        (status.needs_recovery, "too many members may lack entries, and none can lead"),
        (status.hands_over, "it hands over, and takes no commands meanwhile"),
    ];
    all.into_iter().filter_map(|(is, text)| is.then_some(text)).collect()
}

/// Returns how the members of the group differ from those that were named.
fn differences(feed: &Feed, leader: &Status) -> Vec<String> {
    // It does not know its members before it has applied its first entry.
    if leader.members.is_empty() {
        return vec![];
    }
    if let Some(moved) = moved(feed, leader) {
        return vec![moved];
    }
    let named = |id: u64| feed.members.iter().find(|member| member.id == id);
    let more = leader.members.iter().filter_map(|member| match named(member.id) {
        None => Some(format!(
            "the group has a member {} ({}) at {}, which the list does not have",
            member.name, member.id, member.address
        )),
        Some(known) if known.name != member.name || known.address.to_string() != member.address => {
            Some(format!(
                "in the group, member {} is {} at {}, and in the list {} at {}",
                member.id, member.name, member.address, known.name, known.address
            ))
        }
        Some(_) => None,
    });
    let has = |id: u64| leader.members.iter().any(|member| member.id == id);
    let fewer = feed.members.iter().filter(|member| !has(member.id)).map(|member| {
        format!("{} ({}) is in the list, and no member of the group", member.name, member.id)
    });
    more.chain(fewer).collect()
}

/// Returns how the order of the list differs from the group, if the names are the same and the numbers are not: the number
/// of a member is its place in the list.
fn moved(feed: &Feed, leader: &Status) -> Option<String> {
    let mut moved = None;
    for member in &leader.members {
        let here = feed.members.iter().find(|known| known.name == member.name)?;
        if here.id != member.id {
            moved.get_or_insert((member, here));
        }
    }
    let (member, here) = moved.filter(|_| feed.members.len() == leader.members.len())?;
    Some(format!(
        "the list has another order than the group: {} is {} in the group, and {} in the list",
        member.name, member.id, here.id
    ))
}

/// An archive as the file names it, and how far it reaches.
type Archive<'a> = (&'a HostPort, &'a Result<Fetched, String>);

fn archive_object((address, reach): &Archive<'_>) -> Value {
    let address = address.to_string();
    match reach {
        Ok(Fetched { first, now, .. }) => {
            json!({ "address": address, "first_event": first, "events": now.next })
        }
        Err(problem) => json!({ "address": address, "problem": problem }),
    }
}

fn archive_line((address, reach): &Archive<'_>) -> String {
    match reach {
        Ok(Fetched { first, now, .. }) => {
            format!(
                "archive at {address}: events from {first} on, {} in all",
                now.next.saturating_sub(*first)
            )
        }
        Err(problem) => format!("archive at {address}: does not answer: {problem}"),
    }
}

fn object(
    feed: &Feed,
    all: &[(&Member, &Result<Status, String>)],
    leader: Option<Leader<'_>>,
) -> Value {
    let confirmed = leader.filter(|leader| leader.is_confirmed);
    let claims = leader.filter(|leader| !leader.is_confirmed);
    let name = |leader: Option<Leader<'_>>| leader.map(|leader| feed.name_of(leader.status.id));
    let leader = leader.map(|leader| leader.status);
    let member = |(member, status): &(&Member, &Result<Status, String>)| {
        let mut object = json!({
            "name": member.name,
            "number": member.id,
            "address": member.address.to_string(),
        });
        let more = match status {
            Err(problem) => json!({ "problem": problem }),
            Ok(status) => json!({
                "term": status.term,
                "follows": status.leader.map(|leader| feed.name_of(leader)),
                "series": status.series,
                "events": status.next,
                "behind_entries": behind(status, leader),
                "first_event": status.first,
                "first_entry": status.purged.map_or(0, |purged| purged.index.saturating_add(1)),
                "last_entry": status.last.map(|last| last.index),
                "applied_entry": status.applied.map(|applied| applied.index),
                "digest": hex(&status.digest),
                "elections": status.elections,
                "in_flight": status.in_flight,
                "contact_seconds": status.contact.as_secs_f64(),
                "is_out_of_contact": status.is_out_of_contact,
                "room_bytes": status.room,
                "troubles": troubles(status),
            }),
        };
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object
    };
    json!({
        "feed": feed.name,
        "leader": name(confirmed),
        "unconfirmed_leader": name(claims),
        "term": leader.map(|status| status.term),
        "events": leader.map(|status| status.next),
        "members": all.iter().map(member).collect::<Vec<_>>(),
        "change": change(feed, all),
        "differences": leader.map_or_else(Vec::new, |leader| differences(feed, leader)),
    })
}

fn print(
    output: &mut Output,
    feed: &Feed,
    all: &[(&Member, &Result<Status, String>)],
    leader: Option<Leader<'_>>,
) -> Result<(), Failure> {
    output.line(&match leader {
        Some(leader) => format!("feed {}: {}", feed.name, leads(feed, leader)),
        None => format!("feed {}: no leader", feed.name),
    })?;
    let leader = leader.map(|leader| leader.status);
    let titles = ["MEMBER", "ADDRESS", "ROLE", ">TERM", ">EVENTS", ">FIRST", ">BEHIND", "DIGEST"];
    let mut table = Table::new(&titles);
    for (member, status) in all {
        let mut row = vec![member.name.clone(), member.address.to_string()];
        match status {
            Err(problem) => {
                row.push(format!("does not answer: {problem}"));
                row.resize(titles.len(), String::new());
            }
            Ok(status) => {
                let out = status.is_out_of_contact;
                let role = match status.leader {
                    Some(leader) if leader == status.id && out => "takes no commands".to_owned(),
                    Some(leader) if leader == status.id => "leads".to_owned(),
                    Some(leader) if out => format!("has lost {}", feed.name_of(leader)),
                    Some(leader) => format!("follows {}", feed.name_of(leader)),
                    None => "has no leader".to_owned(),
                };
                row.extend([
                    role,
                    status.term.to_string(),
                    status.next.to_string(),
                    status.first.to_string(),
                    behind(status, leader).map_or_else(|| "-".to_owned(), |it| it.to_string()),
                    hex(&status.digest[..8]),
                ]);
            }
        }
        table.row(row);
    }
    output.table(&table)?;
    for (member, status) in all {
        for trouble in status.iter().flat_map(troubles) {
            output.line(&format!("{}: {trouble}", member.name))?;
        }
    }
    if let Some(change) = change(feed, all) {
        output.line(&change)?;
    }
    for difference in leader.iter().flat_map(|leader| differences(feed, leader)) {
        output.line(&difference)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_sequencer::entry::Place;
    use toroni_sequencer::rpc::MemberStatus;

    #[test]
    fn a_member_may_say_that_its_log_has_any_length() {
        let with = |last| Status { last, ..Status::default() };
        let most = with(Some(Place { index: u64::MAX, ..Place::default() }));
        assert_eq!(behind(&with(None), Some(&most)), Some(u64::MAX));
        assert_eq!(behind(&most, Some(&with(None))), Some(0));
    }

    #[test]
    fn a_change_of_the_members_says_whom_it_needs() {
        let ids = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
        let status = |index, voters: Vec<BTreeSet<u64>>| Status {
            id: 0,
            last: Some(Place { index, ..Place::default() }),
            voters,
            ..Status::default()
        };
        let named = |id: u64, name: &str| Member {
            id,
            name: name.to_owned(),
            address: format!("10.0.0.{id}:4481").parse().unwrap(),
        };
        let members = vec![named(0, "a"), named(1, "b"), named(2, "c")];
        let (keys, own, archives) = (None, None, vec![]);
        let feed =
            Feed { name: "orders".to_owned(), members: members.clone(), keys, own, archives };
        let silent = || Err("it did not answer".to_owned());
        let text = |statuses: [Result<Status, String>; 3]| {
            let all: Vec<_> = members.iter().zip(&statuses).collect();
            change(&feed, &all)
        };
        let sets = || vec![ids(&[0, 1, 2]), ids(&[0, 2])];
        let older = Status { id: 1, ..status(4, vec![ids(&[0, 1, 2])]) };
        assert_eq!(text([Ok(status(4, vec![ids(&[0, 1, 2])])), silent(), silent()]), None);
        assert_eq!(
            text([Ok(status(5, sets())), silent(), silent()]).as_deref(),
            Some(
                "the members change: needs a majority of {a, b, c} and of {a, c}; b and c do not answer"
            )
        );
        assert_eq!(
            text([Ok(status(5, sets())), Ok(older), silent()]).as_deref(),
            Some(
                "the members change: needs a majority of {a, b, c} and of {a, c}; c does not answer"
            )
        );
    }

    #[test]
    fn a_group_that_differs_from_the_list_is_described() {
        let named = |id: u64, name: &str| Member {
            id,
            name: name.to_owned(),
            address: format!("10.0.0.{id}:4481").parse().unwrap(),
        };
        let known = |id: u64, name: &str, host: u64| MemberStatus {
            id,
            name: name.to_owned(),
            address: format!("10.0.0.{host}:4481"),
            ..MemberStatus::default()
        };
        let members = vec![named(0, "a"), named(1, "b"), named(2, "c")];
        let (keys, own, archives) = (None, None, vec![]);
        let feed = Feed { name: "orders".to_owned(), members, keys, own, archives };
        let same = vec![known(0, "a", 0), known(1, "b", 1), known(2, "c", 2)];
        let status = |members| Status { members, ..Status::default() };
        assert_eq!(differences(&feed, &status(same)), [""; 0]);
        assert_eq!(differences(&feed, &status(vec![])), [""; 0]);
        let moved = vec![known(1, "a", 0), known(2, "b", 1), known(0, "c", 2)];
        assert_eq!(
            differences(&feed, &status(moved)),
            ["the list has another order than the group: a is 1 in the group, and 0 in the list"]
        );
        let others = vec![known(0, "a", 7), known(1, "x", 1), known(3, "d", 3)];
        assert_eq!(
            differences(&feed, &status(others)),
            [
                "in the group, member 0 is a at 10.0.0.7:4481, and in the list a at 10.0.0.0:4481",
                "in the group, member 1 is x at 10.0.0.1:4481, and in the list b at 10.0.0.1:4481",
                "the group has a member d (3) at 10.0.0.3:4481, which the list does not have",
                "c (2) is in the list, and no member of the group",
            ]
        );
    }
}
