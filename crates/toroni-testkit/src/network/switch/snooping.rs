//! IGMP snooping: which ports get the frames of which group (RFC 4541).

use super::frame;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How the switch snoops. It forwards a group only to ports that reported it, and to ports from which queries come; if
/// there is neither, nowhere. It leaves 224.0.0.0/24, broadcasts and IPv6 alone. A host that leaves a group is believed
/// at once, because there is one host at each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snooping {
    /// How long a report counts. Hosts report without being asked only when they join.
    pub ageing: Duration,
    /// The switch asks so often, as a querier does; `None` is a network without one.
    pub query_interval: Option<Duration>,
}

impl Snooping {
    /// How long a report counts on real switches: twice the usual interval of queries of 125 s, and 10 s for the answer
    /// (RFC 3376 §8.4, the group membership interval).
    pub const AGEING: Duration = Duration::from_secs(260);
}

/// What reports and queries have said.
#[derive(Debug)]
pub(super) struct Memberships {
    settings: Snooping,
    /// Until when a port wants a group.
    members: BTreeMap<(Ipv4Addr, usize), Instant>,
    /// Until when a port counts as one with a router.
    routers: BTreeMap<usize, Instant>,
    next_query: Option<Instant>,
}

/// How many memberships there may be. Groups beyond reach no port.
const MOST: usize = 1 << 16;

impl Memberships {
    pub(super) fn new(settings: Snooping, now: Instant) -> Self {
        let next_query = settings.query_interval.map(|_| now);
        Self { settings, members: BTreeMap::new(), routers: BTreeMap::new(), next_query }
    }

    /// Reads a message of IGMP that came to a port. Anything malformed is ignored.
    pub(super) fn observe(&mut self, now: Instant, port: usize, message: &[u8]) {
        let Some((&[kind, _, _, _], rest)) = message.split_first_chunk() else { return };
        let group = rest.first_chunk().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets));
        match (kind, group) {
            (0x11, Some(_)) => {
                self.routers.insert(port, now + self.settings.ageing);
            }
            // Reports of versions 1 and 2.
            (0x12 | 0x16, Some(group)) => self.join(now, port, group),
            (0x17, Some(group)) => self.leave(port, group),
            (0x22, Some(_)) => self.observe_version_3(now, port, rest),
            _ => {}
        }
    }

    /// Returns whether frames to this group leave by this port.
    pub(super) fn wants(&self, now: Instant, port: usize, group: Ipv4Addr) -> bool {
        let [a, b, c, _] = group.octets();
        let is_local = [a, b, c] == [224, 0, 0];
        let until = self.members.get(&(group, port));
        is_local || until.is_some_and(|until| now < *until) || self.has_router(now, port)
    }

    /// Returns whether queries came from this port.
    pub(super) fn has_router(&self, now: Instant, port: usize) -> bool {
        self.routers.get(&port).is_some_and(|until| now < *until)
    }

    /// Returns whether a query is due, once for each.
    pub(super) fn query(&mut self, now: Instant) -> bool {
        let is_due = self.next_query.is_some_and(|due| due <= now);
        if is_due {
            self.next_query = self.settings.query_interval.map(|interval| now + interval);
            self.members.retain(|_, until| now < *until);
        }
        is_due
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next_query
    }

    fn join(&mut self, now: Instant, port: usize, group: Ipv4Addr) {
        if self.members.len() >= MOST {
            self.members.retain(|_, until| now < *until);
        }
        if self.members.len() < MOST {
            self.members.insert((group, port), now + self.settings.ageing);
        }
    }

    fn leave(&mut self, port: usize, group: Ipv4Addr) {
        self.members.remove(&(group, port));
    }

    /// Reads the records of a report of version 3 (RFC 3376 §4.2). One that excludes sources wants the group, and one
    /// that includes none does not; which sources a host wants makes no difference here.
    fn observe_version_3(&mut self, now: Instant, port: usize, rest: &[u8]) {
        let mut records = &rest[4..];
        while let Some((&[kind, extra, high, low, a, b, c, d], behind)) =
            records.split_first_chunk()
        {
            let group = Ipv4Addr::new(a, b, c, d);
            let sources = usize::from(u16::from_be_bytes([high, low]));
            let Some(next) = behind.get(sources * 4 + usize::from(extra) * 4..) else { return };
            match kind {
                // MODE_IS_INCLUDE and CHANGE_TO_INCLUDE_MODE without sources.
                1 | 3 if sources == 0 => self.leave(port, group),
                // With sources; the modes that exclude; ALLOW_NEW_SOURCES.
                1..=5 => self.join(now, port, group),
                _ => {}
            }
            records = next;
        }
    }
}

