//! Hosts that exist only during a test, and the network between them.
//!
//! A host is a network namespace. Two kinds of network join them: the kernel's bridge, which is fast, and
//! [`switch`], which loses, delays, reorders, doubles and damages frames as a seed says.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use toroni_testkit::network::{Setup, switch::{Direction, Faults, Loss}};
//!
//! let Some(network) = Setup::new(3).switched(7) else { return }; // says why it cannot be made here
//! let faults = Faults { loss: Loss::Bernoulli(0.05), ..Faults::default() };
//! network.switch().set_faults(0, Direction::In, &faults); // what the first host sends
//! let socket = network.hosts[0].enter(|| UdpSocket::bind("10.77.0.1:0")).expect("a socket");
//! # drop(socket);
//! ```
//!
//! Making namespaces needs root. Elsewhere the test is skipped, and says so; with `TORONI_NETNS=required` in the
//! environment it fails. Nothing is left on the machine, whatever ends the test; see [`Namespace`].

pub mod flood;
mod host;
mod namespace;
mod offload;
pub mod switch;

use crate::wait;
pub use host::Host;
pub use namespace::Namespace;
use switch::Switch;

/// The variable of the environment with which tests fail, rather than be skipped, where there are no namespaces.
pub const REQUIRED: &str = "TORONI_NETNS";

/// Says that a test is skipped, on standard error.
///
/// # Panics
/// If `TORONI_NETNS=required`.
pub fn skip(reason: &str) {
    let is_required = std::env::var_os(REQUIRED).is_some_and(|value| value == "required");
    assert!(!is_required, "{REQUIRED}=required, but {reason}");
    eprintln!("SKIPPED: {reason}");
}

/// What a network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    hosts: u8,
    legs: u8,
    mtu: u16,
    has_offload: bool,
}

impl Setup {
    /// Asks for this many hosts with one interface each, an MTU of 1500 bytes, and no offloads.
    #[must_use]
    pub const fn new(hosts: u8) -> Self {
        Self { hosts, legs: 1, mtu: 1500, has_offload: false }
    }

    /// Gives each host this many interfaces, each in a network of its own.
    #[must_use]
    pub const fn legs(self, legs: u8) -> Self {
        Self { legs, ..self }
    }

    /// Sets the MTU of all interfaces, in bytes.
    #[must_use]
    pub const fn mtu(self, mtu: u16) -> Self {
        Self { mtu, ..self }
    }

    /// Leaves checksums and segmentation to the interfaces, which do neither: datagrams then cross a bridge faster
    /// than any real network would take them.
    #[must_use]
    pub const fn with_offload(self) -> Self {
        Self { has_offload: true, ..self }
    }

    /// Joins the hosts by bridges of the kernel, one for each leg. If that is impossible here, says so as [`skip`] does
    /// and returns `None`.
    ///
    /// # Panics
    /// If a step fails after the first namespace was made.
    #[must_use]
    pub fn bridged(self) -> Option<Network> {
        let (hosts, middle) = self.cabled()?;
        for leg in 0..self.legs {
            // Without a querier, snooping would end multicast after some minutes.
            let mut commands = vec![
                format!("link add br{leg} mtu {} type bridge mcast_snooping 0", self.mtu),
                format!("link set br{leg} up"),
            ];
            let join = |host| format!("link set {} master br{leg}", port_name(leg, host));
            commands.extend((0..self.hosts).map(join));
            middle.ip(&commands);
        }
        Some(Network { hosts, setup: self, middle, switches: Vec::new() })
    }

    /// Joins the hosts by software switches, one for each leg. The seed decides all faults; leg 1 has another
    /// sequence than leg 0. If that is impossible here, says so as [`skip`] does and returns `None`.
    ///
    /// # Panics
    /// If a step fails after the first namespace was made.
    #[must_use]
    pub fn switched(self, seed: u64) -> Option<Network> {
        assert!(!self.has_offload, "a switch needs finished frames");
        let (hosts, middle) = self.cabled()?;
        let start = |leg: u8| {
            let names: Vec<_> = (0..self.hosts).map(|host| port_name(leg, host)).collect();
            let seed = seed ^ u64::from(leg) << 56;
            Switch::start(&middle, &names, self.mtu, seed).expect("a switch")
        };
        let switches = (0..self.legs).map(start).collect();
        Some(Network { hosts, setup: self, middle, switches })
    }

