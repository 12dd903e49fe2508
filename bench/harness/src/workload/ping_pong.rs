//! A message there and a message back, again and again: the latency of a channel.
//!
//! ```text
//!   sender 0                lane 0                receiver 0
//!   takes the time ────────────────────────────>  waits, as the setup says
//!   waits, as the setup says  <────────────────── sends the same bytes back
//!   takes the time            lane 1
//! ```
//!
//! One way is half of a round trip, so no clocks of two cores are compared, and both directions and
//! both ends are in it.

use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::{Job, Role};
use crate::sequence;
use crate::summary::Latencies;
use crate::transport::{Receiver, Sender, Transport};
use serde::{Deserialize, Serialize};

/// What is sent to and fro; [`Setup::message_bytes`](crate::transport::Setup) says how long it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// Round trips that are measured; a tenth of them, at most 10,000, goes before and is not.
    pub rounds: u64,
}

/// What both ends measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trips {
    /// Half of each round trip, of the end that takes the time; empty at the other one.
    pub one_way: Latencies,
    /// Messages that were not those that were sent.
    pub wrong: u64,
}

impl PingPong {
    fn warm_up(&self) -> u64 {
        (self.rounds / 10).min(10_000)
    }
}

pub(super) fn perform<T: Transport>(
    child: &mut Child,
    job: &Job,
    work: &PingPong,
) -> Result<(), Failure> {
    if job.setup.senders != 1 || job.setup.receivers != 1 || job.setup.message_bytes < 8 {
        return Err(Failure::new("a ping-pong has one end on each side and 8 bytes at least"));
    }
    let (there, back) = (&job.directory, &job.directory.second_lane()?);
    let trips = match job.role {
        Role::Host => return Ok(()),
        Role::Sender(_) => {
            let sender = T::sender(there, &job.setup, 0)?;
            let receiver = T::receiver(back, &job.setup, 0)?;
            call(child, work, job.setup.message_bytes, sender, receiver)?
        }
        Role::Receiver(_) => {
            let receiver = T::receiver(there, &job.setup, 0)?;
            let sender = T::sender(back, &job.setup, 0)?;
            answer(child, work, job.setup.message_bytes, sender, receiver)?
        }
    };
    child.result(&trips)
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

/// Signs of life of a long run.
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

/// Waits for one message; whether it is right, and the only one.
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
