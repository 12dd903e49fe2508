//! A host follows the feed: a thread takes events, and writes them to the bus of the feed.
//!
//! ```text
//!  compares the last events on the bus (recheck.rs)
//!       │
//!       ▼
//!      asks ── a live event is the next one, or was the last one ──────────────────────────► is live
//!       ▲                                                                                       │
//!       └── one is missing before a live event, or a member has one that did not come in time ──┘
//! ```
//!
//! A follower that **asks** waits at one member for the next event. If that member fails, is behind, or has nothing new for
//! half a second, it asks the next one: no member can leave it behind for long. A follower that **is live** waits for live
//! events, and asks only for what it lacks. A live event is taken if what was before it is what is on the bus, digest
//! included. Whether the bus has diverged, members decide, which answer over TCP, and archives as far as members vouch for them.
//!
//! Each question names the series of the feed that the bus follows, and the answer says where the order departs from it. If that is
//! before the end of the bus, the bus has diverged. A member in an earlier series than the bus has stayed behind, and is passed over.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toroni::{BusConfig, FileError, LostReason, OpenError, PublishError, PublisherError};

use super::event_bus::{EventBus, point};
use super::live::Live;
use super::recheck::{Compared, End, Recheck};
use super::vouch::{Alone, ends_of, vouched};
use crate::hook::mutant;
use crate::machine::{Chain, Departs};
use crate::rpc::{Answer, Events, Fetch, Fetched, InTurn, LinkError, Request, Target};

/// This many bytes of events are asked for at once.
pub(super) const ASK_BYTES: u32 = 512 << 10;
/// At least this many are, on the slowest way.
const LEAST_ASK_BYTES: u32 = 32 << 10;
/// The same while live events come.
const LIVE_ASK_BYTES: u32 = 64 << 10;
/// A member waits this long for the next event before another one is asked.
pub(super) const WAIT: Duration = Duration::from_millis(500);
/// A member that does not answer for this long counts as silent.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(3);
/// The same of an answer that may be long, however little is asked for: a state, or one long event on a way that is slow.
pub(super) const LONG_ANSWER_TIME: Duration = Duration::from_secs(15);
/// The same while live events come, which wait meanwhile. It doubles with each question that is not answered.
const LIVE_ANSWER_TIME: Duration = Duration::from_millis(300);
/// The pause after a member that could not help.
const AGAIN: Duration = Duration::from_millis(20);
/// If a member lacks events, the others are asked this long before the events count as lost.
const SEARCH_TIME: Duration = Duration::from_secs(5);
/// The same if there are archives: one that is restarted needs time.
const ARCHIVE_SEARCH_TIME: Duration = Duration::from_secs(if cfg!(test) { 8 } else { 60 });
/// A follower that finds only members which are behind its bus says so this often.
const BEHIND_TIME: Duration = Duration::from_secs(60);
/// The pause before the last events on the bus are read again, if they could not be.
const READ_AGAIN: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(1) };
/// At most this many lines for the log are kept until they are taken.
const NOTES: usize = 16;

/// With which event a bus begins that has none yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeedStart {
    /// With the first. Those that no member has any more are reported as lost.
    #[default]
    Oldest,
    /// With the next one that happens.
    Live,
}

/// What a follower does when the order has other events than its bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDivergence {
    /// Reports the loss on the bus, and ends with an error.
    #[default]
    Stop,
    /// Reports the loss on the bus, and goes on after it.
    Report,
}

/// What a follower is started with.
#[derive(Debug)]
pub struct FollowerOptions {
    /// The settings of the bus of events, such as its directory.
    pub bus: BusConfig,
    /// The name of the feed, and of the bus.
    pub feed: String,
    /// The members of the group, in the order in which they are asked.
    pub members: Vec<Target>,
    /// Archives, which are asked for what members no longer have.
    pub archives: Vec<Target>,
    /// With which event a bus begins that has none.
    pub start: FeedStart,
    /// What happens if the order has other events than the bus.
    pub on_divergence: OnDivergence,
    /// Events that come without being asked for, from a member of this host or by multicast.
    pub live: Option<Live>,
}

