//! The two processes of a run.

use super::node::message;
use super::profile::Profile;
use super::ways::{self, Sender, Thread};
use super::{Plan, Way};
use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::Role;
use crate::registry::Work;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of the publisher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Number of messages that it handed over at least an interval late.
    pub(super) late: u64,
}

/// The result of the process with the subscribers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Latencies of the first subscriber in the round.
    pub(super) first: Profile,
    /// Latencies of the last subscriber.
    pub(super) last: Profile,
    /// Number of messages that did not come, or came out of order, to all subscribers together.
    pub(super) wrong: u64,
}

/// After this time without a datagram, the missing ones are lost.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// How long other processes may keep the publisher from its work, at the start and where no message can be lost.
const LONGEST_STALL: Duration = Duration::from_secs(60);
/// Number of rounds without a message between two readings of the clock.
const ROUNDS_UNTIL_CLOCK: u32 = 4096;

impl Work for Plan {
    const NAME: &'static str = "fanout";
    type Sent = Sent;
    type Received = Served;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _host = ways::host(&job.directory, self)?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: format!("{self:?}"),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
                })
            }
            Role::Sender(_) => {
                let sender = Sender::open(&job.directory, self)?;
                child.ready()?;
                child.wait_at_gate()?;
                let late = publish(&sender, self)?;
                child.finish()?;
                child.result(&Sent { late })
            }
            Role::Receiver(_) => {
                let mut thread = Thread::open(&job.directory, self)?;
                child.ready()?;
                child.wait_at_gate()?;
                serve(&mut thread, self)?;
                child.finish()?;
                child.result(&summarize(thread, self)?)
            }
        }
    }
}

/// Publishes one message at a time, at equal intervals. Returns how many were late.
fn publish(sender: &Sender, plan: &Plan) -> Result<u64, Failure> {
    let mut late = 0;
    // The process of the subscribers has to pass the gate, too.
    let mut due_ns = now_ns() + 1_000_000;
    for number in 0..plan.messages {
        let mut now = now_ns();
        late += u64::from(now >= due_ns + plan.interval_ns);
        while now < due_ns {
            std::hint::spin_loop();
            now = now_ns();
        }
        sender.send(&message(number, now))?;
        // A late publisher does not catch up: messages in a row would wait for each other.
        due_ns = (due_ns + plan.interval_ns).max(now);
    }
    Ok(late)
}

fn serve(thread: &mut Thread, plan: &Plan) -> Result<(), Failure> {
    let expected = plan.messages * u64::from(plan.subscribers);
    let (mut served, mut quiet) = (0, 0);
    let mut silent_since_ns = now_ns();
    while served < expected {
        let now_served = thread.round()?;
        served += now_served;
        if now_served > 0 {
            quiet = 0;
            continue;
        }
        quiet += 1;
        if quiet == 1 {
            silent_since_ns = u64::MAX;
        } else if quiet % ROUNDS_UNTIL_CLOCK == 0 {
            let now = now_ns();
            silent_since_ns = silent_since_ns.min(now);
            // Other processes at our priority may have delayed the first message.
            let may_lose = served > 0 && plan.way == Way::Multicast;
            let longest = if may_lose { LONGEST_SILENCE } else { LONGEST_STALL };
            if u128::from(now - silent_since_ns) >= longest.as_nanos() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn summarize(thread: Thread, plan: &Plan) -> Result<Served, Failure> {
    let mut nodes = thread.into_nodes()?;
    let lost = |node: &super::node::Node| plan.messages.saturating_sub(node.next);
    let wrong = nodes.iter().map(|node| node.wrong + lost(node)).sum();
    let mut profiles =
        nodes.iter_mut().filter_map(|node| node.samples_ns.as_deref_mut()).map(|samples| {
            Profile::of(samples).ok_or_else(|| Failure::new("a subscriber got no message at all"))
        });
    let none = || Failure::new("there are no subscribers");
    let first = profiles.next().ok_or_else(none)??;
    // A single subscriber is the first and the last.
    let last = profiles.next().unwrap_or_else(|| Ok(first.clone()))?;
    Ok(Served { first, last, wrong })
}
