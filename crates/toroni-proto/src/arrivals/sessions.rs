//! Whom to believe: which session of a stream is followed, and who is a stranger with our name.

use super::{Arrivals, Event, Flow, Inbox, Labelled};
use crate::id::{MessageNumber, Series, Session, Source, Stream};
use crate::random::Random;
use crate::reassembly::{Bound, Loss};
use crate::receiver::{Mark, Position, Receiver};
use crate::time::{MILLISECOND, Monotonic, SECOND};
use crate::wire::{Address, Header, LostReason, Reject};

/// A later session replaces one that was silent for so long beyond the time within which it promised a SESSION.
const REPLACE_NS: u64 = 50 * MILLISECOND;
/// Two SESSIONs at least so far apart make an earlier session believed.
const NAMED_NS: u64 = SECOND;
/// How many foreign SESSIONs with our id, within [`COLLISION_NS`], are a collision.
const COLLISIONS: u32 = 3;
const COLLISION_NS: u64 = 3 * SECOND;

/// A stream of a source.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) source: Source,
    pub(super) stream: Stream,
    pub(super) session: Session,
    /// Where the series continues, if one is known.
    pub(super) mark: Option<Mark>,
    pub(super) receiver: Option<Receiver>,
    pub(super) joined: bool,
    /// The last session ended with END, and all of it came.
    pub(super) complete: bool,
    pub(super) heard: Monotonic,
    /// Where this session was left, when it was silent.
    pub(super) left: Option<Position>,
    /// An earlier session that was named, and when first.
    pub(super) earlier: Option<(Session, Monotonic)>,
}

impl Entry {
    /// What is followed.
    pub(super) fn flow(&self) -> Flow {
        let series = self.receiver.as_ref().and_then(Receiver::series);
        let series = series.or(self.mark.map(|mark| mark.series)).unwrap_or(Series(0));
        Flow { source: self.source, session: self.session, stream: self.stream, series }
    }

    /// The series begins. Reports it if that is another one than before.
    pub(super) fn begins(&mut self, flow: Flow, series: Series, out: &mut impl Inbox) {
        if let Some(mark) = self.mark
            && mark.series != series
            && !self.complete
        {
            let old = Flow { series: mark.series, ..flow };
            out.loss(
                old,
                Loss {
                    message: MessageNumber::ZERO,
                    count: 0,
                    bound: Bound::AtLeast,
                    reason: LostReason::Restart,
                    after: mark.next.before(),
                    until: None,
                },
            );
        }
        self.complete = false;
    }

    /// An earlier session was named. Returns whether to believe it now.
    fn named_again(&mut self, now: Monotonic, session: Session) -> bool {
        match self.earlier {
            Some((named, since)) if named == session => now.since(since) >= NAMED_NS,
            _ => {
                self.earlier = Some((session, now));
                false
            }
        }
    }
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
        let Some(at) = self.entry(source, stream, session, now) else {
            self.no_entry += 1;
            return Err(Reject::Session);
        };
        let has_key = self.keys.is_some();
        let activity_ns = self.config.activity_ns;
        let entry = &mut self.entries[at];
        let ended = entry.receiver.is_none();
        let promised = entry.receiver.as_ref().map_or(0, Receiver::promised_ns);
        if session == entry.session {
            if ended && entry.complete {
                // Late repairs of a session that has ended.
                return Err(Reject::Session);
            }
            entry.heard = now;
        } else {
            let silent = now.since(entry.heard);
            let replaces = if session > entry.session {
                ended || has_key || silent >= promised.saturating_add(REPLACE_NS)
            } else {
                silent >= activity_ns && is_session && entry.named_again(now, session)
            };
            if !replaces {
                return Err(Reject::Session);
            }
            let mut labelled = Labelled { flow: entry.flow(), out };
            if let Some(mut old) = entry.receiver.take() {
                // What is missing may come again in the new session.
                old.close(None, &mut self.pool, &mut labelled);
                entry.mark = old.mark().or(entry.mark);
            }
            entry.session = session;
            entry.heard = now;
            (entry.earlier, entry.left) = (None, None);
            entry.joined = false;
        }
        if entry.receiver.is_none() {
            let random = Random::new(self.random.number());
            let mut receiver =
                Receiver::new(&self.config, self.me, *header, self.keys, random, now);
            receiver.resume(entry.left.take());
            entry.receiver = Some(receiver);
            entry.joined = false;
        }
        Ok(at)
    }

    /// The place of a stream's entry, which is made if there is room.
    pub(super) fn entry(
        &mut self,
        source: Source,
        stream: Stream,
        session: Session,
        now: Monotonic,
    ) -> Option<usize> {
        let key = (source, stream);
        let find = |entries: &[Entry]| {
            entries.binary_search_by_key(&key, |entry| (entry.source, entry.stream))
        };
        if let Ok(at) = find(&self.entries) {
            return Some(at);
        }
        if self.entries.len() >= usize::try_from(self.config.sources).unwrap_or(usize::MAX) {
            // One that has ended makes room: the longest silent.
            let oldest = self.entries.iter().enumerate();
            let oldest = oldest.filter(|(_, entry)| entry.receiver.is_none());
            let (oldest, _) = oldest.min_by_key(|(_, entry)| entry.heard)?;
            self.entries.remove(oldest);
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
                joined: false,
                complete: false,
                heard: now,
                left: None,
                earlier: None,
            },
        );
        Some(at)
    }

    /// A SESSION with our own source id came.
    pub(super) fn foreign(
        &mut self,
        now: Monotonic,
        from: Address,
        session: Session,
        instance: [u8; 16],
    ) -> Reject {
        if instance == self.instance {
            return Reject::Echo;
        }
        let (since, count) = match self.collision {
            Some((since, count)) if now.since(since) <= COLLISION_NS => (since, count + 1),
            _ => (now, 1),
        };
        self.collision = Some((since, count));
        if count == COLLISIONS {
            self.collision = None;
            let greater = (self.me.id.session, self.instance) > (session, instance);
            let stop = greater && self.keys.is_some();
            self.event(Event::Collision { address: from, stop });
        }
        Reject::Collision
    }
}
