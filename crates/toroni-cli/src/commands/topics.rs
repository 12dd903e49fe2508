//! `toroni topics`: shows the topics of the messages in the ring, and their subscribers.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::{opening, participants};
use clap::Args;
use clap_complete::ArgValueCompleter;
use serde_json::{Value, json};
use toroni::{SubscriberSlotStats, ValueStats};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::{Output, Table};
use toroni_shell::{human, note};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni -b plant topics 'boiler/**'
  toroni topics --json | jq -r 'select(.messages > 100) | .topic'
  toroni topics --json | jq -r 'select(.value.state == \"missing\") | .topic'

If topics are retained, VALUE is the size of the newest message that the bus keeps of each. It is none if there is none or it was \
cleared, missing if the bus had no room for it, and - for a topic that is not retained. AGE is the age of the value, if its \
publisher stamps messages (pub --timestamps).")]
pub(crate) struct Topics {
    /// Topics to show, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    patterns: Vec<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// How many subscribers a row of the table names. `--json` names all.
const MOST_NAMED: usize = 8;

/// Prints a line for each topic that matches a pattern.
pub(crate) fn run(location: &BusLocation, arguments: &Topics) -> Result<(), Failure> {
    let patterns = toroni_shell::location::patterns(&arguments.patterns)?;
    opening::remark_on_bus_as_pattern(location, &patterns, "topics");
    let bus = location.open_existing(None)?;
    let mut topics = bus.topics()?;
    topics.retain(|topic| patterns.iter().any(|pattern| pattern.matches(&topic.name)));
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let subscribers = match bus.stats() {
        Ok(stats) => stats.subscribers,
        // Any subscriber can damage the file of the subscribers. That does not affect the topics.
        Err(error) => {
            note::remark(&format!("cannot read the subscribers: {error}"));
            None
        }
    };
    let subscribers: Option<Vec<SubscriberSlotStats>> =
        subscribers.map(|all| all.into_iter().filter(|one| one.alive).collect());
    let mut output = Output::new()?;
    let has_values = topics.iter().any(|topic| topic.value.is_some());
    let values = if has_values { &[">VALUE", ">AGE"][..] } else { &[] };
    let titles = [&["TOPIC", ">MESSAGES", ">BYTES"], values, &[">SUBSCRIBERS", "NAMES"]].concat();
    let mut table = Table::new(&titles);
    for topic in topics {
        let listeners = subscribers.as_deref().map(|all| listeners(all, &topic.name));
        if arguments.json {
            output.json(&json!({
                "topic": topic.name,
                "messages": topic.messages,
                "bytes": topic.bytes,
                "value": value_json(topic.value),
                "subscribers": listeners.map(|all| all.iter().map(listener_json).collect::<Value>()),
            }))?;
        } else {
            let certain =
                listeners.as_ref().map(|all| all.iter().filter(|one| one.certain).count());
            let mut cells =
                vec![topic.name, human::count(topic.messages), human::bytes(topic.bytes)];
            if has_values {
                cells.extend(value(topic.value));
            }
            cells.extend([
                certain.map_or_else(|| "not visible".to_owned(), |count| count.to_string()),
                names(&listeners.unwrap_or_default()),
            ]);
            table.row(cells);
        }
    }
    if !table.is_empty() {
        output.table(&table)?;
    } else if !arguments.json && output.is_terminal() {
        output.line(&format!(
            "No message in the ring has a topic that matches {}.",
            arguments.patterns.join(", ")
        ))?;
    }
    output.flush()
}

/// Returns the value of a topic, and its age.
fn value(value: Option<ValueStats>) -> [String; 2] {
    let none = || "-".to_owned();
    match value {
        Some(ValueStats::None) => ["none".to_owned(), none()],
        Some(ValueStats::Kept { bytes, published, .. }) => {
            [human::bytes(bytes), published.map_or_else(none, super::info::age)]
        }
        Some(ValueStats::Missing { bytes, .. }) => {
            [format!("missing ({})", human::bytes(bytes)), none()]
        }
        _ => [none(), none()],
    }
}

fn value_json(value: Option<ValueStats>) -> Value {
    match value {
        Some(ValueStats::None) => json!({ "state": "none" }),
        Some(ValueStats::Kept { sequence, bytes, published }) => json!({
            "state": "kept",
            "sequence": sequence,
            "bytes": bytes,
            "published": published.map(super::info::unix_seconds),
        }),
        Some(ValueStats::Missing { sequence, bytes }) => {
            json!({ "state": "missing", "sequence": sequence, "bytes": bytes })
        }
        _ => Value::Null,
    }
}

/// A subscriber that receives, or may receive, a topic.
struct Listener<'a> {
    subscriber: &'a SubscriberSlotStats,
    /// Whether a pattern that is shown matches. If not, the shown list is truncated, and a missing one may match.
    certain: bool,
}

fn listeners<'a>(subscribers: &'a [SubscriberSlotStats], topic: &str) -> Vec<Listener<'a>> {
    let listener = |subscriber: &'a SubscriberSlotStats| match subscriber.matches(topic) {
        Some(false) => None,
        answer => Some(Listener { subscriber, certain: answer.is_some() }),
    };
    subscribers.iter().filter_map(listener).collect()
}

fn listener_json(Listener { subscriber, certain }: &Listener<'_>) -> Value {
    json!({
        "slot": subscriber.slot,
        "name": subscriber.name,
        "pid": subscriber.pid,
        "same_pid_namespace": subscriber.same_pid_namespace,
        "certain": certain,
    })
}

fn names(listeners: &[Listener<'_>]) -> String {
    let name = |Listener { subscriber, certain }: &Listener<'_>| {
        let perhaps = if *certain { "" } else { "perhaps " };
        let pid = participants::pid(subscriber.pid, subscriber.same_pid_namespace);
        format!("{perhaps}{} ({pid})", subscriber.name)
    };
    let mut names: Vec<String> = listeners.iter().take(MOST_NAMED).map(name).collect();
    if listeners.len() > MOST_NAMED {
        names.push(format!("and {} more", listeners.len().saturating_sub(MOST_NAMED)));
    }
    names.join(", ")
}
