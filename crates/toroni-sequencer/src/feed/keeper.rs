//! An archive on a host that is no member: it asks members for all events, keeps them on a disk, and answers who asks for them.
//!
//! ```text
//!  members ══ FETCH ══► keeper ─► log, states of the machine ─► Archive ══ FETCH ══► followers, rewinds
//! ```
//!
//! Its directory is that of a log, with a batch for each run of events. A machine that applies them finds the numbers and
//! the digest that the members have found, because each command in it is an event. So all that is known of a log
//! holds for it: what a start believes, and how events are found by number. It is synced every 50 ms: what a power failure
//! takes, it asks for again. The state of the machine before its first event is synced before anything earlier is given up.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use toroni_proto::wire::Keys;

use super::archive::{Applying, Archive};
use super::follow::{ASK_BYTES, AskBytes, LONG_ANSWER_TIME, WAIT};
use super::states::States;
use crate::batch::{Batch, BatchError, Builder};
use crate::entry::{Entry, Payload, Place};
use crate::log::{Log, LogError, Options, Sync};
use crate::machine::{Chain, Machine};
use crate::rpc::{
    Answer, Answering, Caller, Events, Fetch, Fetched, Identity, Link, LinkError, LongAnswering,
    Peer, Request, Room, Serve, Target, Turning, Waiting, listen,
};

/// The pause after a member that could not help, and while the disk is full.
const AGAIN: Duration = Duration::from_millis(50);
/// An archive has about this many segments. Their length is between these bounds.
const SEGMENTS: u64 = 8;
const SEGMENT_BYTES: (u64, u64) = if cfg!(test) { (8 << 10, 8 << 10) } else { (8 << 20, 64 << 20) };

/// What an archive is started with.
#[derive(Debug)]
pub struct KeeperOptions {
    /// The feed: the first bytes of the hash of its name.
    pub feed: [u8; 16],
    /// The directory for the events.
    pub directory: PathBuf,
    /// Where it answers, already bound.
    pub listener: TcpListener,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The members of the group.
    pub members: Vec<Target>,
    /// How much it keeps, in bytes: then the oldest events go. They also go if the disk has no room.
    pub capacity_bytes: u64,
}

/// Why an archive does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its directory cannot be read.
    #[error("{0}")]
    Directory(#[from] io::Error),
    /// The states of the machine are gone. Without them, the numbers of its events are unknown.
    #[error("{} has no state of the machine any more: move it away, and a new archive begins", .0.display())]
    NoState(PathBuf),
    /// The order has other events than it.
    #[error(
        "the order has other events than {} from {next} on, or before: move it away, and a new archive begins",
        directory.display()
    )]
    Diverged {
        /// Its directory.
        directory: PathBuf,
        /// The number of its next event.
        next: u64,
    },
    /// No member has the events any more that follow its last one.
    #[error(
        "no member has the event {next} any more, with which {} goes on: move it away, and a new archive begins",
        directory.display()
    )]
    Behind {
        /// Its directory.
        directory: PathBuf,
        /// The number of its next event.
        next: u64,
    },
    /// A member sent events that are no batch.
    #[error("a member sent events that cannot be kept: {0}")]
    Batch(#[from] BatchError),
}

/// How an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The number of the first event that it has.
    pub first: u64,
    /// How far it has come.
    pub now: Chain,
    /// The length of its files, in bytes.
    pub bytes: u64,
    /// Whether its disk has no room, and nothing can be given up.
    pub is_full: bool,
}

/// A running archive. Ends when it is dropped; what it has is on the disk.
pub struct Keeper {
    archive: Archive,
    log: Log,
    is_full: Arc<AtomicBool>,
    problem: Arc<Mutex<Option<KeeperError>>>,
    keeping: JoinHandle<()>,
    _serving: JoinSet<()>,
}

