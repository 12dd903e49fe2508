//! One server, one or two clients, and every step by hand.

use super::*;
use crate::arrivals::{Flow, Inbox};
use crate::audience::Name;
use crate::bounded::client::{self, Client};
use crate::config::tcp::Pace;
use crate::past::Past;
use crate::reassembly::{Bound, Loss, Message};
use crate::receiver::End;
use crate::time::{MILLISECOND, Wall};
use crate::wire::samples::KEYS;
use crate::wire::{LostReason, NodeName, Start};

const REALM: Realm = Realm(7);

/// Admits everybody to the set that the first pattern names: `s/0`, `s/1`, …
struct Open;

impl Door for Open {
    fn hello(&mut self, _: ClientId, hello: &Hello<'_>) -> Option<usize> {
        hello.patterns().next()?.as_str().strip_prefix("s/")?.parse().ok()
    }
}

#[derive(Default)]
struct Out(Vec<String>);

impl Inbox for Out {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let bytes = message.parts.length();
        self.0.push(format!("{}:{} {bytes}", flow.stream, message.start.number));
    }
    fn topic(&mut self, _: Flow, number: TopicNumber, name: TableName<'_>) {
        self.0.push(format!("{} is {}", number.get(), name.as_str()));
    }
    fn loss(&mut self, flow: Flow, loss: Loss) {
        let Loss { count, bound, reason, until, .. } = loss;
        let until = until.map_or(0, Number::get);
        self.0.push(format!("{}: {count} {bound:?} {reason:?} below {until}", flow.stream));
    }
    fn ends(&mut self, flow: Flow, end: End) {
        self.0.push(format!("{} has ended: {end:?}", flow.stream));
    }
}

fn config() -> TcpConfig {
    TcpConfig {
        queue_bytes: 256 << 10,
        frame_memory_bytes: 512 << 10,
        batch_bytes: 1_024,
        message_max_bytes: 20_000,
        clients: 3,
        sets: 2,
        topics: 32,
        ..TcpConfig::default()
    }
}

fn at(ms: u64) -> Now {
    let ns = ms * MILLISECOND;
    Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
}

fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

struct Bench {
    server: Server,
    keys: Option<Keys>,
    next: u64,
}

struct Peer {
    id: ClientId,
    client: Client,
    out: Out,
}

fn bench(config: &TcpConfig, keys: Option<Keys>) -> Bench {
    let identity =
        Identity { realm: REALM, keys, source: Source(1), session: Session(2), instance: [3; 16] };
    let served = |stream| Served {
        source: Source(1),
        session: Session(2),
        series: Series(4),
        stream: Stream(stream),
        feed: false,
        next: number(100),
        past: Past::NONE,
        patterns: &[],
    };
    let streams = [served(0), served(1)];
    let now = at(0).monotonic;
    let server = Server::new(config, &identity, &streams, Random::new(1), now).unwrap();
    Bench { server, keys, next: 100 }
}

impl Bench {
    fn client(&self, set: usize, ms: u64) -> Client {
        let mut client = self.waiting(set, ms);
        assert_eq!(client.poll_event(), Some(client::Event::Connect));
        client.connected(at(ms).monotonic, [5; 16]);
        client
    }

    /// A client that waits to be connected.
    fn waiting(&self, set: usize, ms: u64) -> Client {
        self.waiting_with(&config(), set, ms)
    }

    fn waiting_with(&self, config: &TcpConfig, set: usize, ms: u64) -> Client {
        let identity = client::Identity {
            realm: REALM,
            keys: self.keys,
            source: Source(9),
            session: Session(1),
            name: Name::new(NodeName::new("peer").unwrap()),
        };
        let pattern = format!("s/{set}");
        let patterns = [TableName::new(&pattern).unwrap()];
        let now = at(ms).monotonic;
        Client::new(config, &identity, &patterns, Random::new(2), now).unwrap()
    }

    fn join(&mut self, set: usize, ms: u64) -> Peer {
        let client = self.client(set, ms);
        self.connect(client, ms)
    }

    fn connect(&mut self, client: Client, ms: u64) -> Peer {
        let id = self.server.accept(at(ms).monotonic, [6; 16]).unwrap();
        let mut peer = Peer { id, client, out: Out::default() };
        for _ in 0..3 {
            self.exchange(&mut peer, ms);
        }
        peer
    }

    /// Joins with a client that wants only history.
    fn historian(&mut self) -> Peer {
        let client = self.waiting(0, 0).only_history();
        self.join_with(client)
    }

    fn join_with(&mut self, mut client: Client) -> Peer {
        assert_eq!(client.poll_event(), Some(client::Event::Connect));
        client.connected(at(0).monotonic, [5; 16]);
        self.connect(client, 0)
    }

