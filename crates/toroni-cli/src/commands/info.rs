//! `toroni info`: shows the settings and the state of one bus.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::participants::{pid, state};
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{BusStats, LockOwner, Pattern, PublisherStats, RetainedStats, SubscriberSlotStats};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, Table};

#[derive(Args)]
pub(crate) struct Info {
    /// Name of the bus [default: the bus of --bus]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(super) name: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Prints the header of the bus, its publishers and its subscribers.
pub(crate) fn run(location: &BusLocation, arguments: &Info) -> Result<(), Failure> {
    let bus = location.open_existing(arguments.name.as_deref())?;
    let stats = bus.stats()?;
    let mut output = Output::new()?;
    if arguments.json {
        output.json(&full_json(&stats))?;
    } else {
        header_text(&stats, &mut output)?;
        publishers_text(&stats, &mut output)?;
        subscribers_text(&stats, &mut output)?;
    }
    output.flush()
}

/// Returns the settings of a bus and the positions of its stream.
pub(crate) fn header_json(stats: &BusStats) -> Value {
    json!({
        "name": stats.name,
        "path": stats.path.to_string_lossy(),
        "id": stats.id.to_string(),
        "capacity": stats.capacity,
        "topic_table_bytes": stats.topic_table_bytes,
        "policy": stats.policy.to_string(),
        "lock": stats.lock.to_string(),
        "notify": stats.notify.to_string(),
        "persistent": stats.persistent,
        "on_disk": stats.on_disk,
        "created": unix_seconds(stats.created),
        "max_publishers": stats.max_publishers,
        "max_subscribers": stats.max_subscribers,
        "max_arrivals": stats.max_arrivals,
        "messages": stats.sequence,
        "bytes": stats.tail,
        "oldest_position": stats.oldest_position,
        "topics": stats.topics,
        "retained": {
            "topics": stats.retained.topics,
            "max_topics": stats.retained.max_topics,
            "missing": stats.retained.missing,
            "used_bytes": stats.retained.used_bytes,
            "bytes": stats.retained.bytes,
        },
    })
}

fn full_json(stats: &BusStats) -> Value {
    let mut object = header_json(stats);
    object["lock_owner"] = stats.lock_owner.as_ref().map_or(Value::Null, |owner| {
        json!({
            "slot": owner.slot, "pid": owner.pid, "exclusive": owner.exclusive, "alive": owner.alive,
            "stopped": owner.stopped, "dumping": owner.dumping,
        })
    });
    object["publishers"] = participants(stats.publishers.as_deref(), publisher_json);
    object["subscribers"] = participants(stats.subscribers.as_deref(), subscriber_json);
    object["sockets"] = json!(stats.sockets);
    object
}

/// Returns `null` if this process has no access to the participants.
fn participants<T>(all: Option<&[T]>, one: fn(&T) -> Value) -> Value {
    all.map_or(Value::Null, |all| all.iter().map(one).collect())
}

fn publisher_json(publisher: &PublisherStats) -> Value {
    json!({
        "slot": publisher.slot,
        "name": publisher.name,
        "pid": publisher.pid,
        "same_pid_namespace": publisher.same_pid_namespace,
        "alive": publisher.alive,
        "stopped": publisher.stopped,
        "dumping": publisher.dumping,
        "started": unix_seconds(publisher.started),
        "messages": publisher.messages,
        "bytes": publisher.bytes,
        "waits": publisher.waits,
        "waited_seconds": publisher.waited.as_secs_f64(),
        "overwrites": publisher.overwrites,
        "wakes": publisher.wakes,
    })
}

fn subscriber_json(subscriber: &SubscriberSlotStats) -> Value {
    json!({
        "slot": subscriber.slot,
        "name": subscriber.name,
        "pid": subscriber.pid,
        "same_pid_namespace": subscriber.same_pid_namespace,
        "alive": subscriber.alive,
        "stopped": subscriber.stopped,
        "dumping": subscriber.dumping,
        "gating": subscriber.gating,
        "started": unix_seconds(subscriber.started),
        "position": subscriber.position,
        "lag_bytes": subscriber.lag_bytes,
        "received": subscriber.received,
        "lost_messages": subscriber.lost_messages,
        "lapses": subscriber.lapses,
        "losses": subscriber.losses,
        "lost_on_the_way": subscriber.lost_on_the_way,
        "lapped_now": subscriber.lapped_now,
        "patterns": subscriber.patterns.as_ref().map(|all| {
            all.iter().map(Pattern::as_str).collect::<Vec<_>>()
        }),
        "patterns_truncated": subscriber.patterns_truncated,
    })
}

fn header_text(stats: &BusStats, output: &mut Output) -> Result<(), Failure> {
    let held = stats.tail.saturating_sub(stats.oldest_position);
    let mut lines = vec![
        ("bus", stats.name.clone()),
        ("path", stats.path.to_string_lossy().into_owned()),
        ("id", stats.id.to_string()),
        ("created", format!("{} ago", age(stats.created))),
        (
            "ring",
            format!(
                "{}, holds the latest {} of the stream",
                human::bytes(stats.capacity),
                human::bytes(held)
            ),
        ),
        (
            "stream",
            format!("{}, {}", human::counted(stats.sequence, "message"), human::bytes(stats.tail)),
        ),
        (
            "topics",
            format!(
                "{} in a table of {}",
                human::count(stats.topics.into()),
                human::bytes(stats.topic_table_bytes)
            ),
        ),
        ("retained", retained(&stats.retained)),
        ("policy", stats.policy.to_string()),
        ("lock", format!("{}, {}", stats.lock, owner(stats.lock_owner.as_ref()))),
        ("notifier", stats.notify.to_string()),
    ];
    if stats.persistent {
        lines.push((
            "persistent",
            format!("yes (`toroni clean` keeps the bus, `toroni rm {}` removes it)", stats.name),
        ));
    }
    if stats.on_disk {
        lines.push(("on disk", "yes".to_owned()));
    }
    if !stats.sockets.is_empty() {
        lines.push(("sockets", stats.sockets.join(", ")));
    }
    for (label, value) in lines {
        output.line(&format!("{label:<11} {}", toroni_shell::output::printable(&value)))?;
    }
    Ok(())
}

fn retained(stats: &RetainedStats) -> String {
    if stats.max_topics == 0 {
        return "the bus was created to retain no topics".to_owned();
    }
    let missing = match stats.missing {
        0 => String::new(),
        missing => format!(
            "; no room for {} (`toroni create --retained-bytes`)",
            human::counted(missing.into(), "value")
        ),
    };
    format!(
        "{} of {} topics, {} of {} in use{missing}",
        human::count(stats.topics.into()),
        human::count(stats.max_topics.into()),
        human::bytes(stats.used_bytes),
        human::bytes(stats.bytes),
    )
}

/// Counts the dead, whose slots are free for others.
fn dead(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", and {count} dead") }
}

