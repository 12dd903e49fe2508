//! `toroni sequencer send`: sends a command as programs do, and waits until it is part of the order.
//!
//! Its event says so. It is read from the bus of events, if this host has that, and else from the members.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::feed::{Feed, OfNode, Reach, block_on};
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use toroni::{Bus, BusConfig, ReceiveError, Subscriber};
use toroni_net::node::start;
use toroni_sequencer::batch::{Command, Publish};
use toroni_sequencer::commands::{COURIER, Commands, CommandsError, Sent};
use toroni_sequencer::rpc::{Answer, Fetch, Link, Request, Role};
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::stop::{GracePeriod, Stop};

/// How long to wait until another member is asked.
const ELSEWHERE: Duration = Duration::from_millis(20);
/// A member waits this long for an event that is not there yet, and answers within a longer time.
const WAIT_TIME: Duration = Duration::from_millis(500);
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// A command that is no event after this time may be refused.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FETCH_BYTES: u32 = 256 << 10;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer send new/order '7 boxes' --config /etc/toroni/orders.toml
  toroni sequencer send new/order 7 --config orders.toml --json | jq .round_trip_seconds

The node of this host brings the command to the leader: it must run, with the section [sequencer]. The event is read from the \
bus of events, if this host has it, and else from a member. The time includes that.")]
pub(super) struct Send {
    /// The topic of the command
    topic: String,
    /// What is in it
    payload: String,
    #[command(flatten)]
    reach: Reach,
    /// How long to wait for the node, and then for the order, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = human::parse_seconds)]
    timeout: Duration,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

/// Where the event of the command is read.
enum Echo {
    /// From the bus of this host.
    Bus(Box<Subscriber>),
    /// From the members, from this event on.
    Members { next: u64 },
}

pub(super) fn run(location: &BusLocation, arguments: &Send) -> Result<(), Failure> {
    let stop = Stop::install(GracePeriod::OneSecond("it waited for the order".to_owned()))?;
    let OfNode { node, feed } = arguments.reach.find()?;
    let own = node.as_ref().and_then(|node| start::identity(node).ok()).map(|(_, own)| own.0);
    let mut config = location.config();
    if let Some(directory) = node.as_ref().and_then(|node| node.bus.directory.as_ref()) {
        config = config.directory(directory);
    }
    let config = config.participant_name("toroni-sequencer-send");
    let mut echo = match events(&config, &feed)? {
        Some(subscriber) => Echo::Bus(Box::new(subscriber)),
        None => Echo::Members {
            next: block_on(next(&feed))?.ok_or_else(|| {
                Failure::Failed(format!(
                    "nothing was sent: no member of the feed {} answers",
                    feed.name
                ))
            })?,
        },
    };
    let commands = Commands::open_with(config, &feed.name).map_err(of_commands)?;
    wait_for_courier(commands.bus(), &feed, arguments.timeout, &stop)?;
    let begun = Instant::now();
    let sent = commands.send(&arguments.topic, &arguments.payload).map_err(of_commands)?;
    let is_refused = || own.is_some_and(|own| is_refused(&feed, own, commands.bus_bytes()));
    let event = wait(&mut echo, &feed, sent, (arguments.timeout, &is_refused), &stop)?;
    let round_trip = begun.elapsed();
    let mut output = Output::new()?;
    if arguments.json {
        output.json(&json!({
            "feed": feed.name,
            "event": event,
            "series": sent.series,
            "number": sent.number,
            "round_trip_seconds": round_trip.as_secs_f64(),
        }))?;
    } else {
        let took = human::duration(round_trip);
        output
            .line(&format!("event {event} after {took}: command {} of this host", sent.number))?;
    }
    output.flush()
}

fn of_commands(error: CommandsError) -> Failure {
    match error {
        CommandsError::Open(error) => error.into(),
        CommandsError::Subscriber(error) => error.into(),
        CommandsError::Publisher(error) => error.into(),
        CommandsError::Publish(error) => error.into(),
        CommandsError::TooLong(_) => Failure::Usage(error.to_string()),
    }
}

/// Subscribes to the events of a feed, if this host has their bus.
fn events(config: &BusConfig, feed: &Feed) -> Result<Option<Subscriber>, Failure> {
    use toroni::{FileError, OpenError};
    match config.clone().open_existing(&feed.name) {
        Ok(bus) => Ok(Some(bus.subscriber().pattern("**").gating(false).build()?)),
        Err(OpenError::File(FileError::NotFound { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a node that takes the commands: without one, it is unknown when the command would leave.
fn wait_for_courier(bus: &Bus, feed: &Feed, limit: Duration, stop: &Stop) -> Result<(), Failure> {
    let begun = Instant::now();
    while !bus.stats()?.subscribers.iter().flatten().any(|one| one.name == COURIER && one.alive) {
        if begun.elapsed() >= limit {
            return Err(Failure::Failed(format!(
                "nothing was sent: no node of this host takes the commands of the feed {}; start toroni node with the section \
                 [sequencer]",
                feed.name
            )));
        }
        if !stop.sleep(Duration::from_millis(50)) {
            return Err(stop.interrupted("interrupted before anything was sent"));
        }
    }
    Ok(())
}

/// Waits until the command is part of the order. Returns the number of its event.
fn wait(
    echo: &mut Echo,
    feed: &Feed,
    sent: Sent,
    (limit, is_refused): (Duration, &dyn Fn() -> bool),
    stop: &Stop,
) -> Result<u64, Failure> {
    let number = sent.number;
    let begun = Instant::now();
    let mut refused = 0_u8;
    let mut found = None;
    while found.is_none() && begun.elapsed() < limit && !stop.is_set() {
        let slice = LOOK_EVERY.min(limit.saturating_sub(begun.elapsed()));
        found = match echo {
            Echo::Bus(subscriber) => event_of(subscriber, sent, slice, stop)?,
            Echo::Members { next } => block_on(find(feed, *next, sent, slice, stop))?,
        };
        // Once, it may be that the node is about to open the bus.
        refused = if found.is_none() && is_refused() { refused.saturating_add(1) } else { 0 };
        if refused == 2 {
            return Err(Failure::Failed(format!(
                "command {number} of this host was sent, and the order takes no commands of this bus: another host has opened this \
                 source, or a later bus of this host has. Its node keeps it and tries on; its log says why"
            )));
        }
    }
    let text = format!(
        "command {number} of this host was sent, and is not known to be part of the order yet: its node keeps it and tries on"
    );
    found.ok_or_else(|| if stop.is_set() { stop.interrupted(text) } else { Failure::Failed(text) })
}

/// Whether the order has another bus of this host than this one.
fn is_refused(feed: &Feed, own: u32, bus: [u8; 16]) -> bool {
    let asked = block_on(feed.ask_leader(&Request::Sources(own)));
    match asked {
        Ok(Ok(Answer::Sources(sources))) => {
            sources.first().is_some_and(|known| known.source == own && known.state.bus != bus)
        }
        _ => false,
    }
}

/// Reads events of the bus until that of the command comes.
fn event_of(
    subscriber: &mut Subscriber,
    sent: Sent,
    limit: Duration,
    stop: &Stop,
) -> Result<Option<u64>, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < limit && !stop.is_set() {
        match subscriber.receive_timeout(Duration::from_millis(100)) {
            Ok(Some(message)) => {
                if message.origin().is_some_and(|origin| sent.is_echo(&origin)) {
                    return Ok(message.number());
                }
            }
            Ok(None) | Err(ReceiveError::Interrupted) => {}
            Err(error) if error.is_loss() => {
                return Err(Failure::Failed(format!(
                    "the event of command {} may be among those that were lost here: {error}",
                    sent.number
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Reads events from members until that of the command comes. Returns its number, or none after the limit or a signal.
async fn find(feed: &Feed, mut from: u64, sent: Sent, limit: Duration, stop: &Stop) -> Option<u64> {
    let begun = Instant::now();
    let links: Vec<Link> = feed.targets(Role::Tool).into_iter().map(Link::new).collect();
    for link in links.iter().cycle() {
        while begun.elapsed() < limit && !stop.is_set() {
            let (max_bytes, wait) = (FETCH_BYTES, WAIT_TIME);
            let fetch = Request::Fetch(Fetch { from, max_bytes, wait, series: None });
            let Ok(Ok(Answer::Fetched(fetched))) = timeout(ANSWER_TIME, link.call(&fetch)).await
            else {
                break;
            };
            let Some(events) = &fetched.events else {
                // It is not that far. Or it has begun later, and what is before stays unknown.
                from = from.max(fetched.first);
                break;
            };
            for (command, _) in events.commands() {
                if matches!(command, Command::Publish(Publish { id, .. })
                    if id.series == sent.series && id.number == sent.number)
                {
                    return Some(from);
                }
                from = from.saturating_add(1);
            }
        }
        if begun.elapsed() >= limit || stop.is_set() {
            break;
        }
        sleep(ELSEWHERE).await;
    }
    None
}

/// Returns the first event that a command can be which is sent now.
async fn next(feed: &Feed) -> Option<u64> {
    feed.statuses().await.iter().flatten().map(|status| status.next).min()
}