    /// Moves all bytes in both directions, one turn long. Returns how many the server sent.
    fn exchange(&mut self, peer: &mut Peer, ms: u64) -> usize {
        let (now, mut sent) = (at(ms).monotonic, 0);
        while let Some(bytes) = peer.client.transmit() {
            let (length, bytes) = (bytes.len(), bytes.to_vec());
            peer.client.wrote(length);
            if let Some(room) = self.server.room(peer.id).get_mut(..length) {
                room.copy_from_slice(&bytes);
                self.server.received(now, peer.id, length, &mut Open);
            }
        }
        while let Some(bytes) = self.server.transmit(now, peer.id) {
            let (length, bytes) = (bytes.len(), bytes.to_vec());
            self.server.wrote(now, peer.id, length);
            sent += length;
            if let Some(room) = peer.client.room().get_mut(..length) {
                room.copy_from_slice(&bytes);
                peer.client.received(now, length, &mut peer.out);
            }
        }
        sent
    }

    /// Brings all the history that a client can take now: messages of this length, or losses. Returns how many bytes the server
    /// sent.
    fn bring(&mut self, peer: &mut Peer, ms: u64, length: Option<usize>) -> usize {
        let topic = self.server.topic(0, TableName::new("a/b").unwrap()).unwrap();
        let mut sent = self.exchange(peer, ms);
        loop {
            let due = self.server.replay_due();
            let Some(wanted) = self.server.next_replay(at(ms).monotonic) else { return sent };
            assert!(due.is_some_and(|due| due <= at(ms).monotonic), "{ms} ms: {due:?}");
            let mut reached = wanted.end;
            for value in wanted.from.get()..wanted.end.get() {
                let (number, published, origin) = (number(value), None, None);
                let start = Start { topic, number, to_descendants: false, published, origin };
                let (until, reason) = (number.plus(1), LostReason::Topic);
                let given = match length {
                    Some(length) => {
                        self.server.replay_message(at(ms), &wanted, start, &vec![1; length])
                    }
                    None => {
                        self.server.replay_lost(at(ms), &wanted, 1, Bound::Exact, until, reason)
                    }
                };
                if given.is_err() {
                    reached = wanted.from;
                    break;
                }
            }
            self.server.replay_to(at(ms), &wanted, reached);
            sent += self.exchange(peer, ms);
        }
    }

    /// Gives the next message to a set.
    fn give(&mut self, ms: u64, stream: usize, set: usize, length: usize) -> Result<(), Held> {
        let topic = self.server.topic(stream, TableName::new("a/b").unwrap()).unwrap();
        let start = Start {
            topic,
            number: number(self.next),
            to_descendants: false,
            published: None,
            origin: None,
        };
        self.server.message(at(ms), stream, set, start, &vec![1; length])
    }

    fn publish(&mut self, ms: u64, stream: usize, set: usize, length: usize) -> Result<(), Held> {
        self.give(ms, stream, set, length)?;
        self.next += 1;
        self.server.taken(stream, number(self.next));
        self.server.flush(at(ms));
        Ok(())
    }

    fn closed(&mut self) -> Option<Bye> {
        let Event::Closed { reason, .. } = self.server.poll_event()?;
        Some(reason)
    }
}

impl Peer {
    fn got(&mut self) -> Vec<String> {
        core::mem::take(&mut self.out.0)
    }
}

#[test]
fn a_client_gets_what_its_set_matches_with_and_without_a_key() {
    for keys in [None, Some(KEYS)] {
        let mut bench = bench(&config(), keys);
        let (mut one, mut other) = (bench.join(0, 0), bench.join(1, 0));
        assert!(one.client.is_live() && other.client.is_live());
        bench.publish(1, 0, 0, 5).unwrap();
        bench.publish(1, 1, 1, 6).unwrap();
        bench.publish(1, 0, 0, 7).unwrap();
        bench.exchange(&mut one, 1);
        bench.exchange(&mut other, 1);
        assert_eq!(one.got(), ["0 is a/b", "0:100 5", "0:102 7"]);
        assert_eq!(other.got(), ["0 is a/b", "1:101 6"]);
    }
}

#[test]
fn a_late_client_is_told_what_it_missed_and_no_frame_is_older_than_the_bound() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    for ms in [0, 100, 200, 300] {
        bench.publish(ms, 0, 0, 5).unwrap();
    }
    let queue = |bench: &Bench| bench.server.queues().map(|(_, it)| it).collect::<Vec<_>>();
    let [waiting] = queue(&bench)[..] else { panic!("one client") };
    assert_eq!((waiting.since, waiting.left_out), (Some(at(0).monotonic), 0));
    assert!(waiting.bytes > 4 * 5);
    bench.exchange(&mut peer, 360);
    assert_eq!(queue(&bench), [Waiting { bytes: 0, since: None, left_out: 2 }]);
    assert_eq!(peer.got(), ["0: 2 Exact Budget below 102", "0 is a/b", "0:102 5", "0:103 5"]);
    assert!(bench.server.counters().waited_max_ns <= 250 * MILLISECOND);
    assert_eq!(bench.server.counters().left_out, 2);
}

