//! The streams that other inlets bring, and those that no process brings any more.
//!
//! If another inlet brings a stream, this import *stands by* for it. What comes of the stream is dropped, and not counted as
//! arrived. Each second the import claims the stream again. If it is the own stream of a sender, the sender's numbering is not
//! followed meanwhile; the first claim that succeeds joins it again, so the sender sends what the bus does not have.
//! Otherwise a relay brings it among others: then what was dropped, and is not on the bus, is reported as lost.
//!
//! A sender that is not heard for [`ACTIVITY`] may have published more than it has sent. Then the bus gets an *open end*: a loss
//! of at least 0 messages after the last number. If it has ended and had sent all, that is a minute later. The same holds for the streams of senders that an earlier import has
//! brought, if none comes, and for a series that another one follows: the bus of the sender was made again. The bus takes
//! one open end until the next message of the stream, so it does not matter who writes it.

use super::publishing::Ended;
use super::{Importing, Joining};
use crate::beat::Beat;
use crate::identity;
use crate::limit::warn_rarely;
use crate::order::{PATHS, STREAMS, StreamKey};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::time::{Duration, Instant};
use toroni::{Arrived, Limit, Lost, LostBound, LostReason, Origin, PublishError};
use zenoh::qos::Priority;

/// How often streams are claimed again, and the bus is asked for those that no process brings.
const LOOK: Duration = Duration::from_secs(1);
/// A sender counts as silent if nothing came from it for this time, and for three of its heartbeats.
const ACTIVITY: Duration = Duration::from_secs(10);
/// No sender is waited for longer than three of these.
const LONGEST_INTERVAL: Duration = Duration::from_secs(600);
/// When to ask again whether a stream is the own one of a sender, if it was not. Also how long a sender may be away that has
/// ended, and sent all.
const LATER: Duration = Duration::from_secs(60);

/// What an import knows of its streams beside the order.
pub(super) struct Lines {
    refused: HashMap<StreamKey, Refused>,
    /// The numberings of senders whose own streams are refused: the stream and the import.
    standing_by: HashMap<u32, (StreamKey, usize)>,
    senders: HashMap<u32, Sender>,
    /// The own streams of senders that have answered once.
    met: HashSet<StreamKey>,
    /// When streams that no process brings are reported.
    awaited: HashMap<StreamKey, Instant>,
    looks: Instant,
    /// Since when this process has run without a pause.
    awake: Duration,
}

/// What was dropped of a stream that another inlet brings.
#[derive(Default)]
struct Refused {
    /// The number after the highest.
    until: u64,
    messages: u64,
}

/// A sender that was joined with a numbering.
struct Sender {
    import: usize,
    /// The time between two of its heartbeats, as they say.
    interval: Duration,
    /// Whether it was asked because a heartbeat was not to be believed.
    is_doubted: bool,
    /// Before which number its stream had come when its last heartbeat came.
    mark: u64,
    /// Where it has ended, if it has sent all that was on its bus.
    ended: Option<u64>,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            refused: HashMap::new(),
            standing_by: HashMap::new(),
            senders: HashMap::new(),
            met: HashSet::new(),
            awaited: HashMap::new(),
            looks: Instant::now(),
            awake: Duration::ZERO,
        }
    }
}

impl Lines {
    /// Returns whether this import stands by for a stream.
    pub(super) fn refuses(&self, key: StreamKey) -> bool {
        !self.refused.is_empty() && self.refused.contains_key(&key)
    }

    pub(super) fn refuses_none(&self) -> bool {
        self.refused.is_empty()
    }

    /// Returns the stream for which a numbering stands by.
    pub(super) fn stands_by(&self, numbering: u32) -> Option<StreamKey> {
        self.standing_by.get(&numbering).map(|(own, _)| *own)
    }

