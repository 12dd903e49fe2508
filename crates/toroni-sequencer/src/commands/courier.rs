//! The courier: reads the command bus and brings each command to the leader, until the leader says that it is an event.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toroni::{
    Bus, BusConfig, HoldError, OpenError, ReceiveError, Start, Subscriber, SubscriberError,
};

use super::{bytes_of, open_bus, series_of};
use crate::batch::{BatchError, Builder, Command, CommandId, Lost, Open, Publish};
use crate::machine::{Outcome, Refusal};
use crate::rpc::{Answer, InTurn, Request, Role, SourceState, Target};

/// The name under which a courier subscribes to the bus of commands.
pub const COURIER: &str = "courier";
/// At most this many bytes of one source are submitted at once.
const SUBMIT_BYTES: usize = 64 << 10;
/// If a leader does not answer for this long, the courier asks another member: the leader may be stopped or cut off,
/// and another one elected meanwhile. If it was only slow, what the courier sends again is a duplicate.
const ANSWER_TIME: Duration = Duration::from_millis(700);
/// How often the courier sees whether it must end.
const IDLE_TIME: Duration = Duration::from_millis(50);
const AGAIN_TIME: Duration = Duration::from_millis(20);

/// What a courier is started with.
#[derive(Debug)]
pub struct CourierOptions {
    /// The settings of the command bus, such as its directory.
    pub bus: BusConfig,
    /// The name of the feed.
    pub feed: String,
    /// The node.
    pub source: u32,
    /// The life of the node, greater than that of every earlier one.
    pub session: u32,
    /// The members of the group. They are called as courier of the source, whatever the targets say.
    pub members: Vec<Target>,
    /// How many bits of commands it brings in a second at most.
    pub rate: Option<u64>,
}

