//! `scramble`: repeatedly opens or creates a bus, sends itself a message and leaves, while other processes do the same or
//! clean.

use crate::options::Options;
use std::path::PathBuf;
use std::time::Duration;
use toroni::{BusConfig, ReceiveError};

pub(crate) fn run(options: &Options) {
    let counters = options.counters();
    let id: u32 = options.get("id");
    let config = BusConfig::new().directory(options.get::<PathBuf>("dir")).capacity(64 << 10);
    println!("ready");
    for counter in 0_u64.. {
        let bus = config.clone().open("scrambled").expect("a bus, old or new");
        let mut subscriber = bus.subscribe("**").expect("a subscriber");
        let publisher = bus.publisher("scramble").expect("a publisher");
        let mine = [u64::from(id).to_le_bytes(), counter.to_le_bytes()].concat();
        publisher.publish(&mine).expect("published");
        loop {
            match subscriber.receive_timeout(Duration::from_secs(60)) {
                Ok(Some(message)) if message.payload() == mine => break,
                Ok(Some(_)) => {}
                Ok(None) => panic!("its own message does not come"),
                // It had no core for longer than others wait for it.
                Err(ReceiveError::Lapped { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        counters.set_count(id, counter + 1);
    }
}