#[test]
fn a_frame_that_was_begun_is_finished_however_late() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.publish(0, 0, 0, 900).unwrap();
    let now = at(0).monotonic;
    // The names go first.
    let names = bench.server.transmit(now, peer.id).unwrap().to_vec();
    peer.client.room()[..names.len()].copy_from_slice(&names);
    peer.client.received(now, names.len(), &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, names.len());
    let begun = bench.server.transmit(now, peer.id).unwrap()[..10].to_vec();
    peer.client.room()[..10].copy_from_slice(&begun);
    peer.client.received(now, 10, &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, 10);
    bench.publish(1, 0, 0, 5).unwrap();
    // Its memory is overwritten, too.
    let other = bench.join(1, 1);
    for _ in 0..700 {
        bench.publish(2, 0, 1, 900).unwrap();
        while let Some(bytes) = bench.server.transmit(at(2).monotonic, other.id) {
            let length = bytes.len();
            bench.server.wrote(at(0).monotonic, other.id, length);
        }
    }
    bench.exchange(&mut peer, 900);
    let got = peer.got();
    assert_eq!(got, ["0 is a/b", "0:100 900", "0: 1 Exact Memory below 102"]);
}

#[test]
fn a_connection_that_ends_finishes_its_frame_before_bye() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.publish(0, 0, 0, 900).unwrap();
    bench.publish(0, 0, 0, 900).unwrap();
    let now = at(0).monotonic;
    let names = bench.server.transmit(now, peer.id).unwrap().to_vec();
    peer.client.room()[..names.len()].copy_from_slice(&names);
    peer.client.received(now, names.len(), &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, names.len());
    let begun = bench.server.transmit(now, peer.id).unwrap()[..10].to_vec();
    peer.client.room()[..10].copy_from_slice(&begun);
    peer.client.received(now, 10, &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, 10);
    bench.server.end(now);
    bench.exchange(&mut peer, 1);
    assert_eq!(peer.got(), ["0 is a/b", "0:100 900"]);
    assert_eq!(peer.client.poll_event(), Some(client::Event::Down(Bye::Ended)));
    let counters = peer.client.counters();
    assert_eq!(counters.rejects.iter().sum::<u64>(), 0);
    assert_eq!(bench.closed(), Some(Bye::Ended));
    assert_eq!(bench.server.accept(now, [0; 16]), None, "no client is accepted any more");
}

#[test]
fn a_long_message_goes_in_parts_and_is_lost_as_a_whole() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.publish(0, 0, 0, 5_000).unwrap();
    bench.exchange(&mut peer, 1);
    assert_eq!(peer.got(), ["0 is a/b", "0:100 5000"]);
    bench.publish(10, 0, 0, 5_000).unwrap();
    let now = at(10).monotonic;
    let part = bench.server.transmit(now, peer.id).unwrap().to_vec();
    peer.client.room()[..part.len()].copy_from_slice(&part);
    peer.client.received(now, part.len(), &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, part.len());
    bench.exchange(&mut peer, 300);
    assert_eq!(peer.got(), ["0: 1 Exact Budget below 102"]);
    bench.publish(300, 0, 0, 20_001).unwrap();
    bench.publish(300, 0, 0, 1).unwrap();
    bench.exchange(&mut peer, 300);
    assert_eq!(peer.got(), ["0: 1 Exact TooLong below 103", "0:103 1"]);
}

#[test]
fn more_clients_than_there_may_be_are_told_so() {
    for keys in [None, Some(KEYS)] {
        let mut bench = bench(&config(), keys);
        (0..3).for_each(|_| assert!(bench.server.accept(at(0).monotonic, [0; 16]).is_some()));
        assert_eq!(bench.server.accept(at(0).monotonic, [0; 16]), None);
        let mut client = bench.client(0, 0);
        let bye = bench.server.farewell().to_vec();
        client.room()[..bye.len()].copy_from_slice(&bye);
        client.received(at(0).monotonic, bye.len(), &mut Out::default());
        assert_eq!(client.poll_event(), Some(client::Event::Down(Bye::Full)));
        assert_eq!(bench.server.counters().full, 1);
    }
}

/// Its REPLAY would never be answered if the length of the frame was changed on its way.
#[test]
fn a_client_that_does_not_complete_a_frame_in_time_is_disconnected() {
    for complete in [true, false] {
        let mut bench = bench(&config(), None);
        let mut peer = bench.join(0, 0);
        assert!(peer.client.replay(Source(1), Stream(0), number(40), None));
        let replay = peer.client.transmit().unwrap().to_vec();
        let (last, begin) = replay.split_last().unwrap();
        let bytes = begin.chunks(10).chain(complete.then_some(std::slice::from_ref(last)));
        for (ms, part) in (1_000..).step_by(1_000).zip(bytes) {
            bench.server.room(peer.id)[..part.len()].copy_from_slice(part);
            bench.server.received(at(ms).monotonic, peer.id, part.len(), &mut Open);
        }
        bench.server.handle_timeout(at(5_999));
        assert_eq!(bench.closed(), None);
        bench.server.handle_timeout(at(6_000));
        bench.server.handle_timeout(at(7_000));
        assert_eq!(bench.closed(), (!complete).then_some(Bye::Late));
    }
}

