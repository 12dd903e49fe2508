//! A member's events by number. The last ones are in memory. Earlier ones are read from the log, from a kept state of the
//! machine on: what was dropped or refused has no number, and only a machine knows what that was.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::states::States;
use crate::batch::{Batch, commands_in};
use crate::entry::{Payload, Place};
use crate::log::{Log, LogError};
use crate::machine::{Chain, Lineage, Machine};
use crate::rpc::{ANSWER_BYTES, Answer, Events, Fetch, Fetched, Request, Room};

/// At most this many bytes of events are kept in memory. In tests they are few, so that the log is read.
const RECENT_BYTES: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// No caller waits longer than this for the next event.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A state is kept after this many bytes of log, or after sixteen times the length of the last state if that is more.
const STATE_EVERY: u64 = if cfg!(test) { 16 << 10 } else { 8 << 20 };
/// The log is read for at most this many callers at once. Raft reads it, too.
const READERS: usize = 2;
/// The log is read in pieces of this many bytes.
const READ_BYTES: usize = 1 << 20;

/// A member's events by number. Clones are handles of the same.
#[derive(Clone)]
pub struct Archive(Arc<Shared>);

struct Shared {
    log: Log,
    inner: Mutex<Inner>,
    next: watch::Sender<u64>,
    readers: Arc<Semaphore>,
}

struct Inner {
    states: States,
    /// The last events, by entry.
    recent: VecDeque<Chunk>,
    recent_bytes: usize,
    /// How far the order has come.
    now: Chain,
    /// The series of the feed, up to now.
    lineage: Lineage,
    /// The last entry that was applied.
    applied: Option<u64>,
    /// Bytes of log until the next state is kept.
    until_state: u64,
    /// Where readers of the log have stopped, and probably go on.
    stopped: VecDeque<Stopped>,
}

/// Where a reader of the log has stopped.
struct Stopped {
    machine: Machine,
    /// The index of the entry that follows.
    index: u64,
    /// The events before that, for which the answer had no room.
    rest: Option<Chunk>,
}

impl Stopped {
    /// Returns the number of the event with which a reader continues.
    fn next(&self) -> u64 {
        self.rest.as_ref().map_or(self.machine.next(), |rest| rest.before.next)
    }
}

/// The events of one entry.
#[derive(Clone)]
struct Chunk {
    before: Chain,
    /// The number after the last one.
    end: u64,
    commands: Arc<[u8]>,
}

/// The events of an entry while it is applied.
pub(crate) struct Applying {
    before: Chain,
    commands: Vec<u8>,
}

impl Applying {
    /// Begins an entry that is applied to this machine.
    pub(crate) fn begin(machine: &Machine) -> Self {
        Self { before: machine.chain(), commands: vec![] }
    }

    /// Applies a batch. `event` sees the events, and `outcome` what became of each command.
    pub(crate) fn apply<'a>(
        &mut self,
        machine: &mut Machine,
        batch: Batch<'a>,
        mut event: impl FnMut(crate::machine::Event<'a>),
        mut outcome: impl FnMut(crate::machine::Outcome),
    ) {
        machine.apply(
            batch,
            |found| {
                // It was decoded, so it can be encoded.
                let _ = found.command.encode(&mut self.commands);
                event(found);
            },
            |_, what| outcome(what),
        );
    }

    fn finish(self, machine: &Machine) -> Option<Chunk> {
        let end = machine.next();
        (end > self.before.next).then(|| Chunk {
            before: self.before,
            end,
            commands: self.commands.into(),
        })
    }
}

