//! The answering end: who connects, and how much of it at once.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use toroni_proto::wire::Keys;

use super::admission::Admission;
use super::fetch::Fetch;
use super::frame::{self, Begun, Direction, HELLO_TIME, Peer, Role};
use super::known::{Known, KnownMember};
use super::memory::{Budget, Memory, Room};
use super::message::{Answer, Request};
use super::{connection, socket};

/// A connection of a host on which nothing is asked for this long ends. `Link` does not use one that is half as old.
const IDLE_TIME: Duration = Duration::from_secs(if cfg!(test) { 4 } else { 60 });
/// A connection of a tool takes no requests after this time, and ends when those that it took are answered.
const TOOL_TIME: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 60 });
/// The pause after a connection for which the process has no descriptor.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A long answer that is on its way, and the room for it.
pub type LongAnswering = Pin<Box<dyn Future<Output = Option<(Answer, Room)>> + Send>>;

/// The time until a request can be answered.
pub type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The time until it is the turn of a request.
pub type Turning = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The caller's id in the group, if it calls as a member; else `u64::MAX`.
    pub id: u64,
    /// Whether it has the key, or is on this host.
    pub is_trusted: bool,
    /// Its connection. It lives as long as this.
    pub connection: Arc<Connection>,
}

/// A connection, for those who answer.
#[derive(Debug)]
pub struct Connection {
    /// Where the caller is.
    pub address: IpAddr,
    /// As what it calls.
    pub role: Role,
}

/// Who answers requests.
pub trait Serve: Send + Sync + 'static {
    /// Takes a request. Requests of a connection are taken in their order.
    fn serve(&self, caller: Caller, request: Request) -> Answering;

    /// Returns the members of the group. Each has places for its connections.
    fn members(&self) -> Vec<KnownMember> {
        vec![]
    }

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
    /// The addresses of members that the file of the node lists. Without a key, members are known by their addresses.
    pub listed: Vec<String>,
}

/// Serves all that connect, until it is dropped. Connections end with it.
///
/// What answers is run by `work`, which may wait for a disk. The runtime that runs this takes new connections, and carries those
/// with signals: it waits for nothing.
pub async fn listen(
    listener: TcpListener,
    identity: Identity,
    serve: Arc<dyn Serve>,
    work: Handle,
) {
    // What fails leaves the shorter queue that there was.
    let _ = socket::lengthen_queue(&listener);
    let known = Known::new(Arc::clone(&serve), identity.listed.clone());
    let server = Arc::new(Server {
        identity,
        serve,
        known,
        memory: Memory::new(),
        kept: Mutex::default(),
        work,
    });
    let mut tasks = JoinSet::new();
    let names = Arc::clone(&server);
    tasks.spawn(async move {
        names.known.look_up_names().await;
        None
    });
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    server.take(stream, address.ip().to_canonical(), &mut tasks);
                }
                // Out of descriptors, for example: it passes.
                Err(_) => sleep(OUT_OF_DESCRIPTORS).await,
            },
            Some(ended) = tasks.join_next() => {
                if let Ok(Some(admitted)) = ended {
                    server.hand_over(admitted, &mut tasks);
                }
            }
        }
    }
}

/// A connection that has shown its role, and is carried by the runtime for work.
struct Admitted {
    stream: std::net::TcpStream,
    directions: (Direction, Direction),
    caller: Caller,
    memory: Budget,
    place: Place,
}

struct Server {
    identity: Identity,
    serve: Arc<dyn Serve>,
    known: Known,
    memory: Memory,
    kept: Mutex<Kept>,
    work: Handle,
}

/// The connections that are kept, and how to close them.
#[derive(Default)]
struct Kept {
    admission: Admission,
    tasks: HashMap<u64, AbortHandle>,
}

/// The place of a connection. It is given back when this is dropped.
pub(super) struct Place {
    server: Arc<Server>,
    number: u64,
    /// When the connection ends, and after which time if nothing is asked on it.
    ends: Option<Instant>,
    idle_time: Duration,
}

impl Place {
    /// Returns how long to wait for the next request. None if there is no more time for one.
    pub(super) fn left(&self) -> Option<Duration> {
        let left =
            self.ends.map_or(Duration::MAX, |ends| ends.saturating_duration_since(Instant::now()));
        (!left.is_zero()).then_some(left.min(self.idle_time))
    }

