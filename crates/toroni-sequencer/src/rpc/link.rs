//! The caller's end: one connection, made when it is needed.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use toroni_proto::wire::Keys;

use super::frame::{self, Direction, HELLO_TIME, MAX_FRAME_BYTES, NotBegun, Peer, Role};
use super::message::{Answer, Request};
use super::socket;

/// A peer that takes nothing for this long is given up.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// A peer that has answered nothing for this long, and is asked again, does not hear or is not heard. The connection
/// ends: what is written to it could still arrive, for seconds, and make others believe that this end leads them.
const SILENCE: Duration = Duration::from_millis(500);
/// The server ends a connection of a host on which nothing is asked for twice as long. A call must not meet that end.
const UNUSED_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// At most this many calls wait for the connection.
const CALLS: usize = 16;

/// Why a call has no answer. It may have been carried out all the same.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The member cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// No process listens at the address.
    #[error("{0}: no process listens there")]
    Absent(String),
    /// The member does not take the connection, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The connection ended before the answer.
    #[error("the connection ended before the answer")]
    Ended,
    /// The answer did not come in the time that the caller has.
    #[error("no answer in time")]
    Late,
    /// Too many calls wait for the member.
    #[error("too many calls wait for the member")]
    Busy,
    /// At the address is another member, or one with another log.
    #[error("at {0} is another log than the group knows")]
    Foreign(String),
}

/// Whom to call, and as whom.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address and port.
    pub address: String,
    /// The feed: the first bytes of the hash of its name.
    pub feed: [u8; 16],
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// As what it is called.
    pub role: Role,
    /// The log that has to be there, if that is known.
    pub log: Option<[u8; 16]>,
    /// The address of this host from which to call, if it matters.
    pub bind: Option<IpAddr>,
}

type Waiting = oneshot::Sender<Result<Answer, LinkError>>;

struct Call {
    request: Vec<u8>,
    answer: Waiting,
}

/// A way to a member. The connection belongs to a task of its own: a call that is given up leaves no half frame.
#[derive(Debug, Clone)]
pub struct Link {
    calls: mpsc::Sender<Call>,
}

impl Link {
    /// Makes a link. It connects with the first call. Must be called in a runtime.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let (calls, queue) = mpsc::channel(CALLS);
        tokio::spawn(run(target, queue));
        Self { calls }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// If there is none. The request may have been carried out.
    pub async fn call(&self, request: &Request) -> Result<Answer, LinkError> {
        let mut bytes = vec![];
        request.encode(&mut bytes);
        let (answer, answered) = oneshot::channel();
        self.calls.try_send(Call { request: bytes, answer }).map_err(|_| LinkError::Busy)?;
        answered.await.unwrap_or(Err(LinkError::Ended))
    }
}

/// Returns which member is at an address.
///
/// # Errors
///
/// If none answers.
pub async fn identify(target: &Target) -> Result<Peer, LinkError> {
    let connected = timeout(HELLO_TIME, connect(target)).await;
    connected.unwrap_or_else(|_| Err(late(target))).map(|connection| connection.peer)
}

fn late(target: &Target) -> LinkError {
    LinkError::Unreachable(format!("{} did not answer", target.address))
}

struct Connection {
    write: OwnedWriteHalf,
    read: OwnedReadHalf,
    to: Direction,
    back: Direction,
    peer: Peer,
}

async fn connect(target: &Target) -> Result<Connection, LinkError> {
    let unreachable =
        |error: io::Error| LinkError::Unreachable(format!("{}: {error}", target.address));
    let mut stream = reach(target).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => LinkError::Absent(target.address.clone()),
        _ => unreachable(error),
    })?;
    socket::prepare(&stream).map_err(unreachable)?;
    let begun = frame::call(&mut stream, target.keys.as_ref(), target.feed, target.role).await;
    let (to, back, peer) = begun.map_err(|why| match why {
        NotBegun::Io(error) => unreachable(error),
        NotBegun::Refused(reason) => {
            LinkError::Refused(format!("{} refuses the caller: {reason}", target.address))
        }
    })?;
    if target.log.is_some_and(|log| log != peer.log) {
        return Err(LinkError::Foreign(target.address.clone()));
    }
    let (read, write) = stream.into_split();
    Ok(Connection { write, read, to, back, peer })
}