impl Archive {
    /// Opens the archive of a log, of which this machine has applied nothing after `last`.
    ///
    /// # Errors
    ///
    /// If the directory of the states cannot be read.
    pub fn open(log: Log, machine: &Machine, last: Option<Place>) -> io::Result<Self> {
        let mut states = States::open(&log)?;
        states.prune(&log);
        let inner = Inner {
            states,
            recent: VecDeque::new(),
            recent_bytes: 0,
            now: machine.chain(),
            lineage: machine.lineage().clone(),
            applied: None,
            until_state: STATE_EVERY,
            stopped: VecDeque::new(),
        };
        let (next, _) = watch::channel(machine.next());
        let readers = Arc::new(Semaphore::new(READERS));
        let shared = Shared { log, inner: Mutex::new(inner), next, readers };
        let archive = Self(Arc::new(shared));
        archive.restart(machine, last);
        Ok(archive)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on from a snapshot, which stands for events that may not be here.
    pub(crate) fn restart(&self, machine: &Machine, last: Option<Place>) {
        let mut inner = self.lock();
        inner.recent.clear();
        inner.recent_bytes = 0;
        inner.stopped.clear();
        inner.now = machine.chain();
        inner.lineage = machine.lineage().clone();
        inner.applied = last.map(|place| place.index);
        if let Some(last) = last {
            inner.keep_state(machine, last, &self.0.log);
        }
        drop(inner);
        self.0.next.send_replace(machine.next());
    }

    /// Takes the events of an entry that was applied. They have about `bytes` bytes.
    pub(crate) fn applied(&self, applying: Applying, machine: &Machine, last: Place, bytes: usize) {
        let mut inner = self.lock();
        if let Some(chunk) = applying.finish(machine) {
            inner.recent_bytes += chunk.commands.len();
            inner.recent.push_back(chunk);
            while inner.recent_bytes > RECENT_BYTES
                && let Some(oldest) = inner.recent.pop_front()
            {
                inner.recent_bytes -= oldest.commands.len();
            }
        }
        if inner.now.series != machine.series() {
            inner.lineage = machine.lineage().clone();
        }
        inner.now = machine.chain();
        inner.applied = Some(last.index);
        inner.until_state = inner.until_state.saturating_sub(bytes as u64);
        if inner.until_state == 0 {
            inner.keep_state(machine, last, &self.0.log);
        }
        drop(inner);
        self.0.next.send_if_modified(|next| {
            let is_later = *next < machine.next();
            *next = machine.next();
            is_later
        });
    }

    /// Returns the number of the first event that can be had.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.lock().first(&self.0.log)
    }

    /// Returns how far the order has come, as it knows.
    #[must_use]
    pub fn now(&self) -> Chain {
        self.lock().now
    }

