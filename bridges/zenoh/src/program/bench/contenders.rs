//! What is compared: plain Zenoh, and two buses that bridges connect.

use super::{
    Contender, LIMIT, Outcome, PAUSE, delay_between, endpoint, median, nanoseconds, table, until,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toroni::{Bus, BusConfig, Origin, Policy, ReceiveError};
use toroni_zenoh::attachment::Attachment;
use toroni_zenoh::config::{BusSettings, Congestion, Export, Import, ZenohSource};
use toroni_zenoh::{Bridge, Config, State};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::qos::CongestionControl;
use zenoh::time::{NTP64, Timestamp, TimestampId};

/// Two sessions without bridges.
pub(super) struct Plain {
    publisher: zenoh::pubsub::Publisher<'static>,
    /// What bridges send beside the payload.
    attached: Option<(Attachment, TimestampId)>,
    _subscriber: zenoh::pubsub::Subscriber<()>,
    received: Arc<AtomicU64>,
    /// When the last message arrived, in nanoseconds since `start`.
    arrived: Arc<AtomicU64>,
    start: Instant,
    _sessions: [zenoh::Session; 2],
}

impl Plain {
    pub(super) fn new(is_attached: bool) -> Outcome<Self> {
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
        let zid = sender.info().zid().wait();
        let attachment = Attachment {
            origin: Origin { source: 1, series: 2, stream: 3, number: 4 },
            count: 5,
            numbering: 6,
            to_descendants: false,
            replayed: false,
            stamped: true,
            hops: 0,
        };
        let attached = match is_attached {
            true => Some((attachment, TimestampId::try_from(&zid.to_le_bytes()[..])?)),
            false => None,
        };
        let this = Self {
            publisher,
            attached,
            _subscriber: subscriber,
            received,
            arrived,
            start,
            _sessions: [receiver, sender],
        };
        until("the two sessions find each other", || {
            this.put(&[0])?;
            std::thread::sleep(10 * PAUSE);
            Ok(this.received.load(Ordering::Acquire) > 0)
        })?;
        Ok(this)
    }
}

impl Contender for Plain {
    fn rate(&self, payload: &[u8], count: u64) -> Outcome<f64> {
        self.quiet()?;
        let (begin, before) = (Instant::now(), self.received.load(Ordering::Acquire));
        for _ in 0..count {
            self.put(payload)?;
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
            self.put(payload)?;
            until("plain Zenoh delivers", || Ok(self.received.load(Ordering::Acquire) > before))?;
            all.push((self.arrived.load(Ordering::Relaxed).saturating_sub(begin)) as f64 / 1e9);
        }
        Ok(median(all))
    }
}

impl Plain {
    fn put(&self, payload: &[u8]) -> Outcome<()> {
        let put = self.publisher.put(payload);
        match &self.attached {
            None => put.wait(),
            Some((attachment, clock)) => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH)?;
                let stamped = put.timestamp(Some(Timestamp::new(NTP64::from(time), *clock)));
                stamped.attachment(ZBytes::from(attachment.to_bytes())).wait()
            }
        }
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
pub(super) struct Bridged {
    bridges: [Bridge; 2],
    from: Bus,
    to: Bus,
}

impl Bridged {
    pub(super) fn new(folder: &Path, batches: bool) -> Outcome<Self> {
        let endpoint = endpoint()?;
        let folder = &folder.join(if batches { "batches" } else { "samples" });
        std::fs::create_dir(folder)?;
        let (from, to) = (bus(folder, "from")?, bus(folder, "to")?);
        let mut import = Import::new(["bench/**"]);
        import.batches = batches;
        let receiver = Bridge::start(&Config {
            imports: vec![import],
            zenoh: ZenohSource::Table(table(Some(&endpoint), None)),
            ..settings(folder, "to")
        })?;
        // Nothing may be lost where rates are compared; plain Zenoh does the same.
        let congestion = Congestion::Block;
        let sender = Bridge::start(&Config {
            exports: vec![Export { congestion, gating: true, ..Export::new(["bench/**"]) }],
            zenoh: ZenohSource::Table(table(None, Some(&endpoint))),
            ..settings(folder, "from")
        })?;
        let this = Self { bridges: [receiver, sender], from, to };
        this.bridges.iter().try_for_each(await_active)?;
        await_hello(&this.from, &this.to)?;
        Ok(this)
    }
}

impl Contender for Bridged {
    fn rate(&self, payload: &[u8], count: u64) -> Outcome<f64> {
        match rate_between(&self.from, &self.to, payload, count)? {
            (rate, 0) => Ok(rate),
            (_, lost) => Err(format!("{lost} of {count} messages are lost").into()),
        }
    }

    fn delay(&self, payload: &[u8]) -> Outcome<f64> {
        delay_between(&self.from, &self.to, payload)
    }
}

/// Opens a bus whose publishers wait.
pub(super) fn bus(folder: &Path, name: &str) -> Outcome<Bus> {
    let config = BusConfig::new().directory(folder).capacity(64 << 20);
    Ok(config.policy(Policy::Wait { limit: None }).open(name)?)
}

pub(super) fn settings(folder: &Path, bus: &str) -> Config {
    Config {
        bus: BusSettings { name: bus.to_owned(), directory: Some(folder.to_owned()) },
        source: Some(format!("bench-{bus}")),
        settle: Duration::from_millis(100),
        ..Config::default()
    }
}

pub(super) fn await_active(bridge: &Bridge) -> Outcome<()> {
    match bridge.wait_for(&State::Active, LIMIT) {
        State::Active => Ok(()),
        state => Err(format!("a bridge does not start: {state:?}").into()),
    }
}

/// Waits until what is published on one bus arrives on another.
pub(super) fn await_hello(from: &Bus, to: &Bus) -> Outcome<()> {
    let publisher = from.publisher("bench/hello")?;
    let mut subscriber = to.subscribe("bench/hello")?;
    until("the bridges find each other", || {
        publisher.publish(b"hello")?;
        match subscriber.receive_timeout(10 * PAUSE) {
            // Of what was sent while nothing was connected.
            Err(ReceiveError::Lost(_)) => Ok(false),
            received => Ok(received?.is_some()),
        }
    })
}

/// Publishes messages on one bus and receives them on another. Returns the rate by the second, and how many were lost. As
/// plain Zenoh does by TCP, it limits how many are under way.
pub(super) fn rate_between(
    from: &Bus,
    to: &Bus,
    payload: &[u8],
    count: u64,
) -> Outcome<(f64, u64)> {
    const UNDER_WAY: u64 = 16 << 10;
    let window = UNDER_WAY.min((16 << 20) / payload.len().max(1) as u64);
    let mut subscriber = to.subscribe("bench/rate")?;
    let publisher = from.publisher("bench/rate")?;
    let (done, came) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let reader = {
        let (done, came) = (done.clone(), came.clone());
        move || -> Outcome<()> {
            while done.load(Ordering::Relaxed) < count {
                let more = match subscriber.receive_timeout(LIMIT) {
                    Ok(Some(message)) => {
                        std::hint::black_box(message.payload());
                        came.fetch_add(1, Ordering::Relaxed);
                        1
                    }
                    Ok(None) => return Err("messages do not arrive".into()),
                    Err(ReceiveError::Lost(lost)) => lost.messages,
                    Err(error) => return Err(error.into()),
                };
                done.fetch_add(more, Ordering::Relaxed);
            }
            Ok(())
        }
    };
    let reader = std::thread::spawn(reader);
    let begin = Instant::now();
    for number in 0..count {
        if number % 64 == 0 && number >= done.load(Ordering::Relaxed) + window {
            until("messages arrive", || {
                Ok(reader.is_finished() || number < done.load(Ordering::Relaxed) + window)
            })?;
        }
        publisher.publish(payload)?;
    }
    reader.join().map_err(|_| "a reader panicked")??;
    let (seconds, came) = (begin.elapsed().as_secs_f64(), came.load(Ordering::Relaxed));
    Ok((came as f64 / seconds, count.saturating_sub(came)))
}