/// Why a courier cannot work. What is about the network alone is tried again.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// The command bus cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The command bus cannot be read.
    #[error(transparent)]
    Subscribe(#[from] SubscriberError),
    /// The command bus cannot be read any more.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// There is nowhere to bring commands.
    #[error("the group has no members: name at least one")]
    NoMembers,
    /// Publishers do not wait for the courier.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The order does not take commands of this bus, and never will.
    #[error("the order takes no commands of this bus: {0}")]
    Refused(Refusal),
    /// A command that cannot be one.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No runtime, or no thread.
    #[error("could not start: {0}")]
    Start(#[from] std::io::Error),
}

/// What a courier has done, in numbers. Clones count the same.
#[derive(Debug, Clone, Default)]
pub struct CourierCounts {
    brought: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl CourierCounts {
    /// Commands that became events, or had before.
    #[must_use]
    pub fn brought(&self) -> u64 {
        self.brought.load(Ordering::Relaxed)
    }

    /// How often a leader was found.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A running courier, in a thread of its own. Ends when it is dropped.
#[derive(Debug)]
pub struct Courier {
    ends: Arc<AtomicBool>,
    counts: CourierCounts,
    thread: Option<JoinHandle<Result<(), CourierError>>>,
}

impl Courier {
    /// Starts a courier. One for each host and feed.
    ///
    /// # Errors
    ///
    /// If the bus cannot be opened, or no thread be started.
    pub fn start(options: CourierOptions) -> Result<Self, CourierError> {
        let CourierOptions { bus, feed, source, session, members, rate } = options;
        if members.is_empty() {
            return Err(CourierError::NoMembers);
        }
        let bus = open_bus(bus, &feed)?;
        // Holds what is in the ring, so that nothing is overwritten before it is known what the order has.
        let holder = subscribe(&bus, Start::Oldest)?;
        let role = Role::Courier { source };
        let members = members.into_iter().map(|member| Target { role, ..member }).collect();
        let members = InTurn::new(members, vec![])?;
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), CourierCounts::default());
        let mut work = Work {
            series: series_of(&bus),
            bus,
            source,
            session,
            members,
            pace: Pace { rate, due: Instant::now() },
            ends: Arc::clone(&ends),
            counts: counts.clone(),
        };
        let thread = std::thread::Builder::new().name("toroni-courier".to_owned());
        let thread = thread.spawn(move || work.run(holder))?;
        Ok(Self { ends, counts, thread: Some(thread) })
    }

    /// Returns what the courier has done.
    #[must_use]
    pub fn counts(&self) -> CourierCounts {
        self.counts.clone()
    }

    /// Returns whether the courier has ended by itself. [`Self::end`] says why.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the courier.
    ///
    /// # Errors
    ///
    /// If it had to end before.
    pub fn end(mut self) -> Result<(), CourierError> {
        self.ends.store(true, Ordering::Relaxed);
        // A panic of the thread was printed.
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn subscribe(bus: &Bus, start: Start) -> Result<Subscriber, SubscriberError> {
    bus.subscriber().pattern("**").start(start).gating(true).name(COURIER).build()
}

struct Work {
    bus: Bus,
    series: u32,
    source: u32,
    session: u32,
    members: InTurn,
    pace: Pace,
    ends: Arc<AtomicBool>,
    counts: CourierCounts,
}

/// Keeps commands to a rate: each batch takes its time, and the next one waits for that.
struct Pace {
    rate: Option<u64>,
    due: Instant,
}

impl Pace {
    /// Returns how many bytes may be brought at once, so that a batch takes no longer than 100 ms.
    fn batch_bytes(&self) -> usize {
        let rate = self.rate.map_or(u64::MAX, |rate| rate / 80);
        usize::try_from(rate).unwrap_or(usize::MAX).clamp(1, SUBMIT_BYTES)
    }

    /// Returns how long to wait before more is brought.
    fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    fn brings(&mut self, bytes: usize) {
        if let Some(rate) = self.rate {
            let seconds = bytes as f64 * 8.0 / rate.max(1) as f64;
            let due = self.due.max(Instant::now());
            self.due = due.checked_add(Duration::from_secs_f64(seconds)).unwrap_or(due);
        }
    }
}

impl Work {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Reads and brings commands. `holder` holds those that the order may not have.
    fn run(&mut self, mut holder: Subscriber) -> Result<(), CourierError> {
        while !self.ends() {
            let Some(state) = self.open()? else {
                std::thread::sleep(AGAIN_TIME);
                continue;
            };
            self.counts.connections.fetch_add(1, Ordering::Relaxed);
            // A second subscriber begins where the order continues, while the first still holds that.
            let mut reader = match subscribe(&self.bus, Start::Sequence(state.next)) {
                // Publishers overwrote it while no courier held it. `holder` keeps the oldest one in the ring.
                Err(SubscriberError::SequenceLost { .. }) => subscribe(&self.bus, Start::Oldest)?,
                other => other?,
            };
            let first = reader.sequence();
            reader.hold(first)?;
            holder = self.bring(reader, holder, state.next, first)?;
        }
        drop(holder);
        Ok(())
    }

    /// Opens the series with the leader. If this member does not lead, the next call asks the one that does, as this one
    /// says, or another one.
    fn open(&mut self) -> Result<Option<SourceState>, CourierError> {
        let (source, series, session) = (self.source, self.series, self.session);
        let open = Open { source, series, session, bus: bytes_of(&self.bus) };
        let opened = self.members.call(&submission(&[Command::Open(open)])?, ANSWER_TIME);
        if let Ok(Answer::Outcomes(outcomes)) = &opened {
            if let Some(Outcome::Refused(refusal)) = outcomes.first() {
                return Err(CourierError::Refused(*refusal));
            }
            if !outcomes.is_empty()
                && let Ok(Answer::Source(Some(state))) =
                    self.members.call(&Request::Source(source), ANSWER_TIME)
                && state.series == series
            {
                return Ok(Some(state));
            }
        }
        let leader = match &opened {
            Ok(Answer::NotLeader(Some((_, address)))) => Some(address.as_str()),
            _ => None,
        };
        self.members.turn_to(leader);
        Ok(None)
    }

    /// Brings commands from `wanted` on, until the leader is gone. `first` is the first one that is in the ring. Returns
    /// the subscriber that holds what the order may not have.
    fn bring(
        &mut self,
        mut reader: Subscriber,
        before: Subscriber,
        wanted: u64,
        first: u64,
    ) -> Result<Subscriber, CourierError> {
        // The reader holds from here on.
        drop(before);
        let mut next = wanted;
        if first > wanted {
            let lost = Lost {
                source: self.source,
                series: self.series,
                first: wanted,
                last: first.saturating_sub(1),
            };
            if !self.submit(&submission(&[Command::Lost(lost)])?, &mut next, &[first])? {
                return Ok(reader);
            }
        }
        while !self.ends() {
            let mut builder = Builder::new();
            let mut places = vec![];
            let mut bytes = 0;
            let mut message = reader.receive_timeout(IDLE_TIME)?;
            while let Some(command) = message {
                let number = command.sequence();
                let publish = Command::Publish(Publish {
                    id: CommandId { source: self.source, series: self.series, number },
                    to_descendants: command.to_descendants(),
                    topic: command.topic(),
                    payload: command.payload(),
                });
                match builder.push(&publish) {
                    Ok(()) => {}
                    // It was published by something else than `Commands`. It leaves a gap that every host sees.
                    Err(BatchError::CommandTooLong | BatchError::Topic) => {
                        let (source, series) = (self.source, self.series);
                        builder.push(&Command::Lost(Lost {
                            source,
                            series,
                            first: number,
                            last: number,
                        }))?;
                    }
                    // It does not fit beside the others: read it again.
                    Err(BatchError::BatchTooLong) => {
                        if !self.submit(&finish(builder)?, &mut next, &places)? {
                            return Ok(reader);
                        }
                        (builder, places, bytes) = (Builder::new(), vec![], 0);
                        builder.push(&publish)?;
                    }
                    Err(error) => return Err(error.into()),
                }
                places.push(number.saturating_add(1));
                bytes = publish.encoded_bytes().saturating_add(bytes);
                message =
                    if bytes < self.pace.batch_bytes() { reader.try_receive()? } else { None };
            }
            if !builder.is_empty() {
                if !self.submit(&finish(builder)?, &mut next, &places)? {
                    return Ok(reader);
                }
                reader.hold(next)?;
            }
        }
        Ok(reader)
    }

    /// Submits commands, and raises `next` to after those that are events. `places` has the number after each command.
    /// Returns whether all are.
    fn submit(
        &mut self,
        request: &Request,
        next: &mut u64,
        places: &[u64],
    ) -> Result<bool, CourierError> {
        while !self.ends() && !self.pace.left().is_zero() {
            std::thread::sleep(self.pace.left().min(IDLE_TIME));
        }
        if let Request::Submit(bytes) = request {
            self.pace.brings(bytes.len());
        }
        let outcomes = match self.members.call(request, ANSWER_TIME) {
            Ok(Answer::Outcomes(outcomes)) => outcomes,
            Ok(_) => return Ok(false),
            Err(_) => {
                self.members.turn_to(None);
                return Ok(false);
            }
        };
        if outcomes.len() != places.len() {
            return Ok(false);
        }
        for (after, outcome) in places.iter().zip(outcomes) {
            match outcome {
                Outcome::Sequenced(_) | Outcome::Duplicate => {
                    *next = *after;
                    self.counts.brought.fetch_add(1, Ordering::Relaxed);
                }
                // What was sent over an earlier connection came later. Ask again.
                Outcome::Refused(Refusal::Wanted(_)) => return Ok(false),
                Outcome::Refused(refusal) => return Err(CourierError::Refused(refusal)),
            }
        }
        Ok(true)
    }
}

fn submission(commands: &[Command<'_>]) -> Result<Request, BatchError> {
    let mut builder = Builder::new();
    commands.iter().try_for_each(|command| builder.push(command))?;
    finish(builder)
}

fn finish(builder: Builder) -> Result<Request, BatchError> {
    Ok(Request::Submit(builder.finish()?.into()))
}
