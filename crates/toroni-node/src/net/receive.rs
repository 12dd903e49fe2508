//! `toroni net receive`: a node without a file that brings messages of other hosts to a bus, and prints them.
//!
//! ```text
//!   network ──► node (this thread) ──► bus ──► printer (a thread of its own) ──► standard output
//! ```
//!
//! The printer is a subscriber like any other: an output that is not read never keeps the node from its sockets.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::address::{parse_group, refuse_groups};
use super::membership::{Membership, list, quoted};
use crate::node;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use toroni::{ReceiveError, Subscriber};
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_shell::complete;
use toroni_shell::exchange::{Lapse, Loss};
use toroni_shell::failure::Failure;
use toroni_shell::location::{self, BusLocation};
use toroni_shell::output::Output;
use toroni_shell::printer::Format;
use toroni_shell::printer::{Printer, Style};
use toroni_shell::ready::ReadyFd;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net receive                               everything from the default group
  toroni net receive 'plant/**' --json | jq .payload
  toroni net receive --order arrival --group 239.192.1.7 --interface eth1

It does what `toroni node` does with the file that --print shows: it brings what `toroni net send` and other nodes of the \
realm send from now on to the bus, where every subscriber gets it. Besides, it prints what came from other hosts. Losses go to \
standard error; with --json they are objects with the field lost, between the messages. If nothing comes from another host \
within 5 s, or no other host hears this one, it says so and what to run.")]
pub(crate) struct Receive {
    /// Topics to receive, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    patterns: Vec<String>,
    /// Multicast group, with or without a port; may be given several times [default: 239.192.84.79:4479]
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    group: Vec<SocketAddr>,
    /// In which order messages of one stream arrive
    #[arg(long, value_enum, default_value_t = Order::Source)]
    order: Order,
    /// Print JSON: one object per line
    #[arg(long)]
    json: bool,
    /// End after N messages
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    membership: Membership,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// As they were published: what follows a gap waits for its repair
    Source,
    /// As they come: nothing waits for a repair
    Arrival,
}

/// Receives until a signal arrives, `--count` messages came, or the output is closed.
pub(crate) fn run(location: &BusLocation, arguments: &Receive) -> Result<(), Failure> {
    refuse_groups(&arguments.patterns)?;
    let ready = ReadyFd::claim(arguments.membership.ready_fd)?;
    let groups = match &arguments.group[..] {
        [] => &[DEFAULT_GROUP],
        groups => groups,
    };
    let order = match arguments.order {
        Order::Source => "source",
        Order::Arrival => "arrival",
    };
    let section = |group: &SocketAddr| {
        format!(
            "[[receive]]\ngroup = {}\naccept = {}\norder = {}\n",
            quoted(&group.to_string()),
            list(&arguments.patterns),
            quoted(order),
        )
    };
    let sections: String = groups.iter().map(section).collect();
    let Some(config) = arguments.membership.read(location, "receive", &sections)? else {
        return Ok(());
    };
    let patterns = location::patterns(&arguments.patterns)?;
    // The same bus as the node's, which it opens as an existing one.
    let config_of_bus = location.config().participant_name("toroni-net-receive");
    let bus = location::open_or_create(&config_of_bus, location)?;
    let mut builder = bus.subscriber().name("toroni-net-receive");
    for pattern in &patterns {
        builder = builder.pattern(pattern.as_str());
    }
    let mut subscriber = builder.build()?;
    let format = if arguments.json { Format::Json } else { Format::Text };
    let style = Style::Format { format, payload_only: false };
    let mut printer = Printer::new(Output::new()?, style, b'\n');
    let shown: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let about = format!(
        "listens to {} for {}, and brings it to bus {}; a signal (Ctrl-C) ends it",
        shown.join(", "),
        arguments.patterns.join(", "),
        location.bus,
    );
    let [printed, ended] = [(); 2].map(|()| AtomicBool::new(false));
    let count = arguments.count.unwrap_or(u64::MAX);
    std::thread::scope(|scope| {
        let printing = scope.spawn(|| {
            let outcome = print(&mut subscriber, &mut printer, count, &ended);
            printed.store(true, Ordering::Relaxed);
            outcome
        });
        let is_done = || printed.load(Ordering::Relaxed);
        let way = node::Way {
            origin: "net receive",
            about: Some(&about),
            format: node::Format::Text,
            is_service: false,
        };
        let served = node::serve(&config, &way, ready, is_done);
        ended.store(true, Ordering::Relaxed);
        let outcome = printing.join();
        let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served.and(outcome)
    })
}

/// Prints what came from elsewhere until there were `count` messages, the output is closed, or the node has ended and
/// nothing is left.
fn print(
    subscriber: &mut Subscriber,
    printer: &mut Printer,
    count: u64,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    let mut left = count;
    let mut wait = None;
    while left > 0 {
        // Looked at before the bus: then nothing comes after the last look.
        let is_last = ended.load(Ordering::Relaxed);
        let received = match wait.take() {
            None => subscriber.try_receive(),
            Some(time) => subscriber.receive_timeout(time),
        };
        match received {
            Ok(Some(message)) => {
                if message.origin().is_some() {
                    printer.print(&(&message).into())?;
                    left = left.saturating_sub(1);
                }
            }
            Ok(None) => {
                printer.output.flush()?;
                printer.output.check_reader()?;
                if is_last && count == u64::MAX {
                    return Ok(());
                }
                if is_last {
                    let received = count.saturating_sub(left);
                    return Err(Failure::Failed(format!(
                        "ended after {received} of {count} messages"
                    )));
                }
                wait = Some(toroni_shell::stop::CHECK_EVERY);
            }
            Err(error) => {
                let (loss, text) = loss(error)?;
                printer.loss(&loss, &text, false)?;
            }
        }
    }
    printer.output.flush()
}

fn loss(error: ReceiveError) -> Result<(Loss, String), Failure> {
    let loss = match &error {
        ReceiveError::Lapped { lost_messages, lost_bytes } => {
            Loss::Lapse(Lapse { messages: *lost_messages, bytes: *lost_bytes })
        }
        ReceiveError::Lost(lost) => Loss::from(&**lost),
        _ => return Err(error.into()),
    };
    Ok((loss, error.to_string()))
}
