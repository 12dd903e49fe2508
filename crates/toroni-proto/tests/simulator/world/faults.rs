//! What becomes of processes and clocks, and the change of keys.

use super::super::fault::Kind;
use super::super::network::Node;
use super::super::scenario::{REKEY_AT, Scenario};
use super::nodes::SenderNode;
use super::{Event, World};
use crate::config::Order;
use crate::time::{MILLISECOND, SECOND};

/// How long a node is away that takes a step of a change of keys.
const REKEY_NS: u64 = 100 * MILLISECOND;

impl Scenario {
    pub(super) fn has_twins(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == Kind::Twin)
    }

    /// Members of a feed agree on it, and it has no bus. A change of keys restarts senders.
    fn can_revert(&self) -> bool {
        self.repairers == 0 && !self.rekeys
    }
}

impl World<'_> {
    pub(super) fn begin(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        let at = what.who % self.scenario.publishes.len();
        let receiver = what.who % self.receivers.len();
        let node = &mut self.senders[at];
        match what.kind {
            _ if node.is_final() && what.kind.ends_a_sender() => {}
            Kind::Revert { .. } if !self.scenario.can_revert() => {}
            Kind::KillSender { .. } | Kind::NewSeries | Kind::Revert { .. } => node.sender = None,
            Kind::Die => (node.sender, node.gone) = (None, true),
            Kind::EndSender => {
                let ended = self.end_sender(at, true);
                self.senders[at].ended |= ended;
            }
            Kind::RestartSender => drop(self.end_sender(at, false)),
            Kind::Stop => self.receivers[receiver].process.stop(self.now),
            Kind::StopSender => self.senders[at].process.stop(self.now),
            Kind::ClockStep => {
                let longest = if self.random.below(2) == 0 { 3_600 * SECOND } else { 5 * SECOND };
                let step = self.random.below(2 * longest).cast_signed();
                node.wall_step = step - longest.cast_signed();
            }
            Kind::Hostile | Kind::Noise | Kind::Flood | Kind::Recorder => {
                self.at(self.now, Event::Foreign { fault })
            }
            Kind::Twin => {
                let twin = self.senders.len();
                self.twins.insert(fault, twin);
                let series = 500 + u32::try_from(fault).unwrap();
                self.senders.push(SenderNode::new(twin, at, series));
                self.start_sender(twin);
                self.at(self.now, Event::Foreign { fault });
            }
            Kind::KillReceiver { remembers } => self.restart_receiver(receiver, remembers),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        let at = what.who % self.scenario.publishes.len();
        let receiver = what.who % self.receivers.len();
        let node = &mut self.senders[at];
        match what.kind {
            _ if node.is_final() && what.kind.ends_a_sender() => {}
            Kind::KillSender { again, skip, forgets } if node.sender.is_none() => {
                node.cursor = node.cursor.saturating_sub(usize::try_from(again).unwrap());
                if again == 0 {
                    let ahead = usize::try_from(skip).unwrap();
                    node.cursor = (node.cursor + ahead).min(node.bus.len());
                }
                if forgets {
                    node.prior = None;
                    let (session, now) = (node.session - 3, self.monotonic());
                    self.senders[at].start(self.scenario, session, now);
                } else {
                    self.start_sender(at);
                }
            }
            Kind::RestartSender => self.start_sender(at),
            Kind::NewSeries if node.sender.is_none() => {
                node.series += 1;
                node.bus.clear();
                node.backups.clear();
                (node.cursor, node.number) = (0, 0);
                self.start_sender(at);
            }
            Kind::Revert { .. } if !self.scenario.can_revert() => {}
            Kind::Revert { back, again } if node.sender.is_none() => {
                self.revert(at, back);
                let node = &mut self.senders[at];
                node.cursor = node.bus.len().saturating_sub(usize::try_from(again).unwrap());
                self.start_sender(at);
            }
            Kind::Stop => self.continue_receiver(receiver),
            Kind::StopSender => self.continue_sender(at),
            Kind::Twin => {
                if let Some(twin) = self.twins.remove(&fault) {
                    (self.senders[twin].sender, self.senders[twin].gone) = (None, true);
                }
            }
            _ => {}
        }
    }

    /// The bus and the state of a sender go back to a backup, `back` sessions before the last one.
    fn revert(&mut self, at: usize, back: usize) {
        let node = &mut self.senders[at];
        let (source, before) = (node.source, node.series());
        let Some(last) = node.backups.len().checked_sub(1) else { return };
        node.backups.truncate(last.saturating_sub(back) + 1);
        let Some(backup) = node.backups.pop() else { return };
        (node.number, node.prior) = (backup.number, Some(backup.prior));
        node.bus.truncate(backup.entries);
        node.age += 1;
        let (number, after) = (node.number, node.series());
        let truths = self.truths[source].get(&before).cloned().unwrap_or_default();
        let kept = truths.into_iter().filter(|(it, _)| *it < number).collect();
        self.truths[source].insert(after, kept);
        let topics: Vec<_> = self.topics[source]
            .range((before, 0)..(before, number))
            .map(|((_, number), it)| ((after, *number), it.clone()))
            .collect();
        self.topics[source].extend(topics);
        self.again_from[source].insert(after, number);
    }

    /// Ends a session in order, if all was sent.
    fn end_sender(&mut self, at: usize, sealed: bool) -> bool {
        let now = self.clock(at);
        let node = &mut self.senders[at];
        let Some(sender) = node.sender.as_mut().filter(|sender| !sender.is_ending()) else {
            return false;
        };
        if node.cursor < node.bus.len() {
            return false;
        }
        sender.end(now, sealed);
        node.said_end = true;
        node.process.due = true;
        true
    }

    fn restart_receiver(&mut self, at: usize, remembers: bool) {
        let now = self.monotonic();
        let node = &mut self.receivers[at];
        // By arrival, only the bus knows what came above the mark.
        let remembers = remembers && self.scenario.config.order == Order::Source;
        let Some(arrivals) = node.arrivals.take() else { return };
        let marks: Vec<_> = if remembers { arrivals.marks().collect() } else { Vec::new() };
        if !remembers {
            node.record.life += 1;
        }
        node.start(self.scenario, at, now, &marks);
    }

    /// A receiver that did not run reads what has arrived before it looks at its timers, and moves these.
    fn continue_receiver(&mut self, at: usize) {
        let now = self.monotonic();
        let node = &mut self.receivers[at];
        if node.process.stopped.take().is_none() {
            return;
        }
        node.record.now = self.now;
        node.process.due = true;
        let Some(arrivals) = &mut node.arrivals else { return };
        arrivals.begin_turn(now);
        for (from, bytes) in node.process.socket.drain(..) {
            let _ = arrivals.handle_datagram(now, from, &bytes, &mut node.record);
        }
    }

    fn continue_sender(&mut self, at: usize) {
        let now = self.clock(at);
        let node = &mut self.senders[at];
        if node.process.stopped.take().is_none() {
            return;
        }
        node.process.due = true;
        let socket = core::mem::take(&mut node.process.socket);
        if let Some(sender) = &mut node.sender {
            for (from, bytes) in socket {
                let _ = sender.handle_datagram(now, from.address, &bytes);
            }
        }
    }

    pub(super) fn schedule_rekeys(&mut self) {
        let senders = (0..self.senders.len()).map(Node::Sender);
        let nodes: Vec<Node> =
            senders.chain((0..self.receivers.len()).map(Node::Receiver)).collect();
        for (step, begin) in REKEY_AT.into_iter().enumerate() {
            for (at, node) in nodes.iter().enumerate() {
                let time = begin + at as u64 * 60 * MILLISECOND;
                let node = *node;
                self.at(time, Event::Rekey { node, step, starts: false });
                self.at(time + REKEY_NS, Event::Rekey { node, step, starts: true });
            }
        }
    }

    pub(super) fn rekey(&mut self, node: Node, step: usize, starts: bool) {
        match node {
            Node::Sender(at) if !starts => drop(self.end_sender(at, false)),
            Node::Sender(at) => {
                let node = &mut self.senders[at];
                node.process.keys = step + 1;
                // One that is dead at the time gets the keys when it comes back.
                if node.sender.is_some() && !node.ended {
                    self.start_sender(at);
                }
            }
            Node::Receiver(at) if starts => {
                self.receivers[at].process.keys = step + 1;
                self.restart_receiver(at, true);
            }
            _ => {}
        }
    }
}

impl super::nodes::Process {
    fn stop(&mut self, now: u64) {
        self.stopped.get_or_insert(now);
    }
}
