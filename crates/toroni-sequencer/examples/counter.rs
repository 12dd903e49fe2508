//! A counter that is the same on all hosts: each adds up the events in their one order.
//!
//! ```console
//! $ cargo run -p toroni-sequencer --example counter 3 -1 10
//! ```
//!
//! The arguments are sent as commands. The feed is `TORONI_FEED` (default: `orders`); the host's node brings commands to the
//! leader and events to the bus. `TORONI_DIR` is the directory of buses.

use std::error::Error;

use toroni::{Bus, Start};
use toroni_sequencer::commands::Commands;

fn main() -> Result<(), Box<dyn Error>> {
    let feed = std::env::var("TORONI_FEED").unwrap_or_else(|_| "orders".to_owned());
    let bus = Bus::open(&feed)?;
    // From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound. A loss is an error of
    // `receive`. Then the sum would be wrong, and the program ends.
    let mut events = bus.subscriber().pattern("counter/add").start(Start::Oldest).build()?;
    let commands = Commands::open(&feed)?;
    for argument in std::env::args().skip(1) {
        let _: i64 = argument.parse()?;
        commands.send("counter/add", &argument)?;
    }
    let mut sum = 0_i64;
    loop {
        let event = events.receive()?;
        // The same on all hosts, so it must not matter who sent it, or when it came.
        sum = sum.wrapping_add(event.text().parse().unwrap_or(0));
        println!("event {}: {sum}", event.number().unwrap_or(0));
    }
}
