//! Bytes move, in any pieces, and both ends do what they cause.

use super::peer::{Connection, receive};
use super::world::World;
use toroni_proto::bounded::client;
use toroni_proto::bounded::server::Event;

/// What a client says to cause a replay, at least: a resume point in HELLO.
const RESUME_BYTES: usize = 20;

impl World {
    /// Does a turn of the server. Each connection takes at most `most` bytes (0 is no limit), if it has room.
    pub(super) fn serve(&mut self, most: u16) {
        let now = self.now();
        if !self.is_ended {
            self.history.feed(&mut self.server, now);
        }
        if self.config.batch_delay_ns == 0 {
            self.server.flush(now);
        }
        self.replay();
        let most = if most == 0 { usize::MAX } else { most.into() };
        self.server.begin_turn();
        while let Some(client) = self.server.next_ready() {
            let one = self.connections.iter_mut().find(|one| one.server == Some(client)).unwrap();
            let (mut left, mut count) = (most, 0);
            while let Some(bytes) = self.server.transmit(now.monotonic, client) {
                assert!(!bytes.is_empty(), "what is sent is not empty");
                let room = self.buffer.saturating_sub(one.to_client.len()).min(left);
                let length = bytes.len().min(room);
                one.to_client.extend(&bytes[..length]);
                let before = one.by_server.history;
                one.by_server.count(bytes, length);
                self.replayed += one.by_server.history - before;
                assert!(
                    one.by_server.replays <= 2 * one.heard / RESUME_BYTES,
                    "a replay has one beginning and one end"
                );
                left -= length;
                self.server.wrote(now.monotonic, client, length);
                if length == 0 {
                    self.server.blocked(now.monotonic, client);
                    break;
                }
                count += 1;
                assert!(count < 20_000, "a server that never comes to an end");
            }
        }
        assert!(
            self.replayed <= self.replay_most(),
            "{} bytes of history are beyond `replay_rate`",
            self.replayed
        );
        self.close_ended();
    }

    fn replay(&mut self) {
        let (now, mut count) = (self.now(), 0);
        while let Some(wanted) = self.server.next_replay(now.monotonic) {
            self.history.replay(&mut self.server, now, &wanted);
            count += 1;
            assert!(count < 10_000, "a replay that never comes to an end");
        }
    }

    pub(super) fn close_ended(&mut self) {
        while let Some(Event::Closed { client, .. }) = self.server.poll_event() {
            self.history.sets.leave(client);
            let one = self.connections.iter_mut().find(|one| one.server == Some(client));
            one.expect("a client is closed once").server = None;
        }
        self.forget_connections();
    }

    /// Delivers at most `most` bytes (0 is no limit) to a client or a stranger. After the last ones, it notices that
    /// the server has closed the connection.
    pub(super) fn client_reads(&mut self, choice: u8, most: u16) {
        let Some(at) = self.connection(choice) else { return };
        let most = if most == 0 { usize::MAX } else { most.into() };
        self.deliver_to_client(at, most);
        self.client_events();
    }

    fn deliver_to_client(&mut self, at: usize, most: usize) {
        let (now, one) = (self.now().monotonic, &mut self.connections[at]);
        let Some(peer) = one.peer else {
            one.to_client.drain(..most.min(one.to_client.len()));
            return;
        };
        let peer = &mut self.peers[peer];
        let was_empty = one.to_client.is_empty();
        peer.receive(&mut one.to_client, most, now, &self.history);
        if was_empty && one.server.is_none() {
            peer.client.disconnected(now);
        }
        if let Some(server) = one.server
            && one.to_client.len() < self.buffer
        {
            self.server.writable(server);
        }
    }

    /// Delivers at most `most` bytes (0 is no limit) to the server. After the last ones, it notices that the connection
    /// was closed.
    pub(super) fn server_reads(&mut self, choice: u8, most: u16) {
        let Some(at) = self.connection(choice) else { return };
        let most = if most == 0 { usize::MAX } else { most.into() };
        self.deliver_to_server(at, most);
        self.close_ended();
    }