fn publishers_text(stats: &BusStats, output: &mut Output) -> Result<(), Failure> {
    let Some(publishers) = &stats.publishers else {
        return output.line("\npublishers: this process may not read them");
    };
    let alive = publishers.iter().filter(|one| one.alive).count();
    let dead = dead(publishers.len().saturating_sub(alive));
    output.line(&format!("\npublishers  {alive} of {}{dead}", stats.max_publishers))?;
    let mut table = Table::new(&[
        ">SLOT",
        "NAME",
        ">PID",
        "STATE",
        ">AGE",
        ">MESSAGES",
        ">BYTES",
        ">WAITS",
        ">WAITED",
        ">OVERWRITES",
    ]);
    for publisher in publishers {
        table.row(vec![
            publisher.slot.to_string(),
            publisher.name.clone(),
            pid(publisher.pid, publisher.same_pid_namespace),
            state(publisher.alive, publisher.stopped, publisher.dumping).to_owned(),
            age(publisher.started),
            human::count(publisher.messages),
            human::bytes(publisher.bytes),
            human::count(publisher.waits),
            human::duration(publisher.waited),
            human::count(publisher.overwrites),
        ]);
    }
    if table.is_empty() { Ok(()) } else { output.table(&table) }
}

fn subscribers_text(stats: &BusStats, output: &mut Output) -> Result<(), Failure> {
    let Some(subscribers) = &stats.subscribers else {
        return output.line("\nsubscribers: this process may not read them");
    };
    let alive = subscribers.iter().filter(|one| one.alive).count();
    let dead = dead(subscribers.len().saturating_sub(alive));
    output.line(&format!("\nsubscribers {alive} of {}{dead}", stats.max_subscribers))?;
    let mut table = Table::new(&[
        ">SLOT",
        "NAME",
        ">PID",
        "STATE",
        ">AGE",
        "GATING",
        ">LAG",
        ">RECEIVED",
        ">LOST",
        ">LAPSES",
        ">LOST ON THE WAY",
        "PATTERNS",
    ]);
    for subscriber in subscribers {
        let state = match state(subscriber.alive, subscriber.stopped, subscriber.dumping) {
            "alive" if subscriber.lapped_now => "lapped",
            state => state,
        };
        table.row(vec![
            subscriber.slot.to_string(),
            subscriber.name.clone(),
            pid(subscriber.pid, subscriber.same_pid_namespace),
            state.to_owned(),
            age(subscriber.started),
            if subscriber.gating { "yes" } else { "no" }.to_owned(),
            human::bytes(subscriber.lag_bytes),
            human::count(subscriber.received),
            human::count(subscriber.lost_messages),
            human::count(subscriber.lapses),
            human::count(subscriber.lost_on_the_way),
            patterns(subscriber),
        ]);
    }
    if table.is_empty() { Ok(()) } else { output.table(&table) }
}

fn owner(owner: Option<&LockOwner>) -> String {
    let Some(owner) = owner else { return "free".to_owned() };
    let pid = owner.pid.map_or_else(|| "an unknown process".to_owned(), |pid| format!("pid {pid}"));
    let slot = owner.slot.map_or_else(String::new, |slot| format!(" in slot {slot}"));
    let state = match (owner.alive, owner.stopped) {
        (Some(false), _) => ", which is dead: the next publisher takes the lock over",
        // Only a lock of kind `lease` names a slot.
        _ if owner.dumping && owner.slot.is_some() => {
            ", which crashed and is dumping core: the next publisher takes the lock over"
        }
        _ if owner.dumping => {
            ", which crashed and is dumping core: publishers wait until the dump is written (limit it with ulimit -c or coredump_filter)"
        }
        (_, true) if owner.exclusive => {
            ", which is stopped: nothing is published until it continues (kill -CONT) or ends"
        }
        (_, true) => ", which is stopped: publishers wait until it continues (kill -CONT) or ends",
        (_, false) if owner.exclusive => ": other publishers fail until it ends",
        (_, false) => "",
    };
    let held = if owner.exclusive { "held exclusively" } else { "held" };
    format!("{held} by {pid}{slot}{state}")
}

fn patterns(subscriber: &SubscriberSlotStats) -> String {
    let Some(patterns) = &subscriber.patterns else { return "unreadable".to_owned() };
    let mut shown: Vec<&str> = patterns.iter().map(Pattern::as_str).collect();
    if subscriber.patterns_truncated {
        shown.push("…");
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

pub(super) fn age(since: SystemTime) -> String {
    // If the clock was set back since then, the age is 0.
    human::duration(since.elapsed().unwrap_or_default())
}

pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
