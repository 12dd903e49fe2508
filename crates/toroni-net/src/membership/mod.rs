//! Membership: who a process is in its realm, and how it reaches the others.

mod claim;

pub(crate) use self::claim::Opening;
pub use self::claim::{Claim, ClaimError};

use crate::host::interface::Interface;
use crate::socket::Options;
use std::sync::Arc;
use toroni_proto::arrivals::Collisions;
use toroni_proto::audience::Name;
use toroni_proto::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::receiver::Me;
use toroni_proto::sender::Identity;
use toroni_proto::wire::{
    Flags, Header, Keys, LegAddresses, NodeName, Receiver, Repairers, TableName,
};

/// Who a process is in its realm, and how it reaches the others.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The nodes that belong together.
    pub realm: Realm,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The name of this node: 1 to 64 bytes without control characters.
    pub name: String,
    /// Its identity, unique in the realm.
    pub source: Source,
    /// This life of it, later than all before.
    pub session: Session,
    /// Each process draws its own.
    pub instance: [u8; 16],
    /// Whether receivers answer to where its datagrams come from, instead of to the addresses of its interfaces: for a network that
    /// translates addresses.
    pub is_observed: bool,
    /// The interfaces, at least one.
    pub interfaces: Vec<Interface>,
    /// How sockets are opened.
    pub sockets: Options,
    /// The right to its identity on this host. `None`: it is taken when the sockets are opened.
    pub claim: Option<Arc<Claim>>,
}

impl Membership {
    /// Returns the name, or `None` if it breaks a rule.
    pub(crate) fn node_name(&self) -> Option<NodeName<'_>> {
        NodeName::new(&self.name)
    }

    /// Returns the right to the identity on this host.
    pub(crate) fn claim(&self) -> Result<Arc<Claim>, ClaimError> {
        let take = || Claim::take(self.realm, self.source).map(Arc::new);
        self.claim.clone().map_or_else(take, Ok)
    }

    /// Returns who sends a stream.
    pub(crate) fn identity<'a>(
        &'a self,
        name: NodeName<'a>,
        stream: Stream,
        series: Series,
        patterns: &'a [TableName<'a>],
    ) -> Identity<'a> {
        let header = Header {
            flags: Flags::NONE,
            ttl: self.sockets.ttl,
            realm: self.realm,
            stream,
            source: self.source,
            session: self.session,
            sequence: Sequence::ZERO,
        };
        Identity {
            header,
            keys: self.keys,
            name,
            instance: self.instance,
            series,
            begins: Number::ZERO,
            past: Past::NONE,
            patterns,
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        }
    }

    /// Returns what its SESSIONs state as its addresses, of those of its sockets.
    pub(crate) fn legs(&self, addresses: LegAddresses) -> LegAddresses {
        if self.is_observed { LegAddresses::NONE } else { addresses }
    }

    /// Returns what notices another node with its source id.
    pub(crate) fn collisions(&self, name: NodeName<'_>) -> Collisions {
        Collisions::new(self.me(name), self.instance, self.realm, self.keys, self.sockets.ttl)
    }

    /// Returns who receives.
    pub(crate) fn me(&self, name: NodeName<'_>) -> Me {
        let id = Receiver { source: self.source, session: self.session };
        Me { id, name: Name::new(name), required: false }
    }

    /// Returns a generator whose numbers differ from those of other processes.
    pub(crate) fn random(&self) -> Random {
        let [a, b, c, d, e, f, g, h, ..] = self.instance;
        Random::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}
