//! `toroni zenoh bench`: from bus to bus over Zenoh, beside plain Zenoh with the same payloads, in turn, on this host.
//!
//! Both use two sessions that are joined by TCP over the loopback interface, with the same settings, in this process. So
//! the difference is what the bridges cost: reading the ring, counting, attachments, order, and writing the other ring.

use super::Failure;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, Policy};
use toroni_zenoh::config::{BusSettings, Congestion, Export, Import, ZenohSource};
use toroni_zenoh::{Bridge, Config, State};
use zenoh::Wait;
use zenoh::qos::CongestionControl;

const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];
/// Both must answer within this time, or the benchmark fails.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(1);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the benchmark, and prints a table.
pub(crate) fn run(rounds: usize, seconds: f64) -> Result<(), Failure> {
    let folder = PathBuf::from(format!("/dev/shm/toroni-zenoh-bench-{}", std::process::id()));
    let outcome = measure(&folder, rounds.max(1), seconds);
    // No other program uses it.
    let _ = std::fs::remove_dir_all(&folder);
    outcome.map_err(|error| Failure::Failed(error.to_string()))
}

fn measure(folder: &Path, rounds: usize, seconds: f64) -> Outcome<()> {
    std::fs::create_dir(folder)?;
    let plain = Plain::new()?;
    let bridged = Bridged::new(folder)?;
    let wake = median((0..rounds).map(|_| wake_up(&folder.join("wake"))).collect::<Outcome<_>>()?);
    println!("medians of {rounds} rounds, in turn; one wake-up by a bus: {:.1} us", wake * 1e6);
    println!(
        "{:>8} {:>14} {:>14} {:>7} {:>14} {:>14} {:>9}",
        "bytes", "plain msg/s", "bridge msg/s", "ratio", "plain us", "bridge us", "wake-ups"
    );
    for size in SIZES {
        let payload = vec![0x5a; size];
        let mut rates = [Vec::new(), Vec::new()];
        let mut delays = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            // As many as take about so long.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive number far below 2^53"
            )]
            let count = |rate: f64| ((rate * seconds) as u64).max(100);
            let first = plain.rate(&payload, 2_000)?;
            rates[0].push(plain.rate(&payload, count(first))?);
            let first = bridged.rate(&payload, 2_000)?;
            rates[1].push(bridged.rate(&payload, count(first))?);
            delays[0].push(plain.delay(&payload)?);
            delays[1].push(bridged.delay(&payload)?);
        }
        let [plain_rate, bridge_rate] = rates.map(median);
        let [plain_delay, bridge_delay] = delays.map(median);
        println!(
            "{size:>8} {plain_rate:>14.0} {bridge_rate:>14.0} {:>7.2} {:>14.1} {:>14.1} {:>9.1}",
            bridge_rate / plain_rate,
            plain_delay * 1e6,
            bridge_delay * 1e6,
            (bridge_delay - plain_delay) / wake
        );
    }
    bridged.stop();
    Ok(())
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

/// Two sessions without bridges.
struct Plain {
    publisher: zenoh::pubsub::Publisher<'static>,
    _subscriber: zenoh::pubsub::Subscriber<()>,
    received: Arc<AtomicU64>,
    /// When the last message arrived, in nanoseconds since `start`.
    arrived: Arc<AtomicU64>,
    start: Instant,
    _sessions: [zenoh::Session; 2],
}

