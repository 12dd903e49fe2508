//! Inlets: what they bring from elsewhere, what the bus drops because it has it already, and who is kept out.

use super::act::{CrashPoint, act, bury};
use super::bridge::{Bridge, Call, MOST_STREAMS, Outcome, Piece};
use super::state::{Note, State};
use super::writers::topics;
use std::collections::BTreeMap;
use std::iter::Peekable;
use toroni::{Arrived, Limit, Origin, PublishError};
use toroni_oracle::{Cargo, Size, StreamName, Taken, Work, record_bytes};

impl State {
    pub(super) fn bring(&mut self, number: usize, stream: u8, cargo: Cargo, die_at: u8) {
        let pieces = self.pieces(stream, cargo);
        // No step says whether a dead one has released the stream.
        let die_at = if matches!(cargo, Cargo::Release { .. }) { 0 } else { die_at };
        self.stamp += pieces.len() as u64;
        self.calls += 1;
        let topic = pieces[0].note.topic;
        let fresh = self.bridges[number].is_none().then(|| {
            self.next_inlet += 1;
            (format!("inlet {number}"), self.next_inlet)
        });
        self.free = self.free_bytes(topic);
        let mut slot = self.bridges[number].take();
        let (this, place, wanted) = (&*self, &mut slot, &pieces);
        let (reached, outcome) = act(die_at, self.setup.robust, || {
            if let Some((name, id)) = fresh {
                let bus = this.open(name.clone());
                // Two that await what they bring, and one that does not.
                *place = Some(Bridge::new(name, id, number < 2, &bus));
            }
            let Some(bridge) = place.as_mut() else { unreachable!("made above") };
            bridge.bring(cargo, wanted, this)
        });
        self.bridges[number] = slot;
        if matches!(cargo, Cargo::Messages { .. }) {
            self.learn_topic(topic);
        }
        if let Some(bridge) = &mut self.bridges[number] {
            let is_inline = !self.interned.contains(&topic);
            for made in bridge.topics.values_mut() {
                made.is_inline.get_or_insert(is_inline);
            }
        }
        let before = self.tally.published;
        let is_kept_out = self.exclusive.is_some();
        match outcome {
            Some(outcome) if is_kept_out => self.settle_kept_out_inlet(&outcome),
            Some(outcome) => {
                self.settle_inlet(number, cargo, &pieces, outcome, &reached);
            }
            None => {
                self.follow_inlet(number, &pieces, &reached);
                self.bury_inlet(number);
            }
        }
        let more = self.tally.published - before;
        assert!(!is_kept_out || more == 0, "an inlet published: {reached:?}");
        self.tally.brought += more;
        if let Some(bridge) = &self.bridges[number] {
            assert_eq!(bridge.inlet.duplicates(), bridge.duplicates, "dropped");
        }
    }

    pub(super) fn close_inlet(&mut self, number: usize, die_at: u8) {
        let mut slot = self.bridges[number].take();
        let (_, lived) = act(die_at, false, || drop(slot.take()));
        if lived.is_none() {
            self.tally.deaths += 1;
            bury(slot);
        }
    }

    /// Asks a new inlet, where all others have left, how far each stream has arrived.
    pub(super) fn check_arrivals(&mut self, number: usize) {
        for other in 0..number {
            self.close_inlet(other, 0);
        }
        for stream in 0..8 {
            self.bring(number, stream, Cargo::Question, 0);
        }
        self.check_notes();
    }

    /// Asks an inlet for the streams of which more may be missing.
    fn check_open_streams(&self, number: usize) {
        let bridge = self.bridges[number].as_ref().unwrap();
        let open = bridge.inlet.open_streams(Limit::Policy).unwrap().into_iter();
        let name = |Origin { source, series, stream, .. }| StreamName { source, series, stream };
        let mut open: Vec<_> = open.map(|origin| (name(origin), origin.number)).collect();
        open.sort_unstable();
        let mut expected = self.arrivals.open(bridge.id.id, self.lives());
        for all in [&mut open, &mut expected] {
            all.retain(|(name, _)| !self.unsure.contains(name));
        }
        assert_eq!(open, expected, "open streams");
    }

    /// Whether an inlet lives.
    fn lives(&self) -> impl Fn(u64) -> bool + use<> {
        let living: Vec<_> = self.bridges.iter().flatten().map(|bridge| bridge.id.id).collect();
        move |id| living.contains(&id)
    }

    /// In no stream that comes in order does a number come twice.
    fn check_notes(&self) {
        let mut ends = BTreeMap::<StreamName, u64>::new();
        for note in &self.notes {
            let (from, until) = match (&note.loss, note.origin) {
                (Some(loss), _) => (loss.from, loss.until),
                (None, Some(origin)) => (origin, origin.number + 1),
                (None, None) => continue,
            };
            let Origin { source, series, stream, number } = from;
            let name = StreamName { source, series, stream };
            let end = ends.entry(name).or_default();
            let last = number.max(until.saturating_sub(1));
            assert!(self.unordered.contains(&name) || last >= *end, "{last} of {name:?} again");
            // What lies before the number of a loss without numbers may still come.
            if until > number {
                *end = until.max(*end);
            }
        }
    }