    /// Notes that the connection asks something.
    pub(super) fn touch(&self) {
        self.server.kept().admission.touch(self.number, Instant::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut kept = self.server.kept();
        kept.admission.end(self.number);
        kept.tasks.remove(&self.number);
    }
}

impl Server {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new connection, and closes another one if there is no place.
    fn take(
        self: &Arc<Self>,
        stream: TcpStream,
        address: IpAddr,
        tasks: &mut JoinSet<Option<Admitted>>,
    ) {
        let of_member = self.known.addresses().contains(&address);
        let (number, closed) = {
            let mut kept = self.kept();
            let (number, closed) = kept.admission.begin(address, of_member, Instant::now());
            (number, closed.and_then(|closed| kept.tasks.remove(&closed)))
        };
        if let Some(closed) = closed {
            closed.abort();
        }
        let server = Arc::clone(self);
        let place = Place { server, number, ends: None, idle_time: Duration::MAX };
        // Not under the lock: a runtime that ends drops it at once, and its place with it. Who breaks the rules loses the
        // connection, and nothing else happens.
        let task = tasks.spawn(async move { place.begin(stream, address).await.unwrap_or(None) });
        self.keep(number, task);
    }

    /// Has a connection carried by the runtime for work.
    fn hand_over(&self, admitted: Admitted, tasks: &mut JoinSet<Option<Admitted>>) {
        let number = admitted.place.number;
        let serve = Arc::clone(&self.serve);
        let task = tasks.spawn_on(
            async move {
                let Admitted { stream, directions, caller, memory, place } = admitted;
                if let Ok(stream) = TcpStream::from_std(stream) {
                    let _ =
                        connection::run(stream, directions, caller, memory, serve, &place).await;
                }
                None
            },
            &self.work,
        );
        self.keep(number, task);
    }

    /// Keeps how to close a connection, or closes it if its place is gone.
    fn keep(&self, number: u64, task: AbortHandle) {
        let mut kept = self.kept();
        if kept.admission.keeps(number) {
            kept.tasks.insert(number, task);
        } else {
            // It has ended, or was closed for another one.
            drop(kept);
            task.abort();
        }
    }

    /// Admits a connection that has shown its role.
    fn admit(
        &self,
        number: u64,
        role: Role,
        address: IpAddr,
        is_local: bool,
    ) -> Result<(), String> {
        let mut is_known = false;
        if let Some((id, log)) = role.member() {
            is_known = self.known.has(id, log);
            let members = self.known.addresses();
            if self.identity.keys.is_none() && !is_local && !members.contains(&address) {
                let members: Vec<_> = members.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "without a key, members are known by their addresses, and {address} is none of {}",
                    members.join(", ")
                ));
            }
        }
        let mut kept = self.kept();
        let admitted = kept.admission.admit(number, role, is_known, Instant::now());
        let closed = admitted.map_err(|refused| refused.to_string())?;
        let closed = closed.and_then(|closed| kept.tasks.remove(&closed));
        drop(kept);
        if let Some(closed) = closed {
            closed.abort();
        }
        Ok(())
    }
}