#[test]
fn a_stranger_who_says_nothing_or_garbage_is_disconnected() {
    let mut bench = bench(&config(), None);
    let silent = bench.server.accept(at(0).monotonic, [0; 16]).unwrap();
    assert_eq!(bench.server.poll_timeout(), Some(at(5_000).monotonic));
    bench.server.handle_timeout(at(4_999));
    assert_eq!(bench.closed(), None);
    bench.server.handle_timeout(at(5_000));
    let bye = bench.server.transmit(at(5_000).monotonic, silent).unwrap().len();
    assert_eq!(bye, 24);
    bench.server.handle_timeout(at(6_000));
    assert_eq!(bench.closed(), Some(Bye::Late));
    let loud = bench.server.accept(at(7_000).monotonic, [0; 16]).unwrap();
    bench.server.room(loud)[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    bench.server.received(at(7_000).monotonic, loud, 4, &mut Open);
    assert!(bench.server.room(loud).is_empty());
    assert_eq!(bench.server.counters().rejects[Reject::Length.index()], 1);
}

#[test]
fn without_the_key_no_client_is_served() {
    let mut served = bench(&config(), Some(KEYS));
    let stranger = bench(&config(), None).client(0, 0);
    let mut peer = served.connect(stranger, 0);
    assert_eq!(served.server.counters().rejects[Reject::MacMissing.index()], 1);
    assert_eq!(peer.client.counters().rejects[Reject::MacUnexpected.index()], 1);
    assert!(peer.got().is_empty());
}

#[test]
fn a_client_that_takes_nothing_is_disconnected_and_the_others_notice_nothing() {
    let run = |stopped: bool| {
        let mut bench = bench(&config(), None);
        let (mut one, mut other) = (bench.join(0, 0), bench.join(0, 0));
        if stopped {
            bench.server.blocked(at(0).monotonic, other.id);
        }
        for ms in (0..11_000).step_by(10) {
            bench.publish(ms, 0, 0, 500).unwrap();
            bench.server.handle_timeout(at(ms));
            bench.exchange(&mut one, ms);
            if !stopped {
                bench.exchange(&mut other, ms);
            }
        }
        assert_eq!(bench.closed(), stopped.then_some(Bye::Stalled));
        one.got()
    };
    let alone = run(true);
    assert_eq!(alone.len(), 1_101);
    assert_eq!(alone, run(false));
}

#[test]
fn with_the_pace_of_the_receivers_the_slowest_holds_for_a_limited_time() {
    let mut bench = bench(&TcpConfig { pace: Pace::Receiver, ..config() }, None);
    let (mut one, slow) = (bench.join(0, 0), bench.join(0, 0));
    let mut sent = 0;
    while bench.publish(0, 0, 0, 900).is_ok() {
        sent += 1;
        bench.exchange(&mut one, 0);
        assert!(sent < 1_000, "no client held the server");
    }
    assert!(sent > 200, "{sent}: the queue of the slow one is used");
    bench.exchange(&mut one, 400);
    assert_eq!(one.got().len(), 1 + sent, "nothing is left out, however old");
    // One frame taken is progress.
    let now = at(4_000).monotonic;
    for _ in 0..2 {
        let length = bench.server.transmit(now, slow.id).unwrap().len();
        bench.server.wrote(at(0).monotonic, slow.id, length);
    }
    while bench.publish(4_000, 0, 0, 900).is_ok() {}
    bench.server.handle_timeout(at(8_999));
    assert_eq!(bench.publish(8_999, 0, 0, 900), Err(Held));
    bench.server.handle_timeout(at(9_000));
    assert_eq!(bench.publish(9_000, 0, 0, 900), Ok(()));
    while let Some(bytes) = bench.server.transmit(at(9_000).monotonic, slow.id) {
        let length = bytes.len();
        bench.server.wrote(at(0).monotonic, slow.id, length);
    }
    assert_eq!(bench.closed(), Some(Bye::Slow));
}

#[test]
fn heartbeats_move_the_resume_point_of_a_quiet_stream() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.server.taken(1, number(500));
    bench.server.handle_timeout(at(999));
    bench.exchange(&mut peer, 999);
    let marks = |peer: &Peer| peer.client.marks().map(|one| one.next.get()).collect::<Vec<_>>();
    assert_eq!(marks(&peer), [100, 100]);
    // What waits is not skipped.
    bench.publish(999, 0, 0, 5).unwrap();
    bench.server.handle_timeout(at(1_000));
    let beat = bench.server.transmit(at(1_000).monotonic, peer.id).unwrap().to_vec();
    peer.client.room()[..beat.len()].copy_from_slice(&beat);
    peer.client.received(at(1_000).monotonic, beat.len(), &mut peer.out);
    bench.server.wrote(at(0).monotonic, peer.id, beat.len());
    assert_eq!(marks(&peer), [100, 500]);
    bench.exchange(&mut peer, 1_000);
    assert_eq!(marks(&peer), [101, 500]);
    assert_eq!(peer.client.poll_timeout(), Some(at(6_000).monotonic));
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed_and_then_what_is_new() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.publish(0, 0, 0, 5).unwrap();
    bench.exchange(&mut peer, 0);
    bench.server.disconnected(peer.id);
    assert_eq!(bench.closed(), Some(Bye::Lost));
    peer.client.disconnected(at(0).monotonic);
    (0..4).for_each(|_| bench.publish(1, 0, 0, 5).unwrap());
    peer.client.handle_timeout(at(1_000).monotonic);
    peer.client.connected(at(1_000).monotonic, [8; 16]);
    peer.got();
    let mut peer = bench.connect(peer.client, 1_000);
    assert!(!peer.client.is_live());
    // What is new is not sent before.
    bench.publish(1_000, 0, 0, 6).unwrap();
    bench.exchange(&mut peer, 1_000);
    assert!(peer.got().is_empty());
    let wanted = bench.server.next_replay(at(1_000).monotonic).unwrap();
    assert_eq!((wanted.stream, wanted.from.get(), wanted.end.get()), (0, 101, 106));
    let (until, now) = (number(103), at(1_000));
    let lost = |server: &mut Server| {
        server.replay_lost(now, &wanted, 2, Bound::AtMost, until, LostReason::Gone)
    };
    assert_eq!(lost(&mut bench.server), Ok(()));
    bench.server.replay_to(now, &wanted, until);
    assert_eq!(bench.server.next_replay(now.monotonic), None, "it has not taken the first frame");
    bench.exchange(&mut peer, 1_000);
    let wanted = bench.server.next_replay(now.monotonic).unwrap();
    let topic = bench.server.topic(0, TableName::new("a/b").unwrap()).unwrap();
    for value in 103..106 {
        let start = Start {
            topic,
            number: number(value),
            to_descendants: false,
            published: None,
            origin: None,
        };
        bench.server.replay_message(now, &wanted, start, b"again").unwrap();
    }
    bench.server.replay_to(now, &wanted, wanted.end);
    bench.exchange(&mut peer, 1_000);
    bench.publish(1_000, 0, 0, 7).unwrap();
    bench.exchange(&mut peer, 1_000);
    assert!(peer.client.is_live());
    let wanted =
        ["0: 2 AtMost Gone below 103", "0 is a/b", "0:103 5", "0:104 5", "0:105 5", "0:106 7"];
    assert_eq!(peer.got(), wanted);
}

