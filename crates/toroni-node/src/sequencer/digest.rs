//! `toroni sequencer digest`: compares the digests of all members at one event.

use super::feed::{Feed, Member, OfNode, Reach, block_on, hex, unexpected};
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use toroni_sequencer::machine::DIGEST_EVERY;
use toroni_sequencer::rpc::{Answer, Request};
use toroni_shell::failure::Failure;
use toroni_shell::human::parse_seconds;
use toroni_shell::output::{Output, Table};

/// How long to wait until the members are asked again.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
#[command(after_help = "Example:
  toroni sequencer digest --config /etc/toroni/orders.toml

Members with equal digests at an event have the same events up to there. They keep the digest of their last event, and of each \
4,096th. While fewer events than that are there and more arrive, the command waits for members that are equally far.")]
pub(super) struct DigestOf {
    #[command(flatten)]
    reach: Reach,
    /// How long to wait for an event that all members have, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    timeout: Duration,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

/// The digests of all members at one event, in the order of the members.
struct Compared {
    event: u64,
    digests: Vec<[u8; 32]>,
}

pub(super) fn run(arguments: &DigestOf) -> Result<(), Failure> {
    let OfNode { feed, .. } = arguments.reach.find()?;
    let begun = Instant::now();
    let compared = loop {
        if let Some(compared) = block_on(compare(&feed))?? {
            break compared;
        }
        if begun.elapsed() >= arguments.timeout {
            return Err(Failure::Failed(format!(
                "the members of the feed {} were never equally far within {:?}: try again with a longer --timeout",
                feed.name, arguments.timeout
            )));
        }
        std::thread::sleep(PAUSE);
    };
    let are_equal = compared.digests.iter().collect::<BTreeSet<_>>().len() <= 1;
    let mut output = Output::new()?;
    let all = feed.members.iter().zip(&compared.digests);
    if arguments.json {
        let digests: serde_json::Map<_, _> =
            all.map(|(member, digest)| (member.name.clone(), hex(digest).into())).collect();
        output.json(&json!({
            "feed": feed.name, "event": compared.event, "equal": are_equal, "digests": digests,
        }))?;
    } else {
        output.line(&format!(
            "feed {}: the digests at event {} are {}",
            feed.name,
            compared.event,
            if are_equal { "equal" } else { "NOT equal" }
        ))?;
        let mut table = Table::new(&["MEMBER", "DIGEST"]);
        all.for_each(|(member, digest)| table.row(vec![member.name.clone(), hex(digest)]));
        output.table(&table)?;
    }
    output.flush()?;
    if are_equal {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "the members of the feed {} have different events up to {}: stop them, and compare their logs with toroni \
         sequencer log",
        feed.name, compared.event
    )))
}

/// Compares the members, if there is an event whose digest all of them keep.
async fn compare(feed: &Feed) -> Result<Option<Compared>, Failure> {
    let silent = |member: &Member, problem: &str| {
        let (name, feed) = (&member.name, &feed.name);
        Failure::Failed(format!("member {name} of the feed {feed} was not compared: {problem}"))
    };
    let mut statuses = vec![];
    for (member, status) in feed.members.iter().zip(feed.statuses().await) {
        statuses.push(status.map_err(|problem| silent(member, &problem))?);
    }
    let Some(next) = statuses.iter().map(|status| status.next).min() else { return Ok(None) };
    let Some(last) = next.checked_sub(1) else {
        return Err(Failure::Failed(format!("the feed {} has no events yet", feed.name)));
    };
    if statuses.iter().all(|status| status.next == next) {
        let digests = statuses.iter().map(|status| status.digest).collect();
        return Ok(Some(Compared { event: last, digests }));
    }
    let Some(event) = (next / DIGEST_EVERY * DIGEST_EVERY).checked_sub(1) else { return Ok(None) };
    let mut digests = vec![];
    for (member, answer) in feed.members.iter().zip(feed.ask_all(&Request::Digest(event)).await) {
        match answer {
            Ok(Answer::Digest(Some(digest))) => digests.push(digest),
            // It began with a snapshot of another member, or has gone far beyond.
            Ok(Answer::Digest(None)) => return Ok(None),
            Ok(answer) => return Err(silent(member, &unexpected(&answer))),
            Err(problem) => return Err(silent(member, &problem)),
        }
    }
    Ok(Some(Compared { event, digests }))
}