    pub(super) fn deliver_to_server(&mut self, at: usize, most: usize) {
        let (now, one) = (self.now().monotonic, &mut self.connections[at]);
        let Some(client) = one.server else {
            one.to_server.clear();
            return;
        };
        let was_empty = one.to_server.is_empty();
        let length = receive(&mut one.to_server, most, self.server.room(client));
        one.heard += length;
        if length > 0 {
            self.server.received(now, client, length, &mut self.history.sets);
        } else if was_empty && one.peer.is_none() {
            // A stranger goes away after it was heard.
            self.server.disconnected(client);
        }
    }

    /// Lets the client of a connection write at most `most` bytes (0 is no limit).
    pub(super) fn client_writes(&mut self, choice: u8, most: u16) {
        let Some(at) = self.connection(choice) else { return };
        let most = if most == 0 { usize::MAX } else { most.into() };
        self.write_to_server(at, most);
    }

    fn write_to_server(&mut self, at: usize, most: usize) {
        let one = &mut self.connections[at];
        let Some(peer) = one.peer else { return };
        let (client, mut left) = (&mut self.peers[peer].client, most);
        while let Some(bytes) = client.transmit() {
            let length = bytes.len().min(left);
            one.to_server.extend(&bytes[..length]);
            if self.said.len() < 600 {
                self.said.extend(&bytes[..length]);
            }
            left -= length;
            one.by_client.count(bytes, length);
            // HELLO, and a REPLAY each time its caller wants one. Nothing that the server says makes it send a frame.
            assert!(one.by_client.frames <= 1 + one.asked, "a client answers without end");
            client.wrote(length);
            if length == 0 {
                break;
            }
        }
    }

    /// Lets everybody say and hear everything, which comes to an end: a client hears each message live, in the replay of
    /// its resume point and in the one that it asked for, so at most three times.
    pub(super) fn talk(&mut self) {
        let most = 1_000 + 3 * self.history.rounds(self.buffer);
        let mut count = 0;
        while self.exchange() {
            count += 1;
            assert!(count < most, "a conversation that never comes to an end");
        }
    }

    /// Everybody says and hears something. Returns whether a client did.
    fn exchange(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.connections.len() {
            self.write_to_server(at, usize::MAX);
            moved |= !self.connections[at].to_server.is_empty();
            while !self.connections[at].to_server.is_empty() {
                let before = self.connections[at].to_server.len();
                self.deliver_to_server(at, usize::MAX);
                if self.connections[at].to_server.len() == before {
                    // The connection ends, so nothing is received any more.
                    self.connections[at].to_server.clear();
                }
            }
        }
        self.close_ended();
        self.serve(0);
        for at in 0..self.connections.len() {
            moved |= !self.connections[at].to_client.is_empty();
            while !self.connections[at].to_client.is_empty() {
                let before = self.connections[at].to_client.len();
                self.deliver_to_client(at, usize::MAX);
                if self.connections[at].to_client.len() == before {
                    self.connections[at].to_client.clear();
                }
            }
            if self.connections[at].server.is_none() {
                self.deliver_to_client(at, 0);
            }
        }
        self.client_events();
        for at in 0..self.connections.len() {
            if self.connections[at].peer.is_none() {
                self.deliver_to_server(at, 0);
            }
        }
        self.close_ended();
        moved
    }

    /// Does what clients want.
    pub(super) fn client_events(&mut self) {
        for at in 0..self.peers.len() {
            while let Some(event) = self.peers[at].client.poll_event() {
                match event {
                    client::Event::Live => {}
                    client::Event::Down(_) => {
                        self.peers[at].cut_off();
                        for one in &mut self.connections {
                            one.peer = one.peer.filter(|peer| *peer != at);
                        }
                    }
                    client::Event::Connect => self.connect(at),
                }
            }
        }
        self.forget_connections();
    }

    fn connect(&mut self, at: usize) {
        let now = self.now().monotonic;
        let nonces = [self.nonce(), self.nonce()];
        let server = self.server.accept(now, nonces[0]);
        let mut one = Connection::new(Some(at), server);
        if server.is_none() {
            one.to_client.extend(self.server.farewell());
        }
        self.connections.push(one);
        self.peers[at].client.connected(now, nonces[1]);
    }
}
