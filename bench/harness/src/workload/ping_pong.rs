//! A message there and a message back, repeatedly: the latency of a channel.
//!
//! ```text
//!   sender 0                  lane 0              receiver 0
//!   reads the clock           ─────────────────>  waits, as the setup says
//!   waits, as the setup says  <─────────────────  sends the same bytes back
//!   reads the clock           lane 1
//! ```
//!
//! One way is half of a round trip: the clocks of two cores are not compared, and both directions and both ends count.

use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::Role;
use crate::registry::Work;
use crate::sequence;
use crate::summary::Latencies;
use crate::transport::{Receiver, Sender, Transport};
use serde::{Deserialize, Serialize};

/// The work. [`Setup::message_bytes`](crate::transport::Setup) is the length of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// Number of round trips that are measured. A tenth of that, at most 10,000, come before as a warm-up.
    pub rounds: u64,
}

/// The measurements of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trips {
    /// Half of each round trip, from the end that reads the clock; empty from the other end.
    pub one_way: Latencies,
    /// Number of messages that differ from those that were sent.
    pub wrong: u64,
}

impl PingPong {
    fn warm_up(&self) -> u64 {
        (self.rounds / 10).min(10_000)
    }
}

impl Work for PingPong {
    const NAME: &'static str = "ping_pong";
    type Sent = Trips;
    type Received = Trips;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        let setup = &job.setup;
        if setup.senders != 1 || setup.receivers != 1 || setup.message_bytes < 8 {
            return Err(Failure::new("a ping-pong has one end on each side and at least 8 bytes"));
        }
        let (there, back) = (&job.directory, &job.directory.second_lane()?);
        let trips = match job.role {
            Role::Host => {
                let _hosts = [T::host(there, setup)?, T::host(back, setup)?];
                return child.host(T::about(setup));
            }
            Role::Sender(_) => {
                let sender = T::sender(there, setup, 0)?;
                let receiver = T::receiver(back, setup, 0)?;
                call(child, self, setup.message_bytes, sender, receiver)?
            }
            Role::Receiver(_) => {
                let receiver = T::receiver(there, setup, 0)?;
                let sender = T::sender(back, setup, 0)?;
                answer(child, self, setup.message_bytes, sender, receiver)?
            }
        };
        child.result(&trips)
    }
}

fn call(
    child: &mut Child,
    work: &PingPong,
    length: usize,
    mut sender: impl Sender,
    mut receiver: impl Receiver,
) -> Result<Trips, Failure> {
    let mut message = vec![0x5a; length];
    let mut trips = Trips { one_way: Latencies::new()?, wrong: 0 };
    child.ready()?;
    child.wait_at_gate()?;
    let mut progress_at = now_ns() + PROGRESS_EVERY_NS;
    for number in 0..work.warm_up() + work.rounds {
        sequence::stamp(&mut message, 0, number);
        let start = now_ns();
        sender.send(&message)?;
        let right = exchange(&mut receiver, |payload| {
            payload.len() == length && payload.get(..8) == message.get(..8)
        })?;
        let end = now_ns();
        trips.wrong += u64::from(!right);
        if number >= work.warm_up() {
            trips.one_way.record((end - start) / 2);
        }
        if end > progress_at {
            progress_at = end + PROGRESS_EVERY_NS;
            child.progress(number)?;
        }
    }
    child.finish()?;
    Ok(trips)
}

/// Nanoseconds between two reports of progress.
const PROGRESS_EVERY_NS: u64 = 5_000_000_000;

fn answer(
    child: &mut Child,
    work: &PingPong,
    length: usize,
    mut sender: impl Sender,
    mut receiver: impl Receiver,
) -> Result<Trips, Failure> {
    let mut message = vec![0; length];
    let mut wrong = 0;
    child.ready()?;
    for _ in 0..work.warm_up() + work.rounds {
        let right = exchange(&mut receiver, |payload| {
            let right = payload.len() == length;
            if right {
                message.copy_from_slice(payload);
            }
            right
        })?;
        wrong += u64::from(!right);
        sender.send(&message)?;
    }
    child.finish()?;
    Ok(Trips { one_way: Latencies::new()?, wrong })
}

/// Waits for one message. Returns whether `check` accepts it, and whether it was the only one.
#[inline]
fn exchange(
    receiver: &mut impl Receiver,
    mut check: impl FnMut(&[u8]) -> bool,
) -> Result<bool, Failure> {
    let mut right = true;
    let mut count = 0;
    while count == 0 {
        count = receiver.wait(|payload| right &= check(payload))?;
    }
    Ok(right && count == 1)
}
