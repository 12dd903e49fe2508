//! A router: one subscriber with a handler for each kind of message.
//!
//! ```console
//! $ cargo run -p toroni --example router &
//! $ cargo run -p toroni --example publish
//! $ cargo run -p toroni --example telemetry
//! ```
//!
//! `TORONI_BUS` is the name of the bus (default: `default`), `TORONI_DIR` is the directory of
//! buses.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;

    let name = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let mut router = toroni::Bus::open(name.as_deref().unwrap_or("default"))?.router()?;

    router.on("hello/*", |message| {
        println!("greeting: {}", message.text());
    })?;
    router.on("host/cpu/*", |message| {
        // The last segment of the topic is the number of the processor.
        let processor = message.topic().rsplit('/').next().unwrap_or_default();
        println!("processor {processor}: {}", message.text());
    })?;
    // A message is received once and passed to each matching handler, in the order of registration.
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    router.on("**", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    })?;
    router.on_lapped(|messages, _bytes| eprintln!("too slow: missed {messages} messages"));

    while !stop.load(Ordering::Relaxed) {
        router.run_once(Duration::from_millis(200))?;
    }
    println!("{} messages in total", count.load(Ordering::Relaxed));
    Ok(())
}
