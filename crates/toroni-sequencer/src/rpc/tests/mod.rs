//! Messages as bytes, and what a connection with a wrong key, old frames or a caller that gives up comes to.

mod answers;
mod hostile;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::timeout;
use toroni_proto::wire::{Key, Keys};
use toroni_testkit::wait::LIMIT;

use super::connection::FRAME_TIME;
use super::*;
use crate::batch::{Builder, Command};
use crate::bytes::Fields;
use crate::entry::{Entry, MOST_ENTRIES, Member, Members, Payload, Place, Reach, Vote};
use crate::machine::{Chain, Departs, Outcome, Refusal};

fn place() -> impl Strategy<Value = Place> {
    let fields = (any::<u64>(), any::<u64>(), 0..=MOST_ENTRIES);
    fields.prop_map(|(term, leader, index)| Place { term, leader, index })
}

#[test]
fn a_place_that_no_log_has_is_refused() {
    for (index, is_possible) in [(MOST_ENTRIES, true), (MOST_ENTRIES + 1, false), (u64::MAX, false)]
    {
        let mut bytes = Vec::new();
        Place::encode_option(Some(Place { term: 1, leader: 0, index }), &mut bytes);
        let decoded = Place::decode_option(&mut Fields::of(&bytes));
        assert_eq!(decoded.is_ok(), is_possible, "{index}: {decoded:?}");
    }
}

fn vote() -> impl Strategy<Value = Vote> {
    any::<(u64, u64, bool)>().prop_map(|(term, candidate, committed)| Vote {
        term,
        candidate,
        committed,
    })
}

fn batch(series: u32) -> Arc<[u8]> {
    let mut builder = Builder::new();
    builder.push(&Command::Begin { series }).expect("short");
    builder.finish().expect("a command").into()
}

fn members() -> impl Strategy<Value = Members> {
    let member = ("[a-z]{0,9}", "[0-9.:]{0,20}", any::<[u8; 16]>())
        .prop_map(|(name, address, log)| Member { name, address, log });
    let set = proptest::collection::btree_set(0..8_u64, 0..4).prop_map(BTreeSet::from_iter);
    (vec(set, 0..3), proptest::collection::btree_map(0..8_u64, member, 0..4))
        .prop_map(|(voters, members)| Members { voters, members })
}

fn entry() -> impl Strategy<Value = Entry> {
    let payload = prop_oneof![
        Just(Payload::Blank),
        any::<u32>().prop_map(|series| Payload::Batch(batch(series))),
        members().prop_map(Payload::Members),
    ];
    (place(), payload).prop_map(|(place, payload)| Entry { place, payload })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (vote(), option::of(place()), option::of(place()), vec(entry(), 0..5)).prop_map(
            |(vote, previous, commit, entries)| Request::Append { vote, previous, commit, entries }
        ),
        (vote(), option::of(place())).prop_map(|(vote, last)| Request::Vote { vote, last }),
        (vote(), vec(any::<u8>(), 0..50))
            .prop_map(|(vote, bytes)| Request::Snapshot { vote, bytes: bytes.into() }),
        any::<u32>().prop_map(|series| Request::Submit(batch(series))),
        any::<u32>().prop_map(Request::Source),
        any::<u32>().prop_map(Request::Sources),
        any::<u32>().prop_map(Request::ReleaseSource),
        any::<u32>().prop_map(Request::RemoveSource),
        Just(Request::Status),
        Just(Request::Confirm),
        Just(Request::State),
        peer().prop_map(Request::Peer),
        option::of(place()).prop_map(Request::Probe),
        any::<u64>().prop_map(Request::Digest),
        members().prop_map(Request::Init),
        (".{0,9}", ".{0,20}").prop_map(|(name, address)| Request::Add { name, address }),
        ".{0,9}".prop_map(Request::Remove),
        ".{0,9}".prop_map(Request::HandOver),
        (vote(), option::of(place())).prop_map(|(vote, last)| Request::TakeOver { vote, last }),
        any::<(u64, u32, u32, Option<u32>)>().prop_map(|(from, max_bytes, wait, series)| {
            let wait = Duration::from_millis(wait.into());
            Request::Fetch(Fetch { from, max_bytes, wait, series })
        }),
    ]
}

