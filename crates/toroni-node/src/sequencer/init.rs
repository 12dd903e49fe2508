//! `toroni sequencer init`: begins the group of a feed, once.

use super::feed::{Member, OfNode, Reach, block_on, unexpected};
use clap::Args;
use toroni_sequencer::entry::{self, Members};
use toroni_sequencer::rpc::{Answer, Request};
use toroni_shell::failure::Failure;
use toroni_shell::note;

#[derive(Args)]
#[command(after_help = "Example:
  toroni sequencer init --config /etc/toroni/orders.toml

Start the nodes of all members first, and run this once, on any host. The group then keeps its members in its own log. If the \
realm has a key, only who has it can do this.")]
pub(super) struct Init {
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn run(arguments: &Init) -> Result<(), Failure> {
    let OfNode { feed, .. } = arguments.reach.find()?;
    let known = |member: &Member| {
        // Members are asked for the ids of their logs.
        let Member { id, name, address } = member.clone();
        (id, entry::Member { name, address: address.to_string(), log: [0; 16] })
    };
    let members =
        Members { members: feed.members.iter().map(known).collect(), ..Members::default() };
    let failed = |problem: String| {
        Failure::Failed(format!("the group of the feed {} does not begin: {problem}", feed.name))
    };
    let first = feed.members.first().ok_or_else(|| failed("it has no members".to_owned()))?;
    block_on(async {
        let statuses = feed.statuses().await;
        for (member, status) in feed.members.iter().zip(&statuses) {
            match status {
                Ok(status) if status.last.is_some() || status.term > 0 => {
                    return Err(failed(format!("{} has begun already", member.name)));
                }
                Ok(_) => {}
                Err(problem) => {
                    return Err(failed(format!(
                        "all members must run, and {} does not answer: {problem}",
                        member.name
                    )));
                }
            }
        }
        match feed.ask(first, &Request::Init(members)).await {
            Ok(Answer::Done) => Ok(()),
            Ok(answer) => Err(failed(unexpected(&answer))),
            Err(problem) => Err(failed(format!("{}: {problem}", first.name))),
        }
    })??;
    let names: Vec<_> = feed.members.iter().map(|member| member.name.as_str()).collect();
    note::remark(&format!("the feed {} begins, with {}", feed.name, names.join(", ")));
    Ok(())
}