    /// Makes the hosts, and a namespace with the other ends of their cables.
    fn cabled(self) -> Option<(Vec<Host>, Namespace)> {
        assert!((1..=250).contains(&self.hosts) && (1..=9).contains(&self.legs), "{self:?}");
        let middle = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => {
                skip(&format!("network namespaces cannot be made here: {error}"));
                return None;
            }
        };
        // The middle forwards frames, and has no opinion on them.
        middle.set("ipv6/conf/all/disable_ipv6", "1");
        middle.set("ipv6/conf/default/disable_ipv6", "1");
        let hosts: Vec<_> = (0..self.hosts).map(|index| self.host(index, &middle)).collect();
        wait::until("all cables work", || {
            middle.has_active_cables()
                && hosts.iter().all(|host| host.namespace().has_active_cables())
        });
        Some((hosts, middle))
    }

    fn host(self, index: u8, middle: &Namespace) -> Host {
        let namespace = Namespace::new().expect("another namespace");
        // Addresses work at once, and no host looks for routers.
        for (name, value) in [("accept_dad", "0"), ("router_solicitations", "0")] {
            for of in ["all", "default"] {
                namespace.set(&format!("ipv6/conf/{of}/{name}"), value);
            }
        }
        let host = Host::new(index, namespace);
        let (mut outside, mut inside) = (Vec::new(), Vec::new());
        for leg in 0..self.legs {
            let port = port_name(leg, index);
            let [mtu, netns] = [self.mtu.to_string(), host.namespace().path()];
            let mac = host.mac_on(leg).map(|byte| format!("{byte:02x}")).join(":");
            outside.push(format!(
                "link add {port} mtu {mtu} type veth \
                 peer name eth{leg} mtu {mtu} address {mac} netns {netns}"
            ));
            outside.push(format!("link set {port} up"));
            inside.push(format!("addr add {}/24 dev eth{leg}", host.address_on(leg)));
            inside.push(format!("addr add {}/64 dev eth{leg} nodad", host.address_v6_on(leg)));
            inside.push(format!("link set eth{leg} up"));
        }
        // Multicast without an interface leaves by the first leg.
        inside.push("route add default dev eth0".to_owned());
        middle.ip(&outside);
        if !self.has_offload {
            let switch_off =
                || (0..self.legs).try_for_each(|leg| offload::switch_off(&format!("eth{leg}")));
            host.enter(switch_off).expect("an interface without offloads");
        }
        host.namespace().ip(&inside);
        host
    }
}

/// The middle's end of a cable.
fn port_name(leg: u8, host: u8) -> String {
    format!("p{leg}.{host}")
}

/// Hosts and what joins them. Dropping it removes all of it.
#[derive(Debug)]
pub struct Network {
    /// The hosts. The index of a host is also the number of its port at every switch.
    pub hosts: Vec<Host>,
    setup: Setup,
    /// Where the other ends of the cables are.
    middle: Namespace,
    /// One for each leg, or none if the kernel's bridges join the hosts.
    switches: Vec<Switch>,
}

impl Network {
    /// Returns the switch of the first leg.
    ///
    /// # Panics
    /// If the network is bridged.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        self.switch_of(0)
    }

    /// Returns the switch of a leg.
    ///
    /// # Panics
    /// If the network is bridged, or there is no such leg.
    #[must_use]
    pub fn switch_of(&self, leg: u8) -> &Switch {
        self.switches.get(usize::from(leg)).expect("a leg with a switch")
    }

    /// Cuts the link of a host on a leg in the middle: its interface stays up, frames vanish in both directions.
    ///
    /// # Panics
    /// If there is no such host or leg.
    pub fn cut(&self, host: u8, leg: u8) {
        match self.switches.get(usize::from(leg)) {
            Some(switch) => switch.cut(host.into()),
            None => self.middle.ip(&[format!("link set {} nomaster", port_name(leg, host))]),
        }
    }

    /// Ends what [`Self::cut`] began.
    ///
    /// # Panics
    /// If there is no such host or leg.
    pub fn rejoin(&self, host: u8, leg: u8) {
        match self.switches.get(usize::from(leg)) {
            Some(switch) => switch.rejoin(host.into()),
            None => {
                self.middle.ip(&[format!("link set {} master br{leg}", port_name(leg, host))]);
            }
        }
    }

    /// Returns how many frames the kernel dropped between the hosts' interfaces, instead of what a seed decides. A test
    /// that counts losses asserts that it is 0. It does not count what overflows the sockets of hosts.
    ///
    /// # Panics
    /// If the kernel does not tell.
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        let legs = 0..self.setup.legs;
        let of_host = |host: &Host| -> u64 {
            host.enter(|| legs.clone().map(|leg| unsent(&format!("eth{leg}"))).sum())
        };
        let of_hosts: u64 = self.hosts.iter().map(of_host).sum();
        let ports =
            legs.flat_map(|leg| (0..self.setup.hosts).map(move |host| port_name(leg, host)));
        let of_middle: u64 = self.middle.enter(|| ports.map(|port| unsent(&port)).sum());
        of_hosts + of_middle + self.switches.iter().map(Switch::kernel_drops).sum::<u64>()
    }
}

/// How many frames that an interface sent did not reach the other end of its cable, because a queue of the kernel was
/// full.
fn unsent(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/tx_dropped");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().parse().expect("a number")
}
