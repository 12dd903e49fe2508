//! A minimal subscriber: prints every message published below `hello`, until Ctrl-C.
//!
//! ```console
//! $ cargo run -p toroni --example subscribe &
//! $ cargo run -p toroni --example publish
//! ```
//!
//! `TORONI_BUS` is the name of the bus (default: `default`), `TORONI_DIR` is the directory of
//! buses.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;

    let name = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let bus = toroni::Bus::open(name.as_deref().unwrap_or("default"))?; // creates it if it does not exist
    let mut subscriber = bus.subscribe("hello/**")?;
    // `receive` would not return on Ctrl-C. With a timeout, the loop can check the flag.
    while !stop.load(Ordering::Relaxed) {
        if let Some(message) = subscriber.receive_timeout(Duration::from_millis(200))? {
            println!("{} {}", message.topic(), message.text());
        }
    }
    Ok(())
}