    /// Finds out whether an operation has entered its topic in the table.
    pub(super) fn learn_topic(&mut self, topic: usize) {
        let count = self.bus.stats().unwrap().topics as usize;
        if count > self.interned.len() {
            self.interned.insert(topic);
        }
        assert_eq!(count, self.interned.len(), "the topic table");
    }

    fn bury_inlet(&mut self, number: usize) {
        self.tally.deaths += 1;
        // Perhaps with the lock.
        self.orphaned |= self.exclusive.is_none();
        bury(self.bridges[number].take());
    }

    fn settle_kept_out_inlet(&mut self, outcome: &Outcome) {
        let Outcome::Refused(0, PublishError::Exclusive { name, pid }) = outcome else {
            panic!("it was not kept out");
        };
        let holder = self.writers[self.exclusive.unwrap()].as_ref().unwrap();
        assert_eq!((name, *pid), (&holder.name, std::process::id()));
        self.tally.refused += 1;
        self.tally.kept_out += 1;
    }

    /// Does to the model what a living inlet did, which must have been right.
    fn settle_inlet(
        &mut self,
        number: usize,
        cargo: Cargo,
        pieces: &[Piece],
        outcome: Outcome,
        reached: &[CrashPoint],
    ) {
        let had_lock = !cfg!(feature = "deaths") || reached.contains(&CrashPoint::AfterLock);
        let work = match cargo {
            Cargo::Messages { timed: true, .. } | Cargo::Loss { timed: true, .. } => {
                Work::Timed(Size::Bytes(0))
            }
            _ => Work::Burst(0, [Size::Bytes(0); 3]),
        };
        let failure = match outcome {
            Outcome::Skipped => None,
            Outcome::Done(arrived) => {
                for piece in pieces {
                    let is_sure = !self.unsure.contains(&piece.stream);
                    let claimed = self.claim(number, piece);
                    let taken_over = claimed.unwrap_or_else(|refusal| panic!("not {refusal:?}"));
                    if let Some(Arrived { next, highest, taken_over: found, .. }) = arrived {
                        let reach = self.arrivals.reach(piece.stream);
                        let expected = (reach.missing, reach.highest, taken_over);
                        // A dead one may have claimed what another one had released.
                        let found = if is_sure { found } else { taken_over };
                        assert_eq!((next, highest, found), expected, "{:?}", piece.stream);
                        self.check_open_streams(number);
                    } else if !self.release(number, piece) {
                        self.settle_piece(number, work, piece);
                    }
                }
                None
            }
            Outcome::Refused(count, error) => {
                for piece in &pieces[..count] {
                    self.claim(number, piece).unwrap();
                    self.settle_piece(number, work, piece);
                }
                Some((&pieces[count], error))
            }
        };
        if let Some((piece, error)) = failure {
            self.tally.refused += 1;
            // Without the lock it does not know what has arrived.
            match if had_lock { self.claim(number, piece) } else { Ok(false) } {
                Err(Taken(id)) => self.check_taken(piece, id, &error),
                Ok(_) if matches!(error, PublishError::TooManyArrivals { .. }) => {
                    let PublishError::TooManyArrivals { limit } = error else { unreachable!() };
                    assert_eq!(limit, u32::from(MOST_STREAMS));
                    let is_known = self.arrivals.knows(piece.stream);
                    assert!(!is_known && !self.arrivals.has_room(self.lives()), "it had room");
                }
                Ok(_) => {
                    assert!(!had_lock || !self.is_duplicate(piece), "{error} for a duplicate");
                    let bytes = record_bytes(self.length(number, piece));
                    self.check_allowed(work, bytes, Some(&error));
                }
            }
        }
        if had_lock {
            self.model.stored = self.model.count();
            self.orphaned = false;
        }
    }

    fn check_taken(&mut self, piece: &Piece, id: u64, error: &PublishError) {
        let PublishError::Taken { from_source, series, name, pid } = error else {
            panic!("{error:?}, and {id} brings it");
        };
        let other = self.bridges.iter().flatten().find(|other| other.id.id == id).unwrap();
        assert_eq!((name, *pid), (&other.name, std::process::id()));
        let StreamName { source, series: of, .. } = piece.stream;
        assert_eq!((*from_source, *series), (source, of));
        self.tally.taken += 1;
    }

    /// Publishes a piece in the model, unless it has arrived before.
    fn settle_piece(&mut self, number: usize, work: Work, piece: &Piece) {
        if self.is_duplicate(piece) {
            self.tally.dropped += 1;
            self.bridges[number].as_mut().unwrap().duplicates += 1;
            return;
        }
        let length = self.length(number, piece);
        let bytes = record_bytes(length);
        self.check_allowed(work, bytes, None);
        self.model.reserve(bytes);
        self.make_room(piece);
        self.enter_piece(number, piece);
        self.commit_piece(length, piece);
        let counts = &mut self.bridges[number].as_mut().unwrap().counts;
        counts.0 += 1;
        counts.1 += bytes;
    }

