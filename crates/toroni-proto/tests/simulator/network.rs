//! The network: what becomes of each datagram.

use crate::legs::{Leg, Path};
use crate::random::Random;
use crate::time::MILLISECOND;
use crate::wire::Address;

use super::fault::{Fault, Kind};
use super::scenario::Scenario;

/// Who has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Sender(usize),
    Receiver(usize),
    Repairer(usize),
    Stranger(usize),
}

/// Returns the path to a node over one of its interfaces.
pub(super) fn path(node: Node, leg: usize) -> Path {
    let port = match node {
        Node::Receiver(at) => 100 + at,
        Node::Sender(at) => 200 + at,
        Node::Repairer(at) => 300 + at,
        Node::Stranger(at) => 400 + at,
    };
    let address = Address { ip: [0; 16], port: u16::try_from(port + leg * 1_000).unwrap() };
    Path { leg: Leg::new(leg).unwrap(), address }
}

/// Returns who is reached over a path, if anybody: each leg has its own addresses.
pub(super) fn node(path: Path) -> Option<(Node, usize)> {
    let Path { leg, address } = path;
    let (of_leg, port) = (usize::from(address.port) / 1_000, usize::from(address.port) % 1_000);
    let node = match port {
        100..200 => Node::Receiver(port - 100),
        200..300 => Node::Sender(port - 200),
        // The address of a repairer is stated by the feed, and can be reached over each leg.
        300..400 => return Some((Node::Repairer(port - 300), leg.index())),
        _ => Node::Stranger(port.saturating_sub(400)),
    };
    (of_leg == leg.index()).then_some((node, of_leg))
}

/// A datagram on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) leg: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Network {
    random: Random,
    /// Whether each receiver is in a burst of losses.
    burst: Vec<bool>,
    /// How many datagrams each fault has dropped.
    dropped: Vec<u64>,
}

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            random: Random::new(scenario.seed ^ 77),
            burst: vec![false; scenario.receivers],
            dropped: vec![0; scenario.faults.len()],
        }
    }

    /// The copies of a datagram that arrive: after which time, and with which bit changed.
    pub(super) fn carry(
        &mut self,
        scenario: &Scenario,
        now: u64,
        way: Way,
    ) -> Vec<(u64, Option<usize>)> {
        let mut delay = scenario.delay + self.random.below(scenario.jitter + 1);
        let mut copies = 1;
        let mut changed = None;
        for (at, fault) in scenario.faults.iter().enumerate() {
            if now < fault.from || fault.until <= now {
                continue;
            }
            if self.drops(scenario, at, fault, way) {
                self.dropped[at] += 1;
                return Vec::new();
            }
            let mut chance = |permille| self.random.below(1_000) < permille;
            match fault.kind {
                Kind::Duplicate { permille } if chance(permille) => copies += 1,
                Kind::Reorder { permille } if chance(permille) => {
                    delay += self.random.below(4 * MILLISECOND);
                }
                Kind::Corrupt { permille } if chance(permille) => {
                    // The checksum of UDP finds a changed bit. Only with a key we may see one.
                    if !scenario.keyed {
                        return Vec::new();
                    }
                    let bits = way.bytes as u64 * 8;
                    changed = Some(usize::try_from(self.random.below(bits)).unwrap());
                }
                _ => {}
            }
        }
        (0..copies).map(|copy| (delay + copy * self.random.below(MILLISECOND), changed)).collect()
    }

    fn drops(&mut self, scenario: &Scenario, at: usize, fault: &Fault, way: Way) -> bool {
        let receiver = Node::Receiver(fault.who % scenario.receivers);
        let sender = Node::Sender(fault.who % scenario.publishes.len());
        let is_leg = fault.who % scenario.legs == way.leg;
        let mut chance = |permille| self.random.below(1_000) < permille;
        match fault.kind {
            Kind::Loss { permille } => chance(permille),
            Kind::Bursts { permille } => {
                let Node::Receiver(to) = way.to else { return false };
                self.burst[to] = if self.burst[to] { !chance(50) } else { chance(permille) };
                self.burst[to]
            }
            Kind::Burst { count } => way.to == receiver && self.dropped[at] < count,
            Kind::Crybaby { permille } => way.to == receiver && chance(permille),
            Kind::Mtu { bytes } => way.to == receiver && way.bytes > bytes,
            Kind::Deaf => way.to == receiver,
            Kind::Mute => way.from == receiver,
            Kind::DeafSender => way.to == sender,
            Kind::Partition => way.from == sender || way.to == sender,
            Kind::LegCut => is_leg,
            Kind::LegOneWay => is_leg && matches!(way.from, Node::Receiver(_)),
            _ => false,
        }
    }
}
