//! Whom to believe: which session of a stream is followed, and who is a stranger with our name.

use super::{Arrivals, Flow, Inbox, Labelled, Rejects};
use crate::audience::Name;
use crate::hook::mutant;
use crate::id::{MessageNumber, Series, Session, Source, Stream};
use crate::random::Random;
use crate::reassembly::{Bound, Loss, Pool};
use crate::receiver::{End, Mark, Over, Position, Receiver};
use crate::time::{MILLISECOND, Monotonic, SECOND};
use crate::wire::{Flags, Header, LostReason, Reject, SessionInfo};

/// A later session replaces one that was silent for this long beyond the time within which it promised a SESSION.
const REPLACE_NS: u64 = 50 * MILLISECOND;
/// Two SESSIONs at least this far apart make an earlier session believed.
const NAMED_NS: u64 = SECOND;

/// A stream of a source.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) source: Source,
    pub(super) stream: Stream,
    pub(super) session: Session,
    /// Where the series continues, if one is known.
    pub(super) mark: Option<Mark>,
    pub(super) receiver: Option<Box<Receiver>>,
    /// The session before, if it had not ended, while the next one has not stated its series. Only then it is
    /// known whether what is missing comes again.
    pub(super) previous: Option<Box<Receiver>>,
    /// The name of the node that sends it, once a SESSION has stated it.
    pub(super) name: Option<Name>,
    pub(super) joined: bool,
    /// How the last session ended, with END and all before it.
    pub(super) complete: Option<End>,
    pub(super) heard: Monotonic,
    /// Where this session was left, when it was silent.
    pub(super) left: Option<Position>,
    /// What of it was refused, by reason.
    pub(super) rejects: Rejects,
    /// An earlier session that was named, and when first.
    pub(super) earlier: Option<(Session, Monotonic)>,
    /// Since when this process knows of the series and has heard nothing of it.
    pub(super) awaited: Option<Monotonic>,
}

/// Receivers whose session has ended, for the next ones: their memory is allocated once.
#[derive(Debug)]
pub(super) struct Spare {
    #[expect(clippy::vec_box, reason = "they move between this list and the entries")]
    receivers: Vec<Box<Receiver>>,
}

impl Spare {
    /// Makes room for as many as there can be.
    pub(super) fn new(most: usize) -> Self {
        Self { receivers: Vec::with_capacity(most) }
    }

    pub(super) fn keep(&mut self, receiver: Box<Receiver>) {
        self.receivers.push(receiver);
    }

    fn take(&mut self) -> Option<Box<Receiver>> {
        self.receivers.pop()
    }
}

impl Entry {
    pub(super) const fn key(&self) -> (Source, Stream) {
        (self.source, self.stream)
    }

    /// What is followed.
    pub(super) fn flow(&self) -> Flow {
        let series = self.receiver.as_ref().and_then(|receiver| receiver.series());
        let series = series.or(self.mark.map(|mark| mark.series)).unwrap_or(Series(0));
        Flow { source: self.source, session: self.session, stream: self.stream, series }
    }

    /// How many buffers its receivers hold.
    pub(super) fn held(&self) -> usize {
        self.receivers().map(Receiver::held).sum()
    }

    /// When the oldest datagram that is held arrived.
    pub(super) fn held_since(&self, pool: &Pool) -> Option<Monotonic> {
        self.receivers().filter_map(|it| it.held_since(pool)).min()
    }

    /// How many gaps are open.
    pub(super) fn open_gaps(&self) -> usize {
        self.receivers().map(Receiver::open_gaps).sum()
    }

    fn receivers(&self) -> impl Iterator<Item = &Receiver> {
        self.previous.iter().chain(&self.receiver).map(Box::as_ref)
    }

