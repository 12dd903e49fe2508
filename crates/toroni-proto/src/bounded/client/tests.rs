use super::*;
use crate::arrivals::Opening;
use crate::id::Series;
use crate::past::Past;
use crate::reassembly::Loss;
use crate::receiver::End;
use crate::time::{SECOND, Wall};
use crate::wire::samples::RULES;
use crate::wire::tcp::{About, Offer};
use crate::wire::{NodeName, Start, TopicNumber};

#[derive(Default)]
struct Out(Vec<String>);

impl Inbox for Out {
    fn message(&mut self, _: Flow, message: Message<'_>) {
        self.0.push(message.start.number.to_string());
    }
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, _: Flow, loss: Loss) {
        let Loss { count, bound, reason, .. } = loss;
        self.0.push(format!("{count} {bound:?} {reason:?}"));
    }
    fn ends(&mut self, _: Flow, end: End) {
        self.0.push(format!("{end:?}"));
    }
}

fn at(ms: u64) -> Monotonic {
    Monotonic::from_ns(ms * MILLISECOND)
}

/// `silence` of the default configuration.
const SILENCE_MS: u64 = 5_000;

fn client() -> Client {
    let identity = Identity {
        realm: RULES.realm,
        keys: None,
        source: Source(9),
        session: Session(1),
        name: Name::new(NodeName::new("peer").unwrap()),
    };
    let patterns = [TableName::new("**").unwrap()];
    let config = TcpConfig::default();
    Client::new(&config, &identity, &patterns, Random::new(3), at(0)).unwrap()
}

fn seal() -> Seal<'static> {
    Seal { keys: None, context: Context::of_set([0; 16], 0) }
}

fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

fn give(client: &mut Client, ms: u64, bytes: &[u8]) -> Vec<String> {
    let mut out = Out::default();
    client.room()[..bytes.len()].copy_from_slice(bytes);
    client.received(at(ms), bytes.len(), &mut out);
    out.0
}

fn welcome(series: u32, next: u64) -> Vec<u8> {
    welcome_of(Session(2), series, next)
}

fn welcome_of(session: Session, series: u32, next: u64) -> Vec<u8> {
    welcome_with(session, series, next, Past::NONE)
}

