//! What clients seldom do, and what they never do.

use super::forge;
use super::history::number;
use super::peer::{Connection, Peer};
use super::world::{FIRST, SOURCE, STREAMS, World, server};
use crate::input::Input;
use toroni_proto::time::SECOND;

impl World {
    /// Asks for history again, from `back / 4` numbers before the mark.
    pub(super) fn ask(&mut self, choice: u8, back: u8) {
        let at = usize::from(choice) % self.peers.len();
        let peer = &mut self.peers[at];
        let stream = usize::from(choice >> 7);
        let Some(mark) = peer.client.marks().find(|mark| usize::from(mark.stream.0) == stream)
        else {
            return;
        };
        if !peer.oracle.is_honest || peer.oracle.asked[stream].is_some() {
            return;
        }
        let first = mark.next.minus(u64::from(back) / 4).get().max(FIRST);
        if peer.client.replay(SOURCE, mark.stream, number(first), None) {
            let known = peer.oracle.marks[stream].unwrap_or(first);
            peer.oracle.asked[stream] = Some(first..known);
            let one = self.connections.iter_mut().find(|one| one.peer == Some(at));
            one.expect("a client that is live has a connection").asked += 1;
        }
    }

    /// Breaks a connection at the server's end, or at the client's.
    pub(super) fn disconnect(&mut self, choice: u8) {
        let Some(at) = self.connection(choice >> 1) else { return };
        let now = self.now().monotonic;
        let one = &mut self.connections[at];
        match (choice & 1 == 0, one.server, one.peer) {
            (true, Some(server), _) => self.server.disconnected(server),
            (false, _, Some(peer)) => self.peers[peer].client.disconnected(now),
            _ => {}
        }
        self.close_ended();
        self.client_events();
    }

    /// Notes that bytes of a connection are not those of its ends.
    fn disturb(&mut self, at: usize) {
        self.is_peaceful = false;
        if let Some(peer) = self.connections[at].peer {
            self.peers[peer].is_disturbed = true;
            self.peers[peer].oracle.is_honest &= self.keyed;
        }
    }

    /// Changes bits of a byte on its way.
    pub(super) fn change(&mut self, choice: u8, at: u16, bits: u8) {
        let Some(place) = self.connection(choice >> 1) else { return };
        let one = &mut self.connections[place];
        let pipe = if choice & 1 == 0 { &mut one.to_client } else { &mut one.to_server };
        let Some(at) = usize::from(at).checked_rem(pipe.len()) else { return };
        pipe[at] ^= bits;
        if bits != 0 {
            self.disturb(place);
        }
    }

    /// Puts a forged frame, or any bytes, after those of a connection.
    pub(super) fn forge(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let Some(place) = self.connection(choice >> 1) else { return };
        let bytes = self.forged(input);
        if bytes.is_empty() {
            return;
        }
        self.disturb(place);
        let one = &mut self.connections[place];
        let pipe = if choice & 1 == 0 { &mut one.to_client } else { &mut one.to_server };
        pipe.extend(bytes);
    }

    fn forged(&self, input: &mut Input<'_>) -> Vec<u8> {
        match input.byte() % 8 {
            0 => {
                let length = input.byte();
                input.bytes(length.into()).to_vec()
            }
            1 => self.said.clone(),
            _ => forge::frame(input, self.keyed),
        }
    }

    /// A stranger connects, and sends something.
    pub(super) fn stranger(&mut self, input: &mut Input<'_>) {
        let (now, nonce) = (self.now().monotonic, self.nonce());
        let bytes = self.forged(input);
        self.is_peaceful = false;
        if let Some(client) = self.server.accept(now, nonce) {
            let mut one = Connection::new(None, Some(client));
            one.to_server.extend(bytes);
            self.connections.push(one);
        } else {
            assert!(!self.server.farewell().is_empty());
        }
    }

    /// Kills a client, which starts again with its marks, or without.
    pub(super) fn client_starts_again(&mut self, choice: u8) {
        let at = usize::from(choice >> 1) % self.peers.len();
        for one in &mut self.connections {
            one.peer = one.peer.filter(|peer| *peer != at);
        }
        if choice & 1 == 0 {
            self.peers[at].start_again(at, &self.config, self.keyed, self.now_ns);
        } else {
            self.peers[at] = Peer::new(at, STREAMS, &self.config, self.keyed, self.now_ns);
        }
        self.client_events();
    }

    pub(super) fn seldom(&mut self, choice: u8) {
        match choice % 4 {
            0 if choice & 4 == 0 => {
                self.server.end(self.now().monotonic);
                self.is_ended = true;
            }
            0 => {
                let now = self.now().monotonic;
                let goal = self.history.next.iter().copied().min().unwrap_or(0);
                self.server.drain(now, number(goal), now.after(SECOND));
                self.is_draining = true;
            }
            _ => self.server_starts_again(),
        }
    }

    /// Kills the server. The next one takes from its bus what is new, and has the same numbers.
    pub(super) fn server_starts_again(&mut self) {
        self.session += 1;
        (self.is_ended, self.is_draining) = (false, false);
        self.history.begin();
        let now = self.now().monotonic;
        self.server = server(&self.config, self.keyed, self.session, &self.history, now);
        (self.served_ns, self.replayed) = (self.now_ns, 0);
        self.connections.iter_mut().for_each(|one| one.server = None);
        self.forget_connections();
    }
}
