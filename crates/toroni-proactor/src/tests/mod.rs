//! Tests of the crate as a whole that need its private parts.

mod closing;
mod finishing;
mod local_runs;
mod shards;
mod wakeups;

#[path = "../../tests/common/mod.rs"]
pub(crate) mod common;

use crate::Proactor;
use crate::hook::Point;
use crate::operation::{Completion, Request};
use std::cell::Cell;
use std::time::Duration;

thread_local! { static HANDLERS_TAKE: Cell<Option<Duration>> = const { Cell::new(None) } }

/// Called by production code at each [`Point`].
pub(crate) fn reached(here: Point) {
    match here {
        Point::BeforeLock => local_runs::count_lock(),
        Point::BeforeStart => finishing::run_next(),
        Point::AfterAttempt | Point::BeforeWait => wakeups::pause_briefly(),
        Point::AfterLook => shards::run_next(),
        Point::BeforeBlocked => wakeups::pause_sometimes(),
    }
}

/// Returns how long each handler takes that this thread measures, if a test has decided that.
pub(crate) fn handlers_take() -> Option<Duration> {
    HANDLERS_TAKE.get()
}

/// Makes this thread measure this for each handler, however busy the machine is.
fn decide_how_long_handlers_take(each: Duration) {
    HANDLERS_TAKE.set(Some(each));
}

/// Starts an operation on a processor, even one that the processor is not used for.
fn start_on(
    proactor: &Proactor,
    processor: usize,
    request: Request,
    completion: Box<dyn Completion>,
) {
    let mut core = proactor.inner().shards.lock(0);
    let key = core.pool.create(request, Some(completion));
    core.start_aio(processor, key.index).expect("starts");
}