/// Why a feed cannot be followed. What is about the network alone is tried again.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The group has no members to ask.
    #[error("the group has no members: name at least one")]
    NoMembers,
    /// The bus of events cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The bus of events cannot be published on.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
    /// An event could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The files of the bus cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The bus has events that are not those of the order.
    #[error(
        "the events {from} to {last} of this host are not those of the order: rewind into a new bus",
        last = until - 1
    )]
    Diverged {
        /// The first event that may differ.
        from: u64,
        /// The number after the last one.
        until: u64,
    },
    /// A bus that is to be filled again has messages.
    #[error("the bus {0} has messages: rewind into a new one")]
    NotFresh(String),
    /// No event of this number.
    #[error("there is no event {wanted}: the members have {first} to {last}", last = next.saturating_sub(1))]
    NoEvent {
        /// The number that was wanted.
        wanted: u64,
        /// The first event that a member has.
        first: u64,
        /// The number of the next event.
        next: u64,
    },
    /// No member answered.
    #[error("no member answered: is one running, and is the key that of the members?")]
    NoAnswer,
    /// No runtime, or no thread.
    #[error("could not start: {0}")]
    Start(#[from] std::io::Error),
}

/// What a follower has to say to who runs the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is about, in one word.
    pub kind: &'static str,
    /// A sentence.
    pub text: String,
}

/// How far a follower has come. Clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Followed(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    chain: Mutex<Option<Chain>>,
    lost: AtomicU64,
    divergences: AtomicU64,
    came: AtomicU64,
    asked: AtomicU64,
    is_live: AtomicBool,
    notes: Mutex<VecDeque<Note>>,
}

impl Followed {
    /// Returns how far the bus has come, with the digest of all events before. None until a member has answered.
    #[must_use]
    pub fn chain(&self) -> Option<Chain> {
        *self.0.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many numbers of events were reported as lost, because no member had them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Returns how often the order had other events than the bus.
    #[must_use]
    pub fn divergences(&self) -> u64 {
        self.0.divergences.load(Ordering::Relaxed)
    }

    /// Returns how many events came without being asked for.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.0.came.load(Ordering::Relaxed)
    }

    /// Returns how many events members were asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Returns whether events come without being asked for, now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0.is_live.load(Ordering::Relaxed)
    }

    /// Returns what is to be written to a log, and was not returned before.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn note(&self, kind: &'static str, text: String) {
        let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= NOTES {
            notes.pop_front();
        }
        notes.push_back(Note { kind, text });
    }

    fn show(&self, chain: Option<Chain>) {
        *self.0.chain.lock().unwrap_or_else(PoisonError::into_inner) = chain;
    }
}

/// A running follower, in a thread of its own. Ends when it is dropped.
#[derive(Debug)]
pub struct Follower {
    ends: Arc<AtomicBool>,
    followed: Followed,
    thread: Option<JoinHandle<Result<(), FollowError>>>,
}

impl Follower {
    /// Starts a follower. One for each host and feed: another one on the same bus ends with an error.
    ///
    /// # Errors
    ///
    /// If the bus cannot be opened, another follower writes to it, or no thread be started.
    pub fn start(options: FollowerOptions) -> Result<Self, FollowError> {
        let FollowerOptions { bus, feed, members, archives, start, on_divergence, live } = options;
        let members = in_turn(members, archives)?;
        let bus = EventBus::open(&bus, &feed, &feed)?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut following = Following::new(bus, members, Arc::clone(&ends));
        following.on_divergence = on_divergence;
        following.live = live;
        let followed = following.followed.clone();
        let thread = std::thread::Builder::new().name("toroni-feed".to_owned());
        let thread = thread.spawn(move || {
            following.begin(start)?;
            while !following.ends() {
                following.step()?;
            }
            Ok(())
        })?;
        Ok(Self { ends, followed, thread: Some(thread) })
    }

    /// Returns how far it has come.
    #[must_use]
    pub fn followed(&self) -> Followed {
        self.followed.clone()
    }

    /// Returns whether it has ended by itself. [`Self::end`] says why.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the follower.
    ///
    /// # Errors
    ///
    /// If it had to end before.
    pub fn end(mut self) -> Result<(), FollowError> {
        self.ends.store(true, Ordering::Relaxed);
        // A panic of the thread was printed.
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the members to ask, and the archives.
pub(super) fn in_turn(members: Vec<Target>, archives: Vec<Target>) -> Result<InTurn, FollowError> {
    if members.is_empty() {
        return Err(FollowError::NoMembers);
    }
    Ok(InTurn::new(members, archives)?)
}

/// How many bytes of events are asked for at once: as many as the way brings in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskBytes {
    bytes: u32,
    /// Whether even the least did not come in time: it may be one long event.
    is_patient: bool,
}

impl Default for AskBytes {
    fn default() -> Self {
        Self { bytes: ASK_BYTES, is_patient: false }
    }
}

impl AskBytes {
    pub(super) const fn get(self) -> u32 {
        self.bytes
    }

