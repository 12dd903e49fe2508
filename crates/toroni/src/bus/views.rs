//! What the layers need of mapped files.

use crate::error::Corrupt;
use crate::notify::{EventCount, Rows};
use crate::ring::arrivals::Arrivals;
use crate::ring::layout::row_words;
use crate::ring::memory::Ring;
use crate::ring::position::to_index;
use crate::ring::values::Values;
use crate::shm::participants::ReadersSegment;
use crate::shm::segment::RingSegment;
use crate::topic::frame::TopicId;
use crate::topic::table::TableMemory;

/// Returns the ring, for its writers and readers.
#[inline]
pub(super) fn ring_of(segment: &RingSegment) -> Ring<'_> {
    Ring::mapped_twice(segment.control(), segment.words(), segment.shape())
}

/// Returns the values of retained topics, if the bus has any.
#[inline]
pub(super) fn values_of(segment: &RingSegment) -> Option<Values<'_>> {
    let (index, entries, area) = segment.values()?;
    Some(Values { index, entries, area })
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

/// Returns the number of a topic, as the ring knows it.
pub(super) fn number_of(topic: TopicId) -> u32 {
    u32::try_from(topic.index()).unwrap_or(u32::MAX)
}

/// Returns the words by which publishers find subscribers that sleep.
pub(super) fn eventcount_of<'a>(
    ring: &'a RingSegment,
    readers: &'a ReadersSegment,
) -> EventCount<'a> {
    EventCount {
        wake: ring.wake_words(),
        sleeps: &readers.control().sleeps.0,
        arming: readers.arming(),
        slots_used: &readers.control().slots_used.0,
        rows: rows_of(readers),
    }
}

/// Returns which subscribers want no message of which topic.
pub(super) fn rows_of(readers: &ReadersSegment) -> Rows<'_> {
    Rows::new(readers.rows(), to_index(row_words(readers.slots()).into()))
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
