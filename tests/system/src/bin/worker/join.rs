//! `join`: opens the bus, takes part once and leaves, repeatedly.
//!
//! `what`: `publish`, `subscribe`, or `serve` (subscribes in a proactor).

use crate::options::Options;
use system_tests::payload::{HEAD, Payload, encode};
use toroni::Bus;

pub(crate) fn run(options: &Options) {
    let counters = options.counters();
    let id = options.get("id");
    let what: String = options.get("what");
    let mut bytes = Vec::new();
    println!("ready");
    for counter in 0..options.get("count") {
        let bus = options.bus();
        if what == "publish" {
            encode(Payload { worker: id, counter }, HEAD, &mut bytes);
            let publisher = bus.publisher("join").expect("a publisher");
            publisher.publish(&bytes).expect("published");
            counters.set_count(id, counter + 1);
        } else if what == "serve" {
            serve(&bus, options);
        } else {
            let mut subscriber = bus.subscribe("**").expect("a subscriber");
            subscriber.enable_fd().expect("a descriptor");
            subscriber.try_receive().expect("received");
        }
    }
    println!("left");
}

fn serve(bus: &Bus, options: &Options) {
    use crate::served::proactor;
    use crate::ways::ANY_ENGINE;
    use std::time::Duration;
    use toroni::proactor::Subscribe;

    let proactor = proactor(&options.or("engine", ANY_ENGINE.to_owned()));
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    subscriber.enable_fd().expect("a descriptor");
    let subscription = proactor.subscribe(subscriber, |_, _| {}).expect("is served");
    // The first turn, and the wait after it.
    (0..2).for_each(|_| {
        proactor.handle_events(Some(Duration::ZERO));
    });
    subscription.cancel();
    while !subscription.is_over() {
        proactor.handle_events(Some(Duration::from_millis(1)));
    }
    drop(subscription.take_back().expect("the subscriber"));
}
