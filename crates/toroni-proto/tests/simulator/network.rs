//! The network: what becomes of each datagram.

use crate::random::Random;
use crate::time::MILLISECOND;

use super::scenario::{Kind, Scenario};

/// A sender or a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Sender(usize),
    Receiver(usize),
    Stranger(usize),
}

#[derive(Debug)]
pub(super) struct Network {
    random: Random,
    /// Whether each receiver is in a burst of losses.
    burst: Vec<bool>,
}

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { random: Random::new(scenario.seed ^ 77), burst: vec![false; scenario.receivers] }
    }

    /// The copies of a datagram that arrive: after which time, and with which bit changed.
    pub(super) fn carry(
        &mut self,
        scenario: &Scenario,
        now: u64,
        from: Node,
        to: Node,
        bytes: usize,
    ) -> Vec<(u64, Option<usize>)> {
        let mut delay = scenario.delay + self.random.below(scenario.jitter + 1);
        let mut copies = 1;
        let mut changed = None;
        for fault in scenario.faults.iter().filter(|fault| fault.from <= now && now < fault.until) {
            let receiver = Node::Receiver(fault.who % scenario.receivers);
            let sender = Node::Sender(fault.who % scenario.publishes.len());
            let mut chance = |permille| self.random.below(1_000) < permille;
            match fault.kind {
                Kind::Loss { permille } if chance(permille) => return Vec::new(),
                Kind::Bursts { permille } => {
                    if let Node::Receiver(at) = to {
                        let in_burst = if self.burst[at] { !chance(50) } else { chance(permille) };
                        self.burst[at] = in_burst;
                        if in_burst {
                            return Vec::new();
                        }
                    }
                }
                Kind::Duplicate { permille } if chance(permille) => copies += 1,
                Kind::Reorder { permille } if chance(permille) => {
                    delay += self.random.below(4 * MILLISECOND);
                }
                Kind::Corrupt { permille } if chance(permille) => {
                    // The checksum of UDP finds a changed bit. Only with a key we may see one.
                    if !scenario.keyed {
                        return Vec::new();
                    }
                    changed = Some(usize::try_from(self.random.below(bytes as u64 * 8)).unwrap());
                }
                Kind::Deaf if to == receiver => return Vec::new(),
                Kind::Mute if from == receiver => return Vec::new(),
                Kind::Partition if from == sender || to == sender => return Vec::new(),
                Kind::Crybaby if to == receiver && chance(333) => return Vec::new(),
                _ => {}
            }
        }
        (0..copies).map(|copy| (delay + copy * self.random.below(MILLISECOND), changed)).collect()
    }
}
