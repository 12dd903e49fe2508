//! A receiver that was away fetches what it missed from the sender over TCP, whatever that server does.

use crate::support::{PATIENCE, Running, config, group, reaches, receiving, sending, settings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, LostBound, ReceiveError, Subscriber};
use toroni_net::host::interface;
use toroni_net::node::Settings;
use toroni_net::node::config::Join;
use toroni_net::node::tcp::Listen;
use toroni_net::socket::{Datagram, Options, Outgoing, Receiver, Sender};
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::time::SECOND;
use toroni_proto::wire::Kind;
use toroni_testkit::Directory;
use toroni_testkit::port::free;

/// More datagrams than a sender repairs for one receiver, with a message each.
const MISSED: usize = 5_000;
const BYTES: usize = 1_000;

fn serving(settings: Settings, address: SocketAddr) -> Settings {
    // A busy machine may be late.
    let config = TcpConfig { latency_bound_ns: 9 * SECOND, ..TcpConfig::default() };
    Settings { listen: Some(Listen { address, patterns: Vec::new(), config }), ..settings }
}

fn payload(number: usize) -> Vec<u8> {
    format!("{number:>BYTES$}").into_bytes()
}

#[derive(Debug, PartialEq, Eq)]
enum Given {
    /// Messages with these numbers, without a gap.
    Messages(usize, usize),
    Lost(u64, LostBound),
}

