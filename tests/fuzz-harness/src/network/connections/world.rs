//! The server, its clients, and what lies on the connections between them.

use super::super::{KEYS, REALM};
use super::history::{History, SETS, number, of_frames};
use super::oracle::Sent;
use super::peer::{Connection, PATTERNS, Peer};
use toroni_proto::batcher::Now;
use toroni_proto::bounded::server::{Identity, Served, Server};
use toroni_proto::config::tcp::{Pace, TcpConfig};
use toroni_proto::id::{Number, Realm, Series, Session, Source, Stream};
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::TableName;

pub(super) const SOURCE: Source = Source(7);
/// The first number: near the greatest, where arithmetic would overflow first.
pub(super) const FIRST: u64 = Number::MAX.get() - 1_000_000;
pub(super) const STREAMS: usize = 2;
const LONGEST: usize = 100_000;
/// Names that are used: more than the table of a stream has.
const TOPICS: u8 = 36;
/// The longest that anything takes after the faults: a client that holds the server, then a pause.
const QUIET_NS: u64 = 3 * SECOND;

pub(super) struct World {
    pub(super) now_ns: u64,
    pub(super) config: TcpConfig,
    pub(super) keyed: bool,
    pub(super) server: Server,
    pub(super) session: u32,
    /// Whether the server was told to end, and whether it still sends what it has.
    pub(super) is_ended: bool,
    pub(super) is_draining: bool,
    /// Since when this server runs, and how many bytes of history it has sent.
    pub(super) served_ns: u64,
    pub(super) replayed: u64,
    pub(super) history: History,
    pub(super) peers: Vec<Peer>,
    pub(super) connections: Vec<Connection>,
    /// How much the kernel takes before a connection is blocked.
    pub(super) buffer: usize,
    pub(super) nonces: u64,
    /// What clients have sent, for strangers.
    pub(super) said: Vec<u8>,
    /// Whether no stranger came, and no bytes were changed.
    pub(super) is_peaceful: bool,
}

fn config(choice: u8) -> TcpConfig {
    let config = TcpConfig {
        pace: if choice & 2 == 0 { Pace::Source } else { Pace::Receiver },
        latency_bound_ns: 50 * MILLISECOND,
        queue_bytes: 256 << 10,
        frame_memory_bytes: 512 << 10,
        batch_bytes: if choice & 4 == 0 { 512 } else { 8_000 },
        batch_delay_ns: if choice & 8 == 0 { 0 } else { 2 * MILLISECOND },
        message_max_bytes: LONGEST as u64,
        hold_limit_ns: 100 * MILLISECOND,
        stall_ns: 300 * MILLISECOND,
        hello_ns: 300 * MILLISECOND,
        heartbeat_ns: 50 * MILLISECOND,
        silence_ns: 400 * MILLISECOND,
        retry_ns: 10 * MILLISECOND,
        retry_max_ns: 100 * MILLISECOND,
        replay_rate: Some(if choice & 16 == 0 { 20_000_000 } else { 1_000_000_000 }),
        data_rate: None,
        clients: 5,
        sets: SETS as u64,
        topics: 32,
    };
    assert_eq!(config.check(), Ok(()));
    config
}

pub(super) fn server(
    config: &TcpConfig,
    keyed: bool,
    session: u32,
    history: &History,
    now: Monotonic,
) -> Server {
    let pattern = [TableName::new("t/*").unwrap()];
    let streams: Vec<Served<'_>> = (0..)
        .zip(&history.next)
        .map(|(stream, next)| Served {
            source: SOURCE,
            session: Session(session),
            series: Series(3),
            stream: Stream(stream),
            feed: false,
            next: number(*next),
            past: Past::NONE,
            patterns: &pattern,
        })
        .collect();
    let identity = Identity {
        realm: Realm::of(REALM),
        keys: keyed.then_some(KEYS),
        source: SOURCE,
        session: Session(session),
        instance: [session.to_le_bytes()[0]; 16],
    };
    Server::new(config, &identity, &streams, Random::new(session.into()), now).unwrap()
}

