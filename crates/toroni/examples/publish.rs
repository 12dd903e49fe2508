//! A minimal publisher: publishes five messages per second, until Ctrl-C.
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
    let publisher = bus.publisher("hello/world")?;
    for number in 1.. {
        publisher.publish(format!("hello {number}").as_bytes())?;
        std::thread::sleep(Duration::from_millis(200));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    // Dropping the publisher and the bus at the end of `main` frees their slot. (If the process is
    // killed, the next participant finds the slot free.)
    Ok(())
}
