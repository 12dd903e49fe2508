//! Whom to believe: which session of a stream is followed, and who is a stranger with our name.

use super::proof::Candidate;
use super::{Arrivals, Flow, Inbox, Labelled, Rejects};
use crate::audience::Name;
use crate::hook::mutant;
use crate::id::{MessageNumber, Series, Session, Source, Stream};
use crate::legs::Path;
use crate::random::Random;
use crate::reassembly::{Bound, Loss, Pool};
use crate::receiver::{End, Mark, Over, Position, Receiver};
use crate::time::{MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::{Body, Datagram, Echo, Flags, Header, Kind, LostReason, Reject, SessionInfo};

/// A later session replaces one that was silent for this long beyond the time within which it promised a SESSION.
const REPLACE_NS: u64 = 50 * MILLISECOND;
/// Two SESSIONs at least this far apart make an earlier session believed.
const NAMED_NS: u64 = SECOND;
/// Candidates of sources of which nothing is known may be this part of all sources.
const STRANGERS_SHARE: u64 = 4;

/// Whose a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of the session that is followed.
    Followed,
    /// Of a session that has not shown yet that it lives.
    Candidate,
}

/// A stream of a source.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) source: Source,
    pub(super) stream: Stream,
    pub(super) session: Session,
    /// Where the series continues, if one is known.
    pub(super) mark: Option<Mark>,
    pub(super) receiver: Option<Box<Receiver>>,
    /// With a key: a session that is not followed, because it has not shown that it lives.
    pub(super) candidate: Option<Candidate>,
    /// Which question the candidate is asked.
    pub(super) question: u64,
    /// A session that is not wanted.
    pub(super) unwanted: Option<Session>,
    /// The session before, if it had not ended, while the next one has not stated its series. Only then it is
    /// known whether what is missing comes again.
    pub(super) previous: Option<Box<Receiver>>,
    /// The name of the node that sends it, once a SESSION has stated it.
    pub(super) name: Option<Name>,
    pub(super) joined: bool,
    /// The session of which it was said that it comes from an address that it does not list.
    pub(super) unlisted: Option<Session>,
    /// How the last session ended, with END and all before it.
    pub(super) complete: Option<End>,
    pub(super) heard: Monotonic,
    /// Where this session was left, when it was silent or had ended.
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

    pub(super) fn receivers(&self) -> impl Iterator<Item = &Receiver> {
        let candidate = self.candidate.iter().map(|it| &it.receiver);
        self.previous.iter().chain(&self.receiver).chain(candidate).map(Box::as_ref)
    }

    pub(super) fn receiver_at(&mut self, place: Place) -> Option<&mut Box<Receiver>> {
        match place {
            Place::Followed => self.receiver.as_mut(),
            Place::Candidate => self.candidate.as_mut().map(|it| &mut it.receiver),
        }
    }

    /// Whether another source may take its place: nothing of it is followed or awaited.
    fn gives_way(&self, now: Monotonic) -> bool {
        self.receiver.is_none()
            && self.awaited.is_none()
            && self.candidate.as_ref().is_none_or(|it| it.gives_way(now))
    }

    /// Whether nothing of it was ever followed, or its end was forgotten.
    fn is_stranger(&self) -> bool {
        self.mark.is_none() && self.receiver.is_none() && self.candidate.is_some()
    }

    /// Where the series continues.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.receiver.as_ref().and_then(|receiver| receiver.mark()).or(self.mark)
    }

    /// Gives up the oldest gap, because memory is short.
    pub(super) fn shed(&mut self, pool: &mut Pool, out: &mut impl Inbox) {
        let mut flow = self.flow();
        if let Some(candidate) = &mut self.candidate
            && candidate.receiver.shed(pool, &mut Labelled { flow, out })
        {
            return;
        }
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
    /// whether the series is another one, or the sender has forgotten what came of it.
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
        let mark = self.mark.filter(|mark| mark.series == info.series);
        if let Some(mark) =
            mark.filter(|it| info.past.has_forgotten(self.session, it.session, it.next))
            && !mutant("prior_ignored")
        {
            self.perhaps_more(LostReason::Diverged, out);
            let next = info.past.continues_at(self.session, mark.session, info.number);
            self.mark = Some(Mark { session: self.session, next, ..mark });
        }
    }

    /// The session that was to be followed is not wanted. It is not looked at again.
    pub(super) fn leave(&mut self, pool: &mut Pool, spare: &mut Spare) {
        self.release(pool, spare);
        self.unwanted = Some(self.session);
    }

    /// Gives up the session that was to be followed.
    pub(super) fn drop_candidate(&mut self, pool: &mut Pool, spare: &mut Spare) {
        if let Some(mut candidate) = self.candidate.take() {
            candidate.receiver.release(pool);
            spare.keep(candidate.receiver);
        }
    }

    /// Gives up its receivers, and reports nothing.
    pub(super) fn release(&mut self, pool: &mut Pool, spare: &mut Spare) {
        self.drop_candidate(pool, spare);
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

    /// Whether DATA of a session that has ended was not sent before its END. Then the session lives, and without a key a stranger has
    /// said that it ends.
    fn is_after_end(&self, header: &Header) -> bool {
        self.left.is_some_and(|left| header.sequence >= left.sequence) && !mutant("end_is_believed")
    }

    /// Whether this is the session before, and the one that follows has not stated its series.
    fn returns_to(&self, session: Session) -> bool {
        let mark = self.previous.as_ref().and_then(|previous| previous.mark());
        mark.is_some_and(|mark| mark.session == session)
    }

    /// Follows its session with this receiver.
    fn takes(&mut self, mut receiver: Box<Receiver>) {
        self.awaited = None;
        receiver.resume(self.left.take());
        self.receiver = Some(receiver);
        self.joined = false;
    }

    /// Another session takes the place of the one that is followed. What is missing of that may come again in the new one.
    fn supersede(&mut self, now: Monotonic, session: Session, pool: &mut Pool, spare: &mut Spare) {
        if let Some(mut old) = self.receiver.take() {
            self.mark = old.mark().or(self.mark);
            if old.is_joining() {
                old.release(pool);
                spare.keep(old);
            } else {
                self.previous = Some(old);
            }
        }
        if session != self.session {
            self.left = None;
        }
        (self.session, self.heard, self.earlier) = (session, now, None);
        self.joined = false;
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
        kind: Kind,
        out: &mut impl Inbox,
    ) -> Result<(usize, Place), Reject> {
        let session = header.session;
        // What else comes says neither where a session is nor where its sender takes answers.
        if !matches!(kind, Kind::Data | Kind::Session) && !self.hears(header) {
            return Err(Reject::Session);
        }
        let at = self.entry_of(now, header, out)?;
        let asks_for_proof = self.asks_for_proof();
        let has_key = self.keys.is_some();
        let activity_ns = self.config.activity_ns;
        let entry = &mut self.entries[at];
        if entry.unwanted == Some(session) {
            return Err(Reject::Session);
        }
        if asks_for_proof {
            if session == entry.session && entry.receiver.is_some() {
                return Ok((at, Place::Followed));
            }
            if session == entry.session && entry.complete.is_some() {
                // Late repairs of a session that has ended.
                return Err(Reject::Session);
            }
            self.candidate(now, at, header)?;
            return Ok((at, Place::Candidate));
        }
        let ended = entry.receiver.is_none();
        let promised = entry.receiver.as_ref().map_or(0, |receiver| receiver.promised_ns());
        if session == entry.session {
            if ended && entry.complete.is_some() {
                if kind != Kind::Data || !entry.is_after_end(header) {
                    // Late repairs of a session that has ended.
                    return Err(Reject::Session);
                }
                entry.complete = None;
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
                silent >= activity_ns && kind == Kind::Session && entry.named_again(now, session)
            };
            if !replaces {
                return Err(Reject::Session);
            }
            entry.supersede(now, session, &mut self.pool, &mut self.spare);
        }
        if self.entries[at].receiver.is_none() {
            let receiver = self.receiver(now, header);
            self.entries[at].takes(receiver);
        }
        Ok((at, Place::Followed))
    }

    /// Whether something has come of the session of a datagram before.
    fn hears(&self, header: &Header) -> bool {
        let at = self.entries.binary_search_by_key(&(header.source, header.stream), Entry::key);
        let Some(entry) = at.ok().and_then(|at| self.entries.get(at)) else { return false };
        let is_candidate = entry.candidate.as_ref().is_some_and(|it| it.session == header.session);
        is_candidate || (entry.session == header.session && entry.receiver.is_some())
    }

    /// Whether a session must show that it lives before it is followed.
    pub(super) const fn asks_for_proof(&self) -> bool {
        self.keys.is_some() && self.config.proof
    }

    /// Returns the entry of a datagram's stream, which is made if there is room.
    fn entry_of(
        &mut self,
        now: Monotonic,
        header: &Header,
        out: &mut impl Inbox,
    ) -> Result<usize, Reject> {
        let (source, stream, session) = (header.source, header.stream, header.session);
        let session = if self.asks_for_proof() { Session(0) } else { session };
        let Some((at, displaced)) = self.entry(source, stream, session, now) else {
            self.no_entry += 1;
            return Err(Reject::Session);
        };
        if let Some((source, stream)) = displaced {
            out.forgets(source, stream);
        }
        Ok(at)
    }

    /// Returns a receiver that joins a session.
    fn receiver(&mut self, now: Monotonic, header: &Header) -> Box<Receiver> {
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
        receiver
    }

    /// Makes sure that the session of a datagram is the candidate of its stream.
    fn candidate(&mut self, now: Monotonic, at: usize, header: &Header) -> Result<(), Reject> {
        let session = header.session;
        match &self.entries[at].candidate {
            Some(candidate) if candidate.session == session => return Ok(()),
            Some(candidate) if !candidate.gives_way(now) => return Err(Reject::Session),
            _ => self.entries[at].drop_candidate(&mut self.pool, &mut self.spare),
        }
        let most = usize::try_from(self.config.sources / STRANGERS_SHARE).unwrap_or(usize::MAX);
        let is_known = self.entries[at].mark.is_some() || self.entries[at].receiver.is_some();
        let strangers = self.entries.iter().filter(|entry| entry.is_stranger()).count();
        if !is_known && strangers >= most.max(1) {
            let others = self.entries.iter_mut().filter(|entry| entry.is_stranger());
            let others = others.filter(|entry| entry.gives_way(now));
            let Some(oldest) = others.min_by_key(|entry| entry.heard) else {
                self.no_entry += 1;
                return Err(Reject::Session);
            };
            oldest.drop_candidate(&mut self.pool, &mut self.spare);
        }
        let receiver = self.receiver(now, header);
        let entry = &mut self.entries[at];
        if !is_known {
            entry.heard = now;
        }
        entry.candidate = Some(Candidate::new(now, session, receiver));
        Ok(())
    }

    /// Whether a session has repeated our nonce.
    pub(super) fn is_repeated(&self, now: Monotonic, header: &Header, echo: &Echo<'_>) -> bool {
        let key = (header.source, header.stream);
        let at = self.entries.binary_search_by_key(&key, Entry::key);
        let question = at.map_or(self.question, |at| self.entries[at].question);
        self.nonces.is_repeated(now, question, header, echo)
    }

    /// A session has repeated our nonce, so it lives.
    pub(super) fn proven(
        &mut self,
        now: Monotonic,
        header: &Header,
        sent: Wall,
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let at = self.entry_of(now, header, out)?;
        let entry = &mut self.entries[at];
        let session = header.session;
        if session == entry.session && (entry.receiver.is_some() || entry.complete.is_some()) {
            return Ok(());
        }
        // One that has shown nothing does not stand in its way.
        if entry.candidate.as_ref().is_some_and(|it| it.session != session && !it.is_proven()) {
            entry.drop_candidate(&mut self.pool, &mut self.spare);
        }
        self.candidate(now, at, header)?;
        if let Some(candidate) = &mut self.entries[at].candidate {
            candidate.prove(sent);
        }
        self.believe(now, at, out)
    }

    /// Takes the SESSION of a candidate.
    pub(super) fn introduce(
        &mut self,
        now: Monotonic,
        at: usize,
        from: Path,
        bytes: &[u8],
        out: &mut impl Inbox,
    ) -> Result<(), Reject> {
        let Datagram { header, body } = self.reparsed(bytes)?;
        let Body::Session(info) = body else { return Ok(()) };
        let entry = &mut self.entries[at];
        let flow = Flow { session: header.session, series: info.series, ..entry.flow() };
        let Some(candidate) = &mut entry.candidate else { return Ok(()) };
        if candidate.receiver.compare(now, from, info.sent).is_gt() {
            candidate.receiver.introduce(now, from, &header, &info);
            candidate.keep(from, info.sent, bytes);
        }
        if mutant("echo_not_checked") {
            candidate.prove(Wall::default());
        }
        if !out.wants(flow, candidate.receiver.back(from).address, &info) {
            entry.unwanted = Some(header.session);
            entry.drop_candidate(&mut self.pool, &mut self.spare);
            return Err(Reject::Session);
        }
        self.note_address(at, Place::Candidate, flow, from);
        self.believe(now, at, out)
    }

    /// Follows the candidate, if it has shown that it lives, its present state is known, and it may take the place of the session
    /// that is followed.
    fn believe(&mut self, now: Monotonic, at: usize, out: &mut impl Inbox) -> Result<(), Reject> {
        let entry = &mut self.entries[at];
        let Some(session) = entry.candidate.as_ref().map(|candidate| candidate.session) else {
            return Ok(());
        };
        let silent = |followed: &Receiver| {
            now.since(followed.heard()) >= followed.promised_ns().saturating_add(REPLACE_NS)
        };
        let is_later = session > entry.session;
        if !is_later && entry.receiver.as_deref().is_some_and(|followed| !silent(followed)) {
            return Ok(());
        }
        let Some(candidate) = entry.candidate.take_if(|it| it.is_present()) else { return Ok(()) };
        let (receiver, kept) = candidate.into_parts();
        entry.supersede(now, session, &mut self.pool, &mut self.spare);
        entry.takes(receiver);
        if !mutant("echo_counts_twice") {
            self.question += 1;
        }
        entry.question = self.question;
        let Some((from, kept)) = kept else { return Ok(()) };
        self.control(now, at, from, kept.bytes(), out)
    }

    /// Does what is due for a candidate: one that falls silent is forgotten.
    pub(super) fn candidate_timeout(&mut self, now: Monotonic, at: usize, out: &mut impl Inbox) {
        let entry = &mut self.entries[at];
        let mut labelled = Labelled { flow: entry.flow(), out };
        let Some(candidate) = &mut entry.candidate else { return };
        if candidate.receiver.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        candidate.receiver.handle_timeout(now, &mut self.pool, &mut labelled);
        if candidate.receiver.ended().is_some() {
            entry.drop_candidate(&mut self.pool, &mut self.spare);
        }
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
            // One that has ended makes room: the longest silent, and before those one that never was followed.
            let oldest = self.entries.iter().enumerate();
            let oldest = oldest.filter(|(_, entry)| entry.gives_way(now));
            let (oldest, _) =
                oldest.min_by_key(|(_, entry)| (entry.mark.is_some(), entry.heard))?;
            let mut oldest = self.entries.remove(oldest);
            oldest.release(&mut self.pool, &mut self.spare);
            displaced = Some(oldest.key());
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
                candidate: None,
                question: self.question,
                unwanted: None,
                previous: None,
                name: None,
                joined: false,
                unlisted: None,
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