    /// Notes before which number the stream of a sender has come, at a heartbeat. Returns where it was at the last one: what the
    /// sender has sent by then is in this heartbeat.
    pub(super) fn replace_mark(&mut self, numbering: u32, mark: u64) -> u64 {
        let sender = self.senders.get_mut(&numbering);
        sender.map_or(0, |sender| std::mem::replace(&mut sender.mark, mark))
    }

    /// Notes that messages of a stream are dropped, from this number up to another.
    pub(super) fn note_refused(&mut self, from: Origin, until: u64, messages: u64) {
        if let Some(refused) = self.refused.get_mut(&StreamKey::of(from)) {
            refused.until = refused.until.max(until);
            refused.messages = refused.messages.saturating_add(messages);
        }
    }
}

impl Importing {
    /// Claims a stream. The inner error says that the bus refuses it.
    fn claim(&self, key: StreamKey) -> Result<Result<Arrived, PublishError>, Ended> {
        self.persist(|limit| self.inlet_of(key).claim(key.into(), limit))
    }

    /// Makes the order know a stream. Returns false if another program brings it to this bus.
    pub(super) fn introduce(&mut self, key: StreamKey) -> Result<bool, Ended> {
        if self.order.knows_stream(key) {
            return Ok(!self.lines.refuses(key));
        }
        if key.source == self.context.identity.source || key.stream == crate::loss::STREAM {
            self.order.arrived(key, 0);
            return Ok(true);
        }
        match self.claim(key)? {
            Ok(arrived) => {
                if arrived.taken_over {
                    tracing::info!(
                        ?key,
                        from = arrived.next,
                        "continues where another program stopped"
                    );
                }
                self.bring(key, &arrived);
                Ok(true)
            }
            Err(error @ PublishError::Taken { .. }) => {
                self.refuse(key, &error);
                Ok(false)
            }
            Err(error) => {
                // The first message finds out what becomes of it.
                warn_rarely!(%error, "cannot ask the bus for a stream");
                self.order.arrived(key, 0);
                Ok(true)
            }
        }
    }

    fn bring(&mut self, key: StreamKey, arrived: &Arrived) {
        self.senders.remove(&key);
        self.published.claim(&self.context, key, arrived);
        self.order.arrived(key, arrived.next);
    }

    /// Makes the order know the own stream of a sender, and how far it is settled. Returns false if another program brings
    /// it to this bus.
    pub(super) fn introduce_sender(&mut self, key: StreamKey) -> Result<bool, Ended> {
        let is_ours = self.introduce(key)?;
        if !is_ours || self.senders.contains(&key) {
            return Ok(is_ours);
        }
        let Some(at) = self.settled_at(key) else { return Ok(true) };
        match self.persist(|limit| self.notes.claim(at.into(), limit))? {
            Ok(arrived) => {
                let mark = self.order.mark(key);
                if let Some(settled) = arrived.next.checked_sub(1) {
                    let came = self.published.came(&self.context, key, settled);
                    self.order.settled(key, settled, came);
                } else if mark > 0 {
                    // The bus does not know it yet.
                    self.order.settled(key, mark, Vec::new());
                }
            }
            Err(error @ PublishError::Taken { .. }) => {
                self.release(key, false)?;
                self.refuse(key, &error);
                return Ok(false);
            }
            Err(error) => warn_rarely!(%error, "cannot keep how far a sender is accounted for"),
        }
        if self.senders.len() >= STREAMS {
            self.senders.clear();
        }
        self.senders.insert(key);
        Ok(true)
    }

    /// Returns the key under which the bus keeps up to where a stream is settled, and one more: a mark of 0 says that this
    /// is unknown. `None` if it is not the stream of a sender, or this import does not bring it.
    pub(super) fn settled_at(&self, key: StreamKey) -> Option<StreamKey> {
        let is_ours = key.source != self.context.identity.source && !self.lines.refuses(key);
        if is_ours { identity::settled(key) } else { None }
    }

