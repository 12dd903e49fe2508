//! What a node receives with one set of settings: from sockets to a bus.

use super::fetch::{CatchUp, Fetches};
use super::{Event, NodeError, Receive, Settings, tcp};
use crate::inlet::{Awaited, Inlet, Ways};
use crate::membership::Membership;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use toroni::{Bus, BusId, Pattern};
use toroni_proto::arrivals::Arrivals;
use toroni_proto::legs::Path;
use toroni_proto::receiver::Me;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::{NodeName, Reject};

/// The groups with the same settings, what arrives from them, and the inlet that brings it to a bus.
pub(super) struct Receiving {
    /// The places of its groups among those of the node.
    groups: Range<usize>,
    pub(super) arrivals: Arrivals,
    pub(super) inlet: Inlet,
    pub(super) fetches: Fetches,
}

/// The inlets of a node, one for each bus: one inlet at a time brings the streams of a source. With each, the ways on which
/// streams come to its bus.
#[derive(Default)]
pub(super) struct Inlets(HashMap<BusId, (Arc<toroni::Inlet>, Ways)>);

impl Inlets {
    /// Returns the inlet of a bus.
    pub(super) fn of(&mut self, bus: &Bus) -> Result<(Arc<toroni::Inlet>, Ways), NodeError> {
        if let Some(known) = self.0.get(&bus.id()) {
            return Ok(known.clone());
        }
        let made = (Arc::new(bus.inlet()?.awaiting()), Ways::default());
        self.0.insert(bus.id(), made.clone());
        Ok(made)
    }
}

impl Inlets {
    /// Begins to wait for the streams of their buses that no process brings.
    pub(super) fn awaited(self, bus: &Bus, settings: &Settings, now: Monotonic) -> Vec<Awaited> {
        let Settings { receive, connect, .. } = settings;
        let all = self.0.into_iter().map(|(id, (inlet, ways))| {
            let received: Vec<&Receive> =
                receive.iter().filter(|it| it.into.as_ref().unwrap_or(bus).id() == id).collect();
            let mut scope: Vec<Pattern> = received.iter().flat_map(|it| it.scope()).collect();
            if bus.id() == id {
                scope.extend(connect.iter().flat_map(tcp::Connect::scope));
            }
            scope.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
            scope.dedup_by(|one, other| one.as_str() == other.as_str());
            let by_group = received.iter().map(|it| it.config.activity_ns);
            let ns = |it: &tcp::Connect| u64::try_from(it.activity.as_nanos()).unwrap_or(u64::MAX);
            let by_tcp = connect.iter().filter(|_| bus.id() == id).map(ns);
            let activity = by_group.chain(by_tcp).max().unwrap_or(0);
            Awaited::new(inlet, ways, scope, activity, now)
        });
        all.collect()
    }
}

/// Begins to receive.
pub(super) fn open(
    bus: &Bus,
    member: &Membership,
    name: NodeName<'_>,
    all: &[Receive],
    inlets: &mut Inlets,
) -> Result<Vec<Receiving>, NodeError> {
    let mut first = 0;
    let open = all.iter().enumerate().map(|(index, receive)| {
        let bus = receive.into.as_ref().unwrap_or(bus);
        let (inlet, ways) = inlets.of(bus)?;
        let me = Me { required: receive.is_required, ..member.me(name) };
        let (realm, keys, instance) = (member.realm, member.keys, member.instance);
        let arrivals = Arrivals::new(&receive.config, realm, keys, me, instance, member.random());
        // The numbers of the connections over TCP begin at 1.
        let way = usize::MAX - index;
        let inlet = Inlet::new(inlet, receive.selection.clone())
            .by_way(way, &ways)
            .with_sources(receive.sources.clone())
            .with_lost_scope(receive.lost_scope.clone())
            .retaining(receive.retains);
        let groups = first..first + receive.groups.len();
        first = groups.end;
        let fetches = Fetches::new(receive.fetch, receive.selection.order, member, name);
        Ok(Receiving { groups, arrivals, inlet, fetches })
    });
    open.collect()
}

impl Receiving {
    /// Takes a datagram that came to this group of the node, or to the node alone. What is refused is counted there.
    /// Returns whether it was taken: one of another group is not.
    ///
    /// # Errors
    /// Why it was refused.
    pub(super) fn take(
        &mut self,
        now: Monotonic,
        path: Path,
        group: Option<usize>,
        bytes: &[u8],
    ) -> Result<bool, Reject> {
        let Self { groups, arrivals, inlet, fetches } = self;
        if group.is_some_and(|group| !groups.contains(&group)) {
            return Ok(false);
        }
        arrivals.handle_datagram(now, path, bytes, &mut CatchUp { inlet, fetches }).map(|()| true)
    }

    /// Publishes what has arrived, and what is fetched, as far as the bus has room. Returns whether more waits that would find
    /// room.
    pub(super) fn publish(&mut self, now: Monotonic) -> Result<bool, NodeError> {
        let Self { arrivals, inlet, fetches, .. } = self;
        for (source, stream, mark) in inlet.take_over(now) {
            arrivals.remember(now, source, stream, mark);
        }
        arrivals.handle_timeout(now, &mut CatchUp { inlet, fetches });
        inlet.publish(arrivals.marks())?;
        let mut has_more = fetches.turn(now, arrivals, inlet)?;
        if arrivals.can_deliver(&mut CatchUp { inlet, fetches }) {
            arrivals.deliver_held(now, &mut CatchUp { inlet, fetches });
            has_more |= arrivals.can_deliver(&mut CatchUp { inlet, fetches });
        }
        inlet.publish(arrivals.marks())?;
        Ok(has_more && !inlet.is_full())
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let due =
            [self.arrivals.poll_timeout(), self.inlet.next_attempt(), self.fetches.poll_timeout()];
        due.into_iter().flatten().min()
    }

    pub(super) fn event(&mut self, now: Monotonic) -> Option<Event> {
        if let Some(exceeded) = self.inlet.exceeded(now) {
            return Some(Event::Exceeded(exceeded));
        }
        if let Some((source, stream)) = self.inlet.aside() {
            return Some(Event::Aside(source, stream));
        }
        if let Some(unretained) = self.inlet.unretained() {
            return Some(Event::Unretained(unretained));
        }
        if let Some(fetched) = self.fetches.report() {
            return Some(Event::Fetched(fetched));
        }
        let event = self.arrivals.poll_event().map(Event::Arrivals);
        event.or_else(|| self.inlet.refusal().map(Event::Refused))
    }
}