    /// Where the series continues.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.receiver.as_ref().and_then(|receiver| receiver.mark()).or(self.mark)
    }

    /// Gives up the oldest gap, because memory is short.
    pub(super) fn shed(&mut self, pool: &mut Pool, out: &mut impl Inbox) {
        let mut flow = self.flow();
        if let Some(previous) = &mut self.previous {
            flow = previous_flow(flow, previous);
            if previous.shed(pool, &mut Labelled { flow, out }) {
                self.mark = previous.mark();
                return;
            }
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.shed(pool, &mut Labelled { flow, out });
        }
    }

    /// The session that is followed states its series. Reports what is missing of the session before, and
    /// whether the series is another one.
    pub(super) fn begins(
        &mut self,
        info: &SessionInfo<'_>,
        pool: &mut Pool,
        spare: &mut Spare,
        out: &mut impl Inbox,
    ) {
        let continues = self.mark.is_some_and(|mark| mark.series == info.series);
        let why = if continues { Over::Continued(info.begins) } else { Over::Replaced };
        let is_sealed = self.complete == Some(End::Sealed) && !mutant("sealed_series_told");
        // After END, more may have been published, and be gone with the series.
        let is_known = continues
            || is_sealed
            || (self.complete.is_some() && mutant("complete_silences_series"));
        if !self.end_previous(why, pool, spare, out) && !is_known {
            self.perhaps_more(LostReason::Restart, out);
        }
        self.complete = None;
    }

    /// The session that was to be followed is not wanted. It is not looked at again.
    pub(super) fn leave(&mut self, pool: &mut Pool, spare: &mut Spare) {
        self.release(pool, spare);
        self.complete = Some(End::Complete);
    }

    /// Gives up its receivers, and reports nothing.
    pub(super) fn release(&mut self, pool: &mut Pool, spare: &mut Spare) {
        for mut receiver in [self.receiver.take(), self.previous.take()].into_iter().flatten() {
            receiver.release(pool);
            spare.keep(receiver);
        }
    }

    /// The session that was followed has ended, although it never stated its series.
    pub(super) fn never_joined(
        &mut self,
        pool: &mut Pool,
        spare: &mut Spare,
        out: &mut impl Inbox,
    ) {
        if !self.end_previous(Over::Silent, pool, spare, out) && !mutant("unjoined_untold") {
            self.perhaps_more(LostReason::Silent, out);
        }
    }

    /// Ends the session before the one that is followed. Returns whether there was one.
    fn end_previous(
        &mut self,
        why: Over,
        pool: &mut Pool,
        spare: &mut Spare,
        out: &mut impl Inbox,
    ) -> bool {
        let Some(mut previous) = self.previous.take() else { return false };
        let flow = previous_flow(self.flow(), &previous);
        previous.close(why, pool, &mut Labelled { flow, out });
        self.mark = previous.mark().or(self.mark);
        spare.keep(previous);
        true
    }

    /// Reports that more of a known series may have been sent. How much is unknown.
    pub(super) fn perhaps_more(&self, reason: LostReason, out: &mut impl Inbox) {
        let Some(mark) = self.mark else { return };
        let flow = Flow { session: mark.session, series: mark.series, ..self.flow() };
        let loss = Loss {
            message: MessageNumber::ZERO,
            count: 0,
            bound: Bound::AtLeast,
            reason,
            after: mark.next.before(),
            until: None,
        };
        out.loss(flow, loss);
    }

    /// Whether this is the session before, and the one that follows has not stated its series.
    fn returns_to(&self, session: Session) -> bool {
        let mark = self.previous.as_ref().and_then(|previous| previous.mark());
        mark.is_some_and(|mark| mark.session == session)
    }

    /// An earlier session was named. Returns whether to believe it now.
    fn named_again(&mut self, now: Monotonic, session: Session) -> bool {
        match self.earlier {
            Some((named, since)) if named == session => now.since(since) >= NAMED_NS,
            _ if mutant("named_once") => true,
            _ => {
                self.earlier = Some((session, now));
                false
            }
        }
    }
}

fn previous_flow(flow: Flow, previous: &Receiver) -> Flow {
    let mark = previous.mark();
    mark.map_or(flow, |mark| Flow { session: mark.session, series: mark.series, ..flow })
}

