//! What a node receives with one set of settings: from sockets to a bus.

use super::{Event, NodeError, Receive};
use crate::inlet::{Inlet, InletError, Ways};
use crate::membership::Membership;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use toroni::{Bus, BusId};
use toroni_proto::arrivals::Arrivals;
use toroni_proto::legs::Path;
use toroni_proto::receiver::Me;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::NodeName;

/// The groups with the same settings, what arrives from them, and the inlet that brings it to a bus.
pub(super) struct Receiving {
    /// The places of its groups among those of the node.
    groups: Range<usize>,
    pub(super) arrivals: Arrivals,
    pub(super) inlet: Inlet,
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
        let made = (Arc::new(bus.inlet()?), Ways::default());
        self.0.insert(bus.id(), made.clone());
        Ok(made)
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
            .with_lost_scope(receive.lost_scope.clone());
        let groups = first..first + receive.groups.len();
        first = groups.end;
        Ok(Receiving { groups, arrivals, inlet })
    });
    open.collect()
}

impl Receiving {
    /// Takes a datagram that came to this group of the node, or to the node alone. What is refused is counted there.
    /// Returns whether it was taken.
    pub(super) fn take(
        &mut self,
        now: Monotonic,
        path: Path,
        group: Option<usize>,
        bytes: &[u8],
    ) -> bool {
        group.is_none_or(|group| self.groups.contains(&group))
            && self.arrivals.handle_datagram(now, path, bytes, &mut self.inlet).is_ok()
    }

    /// Publishes what has arrived, as far as the bus has room. Returns whether more waits that would find room.
    pub(super) fn publish(&mut self, now: Monotonic) -> Result<bool, InletError> {
        let Self { arrivals, inlet, .. } = self;
        arrivals.handle_timeout(now, inlet);
        inlet.publish(arrivals.marks())?;
        if arrivals.paused() > 0 {
            arrivals.deliver_held(now, inlet);
            inlet.publish(arrivals.marks())?;
        }
        Ok(arrivals.paused() > 0 && !inlet.is_full())
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        self.arrivals.poll_timeout().into_iter().chain(self.inlet.next_attempt()).min()
    }

    pub(super) fn event(&mut self, now: Monotonic) -> Option<Event> {
        if let Some(exceeded) = self.inlet.exceeded(now) {
            return Some(Event::Exceeded(exceeded));
        }
        if let Some((source, stream)) = self.inlet.aside() {
            return Some(Event::Aside(source, stream));
        }
        let event = self.arrivals.poll_event().map(Event::Arrivals);
        event.or_else(|| self.inlet.refusal().map(Event::Refused))
    }
}
