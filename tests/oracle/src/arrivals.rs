//! How far streams from elsewhere have arrived, and who brings them: a list of streams, each with its lowest number that
//! has not arrived.

use std::collections::BTreeMap;

/// The first number that there cannot be.
pub const NUMBER_LIMIT: u64 = 1 << 48;

/// Names a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamName {
    pub source: u32,
    pub series: u32,
    pub stream: u16,
}

/// A message, or a loss, which has come on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub first: u64,
    /// The number after the last one; that of `first` for a loss without numbers.
    pub end: u64,
    /// The lowest number that is missing, where messages come in any order.
    pub open_from: Option<u64>,
}

impl Arrival {
    /// It says that more may be missing from its number on.
    fn is_open_end(self) -> bool {
        self.first == self.end
    }
}

/// An inlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bringer {
    /// No other inlet has this number.
    pub id: u64,
    /// Whether it says that what it brings is awaited.
    pub awaits: bool,
}

/// Another inlet, which lives, brings the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken(pub u64);

/// How far a stream has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The lowest number that has not arrived.
    pub missing: u64,
    /// The number after the highest that has arrived.
    pub highest: u64,
    /// The last that came says that more may be missing, or nothing follows.
    pub is_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    reach: Reach,
    inlet: Option<u64>,
    is_awaited: bool,
    /// Nothing follows in it, as its last inlet said.
    is_over: bool,
    /// When something last came of it.
    reached: u64,
}

impl Stream {
    fn has_arrived(&self) -> bool {
        self.reach.missing > 0 || self.reach.is_told
    }

    fn is_open(&self) -> bool {
        self.is_awaited && self.has_arrived() && !self.reach.is_told
    }

    fn is_brought(&self, lives: impl Fn(u64) -> bool) -> bool {
        self.inlet.is_some_and(lives)
    }
}

/// The streams that the bus remembers. Less than a minute passes.
#[derive(Clone, Debug)]
pub struct Arrivals {
    most: usize,
    streams: BTreeMap<StreamName, Stream>,
}