    /// Returns how long a member may take to answer.
    pub(super) const fn limit(self) -> Duration {
        if self.is_patient { LONG_ANSWER_TIME } else { ANSWER_TIME }
    }

    /// Takes what became of a question, and how long that took.
    pub(super) fn note(&mut self, answer: &Result<Answer, LinkError>, took: Duration) {
        match answer {
            Err(LinkError::Late) => {
                self.is_patient = self.bytes == LEAST_ASK_BYTES;
                self.bytes = (self.bytes / 2).max(LEAST_ASK_BYTES);
            }
            // Twice as much would be half of what the time allows. One that had little to bring says nothing about the way.
            Ok(Answer::Fetched(Fetched { events: Some(events), .. }))
                if took < ANSWER_TIME / 4 && events.encoded_bytes() >= self.bytes as usize / 2 =>
            {
                self.is_patient = false;
                self.bytes = (self.bytes * 2).min(ASK_BYTES);
            }
            _ => {}
        }
    }
}

/// Asks the member whose turn it is for events from a number on.
pub(super) fn fetch(members: &InTurn, from: u64) -> Option<Fetched> {
    let fetch = Fetch { from, max_bytes: ASK_BYTES, wait: WAIT, series: None };
    fetch_within(members, fetch, ANSWER_TIME)
}

/// The same for any question, with a time limit for the answer.
fn fetch_within(members: &InTurn, fetch: Fetch, limit: Duration) -> Option<Fetched> {
    fetched(members.call(&Request::Fetch(fetch), limit))
}

fn fetched(answer: Result<Answer, LinkError>) -> Option<Fetched> {
    match answer {
        Ok(Answer::Fetched(fetched)) => Some(fetched),
        _ => None,
    }
}

/// Asks all members and archives which series of the feed an event is in, or would be, for a bus that follows this one and has the events
/// up to `end`. The one that is furthest decides. None if none has it.
pub(super) fn series_of(
    members: &mut InTurn,
    number: u64,
    (series, end): (Option<u32>, u64),
    alone: Alone,
) -> Option<u32> {
    let fetch = Fetch { from: number, max_bytes: 0, wait: Duration::ZERO, series };
    let mut found: Option<(Chain, u32)> = None;
    for _ in 0..members.count() {
        if let Some(fetched) = fetch_within(members, fetch, ANSWER_TIME)
            && let Some(fetched) = vouched(members, fetched, alone)
            && let Fetched { now, departs, events: Some(events), .. } = fetched
            && events.before().next == number
            && series.is_none_or(|series| series <= now.series)
            && !departs.is_before(end)
            && found.is_none_or(|(best, _)| best.place() < now.place())
        {
            found = Some((now, events.before().series));
        }
        members.turn_to_any();
    }
    found.map(|(_, series)| series)
}

/// Turns to the next member, after a pause.
pub(super) fn turn(members: &mut InTurn) {
    members.turn();
    std::thread::sleep(AGAIN);
}

/// Brings events from members to a bus, step by step.
pub(super) struct Following {
    pub(super) bus: EventBus,
    members: InTurn,
    ends: Arc<AtomicBool>,
    on_divergence: OnDivergence,
    /// What archives are believed while no member answers.
    pub(super) alone: Alone,
    /// How far the bus has come. None until a member has said what was before.
    chain: Option<Chain>,
    /// Up to here, a member has agreed with the bus.
    agreed: u64,
    /// Whether the bus had events from the beginning.
    had_events: bool,
    /// The last events that the bus had at the start, until they are read to be compared.
    unread: Option<Unread>,
    /// What is to be compared before anything is written.
    recheck: Option<Recheck>,
    /// Up to here, the bus was reported as diverged.
    reported: u64,
    /// Whether the log says that members do not know the series of the bus.
    is_noted: bool,
    /// Since when all members that answer are behind the bus, and when to say so.
    behind: Option<(Instant, Duration)>,
    /// Members and archives that lack the next event, with the first one that they have, and since when.
    lacking: BTreeMap<usize, u64>,
    lacking_since: Option<Instant>,
    /// The first event that a member had, when none had the next one.
    members_have: Option<u64>,
    followed: Followed,
    live: Option<Live>,
    /// Whether live events come.
    is_live: bool,
    /// When there was something new, or a member said that there is nothing.
    fresh: Instant,
    /// How long a member may take to answer while live events come.
    live_limit: Duration,
    ask_bytes: AskBytes,
}

/// Events on the bus that are to be read.
struct Unread {
    end: End,
    /// When that is tried.
    due: Instant,
    /// Whether the log says that it was tried in vain.
    is_noted: bool,
}

/// How members are asked after a look at live events.
enum Ask {
    /// Not at all.
    No,
    /// For what they have now.
    Now,
    /// For the next event, which they wait for.
    AndWait,
}

impl Following {
    pub(super) fn new(bus: EventBus, members: InTurn, ends: Arc<AtomicBool>) -> Self {
        let agreed = bus.next();
        Self {
            bus,
            members,
            ends,
            on_divergence: OnDivergence::Stop,
            alone: Alone::Nothing,
            chain: None,
            agreed,
            had_events: agreed > 0,
            unread: None,
            recheck: None,
            reported: 0,
            is_noted: false,
            behind: None,
            lacking: BTreeMap::new(),
            lacking_since: None,
            members_have: None,
            followed: Followed::default(),
            live: None,
            is_live: false,
            fresh: Instant::now(),
            live_limit: LIVE_ANSWER_TIME,
            ask_bytes: AskBytes::default(),
        }
    }

