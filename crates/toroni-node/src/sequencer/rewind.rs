//! `toroni sequencer rewind`: writes the events of a feed to a new bus.

use super::feed::{OfNode, Reach};
use clap::Args;
use toroni::{Bus, BusConfig, Policy, Start};
use toroni_sequencer::feed::{FollowError, RewindOptions, Rewound, rewind};
use toroni_sequencer::rpc::Role;
use toroni_shell::failure::Failure;
use toroni_shell::human::parse_bytes;
use toroni_shell::location::BusLocation;
use toroni_shell::note;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer rewind again --capacity 1GiB --config node.toml
  toroni sequencer rewind part --from 120000 --config node.toml

The new bus has the events that the members still have, with their numbers and origins, up to the last one. Give it room for \
them, or subscribe to it first: publishers wait for its subscribers. It stays until `toroni rm NAME` removes it.")]
pub(super) struct Rewind {
    /// Name of the new bus
    name: String,
    /// The number of the first event [default: the first that the members have]
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,
    /// Size of the ring: a power of two from 64KiB to 1TiB [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn run(location: &BusLocation, arguments: &Rewind) -> Result<(), Failure> {
    let OfNode { node, feed } = arguments.reach.find()?;
    let mut bus = location.config().persistent(true).policy(Policy::Wait { limit: None });
    if let Some(directory) = node.as_ref().and_then(|node| node.bus.directory.as_ref()) {
        bus = bus.directory(directory);
    }
    if let Some(capacity) = arguments.capacity {
        bus = BusConfig::capacity(bus, capacity);
    }
    let role = Role::Follower { source: None };
    let options = RewindOptions {
        bus: bus.clone(),
        name: arguments.name.clone(),
        feed: feed.name.clone(),
        members: feed.targets(role),
        archives: feed.archives(role),
        from: arguments.from,
    };
    let failed = |error: FollowError| {
        Failure::Failed(format!("cannot rewind the feed {}: {error}", feed.name))
    };
    let Rewound { from, until, lost } = rewind(options).map_err(failed)?;
    let name = &arguments.name;
    match until.checked_sub(1).filter(|last| *last >= from) {
        None => {
            note::remark(&format!("the bus {name} is empty: there is no event after {from} yet"))
        }
        Some(last) => note::remark(&format!("the bus {name} has the events {from} to {last}")),
    }
    if let Some(first) = first_after_overwritten(&bus.open_existing(name)?)? {
        note::remark(&format!(
            "its ring no longer has the events before {first}, only its subscribers got them: for all events, rewind into a new \
             bus with a larger --capacity"
        ));
    }
    if lost > 0 {
        return Err(Failure::Failed(format!("{lost} of the events were purged meanwhile")));
    }
    Ok(())
}

/// Returns the number of the first event in the ring, if earlier ones were overwritten.
fn first_after_overwritten(bus: &Bus) -> Result<Option<u64>, Failure> {
    if bus.stats()?.oldest_position == 0 {
        return Ok(None);
    }
    let mut subscriber =
        bus.subscriber().pattern("**").start(Start::Oldest).gating(false).build()?;
    // A loss has no number. What follows it has.
    loop {
        match subscriber.try_receive() {
            Ok(message) => return Ok(message.and_then(|message| message.number())),
            Err(error) if error.is_loss() => {}
            Err(error) => return Err(error.into()),
        }
    }
}