    /// Begins to stand by for a stream that another inlet brings.
    pub(super) fn refuse(&mut self, key: StreamKey, error: &PublishError) {
        let joins = |(numbering, joining): (&u32, &Joining)| {
            (joining.own == Some(key)).then_some((*numbering, joining.import))
        };
        let joining: Vec<_> = self.joining.iter().filter_map(joins).collect();
        let followed = self.order.paths_of(|own| own == key);
        if !self.lines.refuses(key) {
            self.context.counting.taken.one();
            warn_rarely!(%error, ?key, "another program brings a stream, so this bridge stands by for it");
            if self.lines.refused.len() < STREAMS {
                self.lines.refused.insert(key, Refused::default());
            }
        }
        self.order.forget_stream(key);
        self.senders.remove(&key);
        self.published.release(key);
        for (numbering, import) in joining {
            self.stand_by(numbering, import, key);
        }
        for numbering in followed {
            self.stand_by(numbering, self.import_of(numbering), key);
        }
        if self.lines.refuses(key) {
            // A relay may bring it among others, which the order counts.
            self.order.arrived(key, 0);
        }
    }

    /// Does not follow a numbering any more, until its sender's own stream can be claimed.
    pub(super) fn stand_by(&mut self, numbering: u32, import: usize, own: StreamKey) {
        self.joining.remove(&numbering);
        self.order.abandon(numbering);
        if self.lines.standing_by.len() >= PATHS {
            // They are refused again when something comes with them.
            self.lines.standing_by.clear();
        }
        self.lines.standing_by.insert(numbering, (own, import));
    }

    /// Claims a stream for which this import stands by.
    pub(super) fn retry(&mut self, key: StreamKey) -> Result<(), Ended> {
        // What follows from before is refused.
        self.flush()?;
        let Ok(arrived) = self.claim(key)? else { return Ok(()) };
        let of_it = self.lines.standing_by.iter().filter(|(_, (own, _))| *own == key);
        let numberings: Vec<_> =
            of_it.map(|(numbering, (_, import))| (*numbering, *import)).collect();
        if let Some(at) = identity::settled(key).filter(|_| !numberings.is_empty())
            && self.persist(|limit| self.notes.claim(at.into(), limit))?.is_err()
        {
            return self.release(key, false);
        }
        let refused = self.lines.refused.remove(&key).unwrap_or_default();
        tracing::info!(?key, from = arrived.next, "the bridge takes over a stream");
        self.order.forget_stream(key);
        self.bring(key, &arrived);
        if numberings.is_empty() {
            let messages = refused.messages.min(refused.until.saturating_sub(arrived.next));
            self.order.missed_before(key, refused.until, messages, &mut self.events);
        }
        for (numbering, import) in numberings {
            self.lines.standing_by.remove(&numbering);
            self.begin_join(import, numbering, Some(key), Priority::default())?;
        }
        Ok(())
    }

    /// Notes that a sender was joined.
    pub(super) fn note_sender(&mut self, numbering: u32, import: usize) {
        let Self { lines, order, .. } = self;
        if lines.senders.len() >= PATHS {
            lines.senders.retain(|numbering, _| order.knows_path(*numbering));
        }
        let new =
            Sender { import, interval: Duration::ZERO, is_doubted: false, mark: 0, ended: None };
        lines.senders.entry(numbering).or_insert(new);
    }

    /// Returns by which import a numbering was joined.
    pub(super) fn import_of(&self, numbering: u32) -> usize {
        self.lines.senders.get(&numbering).map_or(0, |sender| sender.import)
    }

    /// Notes a heartbeat of a sender.
    pub(super) fn note_beat(&mut self, beat: &Beat) {
        if let Some(sender) = self.lines.senders.get_mut(&beat.numbering) {
            sender.ended = beat.ended.then_some(beat.until);
            sender.interval = Duration::from_millis(beat.every).min(LONGEST_INTERVAL);
        }
    }

