//! The switch without its sockets: frames and times go in, frames come out.

use super::frame::{self, Mac};
use super::path::{Frame, Path};
use super::snooping::{self, Memberships};
use super::{Counts, Direction, Faults, PortCounts, Snooping};
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long the switch remembers at which port a host is (IEEE 802.1D: 300 s).
const MAC_AGEING: Duration = Duration::from_secs(300);

/// How many hosts it remembers. Frames to others go to all ports.
const MOST_MACS: usize = 4096;

/// The hardware address with which the switch asks for memberships.
const OWN_MAC: Mac = [0x02, 0x77, 0, 0, 0, 0xfe];

/// The address with which it asks. No host has it.
const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

#[derive(Debug)]
pub(super) struct Engine {
    ports: Vec<Port>,
    hosts: HashMap<Mac, (usize, Instant)>,
    /// From which port to which nothing passes.
    blocked: BTreeSet<(usize, usize)>,
    memberships: Option<Memberships>,
}

#[derive(Debug)]
struct Port {
    /// Of each [`Direction`].
    paths: [Path; 2],
    blocked: u64,
    pruned: u64,
    /// What is to be sent.
    out: Vec<Frame>,
}

impl Engine {
    pub(super) fn new(ports: usize, seed: u64) -> Self {
        let port = |index| Port {
            paths: [Direction::In, Direction::Out]
                .map(|direction| Path::new(seed, index, direction)),
            blocked: 0,
            pruned: 0,
            out: Vec::new(),
        };
        Self {
            ports: (0..ports).map(port).collect(),
            hosts: HashMap::new(),
            blocked: BTreeSet::new(),
            memberships: None,
        }
    }

    /// Takes a frame that came to a port.
    pub(super) fn receive(&mut self, now: Instant, port: usize, bytes: &[u8]) {
        if let Some(frame) = self.path(port, Direction::In).admit(now, Frame::from(bytes)) {
            self.forward(now, port, frame);
        }
        self.take_in(now, port);
    }

    /// Moves everything that is due.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.memberships.as_mut().is_some_and(|table| table.query(now)) {
            let query = Frame::from(frame::general_query(OWN_MAC, OWN_ADDRESS));
            for port in 0..self.ports.len() {
                self.give_out(now, port, Frame::clone(&query));
            }
        }
        for port in 0..self.ports.len() {
            self.take_in(now, port);
        }
        for Port { paths: [_, path], out, .. } in &mut self.ports {
            out.extend(std::iter::from_fn(|| path.next(now)));
        }
    }

    /// Returns the frames that a port is to send. The caller empties the list.
    pub(super) fn out(&mut self, port: usize) -> &mut Vec<Frame> {
        &mut self.ports[port].out
    }

    /// Returns when [`Self::advance`] has something to do again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let paths = self.ports.iter().flat_map(|port| &port.paths);
        let query = self.memberships.as_ref().and_then(Memberships::next_due);
        paths.filter_map(Path::next_due).chain(query).min()
    }

    pub(super) fn set_faults(&mut self, port: usize, direction: Direction, faults: &Faults) {
        faults.check();
        self.path(port, direction).set_faults(faults.clone());
    }

    pub(super) fn lose_next(&mut self, port: usize, direction: Direction, frames: u64) {
        self.path(port, direction).lose_next(frames);
    }

    pub(super) fn set_snooping(&mut self, now: Instant, snooping: Option<Snooping>) {
        self.memberships = snooping.map(|settings| Memberships::new(settings, now));
    }

    pub(super) fn block(&mut self, from: usize, to: usize) {
        self.blocked.insert((from, to));
    }

    pub(super) fn unblock(&mut self, is_meant: impl Fn(usize, usize) -> bool) {
        self.blocked.retain(|&(from, to)| !is_meant(from, to));
    }

    pub(super) fn ports(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn counts(&self, port: usize) -> PortCounts {
        let Port { paths, blocked, pruned, .. } = &self.ports[port];
        let [received, sent]: [Counts; 2] = [paths[0].counts, paths[1].counts];
        PortCounts { received, sent, blocked: *blocked, pruned: *pruned }
    }

    fn path(&mut self, port: usize, direction: Direction) -> &mut Path {
        &mut self.ports[port].paths[direction as usize]
    }

    fn take_in(&mut self, now: Instant, port: usize) {
        while let Some(frame) = self.path(port, Direction::In).next(now) {
            self.forward(now, port, frame);
        }
    }

    /// Decides by which ports a frame leaves.
    fn forward(&mut self, now: Instant, from: usize, frame: Frame) {
        let (Some(to), Some(source)) = (frame::destination(&frame), frame::source(&frame)) else {
            return;
        };
        self.learn(now, from, source);
        if frame::is_group(to) {
            return self.flood(now, from, &frame);
        }
        match self.hosts.get(&to) {
            // A host at the same port has it already.
            Some(&(port, until)) if now < until => {
                if port != from {
                    self.pass(now, from, port, frame);
                }
            }
            _ => self.flood(now, from, &frame),
        }
    }

    fn learn(&mut self, now: Instant, port: usize, source: Mac) {
        if frame::is_group(source) {
            return;
        }
        if self.hosts.len() >= MOST_MACS && !self.hosts.contains_key(&source) {
            self.hosts.retain(|_, (_, until)| now < *until);
        }
        if self.hosts.len() < MOST_MACS || self.hosts.contains_key(&source) {
            self.hosts.insert(source, (port, now + MAC_AGEING));
        }
    }

    fn flood(&mut self, now: Instant, from: usize, frame: &Frame) {
        let report = frame::igmp(frame);
        if let (Some(table), Some(message)) = (&mut self.memberships, report) {
            table.observe(now, from, message);
        }
        let group = snooping::group(frame);
        for port in (0..self.ports.len()).filter(|port| *port != from) {
            let is_wanted = match (&self.memberships, group) {
                (Some(table), Some(group)) => match report {
                    Some(message) if snooping::is_report(message) => table.has_router(now, port),
                    _ => table.wants(now, port, group),
                },
                _ => true,
            };
            if is_wanted {
                self.pass(now, from, port, Frame::clone(frame));
            } else {
                self.ports[port].pruned += 1;
            }
        }
    }

    fn pass(&mut self, now: Instant, from: usize, to: usize, frame: Frame) {
        if self.blocked.contains(&(from, to)) {
            self.ports[to].blocked += 1;
        } else {
            self.give_out(now, to, frame);
        }
    }

    fn give_out(&mut self, now: Instant, to: usize, frame: Frame) {
        if let Some(frame) = self.path(to, Direction::Out).admit(now, frame) {
            self.ports[to].out.push(frame);
        }
    }
}