#[test]
fn clients_are_served_in_an_order_that_is_drawn_for_each_turn() {
    let mut bench = bench(&config(), None);
    let peers: Vec<Peer> = (0..3).map(|_| bench.join(0, 0)).collect();
    let mut last = std::collections::BTreeMap::new();
    for turn in 0..300 {
        bench.publish(turn, 0, 0, 1).unwrap();
        bench.server.begin_turn();
        let mut order = Vec::new();
        while let Some(client) = bench.server.next_ready() {
            while let Some(bytes) = bench.server.transmit(at(turn).monotonic, client) {
                let length = bytes.len();
                bench.server.wrote(at(0).monotonic, client, length);
            }
            order.push(client);
        }
        assert_eq!(order.len(), peers.len());
        *last.entry(*order.last().unwrap()).or_insert(0) += 1;
    }
    assert!(last.values().all(|count| (60..140).contains(count)), "{last:?}");
}

#[test]
fn a_set_without_clients_costs_nothing() {
    let mut bench = bench(&config(), None);
    bench.publish(0, 0, 1, 500).unwrap();
    assert_eq!(bench.server.counters().frames, 0);
}

#[test]
fn streams_and_patterns_are_limited() {
    let identity = Identity {
        realm: REALM,
        keys: None,
        source: Source(1),
        session: Session(2),
        instance: [3; 16],
    };
    let long = "x".repeat(255);
    let pattern = TableName::new(&long).unwrap();
    let served = |count: usize, patterns: usize| {
        let patterns = vec![pattern; patterns];
        let one = Served {
            source: Source(1),
            session: Session(2),
            series: Series(4),
            stream: Stream(0),
            feed: false,
            next: Number::ZERO,
            past: Past::NONE,
            patterns: &patterns,
        };
        let streams = vec![one; count];
        let now = at(0).monotonic;
        Server::new(&config(), &identity, &streams, Random::new(1), now).map(|_| ())
    };
    assert_eq!(served(64, 3), Ok(()));
    for (count, patterns) in [(0, 0), (65, 0), (1, 17), (64, 4)] {
        assert_eq!(served(count, patterns), Err(TooManyStreams), "{count} with {patterns}");
    }
}

