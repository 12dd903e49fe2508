//! The answering end: who connects, and how much of it at once.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toroni_proto::wire::Keys;

use super::frame::{self, HELLO_TIME, MAX_FRAME_BYTES, Peer};
use super::message::{Answer, Request};
use super::socket;
use crate::entry::MAX_MEMBERS;

/// At most this many connections are served at once; further ones wait.
const CONNECTIONS: usize = 256;
/// The requests of all members take at most this much memory at once, and those of all nodes as much again. Nodes
/// cannot take the room that members need to agree.
const MEMORY_BYTES: usize = 32 << 20;
/// A connection that gets none of it for this long ends, and gives back what its other requests hold.
const MEMORY_TIME: Duration = Duration::from_secs(10);
/// A frame that was announced takes part of that memory, so it must be here soon.
const FRAME_TIME: Duration = Duration::from_secs(5);
/// At most this many requests of one connection are handled at once; further ones stay in its socket.
const REQUESTS: usize = 16;

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The caller's id in the group, as it says; `u64::MAX` if it is no member.
    pub id: u64,
    /// Whether it has the key, or is on this host.
    pub is_trusted: bool,
}

/// Who answers requests.
pub trait Serve: Send + Sync + 'static {
    /// Takes a request. Requests of a connection are taken in their order.
    fn serve(&self, caller: Caller, request: Request) -> Answering;
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
    let memory = Memory::default();
    let mut tasks = JoinSet::new();
    // Ends with the semaphore, which is never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, address)) = listener.accept().await else {
            // Out of descriptors, for example: it passes.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (identity, serve) = (Arc::clone(&identity), Arc::clone(&serve));
        let memory = memory.clone();
        let own = stream.local_addr().ok();
        let is_trusted = identity.keys.is_some() || is_local(address.ip(), own.map(|own| own.ip()));
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // Who breaks the rules loses the connection, and nothing else happens.
            let _ = connection(stream, &identity, is_trusted, memory, serve).await;
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
    mut stream: TcpStream,
    identity: &Identity,
    is_trusted: bool,
    memory: Memory,
    serve: Arc<dyn Serve>,
) -> io::Result<()> {
    socket::prepare(&stream)?;
    let begin = frame::answer(&mut stream, identity.keys.as_ref(), identity.feed, identity.own);
    let (mut to, mut back, id) = timeout(HELLO_TIME, begin).await??;
    let caller = Caller { id, is_trusted };
    let memory = memory.of(id);
    let (mut read, mut write) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<(u64, Answer, Held)>(REQUESTS);
    // Ends with the connection.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some((call, answer, _held)) = queue.recv().await {
            let mut bytes = vec![];
            answer.encode(&mut bytes);
            if to.write(&mut write, call, &bytes).await.is_err() {
                return;
            }
        }
    });
    let permits = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return Ok(()) };
        let length = back.read_length(&mut read, MAX_FRAME_BYTES).await?;
        let room = u32::try_from(length.0.div_ceil(1024)).unwrap_or(u32::MAX);
        // A connection that waits is not read, so the server would not notice that the other end is gone.
        let room = timeout(MEMORY_TIME, Arc::clone(memory).acquire_many_owned(room)).await?;
        let Ok(room) = room else { return Ok(()) };
        let (call, bytes) = timeout(FRAME_TIME, back.read_rest(&mut read, length)).await??;
        let Ok(request) = Request::decode(&bytes) else { return Ok(()) };
        drop(bytes);
        let answering = serve.serve(caller, request);
        let answers = answers.clone();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let answer = answering.await;
            let _ = answers.send((call, answer, (permit, room))).await;
        });
    }
}

/// What a request holds until its answer is written.
type Held = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// The memory for requests, with a permit for each KiB.
#[derive(Clone)]
struct Memory {
    members: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        let budget = || Arc::new(Semaphore::new(MEMORY_BYTES / 1024));
        Self { members: budget(), nodes: budget() }
    }
}

impl Memory {
    fn of(&self, id: u64) -> &Arc<Semaphore> {
        if id < MAX_MEMBERS as u64 { &self.members } else { &self.nodes }
    }
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
