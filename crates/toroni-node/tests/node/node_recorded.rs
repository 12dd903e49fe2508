//! A stranger on the network of two nodes that have a key: it records what they send, and plays it from an address of its own.

use crate::node_tcp::{bus, leave};
use crate::nodes::{file, group, start};
use crate::support::{Buses, LIMIT};
use rustix::process::Signal;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use toroni::{Bus, ReceiveError, Subscriber};
use toroni_net::host::interface;
use toroni_net::socket::batch::{Outgoing, Receiver, Sender};
use toroni_net::socket::{Datagram, Options};
use toroni_testkit::Program;

const CAPACITY: u64 = 1 << 20;
/// A source that is silent for this long is gone.
const ACTIVITY: Duration = Duration::from_secs(2);
const DATAGRAM: usize = 2_048;

struct Recorder {
    group: SocketAddr,
    heard: Datagram,
    own: Datagram,
    receiver: Receiver,
    sender: Sender,
    tape: Vec<Vec<u8>>,
}

impl Recorder {
    fn new(group: &str) -> Self {
        let group: SocketAddr = group.parse().unwrap();
        let lo = interface::named("lo").unwrap();
        let options = Options { ttl: 0, is_looped: true, ..Options::default() };
        let heard = Datagram::group(group, &lo, &options).unwrap();
        let own = Datagram::leg(lo.source(group.ip()).unwrap(), &lo, &options).unwrap();
        let sender = Sender::new(&own);
        Self { group, heard, own, receiver: Receiver::new(), sender, tape: Vec::new() }
    }

    /// Reads what has come to a socket.
    fn read(receiver: &mut Receiver, socket: &Datagram) -> Vec<Vec<u8>> {
        let mut memory = vec![0; 64 * DATAGRAM];
        let mut all = Vec::new();
        loop {
            let arrivals = receiver.receive(socket, memory.chunks_exact_mut(DATAGRAM)).unwrap();
            let lengths: Vec<usize> = arrivals.iter().map(|arrival| arrival.length).collect();
            if lengths.is_empty() {
                return all;
            }
            let buffers = lengths.iter().zip(memory.chunks_exact(DATAGRAM));
            all.extend(buffers.map(|(length, buffer)| buffer[..*length].to_vec()));
        }
    }

    fn record(&mut self) {
        self.tape.extend(Self::read(&mut self.receiver, &self.heard));
    }

    /// Plays all that it has recorded.
    fn play(&mut self) {
        for bytes in &self.tape {
            let _ = self.sender.send(&self.own, &[Outgoing { to: self.group, bytes }]).unwrap();
        }
    }

    /// How much was sent to it.
    fn answers(&mut self) -> usize {
        Self::read(&mut self.receiver, &self.own).len()
    }
}

struct Hosts {
    buses: Buses,
    group: String,
    from: Bus,
    subscriber: Subscriber,
    to: Bus,
}

impl Hosts {
    fn new() -> Self {
        let buses = Buses::new();
        let key = buses.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let (from, to) = (bus(&buses, "a", CAPACITY), bus(&buses, "b", CAPACITY));
        let subscriber = to.subscribe("**").unwrap();
        Self { buses, group: group(), from, subscriber, to }
    }

    fn node(&self, name: &str, section: &str) -> Program {
        let (group, activity) = (&self.group, ACTIVITY.as_secs());
        let more = format!(
            "key_file = 'key'\n[[{section}]]\ngroup = '{group}'\ngeneration = '500ms'\nsession_max = '200ms'\n\
             activity = '{activity}s'\n"
        );
        let more = match section {
            "send" => {
                let stream = "stream = 1\npatterns = ['**']\ndata_rate = '20Mbit/s'";
                format!("{more}{stream}\nttl = 0\nloop = true\n")
            }
            _ => more,
        };
        start(&self.buses, &file(&self.buses, name, &more))
    }

    fn publish(&self, numbers: std::ops::Range<u32>) {
        let publisher = self.from.publisher("t/a").unwrap();
        numbers.for_each(|number| publisher.publish(number.to_string()).map(drop).unwrap());
    }

    fn told(&mut self, limit: Duration) -> Option<String> {
        match self.subscriber.receive_timeout(limit) {
            Ok(message) => Some(message?.text().trim().to_owned()),
            Err(ReceiveError::Lost(lost)) => Some(format!("{:?}", lost.reason)),
            Err(error) => panic!("{error}"),
        }
    }

    fn follows(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            assert_eq!(self.told(LIMIT), Some(number.to_string()));
        }
    }
}

#[test]
fn a_recording_of_a_session_that_is_over_reaches_no_bus_and_stops_no_node() {
    let mut hosts = Hosts::new();
    let mut recorder = Recorder::new(&hosts.group);
    let sender = hosts.node("a", "send");
    hosts.publish(0..5);
    let receiver = hosts.node("b", "receive");
    hosts.publish(5..6);
    while hosts.told(LIMIT) != Some("5".to_owned()) {}
    leave(receiver);
    leave(sender);
    recorder.record();
    assert!(recorder.tape.len() > 10, "{} datagrams are no recording", recorder.tape.len());
    // The receiver's host was reset, so that it knows nothing, and the sender is off.
    let (buses, to) = (&hosts.buses, &mut hosts.to);
    std::fs::remove_dir_all(buses.path().join("b")).unwrap();
    *to = bus(buses, "b", CAPACITY);
    hosts.subscriber = hosts.to.subscribe("**").unwrap();
    let receiver = hosts.node("b", "receive");
    for _ in 0..10 {
        recorder.play();
        assert_eq!(hosts.told(Duration::from_millis(100)), None);
    }
    // It comes back while its earlier life is played, which has the same source id.
    let sender = hosts.node("a", "send");
    for _ in 0..10 {
        recorder.play();
        std::thread::sleep(Duration::from_millis(50));
    }
    hosts.publish(6..9);
    hosts.follows(6..9);
    recorder.play();
    hosts.publish(9..10);
    hosts.follows(9..10);
    assert!(!sender.errors().contains("same source id"), "{}", sender.errors());
    leave(sender);
    leave(receiver);
    drop(hosts.to);
}

#[test]
fn a_recording_of_the_present_session_hides_no_silence_and_diverts_nothing() {
    let mut hosts = Hosts::new();
    let mut recorder = Recorder::new(&hosts.group);
    let sender = hosts.node("a", "send");
    let receiver = hosts.node("b", "receive");
    receiver.wait_for_error("follows");
    hosts.publish(0..5);
    hosts.follows(0..5);
    recorder.record();
    let answered = recorder.answers();
    for _ in 0..20 {
        recorder.play();
        std::thread::sleep(Duration::from_millis(20));
        recorder.record();
    }
    hosts.publish(5..8);
    hosts.follows(5..8);
    assert_eq!((answered, recorder.answers()), (0, 0), "all answers go to the sender");
    let mut sender = sender;
    sender.signal(Signal::KILL);
    sender.wait();
    let begin = Instant::now();
    let told = loop {
        recorder.play();
        let told = hosts.told(Duration::from_millis(100));
        if told.is_some() || begin.elapsed() > LIMIT {
            break told;
        }
    };
    assert_eq!(told.as_deref(), Some("Silent"), "the recording is played all the time");
    leave(receiver);
    drop(hosts.to);
}
