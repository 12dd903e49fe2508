//! What a hostile peer sends: noise, datagrams of others with a few changes, and questions in the name of others.
//!
//! None of these needs a key. With the bytes of a stream at hand, a stranger could do more in a realm without a key: it
//! could send messages in the name of a node, and they would be believed.

use toroni_proto::id::{Realm, Sequence, Session, Source, Stream};
use toroni_proto::random::Random;
use toroni_proto::time::Wall;
use toroni_proto::wire::{Flags, Header, Kind, Nak, NodeName, Range, Receiver, Status};

/// Where a datagram has its version, type, realm, source, session and sequence.
const VERSION: usize = 2;
const KIND: usize = 3;
const REALM: usize = 8;
const SOURCE: usize = 16;
const SESSION: usize = 20;
const SEQUENCE: usize = 24;
const HEADER: usize = 32;
/// How many datagrams of others it remembers.
const MOST: usize = 64;

/// Makes datagrams of a hostile peer, by a seed.
pub struct Forger {
    random: Random,
    captured: Vec<Vec<u8>>,
}

impl Forger {
    /// Makes one that knows nothing of others yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), captured: Vec::new() }
    }

    /// Remembers a datagram that it has heard. Returns whether it wants more of them.
    pub fn capture(&mut self, datagram: &[u8]) -> bool {
        if self.captured.len() < MOST && datagram.len() >= HEADER {
            self.captured.push(datagram.to_vec());
        }
        self.captured.len() < MOST
    }

    /// Makes random bytes, or a changed datagram of somebody else: cut off, or of another source, session, realm or version.
    pub fn noise(&mut self, datagram: &mut Vec<u8>) {
        datagram.clear();
        let kind = self.random.below(7);
        if kind < 2 || self.captured.is_empty() {
            let length = self.random.below(1_400);
            datagram.extend((0..length).map(|_| self.random.number().to_le_bytes()[0]));
            return;
        }
        let at = self.index(self.captured.len());
        datagram.extend_from_slice(&self.captured[at]);
        let change = self.random.number().to_le_bytes();
        match kind {
            2 => datagram.truncate(self.index(datagram.len())),
            3 => datagram[SOURCE..SOURCE + 4].copy_from_slice(&change[..4]),
            4 => datagram[SESSION..SESSION + 4].copy_from_slice(&change[..4]),
            5 => datagram[REALM..REALM + 4].copy_from_slice(&change[..4]),
            _ => datagram[VERSION] ^= change[0] | 1,
        }
    }

    /// Makes a SESSION of a source that does not exist, if one of somebody was heard; else noise.
    pub fn session(&mut self, datagram: &mut Vec<u8>) {
        let Some(known) = self.captured.iter().find(|it| it[KIND] == Kind::Session as u8) else {
            return self.noise(datagram);
        };
        datagram.clear();
        datagram.extend_from_slice(known);
        let source = self.random.number().to_le_bytes();
        datagram[SOURCE..SOURCE + 4].copy_from_slice(&source[..4]);
    }

    /// Makes a NAK of a receiver that does not exist, for all that was sent since the capture began.
    pub fn nak(&mut self, datagram: &mut Vec<u8>) {
        let receiver = self.receiver();
        let ranges = self.sent();
        self.encode(datagram, |header, buffer| {
            Nak::encode(&header, receiver, Wall::default(), &[ranges?], None, buffer).ok()
        });
    }

    /// Makes a STATUS of a receiver that does not exist, and holds the sender up if anybody may.
    pub fn status(&mut self, datagram: &mut Vec<u8>) {
        let status = Status {
            receiver: self.receiver(),
            window: 0,
            required: true,
            new: false,
            lost: self.random.number(),
            naks: self.random.number(),
            echo: Wall::default(),
            held_us: 0,
            dropped: 1,
            count: 1,
            nonce: 0,
            name: NodeName::new("stranger").expect("a name"),
        };
        self.encode(datagram, |header, buffer| status.encode(&header, None, buffer).ok());
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.random.below(length as u64)).unwrap_or(0)
    }

    fn receiver(&mut self) -> Receiver {
        let source = u32::try_from(self.random.below(1 << 32)).unwrap_or(0);
        Receiver { source: Source(source), session: Session(1) }
    }

    /// Returns the range from the first to the last datagram that was captured.
    fn sent(&self) -> Option<Range> {
        let sequences = || self.captured.iter().map(|it| u64::from_le_bytes(word(it, SEQUENCE)));
        let (first, last) = (sequences().min()?, sequences().max()?);
        let count = u32::try_from(last - first + 1).ok()?;
        Range::new(Sequence::new(first)?, count)
    }

    /// Addresses a stream that was heard. Noise, if there is none.
    fn encode(
        &mut self,
        datagram: &mut Vec<u8>,
        encode: impl FnOnce(Header, &mut [u8]) -> Option<usize>,
    ) {
        let header = self.captured.first().map(|known| Header {
            flags: Flags::NONE,
            ttl: 16,
            realm: Realm(u32::from_le_bytes(word(known, REALM))),
            stream: Stream(u16::from_le_bytes(word(known, REALM + 4))),
            source: Source(u32::from_le_bytes(word(known, SOURCE))),
            session: Session(u32::from_le_bytes(word(known, SESSION))),
            sequence: Sequence::new(u64::from_le_bytes(word(known, SEQUENCE)))
                .unwrap_or(Sequence::ZERO),
        });
        datagram.clear();
        datagram.resize(256, 0);
        match header.and_then(|header| encode(header, datagram)) {
            Some(length) => datagram.truncate(length),
            None => self.noise(datagram),
        }
    }
}

/// Reads a field of a datagram that has a whole header.
fn word<const N: usize>(datagram: &[u8], at: usize) -> [u8; N] {
    datagram[at..].first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::wire::{self, Body, Rules};

    /// A NAK and a STATUS without a captured stream are noise; with one, they are what they claim to be.
    #[test]
    fn questions_are_of_the_stream_that_was_heard() {
        let mut forger = Forger::new(7);
        let mut datagram = Vec::new();
        let realm = Realm::of(crate::rig::REALM);
        let rules = Rules { realm, keys: None, message_max: 0 };
        forger.nak(&mut datagram);
        assert!(wire::parse(&datagram, &rules, |_, _| Ok(())).is_err());

        let header = Header { sequence: Sequence::new(1_000).unwrap(), ..crate::rig::header() };
        let (receiver, mut buffer) = (Receiver { source: Source(1), session: Session(1) }, [0; 64]);
        let length =
            Nak::encode(&header, receiver, Wall::default(), &[], None, &mut buffer).unwrap();
        assert!(forger.capture(&buffer[..length]));
        forger.nak(&mut datagram);
        let parsed = wire::parse(&datagram, &rules, |_, _| Ok(())).unwrap();
        assert!(matches!(parsed.body, Body::Nak(_)) && parsed.header.source == header.source);
        forger.status(&mut datagram);
        let parsed = wire::parse(&datagram, &rules, |_, _| Ok(())).unwrap();
        assert!(matches!(parsed.body, Body::Status(_)));
        for _ in 0..1_000 {
            forger.noise(&mut datagram);
            forger.session(&mut datagram);
        }
    }
}