fn chain() -> impl Strategy<Value = Chain> {
    any::<(u32, u64, u64, u32)>().prop_map(|(series, one, other, begin)| {
        let (begun, next) = (one.min(other), one.max(other));
        let mut chain = Chain { series, begun, next: next.min(1 << 60), ..Chain::default() };
        chain.append(Command::Begin { series: begin }, &[]);
        chain
    })
}

fn departs() -> impl Strategy<Value = Departs> {
    let place = any::<(u32, u64)>();
    prop_oneof![
        Just(Departs::Nowhere),
        Just(Departs::Unknown),
        place.prop_map(|(series, begun)| Departs::At { series, begun }),
        place.prop_map(|(series, begun)| Departs::Foreign { series, begun }),
    ]
}

fn events() -> impl Strategy<Value = Events> {
    (chain(), vec(any::<u32>(), 0..3)).prop_map(|(before, series)| {
        let mut bytes = vec![];
        for series in series {
            Command::Begin { series }.encode(&mut bytes).expect("short");
        }
        Events::check(before, bytes).expect("commands")
    })
}

fn status() -> impl Strategy<Value = Status> {
    let number = || option::of(any::<u64>());
    let known = (number(), option::of(place()), any::<u64>(), any::<[bool; 5]>());
    let member = (any::<(u64, bool, bool)>(), ".{0,9}", ".{0,20}", number()).prop_map(
        |((id, answers, full), name, address, behind)| MemberStatus {
            id,
            name,
            address,
            answers,
            full,
            behind,
        },
    );
    let set = proptest::collection::btree_set(0..8_u64, 0..4).prop_map(BTreeSet::from_iter);
    let more = (option::of(".{1,20}"), vec(set, 0..3), vec(member, 0..5));
    let numbers = any::<(u64, u64, u32, u64, [u8; 32], [u64; 4], u32)>();
    (numbers, known, more).prop_map(|(numbers, known, (hindrance, voters, members))| {
        let (id, term, series, next, digest, counts, contact) = numbers;
        let [elections, in_flight, room, sources] = counts;
        let (leader, last, first, [full, uncertain, needs_recovery, hands_over, out]) = known;
        let (applied, purged) = (last.map(|place| Place { term: 1, ..place }), None);
        Status {
            id,
            term,
            leader,
            last,
            applied,
            purged,
            series,
            next,
            digest,
            first,
            elections,
            in_flight,
            room,
            sources,
            full,
            uncertain,
            needs_recovery,
            hands_over,
            contact: Duration::from_millis(contact.into()),
            is_out_of_contact: out,
            hindrance,
            voters,
            members,
        }
    })
}

fn reach() -> impl Strategy<Value = Reach> {
    (0..MOST_ENTRIES, option::of(place())).prop_map(|(generation, last)| Reach { generation, last })
}

