//! `probe`: alone on a bus, it publishes short messages, and subscribes again before every other one. Each new subscriber
//! must find its position among what others have left.

use crate::options::Options;
use std::time::Duration;
use system_tests::Random;
use system_tests::payload::{Payload, decode, encode};

pub(crate) fn run(options: &Options) {
    let (bus, counters) = (options.bus(), options.counters());
    let worker = options.get("id");
    let mut random = Random::new(options.or("seed", 1));
    let publisher = bus.publisher("probe").expect("a publisher");
    let mut bytes = Vec::new();
    for counter in 0..options.or("count", 60) {
        let payload = Payload { worker, counter };
        encode(payload, random.length(300), &mut bytes);
        if counter % 2 == 0 {
            publisher.publish(&bytes).expect("published");
        } else {
            let mut subscriber = bus.subscribe("**").expect("a place in the stream");
            publisher.publish(&bytes).expect("published");
            let sequence = bus.stats().expect("statistics").sequence;
            let message = subscriber.receive_timeout(Duration::from_secs(60)).expect("received");
            let message = message.expect("a message");
            assert_eq!(decode(message.payload()), Ok(payload));
            assert_eq!(message.sequence() + 1, sequence);
        }
        counters.set_count(worker, counter + 1);
    }
    println!("published");
}
