//! What the layers need of mapped files.

use crate::error::Corrupt;
use crate::notify::EventCount;
use crate::ring::arrivals::Arrivals;
use crate::ring::memory::Ring;
use crate::shm::participants::ReadersSegment;
use crate::shm::segment::RingSegment;
use crate::topic::table::TableMemory;

/// Returns the ring, for its writers and readers.
#[inline]
pub(super) fn ring_of(segment: &RingSegment) -> Ring<'_> {
    Ring::mapped_twice(segment.control(), segment.words(), segment.shape())
}

/// Returns the topic table.
pub(super) fn table_of(segment: &RingSegment) -> TableMemory<'_> {
    TableMemory { count: &segment.control().topics.0, words: segment.table() }
}

/// Returns the table of arrivals, for the owner of the writer lock.
pub(super) fn arrivals_of(segment: &RingSegment) -> Arrivals<'_> {
    let (pending, entries) = segment.arrivals();
    Arrivals { pending, entries }
}

/// Returns the counters by which subscribers and publishers find each other.
#[inline]
pub(super) fn eventcount_of<'a>(
    ring: &'a RingSegment,
    readers: &'a ReadersSegment,
) -> EventCount<'a> {
    let (wake, readers) = (&ring.control().wake.0, readers.control());
    EventCount {
        wake: &wake.sequence,
        asymmetric: &wake.asymmetric,
        sleeps: &readers.sleeps.0,
        arms: &readers.arms.0,
    }
}

/// Returns an error for the first file of which a part is gone, as far as this process has noticed.
pub(super) fn check_whole(
    files: impl IntoIterator<Item = (bool, &'static str)>,
    position: u64,
) -> Result<(), Corrupt> {
    match files.into_iter().find(|(is_damaged, _)| *is_damaged) {
        Some((_, what)) => Err(Corrupt { what, value: 0, position }),
        None => Ok(()),
    }
}

pub(super) const RING_REWRITTEN: &str = "the header of ring was rewritten";
pub(super) const RING_TRUNCATED: &str = "the file ring was truncated";
pub(super) const READERS_TRUNCATED: &str = "the file readers was truncated";
pub(super) const PUBLISHERS_TRUNCATED: &str = "the file publishers was truncated";