#[test]
fn a_replay_that_is_asked_for_before_the_one_before_was_told_to_end_continues_it() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    (0..3).for_each(|_| bench.publish(0, 0, 0, 5).unwrap());
    bench.exchange(&mut peer, 0);
    assert!(peer.client.replay(Source(1), Stream(0), number(103), None));
    bench.exchange(&mut peer, 0);
    let wanted = bench.server.next_replay(at(0).monotonic).unwrap();
    bench.server.replay_to(at(0), &wanted, wanted.end);
    // What is left out now lies behind the end of a replay that the client does not know of.
    (0..400).for_each(|_| bench.publish(0, 0, 0, 900).unwrap());
    assert!(bench.server.counters().left_out > 0);
    assert!(peer.client.replay(Source(1), Stream(0), number(120), None));
    bench.exchange(&mut peer, 0);
    let wanted = bench.server.next_replay(at(0).monotonic).unwrap();
    assert_eq!((wanted.from.get(), wanted.end.get()), (103, 503));
    assert_eq!(peer.client.counters().rejects.iter().sum::<u64>(), 0);
}

#[test]
fn a_client_that_has_taken_everything_holds_nothing() {
    let mut bench = bench(&TcpConfig { pace: Pace::Receiver, ..config() }, None);
    let slow = bench.join(0, 0);
    while bench.publish(0, 0, 0, 900).is_ok() {}
    while let Some(bytes) = bench.server.transmit(at(100).monotonic, slow.id) {
        let length = bytes.len();
        bench.server.wrote(at(0).monotonic, slow.id, length);
    }
    bench.server.handle_timeout(at(6_000));
    assert_eq!(bench.closed(), None);
    assert_eq!(bench.publish(6_000, 0, 0, 900), Ok(()));
}

#[test]
fn a_piece_of_history_ends_at_the_present() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.historian();
    (0..3).for_each(|_| bench.publish(0, 0, 0, 5).unwrap());
    bench.exchange(&mut peer, 0);
    // Messages below 110 may come later, and the client must not count them as brought.
    assert!(peer.client.replay(Source(1), Stream(0), number(101), Some(number(110))));
    bench.exchange(&mut peer, 1);
    let wanted = bench.server.next_replay(at(1).monotonic).unwrap();
    assert_eq!((wanted.from.get(), wanted.end.get()), (101, 103));
    bench.server.replay_to(at(1), &wanted, wanted.end);
    bench.exchange(&mut peer, 1);
    assert_eq!(peer.client.marks().next().unwrap().next.get(), 103);
    // The same for a piece that begins there.
    assert!(peer.client.replay(Source(1), Stream(0), number(107), Some(number(110))));
    bench.exchange(&mut peer, 2);
    assert_eq!(peer.client.marks().next().unwrap().next.get(), 103);
}

#[test]
fn who_joins_while_a_message_is_given_to_the_sets_gets_it_by_a_replay() {
    let mut bench = bench(&TcpConfig { pace: Pace::Receiver, ..config() }, None);
    let _slow = bench.join(1, 0);
    while bench.publish(0, 0, 1, 900).is_ok() {}
    let next = bench.next;
    // The set 0 has no client when it is its turn, and the set 1 is held.
    assert_eq!(bench.give(0, 0, 0, 900), Ok(()));
    assert_eq!(bench.give(0, 0, 1, 900), Err(Held));
    let mut client = bench.client(0, 0);
    let (source, stream, series) = (Source(1), Stream(0), Series(4));
    assert!(client.remember(tcp::Resume { source, series, stream, next: number(next) }));
    client.disconnected(at(0).monotonic);
    client.handle_timeout(at(1_000).monotonic);
    client.connected(at(1_000).monotonic, [8; 16]);
    let _peer = bench.connect(client, 1_000);
    let wanted = bench.server.next_replay(at(1_000).monotonic).expect("the message was passed");
    assert_eq!((wanted.from.get(), wanted.end.get()), (next, next + 1));
}

#[test]
fn how_long_frames_waited_for_their_connection_is_measured_until_their_last_byte() {
    use crate::budget::{Limits, Part};
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    let mut limits = Limits::default();
    limits.set(Part::TcpQueue, Some(40 * MILLISECOND));
    bench.server.queueing().set_limits(&limits);
    // Names go with the first message.
    bench.publish(0, 0, 0, 500).unwrap();
    bench.exchange(&mut peer, 0);
    bench.publish(100, 0, 0, 500).unwrap();
    let length = bench.server.transmit(at(110).monotonic, peer.id).unwrap().len();
    bench.server.wrote(at(120).monotonic, peer.id, length - 1);
    assert_eq!(bench.server.queueing().histogram().count(), 1, "a part of it is not all");
    bench.server.transmit(at(150).monotonic, peer.id).unwrap();
    bench.server.wrote(at(150).monotonic, peer.id, 1);
    assert_eq!(bench.server.queueing().histogram().count(), 2);
    let exceeded = bench.server.queueing().poll(at(150).monotonic).unwrap();
    assert_eq!((exceeded.part, exceeded.times), (Part::TcpQueue, 1));
    assert_eq!(exceeded.worst.took_ns, 50 * MILLISECOND);
}

