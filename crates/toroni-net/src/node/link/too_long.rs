//! Datagrams that are longer than an interface takes, because its MTU became smaller while the node runs.
//!
//! IP fragments nothing of a node. So such a datagram is lost, for all receivers, and so is every repair of it, while shorter
//! ones leave. The state ends when the kernel takes one that is as long again.

use crate::host::interface;
use crate::socket::Outgoing;
use toroni_proto::time::{Monotonic, SECOND};

/// Reports of one interface are at least so far apart, because each asks the kernel for the MTU.
const APART_NS: u64 = SECOND;

/// Datagrams that an interface does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The name of the interface.
    pub interface: String,
    /// Its MTU, in bytes, unless it takes them by now or is gone.
    pub mtu: Option<u32>,
    /// The length of the longest of them.
    pub bytes: u64,
    /// What IP and UDP add to each, in bytes.
    pub headers: u32,
    /// How many were refused since the last report.
    pub refused: u64,
}

/// What was refused on a leg since it took a datagram that was as long.
#[derive(Default)]
pub(super) struct Refused {
    /// The lengths of the shortest, and of the longest that was not reported.
    shortest: Option<usize>,
    longest: usize,
    total: u64,
    unreported: u64,
    due: Option<Monotonic>,
}

impl Refused {
    pub(super) fn refused(&mut self, bytes: usize) {
        self.shortest = Some(self.shortest.map_or(bytes, |shortest| shortest.min(bytes)));
        self.longest = self.longest.max(bytes);
        self.total += 1;
        self.unreported += 1;
    }

    /// Notes what the kernel took. If the interface takes again what it refused, returns how many it had refused.
    pub(super) fn taken(&mut self, sent: &[Outgoing<'_>]) -> u64 {
        match self.shortest {
            Some(shortest) if sent.iter().any(|one| one.bytes.len() >= shortest) => {
                self.shortest = None;
                std::mem::take(&mut self.total)
            }
            _ => 0,
        }
    }

    pub(super) fn report(
        &mut self,
        now: Monotonic,
        interface: &str,
        headers: u32,
    ) -> Option<TooLong> {
        if self.unreported == 0 || self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(now.after(APART_NS));
        let bytes = std::mem::take(&mut self.longest) as u64;
        let mtu = interface::named(interface).ok().map(|interface| interface.mtu);
        Some(TooLong {
            interface: interface.to_owned(),
            mtu: mtu.filter(|mtu| u64::from(*mtu) < bytes + u64::from(headers)),
            bytes,
            headers,
            refused: std::mem::take(&mut self.unreported),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn only_a_datagram_that_is_as_long_ends_the_state_and_reports_are_a_second_apart() {
        let at = |ms: u64| Monotonic::from_ns(ms * 1_000_000);
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let bytes = [0; 1_400];
        let of = |length: usize| [Outgoing { to, bytes: &bytes[..length] }];
        let mut state = Refused::default();
        assert_eq!(state.taken(&of(1_400)), 0);
        assert_eq!(state.report(at(0), "lo", 28), None);
        for length in [1_300, 1_400] {
            state.refused(length);
        }
        let report = state.report(at(0), "lo", 28).unwrap();
        // The loopback interface takes them, so its MTU is not the reason.
        let interface = "lo".to_owned();
        let wanted = TooLong { interface, mtu: None, bytes: 1_400, headers: 28, refused: 2 };
        assert_eq!(report, wanted);
        state.refused(70_000);
        assert_eq!(state.report(at(999), "lo", 28), None);
        let report = state.report(at(1_000), "lo", 28).unwrap();
        assert!(report.mtu.is_some_and(|mtu| mtu < 70_000), "{report:?}");
        assert_eq!((report.bytes, report.refused), (70_000, 1));
        assert_eq!(state.taken(&of(1_299)), 0);
        assert_eq!(state.taken(&of(1_300)), 3);
        assert_eq!(state.taken(&of(1_400)), 0);
    }
}
