//! Following an address: a leg sends from the address of its interface, and another one may take its place.
//!
//! The kernel refuses to send from an address that the host has no longer, and answers to it do not arrive. So without
//! this, a sender would fall silent, and a receiver could not ask for what it misses. Only the socket that sends is
//! bound to the address. The sockets of the groups stay open, with all that waits in them, unless the interface itself
//! was removed and made again: a membership does not survive that.
//!
//! An interface without an address is left alone until it has one. One that has the old address still, beside another one,
//! is left alone too. Other nodes find the new address in the next datagram.

use super::{Link, LinkError};
use crate::host::changes::Changes;
use crate::host::interface;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND};

/// How often the kernel is asked whether anything has changed. A datagram that it refuses is a reason to ask at once.
const EVERY_NS: u64 = 100 * MILLISECOND;
/// The pause before sockets are tried again that could not be opened.
const RETRY_NS: u64 = SECOND;
/// How many reports wait for the caller. Later ones are dropped.
const MAX_REPORTS: usize = 16;

/// What happened after the address of an interface changed.
#[derive(Debug)]
pub enum Moved {
    /// The sockets were opened again.
    To {
        /// The name of the interface.
        interface: String,
        /// The address that it had.
        from: IpAddr,
        /// The address from which the node sends now.
        to: IpAddr,
    },
    /// They could not be, and are tried again.
    Failed {
        /// The name of the interface.
        interface: String,
        /// Why.
        error: LinkError,
    },
}

/// When to look at the addresses, and what came of it.
pub(super) struct Follower {
    changes: Option<Changes>,
    due: Monotonic,
    /// When to look although nothing has changed since.
    retry: Option<Monotonic>,
    reports: VecDeque<Moved>,
    reopened: u64,
}

impl Follower {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { changes: Some(Changes::open()?), ..Self::none() })
    }

    /// For a link without sockets.
    pub(super) const fn none() -> Self {
        let due = Monotonic::from_ns(0);
        Self { changes: None, due, retry: None, reports: VecDeque::new(), reopened: 0 }
    }

    /// Asks the kernel in the next turn.
    pub(super) const fn hurry(&mut self) {
        self.due = Monotonic::from_ns(0);
    }

    fn must_look(&mut self, now: Monotonic) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now.after(EVERY_NS);
        let has_changed = self.changes.as_ref().is_some_and(Changes::have_come);
        let is_due = self.retry.is_some_and(|retry| retry <= now);
        if has_changed || is_due {
            self.retry = None;
        }
        has_changed || is_due
    }

    fn report(&mut self, moved: Moved) {
        if self.reports.len() < MAX_REPORTS {
            self.reports.push_back(moved);
        }
    }
}

impl Link {
    /// Opens sockets again whose interface has another address than the one from which they send. Call it before anything
    /// else in a turn. Returns whether it did, so that [`Self::addresses`] are others.
    pub fn follow(&mut self, now: Monotonic) -> bool {
        if !self.follower.must_look(now) {
            return false;
        }
        let Ok(all) = interface::all() else {
            self.follower.retry = Some(now.after(RETRY_NS));
            return false;
        };
        let before = self.follower.reopened;
        let Self { legs, plan, follower, .. } = self;
        for sockets in legs {
            let name = &sockets.interface.name;
            let Some(current) = all.iter().find(|one| one.name == *name) else { continue };
            let from = sockets.unicast.address().ip();
            let is_same = current.index == sockets.interface.index;
            if (is_same && current.addresses.contains(&from))
                || current.source(plan.family).is_err()
            {
                continue;
            }
            let interface = name.clone();
            let report = match sockets.reopen(current, plan) {
                Ok(()) => {
                    follower.reopened += 1;
                    Moved::To { interface, from, to: sockets.unicast.address().ip() }
                }
                Err(error) => {
                    follower.retry = Some(now.after(RETRY_NS));
                    Moved::Failed { interface, error }
                }
            };
            follower.report(report);
        }
        self.follower.reopened != before
    }

    /// Takes what [`Self::follow`] has done.
    pub fn moved(&mut self) -> Option<Moved> {
        self.follower.reports.pop_front()
    }