    /// Returns the series of the feed that the bus follows, if that is known.
    fn series(&self) -> Option<u32> {
        self.bus.series().or_else(|| self.chain.map(|own| own.series))
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn begin(&mut self, start: FeedStart) -> Result<(), FollowError> {
        if self.had_events && !mutant("no_recheck") {
            let (end, due) = (self.bus.end()?, Instant::now());
            self.unread = Some(Unread { end, due, is_noted: false });
        }
        if start == FeedStart::Live && self.bus.is_fresh()? {
            while !self.ends() {
                if let Some(Fetched { now, .. }) = self.fetch(u64::MAX) {
                    let now = self.latest(now);
                    self.bus.begin_with(now.next, now.series)?;
                    break;
                }
                self.turn();
            }
        }
        Ok(())
    }

    /// Returns how far the order has come, as the member says that is furthest. The one that was asked may have stayed behind.
    fn latest(&self, asked: Chain) -> Chain {
        let others = ends_of(&self.members, None).map(|(now, _)| now);
        others.chain([asked]).max_by_key(Chain::place).unwrap_or(asked)
    }

    /// Reads the last events on the bus, so that they are compared. What cannot be read is tried again: for now, there may be no slot.
    fn look_back(&mut self) {
        let Some(unread) = self.unread.take_if(|unread| unread.due <= Instant::now()) else {
            return;
        };
        match self.bus.tail(unread.end) {
            Ok(Some(recheck)) => {
                self.recheck = Some(recheck);
                // No live event is taken meanwhile.
                self.set_live(false);
            }
            Ok(None) if unread.is_noted => {
                let text = "the last events that the bus had at the start of the node are not compared with the order, because \
                            the bus no longer has them";
                self.followed.note("bus_not_compared", text.to_owned());
            }
            Ok(None) => {}
            Err(error) => {
                if !unread.is_noted {
                    let text = format!(
                        "the last events on the bus are not yet compared with the order, because they cannot be read: {error}"
                    );
                    self.followed.note("bus_unread", text);
                }
                let due = Instant::now() + READ_AGAIN;
                self.unread = Some(Unread { due, is_noted: true, ..unread });
            }
        }
    }

    fn fetch(&mut self, from: u64) -> Option<Fetched> {
        let begun = Instant::now();
        let series = self.series();
        let fetch = Fetch { from, max_bytes: self.ask_bytes.get(), wait: WAIT, series };
        let answer = self.members.call(&Request::Fetch(fetch), self.ask_bytes.limit());
        self.ask_bytes.note(&answer, begun.elapsed());
        fetched(answer)
    }

    /// Turns to the next member. Does not pause while live events come.
    fn turn(&mut self) {
        if self.is_live {
            self.members.turn();
        } else {
            turn(&mut self.members);
        }
    }

    fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
        self.followed.0.is_live.store(is_live, Ordering::Relaxed);
    }

    pub(super) const fn followed(&self) -> &Followed {
        &self.followed
    }

