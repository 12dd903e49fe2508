//! Connections that are made to be in the way, or that their callers leave alone.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toroni_proto::wire::Keys;
use toroni_testkit::wait::LIMIT;

use super::super::frame::{self, Direction};
use super::super::*;
use super::{identity, keys, serve, target};

const MEMBER: Role = Role::Member { id: 1, log: [4; 16] };

/// A group with one other member, which is at 127.0.0.2.
struct Group;

impl Serve for Group {
    fn serve(&self, caller: Caller, request: Request) -> Answering {
        Box::pin(async move {
            // Longer than a host may be idle.
            if matches!(request, Request::Digest(_)) {
                sleep(Duration::from_secs(6)).await;
            }
            Answer::Confirmed(caller.id)
        })
    }

    fn members(&self) -> Vec<KnownMember> {
        vec![KnownMember { id: 1, log: [4; 16], address: "127.0.0.2:4481".to_owned() }]
    }
}

async fn serve_group() -> String {
    // Both ends of each connection are in this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the hard one");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(listen(listener, identity(keys(1)), Arc::new(Group), Handle::current()));
    address
}

fn from(role: Role, own: [u8; 4], address: &str) -> Target {
    Target { role, bind: Some(IpAddr::from(own)), ..target(address, keys(1)) }
}

async fn connect_from(own: [u8; 4], address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((IpAddr::from(own), 0).into()).expect("an address of this host");
    socket.connect(address.parse().expect("an address")).await.expect("connected")
}

/// A connection that has begun.
struct Raw(TcpStream, Direction, Direction);

impl Raw {
    async fn begin(role: Role, own: [u8; 4], address: &str, keys: Option<Keys>) -> Self {
        let mut stream = connect_from(own, address).await;
        let begun = frame::call(&mut stream, keys.as_ref(), [1; 16], role).await;
        let (to, back, _) = begun.expect("it is taken");
        Self(stream, to, back)
    }

    /// Asks something. None if the connection has ended.
    async fn ask(&mut self) -> Option<()> {
        let Self(stream, to, back) = self;
        let mut request = vec![];
        Request::Status.encode(&mut request);
        to.write(stream, 1, &request).await.ok()?;
        back.read(stream, frame::MAX_FRAME_BYTES).await.ok().map(|_| ())
    }

