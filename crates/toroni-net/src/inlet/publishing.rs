//! Publishing: from the stage to the bus.

use super::names::topic_of;
use super::stage::{Attempt, Item, Lane, Staged};
use super::{HASTY, Inlet, PATIENT};
use crate::now::now;
use toroni::{Origin, PublishError};
use toroni_proto::id::Session;

impl Inlet {
    /// Publishes all that is staged and finds room. If the bus refuses something, what follows is published nevertheless.
    pub(super) fn publish_staged(&mut self) {
        for lane in [HASTY, PATIENT] {
            self.publish_lane(lane);
        }
        self.delivered_at = None;
        if self.lanes.iter().all(Lane::is_empty) {
            for at in std::mem::take(&mut self.retired) {
                self.forget(at);
            }
        }
    }

    pub(super) fn publish_lane(&mut self, lane: usize) {
        self.discard_void();
        while !self.lanes[lane].is_empty()
            && self.lanes[lane].due().is_none_or(|due| due <= now().monotonic)
        {
            if let Err(error) = self.retain_waiting() {
                self.lanes[lane].wait(now().monotonic, true);
                self.counters.full += 1;
                self.note_exclusive(&error);
                return;
            }
            let Self { lanes, known, bus, losses, times, way: (_, ways), .. } = self;
            let topic = |staged: &Staged| topic_of(known, staged);
            let mut clock = None;
            let committed = |staged: &Staged| match &staged.item {
                Item::Loss(lost) => losses.note(lost),
                Item::Release { .. } | Item::Begin { back_to: None, .. } => {}
                Item::Begin { back_to: Some(_), session } => {
                    ways.go_back(known[staged.stream].stream, Session(*session));
                }
                Item::Message { .. } => {
                    let at = *clock.get_or_insert_with(now);
                    let waited_ns = at.monotonic.since(staged.since);
                    let (source, stream) = known[staged.stream].stream;
                    let place = (source, stream, staged.origin.number);
                    times.record(place, waited_ns, at.wall, staged.began);
                }
            };
            let (attempt, taken) = lanes[lane].publish(bus, || now().monotonic, topic, committed);
            self.counters.messages += taken.messages;
            self.counters.losses += taken.losses;
            self.counters.lost = self.counters.lost.saturating_add(taken.lost);
            self.counters.overwriting += taken.overwriting;
            match attempt {
                Attempt::Done => {
                    self.exclusive = None;
                    return;
                }
                Attempt::Full(error) => {
                    self.counters.full += 1;
                    self.note_exclusive(&error);
                    return;
                }
                Attempt::Failed(error) => {
                    self.failed = Some(error.into());
                    return;
                }
                Attempt::Refused(error) => {
                    let refused = self.lanes[lane].first();
                    let refused =
                        refused.map(|first| (first.stream, first.origin, first.open_from));
                    let loss = refused.and_then(|first| self.refused(first, error));
                    self.lanes[lane].replace_first(loss);
                }
            }
        }
    }

    /// Forgets what is staged of sessions that their senders have forgotten, if another way has noticed that: it is older than what
    /// the bus has by now.
    pub(super) fn discard_void(&mut self) {
        let gone_back = self.way.1.gone_back();
        if gone_back == self.gone_back {
            return;
        }
        self.gone_back = gone_back;
        let Self { known, lanes, way: (_, ways), .. } = self;
        for known in &mut *known {
            known.is_void |=
                ways.since(known.stream).is_some_and(|session| known.session < session);
        }
        lanes.iter_mut().for_each(|lane| lane.discard(|staged| known[staged.stream].is_void));
    }

    /// Counts what the bus refused. Returns the loss in its place, if the bus takes that.
    pub(super) fn refused(
        &mut self,
        (stream, origin, open_from): (usize, Origin, Option<u64>),
        error: PublishError,
    ) -> Option<Staged> {
        if matches!(error, PublishError::TooLong { .. }) {
            self.counters.too_long += 1;
            return self.one_lost(stream, origin, open_from, toroni::LostReason::TooLong);
        }
        self.counters.refused += 1;
        self.known[stream].is_standby |= matches!(error, PublishError::Taken { .. });
        if matches!(error, PublishError::TooManyArrivals { .. }) {
            self.tell_unlisted(stream, origin);
        }
        self.refusal = Some(error);
        None
    }
}