    /// Takes the next events that come, or asks for them, and writes them.
    pub(super) fn step(&mut self) -> Result<(), FollowError> {
        self.look_back();
        let ask = self.take_live()?;
        let wanted = self.bus.next();
        let fetched = match ask {
            Ask::No => return Ok(()),
            Ask::Now => {
                let (max_bytes, wait) = (LIVE_ASK_BYTES, Duration::ZERO);
                let fetch = Fetch { from: wanted, max_bytes, wait, series: self.series() };
                let fetched = fetch_within(&self.members, fetch, self.live_limit);
                self.live_limit = match fetched {
                    Some(_) => LIVE_ANSWER_TIME,
                    None => ANSWER_TIME.min(2 * self.live_limit),
                };
                // Live events have their time again, whatever the answer was.
                self.fresh = Instant::now();
                fetched
            }
            Ask::AndWait => {
                let at = self.members.at();
                self.fetch(self.recheck.as_ref().map_or(wanted, |recheck| recheck.from(at)))
            }
        };
        let fetched = fetched.and_then(|fetched| vouched(&self.members, fetched, self.alone));
        let Some(fetched) = fetched else {
            self.turn();
            return Ok(());
        };
        let series = fetched.now.series;
        if let Some(own) = self.series().filter(|own| series < *own) {
            self.note_behind(|| {
                format!("the bus follows series {own} of the feed. All members that answer are in earlier ones, such as {series}")
            });
            self.turn();
            return Ok(());
        }
        if fetched.departs == Departs::Unknown && !std::mem::replace(&mut self.is_noted, true) {
            let own = self.series().unwrap_or_default();
            let text = format!(
                "members no longer know series {own} of the feed, which the bus follows: only its last events are compared"
            );
            self.followed.note("series_unknown", text);
        }
        if let Departs::At { series, begun } = fetched.departs
            && begun < wanted
            && !mutant("series_not_checked")
        {
            return self.departed(series, begun);
        }
        if self.recheck.is_some() {
            return self.compare(&fetched);
        }
        self.behind = None;
        if let Departs::Foreign { series, begun } = fetched.departs {
            return self.departed(series, begun.min(self.agreed));
        }
        match fetched {
            Fetched { now, departs, events: Some(events), .. }
                if events.before().next == wanted =>
            {
                self.take(now, departs, &events)?;
            }
            Fetched { now, .. } if now.next <= wanted => self.turn(),
            Fetched { first, .. } => self.lacks(first)?,
        }
        Ok(())
    }

    /// A member that was asked is behind the bus. Says so if all are for some time.
    fn note_behind(&mut self, text: impl FnOnce() -> String) {
        let (since, again) = self.behind.get_or_insert_with(|| (Instant::now(), SEARCH_TIME));
        if since.elapsed() < *again {
            return;
        }
        *again = since.elapsed() + BEHIND_TIME;
        self.followed.note("members_behind", text() + ", and bring nothing");
    }

    /// Compares the last events on the bus with those of a member, before anything is written.
    fn compare(&mut self, fetched: &Fetched) -> Result<(), FollowError> {
        let at = self.members.at();
        let Some(recheck) = &mut self.recheck else { return Ok(()) };
        let compared = recheck.compare(at, fetched);
        if matches!(compared, Compared::Behind | Compared::Cannot)
            && let Departs::Foreign { series, begun } = fetched.departs
        {
            return self.departed(series, begun.min(self.agreed));
        }
        if compared != Compared::Behind {
            self.behind = None;
        }
        match compared {
            Compared::More => {}
            Compared::Equal => self.recheck = None,
            Compared::Differs(number) => return self.diverged(fetched.now.series, number),
            Compared::Behind => {
                let (own, next) = (self.bus.next(), fetched.now.next);
                self.note_behind(|| {
                    format!("the bus has the events before {own}. All members that answer have fewer, such as those before {next}")
                });
                self.turn();
            }
            Compared::Cannot => {
                self.members.turn_to_any();
                std::thread::sleep(AGAIN);
            }
        }
        let (count, patience) = (self.members.count(), self.patience());
        if let Some(recheck) = self.recheck.take_if(|it| it.is_hopeless(count, patience)) {
            let Range { start, end } = recheck.numbers();
            let text = format!(
                "the last events on the bus are not compared with the order, because no member has {start} to {last} any more",
                last = end - 1
            );
            self.followed.note("bus_not_compared", text);
        }
        Ok(())
    }

