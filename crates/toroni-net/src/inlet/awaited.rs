//! Streams of the bus that no process brings any more.
//!
//! A process that brought a stream may have ended, or may have heard the end of its session. The source may have sent more
//! since then. If the stream comes again, its receiver finds out what is missing. If it does not, this reports that more may be
//! missing, once. The bus knows which streams these are, so it does not matter which process brought them, or by which way.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::loss::open_end;
use super::{Inlet, InletError, Ways};
use std::collections::HashMap;
use std::sync::Arc;
use toroni::{Limit, Lost, LostReason, Origin, Pattern, PublishError, StreamKey};
use toroni_proto::id::{Source, Stream};
use toroni_proto::time::{Monotonic, SECOND};

/// How often the bus is asked.
const LOOK_NS: u64 = SECOND;

/// How long it waits at least for one that has ended in order, in nanoseconds: a node that is restarted is back by then.
const ABSENCE_NS: u64 = 60 * SECOND;

/// The streams of one bus that a node waits for.
pub(crate) struct Awaited {
    bus: Arc<toroni::Inlet>,
    ways: Ways,
    /// Which subscribers learn that more may be missing.
    scope: Vec<Pattern>,
    /// How long it waits for a stream, in nanoseconds.
    patience_ns: u64,
    /// When each of them is reported.
    due: HashMap<StreamKey, Monotonic>,
    looks: Monotonic,
}

impl Awaited {
    pub(crate) fn new(
        bus: Arc<toroni::Inlet>,
        ways: Ways,
        scope: Vec<Pattern>,
        patience_ns: u64,
        now: Monotonic,
    ) -> Self {
        let is_wide = scope.is_empty() || scope.len() > Lost::MOST_PATTERNS;
        let scope = if is_wide { vec![Pattern::everything()] } else { scope };
        Self { bus, ways, scope, patience_ns, due: HashMap::new(), looks: now }
    }

    /// When it must have a turn next.
    pub(crate) const fn poll_timeout(&self) -> Monotonic {
        self.looks
    }

    /// Moves all deadlines by the time that this process did not run.
    pub(crate) fn postpone(&mut self, by_ns: u64) {
        self.due.values_mut().for_each(|due| *due = due.after(by_ns));
    }

    /// Asks the bus, and reports what no process has brought for too long. `counts` counts it.
    pub(crate) fn turn(
        &mut self,
        now: Monotonic,
        mut counts: Option<&mut Inlet>,
    ) -> Result<(), InletError> {
        self.looks = now.after(LOOK_NS);
        let Some(open) = later(self.bus.open_streams(Limit::Try))? else { return Ok(()) };
        let ways = &self.ways;
        let comes = |origin: &Origin| ways.has((Source(origin.source), Stream(origin.stream)));
        let open = open.into_iter().filter(|origin| !comes(origin));
        let open: HashMap<StreamKey, Origin> = open.map(|origin| (origin.into(), origin)).collect();
        self.due.retain(|key, _| open.contains_key(key));
        for (key, origin) in open {
            let rests = self.ways.rests((Source(key.source), Stream(key.stream)));
            let patience_ns = self.patience_ns.max(if rests { ABSENCE_NS } else { 0 });
            let due = *self.due.entry(key).or_insert_with(|| now.after(patience_ns));
            if due <= now
                && let Some(lost) = self.report(origin)?
                && let Some(inlet) = &mut counts
            {
                inlet.count(&lost);
            }
        }
        Ok(())
    }

    /// Reports that more may be missing of a stream. If the bus has no room, or another process brings the stream by now, it is
    /// looked at again.
    fn report(&self, origin: Origin) -> Result<Option<Lost>, InletError> {
        let lost = open_end(origin, LostReason::Silent, self.scope.clone());
        let told = later(self.bus.publish_lost(&lost, None, Limit::Try))?;
        // It stays a stream that no process brings.
        later(self.bus.release(origin.into(), false, Limit::Try))?;
        Ok(told.map(|()| lost))
    }
}

impl Inlet {
    /// Returns whether it brings streams to that bus.
    pub(crate) fn is_of(&self, awaited: &Awaited) -> bool {
        Arc::ptr_eq(&self.bus, &awaited.bus)
    }
}

/// Returns `None` if the bus cannot do it now.
fn later<T>(result: Result<T, PublishError>) -> Result<Option<T>, InletError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_temporary() || error.concerns_one_message() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