impl Plain {
    fn new() -> Outcome<Self> {
        let endpoint = endpoint()?;
        let open = |table: serde_json::Map<String, serde_json::Value>| -> Outcome<_> {
            let text = serde_json::Value::Object(table).to_string();
            zenoh::open(zenoh::Config::from_json5(&text)?).wait()
        };
        let receiver = open(table(Some(&endpoint), None))?;
        let sender = open(table(None, Some(&endpoint)))?;
        let (received, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let start = Instant::now();
        let (count, last) = (Arc::clone(&received), Arc::clone(&arrived));
        let subscriber = receiver
            .declare_subscriber("bench/plain")
            .callback(move |sample| {
                std::hint::black_box(sample.payload().to_bytes());
                last.store(nanoseconds(start), Ordering::Relaxed);
                count.fetch_add(1, Ordering::Release);
            })
            .wait()?;
        let publisher = sender
            .declare_publisher("bench/plain")
            .congestion_control(CongestionControl::Block)
            .wait()?;
        let this = Self {
            publisher,
            _subscriber: subscriber,
            received,
            arrived,
            start,
            _sessions: [receiver, sender],
        };
        until("the two sessions find each other", || {
            this.publisher.put([0_u8; 1]).wait()?;
            std::thread::sleep(10 * PAUSE);
            Ok(this.received.load(Ordering::Acquire) > 0)
        })?;
        Ok(this)
    }

    fn rate(&self, payload: &[u8], count: u64) -> Outcome<f64> {
        self.quiet()?;
        let (begin, before) = (Instant::now(), self.received.load(Ordering::Acquire));
        for _ in 0..count {
            self.publisher.put(payload).wait()?;
        }
        let end = before + count;
        until("plain Zenoh delivers", || Ok(self.received.load(Ordering::Acquire) >= end))?;
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    fn delay(&self, payload: &[u8]) -> Outcome<f64> {
        let mut all = Vec::new();
        for _ in 0..300 {
            std::thread::sleep(PAUSE);
            let before = self.received.load(Ordering::Acquire);
            let begin = nanoseconds(self.start);
            self.publisher.put(payload).wait()?;
            until("plain Zenoh delivers", || Ok(self.received.load(Ordering::Acquire) > before))?;
            all.push((self.arrived.load(Ordering::Relaxed).saturating_sub(begin)) as f64 / 1e9);
        }
        Ok(median(all))
    }

    /// Waits until nothing arrives any more.
    fn quiet(&self) -> Outcome<()> {
        let mut last = u64::MAX;
        until("plain Zenoh becomes quiet", || {
            let now = self.received.load(Ordering::Acquire);
            std::thread::sleep(20 * PAUSE);
            Ok(std::mem::replace(&mut last, now) == now)
        })
    }
}

/// Two buses that are joined by two bridges.
struct Bridged {
    bridges: [Bridge; 2],
    from: Bus,
    to: Bus,
}

impl Bridged {
    fn new(folder: &Path) -> Outcome<Self> {
        let endpoint = endpoint()?;
        let bus = |name: &str| -> Outcome<Bus> {
            let config = BusConfig::new().directory(folder).capacity(64 << 20);
            Ok(config.policy(Policy::Wait { limit: None }).open(name)?)
        };
        let (from, to) = (bus("from")?, bus("to")?);
        let settings = |name: &str, source: &str| Config {
            bus: BusSettings { name: name.to_owned(), directory: Some(folder.to_owned()) },
            source: Some(source.to_owned()),
            settle: Duration::from_millis(100),
            ..Config::default()
        };
        let mut export = Export::new(["bench/**"]);
        // Nothing may be lost where rates are compared; plain Zenoh does the same.
        export.congestion = Congestion::Block;
        export.gating = true;
        let receiver = Bridge::start(&Config {
            imports: vec![Import::new(["bench/**"])],
            zenoh: ZenohSource::Table(table(Some(&endpoint), None)),
            ..settings("to", "bench-to")
        })?;
        let sender = Bridge::start(&Config {
            exports: vec![export],
            zenoh: ZenohSource::Table(table(None, Some(&endpoint))),
            ..settings("from", "bench-from")
        })?;
        for bridge in [&receiver, &sender] {
            let state = bridge.wait_for(&State::Active, LIMIT);
            if state != State::Active {
                return Err(format!("a bridge does not start: {state:?}").into());
            }
        }
        let this = Self { bridges: [receiver, sender], from, to };
        let publisher = this.from.publisher("bench/hello")?;
        let mut subscriber = this.to.subscribe("bench/hello")?;
        until("the two bridges find each other", || {
            publisher.publish(b"hello")?;
            Ok(subscriber.receive_timeout(10 * PAUSE)?.is_some())
        })?;
        Ok(this)
    }

    fn rate(&self, payload: &[u8], count: u64) -> Outcome<f64> {
        let mut subscriber = self.to.subscribe("bench/rate")?;
        let publisher = self.from.publisher("bench/rate")?;
        let reader = std::thread::spawn(move || -> Outcome<()> {
            for number in 0..count {
                let message = subscriber.receive_timeout(LIMIT)?;
                let message = message.ok_or_else(|| format!("only {number} of {count} arrive"))?;
                std::hint::black_box(message.payload());
            }
            Ok(())
        });
        let begin = Instant::now();
        for _ in 0..count {
            publisher.publish(payload)?;
        }
        reader.join().map_err(|_| "a reader panicked")??;
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    fn delay(&self, payload: &[u8]) -> Outcome<f64> {
        delay_between(&self.from, &self.to, payload)
    }

    fn stop(self) {
        for bridge in self.bridges {
            bridge.stop();
        }
    }
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
