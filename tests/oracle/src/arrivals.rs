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

/// Why an inlet may not bring a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This one, which lives, brings its series.
    Taken(u64),
    /// There are as many streams as there may be.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    missing: u64,
    inlet: u64,
}

/// All streams that were ever brought.
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

    /// The lowest number that has not arrived.
    #[must_use]
    pub fn missing(&self, name: StreamName) -> u64 {
        self.streams.get(&name).map_or(0, |stream| stream.missing)
    }

    /// How many streams there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Whether it was ever brought.
    #[must_use]
    pub fn knows(&self, name: StreamName) -> bool {
        self.streams.contains_key(&name)
    }

    /// Lets an inlet bring a stream, if it may. Returns whether another one brought the series before.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn claim(
        &mut self,
        name: StreamName,
        inlet: u64,
        lives: impl Fn(u64) -> bool,
    ) -> Result<bool, Refusal> {
        if self.streams.get(&name).is_some_and(|stream| stream.inlet == inlet) {
            return Ok(false);
        }
        let of_series =
            |other: &StreamName| (other.source, other.series) == (name.source, name.series);
        let before: Vec<u64> = self
            .streams
            .iter()
            .filter(|(other, stream)| of_series(other) && stream.inlet != inlet)
            .map(|(_, stream)| stream.inlet)
            .collect();
        if let Some(living) = before.iter().find(|other| lives(**other)) {
            return Err(Refusal::Taken(*living));
        }
        if !self.knows(name) && self.streams.len() == self.most {
            return Err(Refusal::Full);
        }
        let missing = self.missing(name);
        self.streams.insert(name, Stream { missing, inlet });
        Ok(!before.is_empty())
    }

    /// Whether all of it has arrived before.
    #[must_use]
    pub fn has(&self, name: StreamName, arrival: Arrival) -> bool {
        // A loss without numbers says that messages from there on may be missing.
        let last = arrival.first.max(arrival.end.saturating_sub(1));
        last < self.missing(name)
    }

    /// Takes what was committed. The stream must have been claimed.
    pub fn take(&mut self, name: StreamName, arrival: Arrival) {
        let stream = self.streams.get_mut(&name).unwrap();
        stream.missing = stream.missing.max(arrival.open_from.unwrap_or(arrival.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: StreamName = StreamName { source: 1, series: 1, stream: 0 };

    #[test]
    fn what_arrives_in_order_arrives_once() {
        let message = |number| Arrival { first: number, end: number + 1, open_from: None };
        let mut arrivals = Arrivals::new(1);
        assert_eq!(arrivals.claim(NAME, 7, |_| true), Ok(false));
        assert!(!arrivals.has(NAME, message(0)));
        arrivals.take(NAME, message(3));
        assert!(arrivals.has(NAME, message(3)) && arrivals.has(NAME, message(0)));
        assert!(!arrivals.has(NAME, message(4)));
        let loss = |first, end| Arrival { first, end, open_from: None };
        assert!(arrivals.has(NAME, loss(0, 4)) && !arrivals.has(NAME, loss(0, 5)));
        assert!(arrivals.has(NAME, loss(3, 3)) && !arrivals.has(NAME, loss(4, 4)));
        arrivals.take(NAME, Arrival { open_from: Some(4), ..message(9) });
        assert!(!arrivals.has(NAME, message(9)) && arrivals.missing(NAME) == 4);
    }

    #[test]
    fn one_inlet_brings_a_series() {
        let mut arrivals = Arrivals::new(2);
        assert_eq!(arrivals.claim(NAME, 7, |_| true), Ok(false));
        let other = StreamName { stream: 1, ..NAME };
        assert_eq!(arrivals.claim(other, 8, |_| true), Err(Refusal::Taken(7)));
        assert_eq!(arrivals.claim(other, 8, |_| false), Ok(true));
        assert_eq!(arrivals.claim(NAME, 8, |_| false), Ok(true));
        assert_eq!(arrivals.claim(NAME, 8, |_| false), Ok(false));
        let third = StreamName { series: 2, ..NAME };
        assert_eq!(arrivals.claim(third, 8, |_| true), Err(Refusal::Full));
    }
}