fn peer() -> impl Strategy<Value = PeerState> {
    let numbers = any::<([u8; 16], [u8; 16], u64, Option<u64>, [bool; 4])>();
    (numbers, reach(), option::of(place())).prop_map(|(numbers, reach, last)| {
        let (log, life, term, leader, [is_full, is_uncertain, leads, lacks_majority]) = numbers;
        PeerState {
            log,
            life,
            reach,
            last,
            term,
            leader,
            is_full,
            is_uncertain,
            leads,
            lacks_majority,
        }
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let outcome = prop_oneof![
        any::<u64>().prop_map(Outcome::Sequenced),
        Just(Outcome::Duplicate),
        any::<u64>().prop_map(|number| Outcome::Refused(Refusal::Wanted(number))),
        any::<u32>().prop_map(|session| Outcome::Refused(Refusal::Session(session))),
        Just(Outcome::Refused(Refusal::Closed)),
    ];
    let appended = prop_oneof![
        Just(Appended::All),
        option::of(place()).prop_map(Appended::Part),
        Just(Appended::Conflict),
        vote().prop_map(Appended::Higher),
        Just(Appended::NoRoom),
    ];
    let source =
        || {
            any::<([u8; 16], u32, u32, u64)>()
                .prop_map(|(bus, session, series, next)| SourceState { bus, session, series, next })
        };
    let last = option::of(0..MOST_ENTRIES);
    let info = (source(), any::<(u32, bool)>(), last, option::of(".{1,20}")).prop_map(
        |(state, (source, is_released), last, address)| SourceInfo {
            source,
            state,
            last,
            is_released,
            address,
        },
    );
    prop_oneof![
        appended.prop_map(Answer::Appended),
        (vote(), any::<bool>(), option::of(place()))
            .prop_map(|(vote, granted, last)| Answer::Voted { vote, granted, last }),
        vote().prop_map(Answer::Installed),
        vec(outcome, 0..9).prop_map(Answer::Outcomes),
        option::of(source()).prop_map(Answer::Source),
        vec(info, 0..5).prop_map(Answer::Sources),
        ".{0,40}".prop_map(Answer::Refused),
        status().prop_map(|status| Answer::Status(Box::new(status))),
        any::<u64>().prop_map(Answer::Confirmed),
        (peer(), option::of(reach())).prop_map(|(state, shown)| Answer::Peer(state, shown)),
        (any::<bool>(), option::of(place())).prop_map(|(yes, last)| Answer::Probed { yes, last }),
        option::of(any::<[u8; 32]>()).prop_map(Answer::Digest),
        option::of((any::<u64>(), "[a-z:0-9]{0,20}")).prop_map(Answer::NotLeader),
        ".{0,40}".prop_map(Answer::Failed),
        (any::<u64>(), chain(), departs(), option::of(events())).prop_map(
            |(first, now, departs, events)| {
                Answer::Fetched(Fetched { first, now, departs, events })
            }
        ),
        option::of(vec(any::<u8>(), 0..20)).prop_map(|bytes| Answer::State(bytes.map(Into::into))),
    ]
}

proptest! {
    #[test]
    fn messages_are_what_was_encoded(request in request(), answer in answer(), cut: usize) {
        let mut bytes = vec![];
        request.encode(&mut bytes);
        prop_assert_eq!(Request::decode(&bytes), Ok(request));
        // What is cut may be another message, but is no reason to panic.
        let _ = Request::decode(&bytes[..cut % bytes.len()]);
        bytes.clear();
        answer.encode(&mut bytes);
        prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
        let _ = Answer::decode(&bytes[..cut % bytes.len()]);
    }

    #[test]
    fn any_bytes_are_one_message_or_none(bytes in vec(any::<u8>(), 0..120)) {
        let mut again = vec![];
        if let Ok(request) = Request::decode(&bytes) {
            request.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        again.clear();
        if let Ok(answer) = Answer::decode(&bytes) {
            answer.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }
}

#[test]
fn whether_there_is_something_has_two_values() {
    for kind in [5, 9] {
        let mut bytes = vec![0; 34];
        (bytes[0], bytes[1]) = (kind, 1);
        assert!(Answer::decode(&bytes).is_ok());
        bytes[1] = 2;
        assert!(Answer::decode(&bytes).is_err(), "answer {kind}");
    }
}

/// Answers each request with how many came before.
#[derive(Default)]
struct Counts(AtomicU32, Arc<Held>);

/// How many requests are not answered and in memory, and the most that were.
#[derive(Default)]
struct Held(AtomicU32, AtomicU32);

impl Held {
    fn one(self: &Arc<Self>) -> impl Drop + Send + use<> {
        struct One(Arc<Held>);
        impl Drop for One {
            fn drop(&mut self) {
                self.0.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.1.fetch_max(self.0.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        One(Arc::clone(self))
    }
}

impl Serve for Counts {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let held = matches!(request, Request::Snapshot { .. }).then(|| self.1.one());
        Box::pin(async move {
            let _held = held;
            if matches!(request, Request::Digest(u64::MAX) | Request::Snapshot { .. }) {
                std::future::pending::<()>().await;
            }
            Answer::Failed(before.to_string())
        })
    }
}

fn keys(byte: u8) -> Option<Keys> {
    Some(Keys { first: Key::new([byte; 32]), next: None })
}

fn identity(keys: Option<Keys>) -> Identity {
    Identity { feed: [1; 16], keys, own: Peer { log: [2; 16], id: 3 }, listed: vec![] }
}

async fn serve(keys: Option<Keys>) -> (String, Arc<Counts>) {
    serve_with(keys, Arc::new(Counts::default())).await
}

async fn serve_with<S: Serve>(keys: Option<Keys>, serve: Arc<S>) -> (String, Arc<S>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(listen(listener, identity(keys), Arc::<S>::clone(&serve), Handle::current()));
    (address, serve)
}

fn target(address: &str, keys: Option<Keys>) -> Target {
    let (address, role) = (address.to_owned(), Role::Member { id: 0, log: [4; 16] });
    Target { address, feed: [1; 16], keys, role, log: Some([2; 16]), bind: None }
}

#[tokio::test]
async fn who_has_another_key_feed_or_log_is_refused() {
    let (address, counts) = serve(keys(1)).await;
    let right = target(&address, keys(1));
    assert_eq!(identify(&right).await.expect("the same key"), Peer { log: [2; 16], id: 3 });
    for wrong in [
        target(&address, keys(2)),
        target(&address, None),
        Target { feed: [9; 16], ..right.clone() },
        Target { log: Some([9; 16]), ..right.clone() },
    ] {
        assert!(Link::new(wrong).call(&Request::Status).await.is_err());
    }
    // Who has the key learns why.
    for (keys, address) in [(keys(1), address.clone()), (None, serve(None).await.0)] {
        let wrong = Target { feed: [9; 16], ..target(&address, keys) };
        let error = identify(&wrong).await.expect_err("another feed");
        let expected = format!("{address} refuses the caller: this is a member of another feed");
        assert_eq!(error.to_string(), expected);
        let role = Role::Member { id: 8, log: [4; 16] };
        let error = identify(&Target { role, ..target(&address, keys) }).await.expect_err("no id");
        assert!(error.to_string().ends_with("a member's id is 0 to 7, not 8"), "{error}");
    }
    assert_eq!(counts.0.load(Ordering::Relaxed), 0);
    let answer = Link::new(right).call(&Request::Status).await.expect("answered");
    assert_eq!(answer, Answer::Failed("0".to_owned()));
}

#[tokio::test]
async fn a_member_of_another_version_is_named_with_both() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            stream.write_all(b"TNSQ\x01").await.expect("sent");
            stream.write_all(&[7; 16]).await.expect("sent");
        }
    });
    let error = identify(&target(&address, keys(1))).await.expect_err("another version");
    let text = error.to_string();
    assert!(
        text.contains("is of version 1 of the sequencer's messages, and this one of version 2")
    );
    assert!(text.contains("run the same version of toroni on all hosts"), "{text}");
}

#[tokio::test]
async fn a_call_that_is_given_up_disturbs_no_other() {
    let (address, counts) = serve(keys(1)).await;
    let link = Link::new(target(&address, keys(1)));
    for number in 0..50_u32 {
        let forever = Request::Digest(u64::MAX);
        if number.is_multiple_of(10) {
            assert!(timeout(Duration::from_millis(20), link.call(&forever)).await.is_err());
        } else {
            // Given up at once, perhaps before a byte was written.
            let _ = timeout(Duration::ZERO, link.call(&Request::Status)).await;
        }
        let answer = timeout(LIMIT, link.call(&Request::Source(number))).await;
        assert!(matches!(answer, Ok(Ok(Answer::Failed(_)))), "{answer:?}");
    }
    assert!(counts.0.load(Ordering::Relaxed) >= 50);
}

/// Everything that a caller wrote in one connection is written into another, and once more into its own.
#[tokio::test]
async fn recorded_frames_are_refused() {
    let (address, counts) = serve(keys(1)).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let link = Link::new(target(&proxy.local_addr().expect("bound").to_string(), keys(1)));
    let recording = tokio::spawn(async move {
        let (mut caller, _) = proxy.accept().await.expect("called");
        let mut server = TcpStream::connect(&address).await.expect("served");
        let (mut from_caller, mut to_caller) = caller.split();
        let (mut from_server, mut to_server) = server.split();
        let mut recorded = vec![];
        let there = async {
            let mut bytes = [0; 4096];
            // The nonce and HELLO, and then one request.
            while let Ok(count @ 1..) = from_caller.read(&mut bytes).await {
                recorded.extend(&bytes[..count]);
                to_server.write_all(&bytes[..count]).await.expect("sent");
            }
            // The last frame again: as long as STATUS is with its MAC.
            let again = recorded[recorded.len() - 29..].to_vec();
            to_server.write_all(&again).await.expect("sent");
        };
        let back = tokio::io::copy(&mut from_server, &mut to_caller);
        let (_, _) = tokio::join!(there, back);
        (address, recorded)
    });
    assert!(link.call(&Request::Status).await.is_ok());
    drop(link);
    let (address, recorded) = timeout(LIMIT, recording).await.expect("ends").expect("recorded");
    let mut other = TcpStream::connect(&address).await.expect("served");
    other.write_all(&recorded).await.expect("sent");
    let mut end = vec![];
    let read =
        timeout(LIMIT, other.read_to_end(&mut end)).await.expect("the server ends the connection");
    assert!(read.is_err() || end.len() == 21, "{} bytes", end.len());
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_breaks_the_rules_costs_its_connection_only() {
    let (address, counts) = serve(None).await;
    for bytes in [vec![0; 4096], vec![0xFF; 4096], b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = TcpStream::connect(&address).await.expect("served");
        let _ = stream.write_all(&bytes).await;
        let _ = timeout(LIMIT, stream.read_to_end(&mut vec![]))
            .await
            .expect("the server ends the connection");
    }
    let link = Link::new(target(&address, None));
    assert!(link.call(&Request::Status).await.is_ok());
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
}

/// Requests that are not answered hold their memory, and further ones stay in their sockets: not those of members.
#[tokio::test]
async fn requests_of_all_connections_share_a_bounded_memory() {
    let (address, counts) = serve(keys(1)).await;
    let target = |role| Target { role, ..target(&address, keys(1)) };
    let host = |source| Role::Courier { source };
    let large = Request::Snapshot { vote: Vote::default(), bytes: vec![0; 1 << 20].into() };
    let mut calls = tokio::task::JoinSet::new();
    for source in 1..=40 {
        // Each address has a share: two of them.
        let last = u8::try_from(source / 2 + 2).expect("small");
        let bind = Some(std::net::IpAddr::from([127, 0, 0, last]));
        let (target, large) = (Target { bind, ..target(host(source)) }, large.clone());
        // One call for each connection: a caller that calls again after half a second without an answer ends its connection,
        // and with it what was held. And again if the connection ends, as one does that got no memory for long.
        calls.spawn(async move {
            loop {
                let _ = Link::new(target.clone()).call(&large).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    // Each has a header beside its mebibyte, so 31 fit.
    let most_held = || counts.1.1.load(Ordering::Relaxed);
    timeout(LIMIT, async {
        while most_held() < 31 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("as many as there is memory for");
    let answer = timeout(
        LIMIT,
        Link::new(target(Role::Member { id: 0, log: [4; 16] })).call(&Request::Status),
    )
    .await;
    assert!(matches!(answer, Ok(Ok(_))), "{answer:?}");
    // Those who give up release what they held.
    calls.abort_all();
    while calls.join_next().await.is_some() {}
    let answer = timeout(LIMIT, Link::new(target(host(1))).call(&Request::Status)).await;
    assert!(matches!(answer, Ok(Ok(_))), "{answer:?}");
    assert_eq!(most_held(), 31);
}

/// Announces requests, and sends none of them: it holds memory for those until it is given up.
#[tokio::test]
async fn a_host_is_heard_while_those_at_another_address_hold_the_memory_for_requests() {
    let (address, _) = serve(None).await;
    let mut streams = vec![];
    for source in 2..=40 {
        let mut stream = TcpStream::connect(&address).await.expect("connected");
        let role = Role::Courier { source };
        frame::call(&mut stream, None, [1; 16], role).await.expect("it is taken");
        stream.write_all(&(2_u32 << 20).to_le_bytes()).await.expect("sent");
        streams.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bind = Some(std::net::IpAddr::from([127, 0, 0, 2]));
    let role = Role::Courier { source: 1 };
    let link = Link::new(Target { bind, role, ..target(&address, None) });
    for _ in 0..10 {
        // Behind those others it would wait until they are given up, and they come again.
        let answer = timeout(FRAME_TIME * 4 / 5, link.call(&Request::Status)).await;
        answer.expect("in time").expect("it is heard");
    }
    let end = timeout(LIMIT, streams[0].read(&mut [0; 8])).await.expect("it is given up");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[test]
fn a_silent_member_is_passed_over_until_it_answers() {
    const SHORT: Duration = Duration::from_millis(200);
    let servers = tokio::runtime::Runtime::new().expect("a runtime");
    let (other, _) = servers.block_on(serve(keys(1)));
    // The kernel takes connections, and no program answers, as with a member that was stopped.
    let stopped = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = stopped.local_addr().expect("bound").to_string();
    let targets = vec![target(&address, keys(1)), target(&other, keys(1))];
    let mut members = InTurn::new(targets, vec![]).expect("a runtime");
    members.call(&Request::Status, SHORT).expect_err("silent");
    for _ in 0..4 {
        members.turn();
        assert_eq!(members.at(), 1, "the silent member has its turn");
        members.call(&Request::Status, LIMIT).expect("answered");
    }
    stopped.set_nonblocking(true).expect("set");
    servers.spawn(async move {
        let listener = TcpListener::from_std(stopped).expect("a listener");
        listen(listener, identity(keys(1)), Arc::new(Counts::default()), Handle::current()).await;
    });
    let begun = std::time::Instant::now();
    while members.at() == 1 {
        assert!(begun.elapsed() < LIMIT, "the member answers and has no turn");
        std::thread::sleep(Duration::from_millis(10));
        members.call(&Request::Status, LIMIT).expect("answered");
        members.turn();
    }
    members.call(&Request::Status, LIMIT).expect("answered");
}

/// Is slow with digests, and with nothing else.
struct Slow;

impl Serve for Slow {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        Box::pin(async move {
            if matches!(request, Request::Digest(_)) {
                tokio::time::sleep(Duration::from_millis(2500)).await;
            }
            Answer::Done
        })
    }
}

#[test]
fn whether_a_silent_member_answers_is_asked_beside_the_call_that_it_is_slow_with() {
    let servers = tokio::runtime::Runtime::new().expect("a runtime");
    let (address, _) = servers.block_on(serve_with(None, Arc::new(Slow)));
    let members = InTurn::new(vec![target(&address, None)], vec![]).expect("a runtime");
    let late = members.call(&Request::Digest(0), Duration::from_millis(200));
    assert!(matches!(late, Err(LinkError::Late)), "{late:?}");
    // It is asked in a second.
    let answer = members.call(&Request::Digest(0), LIMIT);
    assert!(matches!(answer, Ok(Answer::Done)), "{answer:?}");
}

proptest! {
    #[test]
    fn events_survive_the_way_there_and_back(events in events()) {
        let mut bytes = vec![];
        events.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), events.encoded_bytes());
        prop_assert_eq!(Events::decode(&bytes).expect("as encoded"), events.clone());
        // A byte less is not taken for something else.
        if let Some(Ok(other)) = bytes.split_last().map(|(_, rest)| Events::decode(rest)) {
            prop_assert!(other.end() < events.end());
        }
    }

    #[test]
    fn any_bytes_are_events_or_refused(bytes in vec(any::<u8>(), 0..120)) {
        if let Ok(events) = Events::decode(&bytes) {
            let mut again = vec![];
            events.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn events_follow_on_each_place_that_they_pass_and_on_no_other(events in events(), at in 0_u64..5) {
        let mut own = events.before();
        for (command, bytes) in events.commands().take(usize::try_from(at).expect("small")) {
            own.append(command, bytes);
        }
        let rest = events.after(&own).expect("they pass it");
        prop_assert_eq!((rest.before(), rest.end()), (own, events.end()));
        let mut end = own;
        for (command, bytes) in rest.commands() {
            end.append(command, bytes);
        }
        prop_assert_eq!(end.next, events.end());
        let other = crate::machine::Chain { series: own.series ^ 1, ..own };
        prop_assert_eq!(events.after(&other), None);
        let later = crate::machine::Chain { next: events.end() + 1, ..own };
        prop_assert_eq!(events.after(&later), None);
    }
}