    /// Returns how often sockets were opened again. Then some of [`Self::descriptors`] are others.
    #[must_use]
    pub const fn reopened(&self) -> u64 {
        self.follower.reopened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Options;
    use toroni_testkit::network::{Namespace, skip};

    /// The group, as /proc/net/igmp shows it.
    const JOINED: &str = if cfg!(target_endian = "little") { "4F54C0EF" } else { "EFC0544F" };

    struct Fixture {
        namespace: Namespace,
        link: Link,
        time_ns: u64,
    }

    impl Fixture {
        fn new() -> Option<Self> {
            let namespace = match Namespace::new() {
                Ok(namespace) => namespace,
                Err(error) => {
                    skip(&format!("no network namespace: {error}"));
                    return None;
                }
            };
            namespace.ip(&["link add a0 type veth peer name b0", "link set a0 up"]);
            namespace.ip(&["address add 10.78.0.1/24 dev a0"]);
            let group = "239.192.84.79:4479".parse().unwrap();
            let open = || {
                let interface = interface::named("a0").unwrap();
                Link::open(&[interface], &[group], &[], &Options::default(), 1_408).unwrap()
            };
            let link = namespace.enter(open);
            Some(Self { namespace, link, time_ns: 0 })
        }

        /// Changes something, and has the next turn. Returns what it reports, and whether the group is joined.
        fn change(&mut self, commands: &[&str]) -> (Vec<Moved>, bool) {
            self.namespace.ip(commands);
            self.time_ns += RETRY_NS;
            let Self { namespace, link, time_ns } = self;
            namespace.enter(|| {
                link.follow(Monotonic::from_ns(*time_ns));
                let reports = std::iter::from_fn(|| link.moved()).collect();
                let joined = std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
                (reports, joined.contains(JOINED))
            })
        }

        fn address(&self) -> String {
            self.link.legs[0].unicast.address().ip().to_string()
        }
    }

    #[test]
    fn a_leg_keeps_its_address_until_that_is_gone_and_there_is_another_one() {
        let Some(mut fixture) = Fixture::new() else { return };
        let other = "address add 10.79.0.1/24 dev a0";
        for commands in [&[][..], &[other], &["address delete 10.79.0.1/24 dev a0"]] {
            let (reports, _) = fixture.change(commands);
            assert!(reports.is_empty(), "{commands:?}: {reports:?}");
            assert_eq!(fixture.address(), "10.78.0.1");
        }
        let (reports, is_joined) = fixture.change(&["address delete 10.78.0.1/24 dev a0"]);
        assert!(reports.is_empty() && is_joined, "{reports:?}");
        let (reports, is_joined) = fixture.change(&[other]);
        let [Moved::To { interface, from, to }] = &reports[..] else { panic!("{reports:?}") };
        let shown = format!("{interface} {from} {to}");
        assert_eq!((shown.as_str(), is_joined), ("a0 10.78.0.1 10.79.0.1", true));
        assert_eq!(fixture.address(), "10.79.0.1");
        // What waits in the sockets of the groups is not lost.
        assert_eq!((fixture.link.legs[0].reopened, fixture.link.reopened()), ([0, 1], 1));
    }

    #[test]
    fn an_interface_that_is_made_again_is_joined_again_as_soon_as_that_is_possible() {
        let Some(mut fixture) = Fixture::new() else { return };
        let (reports, is_joined) = fixture.change(&["link delete a0"]);
        assert!(reports.is_empty() && !is_joined, "{reports:?}");
        fixture.namespace.set("ipv4/igmp_max_memberships", "0");
        let make = ["link add a0 type veth peer name b0", "link set a0 up"];
        let (reports, is_joined) = fixture.change(&make);
        assert!(reports.is_empty() && !is_joined, "{reports:?}");
        let (reports, is_joined) = fixture.change(&["address add 10.78.0.1/24 dev a0"]);
        assert!(matches!(reports[..], [Moved::Failed { .. }]) && !is_joined, "{reports:?}");
        fixture.namespace.set("ipv4/igmp_max_memberships", "20");
        let (reports, is_joined) = fixture.change(&[]);
        assert!(matches!(reports[..], [Moved::To { .. }]) && is_joined, "{reports:?}");
        assert_eq!(fixture.link.legs[0].reopened, [1, 1]);
    }
}
