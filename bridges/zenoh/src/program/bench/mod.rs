//! `toroni zenoh bench`: from bus to bus over Zenoh, beside plain Zenoh with the same payloads, in turn, on this host.
//!
//! All use two sessions that are joined by TCP over the loopback interface, with the same settings, in this process. So
//! the difference is what the bridges cost: reading the ring, counting, attachments, order, and writing the other ring.
//! Bridges are measured with a sample for each message, as any program of Zenoh gets them, and with batches.
//!
//! The last part stops a bridge, and measures what another one still gets.

mod contenders;
mod stopped;

use super::Failure;
use super::options::{Bench, Way};
use contenders::{Bridged, Plain};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig};

/// Both must answer within this time, or the benchmark fails.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(1);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the benchmark, and prints tables.
pub(crate) fn run(options: &Bench) -> Result<(), Failure> {
    let folder = PathBuf::from(format!("/dev/shm/toroni-zenoh-bench-{}", std::process::id()));
    let outcome = measure(&folder, options);
    // No other program uses it.
    let _ = std::fs::remove_dir_all(&folder);
    outcome.map_err(|error| Failure::Failed(error.to_string()))
}

fn measure(folder: &Path, options: &Bench) -> Outcome<()> {
    std::fs::create_dir(folder)?;
    let rounds = options.rounds.max(1);
    let wake = median((0..rounds).map(|_| wake_up(&folder.join("wake"))).collect::<Outcome<_>>()?);
    println!("medians of {rounds} rounds, in turn; one wake-up by a bus: {:.1} us", wake * 1e6);
    compare(folder, rounds, options, wake)?;
    if options.ways.contains(&Way::Stopped) {
        stopped::compare(folder, rounds, options.seconds)?;
    }
    Ok(())
}

/// Compares the rates and delays of plain Zenoh and of bridges.
fn compare(folder: &Path, rounds: usize, options: &Bench, wake: f64) -> Outcome<()> {
    let mut contenders: Vec<(&str, Box<dyn Contender>)> = Vec::new();
    for way in &options.ways {
        match way {
            Way::Plain => contenders.push(("plain", Box::new(Plain::new(false)?))),
            Way::Attached => contenders.push(("attached", Box::new(Plain::new(true)?))),
            Way::Samples => contenders.push(("samples", Box::new(Bridged::new(folder, false)?))),
            Way::Batches => contenders.push(("batches", Box::new(Bridged::new(folder, true)?))),
            Way::Stopped => {}
        }
    }
    if contenders.is_empty() {
        return Ok(());
    }
    println!(
        "\n{:>8}  {:<8} {:>12} {:>8} {:>11} {:>14}",
        "bytes", "way", "msg/s", "ratio", "one way us", "more wake-ups"
    );
    for &size in &options.sizes {
        let payload = vec![0x5a; size];
        let mut rates = vec![Vec::new(); contenders.len()];
        let mut delays = rates.clone();
        for _ in 0..rounds {
            for (at, (_, contender)) in contenders.iter().enumerate() {
                let first = contender.rate(&payload, 2_000)?;
                rates[at].push(contender.rate(&payload, within(first, options.seconds))?);
                delays[at].push(contender.delay(&payload)?);
            }
        }
        let rates: Vec<f64> = rates.into_iter().map(median).collect();
        let delays: Vec<f64> = delays.into_iter().map(median).collect();
        for (at, (way, _)) in contenders.iter().enumerate() {
            // The first is plain Zenoh, unless only others were asked for.
            println!(
                "{size:>8}  {way:<8} {:>12.0} {:>8.2} {:>11.1} {:>14.1}",
                rates[at],
                rates[at] / rates[0],
                delays[at] * 1e6,
                (delays[at] - delays[0]) / wake
            );
        }
    }
    Ok(())
}

/// A way from a publisher to a subscriber.
trait Contender {
    /// Returns how many messages arrive in a second, if `count` are sent as fast as they can be.
    fn rate(&self, payload: &[u8], count: u64) -> Outcome<f64>;
    /// Returns how long a message takes that is sent alone, in seconds.
    fn delay(&self, payload: &[u8]) -> Outcome<f64>;
}

/// Returns how many messages take about this many seconds, at a rate by the second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number far below 2^53"
)]
fn within(rate: f64, seconds: f64) -> u64 {
    ((rate * seconds) as u64).max(100)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns an endpoint that no process listens on at the moment.
fn endpoint() -> Outcome<String> {
    Ok(format!("tcp/{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?))
}

fn table(
    listen: Option<&str>,
    connect: Option<&str>,
) -> serde_json::Map<String, serde_json::Value> {
    fn endpoints(endpoint: Option<&str>) -> Vec<&str> {
        endpoint.into_iter().collect()
    }
    let value = serde_json::json!({
        "listen": { "endpoints": endpoints(listen) },
        "connect": { "endpoints": endpoints(connect) },
        "scouting": { "multicast": { "enabled": false }, "gossip": { "enabled": false } },
    });
    value.as_object().cloned().unwrap_or_default()
}

/// How long it takes until a subscriber that sleeps has a message of its own bus.
fn wake_up(folder: &Path) -> Outcome<f64> {
    std::fs::create_dir_all(folder)?;
    let bus = BusConfig::new().directory(folder).open("wake")?;
    delay_between(&bus, &bus, &[0; 64])
}

fn delay_between(from: &Bus, to: &Bus, payload: &[u8]) -> Outcome<f64> {
    let publisher = from.publisher("bench/delay")?;
    let mut subscriber = to.subscribe("bench/delay")?;
    let (sender, receiver) = channel();
    let count = 300;
    let reader = std::thread::spawn(move || -> Outcome<()> {
        for _ in 0..count {
            let message = subscriber.receive_timeout(LIMIT)?;
            if message.is_none() || sender.send(Instant::now()).is_err() {
                return Err("a message does not arrive".into());
            }
        }
        Ok(())
    });
    let mut all = Vec::new();
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        publisher.publish(payload)?;
        all.push((receiver.recv_timeout(LIMIT)? - begin).as_secs_f64());
    }
    reader.join().map_err(|_| "a reader panicked")??;
    Ok(median(all))
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn until(what: &str, mut condition: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let deadline = Instant::now() + LIMIT;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(format!("never: {what}").into());
        }
        std::thread::sleep(PAUSE / 20);
    }
    Ok(())
}
