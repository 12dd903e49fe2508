//! Zenoh between peers, without a router and without scouting.
//!
//! - Each sender listens, and each receiver connects to all senders, over `unixsock-stream`. Payloads of 3 KiB or more
//!   travel in shared memory with Zenoh's own transport optimization (its default); smaller ones would cost more there.
//! - Congestion control `Block` and reliability `Reliable`: no message is dropped, because publishers wait. A FIFO channel
//!   hands messages to the receiving thread; when it is full, it waits, too.
//! - Batching is Zenoh's adaptive one (its default): messages are put together while the link is busy.
//! - Ends wait with `recv` of the channel, or with `try_recv` and a yield. In both cases Zenoh's own threads do the rest.

mod topics;
mod values;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Transport, Wait,
};
use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::{CongestionControl, Reliability};
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait as _};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_all::<Zenoh>()
}

struct Zenoh;

struct Sending {
    publisher: Publisher<'static>,
    _session: Session,
}

struct Receiving {
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
    busy: bool,
    idle: Idle,
    _alive: LivelinessToken,
    _session: Session,
}

const TOPIC: &str = "bench/flow";
/// Prefix of the token that each receiver declares after it has subscribed.
const RECEIVERS: &str = "bench/receivers";
/// How long to wait for the other ends.
const PATIENCE: Duration = Duration::from_secs(20);

impl Transport for Zenoh {
    const NAME: &'static str = "zenoh";
    type Host = Sweep;
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        About {
            version: concat!("zenoh ", env!("ZENOH_VERSION")).to_owned(),
            settings: format!(
                "peers over unixsock-stream, shared memory from 3 KiB on, Block, Reliable, FIFO channel \
                 of {} samples",
                buffered(setup)
            ),
            guarantees: Guarantees {
                lossless: true,
                total_order: setup.senders == 1,
                in_place: false,
            },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<Sweep, Failure> {
        Ok(Sweep)
    }

    fn sender(directory: &RunDirectory, setup: &Setup, index: u16) -> Result<Sending, Failure> {
        let session = open(&[("listen/endpoints", endpoints(directory, index..index + 1))])?;
        let publisher = declare_publisher(&session, TOPIC)?;
        wait_for_tokens(&session, setup.receivers)?;
        Ok(Sending { publisher, _session: session })
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, index: u16) -> Result<Receiving, Failure> {
        let session = open(&[("connect/endpoints", endpoints(directory, 0..setup.senders))])?;
        let subscriber = session
            .declare_subscriber(TOPIC)
            .with(FifoChannel::new(buffered(setup)))
            .wait()
            .map_err(Failure::of("declare a subscriber"))?;
        Ok(Receiving {
            subscriber,
            busy: setup.wait == Wait::Busy,
            idle: Idle::new(setup),
            _alive: declare_token(&session, index)?,
            _session: session,
        })
    }
}

fn declare_publisher<K>(session: &Session, key: K) -> Result<Publisher<'static>, Failure>
where
    K: TryInto<KeyExpr<'static>, Error: Into<zenoh::Error>>,
{
    session
        .declare_publisher(key)
        .congestion_control(CongestionControl::Block)
        .reliability(Reliability::Reliable)
        .wait()
        .map_err(Failure::of("declare a publisher"))
}

/// Declares a token, which tells [`wait_for_tokens`] that this end has subscribed.
fn declare_token(session: &Session, receiver: u16) -> Result<LivelinessToken, Failure> {
    let token = session.liveliness().declare_token(format!("{RECEIVERS}/{receiver}")).wait();
    token.map_err(Failure::of("declare a liveliness token"))
}

/// Waits until this number of receivers have subscribed. The token of a receiver travels after its subscription: a sender that
/// sees the token has seen the subscription.
fn wait_for_tokens(session: &Session, receivers: u16) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let tokens = session.liveliness().get(format!("{RECEIVERS}/*")).wait();
        let tokens = tokens.map_err(Failure::of("look for the receivers"))?;
        if tokens.iter().count() >= usize::from(receivers) {
            return Ok(());
        }
        // Many processes take their time to start.
        if start.elapsed() > PATIENCE + Duration::from_millis(200) * u32::from(receivers) {
            return Err(Failure::new(format!("not all {receivers} receivers came")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Zenoh leaves segments of shared memory when a process ends, and removes them the next time.
struct Sweep;

impl Drop for Sweep {
    fn drop(&mut self) {
        zenoh::shm::cleanup_orphaned_shm_segments();
    }
}

impl Sender for Sending {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.publisher.put(payload).wait().map_err(Failure::of("put"))
    }
}

/// Messages that one `poll` passes on, at most, so that its caller can do something else.
const POLL_LIMIT: usize = 256;

impl Receiver for Receiving {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        for count in 0..POLL_LIMIT {
            match self.subscriber.try_recv().map_err(Failure::of("receive"))? {
                // Borrowed if the payload is in one piece, as it is here.
                Some(sample) => each(&sample.payload().to_bytes()),
                None => return Ok(count),
            }
        }
        Ok(POLL_LIMIT)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        if !self.busy {
            let sample = self.subscriber.recv().map_err(Failure::of("receive"))?;
            each(&sample.payload().to_bytes());
            return Ok(1);
        }
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            self.idle.pause();
        }
    }
}

fn open(settings: &[(&str, String)]) -> Result<Session, Failure> {
    let mut config = Config::default();
    let fixed = [
        ("mode", "\"peer\""),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "false"),
        // A receiver may start before its sender, and tries again soon.
        ("connect/timeout_ms", "60000"),
        ("connect/retry", "{ period_init_ms: 5, period_max_ms: 20, period_increase_factor: 2 }"),
        ("listen/endpoints", "[]"),
        // By default the link is closed when a publisher has waited for 5 s, which loses messages.
        ("transport/link/tx/queue/congestion_control/block/wait_before_close", "60000000"),
        // Shared memory is set up before the run, not at the first large message.
        ("transport/shared_memory/mode", "\"init\""),
    ];
    let own = settings.iter().map(|(key, value)| (*key, value.as_str()));
    for (key, value) in fixed.into_iter().chain(own) {
        let set = config.insert_json5(key, value);
        set.map_err(Failure::of(format!("set {key} to {value}")))?;
    }
    zenoh::open(config).wait().map_err(Failure::of("open a session"))
}

fn endpoints(directory: &RunDirectory, senders: std::ops::Range<u16>) -> String {
    let one = |sender| format!("\"unixsock-stream/{}/zenoh-{sender}\"", directory.path.display());
    format!("[{}]", senders.map(one).collect::<Vec<_>>().join(","))
}

/// Returns the number of samples in the FIFO channel: as many as fill the bytes that every peer may have in flight, within
/// bounds. Zenoh's default is 256.
fn buffered(setup: &Setup) -> usize {
    let bytes = u64::try_from(setup.message_bytes).unwrap_or(u64::MAX).max(64);
    usize::try_from((setup.capacity_bytes / bytes).clamp(64, 65_536)).unwrap_or(65_536)
}

toroni_bench_harness::conformance!(Zenoh);