impl Keeper {
    /// Starts an archive. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// If its directory cannot be used.
    pub fn start(options: KeeperOptions) -> Result<Self, KeeperError> {
        let KeeperOptions { feed, directory, listener, keys, members, capacity_bytes } = options;
        let (least, most) = SEGMENT_BYTES;
        let segment_bytes = (capacity_bytes / SEGMENTS).clamp(least, most);
        let log = Log::open(&directory, Options { segment_bytes, sync: Sync::OFTEN })?;
        let Restored { machine, last, is_blank } = restore(&log)?;
        let archive = Archive::open(log.clone(), &machine, last)?;
        let own = Peer { log: log.found().log, id: u64::MAX };
        let identity = Identity { feed, keys, own, listed: vec![] };
        let mut serving = JoinSet::new();
        serving.spawn(listen(
            listener,
            identity,
            Arc::new(Answers(archive.clone())),
            Handle::current(),
        ));
        let is_full = Arc::new(AtomicBool::new(false));
        let mut keeping = Keeping {
            archive: archive.clone(),
            log: log.clone(),
            segment_bytes,
            capacity_bytes,
            machine,
            last,
            members: members.into_iter().map(Link::new).collect(),
            at: 0,
            ask_bytes: AskBytes::default(),
            is_blank,
            lacking: BTreeSet::new(),
            is_full: Arc::clone(&is_full),
        };
        let problem = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&problem);
        let keeping = tokio::spawn(async move {
            let error = loop {
                if let Err(error) = keeping.step().await {
                    break error;
                }
            };
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        });
        Ok(Self { archive, log, is_full, problem, keeping, _serving: serving })
    }

    /// Returns which events it has, and how much room they take.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let (first, now) = (self.archive.first(), self.archive.now());
        let is_full = self.is_full.load(Ordering::Relaxed);
        Kept { first, now, bytes: self.log.bytes(), is_full }
    }

    /// Returns why it takes no more events, if it does not. Until it is closed, it answers for those that it has.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let error = problem.as_ref().map(ToString::to_string);
        // A panic of the task was printed.
        error.or_else(|| self.keeping.is_finished().then(|| "its task has ended".to_owned()))
    }

    /// Ends it, and closes its log.
    ///
    /// # Errors
    ///
    /// If the log cannot be closed.
    pub async fn close(mut self) -> Result<(), KeeperError> {
        self.keeping.abort();
        let _ = (&mut self.keeping).await;
        Ok(self.log.close()?)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

/// Answers for the events of an archive.
pub(super) struct Answers(pub(super) Archive);

impl Serve for Answers {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        let archive = self.0.clone();
        Box::pin(async move {
            let nothing_else =
                || Answer::Failed("this is an archive: it only has events".to_owned());
            archive.answer(request).await.unwrap_or_else(nothing_else)
        })
    }

    fn until_there_is(&self, fetch: Fetch) -> Waiting {
        let archive = self.0.clone();
        Box::pin(async move { archive.wait_for(&fetch).await })
    }

    fn turn(&self, request: &Request) -> Turning {
        let (archive, request) = (self.0.clone(), request.clone());
        Box::pin(async move { archive.turn(&request).await })
    }

    fn serve_long(&self, _: Caller, request: Request, room: Room) -> LongAnswering {
        let archive = self.0.clone();
        Box::pin(async move { archive.answer_in(request, room).await })
    }
}

/// What an archive has.
struct Restored {
    /// The machine after its last event.
    machine: Machine,
    /// The last entry.
    last: Option<Place>,
    /// Whether it has not begun.
    is_blank: bool,
}

fn restore(log: &Log) -> Result<Restored, KeeperError> {
    let mut states = States::open(log)?;
    states.prune(log);
    let (purged, last) = log.ends();
    let is_empty = last == purged;
    let (mut machine, mut index) = loop {
        match states.before(u64::MAX) {
            Some(kept) => match kept.load(log)? {
                Some(machine) => break (machine, kept.index + 1),
                None => states.forget(kept.next),
            },
            // A process that ended while it began leaves nothing else.
            None if is_empty => {
                return Ok(Restored { machine: Machine::new(), last, is_blank: true });
            }
            None if purged.is_none() => break (Machine::new(), 0),
            None => return Err(KeeperError::NoState(log.directory().to_owned())),
        }
    };
    let end = last.map_or(0, |last| last.index + 1);
    while index < end {
        let entries = log.read(index..end, ASK_BYTES as usize)?;
        if entries.is_empty() {
            return Err(LogError::Order(index).into());
        }
        for entry in entries {
            index = entry.place.index + 1;
            if let Payload::Batch(batch) = &entry.payload {
                // It was checked when it was read.
                if let Ok(batch) = Batch::check(batch) {
                    machine.apply(batch, |_| {}, |_, _| {});
                }
            }
        }
    }
    Ok(Restored { machine, last, is_blank: false })
}

/// Brings events to the log.
struct Keeping {
    archive: Archive,
    log: Log,
    segment_bytes: u64,
    capacity_bytes: u64,
    machine: Machine,
    last: Option<Place>,
    members: Vec<Link>,
    /// Who is asked.
    at: usize,
    ask_bytes: AskBytes,
    is_blank: bool,
    /// Members that no longer have the next event.
    lacking: BTreeSet<usize>,
    is_full: Arc<AtomicBool>,
}

impl Keeping {
    fn directory(&self) -> PathBuf {
        self.log.directory().to_owned()
    }

    async fn turn(&mut self) {
        self.at = (self.at + 1) % self.members.len().max(1);
        sleep(AGAIN).await;
    }

    async fn ask(&self, request: &Request, limit: Duration) -> Result<Answer, LinkError> {
        let member = self.members.get(self.at).ok_or(LinkError::Ended)?;
        timeout(limit, member.call(request)).await.unwrap_or(Err(LinkError::Late))
    }