    /// Notes that a sender is asked because a heartbeat is doubtful, or was. Returns whether it was before.
    pub(super) fn doubt(&mut self, numbering: u32, is_doubted: bool) -> bool {
        let sender = self.lines.senders.get_mut(&numbering);
        sender.is_some_and(|sender| std::mem::replace(&mut sender.is_doubted, is_doubted))
    }

    /// Does what has its time: claims streams again, and reports what no process brings.
    pub(super) fn tend(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        if now < self.lines.looks {
            return Ok(());
        }
        let late = now.saturating_duration_since(self.lines.looks);
        if late > LOOK {
            // It was stopped, or waited for the bus. Nothing that was to come meanwhile is late.
            self.lines.awake = self.now();
            self.lines.awaited.values_mut().for_each(|due| *due += late);
        }
        self.lines.looks = now + LOOK;
        let refused: Vec<_> = self.lines.refused.keys().copied().collect();
        for key in refused {
            self.retry(key)?;
        }
        self.end_silent()?;
        self.report_awaited(now)
    }

    /// Ends the numberings of senders that are silent.
    fn end_silent(&mut self) -> Result<(), Ended> {
        let now = self.now();
        let Self { lines, order, .. } = self;
        let is_silent = |numbering: &u32| {
            let sender = lines.senders.get(numbering);
            let patience = sender.map_or(ACTIVITY, |sender| ACTIVITY.max(3 * sender.interval));
            let heard = order.heard(*numbering).map(|heard| heard.max(lines.awake));
            heard.is_some_and(|heard| now.saturating_sub(heard) > patience)
        };
        let silent: Vec<u32> = lines.senders.keys().copied().filter(is_silent).collect();
        for numbering in silent {
            let own = self.order.own_stream(numbering);
            let ended = self.lines.senders.get(&numbering).and_then(|sender| sender.ended);
            let accounted = own.and_then(|own| self.order.accounted(own));
            // Its bus may have more by now, which others publish.
            let has_all = ended.is_some_and(|ended| accounted.is_some_and(|until| until >= ended));
            self.lines.senders.remove(&numbering);
            let brought = self.order.end(numbering, &mut self.events);
            self.flush()?;
            for key in brought {
                if Some(key) == own && has_all {
                    self.lines.awaited.insert(key, Instant::now() + LATER);
                } else if Some(key) == own {
                    warn_rarely!(?key, "a sender is silent: more may be missing");
                    self.open_end(key, LostReason::Silent)?;
                }
                // What a relay brought is reported with its own stream.
                self.let_go(key, own.is_some_and(|own| own != key))?;
            }
        }
        Ok(())
    }

    /// Reports senders whose streams the bus has, and that no process brings.
    fn report_awaited(&mut self, now: Instant) -> Result<(), Ended> {
        let open = match self.inlet.open_streams(Limit::Try) {
            Ok(open) => open,
            Err(error) if error.is_temporary() || error.concerns_one_message() => return Ok(()),
            Err(error) => return Err(Ended::Failed(error.to_string())),
        };
        let mut awaited = HashMap::new();
        for key in open.into_iter().map(StreamKey::of) {
            if key.source == self.context.identity.source || self.is_alive(key) {
                continue;
            }
            let due = self.lines.awaited.get(&key).copied();
            let mut due = due.unwrap_or_else(|| now + ACTIVITY);
            if due <= now {
                if self.is_of_a_sender(key)? {
                    self.open_end(key, LostReason::Silent)?;
                    self.release(key, false)?;
                }
                due = now + LATER;
            }
            awaited.insert(key, due);
        }
        self.lines.awaited = awaited;
        Ok(())
    }

    /// Returns whether the bus has something of a stream, and no open end after it. Only then may a numbering be followed that its
    /// sender has not confirmed: what is dropped of another stream needs no report.
    pub(super) fn is_open(&self, key: StreamKey) -> Result<bool, Ended> {
        let open = self.persist(|limit| self.inlet.open_streams(limit))?.unwrap_or_default();
        Ok(open.into_iter().any(|origin| StreamKey::of(origin) == key))
    }

