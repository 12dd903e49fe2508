//! What strangers send, and a second node with the id of a sender.

use super::super::fault::Kind;
use super::super::network::Node;
use super::nodes::{FIRST, REALM, STREAM};
use super::{Event, World};
use crate::id::{Sequence, Session, Source};
use crate::time::{MICROSECOND, MILLISECOND, Wall};
use crate::wire::{Flags, Header, Nak, Range, Receiver};

/// How many of the latest datagrams a stranger has heard.
const CAPTURED: usize = 64;
/// How many datagrams a stranger records. Then each new one takes the place of another.
const TAPE: usize = 4_096;
/// The stranger that floods.
const FLOODER: usize = 50;

impl World<'_> {
    pub(super) fn capture(&mut self, bytes: &[u8]) {
        if self.captured.len() >= CAPTURED {
            self.captured.pop_front();
        }
        self.captured.push_back(bytes.to_vec());
    }

    pub(super) fn record(&mut self, bytes: &[u8]) {
        if !self.scenario.is_recorded() {
            return;
        }
        if self.tape.len() < TAPE {
            self.tape.push(bytes.to_vec());
        } else {
            let at = self.below(TAPE);
            self.tape[at] = bytes.to_vec();
        }
    }

    /// A stranger plays something that it has recorded.
    fn play(&mut self) {
        if self.tape.is_empty() {
            return;
        }
        let at = self.below(self.tape.len());
        let bytes = self.tape[at].clone();
        let (senders, receivers) = (self.senders.len(), self.receivers.len());
        let to = match self.random.below(2) {
            0 => Node::Sender(self.below(senders)),
            _ => Node::Receiver(self.below(receivers)),
        };
        let from = match self.random.below(3) {
            0 => Node::Sender(self.below(senders)),
            1 => Node::Receiver(self.below(receivers)),
            _ => Node::Stranger(self.below(40)),
        };
        let leg = self.below(self.scenario.legs);
        self.at(self.now + self.scenario.delay, Event::Arrive { to, from, leg, bytes });
    }

    pub(super) fn foreign(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        if self.now >= what.until {
            return;
        }
        let pause = match what.kind {
            Kind::Twin => {
                let Some(twin) = self.twins.get(&fault) else { return };
                self.put_on_bus(*twin, 0, 0, Some(100));
                5 * MILLISECOND
            }
            Kind::Flood => {
                let sender = what.who % self.scenario.publishes.len();
                let bytes = self.forged_nak(sender, Source(77));
                let from = Node::Stranger(FLOODER);
                let to = Node::Sender(sender);
                self.at(self.now, Event::Arrive { to, from, leg: 0, bytes });
                10 * MICROSECOND
            }
            Kind::Recorder => {
                self.play();
                self.random.below(2 * MILLISECOND)
            }
            _ => {
                self.hostile(what.who, what.kind);
                1 + self.random.below(2 * MILLISECOND)
            }
        };
        self.at(self.now + pause, Event::Foreign { fault });
    }

    /// A stranger sends one datagram.
    fn hostile(&mut self, who: usize, kind: Kind) {
        let sender = who % self.scenario.publishes.len();
        let to = match self.random.below(2) {
            0 => Node::Sender(sender),
            _ => Node::Receiver(who % self.receivers.len()),
        };
        let from = Node::Stranger(usize::try_from(self.random.below(40)).unwrap());
        let bytes = self.hostile_bytes(sender, kind);
        let time = self.now + self.scenario.delay;
        self.at(time, Event::Arrive { to, from, leg: 0, bytes });
    }

    fn hostile_bytes(&mut self, sender: usize, kind: Kind) -> Vec<u8> {
        let count = self.captured.len();
        let mut bytes = match self.below(count) {
            _ if count == 0 => Vec::new(),
            at => self.captured[at].clone(),
        };
        let long = bytes.len() > 32;
        match self.random.below(9) {
            0 => {
                let length = self.below(200);
                bytes = (0..length).map(|_| self.byte()).collect();
            }
            1 => bytes.truncate(self.below(bytes.len() + 1)),
            // The same again, unchanged.
            2 => {}
            // Another source, or another session, of any type.
            3 if long => bytes[16 + 1] ^= 0x55,
            4 if long => bytes[20 + 1] ^= 0x55,
            // Another realm, or another version.
            5 if long => bytes[8 + self.below(4)] ^= 0x55,
            6 if long => bytes[2] ^= 3,
            // One datagram from far ahead.
            7 if long && !self.jumped => {
                self.jumped = true;
                bytes[24 + 3] ^= 0x20;
            }
            // With a key, anything else may be changed too: without one, it would be believed.
            _ if (self.scenario.keyed || kind == Kind::Noise) && long => {
                for _ in 0..=self.below(8) {
                    let place = self.below(bytes.len());
                    bytes[place] ^= 1 << self.below(8);
                }
            }
            _ => {
                let source = Source(u32::try_from(self.below(1 << 16)).unwrap());
                bytes = self.forged_nak(sender, source);
            }
        }
        bytes
    }

    /// A NAK for anything that a sender has sent.
    fn forged_nak(&mut self, sender: usize, source: Source) -> Vec<u8> {
        let node = &self.senders[sender];
        let Some(alive) = &node.sender else { return Vec::new() };
        let sent = alive.window().unsent().get() - FIRST;
        if sent == 0 {
            return Vec::new();
        }
        let first = FIRST + self.random.below(sent);
        let count = 1 + self.random.below(FIRST + sent - first);
        let range =
            Range::new(Sequence::new(first).unwrap(), u32::try_from(count).unwrap()).unwrap();
        let header = Header {
            flags: Flags::NONE,
            ttl: 1,
            realm: REALM,
            stream: STREAM,
            source: Source(u32::try_from(sender).unwrap()),
            session: Session(node.session),
            sequence: Sequence::ZERO,
        };
        let id = Receiver { source, session: Session(1) };
        let mut buffer = vec![0; 200];
        let length =
            Nak::encode(&header, id, Wall::default(), &[range], None, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(limit as u64)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.random.number().to_le_bytes()[0]
    }
}