    /// Asks for the next events, and keeps what comes.
    async fn step(&mut self) -> Result<(), KeeperError> {
        let own = self.machine.chain();
        let fetch = Fetch {
            from: own.next,
            max_bytes: self.ask_bytes.get(),
            wait: WAIT,
            series: (own.next > 0).then_some(own.series),
        };
        let begun = Instant::now();
        let answer = self.ask(&Request::Fetch(fetch), self.ask_bytes.limit()).await;
        self.ask_bytes.note(&answer, begun.elapsed());
        let Ok(Answer::Fetched(fetched)) = answer else {
            self.turn().await;
            return Ok(());
        };
        // Of a series that is unknown, the digest says it.
        if fetched.departs.is_before(own.next) {
            return Err(KeeperError::Diverged { directory: self.directory(), next: own.next });
        }
        match fetched {
            Fetched { events: Some(events), .. } if events.before().next == own.next => {
                if self.is_blank {
                    return self.begin(Machine::new()).await;
                }
                self.lacking.clear();
                // One that stayed behind in an earlier series.
                if events.before().series < own.series {
                    self.turn().await;
                    return Ok(());
                }
                if events.before() != own {
                    let directory = self.directory();
                    return Err(KeeperError::Diverged { directory, next: own.next });
                }
                if events.is_empty() {
                    // Another one may know more.
                    self.at = (self.at + 1) % self.members.len();
                }
                self.keep(&events).await?;
            }
            // One that is behind, or has other events; then another member says so.
            Fetched { now, .. } if now.next <= own.next => self.turn().await,
            Fetched { .. } => self.lacks(own).await?,
        }
        Ok(())
    }

    /// The member no longer has the next event. A member that does not answer may have it.
    async fn lacks(&mut self, own: Chain) -> Result<(), KeeperError> {
        if self.is_blank {
            // It begins where the member begins.
            let state = self.ask(&Request::State, LONG_ANSWER_TIME).await;
            if let Ok(Answer::State(Some(bytes))) = state
                && let Ok(machine) = Machine::from_snapshot(&bytes)
            {
                return self.begin(machine).await;
            }
        } else {
            self.lacking.insert(self.at);
            if self.lacking.len() == self.members.len() {
                return Err(KeeperError::Behind { directory: self.directory(), next: own.next });
            }
        }
        self.turn().await;
        Ok(())
    }

    /// Begins an archive with what follows a state.
    async fn begin(&mut self, machine: Machine) -> Result<(), KeeperError> {
        let place = place(self.last.map_or(0, |last| last.index + 1));
        // The log is of no use without it.
        if self.archive.save_state(&machine, place).is_err() {
            self.is_full.store(true, Ordering::Relaxed);
            sleep(AGAIN).await;
            return Ok(());
        }
        self.log.purge(place)?;
        self.archive.restart(&machine, Some(place));
        (self.machine, self.last, self.is_blank) = (machine, Some(place), false);
        Ok(())
    }

    async fn keep(&mut self, events: &Events) -> Result<(), KeeperError> {
        let mut chain = events.before();
        let mut builder = Builder::new();
        for (command, bytes) in events.commands() {
            chain.append(command, bytes);
            if !builder.has_room_for(bytes.len()) {
                self.append(std::mem::take(&mut builder)).await?;
            }
            builder.push(&command)?;
        }
        if !builder.is_empty() {
            self.append(builder).await?;
        }
        if self.machine.chain() != chain {
            // A command in it was no event.
            return Err(KeeperError::Diverged { directory: self.directory(), next: chain.next });
        }
        Ok(())
    }

    async fn append(&mut self, builder: Builder) -> Result<(), KeeperError> {
        let bytes: Arc<[u8]> = builder.finish()?.into();
        let place = place(self.last.map_or(0, |last| last.index + 1));
        let entry = Entry { place, payload: Payload::Batch(Arc::clone(&bytes)) };
        loop {
            match self.log.append([entry.clone()], |_| {}) {
                Ok(()) => break,
                Err(LogError::Full(_)) => {
                    if !self.give_up_a_segment()? {
                        self.is_full.store(true, Ordering::Relaxed);
                        sleep(AGAIN).await;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.is_full.store(false, Ordering::Relaxed);
        let mut applying = Applying::begin(&self.machine);
        applying.apply(&mut self.machine, Batch::check(&bytes)?, |_| {}, |_| {});
        self.last = Some(place);
        self.archive.applied(applying, &self.machine, place, bytes.len());
        if self.log.bytes() > self.capacity_bytes {
            self.give_up(self.capacity_bytes.saturating_sub(self.segment_bytes))?;
        }
        Ok(())
    }

    /// Gives up at least the oldest segment, which may be longer than those of today. Returns whether it did.
    fn give_up_a_segment(&self) -> Result<bool, KeeperError> {
        for segments in [1, 2, 4, 8] {
            if self.give_up(self.log.bytes().saturating_sub(self.segment_bytes * segments))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up the oldest events, so that about `retain_bytes` bytes stay. Gives up none if all that is left would be
    /// of no use without an earlier state. Returns whether it gave up any.
    fn give_up(&self, retain_bytes: u64) -> Result<bool, KeeperError> {
        let Some(upto) = self.log.purgeable(retain_bytes) else { return Ok(false) };
        let purged = self.log.ends().0;
        if purged.is_some_and(|purged| purged.index >= upto)
            || !self.archive.sync_state_from(upto)?
        {
            return Ok(false);
        }
        self.log.purge(place(upto))?;
        Ok(true)
    }
}

/// Entries of an archive are all of one term. A place of zeros would be none.
const fn place(index: u64) -> Place {
    Place { term: 1, leader: 0, index }
}