    /// Returns whether the inlet no longer brings the stream.
    fn release(&mut self, number: usize, piece: &Piece) -> bool {
        let Some(Call::Release { is_over }) = piece.call else { return false };
        let id = self.bridges[number].as_ref().unwrap().id.id;
        self.arrivals.release(piece.stream, id, is_over);
        true
    }

    /// Makes room for the stream of a piece, if that is new.
    fn make_room(&mut self, piece: &Piece) {
        if piece.arrival.is_some() && !self.arrivals.knows(piece.stream) {
            let forgotten = self.arrivals.make_room(self.lives());
            // Its messages may come again.
            self.unordered.extend(forgotten);
        }
    }

    /// Notes that a piece is about to be committed.
    fn enter_piece(&mut self, number: usize, piece: &Piece) {
        let Some(arrival) = piece.arrival else { return };
        let id = self.bridges[number].as_ref().unwrap().id;
        if !self.arrivals.knows(piece.stream) {
            self.arrivals.enter(piece.stream, id, self.calls);
        }
        self.arrivals.touch(piece.stream, arrival, self.calls);
    }

    fn commit_piece(&mut self, length: u32, piece: &Piece) {
        let extensions = length - u32::try_from(piece.payload).unwrap();
        self.model.commit(length, piece.stamp);
        self.notes.push(Note { extensions, ..piece.note.clone() });
        self.tally.published += 1;
        self.tally.losses += u64::from(piece.note.loss.is_some());
        let room = self.room_for(piece.note.topic, length);
        if u64::from(extensions) == piece.note.extras() {
            self.keep(&piece.note, record_bytes(length), room);
        }
        if let Some(arrival) = piece.arrival {
            self.arrivals.take(piece.stream, arrival);
            if arrival.open_from.is_some() {
                self.unordered.insert(piece.stream);
            }
        }
    }

    /// Whether the model lets the inlet bring the piece; and whether another one brought its series before.
    fn claim(&mut self, number: usize, piece: &Piece) -> Result<bool, Taken> {
        if piece.arrival.is_none() && piece.call != Some(Call::Claim) {
            return Ok(false);
        }
        let id = self.bridges[number].as_ref().unwrap().id;
        let claimed = self.arrivals.claim(piece.stream, id, self.lives())?;
        self.unsure.remove(&piece.stream);
        Ok(claimed)
    }

    fn is_duplicate(&self, piece: &Piece) -> bool {
        piece.arrival.is_some_and(|arrival| self.arrivals.has(piece.stream, arrival))
    }

    /// The bytes of a piece's record after its header.
    fn length(&self, number: usize, piece: &Piece) -> u32 {
        let note = &piece.note;
        let mut extensions = 0;
        if note.loss.is_none() {
            extensions = note.extras();
            let made = &self.bridges[number].as_ref().unwrap().topics[&note.topic];
            if made.is_inline.unwrap() {
                extensions += (1 + topics()[note.topic].len() as u64).next_multiple_of(8);
            }
        }
        u32::try_from(piece.payload + extensions).unwrap()
    }

    /// Does to the model what a dead inlet did that passed these steps. Whether the bus has marked what it
    /// committed as arrived is for the next inlet to see.
    fn follow_inlet(&mut self, number: usize, pieces: &[Piece], reached: &[CrashPoint]) {
        if reached.contains(&CrashPoint::MidGrow) {
            self.values.leak(pieces[0].note.topic);
        }
        let mut left = pieces.iter().peekable();
        let mut before = None;
        for point in reached {
            // The tail is stored after the sequence, before any other step.
            if before == Some(CrashPoint::BetweenSequenceAndTail) {
                self.model.stored = self.model.count();
            }
            before = Some(*point);
            match point {
                CrashPoint::AfterLock => self.model.stored = self.model.count(),
                CrashPoint::AfterReserve => {
                    let piece = self.next_commit(number, &mut left).unwrap().clone();
                    self.model.reserve(record_bytes(self.length(number, &piece)));
                }
                CrashPoint::MidArrival => {
                    let piece = self.next_commit(number, &mut left).unwrap().clone();
                    self.make_room(&piece);
                }
                CrashPoint::ArrivalPending => {
                    let piece = self.next_commit(number, &mut left).unwrap().clone();
                    self.enter_piece(number, &piece);
                }
                CrashPoint::AfterCommit => {
                    let piece = self.next_commit(number, &mut left).unwrap().clone();
                    left.next();
                    self.commit_piece(self.length(number, &piece), &piece);
                }
                _ => {}
            }
        }
        // Before it died it may have taken over the next one.
        self.unsure.extend(left.map(|piece| piece.stream));
    }

    /// The next piece that is no duplicate, which the inlet has claimed, as those before.
    fn next_commit<'a>(
        &mut self,
        number: usize,
        left: &mut Peekable<impl Iterator<Item = &'a Piece>>,
    ) -> Option<&'a Piece> {
        loop {
            let piece = *left.peek()?;
            self.claim(number, piece).unwrap();
            if !self.is_duplicate(piece) {
                return Some(piece);
            }
            left.next();
        }
    }
}
