//! Catch-up: what arrives of a stream waits until its history has been brought.

use super::missing::Missing;
use super::outcome::Failure;
use super::{Course, Fetch, Fetches, Held, Settings, finish};
use crate::inlet::Inlet;
use crate::node::config::Join;
use crate::node::link::to_socket;
use crate::now::now;
use toroni_proto::arrivals::{Flow, Inbox, Opening};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Source, Stream};
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::{End, Mark};
use toroni_proto::wire::{Address, SessionInfo, TableName, TopicNumber};

/// The inbox of the arrivals: the inlet, and before it what waits for history.
pub(in crate::node) struct CatchUp<'a> {
    pub(in crate::node) inlet: &'a mut Inlet,
    pub(in crate::node) fetches: &'a mut Fetches,
}

impl CatchUp<'_> {
    /// A stream starts over or is forgotten. What was being brought of it is reported, unless the next session accounts
    /// for it.
    fn abandon(&mut self, stream: (Source, Stream), is_accounted_for: bool) {
        let Self { inlet, fetches } = self;
        let Some(course) = fetches.courses.get_mut(&stream) else { return };
        if course.fetch.is_none() {
            return;
        }
        fetches.pending -= 1;
        if is_accounted_for {
            course.fetch = None;
            inlet.end_history(stream.0, stream.1);
        } else {
            // Where it would have continued is not known if it has just been joined.
            finish(course, Some(Failure::Replaced), inlet, &mut fetches.done);
        }
        inlet.flush();
    }
}

impl Inbox for CatchUp<'_> {
    fn wants(&mut self, flow: Flow, from: Address, session: &SessionInfo<'_>) -> bool {
        let port = session.listen;
        self.fetches.announced = (port > 0).then(|| to_socket(Address { port, ..from }));
        self.inlet.wants(flow, from, session)
    }

    fn begins(&mut self, flow: Flow, opening: &Opening) -> Option<Mark> {
        let stream = (flow.source, flow.stream);
        let before = self.fetches.courses.get(&stream).map(|course| course.flow.series);
        self.abandon(stream, before == Some(flow.series));
        let known = self.inlet.begins(flow, opening);
        let Self { inlet, fetches } = self;
        fetches.courses.remove(&stream);
        let Settings { join, limit_ns, .. } = fetches.settings;
        let may_fetch = limit_ns > 0 && fetches.order == Order::Source;
        if may_fetch && inlet.brings(stream.0, stream.1) {
            let from = match join {
                Join::Live => None,
                Join::Window => Some(None),
                Join::Number(number) => Number::new(number).map(Some),
            };
            let from = from.filter(|_| known.is_none());
            let fetch = from.map(|from| Fetch::new(Missing::history(from)));
            fetches.pending += usize::from(fetch.is_some());
            let (address, since) = (fetches.announced.take(), now().monotonic);
            let course = Course { flow, address, catches_up: true, since, fetch };
            fetches.courses.insert(stream, course);
        }
        known
    }

    #[inline]
    fn has_room(&mut self, flow: Flow) -> bool {
        !self.fetches.is_pending(flow) && self.inlet.has_room(flow)
    }

    #[inline]
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        match self.fetches.fetch_of(flow) {
            Some(fetch) => fetch.hold(&message),
            None => self.inlet.message(flow, message),
        }
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        self.inlet.topic(flow, number, name);
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        if let Some(fetch) = self.fetches.fetch_of(flow) {
            return match Missing::of(&loss) {
                Some(later) if fetch.held.is_empty() => fetch.missing.add(&later),
                _ => fetch.held.push_back(Held::Loss(loss)),
            };
        }
        let Self { inlet, fetches } = self;
        let stream = (flow.source, flow.stream);
        let course = fetches.courses.get_mut(&stream);
        let course = course.filter(|it| it.catches_up && it.address.is_some() && it.flow == flow);
        match course.zip(Missing::of(&loss)).filter(|_| inlet.brings(stream.0, stream.1)) {
            Some((course, missing)) => {
                course.fetch = Some(Fetch::new(missing));
                fetches.pending += 1;
            }
            None => inlet.loss(flow, loss),
        }
    }

    fn ends(&mut self, flow: Flow, end: End) {
        match self.fetches.fetch_of(flow) {
            Some(fetch) => fetch.held.push_back(Held::End(end)),
            None => self.inlet.ends(flow, end),
        }
    }

    fn forgets(&mut self, source: Source, stream: Stream) {
        self.abandon((source, stream), false);
        self.fetches.courses.remove(&(source, stream));
        self.inlet.forgets(source, stream);
    }
}
