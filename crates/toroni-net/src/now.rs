//! The clocks that the machines of the protocol are given.

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
    Now {
        monotonic: Monotonic::from_ns(ns(ClockId::Monotonic)),
        wall: Wall::from_ns(ns(ClockId::Realtime)),
    }
}