    /// How long a member or archive that does not answer is waited for.
    const fn patience(&self) -> Duration {
        if self.members.has_archives() { ARCHIVE_SEARCH_TIME } else { SEARCH_TIME }
    }

    /// The order has gone on with this series, and with other events than the bus from this number on.
    fn departed(&mut self, series: u32, from: u64) -> Result<(), FollowError> {
        // All of it may have been reported already.
        if self.bus.next() > self.reported {
            self.diverged(series, from)?;
        }
        self.bus.follow(series)
    }

    /// Takes the next live event, if it has come or comes soon.
    fn take_live(&mut self) -> Result<Ask, FollowError> {
        let Some(live) = self.live.clone() else { return Ok(Ask::AndWait) };
        // Only a member says what was before the first event. What is on the bus is compared before more is.
        let Some(own) = self.chain.filter(|_| self.recheck.is_none()) else {
            return Ok(Ask::AndWait);
        };
        let mut is_first = true;
        while !self.ends() {
            // What is late, or came before, gives no more patience, however much of it there is.
            let ask = if self.is_live { Ask::Now } else { Ask::AndWait };
            let patience = if self.is_live { WAIT } else { Duration::ZERO };
            let left = patience.saturating_sub(self.fresh.elapsed());
            if !is_first && self.fresh.elapsed() >= WAIT {
                return Ok(ask);
            }
            is_first = false;
            let Some(events) = live.pop(left) else { return Ok(ask) };
            if events.before().series < own.series || events.end() < own.next {
                continue;
            }
            if events.before().next > own.next {
                // The member may learn only soon that the others have what is missing.
                self.set_live(false);
                return Ok(Ask::AndWait);
            }
            // If they do not follow on what is here, a member decides which is right.
            let Some(events) = events.after(&own) else { return Ok(Ask::Now) };
            // If none is left, a member was faster, but they are no longer late.
            self.set_live(true);
            if !events.is_empty() {
                self.live_limit = LIVE_ANSWER_TIME;
                self.followed.0.came.fetch_add(events.count(), Ordering::Relaxed);
                self.write(&events)?;
                return Ok(Ask::No);
            }
        }
        Ok(Ask::No)
    }

    /// Writes the next events.
    fn write(&mut self, events: &Events) -> Result<(), FollowError> {
        (self.fresh, self.behind) = (Instant::now(), None);
        let mut chain = events.before();
        let ends = Arc::clone(&self.ends);
        if self.bus.write(events, &mut chain, || ends.load(Ordering::Relaxed))? {
            self.chain = Some(chain);
            self.followed.show(self.chain);
        }
        Ok(())
    }

    /// Takes the next events from a member, which has come this far.
    fn take(&mut self, now: Chain, departs: Departs, events: &Events) -> Result<(), FollowError> {
        let before = events.before();
        if self.chain.is_some_and(|own| own != before) {
            return self.diverged(now.series, self.agreed);
        }
        self.adopt(departs, (before.next, before.series))?;
        self.agreed = before.next;
        if events.is_empty() {
            // Another one may know more. It may also be one that does not get further.
            self.members.turn();
        } else {
            (self.lacking_since, self.lacking) = (None, BTreeMap::new());
            // What comes without being asked for is late, or missing.
            self.set_live(false);
            self.followed.0.asked.fetch_add(events.count(), Ordering::Relaxed);
            // Members have what follows.
            if self.members_have.is_some_and(|first| events.end() >= first) {
                self.members_have = None;
                self.members.turn();
            }
        }
        self.write(events)
    }

    /// Takes the series of the bus from a member, if neither the bus nor the member knows better.
    fn adopt(&mut self, departs: Departs, (next, series): (u64, u32)) -> Result<(), FollowError> {
        let is_unnamed = self.bus.series().is_none() && series > 0;
        if is_unnamed && self.had_events {
            let text = format!(
                "the bus does not say which series of the feed it follows. A member says that event {next} is in series {series}"
            );
            self.followed.note("series_taken", text);
        }
        if is_unnamed || departs == Departs::Unknown { self.bus.follow(series) } else { Ok(()) }
    }