impl Arrivals {
    /// Returns the entry of a datagram's session, if that is believed.
    pub(super) fn follow(
        &mut self,
        now: Monotonic,
        header: &Header,
        is_session: bool,
        out: &mut impl Inbox,
    ) -> Result<usize, Reject> {
        let (source, stream, session) = (header.source, header.stream, header.session);
        let Some((at, displaced)) = self.entry(source, stream, session, now) else {
            self.no_entry += 1;
            return Err(Reject::Session);
        };
        if let Some((source, stream)) = displaced {
            out.forgets(source, stream);
        }
        let has_key = self.keys.is_some();
        let activity_ns = self.config.activity_ns;
        let entry = &mut self.entries[at];
        let ended = entry.receiver.is_none();
        let promised = entry.receiver.as_ref().map_or(0, |receiver| receiver.promised_ns());
        if session == entry.session {
            if ended && entry.complete.is_some() {
                // Late repairs of a session that has ended.
                return Err(Reject::Session);
            }
            entry.heard = now;
        } else if !has_key && entry.returns_to(session) && !mutant("stranger_ends_session") {
            // Without a key, anybody can send DATA of a later session. Its source still lives in this one.
            entry.heard = now;
            let joining = entry.receiver.take();
            entry.receiver = entry.previous.take();
            entry.session = session;
            entry.joined = true;
            if let Some(mut joining) = joining {
                joining.release(&mut self.pool);
                self.spare.keep(joining);
            }
        } else {
            let silent = now.since(entry.heard);
            // The members of a feed agree on its sessions.
            let is_sure = has_key || header.flags.has(Flags::FEED);
            let replaces = if session > entry.session {
                let broke = silent >= promised.saturating_add(REPLACE_NS);
                ended || is_sure || broke || mutant("later_session_at_once")
            } else {
                silent >= activity_ns && is_session && entry.named_again(now, session)
            };
            if !replaces {
                return Err(Reject::Session);
            }
            if let Some(mut old) = entry.receiver.take() {
                entry.mark = old.mark().or(entry.mark);
                if old.is_joining() {
                    old.release(&mut self.pool);
                    self.spare.keep(old);
                } else {
                    // What is missing may come again in the new session.
                    entry.previous = Some(old);
                }
            }
            entry.session = session;
            entry.heard = now;
            (entry.earlier, entry.left) = (None, None);
            entry.joined = false;
        }
        if entry.receiver.is_none() {
            entry.awaited = None;
            let mut receiver = match self.spare.take() {
                Some(mut spare) => {
                    spare.restart(*header, now, &mut self.pool);
                    spare
                }
                None => {
                    let random = Random::new(self.random.number());
                    let (config, me, keys) = (&self.config, self.me, self.keys);
                    Box::new(Receiver::new(config, me, *header, keys, random, now))
                }
            };
            receiver.set_kernel_dropped(self.kernel_dropped);
            receiver.set_limits(&self.limits);
            receiver.resume(entry.left.take());
            entry.receiver = Some(receiver);
            entry.joined = false;
        }
        Ok(at)
    }

    /// Returns the place of a stream's entry, which is made if there is room, and the stream that made room for it.
    pub(super) fn entry(
        &mut self,
        source: Source,
        stream: Stream,
        session: Session,
        now: Monotonic,
    ) -> Option<(usize, Option<(Source, Stream)>)> {
        let key = (source, stream);
        let find = |entries: &[Entry]| entries.binary_search_by_key(&key, Entry::key);
        if let Ok(at) = find(&self.entries) {
            return Some((at, None));
        }
        let mut displaced = None;
        if self.entries.len() >= usize::try_from(self.config.sources).unwrap_or(usize::MAX) {
            // One that has ended makes room: the longest silent.
            let oldest = self.entries.iter().enumerate();
            let has_ended = |entry: &Entry| entry.receiver.is_none() && entry.awaited.is_none();
            let oldest = oldest.filter(|(_, entry)| has_ended(entry));
            let (oldest, _) = oldest.min_by_key(|(_, entry)| entry.heard)?;
            displaced = Some(self.entries.remove(oldest).key());
        }
        let at = find(&self.entries).unwrap_or_else(|at| at);
        self.entries.insert(
            at,
            Entry {
                source,
                stream,
                session,
                mark: None,
                receiver: None,
                previous: None,
                name: None,
                joined: false,
                complete: None,
                heard: now,
                left: None,
                rejects: [0; Reject::ALL.len()],
                earlier: None,
                awaited: None,
            },
        );
        Some((at, displaced))
    }
}
