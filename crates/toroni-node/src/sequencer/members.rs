//! `toroni sequencer elect` and `members …`: who leads, and who belongs to the group.

use super::feed::{Reach, member};
use clap::{Args, Subcommand};
use toroni_net::node::host_port::HostPort;
use toroni_sequencer::rpc::Request;
use toroni_shell::failure::Failure;
use toroni_shell::note;

#[derive(Args)]
#[command(after_help = "Example:
  toroni sequencer elect --member b --config /etc/toroni/orders.toml

The leader waits until the member has the whole log, and hands over. Commands wait meanwhile, for about half a second, and none \
is lost. If the member does not lead in time, the leader stays. Without a key, run it on the leader's own host.")]
pub(super) struct Elect {
    /// The member that is to lead
    #[arg(long, value_name = "NAME")]
    member: String,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer members add d=10.0.0.4:4481 --config /etc/toroni/orders.toml
  toroni sequencer members remove b --config /etc/toroni/orders.toml

Start the node of a new member first, with an empty log and the member at the end of its list. After the change, write the same \
list to the files of all hosts. A member that was removed keeps its place in the lists, because the place is its number. \
Without a key, run it on the leader's own host.")]
pub(super) struct Members {
    #[command(subcommand)]
    change: Change,
}

#[derive(Subcommand)]
enum Change {
    /// Take a member into the group: it votes when it has the log
    Add {
        /// The member, as NAME=HOST:PORT
        #[arg(value_name = "MEMBER", value_parser = member)]
        member: (String, HostPort),
        #[command(flatten)]
        reach: Reach,
    },
    /// Take a member out of the group, whether it runs or not
    Remove {
        /// The name of the member
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
}

pub(super) fn elect(arguments: &Elect) -> Result<(), Failure> {
    let name = &arguments.member;
    let feed = arguments.reach.find()?.feed;
    feed.change(&Request::HandOver(name.clone()))?;
    note::remark(&format!("{name} leads the feed {}", feed.name));
    Ok(())
}

pub(super) fn run(arguments: &Members) -> Result<(), Failure> {
    match &arguments.change {
        Change::Add { member: (name, address), reach } => {
            let feed = reach.find()?.feed;
            feed.change(&Request::Add { name: name.clone(), address: address.to_string() })?;
            note::remark(&format!("{name} is a member of the feed {}, and votes", feed.name));
        }
        Change::Remove { name, reach } => {
            let feed = reach.find()?.feed;
            feed.change(&Request::Remove(name.clone()))?;
            note::remark(&format!("{name} is no longer a member of the feed {}", feed.name));
        }
    }
    Ok(())
}
