//! What a node writes to its journal while it sends.

use super::*;
use crate::host::interface;
use crate::socket::{Datagram, Options};
use std::time::Instant;
use toroni::BusConfig;
use toroni_proto::id::Session;
use toroni_testkit::{Directory, wait};

/// A node on the loopback interface that sends everything to a group whose port no other socket has.
fn sending(config: &Config, state: &Arc<State>) -> Settings {
    let lo = interface::named("lo").unwrap();
    let free = Datagram::leg("127.0.0.1:0".parse().unwrap(), &lo, &Options::default()).unwrap();
    let group = SocketAddr::new("239.192.84.79".parse().unwrap(), free.address().port());
    let member = Membership {
        // No other process has this realm, or the id in it would be taken.
        realm: Realm::of(&format!("journal-{}", std::process::id())),
        keys: None,
        name: "a".to_owned(),
        source: Source(1),
        session: Session(1),
        claim: None,
        instance: [1; 16],
        is_observed: false,
        interfaces: vec![lo],
        sockets: Options { ttl: 1, is_looped: true, ..Options::default() },
    };
    let send = Send {
        stream: Stream(1),
        selection: selection(),
        config: config.clone(),
        to: vec![group],
        start: Start::Latest,
        is_gating: false,
        required: Vec::new(),
    };
    Settings { send: vec![send], state: Some(Arc::clone(state)), ..Settings::new(member) }
}

fn selection() -> outlet::Selection {
    let patterns = vec![Pattern::everything()];
    outlet::Selection { patterns, prefix: String::new(), express: Vec::new() }
}

/// What it sends again may be missing at receivers, however long ago it was sent first.
#[test]
fn a_node_that_goes_back_says_so_before_it_sends_anything() {
    let directory = Directory::new();
    let bus = BusConfig::new().directory(directory.path()).create("b").unwrap();
    let state = Arc::new(State::open(&directory.path().join("state")).unwrap());
    let config = Config::with_rate(20_000_000);
    // That of the first series of the bus.
    let hash = state::hash(format!("{}/00000000", bus.id()).as_bytes());
    let journal = |generation_ns| {
        state.journal(Stream(1), hash, meaning_of(&selection()), generation_ns).unwrap()
    };
    let newest = || journal(0).resume();
    let publisher = bus.publisher("t").unwrap();
    (0..10).for_each(|_| _ = publisher.publish([7; 100]).unwrap());
    let mut node = Node::new(&bus, &sending(&config, &state)).unwrap();
    let latest = node.outlets[0].outlet.subscriber().sequence();
    drop(node);
    assert_eq!(newest(), Some(latest), "a first life, too");
    // An earlier one that was killed had sent all of it.
    (0..5).for_each(|_| _ = publisher.publish([7; 100]).unwrap());
    let later = now().monotonic.after(10 * config.generation_ns);
    journal(config.generation_ns).note(later, latest + 5).unwrap();
    assert_eq!(
        (journal(config.generation_ns).resume(), newest()),
        (Some(latest), Some(latest + 5))
    );
    let _node = Node::new(&bus, &sending(&config, &state)).unwrap();
    assert_eq!(newest(), Some(latest));
}

/// Between packing and sending, a kill loses what a checkpoint already names.
#[test]
fn a_checkpoint_names_only_what_was_given_to_the_kernel() {
    const MESSAGES: u64 = 1_000;
    let directory = Directory::new();
    let bus = BusConfig::new().directory(directory.path()).create("b").unwrap();
    let state = Arc::new(State::open(&directory.path().join("state")).unwrap());
    // Two messages of 1,000 bytes do not fit in one datagram, so each has its own.
    let config = Config::with_rate(20_000_000);
    let mut node = Node::new(&bus, &sending(&config, &state)).unwrap();
    let sending = &mut node.outlets[0];
    let first = sending.outlet.subscriber().sequence();
    let lead = sending.outlet.sender().packed_until();
    let publisher = bus.publisher("t").unwrap();
    (0..MESSAGES).for_each(|_| _ = publisher.publish([7; 1_000]).unwrap());

    let begun = Instant::now();
    let (mut noted, mut ahead) = (first, 0_u32);
    while noted < first + MESSAGES {
        assert!(begun.elapsed() < wait::LIMIT, "{noted} of {MESSAGES} after {first}");
        let has_more = node.turn().unwrap();
        let sender = node.outlets[0].outlet.sender();
        let (packed, unsent) = (sender.packed_until(), sender.window().unsent());
        ahead += u32::from(packed > unsent);
        // The newest checkpoint, as the next process would find it.
        let bus = state::hash(format!("{}/00000000", bus.id()).as_bytes());
        let journal = state.journal(Stream(1), bus, meaning_of(&selection()), 0).unwrap();
        noted = journal.resume().unwrap_or(first);
        let sent = unsent.since(lead);
        assert!(noted - first <= sent, "{} messages in {sent} datagrams", noted - first);
        if !has_more {
            node.wait(None).unwrap();
        }
    }
    assert!(ahead > 0, "it never packed more than it sent");
}

/// A stream that needs more than a second for what is on its bus when the node ends.
#[test]
fn a_node_that_ends_sends_what_is_on_its_bus_or_says_what_is_left() {
    const MESSAGES: u64 = 50;
    for (drain, source) in [(Duration::from_secs(60), 2), (Duration::ZERO, 3)] {
        let directory = Directory::new();
        let bus = BusConfig::new().directory(directory.path()).create("b").unwrap();
        let state = Arc::new(State::open(&directory.path().join("state")).unwrap());
        let mut settings = sending(&Config::with_rate(400_000), &state);
        settings.member.source = Source(source);
        settings.drain = drain;
        let mut node = Node::new(&bus, &settings).unwrap();
        let publisher = bus.publisher("t").unwrap();
        (0..MESSAGES).for_each(|_| _ = publisher.publish([7; 1_000]).unwrap());
        node.turn().unwrap();
        node.end(false);
        // What comes later is not waited for.
        publisher.publish([8; 1_000]).unwrap();
        let (begun, mut left) = (Instant::now(), None);
        while !node.is_closed() {
            assert!(begun.elapsed() < wait::LIMIT, "it does not end");
            if !node.turn().unwrap() {
                node.wait(None).unwrap();
            }
        }
        while let Some(event) = node.event() {
            if let Event::Undrained(stream, unsent) = event {
                left = Some((stream, unsent));
            }
        }
        let packed = node.outlets[0].outlet.counters().messages;
        match left {
            None => assert_eq!((packed, drain.is_zero()), (MESSAGES, false)),
            Some((stream, unsent)) => {
                assert_eq!((stream, drain.is_zero()), (Stream(1), true));
                assert!(unsent <= MESSAGES && unsent + packed >= MESSAGES, "{unsent} of {packed}");
            }
        }
    }
}