/// With and without a key: the flag of HELLO is covered by its MAC.
#[test]
fn a_client_that_wants_only_history_gets_nothing_but_what_it_asks_for() {
    for keys in [None, Some(KEYS)] {
        let mut bench = bench(&config(), keys);
        let mut peer = bench.historian();
        for _ in 0..3 {
            bench.publish(1, 0, 0, 5).unwrap();
            bench.exchange(&mut peer, 1);
        }
        assert!(peer.got().is_empty());
        assert!(!peer.client.replay(Source(1), Stream(0), number(101), None), "it must end");
        assert!(peer.client.replay(Source(1), Stream(0), number(101), Some(number(103))));
        bench.exchange(&mut peer, 1);
        let wanted = bench.server.next_replay(at(1).monotonic).unwrap();
        assert_eq!((wanted.from, wanted.end), (number(101), number(103)));
        bench.server.replay_to(at(1), &wanted, wanted.end);
        bench.exchange(&mut peer, 1);
        bench.exchange(&mut peer, 1);
        assert_eq!(peer.client.replayed(Source(1), Stream(0)), Some((number(103), true)));
        bench.publish(2, 0, 0, 5).unwrap();
        bench.exchange(&mut peer, 2);
        assert!(peer.got().is_empty());
        assert!(!peer.client.is_live());
        assert_eq!(bench.server.next_replay(at(2).monotonic), None);
    }
}

#[test]
fn replays_exceed_their_rate_by_no_more_than_a_message_that_was_begun() {
    // 1,250 bytes in 10 ms.
    let config = TcpConfig { replay_rate: Some(1_000_000), ..config() };
    for length in [Some(5), Some(900), Some(20_000), None] {
        let mut bench = bench(&config, None);
        let mut peer = bench.historian();
        bench.server.taken(0, number(9_000));
        assert!(peer.client.replay(Source(1), Stream(0), number(100), Some(number(9_000))));
        let sent: usize = (0..1_000).map(|ms| bench.bring(&mut peer, ms, length)).sum();
        let most = 125_000 + 2 * 1_250 + 22_000;
        assert!((30_000..most).contains(&sent), "{sent} bytes of {length:?} in a second");
        assert!(peer.got().len() > 5);
    }
}

#[test]
fn a_client_that_asks_again_and_again_for_nothing_gets_two_frames_each_time() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    for _ in 0..100 {
        assert!(peer.client.replay(Source(1), Stream(0), number(100), None));
        assert_eq!(bench.bring(&mut peer, 1, Some(5)), 2 * 32);
        assert_eq!(bench.server.replay_due(), None);
    }
}

#[test]
fn while_the_caller_has_no_history_to_bring_nothing_is_due() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.historian();
    bench.server.taken(0, number(103));
    assert!(peer.client.replay(Source(1), Stream(0), number(100), Some(number(103))));
    bench.exchange(&mut peer, 0);
    assert!(bench.server.next_replay(at(0).monotonic).is_some());
    bench.server.postpone_replays(at(250).monotonic);
    assert_eq!(bench.server.poll_timeout(), Some(at(250).monotonic));
    assert_eq!(bench.bring(&mut peer, 249, Some(5)), 0);
    bench.bring(&mut peer, 250, Some(5));
    assert_eq!(peer.got(), ["0 is a/b", "0:100 5", "0:101 5", "0:102 5"]);
}

const ENDED: [&str; 2] = ["0 has ended: Complete", "1 has ended: Complete"];

/// A client lags, and more is to be taken from the bus.
#[test]
fn a_server_that_is_stopped_sends_everything_and_then_says_that_it_has() {
    for keys in [None, Some(KEYS)] {
        let mut bench = bench(&config(), keys);
        let (mut quick, mut slow) = (bench.join(0, 0), bench.join(1, 0));
        for set in [0, 1, 1] {
            bench.publish(1, 0, set, 5).unwrap();
        }
        bench.exchange(&mut quick, 1);
        assert_eq!(quick.got(), ["0 is a/b", "0:100 5"]);
        bench.server.taken(1, number(bench.next));
        let goal = number(bench.next + 1);
        bench.server.drain(at(1).monotonic, goal, at(5_000).monotonic);
        assert_eq!(bench.server.accept(at(1).monotonic, [0; 16]), None);
        let unsent = |bench: &Bench| bench.server.unsent().map(|(_, it)| it).collect::<Vec<_>>();
        assert_eq!(unsent(&bench), [1, 3], "one is not taken from the bus");
        assert_eq!(bench.exchange(&mut quick, 1), 0);
        bench.publish(2, 0, 0, 7).unwrap();
        assert_eq!(unsent(&bench), [1, 3]);
        bench.exchange(&mut quick, 2);
        assert_eq!(quick.got(), ["0:103 7"], "the other stream has not got so far");
        bench.server.taken(1, goal);
        bench.exchange(&mut quick, 2);
        assert_eq!(quick.got(), ENDED);
        assert_eq!(quick.client.poll_event(), Some(client::Event::Down(Bye::Ended)));
        bench.server.handle_timeout(at(100));
        bench.exchange(&mut slow, 100);
        assert_eq!(slow.got(), [&["0 is a/b", "0:101 5", "0:102 5"][..], &ENDED].concat());
        assert_eq!([bench.closed(), bench.closed()], [Some(Bye::Ended); 2]);
        assert_eq!(bench.closed(), None);
    }
}