/// Connects to the first address that answers.
async fn reach(target: &Target) -> io::Result<TcpStream> {
    let Some(own) = target.bind else { return TcpStream::connect(&target.address).await };
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(&target.address).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // An address of another family has another way.
        if own.is_ipv4() == address.is_ipv4() {
            socket.bind((own, 0).into())?;
        }
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Calls that wait for their answers; none if the connection has ended.
type Pending = Arc<Mutex<Option<Calls>>>;

#[derive(Default)]
struct Calls {
    waiting: HashMap<u64, Waiting>,
    /// When the first call was made since the last answer.
    since: Option<Instant>,
}

struct Open {
    write: OwnedWriteHalf,
    to: Direction,
    pending: Pending,
    reader: JoinHandle<()>,
    next: u64,
    /// When the last call was made.
    used: Instant,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.reader.abort();
        end(&self.pending);
    }
}

fn end(pending: &Pending) {
    let calls = pending.lock().unwrap_or_else(PoisonError::into_inner).take();
    for answer in calls.into_iter().flat_map(|calls| calls.waiting.into_values()) {
        let _ = answer.send(Err(LinkError::Ended));
    }
}

impl Open {
    fn start(connection: Connection) -> Self {
        let Connection { write, mut read, to, mut back, .. } = connection;
        let pending: Pending = Arc::new(Mutex::new(Some(Calls::default())));
        let own = Arc::clone(&pending);
        let reader = tokio::spawn(async move {
            while let Ok((call, bytes)) = back.read(&mut read, MAX_FRAME_BYTES).await {
                let Ok(answer) = Answer::decode(&bytes) else { break };
                let mut pending = own.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = pending.as_mut().and_then(|calls| {
                    calls.since = None;
                    calls.waiting.remove(&call)
                });
                // A caller that has given up does not wait.
                if let Some(waiting) = waiting {
                    let _ = waiting.send(Ok(answer));
                }
            }
            end(&own);
        });
        Self { write, to, pending, reader, next: 1, used: Instant::now() }
    }

    /// Writes a call. If the connection has ended, gives the call back.
    async fn send(&mut self, call: Call) -> Result<(), Call> {
        let number = self.next;
        self.next += 1;
        self.used = Instant::now();
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(calls) = pending.as_mut() else { return Err(call) };
            if calls.since.is_some_and(|since| since.elapsed() > SILENCE) {
                return Err(call);
            }
            calls.since.get_or_insert_with(Instant::now);
            calls.waiting.retain(|_, waiting| !waiting.is_closed());
            calls.waiting.insert(number, call.answer);
        }
        match timeout(WRITE_TIME, self.to.write(&mut self.write, number, &call.request)).await {
            Ok(Ok(())) => {}
            _ => end(&self.pending),
        }
        Ok(())
    }

    /// Whether the server may end the connection because nothing was asked on it for long. It does not while it owes an answer.
    fn is_unused(&self) -> bool {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |calls: &Calls| calls.waiting.values().any(|waiting| !waiting.is_closed());
        self.used.elapsed() >= UNUSED_TIME && !pending.as_ref().is_some_and(waits)
    }

    fn has_ended(&self) -> bool {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

async fn run(target: Target, mut queue: mpsc::Receiver<Call>) {
    let mut open: Option<Open> = None;
    let is_member = target.role.member().is_some();
    while let Some(mut call) = queue.recv().await {
        if call.answer.is_closed() {
            continue;
        }
        let is_usable = |open: &Open| !open.has_ended() && (is_member || !open.is_unused());
        if let Some(connection) = open.as_mut().filter(|open| is_usable(open)) {
            match connection.send(call).await {
                Ok(()) => continue,
                Err(back) => call = back,
            }
        }
        open = None;
        match timeout(HELLO_TIME, connect(&target)).await.unwrap_or_else(|_| Err(late(&target))) {
            Ok(connection) => {
                let mut connection = Open::start(connection);
                if let Err(call) = connection.send(call).await {
                    let _ = call.answer.send(Err(LinkError::Ended));
                }
                open = Some(connection);
            }
            Err(error) => {
                let _ = call.answer.send(Err(error));
            }
        }
    }
}
