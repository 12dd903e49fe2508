//! A server and its clients, of which some are slow, break their connections, come back where they were, and ask for
//! history.

use std::collections::VecDeque;

use super::{Counts, KEYS, LONGEST, counted};
use toroni_proto::audience::Name;
use toroni_proto::batcher::Now;
use toroni_proto::bounded::client::{self, Client};
use toroni_proto::bounded::server::{self, ClientId, Door, Server, Wanted};
use toroni_proto::config::tcp::{Pace, TcpConfig};
use toroni_proto::id::{Number, Realm, Series, Session, Source, Stream};
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::reassembly::Bound;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::tcp::Hello;
use toroni_proto::wire::{LostReason, NodeName, Start, TableName};

const CLIENTS: usize = 12;
const SETS: usize = 2;
/// More than the table of a stream has.
const TOPICS: u64 = 40;
static PAYLOAD: [u8; LONGEST + 1] = [1; LONGEST + 1];

/// Two sets: those whose pattern is `s/0`, and those whose pattern is `s/1`.
struct Sets;

impl Door for Sets {
    fn hello(&mut self, _: ClientId, hello: &Hello<'_>) -> Option<usize> {
        hello.patterns().next()?.as_str().strip_prefix("s/")?.parse().ok()
    }
}

struct Peer {
    client: Client,
    id: Option<ClientId>,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

struct World {
    now_ns: u64,
    random: Random,
    server: Server,
    peers: Vec<Peer>,
    next: u64,
    out: Counts,
    /// How often the machines have allocated.
    count: usize,
    replayed: u64,
}

fn config(pace: Pace) -> TcpConfig {
    TcpConfig {
        pace,
        latency_bound_ns: 50 * MILLISECOND,
        queue_bytes: 256 << 10,
        frame_memory_bytes: 512 << 10,
        batch_bytes: 2_000,
        message_max_bytes: LONGEST as u64,
        hold_limit_ns: 100 * MILLISECOND,
        stall_ns: 300 * MILLISECOND,
        heartbeat_ns: 50 * MILLISECOND,
        silence_ns: 400 * MILLISECOND,
        retry_ns: 10 * MILLISECOND,
        retry_max_ns: 50 * MILLISECOND,
        clients: CLIENTS as u64 - 1,
        sets: SETS as u64,
        topics: 32,
        ..TcpConfig::default()
    }
}

fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

fn move_bytes(from: &mut VecDeque<u8>, room: &mut [u8]) -> usize {
    let length = from.len().min(room.len());
    room.iter_mut().zip(from.drain(..length)).for_each(|(place, byte)| *place = byte);
    length
}

impl World {
    fn new(pace: Pace, seed: u64) -> Self {
        let (config, now) = (config(pace), Monotonic::from_ns(SECOND));
        config.check().unwrap();
        let (realm, keys, source) = (Realm(1), Some(KEYS), Source(1));
        let session = Session(1);
        let identity = server::Identity { realm, keys, source, session, instance: [1; 16] };
        let patterns = [TableName::new("plant/**").unwrap()];
        let served = |stream| server::Served {
            source,
            session,
            series: Series(1),
            stream: Stream(stream),
            feed: false,
            next: number(1_000),
            past: Past::NONE,
            patterns: &patterns,
        };
        let mut made = 0;
        let streams = [served(0), served(1)];
        let server = counted(&mut made, || {
            Server::new(&config, &identity, &streams, Random::new(seed), now).unwrap()
        });
        assert!(made > 0, "a counter that counts nothing proves nothing");
        let peer = |at: usize| {
            let source = Source(u32::try_from(at).unwrap() + 10);
            let name = Name::new(NodeName::new("peer").unwrap());
            let identity = client::Identity { realm, keys, source, session, name };
            let pattern = TableName::new(["s/0", "s/1"][at % SETS]).unwrap();
            let random = Random::new(seed + at as u64);
            let client = Client::new(&config, &identity, &[pattern], random, now).unwrap();
            Peer { client, id: None, to_server: VecDeque::new(), to_client: VecDeque::new() }
        };
        Self {
            now_ns: SECOND,
            random: Random::new(seed),
            server,
            peers: (0..CLIENTS).map(peer).collect(),
            next: 1_000,
            out: Counts::default(),
            count: 0,
            replayed: 0,
        }
    }

