//! Which series of the feed followed which: whether the order continues what a bus has is decided by that.

/// How many series of the feed are remembered.
pub const SERIES_KEPT: usize = 64;

/// The last series of the feed, each with its first event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    pub(super) begun: Vec<(u32, u64)>,
    /// The first series from which on none is missing.
    pub(super) complete_from: u32,
}

/// Where the order departs from a series of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Departs {
    /// Nowhere: it is the last series, a later one than the last, or none was named.
    #[default]
    Nowhere,
    /// At the event that began the next series.
    At {
        /// The next series.
        series: u32,
        /// The event that began it.
        begun: u64,
    },
    /// The order never had the series.
    Foreign {
        /// The first later series that it had.
        series: u32,
        /// The event that began it.
        begun: u64,
    },
    /// Unknown, because the series is earlier than all that are remembered.
    Unknown,
}

impl Departs {
    /// Returns whether the order has other events than a bus with this end.
    #[must_use]
    pub const fn is_before(self, end: u64) -> bool {
        match self {
            Self::At { begun, .. } => begun < end,
            Self::Foreign { .. } => true,
            // Of what is unknown, the contents decide.
            Self::Nowhere | Self::Unknown => false,
        }
    }
}

impl Lineage {
    /// Notes that a series begins with this event.
    pub(super) fn begin(&mut self, series: u32, event: u64) {
        self.begun.push((series, event));
        if self.begun.len() > SERIES_KEPT {
            self.begun.remove(0);
            self.complete_from = self.begun.first().map_or(series, |(series, _)| *series);
        }
    }

    /// Returns where the order departs from a series.
    #[must_use]
    pub fn departs(&self, series: Option<u32>) -> Departs {
        let Some(known) = series else { return Departs::Nowhere };
        if known < self.complete_from {
            return Departs::Unknown;
        }
        let next = self.begun.partition_point(|(series, _)| *series <= known);
        let Some(&(series, begun)) = self.begun.get(next) else { return Departs::Nowhere };
        // Before the first series, there is none.
        let is_listed = match next.checked_sub(1) {
            Some(last) => self.begun.get(last).is_some_and(|(series, _)| *series == known),
            None => known == 0,
        };
        if is_listed { Departs::At { series, begun } } else { Departs::Foreign { series, begun } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_departs_where_the_next_series_began() {
        let begun = vec![(3, 10), (5, 20), (9, 20)];
        let whole = Lineage { begun: begun.clone(), complete_from: 0 };
        let at = |series, begun| Departs::At { series, begun };
        let foreign = |series, begun| Departs::Foreign { series, begun };
        for (series, expected) in [
            (None, Departs::Nowhere),
            (Some(0), at(3, 10)),
            (Some(1), foreign(3, 10)),
            (Some(3), at(5, 20)),
            (Some(4), foreign(5, 20)),
            (Some(5), at(9, 20)),
            (Some(8), foreign(9, 20)),
            (Some(9), Departs::Nowhere),
            (Some(10), Departs::Nowhere),
        ] {
            assert_eq!(whole.departs(series), expected, "{series:?}");
        }
        let part = Lineage { begun, complete_from: 3 };
        for series in [0, 1, 2] {
            assert_eq!(part.departs(Some(series)), Departs::Unknown, "{series}");
        }
        assert_eq!(part.departs(Some(3)), at(5, 20));
        assert_eq!(part.departs(Some(4)), foreign(5, 20));
        // Of a machine whose last series began before it was remembered.
        let empty = Lineage { begun: vec![], complete_from: 7 };
        assert_eq!(empty.departs(Some(6)), Departs::Unknown);
        assert_eq!(empty.departs(Some(7)), Departs::Nowhere);
    }
}