    /// Returns the machine of before the first event that can be had. None if that is not known.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn oldest(&self) -> Result<Option<Machine>, LogError> {
        let turn = self.turn(&Request::State).await;
        let archive = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            archive.load_oldest()
        });
        // It panics only with a fault of this program, and has printed it.
        reading.await.unwrap_or(Ok(None))
    }

    fn load_oldest(&self) -> Result<Option<Machine>, LogError> {
        let Some(purged) = self.0.log.ends().0 else { return Ok(Some(Machine::new())) };
        let kept = {
            let inner = self.lock();
            inner.states.first(purged.index).and_then(|first| inner.states.before(first))
        };
        kept.map_or(Ok(None), |kept| kept.load(&self.0.log))
    }

    /// Waits for a turn at the log, if the answer to this request has to be read from there.
    pub(crate) async fn turn(&self, request: &Request) -> Option<OwnedSemaphorePermit> {
        let reads = match request {
            Request::Fetch(fetch) => self.lock().known(fetch, 0, &self.0.log).is_none(),
            Request::State => true,
            _ => false,
        };
        // It does not fail: the semaphore is never closed.
        if reads { Arc::clone(&self.0.readers).acquire_owned().await.ok() } else { None }
    }

    /// Answers what an archive knows. None if the request is about something else.
    pub(crate) async fn answer(&self, request: Request) -> Option<Answer> {
        let answered = match request {
            Request::Fetch(fetch) => self.fetch(fetch).await.map(Answer::Fetched),
            Request::State => self.oldest().await.map(state_of),
            _ => return None,
        };
        Some(or_failed(answered))
    }

    /// The same, but waits for nothing. A thread that reads the log keeps `room` until it has read, even if no task waits for it any
    /// more. Returns it with the answer. None if the answer has to be read from the log, and there is no turn in `room`.
    pub(crate) async fn answer_in(&self, request: Request, room: Room) -> Option<(Answer, Room)> {
        if let Request::Fetch(fetch) = request {
            let (fetched, room) = self.fetch_in(fetch, room).await?;
            return Some((or_failed(fetched.map(Answer::Fetched)), room));
        }
        let archive = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            (archive.load_oldest().map(state_of), room.without_turn())
        });
        // It panics only with a fault of this program, and has printed it.
        let nothing = || (Ok(Answer::State(None)), Room::default());
        let (state, room) = reading.await.unwrap_or_else(|_| nothing());
        Some((or_failed(state), room))
    }

    /// Makes sure that events can be had if the log is purged up to this index: the first state from there on is on the disk
    /// when this returns. False if there is none.
    pub(super) fn sync_state_from(&self, index: u64) -> io::Result<bool> {
        let inner = self.lock();
        let kept = inner.states.first(index).and_then(|first| inner.states.before(first));
        drop(inner);
        kept.map_or(Ok(false), |kept| kept.sync().map(|()| true))
    }

    /// Keeps a state. It is on the disk when this returns.
    pub(super) fn save_state(&self, machine: &Machine, last: Place) -> io::Result<()> {
        let mut inner = self.lock();
        inner.states.save(machine, last)?;
        let kept = inner.states.before(machine.next());
        drop(inner);
        kept.map_or(Ok(()), |kept| kept.sync())
    }

    /// Answers a question for events. Waits for the next one as long as the question says.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Fetched, LogError> {
        self.wait_for(&fetch).await;
        loop {
            let room = Room::with_turn(self.turn(&Request::Fetch(fetch)).await);
            if let Some((fetched, _)) = self.fetch_in(fetch, room).await {
                return fetched;
            }
        }
    }

    async fn fetch_in(
        &self,
        fetch: Fetch,
        room: Room,
    ) -> Option<(Result<Fetched, LogError>, Room)> {
        let Fetch { from, max_bytes, .. } = fetch;
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(ANSWER_BYTES);
        let known = self.lock().known(&fetch, max_bytes, &self.0.log);
        if let Some((fetched, chunks)) = known {
            let now = fetched.now;
            let next = || (from == now.next).then(|| Events::check(now, []).ok()).flatten();
            // Not under the lock, which the state machine waits for.
            let joined = || join(&chunks, from, max_bytes).map(|(events, _)| events);
            let events = if from >= now.next { next() } else { joined() };
            return Some((Ok(Fetched { events, ..fetched }), room));
        }
        if !room.has_turn() {
            return None;
        }
        let archive = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let fetched = archive.read(&fetch, max_bytes);
            (fetched, room.without_turn())
        });
        // It panics only with a fault of this program, and has printed it.
        Some(reading.await.unwrap_or_else(|_| (Ok(self.nothing(&fetch)), Room::default())))
    }

    /// Waits for the next event, if the question is about that one, as long as the question says.
    pub(crate) async fn wait_for(&self, fetch: &Fetch) {
        let deadline = Instant::now() + fetch.wait.min(LONGEST_WAIT);
        let mut next = self.0.next.subscribe();
        while *next.borrow_and_update() == fetch.from {
            // Time out, or the member ends.
            if !matches!(timeout_at(deadline, next.changed()).await, Ok(Ok(()))) {
                break;
            }
        }
    }

    fn nothing(&self, fetch: &Fetch) -> Fetched {
        self.lock().fetched(fetch, None, &self.0.log)
    }

    /// Returns where a reader begins that wants the events from a number on.
    fn begin(&self, from: u64) -> Result<Option<Stopped>, LogError> {
        let log = &self.0.log;
        let mut inner = self.lock();
        if let Some(stopped) = inner.stopped.iter().rposition(|stopped| stopped.next() == from) {
            return Ok(inner.stopped.remove(stopped));
        }
        while let Some(kept) = inner.states.before(from) {
            // Files are not read under the lock, which the state machine waits for.
            drop(inner);
            if let Some(machine) = kept.load(log)? {
                return Ok(Some(Stopped { machine, index: kept.index + 1, rest: None }));
            }
            inner = self.lock();
            inner.states.forget(kept.next);
        }
        let is_whole = log.ends().0.is_none();
        Ok(is_whole.then(|| Stopped { machine: Machine::new(), index: 0, rest: None }))
    }

    /// Reads events from the log.
    fn read(&self, fetch: &Fetch, max_bytes: usize) -> Result<Fetched, LogError> {
        let from = fetch.from;
        let log = &self.0.log;
        let until = self.lock().applied.map_or(0, |last| last + 1);
        let Some(begin) = self.begin(from)? else { return Ok(self.nothing(fetch)) };
        let Stopped { mut machine, mut index, rest } = begin;
        let mut bytes = rest.as_ref().map_or(0, |rest| rest.commands.len());
        let mut chunks: Vec<Chunk> = rest.into_iter().collect();
        while index < until && (chunks.is_empty() || bytes < max_bytes) {
            let entries = match log.read(index..until, READ_BYTES) {
                // Purged meanwhile.
                Err(LogError::Gone { .. }) => break,
                entries => entries?,
            };
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                index = entry.place.index + 1;
                let Payload::Batch(batch) = entry.payload else { continue };
                // It was checked when it was read.
                let Ok(batch) = Batch::check(&batch) else { continue };
                let mut applying = Applying::begin(&machine);
                applying.apply(&mut machine, batch, |_| {}, |_| {});
                let Some(chunk) = applying.finish(&machine) else { continue };
                if chunk.end > from {
                    bytes += chunk.commands.len();
                    chunks.push(chunk);
                    if bytes >= max_bytes {
                        break;
                    }
                }
            }
        }
        let (events, rest) = join(&chunks, from, max_bytes).unzip();
        let rest = rest.flatten().map(|(entry, byte)| chunks[entry].from(byte));
        let mut inner = self.lock();
        if inner.stopped.len() == READERS * 2 {
            inner.stopped.pop_front();
        }
        inner.stopped.push_back(Stopped { machine, index, rest });
        Ok(inner.fetched(fetch, events, log))
    }
}

