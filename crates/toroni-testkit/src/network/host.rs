//! One host of a [`Network`](super::Network).

use super::Namespace;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

/// A host: a network namespace with an interface for each leg, `eth0` and so on.
#[derive(Clone, Debug)]
pub struct Host {
    index: u8,
    namespace: Namespace,
}

impl Host {
    pub(super) fn new(index: u8, namespace: Namespace) -> Self {
        Self { index, namespace }
    }

    /// Returns its address on the first leg: `10.77.0.1` for the first host, and so on.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address_on(0)
    }

    /// Returns its address on a leg, which is `10.77.LEG.HOST` with hosts from 1 and legs from 0.
    #[must_use]
    pub fn address_on(&self, leg: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, leg, self.index + 1)
    }

    /// Returns its IPv6 address on a leg, `fd77:0:0:LEG::HOST`.
    #[must_use]
    pub fn address_v6_on(&self, leg: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, leg.into(), 0, 0, 0, u16::from(self.index) + 1)
    }

    /// Returns its hardware address on a leg.
    #[must_use]
    pub fn mac_on(&self, leg: u8) -> [u8; 6] {
        // The second bit says that it is locally administered.
        [0x02, 0x77, 0, 0, leg, self.index + 1]
    }

    /// Returns its namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns a command that runs on this host. Start it with [`Program`](crate::Program).
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs `work` on this host; see [`Namespace::enter`].
    ///
    /// # Panics
    /// If `work` panics.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.enter(work)
    }
}
