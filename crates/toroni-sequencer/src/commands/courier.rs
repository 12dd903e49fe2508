//! The courier: reads the command bus and brings each command to the leader, until the leader says that it is an event.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toroni::{
    Bus, BusConfig, HoldError, OpenError, ReceiveError, Start, Subscriber, SubscriberError,
};

use super::buses::Buses;
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
/// A refused courier tries again after this time, and then after twice as long, up to the longest.
const REFUSED_AGAIN: Duration = Duration::from_secs(1);
const LONGEST_REFUSED_AGAIN: Duration = Duration::from_secs(30);

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
    /// Where it notes which command buses this host has had. The order takes commands of another bus only from who knows the
    /// one before. Without such a file, it takes those of the first bus alone.
    pub buses: Option<PathBuf>,
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
    /// A command that cannot be one.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No runtime, or no thread.
    #[error("could not start: {0}")]
    Start(#[from] io::Error),
    /// The file with the command buses of this host.
    #[error("the file {} cannot be used: {error}", path.display())]
    Buses {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// Why the order takes no commands of this host now. The courier holds them, and tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What is so, and what to do.
    pub why: String,
    /// Since when.
    pub since: Instant,
}

/// Says why the order does not take a command, and what to do.
fn advice(refusal: Refusal) -> String {
    let advice = match refusal {
        Refusal::OtherHost => {
            ": two nodes have this name, or this host was installed again. Give each node its own `name`; if the other host is gone, \
             use toroni sequencer sources release"
        }
        Refusal::Session(_) => {
            ": another node has the same source id, or the clock of this host went back. Give each node its own `name`"
        }
        Refusal::Closed => {
            ": a later bus has taken its place, so this one was restored from a backup, or its source was removed. Remove the \
             bus, and a new one is created"
        }
        Refusal::TooManySources => {
            ": remove those that are gone with toroni sequencer sources remove"
        }
        Refusal::Wanted(_) | Refusal::NotOpen | Refusal::FeedSeries(_) => "",
    };
    format!("{refusal}{advice}")
}

/// What a courier has done, in numbers. Clones count the same.
#[derive(Debug, Clone, Default)]
pub struct CourierCounts {
    brought: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    refused: Arc<Mutex<Option<Refused>>>,
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

    /// Why the order takes no commands of this host, if that is so.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refused(&self, why: Option<String>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused = why.map(|why| match refused.take() {
            Some(same) if same.why == why => same,
            _ => Refused { why, since: Instant::now() },
        });
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
        let CourierOptions { bus, feed, source, session, members, rate, buses } = options;
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
        let buses = match buses {
            None => Buses::default(),
            Some(path) => {
                Buses::load(path.clone()).map_err(|error| CourierError::Buses { path, error })?
            }
        };
        let mut work = Work {
            series: series_of(&bus),
            buses,
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
    buses: Buses,
    ends: Arc<AtomicBool>,
    counts: CourierCounts,
}

/// What became of an OPEN.
enum Opened {
    /// The order wants the next number.
    Known(SourceState),
    /// The order does not take this bus, for this reason.
    Refused(String),
    /// No leader has answered.
    Unknown,
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
        self.wait_for_the_first(&mut holder)?;
        let mut again = REFUSED_AGAIN;
        while !self.ends() {
            let state = match self.open()? {
                Opened::Known(state) => state,
                Opened::Unknown => {
                    std::thread::sleep(AGAIN_TIME);
                    continue;
                }
                Opened::Refused(why) => {
                    self.counts.set_refused(Some(why));
                    self.rest(again);
                    again = again.saturating_mul(2).min(LONGEST_REFUSED_AGAIN);
                    continue;
                }
            };
            self.counts.set_refused(None);
            again = REFUSED_AGAIN;
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

    /// Waits until the bus has, or had, a command. A host that sends none is no source of the order.
    fn wait_for_the_first(&self, holder: &mut Subscriber) -> Result<(), CourierError> {
        if holder.sequence() > 0 {
            return Ok(());
        }
        holder.hold(0)?;
        while !self.ends() && holder.receive_timeout(IDLE_TIME)?.is_none() {}
        Ok(())
    }

    fn rest(&self, time: Duration) {
        let begun = Instant::now();
        while !self.ends() && begun.elapsed() < time {
            std::thread::sleep(IDLE_TIME);
        }
    }

    /// Opens the series with the leader. If this member does not lead, the next call asks the one that does, as this one
    /// says, or another one.
    fn open(&mut self) -> Result<Opened, CourierError> {
        let (source, series, session) = (self.source, self.series, self.session);
        let bus = bytes_of(&self.bus);
        // Before the order knows it: the next bus has to name it.
        if let Err(error) = self.buses.note(bus) {
            return Ok(Opened::Refused(format!("the bus of commands cannot be noted: {error}")));
        }
        let earlier = self.buses.earlier(bus);
        let open = Open { source, series, session, bus, earlier: Some(&earlier) };
        let opened = self.members.call(&submission(&[Command::Open(open)])?, ANSWER_TIME);
        match &opened {
            Ok(Answer::Outcomes(outcomes)) => {
                if let Some(Outcome::Refused(refusal)) = outcomes.first() {
                    return Ok(Opened::Refused(advice(*refusal)));
                }
                if !outcomes.is_empty()
                    && let Ok(Answer::Source(Some(state))) =
                        self.members.call(&Request::Source(source), ANSWER_TIME)
                    && state.series == series
                {
                    self.buses.opened(bus);
                    return Ok(Opened::Known(state));
                }
            }
            Ok(Answer::Refused(why)) => return Ok(Opened::Refused(why.clone())),
            _ => {}
        }
        let leader = match &opened {
            Ok(Answer::NotLeader(Some((_, address)))) => Some(address.as_str()),
            _ => None,
        };
        self.members.turn_to(leader);
        Ok(Opened::Unknown)
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
                // What was sent over an earlier connection came later, or another host has taken the source. OPEN tells.
                Outcome::Refused(_) => return Ok(false),
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