impl Inner {
    fn keep_state(&mut self, machine: &Machine, last: Place, log: &Log) {
        self.states.prune(log);
        // If there is no room, the way from the state before is longer.
        let length = self.states.save(machine, last).unwrap_or(0);
        self.until_state = STATE_EVERY.max(16 * length);
    }

    fn first(&self, log: &Log) -> u64 {
        let Some(purged) = log.ends().0 else { return 0 };
        let oldest = self.recent.front().map_or(self.now.next, |chunk| chunk.before.next);
        self.states.first(purged.index).map_or(oldest, |first| first.min(oldest))
    }

    /// Returns the answer to a question, with these events.
    fn fetched(&self, fetch: &Fetch, events: Option<Events>, log: &Log) -> Fetched {
        let departs = self.lineage.departs(fetch.series);
        Fetched { first: self.first(log), now: self.now, departs, events }
    }

    /// Returns the answer to a question, and the entries that are in memory of the events that belong into it; none if the member
    /// does not have them. None at all if they are not in memory, but may be in the log.
    fn known(&self, fetch: &Fetch, max_bytes: usize, log: &Log) -> Option<(Fetched, Vec<Chunk>)> {
        let from = fetch.from;
        let fetched = self.fetched(fetch, None, log);
        let after = self.recent.partition_point(|chunk| chunk.end <= from);
        let mut chunks = vec![];
        if let Some(chunk) = self.recent.get(after)
            && chunk.before.next <= from
        {
            let mut bytes = 0;
            for chunk in self.recent.range(after..) {
                bytes += chunk.commands.len();
                chunks.push(chunk.clone());
                if bytes >= max_bytes {
                    break;
                }
            }
        } else if (fetched.first..fetched.now.next).contains(&from) {
            return None;
        }
        Some((fetched, chunks))
    }
}

fn state_of(machine: Option<Machine>) -> Answer {
    Answer::State(machine.map(|machine| machine.snapshot().into()))
}

fn or_failed(answer: Result<Answer, LogError>) -> Answer {
    answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
}

/// Joins the events of entries, from a number on: as many as `max_bytes` has room for, and at least one. If it has not for all,
/// returns also the entry, and the byte in it, of the first one that is left.
fn join(chunks: &[Chunk], from: u64, max_bytes: usize) -> Option<(Events, Option<(usize, usize)>)> {
    let mut before = chunks.first()?.before;
    let mut taken: Vec<u8> = vec![];
    let mut rest = None;
    'all: for (entry, chunk) in chunks.iter().enumerate() {
        let mut at = 0;
        for (command, bytes) in commands_in(&chunk.commands) {
            if before.next < from {
                before.append(command, bytes);
            } else if taken.is_empty() || taken.len() + bytes.len() <= max_bytes {
                taken.extend(bytes);
            } else {
                rest = Some((entry, at));
                break 'all;
            }
            at += bytes.len();
        }
    }
    let events = Events::check(before, taken).ok().filter(|events| events.before().next == from);
    Some((events?, rest))
}

impl Chunk {
    /// Returns the events whose commands begin at this byte.
    fn from(&self, byte: usize) -> Self {
        let mut before = self.before;
        let mut at = 0;
        for (command, bytes) in commands_in(&self.commands) {
            if at >= byte {
                break;
            }
            before.append(command, bytes);
            at += bytes.len();
        }
        Self { before, end: self.end, commands: self.commands[at..].into() }
    }
}
