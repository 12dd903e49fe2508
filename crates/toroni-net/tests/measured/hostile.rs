//! Two nodes of a realm with a key, and a third host that floods them.

use crate::support::{PATIENCE, Running, buses, config, receiving, sending, settings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toroni::{ReceiveError, Subscriber};
use toroni_machines::forging::Forger;
use toroni_net::node::Settings;
use toroni_proto::wire::{Key, Keys};
use toroni_testkit::network::Setup;
use toroni_testkit::network::flood::{Flood, Rate};
use toroni_testkit::wait;
use toroni_testkit::{Directory, turn};

const GROUP: &str = "239.192.84.79:4479";
const COUNT: u64 = 20_000;
/// The flood, in bit/s.
const LINE_RATE: u64 = 1_000_000_000;
/// What both nodes may take more after they have met: the windows and buffers of their settings, which they touch as they
/// go, and the buses.
const MOST_MORE_KIB: u64 = 256 << 10;

fn keyed(settings: Settings) -> Settings {
    let keys = Some(Keys { first: Key::new([9; Key::BYTES]), next: None });
    let member = toroni_net::membership::Membership { keys, ..settings.member };
    Settings { member, ..settings }
}

/// The memory of this process that is in use, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Receives until this message. Each one is the next one, or was reported as lost. Returns how many were lost.
fn receive_until(last: u64, next: &mut u64, subscriber: &mut Subscriber) -> u64 {
    let (begin, mut lost) = (Instant::now(), 0);
    while *next <= last {
        assert!(begin.elapsed() < 2 * PATIENCE, "{next} of {last} came");
        match subscriber.receive_timeout(Duration::from_secs(1)) {
            Ok(Some(message)) => {
                let number = u64::from_le_bytes(*message.payload().first_chunk().unwrap());
                assert_eq!(message.payload().len(), 200);
                assert_eq!(number, *next, "not reported as lost");
                *next += 1;
            }
            Ok(None) => {}
            Err(ReceiveError::Lost(missing)) => {
                assert_eq!(missing.bound, toroni::LostBound::Exact);
                lost += missing.messages;
                *next += missing.messages;
            }
            Err(error) => panic!("{error}"),
        }
    }
    lost
}

#[test]
fn a_flood_of_forged_datagrams_harms_no_node() {
    let _turn = turn();
    let Some(network) = Setup::new(3).bridged() else { return };
    let [from_host, to_host, stranger] = &network.hosts[..] else { panic!() };
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let (group, config): (SocketAddr, _) = (GROUP.parse().unwrap(), config(50_000_000));
    let mut subscriber = to.subscribe("**").unwrap();
    let from_node = from_host.enter(|| {
        Running::start(&from, &keyed(sending(settings(&["eth0"], "a", 1), group, &config)))
    });
    let to_node = to_host.enter(|| {
        Running::start(&to, &keyed(receiving(settings(&["eth0"], "b", 2), group, &config)))
    });
    to_node.has_joined(1);
    let publisher = from.publisher("t").unwrap();
    let mut payload = [7; 200];
    let mut publish = |number: u64| {
        payload[..8].copy_from_slice(&number.to_le_bytes());
        publisher.publish(payload).unwrap();
    };

    // It hears the first messages, and who sends them.
    let flood = Flood::open(stranger, group).unwrap();
    let (mut forger, mut sender) = (Forger::new(7), None);
    (0..1_000).for_each(&mut publish);
    flood
        .listen(PATIENCE, |from, datagram| {
            sender = Some(from);
            forger.capture(datagram)
        })
        .unwrap();
    let sender = sender.expect("the stranger heard nothing");
    let before = resident();

    let (stop, sent, mut turn, mut next, mut lost) =
        (AtomicBool::new(false), AtomicU64::new(0), 0_u64, 0, 0);
    std::thread::scope(|scope| {
        let (stop, counter) = (&stop, &sent);
        let flooding = scope.spawn(move || {
            flood.run(Rate::Bits(LINE_RATE), stop, |datagram| {
                turn += 1;
                counter.store(turn, Ordering::Relaxed);
                match turn % 8 {
                    0 => forger.nak(datagram),
                    1 => forger.status(datagram),
                    2 => forger.session(datagram),
                    _ => forger.noise(datagram),
                }
                if turn % 8 < 2 || turn % 3 == 0 { sender } else { group }
            })
        });
        let guard = StopAtTheEnd(stop);
        wait::until("the flood begins", || sent.load(Ordering::Relaxed) > 1_000);
        for number in 1_000..COUNT {
            publish(number);
            if number % 1_000 == 0 {
                lost += receive_until(number - 1_000, &mut next, &mut subscriber);
            }
        }
        lost += receive_until(COUNT - 1, &mut next, &mut subscriber);
        drop(guard);
        assert!(flooding.join().unwrap() > 1_000);
    });
    let more = resident().saturating_sub(before);
    assert!(more < MOST_MORE_KIB, "{more} KiB more");
    // The window holds all that is sent within 8 s, so something must have come.
    assert!(lost < COUNT, "everything was lost");
    // Both are alive, and nothing hostile stands in the way any more.
    (COUNT..COUNT + 100).for_each(&mut publish);
    assert_eq!(receive_until(COUNT + 99, &mut next, &mut subscriber), 0);
    drop((from_node, to_node));
}

/// A flood that does not end would keep a test that has failed from saying so.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
