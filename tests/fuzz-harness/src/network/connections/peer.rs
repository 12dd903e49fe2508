//! A client, and a connection.

use super::super::{KEYS, REALM};
use super::history::History;
use super::oracle::{Judge, Oracle};
use std::collections::VecDeque;
use toroni_proto::audience::Name;
use toroni_proto::bounded::client::{Client, Identity};
use toroni_proto::bounded::server::ClientId;
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::id::{Realm, Session, Source};
use toroni_proto::random::Random;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::tcp::{Kind, Resume};
use toroni_proto::wire::{NodeName, TableName};

/// Where the header of a frame has its type and its flags, and the flag of replays.
const KIND_AT: usize = 4;
const FLAGS_AT: usize = 5;
const REPLAY: u8 = 1;

/// What the clients want. Two of them share a set of patterns.
pub(super) const PATTERNS: [&[&str]; 3] = [&["**"], &["t/1", "t/2"], &["**"]];

/// A connection between a client, or a stranger, and the server.
pub(super) struct Connection {
    /// The client's end, while it is open. A stranger has none.
    pub(super) peer: Option<usize>,
    /// The server's end, while it is open.
    pub(super) server: Option<ClientId>,
    pub(super) to_server: VecDeque<u8>,
    pub(super) to_client: VecDeque<u8>,
    /// What each end has sent.
    pub(super) by_client: Said,
    pub(super) by_server: Said,
    /// How often the caller of the client has asked for history.
    pub(super) asked: usize,
    /// How many bytes the server has received.
    pub(super) heard: usize,
}

/// How many frames one end of a connection has begun to send.
#[derive(Default)]
pub(super) struct Said {
    pub(super) frames: usize,
    /// Frames that say that a replay begins or ends.
    pub(super) replays: usize,
    /// Bytes of frames that bring history.
    pub(super) history: u64,
    is_within: bool,
}

impl Said {
    /// Counts a frame if it begins with these bytes, of which the connection takes `length`.
    pub(super) fn count(&mut self, bytes: &[u8], length: usize) {
        if !self.is_within {
            let in_replay = bytes[FLAGS_AT] & REPLAY != 0;
            self.frames += 1;
            self.replays += usize::from(bytes[KIND_AT] == Kind::Replay as u8);
            if in_replay && [Kind::Data as u8, Kind::Gap as u8].contains(&bytes[KIND_AT]) {
                self.history += bytes.len() as u64;
            }
        }
        self.is_within = length < bytes.len();
    }
}

impl Connection {
    pub(super) fn new(peer: Option<usize>, server: Option<ClientId>) -> Self {
        Self {
            peer,
            server,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            by_client: Said::default(),
            by_server: Said::default(),
            asked: 0,
            heard: 0,
        }
    }
}

/// Moves bytes into memory that receives, and returns how many.
pub(super) fn receive(from: &mut VecDeque<u8>, most: usize, room: &mut [u8]) -> usize {
    let length = most.min(from.len()).min(room.len());
    room.iter_mut().zip(from.drain(..length)).for_each(|(place, byte)| *place = byte);
    length
}

pub(super) struct Peer {
    pub(super) client: Client,
    pub(super) oracle: Oracle,
    /// Whether bytes of one of its connections were changed.
    pub(super) is_disturbed: bool,
}

impl Peer {
    pub(super) fn new(
        at: usize,
        streams: usize,
        config: &TcpConfig,
        keyed: bool,
        now: u64,
    ) -> Self {
        Self {
            client: client(at, config, keyed, now),
            oracle: Oracle::new(PATTERNS[at], streams),
            is_disturbed: false,
        }
    }

    /// Kills the client, and starts it with its marks.
    pub(super) fn start_again(&mut self, at: usize, config: &TcpConfig, keyed: bool, now: u64) {
        let marks: Vec<Resume> = self.client.marks().collect();
        self.client = client(at, config, keyed, now);
        for mark in marks {
            assert!(self.client.remember(mark));
        }
        self.cut_off();
    }

    /// What was asked for again is forgotten, unless it has begun: then the next connection continues it.
    pub(super) fn cut_off(&mut self) {
        for mark in self.client.marks() {
            let stream = usize::from(mark.stream.0);
            if self.oracle.marks[stream].is_none_or(|known| mark.next.get() >= known) {
                self.oracle.asked[stream] = None;
            }
        }
    }

    pub(super) fn receive(
        &mut self,
        from: &mut VecDeque<u8>,
        most: usize,
        now: Monotonic,
        history: &History,
    ) -> usize {
        let length = receive(from, most, self.client.room());
        if length > 0 {
            let mut judge = Judge { oracle: &mut self.oracle, lists: &history.lists };
            self.client.received(now, length, &mut judge);
        }
        if self.oracle.is_honest {
            for mark in self.client.marks() {
                self.oracle.marks[usize::from(mark.stream.0)].get_or_insert(mark.next.get());
            }
        }
        length
    }
}

fn client(at: usize, config: &TcpConfig, keyed: bool, now: u64) -> Client {
    let identity = Identity {
        realm: Realm::of(REALM),
        keys: keyed.then_some(KEYS),
        source: Source(50 + u32::try_from(at).unwrap()),
        session: Session(1),
        name: Name::new(NodeName::new("line-9").unwrap()),
    };
    let patterns: Vec<TableName<'_>> =
        PATTERNS[at].iter().map(|name| TableName::new(name).unwrap()).collect();
    let random = Random::new(now ^ at as u64);
    Client::new(config, &identity, &patterns, random, Monotonic::from_ns(now)).unwrap()
}