impl Place {
    /// Begins a connection. Returns it if it is to be carried by the runtime for work; otherwise, carries it until it ends.
    async fn begin(
        mut self,
        mut stream: TcpStream,
        address: IpAddr,
    ) -> io::Result<Option<Admitted>> {
        let server = Arc::clone(&self.server);
        let Identity { feed, keys, own, .. } = &server.identity;
        socket::prepare(&stream)?;
        let is_local = is_local(address, stream.local_addr().ok().map(|own| own.ip()));
        let begin = async {
            let mut begun = frame::answer(&mut stream, keys.as_ref(), *feed).await?;
            match server.admit(self.number, begun.role, address, is_local) {
                Ok(()) => frame::welcome(&mut stream, &mut begun.to, *own).await?,
                Err(reason) => {
                    frame::refuse(&mut stream, &mut begun.to, &reason).await?;
                    return Err(io::Error::other(reason));
                }
            }
            io::Result::Ok(begun)
        };
        let Begun { to, back, role } = timeout(HELLO_TIME, begin).await??;
        let (id, memory) = match role.member() {
            Some((id, _)) => (id, server.memory.of_member()),
            None => {
                self.idle_time = IDLE_TIME;
                self.ends = (role == Role::Tool).then(|| Instant::now() + TOOL_TIME);
                socket::limit_unsent(&stream)?;
                (u64::MAX, server.memory.of_host(address))
            }
        };
        let caller = Caller {
            id,
            is_trusted: keys.is_some() || is_local,
            connection: Arc::new(Connection { address, role }),
        };
        let directions = (to, back);
        if !matches!(role, Role::Signals { .. }) {
            let stream = stream.into_std()?;
            return Ok(Some(Admitted { stream, directions, caller, memory, place: self }));
        }
        let serve = Arc::clone(&server.serve);
        connection::run(stream, directions, caller, memory, serve, &self).await?;
        Ok(None)
    }

    /// Returns the runtime that answers.
    pub(super) fn work(&self) -> &Handle {
        &self.server.work
    }
}

/// Whether a caller is on this host. Only processes of this host can send from an address of the host itself: the kernel drops
/// what comes from elsewhere with such a source.
fn is_local(caller: IpAddr, own: Option<IpAddr>) -> bool {
    caller.to_canonical().is_loopback()
        || own.map(|own| own.to_canonical()) == Some(caller.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn callers_on_this_host_come_from_its_addresses() {
        assert!(is_local(ip("127.0.0.1"), None));
        assert!(is_local(ip("::ffff:127.0.0.2"), Some(ip("::1"))));
        assert!(is_local(ip("10.0.0.1"), Some(ip("10.0.0.1"))));
        assert!(is_local(ip("10.0.0.1"), Some(ip("::ffff:10.0.0.1"))));
        assert!(!is_local(ip("10.0.0.2"), Some(ip("10.0.0.1"))));
        assert!(!is_local(ip("10.0.0.2"), None));
    }

    struct Group;

    impl Serve for Group {
        fn serve(&self, _: Caller, _: Request) -> Answering {
            Box::pin(std::future::ready(Answer::Done))
        }

        fn members(&self) -> Vec<KnownMember> {
            vec![KnownMember { id: 1, log: [4; 16], address: "10.0.0.2:4481".to_owned() }]
        }
    }

    #[tokio::test]
    async fn without_a_key_a_member_has_an_address_of_the_file_or_of_the_group() {
        let with = |keys| {
            let own = Peer { log: [2; 16], id: 3 };
            let listed = vec!["10.0.0.1:4481".to_owned()];
            let identity = Identity { feed: [1; 16], keys, own, listed };
            let serve: Arc<dyn Serve> = Arc::new(Group);
            let known = Known::new(Arc::clone(&serve), identity.listed.clone());
            let (memory, kept, work) = (Memory::new(), Mutex::default(), Handle::current());
            Server { identity, serve, known, memory, kept, work }
        };
        let admit = |server: &Server, address, role, is_local| {
            let number = server.kept().admission.begin(address, false, Instant::now()).0;
            server.admit(number, role, address, is_local)
        };
        let server = with(None);
        // Whether the group knows the log decides about places alone.
        for log in [[4; 16], [5; 16]] {
            let role = Role::Member { id: 1, log };
            for address in ["10.0.0.1", "10.0.0.2"] {
                assert_eq!(admit(&server, ip(address), role, false), Ok(()));
            }
            let refused = admit(&server, ip("10.0.0.3"), role, false).expect_err("another address");
            let expected = "10.0.0.3 is none of 10.0.0.1, 10.0.0.2";
            assert!(refused.ends_with(expected), "{refused}");
            assert_eq!(admit(&server, ip("127.0.0.1"), role, true), Ok(()));
            let key = toroni_proto::wire::Key::new([7; 32]);
            let with_key = with(Some(Keys { first: key, next: None }));
            assert_eq!(admit(&with_key, ip("10.0.0.3"), role, false), Ok(()));
        }
        assert_eq!(admit(&server, ip("10.0.0.3"), Role::Tool, false), Ok(()));
    }
}