#[test]
fn a_client_for_which_the_time_was_over_is_not_told_that_it_has_everything() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.publish(1, 0, 0, 5).unwrap();
    let goal = number(bench.next);
    bench.server.taken(1, goal);
    bench.server.drain(at(1).monotonic, goal, at(50).monotonic);
    assert_eq!(bench.server.unsent().map(|(_, unsent)| unsent).collect::<Vec<_>>(), [1]);
    bench.server.end(at(50).monotonic);
    bench.exchange(&mut peer, 50);
    assert!(peer.got().is_empty());
    assert_eq!(bench.closed(), Some(Bye::Ended));
}

#[test]
fn a_server_that_is_stopped_ends_no_client_before_its_history_has_come() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    bench.exchange(&mut peer, 0);
    let goal = number(bench.next);
    assert!(peer.client.replay(Source(1), Stream(0), number(90), None));
    bench.exchange(&mut peer, 1);
    bench.server.drain(at(1).monotonic, goal, at(5_000).monotonic);
    assert_eq!(bench.server.unsent().map(|(_, unsent)| unsent).collect::<Vec<_>>(), [10]);
    assert!(!peer.got().iter().any(|it| it.contains("ended")));
    bench.bring(&mut peer, 2, Some(10));
    let got = peer.got();
    assert_eq!(got.len(), 1 + 10 + 2, "{got:?}");
    assert_eq!(got[11..], ENDED);
}

/// Its connection takes nothing at that time.
#[test]
fn a_client_that_was_sent_everything_may_take_its_time_to_hear_that() {
    let mut bench = bench(&config(), None);
    let mut peer = bench.join(0, 0);
    let goal = number(bench.next);
    let now = at(1).monotonic;
    bench.server.drain(now, goal, at(5_000).monotonic);
    assert!(bench.server.transmit(now, peer.id).is_some());
    bench.server.blocked(now, peer.id);
    bench.server.handle_timeout(at(4_999));
    bench.server.writable(peer.id);
    bench.exchange(&mut peer, 4_999);
    assert_eq!(peer.got(), ENDED);
}

#[test]
fn a_client_gets_no_message_that_is_longer_than_it_takes() {
    let mut bench = bench(&config(), None);
    let short = TcpConfig { message_max_bytes: 900, ..config() };
    let client = bench.waiting_with(&short, 1, 0);
    let (mut all, mut some) = (bench.join(0, 0), bench.join_with(client));
    // Some share a frame, and the last but one goes in parts.
    for length in [10, 901, 10, 900, 5_000, 10] {
        bench.give(1, 0, 0, length).unwrap();
        bench.publish(1, 0, 1, length).unwrap();
    }
    for peer in [&mut all, &mut some] {
        bench.exchange(peer, 1);
    }
    let wanted =
        ["0 is a/b", "0:100 10", "0:101 901", "0:102 10", "0:103 900", "0:104 5000", "0:105 10"];
    assert_eq!(all.got(), wanted);
    let lost = |until| format!("0: 1 Exact TooLong below {until}");
    let (one, other) = (lost(102), lost(105));
    let wanted = [wanted[0], wanted[1], &one, wanted[3], wanted[4], &other, wanted[6]];
    assert_eq!(some.got(), wanted);
    // History as well.
    bench.server.disconnected(some.id);
    assert_eq!(bench.closed(), Some(Bye::Lost));
    let client = bench.waiting_with(&short, 1, 0).only_history();
    let mut some = bench.join_with(client);
    assert!(some.client.replay(Source(1), Stream(0), number(100), Some(number(103))));
    bench.bring(&mut some, 2, Some(901));
    assert_eq!(some.got(), [101, 102, 103].map(lost));
    for peer in [all, some] {
        assert!(!peer.client.counters().rejects.iter().any(|count| *count > 0));
    }
}

/// Sees what clients take.
struct Seen(Vec<u32>);

impl Door for Seen {
    fn hello(&mut self, _: ClientId, hello: &Hello<'_>) -> Option<usize> {
        self.0.push(hello.message_max);
        Some(0)
    }
}

/// So they share frames.
#[test]
fn clients_that_take_more_than_the_server_sends_are_alike() {
    let mut bench = bench(&config(), None);
    let mut seen = Seen(Vec::new());
    for most in [900, 20_000, 20_001, u64::MAX] {
        let config = TcpConfig { message_max_bytes: most.min(1 << 20), ..config() };
        let mut client = bench.waiting_with(&config, 0, 0);
        client.poll_event();
        client.connected(at(0).monotonic, [5; 16]);
        let id = bench.server.accept(at(0).monotonic, [6; 16]).unwrap();
        let hello = client.transmit().unwrap();
        bench.server.room(id)[..hello.len()].copy_from_slice(hello);
        bench.server.received(at(0).monotonic, id, hello.len(), &mut seen);
        bench.server.disconnected(id);
        bench.closed();
    }
    assert_eq!(seen.0, [900, 20_000, 20_000, 20_000]);
}
