//! Receives on a tokio runtime, together with a timer and Ctrl-C.
//!
//! ```console
//! $ cargo run -p toroni --features tokio --example tokio &
//! $ cargo run -p toroni --example publish
//! ```
//!
//! `TORONI_BUS` is the name of the bus (default: `default`), `TORONI_DIR` is the directory of
//! buses.

use std::env;
use std::time::Duration;
use toroni::Bus;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let mut subscriber = Bus::open(name.as_deref().unwrap_or("default"))?.subscribe("**")?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    // One future for the whole loop: if each iteration made a new one, a signal between two could
    // be missed.
    let ctrl_c = tokio::signal::ctrl_c();
    tokio::pin!(ctrl_c);

    let mut count = 0;
    loop {
        // `select!` drops the futures that are not ready. No message is lost when `receive_async`
        // is dropped.
        tokio::select! {
            received = subscriber.receive_async() => match received {
                Ok(message) => {
                    count += 1;
                    println!("{} {}", message.topic(), message.text());
                }
                Err(loss) if loss.is_loss() => eprintln!("{loss}"),
                Err(error) => return Err(error.into()),
            },
            _ = second.tick() => println!("tick: {count} messages"),
            stopped = &mut ctrl_c => return Ok(stopped?),
        }
    }
}