    fn now(&self) -> Now {
        let (monotonic, wall) = (Monotonic::from_ns(self.now_ns), Wall::from_ns(self.now_ns));
        Now { monotonic, wall }
    }

    fn publish(&mut self) {
        let now = self.now();
        let stream = usize::try_from(self.random.below(2)).unwrap();
        let topic = format!("plant/{}", self.random.below(TOPICS));
        let name = TableName::new(&topic).unwrap();
        let length = match self.random.below(20) {
            0 => self.random.between(2_000, 9_000),
            1 => LONGEST as u64 + 1,
            _ => self.random.below(400),
        };
        let payload = &PAYLOAD[..usize::try_from(length).unwrap()];
        let lost = self.random.below(50) == 0;
        let (next, server) = (self.next, &mut self.server);
        counted(&mut self.count, || {
            for set in 0..SETS {
                // Who is held misses it: only the order of calls matters here.
                let _ = match server.topic(stream, name).filter(|_| !lost) {
                    None => {
                        let until = number(next + 1);
                        server.lost(now, stream, set, 1, until, LostReason::Overtaken)
                    }
                    Some(topic) => {
                        let start = start(topic, next);
                        server.message(now, stream, set, start, payload)
                    }
                };
            }
            server.taken(stream, number(next + 1));
        });
        self.next += 1;
    }

    fn replay(&mut self) {
        let now = self.now();
        let (mut turns, server) = (0, &mut self.server);
        counted(&mut self.count, || {
            while let Some(wanted) = server.next_replay(now.monotonic) {
                bring(server, now, &wanted);
                turns += 1;
            }
        });
        self.replayed += turns;
    }

    /// Lets the server write to its clients. Some are slow.
    fn serve(&mut self) {
        let now = self.now().monotonic;
        counted(&mut self.count, || self.server.begin_turn());
        loop {
            let server = &mut self.server;
            let Some(client) = counted(&mut self.count, || server.next_ready()) else { break };
            let at = self.peers.iter().position(|one| one.id == Some(client)).unwrap();
            let room = if at < 4 { 2_000 } else { 1 << 20 };
            loop {
                let machine = &mut self.server;
                let sent = counted(&mut self.count, move || machine.transmit(now, client));
                let Some(bytes) = sent else { break };
                let pipe = &mut self.peers[at].to_client;
                let length = bytes.len().min(room - pipe.len().min(room));
                pipe.extend(&bytes[..length]);
                let server = &mut self.server;
                counted(&mut self.count, || server.wrote(now, client, length));
                if length == 0 {
                    counted(&mut self.count, || server.blocked(now, client));
                    break;
                }
            }
        }
    }