/// Receives until the message with this number, and puts together what follows one another.
fn given(subscriber: &mut Subscriber, last: usize) -> Vec<Given> {
    let begin = Instant::now();
    let mut all: Vec<Given> = Vec::new();
    loop {
        assert!(begin.elapsed() < PATIENCE, "{all:?}");
        match subscriber.receive_timeout(Duration::from_secs(1)) {
            Ok(Some(message)) => {
                let text = String::from_utf8(message.payload().to_vec()).unwrap();
                let number: usize = text.trim().parse().unwrap();
                match all.last_mut() {
                    Some(Given::Messages(_, end)) if *end + 1 == number => *end = number,
                    _ => all.push(Given::Messages(number, number)),
                }
                if number == last {
                    return all;
                }
            }
            Ok(None) => {}
            Err(ReceiveError::Lost(lost)) => all.push(Given::Lost(lost.messages, lost.bound)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A sender, and a receiver that comes and goes.
struct Scene {
    from: Bus,
    to: Bus,
    receiving: Settings,
    published: usize,
    sender: Running,
    /// What a relay between sender and receivers has passed on; see [`Relay::start`].
    passed: Option<Arc<AtomicUsize>>,
    _directory: Directory,
}

impl Scene {
    fn new(sender_settings: impl FnOnce(Settings) -> Settings) -> Self {
        Self::with(32 << 20, sender_settings)
    }

    fn with(capacity: u64, sender_settings: impl FnOnce(Settings) -> Settings) -> Self {
        let directory = Directory::new();
        let open = |name: &str, capacity| {
            BusConfig::new().directory(directory.path()).capacity(capacity).open(name).unwrap()
        };
        let (from, to) = (open("from", capacity), open("to", 32 << 20));
        let (group, config) = (group(), config(400_000_000));
        let receiving = receiving(settings(&["lo"], "b", 2), group, &config);
        let sending = sender_settings(sending(settings(&["lo"], "a", 1), group, &config));
        let sender = Running::start(&from, &sending);
        Self { _directory: directory, from, to, receiving, published: 0, sender, passed: None }
    }

    fn publish(&mut self, count: usize) {
        let publisher = self.from.publisher("t").unwrap();
        for _ in 0..count {
            publisher.publish(payload(self.published)).unwrap();
            self.published += 1;
            // A small ring overwrites what the node has not taken.
            if self.published.is_multiple_of(100) {
                self.sender.has_sent(self.published);
            }
        }
    }

    fn receiver(&self) -> Running {
        let receiver = Running::start(&self.to, &self.receiving);
        receiver.has_joined(1);
        receiver
    }

    /// A receiver gets some messages and is gone; others are published meanwhile, and it is back.
    fn restart(&mut self, subscriber: &mut Subscriber) -> Running {
        let receiver = self.receiver();
        self.publish(10);
        assert_eq!(given(subscriber, 9), [Given::Messages(0, 9)]);
        receiver.die();
        self.publish(MISSED);
        self.sender.has_sent(self.published);
        // A relay that is late would bring the receiver a SESSION from before the last of these messages. According to that,
        // so little is missing that the receiver asks the group for it, not the server.
        if let Some(passed) = &self.passed {
            reaches(passed, self.published, "the relay passes nothing on");
        }
        let receiver = self.receiver();
        self.publish(100);
        receiver
    }
}

#[test]
fn a_receiver_that_was_away_misses_nothing_if_the_sender_listens() {
    let mut scene = Scene::new(|settings| serving(settings, free()));
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    assert_eq!(given(&mut subscriber, last), [Given::Messages(10, last)]);
}

/// What the group would have brought is fetched, however long it is.
#[test]
fn a_message_as_long_as_the_stream_takes_is_fetched() {
    const LONG: usize = 3 << 20;
    let address = free();
    let mut scene = Scene::new(|settings| {
        let config = TcpConfig {
            latency_bound_ns: 9 * SECOND,
            queue_bytes: 32 << 20,
            message_max_bytes: 16 << 20,
            ..TcpConfig::default()
        };
        Settings { listen: Some(Listen { address, patterns: Vec::new(), config }), ..settings }
    });
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let receiver = scene.receiver();
    scene.publish(10);
    assert_eq!(given(&mut subscriber, 9), [Given::Messages(0, 9)]);
    receiver.die();
    let long = " ".repeat(LONG) + &scene.published.to_string();
    scene.from.publisher("t").unwrap().publish(long).unwrap();
    scene.published += 1;
    scene.publish(MISSED);
    scene.sender.has_sent(scene.published);
    let _receiver = scene.receiver();
    scene.publish(100);
    let last = scene.published - 1;
    assert_eq!(given(&mut subscriber, last), [Given::Messages(10, last)]);
}

/// The receiver reserves memory for shorter ones only.
#[test]
fn a_message_that_is_longer_than_the_receiver_takes_is_lost_and_the_rest_is_fetched() {
    let mut scene = Scene::new(|settings| serving(settings, free()));
    let receive = &mut scene.receiving.receive[0];
    (receive.config.message_max_bytes, receive.fetch.message_max_bytes) = (64 << 10, 64 << 10);
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let receiver = scene.receiver();
    scene.publish(10);
    assert_eq!(given(&mut subscriber, 9), [Given::Messages(0, 9)]);
    receiver.die();
    for _ in 0..2 {
        let long = " ".repeat(64 << 10) + &scene.published.to_string();
        scene.from.publisher("t").unwrap().publish(long).unwrap();
        scene.published += 1;
        scene.publish(MISSED / 2);
    }
    scene.sender.has_sent(scene.published);
    let _receiver = scene.receiver();
    scene.publish(100);
    let (second, last) = (11 + MISSED / 2, scene.published - 1);
    let wanted = [
        Given::Lost(1, LostBound::Exact),
        Given::Messages(11, second - 1),
        Given::Lost(1, LostBound::Exact),
        Given::Messages(second + 1, last),
    ];
    assert_eq!(given(&mut subscriber, last), wanted);
}

#[test]
fn without_a_server_exactly_what_was_missed_is_reported() {
    let mut scene = Scene::new(|settings| settings);
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    let all = given(&mut subscriber, last);
    let [Given::Lost(lost, LostBound::AtMost), Given::Messages(first, end)] = all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((lost, end), (first as u64 - 10, last));
    assert!(lost >= 1_000, "{lost}");
}

/// Checks that what is missing from `first` on is what was reported, and returns how many messages that are. What the ring
/// overwrites while it is read may be lost in several parts.
fn lost_before(all: &[Given], first: usize, last: usize) -> usize {
    let (mut next, mut reported, mut lost) = (first, 0, 0);
    for given in all {
        match *given {
            Given::Lost(messages, bound) => {
                assert_eq!(bound, LostBound::AtMost);
                reported += usize::try_from(messages).unwrap();
            }
            Given::Messages(from, to) => {
                assert_eq!(from - next, reported, "{all:?}");
                lost += reported;
                (next, reported) = (to + 1, 0);
            }
        }
    }
    assert_eq!(next, last + 1);
    lost
}

/// What the ring of the sender has overwritten is lost, and nothing else.
#[test]
fn what_the_sender_has_overwritten_is_lost_and_the_rest_is_fetched() {
    let mut scene = Scene::with(2 << 20, |settings| serving(settings, free()));
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    let lost = lost_before(&given(&mut subscriber, last), 10, last);
    // The ring has more than the last 100, and less than all.
    assert!((1_000..MISSED).contains(&lost), "{lost}");
}

/// Stands between sender and receivers: it brings datagrams from one group to another, and states another port for TCP.
struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts one. `passed` becomes the number of messages that the sender had sent before the last SESSION that was passed
    /// on.
    fn start(from: SocketAddr, to: SocketAddr, port: u16, passed: Arc<AtomicUsize>) -> Self {
        /// Where SESSION has the number of the next message, and the port.
        const MESSAGE: std::ops::Range<usize> = 40..48;
        const LISTEN: std::ops::Range<usize> = 82..84;
        let lo = interface::named("lo").unwrap();
        let options = Options { ttl: 1, is_looped: true, ..Options::default() };
        let socket = Datagram::group(from, &lo, &options).unwrap();
        let leg = Datagram::leg("127.0.0.1:0".parse().unwrap(), &lo, &options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut memory = vec![vec![0; 2_048]; 64];
            let (mut receiver, mut sender) = (Receiver::new(), Sender::new(&leg));
            let mut source = None;
            while !asked.load(Ordering::Relaxed) {
                let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]);
                let arrived = receiver.receive(&socket, buffers).unwrap().to_vec();
                for (arrival, bytes) in arrived.iter().zip(&mut memory) {
                    let is_session = Kind::of(bytes) == Some(Kind::Session);
                    if is_session {
                        bytes[LISTEN].copy_from_slice(&port.to_le_bytes());
                    }
                    let bytes = &bytes[..arrival.length];
                    source = Some(arrival.from);
                    while sender.send(&leg, &[Outgoing { to, bytes }]).unwrap_or(0) == 0 {
                        std::thread::yield_now();
                    }
                    if is_session {
                        let message = u64::from_le_bytes(bytes[MESSAGE].try_into().unwrap());
                        passed.store(usize::try_from(message).unwrap(), Ordering::Relaxed);
                    }
                }
                // What receivers ask for.
                let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]);
                let asked = receiver.receive(&leg, buffers).unwrap().to_vec();
                for (arrival, bytes) in asked.iter().zip(&memory) {
                    let bytes = &bytes[..arrival.length];
                    let Some(to) = source else { continue };
                    let _ = sender.send(&leg, &[Outgoing { to, bytes }]);
                }
                if arrived.is_empty() && asked.is_empty() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A server that is not what the receiver expects. It ends with the process.
fn server(mut serve: impl FnMut(usize, TcpStream) + Send + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let number = count.fetch_add(1, Ordering::Relaxed);
            serve(number, socket.unwrap());
        }
    });
    (port, taken)
}

