//! `toroni sequencer recover`: a new group from the log of one member.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use toroni_sequencer::log::Options;
use toroni_sequencer::raft::recover;
use toroni_shell::failure::Failure;
use toroni_shell::note;

#[derive(Args)]
#[command(after_help = "Example:
  toroni sequencer recover --accept-loss /var/lib/toroni/orders/log

Only for a feed whose majority of members is gone for ever. Stop all nodes, choose the log that reaches furthest (`toroni \
sequencer log --check` shows it), and recover from it. Its member is then alone in a new group. Start its node, remove the logs \
of the other members, start their nodes, and add each: `toroni sequencer members add`. What only the other logs had is lost.")]
pub(super) struct Recover {
    /// Accept that events which this log does not have are lost for ever
    #[arg(long, required = true)]
    accept_loss: bool,
    /// The directory of the log. No node may use it
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

pub(super) fn run(arguments: &Recover) -> Result<(), Failure> {
    let failed = |reason: &dyn std::fmt::Display| {
        Failure::Failed(format!("could not recover the group: {reason}"))
    };
    let directory = &arguments.directory;
    // Opening a log that does not exist would make one.
    if !directory.join("state").exists() {
        return Err(failed(&format!("{} is no log of a sequencer", directory.display())));
    }
    let recovery = recover(directory, Options::default()).map_err(|error| failed(&error))?;
    let member = recovery.member;
    note::remark(&format!(
        "{} at {} is alone in a new group, which continues the feed in series {}",
        member.name, member.address, recovery.series
    ));
    note::remark(&format!(
        "events below {} are as they were before; other hosts may have seen different events from {0} on",
        recovery.certain
    ));
    note::remark(&format!("the next event is {}", recovery.next));
    Ok(())
}