    fn exchange(&mut self) {
        let now = self.now().monotonic;
        let Self { random, server, peers, out, count, .. } = self;
        for (at, peer) in peers.iter_mut().enumerate() {
            let Peer { client, id, to_server, to_client } = peer;
            if random.below(300) == 0 {
                id.take().inspect(|id| counted(count, || server.disconnected(*id)));
                counted(count, || client.disconnected(now));
            }
            // The slow ones hear nothing most of the time.
            if at >= 4 || random.below(10) == 0 {
                let length = move_bytes(to_client, counted(count, || client.room()));
                counted(count, || client.received(now, length, out));
                id.inspect(|id| counted(count, || server.writable(*id)));
            }
            if random.below(100) == 0 {
                let stream = Stream(u16::try_from(random.below(2)).unwrap());
                let back = random.below(200);
                counted(count, || {
                    let mark = client.marks().find(|mark| mark.stream == stream);
                    if let Some(mark) = mark {
                        let first = mark.next.minus(back).max(number(1_000));
                        client.replay(mark.source, stream, first, None);
                    }
                });
            }
            loop {
                let machine = &mut *client;
                let Some(bytes) = counted(count, move || machine.transmit()) else { break };
                to_server.extend(bytes);
                let length = bytes.len();
                counted(count, || client.wrote(length));
            }
            if let Some(id) = *id {
                let length = move_bytes(to_server, counted(count, || server.room(id)));
                counted(count, || server.received(now, id, length, &mut Sets));
            }
            counted(count, || client.handle_timeout(now));
            while let Some(event) = counted(count, || client.poll_event()) {
                match event {
                    client::Event::Connect => {
                        (*to_server, *to_client) = (VecDeque::new(), VecDeque::new());
                        if let Some(old) = id.take() {
                            counted(count, || server.disconnected(old));
                        }
                        while counted(count, || server.poll_event()).is_some() {}
                        *id = counted(count, || server.accept(now, [at.to_le_bytes()[0]; 16]));
                        counted(count, || client.connected(now, [3; 16]));
                        if id.is_none() {
                            to_client.extend(counted(count, || server.farewell()));
                        }
                    }
                    client::Event::Live | client::Event::Down(_) => {}
                }
            }
        }
    }

    fn close_ended(&mut self) {
        let server = &mut self.server;
        while let Some(server::Event::Closed { client, .. }) =
            counted(&mut self.count, || server.poll_event())
        {
            for peer in self.peers.iter_mut().filter(|peer| peer.id == Some(client)) {
                peer.id = None;
            }
        }
    }

    fn step(&mut self) {
        for _ in 0..self.random.below(8) {
            self.publish();
        }
        let now = self.now();
        counted(&mut self.count, || {
            self.server.flush(now);
            self.server.handle_timeout(now);
        });
        self.replay();
        self.serve();
        self.close_ended();
        self.exchange();
        self.close_ended();
        let server = &self.server;
        counted(&mut self.count, || server.poll_timeout());
        self.now_ns += MILLISECOND;
    }
}

fn start(topic: toroni_proto::wire::TopicNumber, next: u64) -> Start {
    let (to_descendants, published, origin) = (false, None, None);
    Start { topic, number: number(next), to_descendants, published, origin }
}

/// History: all messages have the same topic, and of the oldest nothing is left.
fn bring(server: &mut Server, now: Now, wanted: &Wanted) {
    let gone = number(wanted.end.get().saturating_sub(150));
    if wanted.from < gone {
        let count = gone.since(wanted.from);
        let (bound, reason) = (Bound::AtMost, LostReason::Gone);
        if server.replay_lost(now, wanted, count, bound, gone, reason).is_ok() {
            server.replay_to(now, wanted, gone);
        }
        return;
    }
    let topic = server.topic(wanted.stream, TableName::new("plant/0").unwrap());
    for value in wanted.from.get()..wanted.end.get() {
        let payload = &PAYLOAD[..if value % 30 == 0 { 6_000 } else { 100 }];
        let Some(topic) = topic else { break };
        if server.replay_message(now, wanted, start(topic, value), payload).is_err() {
            server.replay_to(now, wanted, wanted.from);
            return;
        }
    }
    server.replay_to(now, wanted, wanted.end);
}

#[test]
fn over_tcp_nothing_allocates() {
    for (pace, seed) in [(Pace::Source, 1), (Pace::Source, 2), (Pace::Receiver, 3)] {
        let mut world = World::new(pace, seed);
        for _ in 0..3_000 {
            world.step();
        }
        assert_eq!(world.count, 0, "{pace:?}, seed {seed}");
        let Counts { messages, losses } = world.out;
        let counters = world.server.counters();
        assert!(messages > 5_000 && losses > 20, "{messages} messages, {losses} losses");
        assert!(world.replayed > 50, "{} pieces of history", world.replayed);
        assert!(counters.accepted > 50 && counters.full > 0, "{counters:?}");
        assert!(pace == Pace::Receiver || counters.left_out > 50, "{counters:?}");
        assert_eq!(counters.rejects.iter().sum::<u64>(), 0, "{counters:?}");
    }
}