    /// Returns whether something may still come of a sender's own stream by this import: from the sender, or by a relay.
    fn is_alive(&self, key: StreamKey) -> bool {
        self.lines.refuses(key)
            || self.joining.values().any(|joining| joining.own == Some(key))
            || self.order.brings(key)
    }

    /// Returns whether a bridge has brought this as the own stream of a sender. What relays bring among others, and what
    /// other programs than bridges bring, has no note.
    fn is_of_a_sender(&self, key: StreamKey) -> Result<bool, Ended> {
        let Some(at) = identity::settled(key) else { return Ok(false) };
        let Ok(arrived) = self.persist(|limit| self.notes.claim(at.into(), limit))? else {
            return Ok(false);
        };
        self.release(at, false)?;
        Ok(arrived.next > 0)
    }

    /// Ends the other series of a sender's stream, once the sender has answered: its bus was made again, and may have had more.
    pub(super) fn end_other_series(&mut self, key: StreamKey) -> Result<(), Ended> {
        if self.lines.met.len() >= STREAMS {
            self.lines.met.clear();
        }
        if !self.lines.met.insert(key) {
            return Ok(());
        }
        let is_other = |other: StreamKey| {
            (other.source, other.stream) == (key.source, key.stream) && other.series != key.series
        };
        let joins = |_: &u32, joining: &mut Joining| joining.own.is_some_and(is_other);
        for (_, joining) in self.joining.extract_if(joins) {
            self.order.discard(joining.held, &mut self.events);
        }
        for numbering in self.order.paths_of(is_other) {
            self.order.end(numbering, &mut self.events);
        }
        self.flush()?;
        let open = self.persist(|limit| self.inlet.open_streams(limit))?.unwrap_or_default();
        for other in open.into_iter().map(StreamKey::of).filter(|other| is_other(*other)) {
            if self.is_of_a_sender(other)? {
                warn_rarely!(
                    ?other,
                    ?key,
                    "the bus of a sender was made again: more may be missing"
                );
                self.open_end(other, LostReason::Restart)?;
                self.let_go(other, true)?;
            }
        }
        Ok(())
    }

    /// Reports that more may be missing of a stream, if this import can bring it and the bus has something of it.
    fn open_end(&mut self, key: StreamKey, reason: LostReason) -> Result<(), Ended> {
        let Ok(arrived) = self.claim(key)? else { return Ok(()) };
        if arrived.next == 0 {
            return Ok(());
        }
        let from = key.origin(arrived.next);
        let (until, bound, scope) = (from.number, LostBound::AtLeast, self.scope());
        self.report(Lost { from, until, messages: 0, bound, reason, scope }, None)
    }

    /// Lets others bring a stream. It is claimed again when something comes of it.
    fn let_go(&mut self, key: StreamKey, is_over: bool) -> Result<(), Ended> {
        self.release(key, is_over)?;
        if let Some(at) = identity::settled(key) {
            self.release(at, is_over)?;
        }
        self.order.forget_stream(key);
        self.senders.remove(&key);
        self.published.release(key);
        Ok(())
    }

    fn release(&self, key: StreamKey, is_over: bool) -> Result<(), Ended> {
        let released =
            self.persist(|limit| self.inlet_of(key).release(key.into(), is_over, limit))?;
        if let Err(error) = released {
            warn_rarely!(%error, "cannot release a stream");
        }
        Ok(())
    }

    /// Returns the inlet that brings a stream. Only what senders count is awaited.
    pub(super) fn inlet_of(&self, key: StreamKey) -> &toroni::Inlet {
        let is_note = key.stream != crate::loss::STREAM && identity::settled(key).is_none();
        if is_note || key.source == self.context.identity.foreign {
            &self.notes
        } else {
            &self.inlet
        }
    }
}
