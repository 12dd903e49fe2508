//! The answering end: who connects, and how much of it at once.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toroni_proto::wire::Keys;

use super::fetch::Fetch;
use super::frame::{self, Begun, HELLO_TIME, Peer, Role};
use super::memory::{Memory, Room};
use super::message::{Answer, Request};
use super::{connection, socket};

/// At most this many connections are served at once; further ones wait.
const CONNECTIONS: usize = 256;

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A long answer that is on its way, and the room for it.
pub type LongAnswering = Pin<Box<dyn Future<Output = Option<(Answer, Room)>> + Send>>;

/// The time until a request can be answered.
pub type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The time until it is the turn of a request.
pub type Turning = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The caller's id in the group, if it calls as a member; else `u64::MAX`.
    pub id: u64,
    /// Whether it has the key, or is on this host.
    pub is_trusted: bool,
}

/// Who answers requests.
pub trait Serve: Send + Sync + 'static {
    /// Takes a request. Requests of a connection are taken in their order.
    fn serve(&self, caller: Caller, request: Request) -> Answering;

    /// Waits until there is an answer to a question for events, as long as it says. An answer takes its memory afterwards.
    fn until_there_is(&self, _: Fetch) -> Waiting {
        Box::pin(std::future::ready(()))
    }

    /// Waits for the turn of a request with a long answer, if it needs one.
    fn turn(&self, _: &Request) -> Turning {
        Box::pin(std::future::ready(None))
    }

    /// Makes a long answer, and waits for nothing. What makes it keeps `room` until it is made, even if no connection waits for it
    /// any more. None if it needs a turn by now.
    fn serve_long(&self, caller: Caller, request: Request, room: Room) -> LongAnswering {
        let answering = self.serve(caller, request);
        Box::pin(async move { Some((answering.await, room)) })
    }
}

/// What callers are asked for, and shown.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The feed: the first bytes of the hash of its name.
    pub feed: [u8; 16],
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// This member.
    pub own: Peer,
}

/// Serves all that connect, until it is dropped. Connections end with it.
pub async fn listen(listener: TcpListener, identity: Identity, serve: Arc<dyn Serve>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let identity = Arc::new(identity);
    let memory = Arc::new(Memory::new());
    let mut tasks = JoinSet::new();
    // Ends with the semaphore, which is never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, address)) = listener.accept().await else {
            // Out of descriptors, for example: it passes.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (identity, serve) = (Arc::clone(&identity), Arc::clone(&serve));
        let memory = Arc::clone(&memory);
        let own = stream.local_addr().ok();
        let is_trusted = identity.keys.is_some() || is_local(address.ip(), own.map(|own| own.ip()));
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // Who breaks the rules loses the connection, and nothing else happens.
            let _ = connection((stream, address.ip()), &identity, is_trusted, &memory, serve).await;
            drop(permit);
        });
    }
}

/// Whether a caller is on this host. Only processes of this host can send from an address of the host itself: the kernel drops
/// what comes from elsewhere with such a source.
fn is_local(caller: IpAddr, own: Option<IpAddr>) -> bool {
    caller.to_canonical().is_loopback() || own == Some(caller)
}

async fn connection(
    (mut stream, address): (TcpStream, IpAddr),
    identity: &Identity,
    is_trusted: bool,
    memory: &Memory,
    serve: Arc<dyn Serve>,
) -> io::Result<()> {
    socket::prepare(&stream)?;
    let begin = async {
        let mut begun = frame::answer(&mut stream, identity.keys.as_ref(), identity.feed).await?;
        frame::welcome(&mut stream, &mut begun.to, identity.own).await?;
        io::Result::Ok(begun)
    };
    let Begun { to, back, role } = timeout(HELLO_TIME, begin).await??;
    let (id, memory) = match role {
        Role::Member { id, .. } => (id, memory.of_member()),
        Role::Courier { .. } | Role::Follower { .. } | Role::Tool => {
            socket::limit_unsent(&stream)?;
            (u64::MAX, memory.of_host(address.to_canonical()))
        }
    };
    connection::run(stream, (to, back), Caller { id, is_trusted }, memory, serve).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_on_this_host_come_from_its_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(is_local(ip("127.0.0.1"), None));
        assert!(is_local(ip("::ffff:127.0.0.2"), Some(ip("::1"))));
        assert!(is_local(ip("10.0.0.1"), Some(ip("10.0.0.1"))));
        assert!(!is_local(ip("10.0.0.2"), Some(ip("10.0.0.1"))));
        assert!(!is_local(ip("10.0.0.2"), None));
    }
}
