//! Connection: receives the streams of another node over TCP, and brings them to the bus.

use super::dial::{Change, Dial};
use super::{Connect, Event, Poller, TcpError, Token};
use crate::inlet::{Inlet, Ways};
use crate::membership::Membership;
use crate::node::host_port::HostPort;
use crate::now::now;
use std::io;
use std::sync::Arc;
use toroni_proto::audience::Name;
use toroni_proto::bounded::client::{Client, Identity};
use toroni_proto::id::{Source, Stream};
use toroni_proto::random::Random;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::tcp::NONCE_BYTES;
use toroni_proto::wire::{NodeName, TableName};

/// A connection to another node, which is made again when it is lost.
pub struct Connection {
    dial: Dial,
    inlet: Inlet,
}

impl Connection {
    pub(super) fn new(
        connect: &Connect,
        index: usize,
        (bus, ways): (Arc<toroni::Inlet>, &Ways),
        member: &Membership,
        name: NodeName<'_>,
        now: Monotonic,
    ) -> Result<Self, TcpError> {
        connect.config.check()?;
        let identity = identity(member, name);
        let texts = connect.patterns.iter().map(|pattern| pattern.as_str());
        let patterns: Vec<TableName<'_>> = texts.filter_map(TableName::new).collect();
        // Others must not try again in the same instants.
        let random = Random::new(member.random().number().wrapping_add(index as u64));
        let client = Client::new(&connect.config, &identity, &patterns, random, now)?;
        Ok(Self {
            dial: Dial::new(&connect.address, connect.bind, Token::Connection(index), client)?
                .with_dscp(member.sockets.dscp),
            inlet: Inlet::new(bus, connect.selection())
                .selected_by_the_source()
                .by_way(index + 1, ways)
                .with_lost_scope(connect.lost_scope.clone())
                .retaining(connect.retains),
        })
    }

    /// Returns where the other node listens.
    #[must_use]
    pub const fn host(&self) -> &HostPort {
        self.dial.host()
    }

    /// Returns the protocol's side of it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.dial.client
    }

    /// Returns what it brings to the bus.
    #[must_use]
    pub fn inlet(&self) -> &Inlet {
        &self.inlet
    }

    pub(super) fn inlet_mut(&mut self) -> &mut Inlet {
        &mut self.inlet
    }

    /// Takes why the bus has refused something since the last call.
    pub(super) fn refusal(&mut self) -> Option<toroni::PublishError> {
        self.inlet.refusal()
    }

    /// Takes a stream that another way brings.
    pub(super) fn aside(&mut self) -> Option<(Source, Stream)> {
        self.inlet.aside()
    }

    /// Notes what the kernel says of its socket.
    pub(super) fn is_ready(&mut self, can_read: bool, can_write: bool) {
        self.dial.is_ready(can_read, can_write);
    }

    /// Does everything that can be done now. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Monotonic,
        poller: &Poller,
        nonce: &mut impl FnMut() -> io::Result<[u8; NONCE_BYTES]>,
        report: &mut impl FnMut(Event),
    ) -> Result<bool, TcpError> {
        let Self { dial, inlet } = self;
        dial.complete(now, nonce)?;
        // What the bus has no room for stays in the socket, and the other node leaves out what becomes too old.
        let waits = inlet.is_full();
        dial.read(now, inlet, |_| !waits);
        inlet.publish(std::iter::empty())?;
        for (source, stream, mark) in inlet.take_over(now) {
            dial.client.rejoin(source, stream, mark.next);
        }
        while let Some(change) = dial.change(now, poller) {
            let address = dial.host().clone();
            match change {
                Change::Live => report(Event::Connected(address)),
                Change::Down(reason, error) => {
                    inlet.lose_way();
                    report(Event::Disconnected { address, reason, error });
                }
            }
        }
        dial.write(now);
        Ok(dial.has_input() && !inlet.is_full())
    }

    /// Returns when it must have a turn next.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let attempt = self.inlet.next_attempt();
        self.dial.client.poll_timeout().into_iter().chain(attempt).min()
    }
}

/// A node receives until it is gone: another one of its host takes over then.
impl Drop for Connection {
    fn drop(&mut self) {
        self.dial.end(now().monotonic);
    }
}

/// Returns who connects.
pub(in crate::node) fn identity(member: &Membership, name: NodeName<'_>) -> Identity {
    Identity {
        realm: member.realm,
        keys: member.keys,
        source: member.source,
        session: member.session,
        name: Name::new(name),
    }
}
