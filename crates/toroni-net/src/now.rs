//! The clocks that the machines of the protocol are given.

use crate::hook::mutant;
use rustix::time::{ClockId, clock_gettime};
use toroni_proto::batcher::Now;
use toroni_proto::time::{Monotonic, SECOND, Wall};

/// Reads both clocks.
pub(crate) fn now() -> Now {
    let ns = |clock| {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * SECOND + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    let wall = ns(ClockId::Realtime);
    #[cfg(test)]
    let wall = wall.saturating_add_signed(step::offset_ns());
    let monotonic = if mutant("deadlines_by_wall") { wall } else { ns(ClockId::Monotonic) };
    Now { monotonic: Monotonic::from_ns(monotonic), wall: Wall::from_ns(wall) }
}

/// A wall clock that a test sets. No namespace has one of its own.
#[cfg(test)]
pub(crate) mod step {
    use std::cell::Cell;

    thread_local! { static OFFSET_NS: Cell<i64> = const { Cell::new(0) } }

    pub(super) fn offset_ns() -> i64 {
        OFFSET_NS.get()
    }

    /// Sets by how many seconds the clock of this thread differs from that of the host.
    pub(crate) fn to(seconds: i64) {
        OFFSET_NS.set(seconds * 1_000_000_000);
    }
}