fn welcome_with(session: Session, series: u32, next: u64, past: Past) -> Vec<u8> {
    let about = About {
        realm: RULES.realm,
        source: Source(1),
        session,
        instance: [0; 16],
        set: 0,
        beat_ms: 1_000,
    };
    let patterns: [Box<str>; 2] = ["plant/**".into(), "a".into()];
    let offer = Offer {
        source: Source(1),
        session,
        series: Series(series),
        stream: Stream(7),
        number: number(next),
        message: MessageNumber::ZERO,
        past,
        patterns: &patterns,
    };
    let mut buffer = vec![0; 1_000];
    let length = Welcome::encode(&about, [offer].into_iter(), &seal(), &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn beat(next: u64) -> Vec<u8> {
    beat_with(next, Flags::NONE)
}

fn beat_with(next: u64, flags: Flags) -> Vec<u8> {
    beat_after(next, 0, flags)
}

/// A HEARTBEAT of a server that continues with this message number.
fn beat_after(next: u64, messages: u64, flags: Flags) -> Vec<u8> {
    let mut buffer = vec![0; 100];
    let message = MessageNumber::new(messages).unwrap();
    let streams = [tcp::Reached { number: number(next), message }].into_iter();
    let length = tcp::Heartbeat::encode(streams, flags, &seal(), &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn connect(client: &mut Client, ms: u64) {
    assert_eq!(client.poll_event(), Some(Event::Connect));
    client.connected(at(ms), [0; 16]);
}

/// A client with a connection, whose stream has the numbers from 100 on.
fn live() -> Client {
    let mut client = client();
    connect(&mut client, 0);
    write(&mut client);
    give(&mut client, 0, &welcome(1, 100));
    assert_eq!(client.poll_event(), Some(Event::Live));
    client
}

#[test]
fn the_pause_before_each_attempt_doubles_up_to_its_limit_and_is_drawn_around_it() {
    let mut client = client();
    let mut now = Monotonic::from_ns(0);
    for wanted_ms in [200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
        assert_eq!(client.poll_event(), Some(Event::Connect));
        client.disconnected(now);
        assert_eq!(client.poll_event(), Some(Event::Down(Bye::Lost)));
        let due = client.poll_timeout().unwrap();
        let pause = due.since(now);
        let wanted = wanted_ms * MILLISECOND;
        assert!((wanted * 3 / 4..=wanted * 5 / 4).contains(&pause), "{pause} for {wanted}");
        client.handle_timeout(Monotonic::from_ns(due.ns() - 1));
        assert_eq!(client.poll_event(), None);
        client.handle_timeout(due);
        now = due;
    }
    // An answer resets it.
    connect(&mut client, now.ns() / MILLISECOND);
    give(&mut client, now.ns() / MILLISECOND, &welcome(1, 0));
    client.disconnected(now);
    assert!(client.poll_timeout().unwrap().since(now) <= 250 * MILLISECOND);
}

#[test]
fn a_connection_without_an_answer_or_that_falls_silent_is_given_up() {
    let mut client = client();
    connect(&mut client, 0);
    client.handle_timeout(at(4_999));
    assert_eq!(client.poll_event(), None);
    client.handle_timeout(at(5_000));
    assert_eq!(client.poll_event(), Some(Event::Down(Bye::Late)));
    client.handle_timeout(client.poll_timeout().unwrap());
    connect(&mut client, 6_000);
    give(&mut client, 6_000, &welcome(1, 0));
    assert_eq!(client.poll_event(), Some(Event::Live));
    give(&mut client, 7_000, &beat(5));
    assert_eq!(client.poll_timeout(), Some(at(7_000).after(5 * SECOND)));
    // Something has come, and is not taken.
    client.postpone(at(11_000));
    client.handle_timeout(at(12_000));
    assert_eq!(client.poll_event(), None);
    client.postpone(at(7_000));
    client.handle_timeout(at(12_000));
    assert_eq!(client.poll_event(), Some(Event::Down(Bye::Silent)));
    assert_eq!(client.marks().next().map(|mark| mark.next.get()), Some(5));
}

#[test]
fn what_a_server_does_not_bring_again_is_reported_with_the_first_thing_that_it_brings() {
    let mut client = client();
    let (source, series, stream) = (Source(1), Series(1), Stream(7));
    assert!(client.remember(Resume { source, series, stream, next: number(40) }));
    connect(&mut client, 0);
    let hello = client.transmit().unwrap();
    let frame = tcp::parse(hello, &RULES, |_, _| seal().context).unwrap();
    let Body::Hello(hello) = frame.body else { panic!() };
    assert_eq!(hello.resumes().map(|one| one.next.get()).collect::<Vec<_>>(), [40]);
    assert!(give(&mut client, 0, &welcome(1, 100)).is_empty());
    assert_eq!(give(&mut client, 0, &beat(100)), ["60 AtMost Gone"]);
    assert!(give(&mut client, 0, &beat(110)).is_empty());
    let patterns: Vec<&str> = client.patterns(source, stream).map(|name| name.as_str()).collect();
    assert_eq!(patterns, ["plant/**", "a"]);
}

#[test]
fn another_series_is_a_loss_of_an_unknown_number_of_messages() {
    let mut client = client();
    connect(&mut client, 0);
    assert!(give(&mut client, 0, &welcome(1, 100)).is_empty(), "the first series is no loss");
    client.disconnected(at(1));
    client.handle_timeout(client.poll_timeout().unwrap());
    client.poll_event();
    connect(&mut client, 400);
    assert_eq!(give(&mut client, 400, &welcome(2, 7)), ["0 AtLeast Restart"]);
    assert_eq!(client.marks().next().map(|mark| mark.next.get()), Some(7));
    client.disconnected(at(401));
    client.handle_timeout(client.poll_timeout().unwrap());
    client.poll_event();
    connect(&mut client, 900);
    let past = Past { head: number(3), prior: Session(0) };
    let welcome = welcome_with(Session(4), 3, 7, past);
    assert_eq!(give(&mut client, 900, &welcome), ["0 AtLeast Restart"]);
    let mark = client.marks().next().map(|mark| mark.next.get());
    assert_eq!(mark, Some(3), "from where its session began");
}

/// The bus of the server was restored from a backup. It uses the numbers from 60 on for other messages.
#[test]
fn a_server_that_has_forgotten_a_session_or_numbers_is_asked_from_where_it_began() {
    let forgets = |prior, head, next| {
        let mut client = client();
        connect(&mut client, 0);
        give(&mut client, 0, &welcome_of(Session(10), 1, 90));
        give(&mut client, 1, &beat(100));
        client.disconnected(at(2));
        client.handle_timeout(client.poll_timeout().unwrap());
        client.poll_event();
        connect(&mut client, 400);
        let past = Past { head: number(head), prior: Session(prior) };
        let given = give(&mut client, 400, &welcome_with(Session(12), 1, next, past));
        (given, client.marks().next().unwrap().next.get())
    };
    assert_eq!(forgets(10, 100, 100), (vec![], 100), "it remembers all");
    let told = vec!["0 AtLeast Diverged".to_owned()];
    assert_eq!(forgets(9, 60, 70), (told.clone(), 60), "not the session");
    assert_eq!(forgets(10, 60, 70), (told.clone(), 60), "not the numbers");
    assert_eq!(forgets(9, 120, 130), (told, 120), "its state is old, its bus is not");
}

#[test]
fn a_server_that_contradicts_itself_is_left() {
    let gap = |message: u64, count: u64| {
        let mut buffer = vec![0; 100];
        let (bound, reason) = (Bound::Exact, crate::wire::LostReason::Budget);
        let gap = Gap { first: number(100), until: number(110), count, bound, reason };
        let message = MessageNumber::new(message).unwrap();
        let length = gap.encode(0, Flags::NONE, message, &seal(), &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    };
    let answer = |bytes: &[u8]| {
        let mut client = live();
        let got = give(&mut client, 0, bytes);
        (got, client.poll_event(), client.counters().rejects[Reject::Unexpected.index()])
    };
    assert_eq!(answer(&gap(5, 5)), (vec!["5 Exact Budget".to_owned()], None, 0));
    let refused = (Vec::new(), Some(Event::Down(Bye::Refused)), 1);
    assert_eq!(answer(&gap(5, 4)), refused);
    assert_eq!(answer(&gap(5, 6)), refused);
    assert_eq!(answer(&welcome(1, 100)), refused);
    assert_eq!(answer(&tcp::samples::of(tcp::Kind::Challenge)), refused);
    assert_eq!(answer(&tcp::samples::of(tcp::Kind::Heartbeat)), refused, "of two streams");
}

/// The MAC of frames that clients share does not say where in a connection they belong.
#[test]
fn messages_that_were_taken_out_before_a_heartbeat_are_asked_for() {
    for flags in [Flags::NONE, Flags::END] {
        let after = |messages| {
            let mut client = live();
            let got = give(&mut client, 0, &beat_after(103, messages, flags));
            let next = client.marks().next().unwrap().next.get();
            (got, next, client.poll_event())
        };
        let ends: &[&str] = if flags == Flags::END { &["Complete"] } else { &[] };
        assert_eq!(after(0), (ends.iter().map(ToString::to_string).collect(), 103, None));
        assert_eq!(after(3), (Vec::new(), 100, Some(Event::Down(Bye::Refused))), "it asks again");
    }
}

/// A frame with these chunks, of the message with this number.
fn data(message: u64, chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut buffer = vec![0; 200];
    let message = MessageNumber::new(message).unwrap();
    let mut writer = tcp::FrameWriter::new(message, number(100 + message.get()));
    chunks.iter().for_each(|chunk| writer.push(chunk, &mut buffer).unwrap());
    let (flags, sent) = (Flags::NONE, Wall::default());
    let length = writer.finish(0, flags, sent, &seal(), &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn start(at: u64) -> Start {
    let (number, topic) = (number(at), TopicNumber::new(1).unwrap());
    Start { topic, number, to_descendants: false, published: None, origin: None }
}

/// The name of the topic of [`start`].
fn named() -> Chunk<'static> {
    Chunk::Topic { number: start(0).topic, name: TableName::new("a").unwrap() }
}

#[test]
fn the_rest_of_a_message_that_was_taken_out_before_a_heartbeat_is_asked_for() {
    let begun = data(0, &[Chunk::First { start: start(100), total: 9, payload: b"begun" }]);
    for (number, refused) in [(100, None), (101, Some(Event::Down(Bye::Refused)))] {
        let mut client = live();
        let both = [&begun[..], &beat_after(number, 1, Flags::NONE)].concat();
        assert!(give(&mut client, 0, &both).is_empty());
        assert_eq!(client.marks().next().unwrap().next.get(), 100);
        assert_eq!(client.poll_event(), refused);
    }
}

/// The length of a frame can have been changed on its way.
#[test]
fn a_frame_that_is_not_complete_in_time_ends_the_connection_although_bytes_come() {
    let mut client = live();
    let mut begun = beat(100);
    begun[2] = 8;
    let (mut ms, wanted) = (1_000, 1_000 + 4 * SILENCE_MS);
    give(&mut client, ms, &[beat(100), begun].concat());
    while ms < wanted {
        assert_eq!(client.poll_event(), None, "after {ms} ms");
        ms += 1_000;
        give(&mut client, ms, &beat(100));
        client.handle_timeout(at(ms));
    }
    assert_eq!(client.poll_event(), Some(Event::Down(Bye::Silent)));
}

#[test]
fn a_replay_that_is_not_answered_ends_the_connection() {
    for is_answered in [false, true] {
        let mut client = live();
        assert!(client.replay(Source(1), Stream(7), number(40), None));
        write(&mut client);
        if is_answered {
            replay_begins(&mut client, 0, 40);
        }
        for second in 1..=4 * SILENCE_MS / 1_000 {
            assert_eq!(client.poll_event(), None, "after {second} s");
            let ms = second * 1_000;
            give(&mut client, ms, &beat(40));
            client.handle_timeout(at(ms));
        }
        let wanted = (!is_answered).then_some(Event::Down(Bye::Silent));
        assert_eq!(client.poll_event(), wanted);
    }
}

/// A host on the path can take out whatever is counted: then messages come, and nothing tells whether others are missing.
#[test]
fn a_connection_that_brings_only_messages_ends() {
    let mut client = live();
    for second in 1..=4 * SILENCE_MS / 1_000 {
        assert_eq!(client.poll_event(), None, "after {second} s");
        let message = Chunk::Message { start: start(99 + second), payload: b"" };
        let got = give(&mut client, second * 1_000, &data(second - 1, &[named(), message]));
        assert_eq!(got, [(99 + second).to_string()]);
        client.handle_timeout(at(second * 1_000));
    }
    assert_eq!(client.poll_event(), Some(Event::Down(Bye::Silent)));
}

#[test]
fn messages_whose_names_were_taken_out_are_asked_for() {
    for name in [Some(named()), None] {
        let mut client = live();
        let message = Chunk::Message { start: start(100), payload: b"" };
        let chunks: Vec<_> = name.into_iter().chain([message]).collect();
        let got = give(&mut client, 0, &data(0, &chunks));
        let next = client.marks().next().unwrap().next.get();
        let wanted = match name {
            Some(_) => (vec!["100".to_owned()], 101, None),
            None => (Vec::new(), 100, Some(Event::Down(Bye::Refused))),
        };
        assert_eq!((got, next, client.poll_event()), wanted);
    }
}

/// What the caller did not read may be what the server owes. The time before counts.
#[test]
fn a_caller_that_takes_nothing_for_a_while_does_not_blame_the_server() {
    for seconds_before in [10, 19] {
        let mut client = live();
        assert!(client.replay(Source(1), Stream(7), number(40), None));
        write(&mut client);
        (1..=seconds_before).for_each(|s| drop(give(&mut client, s * 1_000, &beat(100))));
        for second in seconds_before..100 {
            client.postpone(at(second * 1_000));
            client.handle_timeout(at(second * 1_000));
        }
        assert_eq!(client.poll_event(), None);
        give(&mut client, 100_000, &beat(100));
        client.handle_timeout(at(100_000));
        let wanted = (seconds_before == 19).then_some(Event::Down(Bye::Silent));
        assert_eq!(client.poll_event(), wanted);
    }
}

#[test]
fn a_client_that_ends_says_so_and_does_not_come_back() {
    let mut client = client();
    connect(&mut client, 0);
    give(&mut client, 0, &welcome(1, 100));
    while let Some(bytes) = client.transmit() {
        let length = bytes.len();
        client.wrote(length);
    }
    client.end();
    let bye = client.transmit().unwrap();
    let frame = tcp::parse(bye, &RULES, |_, _| seal().context).unwrap();
    assert_eq!(frame.body, Body::Bye(Bye::Ended));
    assert_eq!(client.poll_event(), Some(Event::Down(Bye::Ended)));
    assert_eq!((client.poll_event(), client.poll_timeout()), (None, None));
}

#[test]
fn patterns_must_fit_a_hello() {
    let identity = client().identity;
    let long = "x".repeat(255);
    let with = |count: usize| {
        let patterns = vec![TableName::new(&long).unwrap(); count];
        let config = TcpConfig::default();
        let made = Client::new(&config, &identity, &patterns, Random::new(1), at(0));
        made.map(|mut client| {
            for stream in 0..64 {
                let (source, series, next) = (Source(1), Series(1), number(1));
                let stream = Stream(stream);
                assert!(client.remember(Resume { source, series, stream, next }));
            }
            connect(&mut client, 0);
            client.transmit().unwrap().len()
        })
    };
    assert_eq!(with(0), Err(TooManyPatterns));
    assert!(with(250).is_ok_and(|length| length > 64_000));
    assert_eq!(with(256), Err(TooManyPatterns));
}

#[test]
fn the_replay_of_a_resume_point_is_not_taken_for_one_that_was_asked_for() {
    let mut client = client();
    let (source, stream, series) = (Source(1), Stream(7), Series(4));
    assert!(client.remember(Resume { source, series, stream, next: number(103) }));
    connect(&mut client, 0);
    give(&mut client, 1, &welcome(4, 106));
    let ended = Some(number(102));
    assert!(!client.replay(source, stream, number(100), ended), "the stream would end");
    // Asked before the replay that HELLO caused has begun.
    assert!(client.replay(source, stream, number(100), None));
    write(&mut client);
    for first in [103, 100] {
        replay_begins(&mut client, 2, first);
        assert_eq!(client.marks().next().unwrap().next, number(first));
    }
}

/// The server begins with the oldest frame that waits, although a replay before has brought some of it.
#[test]
fn a_replay_that_begins_before_what_was_asked_for_repeats_nothing() {
    let mut client = client();
    let (source, stream, series) = (Source(1), Stream(7), Series(4));
    assert!(client.remember(Resume { source, series, stream, next: number(106) }));
    connect(&mut client, 0);
    give(&mut client, 1, &welcome(4, 106));
    for (asked, first, mark) in [(106, 104, 106), (105, 104, 105), (103, 103, 103)] {
        assert!(client.replay(source, stream, number(asked), None));
        write(&mut client);
        replay_begins(&mut client, 2, first);
        assert_eq!(client.marks().next().unwrap().next, number(mark), "from {asked}");
    }
}

fn write(client: &mut Client) {
    while let Some(bytes) = client.transmit() {
        let length = bytes.len();
        client.wrote(length);
    }
}

fn replay_begins(client: &mut Client, at_ms: u64, first: u64) {
    let (replay, zero) =
        (Replay { first: number(first), until: Number::ZERO }, MessageNumber::ZERO);
    let mut buffer = [0; 100];
    let length = replay.encode(0, Flags::REPLAY, zero, &seal(), &mut buffer).unwrap();
    give(client, at_ms, &buffer[..length]);
}

/// A client whose process was killed: the inbox knows where the stream continues, and HELLO did not say it.
#[derive(Default)]
struct Knows(Out, u64);

impl Inbox for Knows {
    fn begins(&mut self, flow: Flow, _: &Opening) -> Option<crate::receiver::Mark> {
        let Flow { session, series, .. } = flow;
        Some(crate::receiver::Mark { session, series, next: number(self.1) })
    }
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        self.0.message(flow, message);
    }
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, flow: Flow, loss: Loss) {
        self.0.loss(flow, loss);
    }
    fn ends(&mut self, flow: Flow, end: End) {
        self.0.ends(flow, end);
    }
}

#[test]
fn what_lies_between_the_mark_of_the_inbox_and_what_is_live_is_asked_for_and_not_lost() {
    let mut client = client();
    let mut out = Knows(Out::default(), 40);
    connect(&mut client, 0);
    let hello = client.transmit().unwrap().len();
    client.wrote(hello);
    let mut give = |client: &mut Client, bytes: &[u8]| {
        client.room()[..bytes.len()].copy_from_slice(bytes);
        client.received(at(1), bytes.len(), &mut out);
        std::mem::take(&mut out.0.0)
    };
    // What is live comes before the server knows that something is missing.
    assert!(give(&mut client, &[welcome(1, 100), beat(101)].concat()).is_empty());
    let asked = client.transmit().unwrap();
    let mut buffer = [0; 100];
    let replay = Replay { first: number(40), until: Number::ZERO };
    let zero = MessageNumber::ZERO;
    let length = replay.encode(0, Flags::NONE, zero, &seal(), &mut buffer).unwrap();
    assert_eq!(asked, &buffer[..length]);
    let mut frame = |first, flags| {
        let replay = Replay { first: number(first), until: Number::ZERO };
        let length = replay.encode(0, flags, zero, &seal(), &mut buffer).unwrap();
        buffer[..length].to_vec()
    };
    assert!(give(&mut client, &frame(40, Flags::REPLAY)).is_empty());
    assert_eq!(client.marks().next().unwrap().next, number(40));
    assert!(give(&mut client, &[frame(101, Flags::NONE), beat(102)].concat()).is_empty());
    assert_eq!(client.marks().next().unwrap().next, number(102));
    assert!(client.is_live());
}

/// Counts what begins.
#[derive(Default)]
struct Begun(Vec<(u32, u32)>, Vec<String>);

impl Inbox for Begun {
    fn carries(&mut self, flow: Flow, pattern: TableName<'_>) {
        self.1.push(format!("{} {}", flow.session.0, pattern.as_str()));
    }
    fn begins(&mut self, flow: Flow, _: &Opening) -> Option<crate::receiver::Mark> {
        self.0.push((flow.session.0, flow.series.0));
        None
    }
    fn message(&mut self, _: Flow, _: Message<'_>) {}
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, _: Flow, _: Loss) {}
}

/// Meanwhile another process may have brought them.
#[test]
fn each_connection_begins_its_streams_again() {
    let mut client = client();
    let mut out = Begun::default();
    let mut now = 0;
    for (session, series) in [(2, 1), (2, 1), (3, 1), (3, 1), (3, 4)] {
        let bytes = welcome_of(Session(session), series, 0);
        connect(&mut client, now);
        client.room()[..bytes.len()].copy_from_slice(&bytes);
        client.received(at(now), bytes.len(), &mut out);
        assert_eq!(client.poll_event(), Some(Event::Live));
        client.disconnected(at(now));
        assert_eq!(client.poll_event(), Some(Event::Down(Bye::Lost)));
        let due = client.poll_timeout().unwrap();
        now = due.ns().div_ceil(MILLISECOND);
        client.handle_timeout(at(now));
    }
    assert_eq!(out.0, [(2, 1), (2, 1), (3, 1), (3, 1), (3, 4)]);
    assert_eq!(out.1.len(), 5 * 2, "{:?}", out.1);
    assert_eq!(out.1[..4], ["2 plant/**", "2 a", "2 plant/**", "2 a"]);
}

fn end(next: u64) -> Vec<u8> {
    beat_with(next, Flags::END)
}

fn bye(reason: Bye) -> Vec<u8> {
    let mut buffer = vec![0; 100];
    let length = reason.encode(&seal(), &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

#[test]
fn a_server_that_has_sent_everything_ends_its_streams_in_order_and_one_that_has_not_does_not() {
    for (bytes, wanted) in [
        (end(103), &["3 AtMost Gone", "Complete"][..]),
        (beat(103), &["3 AtMost Gone"]),
        (Vec::new(), &[]),
    ] {
        let mut client = client();
        let (source, series, stream) = (Source(1), Series(1), Stream(7));
        assert!(client.remember(Resume { source, series, stream, next: number(100) }));
        connect(&mut client, 0);
        give(&mut client, 0, &welcome(1, 103));
        assert_eq!(client.poll_event(), Some(Event::Live));
        assert_eq!(give(&mut client, 1, &[bytes, bye(Bye::Ended)].concat()), wanted);
        assert_eq!(client.poll_event(), Some(Event::Down(Bye::Ended)));
        assert!(client.poll_timeout().is_some(), "it connects again");
    }
}

#[test]
fn nothing_but_bye_follows_the_end_on_a_connection() {
    let mut client = client();
    for (ms, first) in [(0, end(100)), (10_000, welcome(1, 100))] {
        client.handle_timeout(at(ms));
        connect(&mut client, ms);
        if ms == 0 {
            assert!(give(&mut client, ms, &welcome(1, 100)).is_empty());
            assert_eq!(give(&mut client, ms, &first), ["Complete"]);
            assert!(give(&mut client, ms, &beat(101)).is_empty());
            assert_eq!(client.counters().rejects[Reject::Unexpected.index()], 1);
            while client.poll_event().is_some() {}
        } else {
            assert!(give(&mut client, ms, &first).is_empty());
            assert!(give(&mut client, ms, &beat(101)).is_empty());
            assert_eq!(
                client.poll_event(),
                Some(Event::Live),
                "the next connection is another one"
            );
        }
    }
}

/// The server did not know that it was asked for more.
#[test]
fn a_stream_has_not_ended_before_the_history_that_was_asked_for_has_come() {
    let zero = MessageNumber::ZERO;
    let replay = |first, flags| {
        let replay = Replay { first: number(first), until: Number::ZERO };
        let mut buffer = vec![0; 100];
        let length = replay.encode(0, flags, zero, &seal(), &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    };
    for comes in [false, true] {
        let mut client = client();
        let mut out = Knows(Out::default(), 40);
        connect(&mut client, 0);
        let mut give = |client: &mut Client, bytes: &[u8]| {
            client.room()[..bytes.len()].copy_from_slice(bytes);
            client.received(at(1), bytes.len(), &mut out);
            std::mem::take(&mut out.0.0)
        };
        assert!(give(&mut client, &welcome(1, 100)).is_empty());
        write(&mut client);
        if comes {
            let both = [replay(40, Flags::REPLAY), replay(100, Flags::NONE)].concat();
            assert!(give(&mut client, &both).is_empty());
        }
        let wanted: &[&str] = if comes { &["Complete"] } else { &[] };
        assert_eq!(give(&mut client, &end(100)), wanted);
    }
}
