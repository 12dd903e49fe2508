//! `toroni sequencer send`: sends a command as programs do, and waits until it is part of the order.
//!
//! If the host has the bus of events, the event itself says so. Otherwise the leader is asked how far the order has come
//! with the commands of this host.

use super::feed::{Feed, OfNode, Reach, block_on};
use crate::cli::BusLocation;
use crate::failure::Failure;
use crate::human;
use crate::output::Output;
use crate::stop::{GracePeriod, Stop};
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use toroni::{Bus, BusConfig, ReceiveError, Subscriber};
use toroni_net::node::start;
use toroni_sequencer::commands::{COURIER, Commands, CommandsError, Sent};
use toroni_sequencer::rpc::{Answer, Link, Request};

/// How long to wait until the leader is asked again, and until another member is.
const PAUSE: Duration = Duration::from_millis(2);
const ELSEWHERE: Duration = Duration::from_millis(20);
/// A member that does not answer within this time does not lead.
const ANSWER_TIME: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer send new/order '7 boxes' --config /etc/toroni/orders.toml
  toroni sequencer send new/order 7 --config orders.toml --json | jq .round_trip_seconds

The node of this host brings the command to the leader: it must run, with the section [sequencer]. With the bus of events on \
this host, the number of the event is printed; otherwise the number that the command has on the bus of commands.")]
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

/// How the end of a command is known.
enum Echo {
    /// From its event.
    Events(Box<Subscriber>),
    /// From the leader: the number of this host as a source.
    Leader(u32),
}

pub(super) fn run(location: &BusLocation, arguments: &Send) -> Result<(), Failure> {
    let stop = Stop::install(GracePeriod::OneSecond("it waited for the order".to_owned()))?;
    let OfNode { node, feed } = arguments.reach.find()?;
    let mut config = super::super::config(location);
    if let Some(directory) = node.as_ref().and_then(|node| node.bus.directory.as_ref()) {
        config = config.directory(directory);
    }
    let config = config.participant_name("toroni-sequencer-send");
    let mut echo = match events(&config, &feed)? {
        Some(subscriber) => Echo::Events(Box::new(subscriber)),
        None => match &node {
            Some(node) => {
                let (_, source) =
                    start::identity(node).map_err(|error| Failure::Failed(error.to_string()))?;
                Echo::Leader(source.0)
            }
            None => {
                return Err(Failure::Usage(format!(
                    "this host has no bus {} of events: name the file of its node with --config, so that the leader can be \
                     asked for this host's commands",
                    feed.name
                )));
            }
        },
    };
    let mut commands = Commands::open_with(config, &feed.name).map_err(of_commands)?;
    wait_for_courier(commands.bus(), &feed, arguments.timeout, &stop)?;
    let begun = Instant::now();
    let sent = commands.send(&arguments.topic, &arguments.payload).map_err(of_commands)?;
    let event = wait(&mut echo, &feed, sent, arguments.timeout, &stop)?;
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
        let is = event
            .map_or_else(|| "is part of the order".to_owned(), |event| format!("is event {event}"));
        let took = human::duration(round_trip);
        output.line(&format!("command {} of this host {is}, after {took}", sent.number))?;
    }
    output.flush()
}

fn of_commands(error: CommandsError) -> Failure {
    match error {
        CommandsError::Open(error) => error.into(),
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

/// Waits for a node that takes the commands: otherwise nobody knows when the command would leave.
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

/// Waits until the command is part of the order. Returns the number of its event, if that is known.
fn wait(
    echo: &mut Echo,
    feed: &Feed,
    sent: Sent,
    limit: Duration,
    stop: &Stop,
) -> Result<Option<u64>, Failure> {
    match echo {
        Echo::Events(subscriber) => {
            let begun = Instant::now();
            while begun.elapsed() < limit && !stop.is_set() {
                if let Some(event) = event_of(subscriber, sent)? {
                    return Ok(event);
                }
            }
        }
        Echo::Leader(source) => {
            if block_on(is_sequenced(feed, *source, sent, limit, stop))? {
                return Ok(None);
            }
        }
    }
    let number = sent.number;
    let text = format!(
        "command {number} of this host was sent, and is not known to be part of the order yet: its node keeps it and tries on"
    );
    Err(if stop.is_set() { stop.interrupted(text) } else { Failure::Failed(text) })
}

/// Reads the next event. Returns its number, if it is that of the command.
fn event_of(subscriber: &mut Subscriber, sent: Sent) -> Result<Option<Option<u64>>, Failure> {
    match subscriber.receive_timeout(Duration::from_millis(100)) {
        Ok(Some(message)) => {
            let is_echo = message.origin().is_some_and(|origin| sent.is_echo(&origin));
            Ok(is_echo.then(|| message.number()))
        }
        Ok(None) | Err(ReceiveError::Interrupted) => Ok(None),
        Err(error) if error.is_loss() => Err(Failure::Failed(format!(
            "the event of command {} may be among those that were lost here: {error}",
            sent.number
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Asks the leader until the order has the command. Returns whether that came before the limit and a signal.
async fn is_sequenced(feed: &Feed, source: u32, sent: Sent, limit: Duration, stop: &Stop) -> bool {
    let begun = Instant::now();
    let links: Vec<Link> = feed.targets().into_iter().map(Link::new).collect();
    for link in links.iter().cycle() {
        loop {
            if begun.elapsed() >= limit || stop.is_set() {
                return false;
            }
            match timeout(ANSWER_TIME, link.call(&Request::Source(source))).await {
                Ok(Ok(Answer::Source(Some(known))))
                    if known.series == sent.series && known.next > sent.number =>
                {
                    return true;
                }
                Ok(Ok(Answer::Source(_))) => sleep(PAUSE).await,
                // It does not lead.
                _ => break,
            }
        }
        sleep(ELSEWHERE).await;
    }
    false
}