impl Arrivals {
    /// Has room for at most `most` streams.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, streams: BTreeMap::new() }
    }

    /// How far it has arrived.
    #[must_use]
    pub fn reach(&self, name: StreamName) -> Reach {
        self.streams.get(&name).map_or_else(Reach::default, |stream| stream.reach)
    }

    /// Lets an inlet bring a stream, if it may. Returns whether another one brought it before.
    ///
    /// # Errors
    /// See [`Taken`].
    pub fn claim(
        &mut self,
        name: StreamName,
        inlet: Bringer,
        lives: impl Fn(u64) -> bool,
    ) -> Result<bool, Taken> {
        let own = self.streams.get(&name).and_then(|stream| stream.inlet);
        if own == Some(inlet.id) {
            return Ok(false);
        }
        let is_rival = |(other, stream): &(&StreamName, &Stream)| {
            let is_of_line = (other.source, other.stream) == (name.source, name.stream);
            inlet.awaits && is_of_line && **other != name && stream.is_open()
        };
        let rivals = self.streams.iter().filter(is_rival).filter_map(|(_, stream)| stream.inlet);
        let mut others = rivals.chain(own).filter(|other| *other != inlet.id);
        if let Some(living) = others.find(|other| lives(*other)) {
            return Err(Taken(living));
        }
        if let Some(stream) = self.streams.get_mut(&name) {
            (stream.inlet, stream.is_awaited) = (Some(inlet.id), inlet.awaits);
        }
        Ok(own.is_some())
    }

    /// Whether the bus remembers something of it.
    #[must_use]
    pub fn knows(&self, name: StreamName) -> bool {
        self.streams.contains_key(&name)
    }

    /// The stream that makes room for a new one once there is no more: `None` if none does.
    fn oldest(&self, lives: impl Fn(u64) -> bool) -> Option<StreamName> {
        let line = |name: &StreamName| (name.source, name.stream);
        let is_replaced = |(name, stream): &(&StreamName, &Stream)| {
            let mut of_line = self.streams.iter().filter(|(other, _)| line(other) == line(name));
            (stream.reach.is_told || !stream.has_arrived())
                && (stream.is_over || of_line.any(|(_, other)| other.reached > stream.reached))
                && !stream.is_brought(&lives)
        };
        let candidates = self.streams.iter().filter(is_replaced);
        candidates.min_by_key(|(name, stream)| (stream.reached, **name)).map(|(name, _)| *name)
    }

    /// Whether a stream that is not known finds room.
    #[must_use]
    pub fn has_room(&self, lives: impl Fn(u64) -> bool) -> bool {
        self.streams.len() < self.most || self.oldest(lives).is_some()
    }

    /// Makes room for a new stream. Returns the one that is forgotten.
    pub fn make_room(&mut self, lives: impl Fn(u64) -> bool) -> Option<StreamName> {
        if self.streams.len() < self.most {
            return None;
        }
        let oldest = self.oldest(lives).expect("room");
        self.streams.remove(&oldest);
        Some(oldest)
    }

    /// Enters a new stream, for which there is room.
    pub fn enter(&mut self, name: StreamName, inlet: Bringer, now: u64) {
        let (reach, id) = (Reach::default(), Some(inlet.id));
        let (is_awaited, is_over) = (inlet.awaits, false);
        let stream = Stream { reach, inlet: id, is_awaited, is_over, reached: now };
        self.streams.insert(name, stream);
        assert!(self.streams.len() <= self.most, "room");
    }

    /// Whether all of it has arrived before.
    #[must_use]
    pub fn has(&self, name: StreamName, arrival: Arrival) -> bool {
        // A loss without numbers says that messages from there on may be missing.
        let last = arrival.first.max(arrival.end.saturating_sub(1));
        let Reach { missing, is_told, .. } = self.reach(name);
        last < missing || (is_told && arrival.is_open_end())
    }

    /// Something is about to be committed.
    pub fn touch(&mut self, name: StreamName, arrival: Arrival, now: u64) {
        let stream = self.streams.get_mut(&name).unwrap();
        if !arrival.is_open_end() {
            (stream.reached, stream.is_over) = (now, false);
        }
    }

    /// Takes what was committed. The stream must have been entered.
    pub fn take(&mut self, name: StreamName, arrival: Arrival) {
        let reach = &mut self.streams.get_mut(&name).unwrap().reach;
        // What lies before the number of a loss without numbers may still come.
        let end = if arrival.is_open_end() { 0 } else { arrival.end };
        reach.missing = reach.missing.max(arrival.open_from.unwrap_or(end));
        reach.highest = reach.highest.max(reach.missing).max(end);
        reach.is_told = arrival.is_open_end();
    }

    /// An inlet no longer brings a stream. `is_over` says that nothing follows in it.
    pub fn release(&mut self, name: StreamName, inlet: u64, is_over: bool) {
        if let Some(stream) = self.streams.get_mut(&name)
            && stream.inlet == Some(inlet)
        {
            stream.reach.is_told |= is_over;
            stream.is_over |= is_over;
            stream.inlet = None;
        }
    }

    /// The streams of which an inlet that awaits them may report that more is missing, and their lowest missing numbers.
    #[must_use]
    pub fn open(&self, inlet: u64, lives: impl Fn(u64) -> bool) -> Vec<(StreamName, u64)> {
        let is_free = |stream: &Stream| stream.inlet == Some(inlet) || !stream.is_brought(&lives);
        let open = self.streams.iter().filter(|(_, it)| it.is_open() && is_free(it));
        open.map(|(name, stream)| (*name, stream.reach.missing)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: StreamName = StreamName { source: 1, series: 1, stream: 0 };
    const NEXT: StreamName = StreamName { series: 2, ..NAME };
    const SEVEN: Bringer = Bringer { id: 7, awaits: true };
    const EIGHT: Bringer = Bringer { id: 8, awaits: true };

    fn piece(first: u64, end: u64) -> Arrival {
        Arrival { first, end, open_from: None }
    }

    #[test]
    fn what_arrives_in_order_arrives_once() {
        let mut arrivals = Arrivals::new(1);
        assert_eq!(arrivals.claim(NAME, SEVEN, |_| true), Ok(false));
        assert!(!arrivals.knows(NAME) && !arrivals.has(NAME, piece(0, 1)));
        arrivals.enter(NAME, SEVEN, 1);
        arrivals.take(NAME, piece(3, 4));
        assert!(arrivals.has(NAME, piece(3, 4)) && arrivals.has(NAME, piece(0, 1)));
        assert!(!arrivals.has(NAME, piece(4, 5)));
        assert!(arrivals.has(NAME, piece(0, 4)) && !arrivals.has(NAME, piece(0, 5)));
        assert!(arrivals.has(NAME, piece(3, 3)) && !arrivals.has(NAME, piece(4, 4)));
        arrivals.take(NAME, Arrival { open_from: Some(4), ..piece(9, 10) });
        assert!(!arrivals.has(NAME, piece(9, 10)));
        assert_eq!(arrivals.reach(NAME), Reach { missing: 4, highest: 10, is_told: false });
        assert_eq!(arrivals.open(7, |_| true), [(NAME, 4)]);
        arrivals.take(NAME, piece(4, 4));
        assert!(arrivals.has(NAME, piece(5, 5)), "it was reported");
        assert!(arrivals.open(7, |_| true).is_empty());
        arrivals.take(NAME, piece(4, 5));
        assert!(!arrivals.has(NAME, piece(5, 5)));
    }

    #[test]
    fn one_inlet_brings_a_stream() {
        let mut arrivals = Arrivals::new(2);
        arrivals.enter(NAME, SEVEN, 1);
        arrivals.take(NAME, piece(0, 1));
        let other = StreamName { stream: 1, ..NAME };
        assert_eq!(arrivals.claim(other, EIGHT, |_| true), Ok(false));
        assert_eq!(arrivals.claim(NAME, EIGHT, |_| true), Err(Taken(7)));
        assert_eq!(arrivals.claim(NEXT, EIGHT, |_| true), Err(Taken(7)));
        assert_eq!(arrivals.claim(NEXT, Bringer { awaits: false, ..EIGHT }, |_| true), Ok(false));
        assert_eq!(arrivals.claim(NAME, EIGHT, |_| false), Ok(true));
        assert_eq!(arrivals.claim(NAME, EIGHT, |_| false), Ok(false));
        arrivals.release(NAME, 7, true);
        assert_eq!(arrivals.claim(NAME, SEVEN, |_| true), Err(Taken(8)));
        arrivals.release(NAME, 8, true);
        assert_eq!(arrivals.claim(NAME, SEVEN, |_| true), Ok(false));
    }

    #[test]
    fn a_series_that_another_one_replaced_makes_room() {
        let mut arrivals = Arrivals::new(2);
        for (name, now) in [(NAME, 1), (NEXT, 2)] {
            arrivals.enter(name, SEVEN, now);
            arrivals.take(name, piece(0, 1));
        }
        assert!(!arrivals.has_room(|_| false), "it is not told");
        arrivals.take(NAME, piece(1, 1));
        assert!(arrivals.has_room(|_| false) && !arrivals.has_room(|_| true));
        arrivals.touch(NAME, piece(1, 1), 3);
        assert_eq!(arrivals.make_room(|_| false), Some(NAME));
        assert_eq!(arrivals.make_room(|_| false), None);
    }
}
