//! Messages between members, and from nodes to members, over TCP. Nothing that arrives is believed before it was checked.
//!
//! | file | what it does |
//! |---|---|
//! | `message.rs` | requests and answers as bytes |
//! | `fetch.rs` | events by number, as bytes |
//! | `frame.rs` | frames, the MAC, and how a connection begins |
//! | `in_turn.rs` | for threads: members that are asked one after another |
//! | `link.rs` | the caller's end |
//! | `peer.rs` | how members are, as they show each other |
//! | `server.rs` | the answering end: who connects |
//! | `admission.rs` | which connections it keeps |
//! | `known.rs` | which members it knows, and at which addresses |
//! | `connection.rs` | one connection there |
//! | `memory.rs` | what requests and long answers may take of it |
//! | `status.rs` | how a member is, as bytes |
//! | `socket.rs` | what their sockets are set to |

mod admission;
mod connection;
mod fetch;
mod frame;
mod in_turn;
mod known;
mod link;
mod memory;
mod message;
mod peer;
mod server;
mod socket;
mod status;
#[cfg(test)]
mod tests;

pub use self::admission::MAX_CONNECTIONS;
pub(crate) use self::fetch::ANSWER_BYTES;
pub use self::fetch::{Events, Fetch, Fetched};
pub use self::frame::{Peer, Role};
pub(crate) use self::in_turn::InTurn;
pub use self::known::KnownMember;
pub use self::link::{Link, LinkError, Target, identify};
pub use self::memory::Room;
pub use self::message::{Answer, Appended, Request, SourceInfo, SourceState};
pub use self::peer::PeerState;
pub use self::server::{
    Answering, Caller, Connection, Identity, LongAnswering, Serve, Turning, Waiting, listen,
};
pub use self::status::{MemberStatus, Status};