impl World {
    pub(super) fn new(choice: u8) -> Self {
        let (config, keyed) = (config(choice), choice & 1 != 0);
        let kept = if choice & 32 == 0 { usize::MAX } else { 5 };
        let buffer = [64 << 10, 3_000, 200, 1_000_000][usize::from(choice >> 6)];
        let history = History::new(STREAMS, FIRST, kept);
        let now = SECOND;
        Self {
            now_ns: now,
            keyed,
            server: server(&config, keyed, 1, &history, Monotonic::from_ns(now)),
            session: 1,
            is_ended: false,
            is_draining: false,
            served_ns: now,
            replayed: 0,
            history,
            peers: (0..PATTERNS.len())
                .map(|at| Peer::new(at, STREAMS, &config, keyed, now))
                .collect(),
            connections: Vec::new(),
            buffer,
            nonces: 0,
            said: Vec::new(),
            is_peaceful: true,
            config,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now {
            monotonic: Monotonic::from_ns(self.now_ns),
            wall: Wall::from_ns(1_700_000_000_000_000_000 + self.now_ns),
        }
    }

    /// How many bytes of history the server may have sent until now. Each client may get the rest of a message that was begun.
    pub(super) fn replay_most(&self) -> u64 {
        let allowed_ns = self.now_ns - self.served_ns + 10 * MILLISECOND;
        let bits =
            u128::from(self.config.replay_rate()) * u128::from(allowed_ns) / u128::from(SECOND);
        u64::try_from(bits / 8).unwrap() + self.config.clients * of_frames(LONGEST)
    }

    pub(super) fn nonce(&mut self) -> [u8; 16] {
        self.nonces += 1;
        let mut nonce = [9; 16];
        nonce[..8].copy_from_slice(&self.nonces.to_le_bytes());
        nonce
    }

    /// Publishes a message. The first argument says on which stream, after how many numbers of others, and its topic.
    pub(super) fn publish(&mut self, choice: u8, length: u16) {
        let stream = usize::from(choice & 1);
        let skipped = if choice & 2 == 0 { 0 } else { u64::from(choice >> 4) };
        let topic = if length.is_multiple_of(5) { choice % TOPICS } else { choice >> 2 & 3 };
        // Mostly short ones, and some for which a queue is too short.
        let length = usize::from(length);
        let length = if length < 50_000 { length % 1_500 } else { (length - 50_000) * 7 };
        let missed = choice == 77 || length > LONGEST;
        self.history.publish(stream, skipped, Sent { topic, length, missed });
    }

    pub(super) fn publish_many(&mut self, choice: u8) {
        for at in 0..choice / 2 {
            self.publish(choice ^ at, u16::from(at) * 90);
        }
    }

    pub(super) fn flush(&mut self) {
        self.server.flush(self.now());
    }

    pub(super) fn forget_connections(&mut self) {
        self.connections.retain(|one| one.peer.is_some() || one.server.is_some());
    }

    pub(super) fn connection(&self, choice: u8) -> Option<usize> {
        usize::from(choice).checked_rem(self.connections.len())
    }

    /// Lets time pass. Everybody does what is due.
    pub(super) fn advance(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
        let now = self.now();
        self.server.handle_timeout(now);
        self.close_ended();
        for peer in &mut self.peers {
            peer.client.handle_timeout(now.monotonic);
        }
        self.client_events();
    }

    pub(super) fn check(&self) {
        let counters = self.server.counters();
        let bound = self.config.latency_bound_ns;
        assert!(
            self.config.pace == Pace::Receiver || counters.waited_max_ns <= bound,
            "a frame waited {} ns, beyond {bound} ns",
            counters.waited_max_ns
        );
        if self.is_peaceful {
            assert_eq!(counters.rejects.iter().sum::<u64>(), 0, "{counters:?}");
        }
        for (at, peer) in self.peers.iter().enumerate().filter(|(_, peer)| !peer.is_disturbed) {
            let counters = peer.client.counters();
            assert_eq!(counters.rejects.iter().sum::<u64>(), 0, "client {at}: {counters:?}");
        }
    }

    /// How long all clients take to hear everything from replays, as often as [`Self::talk`] says.
    fn replays_ns(&self) -> u64 {
        let bytes = 3 * self.peers.len() as u64 * self.history.frame_bytes();
        let ns = u128::from(8 * bytes) * u128::from(SECOND) / u128::from(self.config.replay_rate());
        u64::try_from(ns).unwrap()
    }

    /// Whether every honest client gets what is new.
    fn is_live(&self) -> bool {
        self.peers.iter().all(|one| !one.oracle.is_honest || one.client.is_live())
    }

    /// Lets everybody talk without faults. Then every honest client is live, and has or missed everything.
    pub(super) fn finish(mut self) {
        if self.is_ended || self.is_draining {
            self.server_starts_again();
        }
        for at in 0..self.connections.len() {
            if let (Some(client), None) = (self.connections[at].server, self.connections[at].peer) {
                self.server.disconnected(client);
            }
        }
        self.close_ended();
        self.buffer = 1 << 20;
        for round in 0..2 {
            let end = self.now_ns + QUIET_NS;
            let latest = end + self.replays_ns();
            while self.now_ns < end || (self.now_ns < latest && !self.is_live()) {
                self.advance(10 * MILLISECOND);
                self.talk();
                self.check();
            }
            if round == 0 {
                // Every stream has a last message.
                for stream in 0..STREAMS {
                    let last = Sent { topic: 1, length: 10, missed: false };
                    self.history.publish(stream, 0, last);
                }
            }
        }
        for (at, peer) in self.peers.iter().enumerate().filter(|(_, one)| one.oracle.is_honest) {
            assert!(peer.client.is_live(), "client {at} is not live: {:?}", peer.client.counters());
            for stream in 0..STREAMS {
                let (list, end) = (&self.history.lists[stream], self.history.next[stream]);
                peer.oracle.check_complete(stream, list, end);
            }
        }
    }
}