    /// Waits until the server ends the connection.
    async fn ended(&mut self) {
        let end = timeout(LIMIT, self.0.read(&mut [0; 8])).await.expect("the server ends it");
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}

/// What a hostile caller does with each of its connections.
#[derive(Debug, Clone, Copy)]
enum Hostile {
    /// Nothing, from one address.
    Silent,
    /// The same from 64 addresses.
    SilentOfMany,
    /// Stops within the hello.
    HalfAHello,
    /// Has another key.
    WrongKey,
    /// Has the key, and says that it is a host.
    Host,
}

/// Holds a connection, and counts it once it has begun.
async fn hold(hostile: Hostile, number: u32, address: String, held: Arc<AtomicUsize>) {
    let [_, _, _, last] = (number % 64).to_be_bytes();
    let own = match hostile {
        Hostile::SilentOfMany => [127, 0, 1, last + 1],
        _ => [127, 0, 0, 9],
    };
    loop {
        let mut stream = connect_from(own, &address).await;
        let mut feed = [1; 16];
        match hostile {
            Hostile::Silent | Hostile::SilentOfMany => {}
            Hostile::HalfAHello => drop(stream.write_all(&[7; 20]).await),
            Hostile::WrongKey => {
                drop(frame::call(&mut stream, keys(2).as_ref(), feed, MEMBER).await);
                feed = [2; 16];
            }
            Hostile::Host => {
                let role = Role::Follower { source: Some(number + 1) };
                drop(frame::call(&mut stream, keys(1).as_ref(), feed, role).await);
            }
        }
        held.fetch_add(1, Ordering::Relaxed);
        // Again when the server has ended it.
        while let Ok(1..) = stream.read(&mut feed).await {}
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_and_a_tool_are_served_whatever_others_hold() {
    let address = serve_group().await;
    let mut begun_before = Raw::begin(MEMBER, [127, 0, 0, 2], &address, keys(1)).await;
    for hostile in [
        Hostile::Silent,
        Hostile::SilentOfMany,
        Hostile::HalfAHello,
        Hostile::WrongKey,
        Hostile::Host,
    ] {
        let (mut holders, held) = (JoinSet::new(), Arc::<AtomicUsize>::default());
        for number in 0..400 {
            holders.spawn(hold(hostile, number, address.clone(), Arc::clone(&held)));
        }
        // Also on a busy machine, many hold one before the others ask.
        while held.load(Ordering::Relaxed) < 250 {
            sleep(Duration::from_millis(5)).await;
        }
        for round in 0..10 {
            sleep(Duration::from_millis(20)).await;
            for target in [
                from(MEMBER, [127, 0, 0, 2], &address),
                from(Role::Tool, [127, 0, 0, 8], &address),
                from(Role::Courier { source: 5000 }, [127, 0, 0, 8], &address),
            ] {
                let link = Link::new(target.clone());
                let answer = timeout(LIMIT, link.call(&Request::Status)).await;
                assert!(
                    matches!(answer, Ok(Ok(Answer::Confirmed(_)))),
                    "{hostile:?}, round {round}, as {:?}: {answer:?}",
                    target.role
                );
            }
        }
        begun_before.ask().await.expect("a connection of a member is kept");
    }
}

#[tokio::test]
async fn only_the_role_of_a_member_makes_one() {
    let address = serve_group().await;
    for (role, id) in [
        (MEMBER, 1),
        (Role::Courier { source: 1 }, u64::MAX),
        (Role::Follower { source: Some(1) }, u64::MAX),
        (Role::Tool, u64::MAX),
    ] {
        let answer = Link::new(from(role, [127, 0, 0, 3], &address)).call(&Request::Status).await;
        assert_eq!(answer.expect("answered"), Answer::Confirmed(id));
    }
}

#[tokio::test]
async fn a_fifth_connection_of_a_source_closes_the_one_that_asked_nothing_for_longest() {
    let address = serve_group().await;
    let role = Role::Courier { source: 7 };
    let mut connections = vec![];
    for _ in 0..4 {
        connections.push(Raw::begin(role, [127, 0, 0, 3], &address, keys(1)).await);
    }
    connections[0].ask().await.expect("answered");
    let mut fifth = Raw::begin(role, [127, 0, 0, 4], &address, keys(1)).await;
    connections[1].ended().await;
    for at in [0, 2, 3] {
        connections[at].ask().await.expect("it is kept");
    }
    fifth.ask().await.expect("answered");
}

#[tokio::test]
async fn the_connection_of_a_host_that_asks_nothing_ends_and_that_of_a_member_does_not() {
    let address = serve_group().await;
    let mut member = Raw::begin(MEMBER, [127, 0, 0, 2], &address, keys(1)).await;
    let role = Role::Follower { source: Some(7) };
    Raw::begin(role, [127, 0, 0, 3], &address, keys(1)).await.ended().await;
    member.ask().await.expect("it is kept");
}

#[tokio::test]
async fn a_host_that_waits_for_an_answer_is_not_idle() {
    let address = serve_group().await;
    for role in [Role::Courier { source: 1 }, Role::Tool] {
        let link = Link::new(from(role, [127, 0, 0, 3], &address));
        let other = link.clone();
        let slow = tokio::spawn(async move { other.call(&Request::Digest(0)).await });
        // Answered, so the connection is not silent either.
        for _ in 0..2 {
            let answer = link.call(&Request::Status).await;
            answer.expect("it is kept");
            sleep(Duration::from_secs(3)).await;
        }
        let answer = timeout(LIMIT, slow).await.expect("in time").expect("no panic");
        assert_eq!(answer.expect("it is kept"), Answer::Confirmed(u64::MAX));
    }
}

#[tokio::test]
async fn the_connection_of_a_tool_ends_also_if_it_asks_on_and_on() {
    let address = serve_group().await;
    let mut tool = Raw::begin(Role::Tool, [127, 0, 0, 3], &address, keys(1)).await;
    let asks = async {
        while tool.ask().await.is_some() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, asks).await.expect("the server ends it");
}

/// Nothing runs between its calls, so it cannot know that the server has ended the connection.
#[test]
fn a_caller_that_asked_nothing_for_long_has_its_answer_at_once() {
    let servers = tokio::runtime::Runtime::new().expect("a runtime");
    let (address, _) = servers.block_on(serve(keys(1)));
    let role = Role::Courier { source: 7 };
    let members = InTurn::new(vec![Target { role, ..target(&address, keys(1)) }], vec![]);
    let members = members.expect("a runtime");
    members.call(&Request::Status, LIMIT).expect("answered");
    std::thread::sleep(Duration::from_secs(6));
    members.call(&Request::Status, LIMIT).expect("answered over another connection");
}
