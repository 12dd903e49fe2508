//! Messages: each is staged, or published at once if it is long.

use super::Inlet;
use super::known::Name;
use super::loss::origin_of;
use super::names::topic_of;
use super::stage::{self, Item, LONG_BYTES, STAGE_BYTES, Staged};
use crate::now::now;
use toroni::Limit;
use toroni_proto::arrivals::Flow;
use toroni_proto::reassembly::Message;
use toroni_proto::time::Wall;
use toroni_proto::wire::Start;

impl Inlet {
    /// Stages a message of the stream at this place.
    pub(super) fn message_at(&mut self, stream: usize, flow: Flow, message: Message<'_>) {
        let start = message.start;
        let origin = origin_of(flow, start.number.get());
        let open_from = self.open_from(stream);
        let known = &mut self.known[stream];
        if known.is_standby || known.is_void {
            return;
        }
        if known.is_unclaimed {
            let lost = self.one_lost(stream, origin, open_from, toroni::LostReason::Memory);
            return self.miss(stream, lost);
        }
        let lane = known.lane;
        let is_current = known.session == flow.session;
        let name = known.names.get(start.topic.get() as usize).filter(|_| is_current);
        match name {
            Some(Name::Accepted(_)) => {}
            Some(Name::Above(_)) if start.to_descendants => {}
            Some(Name::Filtered | Name::Above(_)) => {
                self.counters.filtered += 1;
                return;
            }
            Some(Name::Invalid | Name::Unknown) | None => {
                self.counters.no_topic += 1;
                let lost = self.one_lost(stream, origin, open_from, toroni::LostReason::Topic);
                return self.stage(lane, lost);
            }
        }
        known.end = known.end.max(origin.number.saturating_add(1));
        let length = message.parts.length();
        if self.lanes[lane].length() + length > STAGE_BYTES {
            self.publish_lane(lane);
        }
        if self.lanes[lane].is_beyond(length) {
            let lost = self.one_lost(stream, origin, open_from, toroni::LostReason::Memory);
            return self.stage(lane, lost);
        }
        let began: Option<Wall> = start.published.or(message.sent);
        let since = self.delivered();
        let staged = |from, to| {
            let published_ns = start.published.map(|time| time.ns());
            let Start { topic, to_descendants, .. } = start;
            let item = Item::Message { topic, from, to, to_descendants, published_ns };
            Staged { stream, origin, open_from, since, began, item }
        };
        let is_next = self.lanes[lane].is_empty() && !self.retaining.is_waiting();
        if length > LONG_BYTES && is_next {
            self.discard_void();
            if self.known[stream].is_void {
                return;
            }
            let mut parts: Vec<&[u8]> = std::mem::take(&mut self.parts);
            parts.extend(message.parts.clone());
            let staged = staged(0, 0);
            let topic = topic_of(&self.known, &staged);
            let entry = topic.map(|topic| stage::entry(&staged, topic, &parts));
            let published = entry.map(|entry| self.bus.publish(&[entry], Limit::Try));
            self.parts = stage::emptied(parts);
            let Some(published) = published else { return };
            match published {
                Ok(()) => {
                    let at = now();
                    let place = (flow.source, flow.stream, origin.number);
                    self.times.record(place, at.monotonic.since(since), at.wall, began);
                    self.counters.messages += 1;
                    return;
                }
                // It is staged, and waits there.
                Err(error) if error.source.is_temporary() => {}
                Err(error) if error.source.concerns_one_message() => {
                    let lost = self.refused((stream, origin, open_from), error.source);
                    return self.stage(lane, lost);
                }
                Err(error) => {
                    self.failed = Some(error.source.into());
                    return;
                }
            }
        }
        let (from, to) = self.lanes[lane].append(message.parts);
        self.lanes[lane].push(staged(from, to));
    }
}