/// Passes at most `most` bytes from one connection to the other.
fn pass(mut from: TcpStream, mut to: TcpStream, most: usize) {
    let (mut left, mut buffer) = (most, vec![0; 16 << 10]);
    while left > 0 {
        let room = left.min(buffer.len());
        let Ok(length @ 1..) = from.read(&mut buffer[..room]) else { break };
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
        left -= length;
    }
    close([from, to]);
}

fn close(sockets: [TcpStream; 2]) {
    for socket in sockets {
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
}

/// A sender whose receivers are sent to another server for history.
fn behind_a_relay(port: impl FnOnce(SocketAddr) -> u16) -> (Scene, Relay) {
    let real = free();
    let inner = group();
    let mut scene = Scene::new(|mut settings| {
        settings.send[0].to = vec![inner];
        serving(settings, real)
    });
    let outer = scene.receiving.receive[0].groups[0];
    let passed = Arc::default();
    scene.passed = Some(Arc::clone(&passed));
    let relay = Relay::start(inner, outer, port(real), passed);
    (scene, relay)
}

/// All that was missed is lost, and what comes afterwards arrives.
fn all_is_lost(scene: &mut Scene) {
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    let all = given(&mut subscriber, last);
    let [Given::Lost(lost, LostBound::AtMost), Given::Messages(first, end)] = all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((lost, end), (first as u64 - 10, last));
}

#[test]
fn a_server_that_says_nonsense_is_asked_no_more() {
    let (mut scene, _relay) = behind_a_relay(|_| {
        let (port, _) = server(|_, mut socket| {
            let _ = socket.write_all(&[0x55; 4_000]);
        });
        port
    });
    all_is_lost(&mut scene);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (mut scene, _relay) = behind_a_relay(|_| {
        let mut all = Vec::new();
        server(move |_, socket| all.push(socket)).0
    });
    all_is_lost(&mut scene);
}

#[test]
fn a_server_that_does_not_exist_is_given_up() {
    let (mut scene, _relay) = behind_a_relay(|_| free().port());
    all_is_lost(&mut scene);
}

/// Passes the frames of a server on, but for one.
fn pass_without(mut from: TcpStream, mut to: TcpStream, left_out: usize) {
    for number in 0.. {
        let mut frame = vec![0; 4];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        let length = u32::from_le_bytes(frame[..].try_into().unwrap());
        frame.resize(length.try_into().unwrap(), 0);
        if from.read_exact(&mut frame[4..]).is_err()
            || (number != left_out && to.write_all(&frame).is_err())
        {
            break;
        }
    }
    close([from, to]);
}

/// All that was missed arrives, although `back` stands between: it gets the number of a connection, and passes on what the server says.
/// Returns how many connections there were.
fn all_arrives(back: fn(usize, TcpStream, TcpStream)) -> usize {
    let mut taken = Arc::default();
    let (mut scene, _relay) = behind_a_relay(|real| {
        let (port, count) = server(move |number, socket| {
            let upstream = TcpStream::connect(real).unwrap();
            let (to, up) = (socket.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || pass(socket, up, usize::MAX));
            std::thread::spawn(move || back(number, upstream, to));
        });
        taken = count;
        port
    });
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    assert_eq!(given(&mut subscriber, last), [Given::Messages(10, last)]);
    taken.load(Ordering::Relaxed)
}

/// That a frame was refused does not mean that the server is another one, once it has brought something.
#[test]
fn a_frame_that_was_taken_out_of_what_is_fetched_costs_nothing() {
    let taken = all_arrives(|number, from, to| {
        pass_without(from, to, if number < 2 { 10 } else { usize::MAX });
    });
    assert!(taken > 2);
}

/// Each connection brings a part, and the next one continues there.
#[test]
fn a_connection_that_is_cut_again_and_again_costs_nothing() {
    let taken = all_arrives(|number, from, to| {
        pass(from, to, if number < 4 { 1 << 20 } else { usize::MAX });
    });
    assert!(taken >= 4);
}

/// The server brings some of it, slowly. At the limit, the rest is lost and the stream continues.
#[test]
fn a_server_that_is_too_slow_holds_the_stream_no_longer_than_the_limit() {
    let (mut scene, _relay) = behind_a_relay(|real| {
        server(move |_, socket| {
            let upstream = TcpStream::connect(real).unwrap();
            let (mut back, up) = (socket.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || pass(socket, up, usize::MAX));
            std::thread::spawn(move || {
                let (mut upstream, mut buffer) = (upstream, [0; 4_000]);
                while let Ok(length @ 1..) = upstream.read(&mut buffer) {
                    std::thread::sleep(Duration::from_millis(20));
                    if back.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        })
        .0
    });
    // All of it would take 25 s. Some of it comes within the limit, also if this process seldom runs.
    scene.receiving.receive[0].fetch.limit_ns = 8 * SECOND;
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    let last = scene.published - 1;
    let all = given(&mut subscriber, last);
    let [
        Given::Messages(10, some),
        Given::Lost(lost, LostBound::AtMost),
        Given::Messages(first, end),
    ] = all[..]
    else {
        panic!("{all:?}")
    };
    assert_eq!((usize::try_from(lost).unwrap(), end), (first - some - 1, last));
}

/// What is sent while history comes does not fit the receive buffers. It is fetched as well.
#[test]
fn what_overflows_meanwhile_is_fetched_too() {
    let has_overflowed = Arc::new(AtomicBool::new(false));
    let may_pass = has_overflowed.clone();
    let (mut scene, _relay) = behind_a_relay(|real| {
        server(move |_, socket| {
            let upstream = TcpStream::connect(real).unwrap();
            let (back, up) = (socket.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || pass(socket, up, usize::MAX));
            let may_pass = may_pass.clone();
            std::thread::spawn(move || {
                while !may_pass.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                pass(upstream, back, usize::MAX);
            });
        })
        .0
    });
    let config = &mut scene.receiving.receive[0].config;
    (config.reorder_memory_bytes, config.receive_memory_bytes) = (512 << 10, 1 << 20);
    config.message_max_bytes = 64 << 10;
    config.generation_ns = SECOND / 5;
    let mut subscriber = scene.to.subscribe("**").unwrap();
    let _receiver = scene.restart(&mut subscriber);
    scene.publish(3_000);
    scene.sender.has_sent(scene.published);
    has_overflowed.store(true, Ordering::Relaxed);
    let last = scene.published - 1;
    assert_eq!(given(&mut subscriber, last), [Given::Messages(10, last)]);
}

#[test]
fn a_new_source_begins_where_the_receiver_wants() {
    for (join, wanted) in [(Join::Window, 0), (Join::Number(40), 40), (Join::Live, 100)] {
        let mut scene = Scene::new(|settings| serving(settings, free()));
        scene.receiving.receive[0].fetch.join = join;
        scene.publish(100);
        scene.sender.has_sent(100);
        let mut subscriber = scene.to.subscribe("**").unwrap();
        let _receiver = scene.receiver();
        scene.publish(50);
        assert_eq!(given(&mut subscriber, 149), [Given::Messages(wanted, 149)], "{join:?}");
    }
}

/// As on a bus, what was overwritten before the oldest message is no loss for `window`. For a number it is one.
#[test]
fn the_oldest_message_that_is_left_is_the_first_of_a_window() {
    for join in [Join::Window, Join::Number(0)] {
        let mut scene = Scene::with(2 << 20, |settings| serving(settings, free()));
        scene.receiving.receive[0].fetch.join = join;
        scene.publish(MISSED);
        scene.sender.has_sent(MISSED);
        let mut subscriber = scene.to.subscribe("**").unwrap();
        let _receiver = scene.receiver();
        // Nothing is overwritten meanwhile.
        let all = given(&mut subscriber, MISSED - 1);
        let first = all.iter().find_map(|given| match given {
            Given::Messages(first, _) => Some(*first),
            Given::Lost(..) => None,
        });
        let first = first.unwrap();
        assert!((1_000..MISSED).contains(&first), "{first}");
        let begins = if join == Join::Window { first } else { 0 };
        assert_eq!(lost_before(&all, begins, MISSED - 1), first - begins, "{join:?}: {all:?}");
    }
}
