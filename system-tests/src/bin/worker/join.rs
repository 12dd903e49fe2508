//! `join`: opens the bus, takes part once, and leaves, again and again.
//!
//! `what`: `publish` or `subscribe`.

use crate::options::Options;
use system_tests::payload::{HEAD, Payload, encode};

pub(crate) fn run(options: &Options) {
    let board = options.board();
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
            board.set_count(id, counter + 1);
        } else {
            let mut subscriber = bus.subscribe("**").expect("a subscriber");
            subscriber.enable_fd().expect("a descriptor");
            subscriber.try_receive().expect("a look");
        }
    }
    println!("left");
}