    /// The member whose turn it is no longer has the next event. If none has it, it is lost.
    fn lacks(&mut self, first: u64) -> Result<(), FollowError> {
        self.lacking.insert(self.members.at(), first);
        if self.members.is_at_member() {
            self.members_have = Some(self.members_have.map_or(first, |known| known.min(first)));
        }
        let since = *self.lacking_since.get_or_insert_with(Instant::now);
        let patience = self.patience();
        let all = self.lacking.len() == self.members.count();
        let nearest = self.lacking.values().min().copied().unwrap_or(first);
        let wanted = self.bus.next();
        if (all || since.elapsed() >= patience) && (wanted + 1..u64::MAX).contains(&nearest) {
            // Before the loss: killed in between, the bus would have to have another series than the order.
            let own = (self.series(), wanted);
            let Some(series) = series_of(&mut self.members, nearest, own, self.alone) else {
                // Those that had it answer no more, or have purged it. The others are asked again what they have.
                self.lacking.retain(|_, first| *first > nearest);
                self.members.turn_to_any();
                std::thread::sleep(AGAIN);
                return Ok(());
            };
            self.adopt(Departs::Nowhere, (nearest, series))?;
            if !mutant("series_after_the_gap") {
                self.bus.follow(series)?;
            }
            let ends = Arc::clone(&self.ends);
            let stops = || ends.load(Ordering::Relaxed);
            if self.bus.lost(wanted, nearest, LostReason::Gone, &stops)? {
                point("feed-loss-published");
                self.bus.follow(series)?;
                self.followed.0.lost.fetch_add(nearest - wanted, Ordering::Relaxed);
                // The digest before what follows is a member's.
                self.chain = None;
                (self.lacking_since, self.lacking) = (None, BTreeMap::new());
            }
            return Ok(());
        }
        self.members.turn_to_any();
        std::thread::sleep(AGAIN);
        Ok(())
    }

    /// The order, in this series, has other events than the bus from this number on.
    fn diverged(&mut self, series: u32, from: u64) -> Result<(), FollowError> {
        let until = self.bus.next();
        let from = from.min(until.saturating_sub(1));
        let ends = Arc::clone(&self.ends);
        self.bus.diverged(series, from, until, &|| ends.load(Ordering::Relaxed))?;
        self.followed.0.divergences.fetch_add(1, Ordering::Relaxed);
        match self.on_divergence {
            OnDivergence::Stop => Err(FollowError::Diverged { from, until }),
            OnDivergence::Report => {
                (self.chain, self.recheck, self.unread, self.reported) = (None, None, None, until);
                self.followed.show(None);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Command, CommandId, Publish};

    #[test]
    fn a_slow_way_is_asked_for_less_and_a_fast_one_for_more_again() {
        let now = Chain::default();
        let of = |bytes: u32| {
            let payload = vec![7; bytes as usize];
            let id = CommandId { source: 1, series: 1, number: 0 };
            let publish = Publish { id, to_descendants: false, topic: "t", payload: &payload };
            let mut encoded = vec![];
            Command::Publish(publish).encode(&mut encoded).expect("short");
            let events = Some(Events::check(now, encoded).expect("a command"));
            let departs = Departs::Nowhere;
            Ok(Answer::Fetched(Fetched { first: 0, now, departs, events }))
        };
        let mut ask = AskBytes::default();
        // Another reason than the way says nothing about it.
        ask.note(&Err(LinkError::Ended), Duration::ZERO);
        assert_eq!((ask.get(), ask.limit()), (ASK_BYTES, ANSWER_TIME));
        (0..4).for_each(|_| ask.note(&Err(LinkError::Late), ANSWER_TIME));
        assert_eq!((ask.get(), ask.limit()), (LEAST_ASK_BYTES, ANSWER_TIME));
        // Perhaps it is one long event.
        ask.note(&Err(LinkError::Late), ANSWER_TIME);
        assert_eq!((ask.get(), ask.limit()), (LEAST_ASK_BYTES, LONG_ANSWER_TIME));
        ask.note(&of(ASK_BYTES), ANSWER_TIME / 2);
        ask.note(&of(10), Duration::ZERO);
        assert_eq!((ask.get(), ask.limit()), (LEAST_ASK_BYTES, LONG_ANSWER_TIME));
        ask.note(&of(ASK_BYTES), Duration::from_millis(1));
        assert_eq!((ask.get(), ask.limit()), (2 * LEAST_ASK_BYTES, ANSWER_TIME));
        (0..9).for_each(|_| ask.note(&of(ASK_BYTES), Duration::ZERO));
        assert_eq!(ask.get(), ASK_BYTES);
    }
}