/// Whether a frame is a report, which goes only to routers: a host that heard the reports of others would be silent in
/// version 2 (RFC 4541 §2.1.1).
pub(super) fn is_report(message: &[u8]) -> bool {
    matches!(message.first(), Some(0x12 | 0x16 | 0x17 | 0x22))
}

/// The group of a frame that snooping decides about.
pub(super) fn group(bytes: &[u8]) -> Option<Ipv4Addr> {
    frame::destination_v4(bytes).filter(Ipv4Addr::is_multicast)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const AGEING: Duration = Duration::from_secs(260);

    fn memberships(now: Instant) -> Memberships {
        Memberships::new(Snooping { ageing: Snooping::AGEING, query_interval: None }, now)
    }

    fn version_2(kind: u8) -> Vec<u8> {
        [&[kind, 0, 0, 0][..], &GROUP.octets()].concat()
    }

    fn version_3(kind: u8, sources: u8) -> Vec<u8> {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources];
        message.extend(GROUP.octets());
        message.extend(vec![7; usize::from(sources) * 4]);
        message
    }

    #[test]
    fn a_report_counts_until_it_ages_or_the_host_leaves() {
        let now = Instant::now();
        for (join, leave) in [
            (version_2(0x16), version_2(0x17)),
            (version_2(0x12), version_2(0x17)),
            (version_3(4, 0), version_3(3, 0)),
            (version_3(2, 1), version_3(1, 0)),
            (version_3(5, 2), version_3(3, 0)),
        ] {
            let mut table = memberships(now);
            assert!(!table.wants(now, 1, GROUP));
            table.observe(now, 1, &join);
            assert!(table.wants(now + AGEING - Duration::from_nanos(1), 1, GROUP), "{join:?}");
            assert!(!table.wants(now + AGEING, 1, GROUP), "it has aged");
            assert!(!table.wants(now, 2, GROUP), "another port");
            assert!(!table.wants(now, 1, Ipv4Addr::new(239, 1, 2, 4)), "another group");
            table.observe(now, 1, &leave);
            assert!(!table.wants(now, 1, GROUP), "{leave:?}");
        }
    }

    #[test]
    fn routers_get_all_groups_and_local_ones_go_everywhere() {
        let now = Instant::now();
        let mut table = memberships(now);
        assert!(table.wants(now, 0, Ipv4Addr::new(224, 0, 0, 251)));
        assert!(!table.wants(now, 0, Ipv4Addr::new(224, 0, 1, 1)));
        table.observe(now, 0, &[0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]);
        assert!(table.wants(now, 0, GROUP) && !table.wants(now + AGEING, 0, GROUP));
    }

    #[test]
    fn queries_come_in_their_interval() {
        let now = Instant::now();
        let interval = Duration::from_secs(1);
        let snooping = Snooping { ageing: AGEING, query_interval: Some(interval) };
        let mut table = Memberships::new(snooping, now);
        assert!(table.query(now) && !table.query(now));
        assert_eq!(table.next_due(), Some(now + interval));
        assert!(table.query(now + interval));
    }

    #[test]
    fn malformed_messages_are_ignored() {
        let now = Instant::now();
        let whole = version_3(5, 2);
        for length in 0..whole.len() {
            let mut table = memberships(now);
            table.observe(now, 1, &whole[..length]);
            assert!(!table.wants(now, 1, GROUP), "{length} bytes");
        }
        let mut random = crate::Random::new(1);
        let mut table = memberships(now);
        for _ in 0..10_000 {
            let length = random.index(40);
            let mut message: Vec<u8> =
                (0..length).map(|_| random.number().to_le_bytes()[0]).collect();
            if let Some(kind) = message.first_mut() {
                *kind = *random.pick(&[0x11, 0x12, 0x16, 0x17, 0x22, 0x99]);
            }
            table.observe(now, 1, &message);
        }
    }
}
