//! iceoryx2: publish and subscribe of byte slices in shared memory.
//!
//! - No overflow, and `RetryUntilDelivered`: a publisher waits for a subscriber whose buffer is full.
//! - `send` loans a sample and copies the payload into it; `send_in_place` fills the loaned sample. Receivers always read
//!   in place.
//! - Busy rows poll the subscriber, with a yield. Blocking rows wait at a listener of an event service, which the sender
//!   notifies once per call: once per message, or once for several messages of one call. The project's own examples wait
//!   in this way.
//! - Each publisher has a buffer of its own at each subscriber, so there is no order between publishers.

mod topics;
mod traces;
mod values;

use std::mem::MaybeUninit;
use std::process::ExitCode;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections as _;
use iceoryx2::prelude::{
    AllocationStrategy, BackpressureStrategy, Config, FileName, Node, NodeBuilder, Path,
    PortFactory as _, SemanticString as _, ServiceName, ipc,
};
use iceoryx2::service::port_factory::{event, publish_subscribe};
use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Slot, Transport, Wait,
};
use traces::Traces;

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_all::<Iceoryx2>()
}

struct Iceoryx2;

type Samples = publish_subscribe::PortFactory<ipc::Service, [u8], ()>;
type Events = event::PortFactory<ipc::Service>;

/// Dropped in this order: ports before the services that made them.
struct Sending {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Option<Notifier<ipc::Service>>,
    /// Number of samples between two notifications, if several are sent with one call.
    notify_every: usize,
    _services: Services,
}

struct Receiving {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Option<Listener<ipc::Service>>,
    idle: Idle,
    _services: Services,
}

struct Services {
    samples: Samples,
    events: Option<Events>,
    _node: Node<ipc::Service>,
}

impl Transport for Iceoryx2 {
    const NAME: &'static str = "iceoryx2";
    /// Keeps the services, so that the process that opens them first need not create them, and then removes leftovers.
    type Host = (Services, Traces);
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        About {
            version: concat!("iceoryx2 ", env!("ICEORYX2_VERSION")).to_owned(),
            settings: format!(
                "ipc::Service, slices of bytes, no overflow, RetryUntilDelivered, buffers of {} \
                 samples, event service when blocking",
                buffered(setup)
            ),
            guarantees: Guarantees {
                lossless: true,
                total_order: setup.senders == 1,
                in_place: true,
            },
        }
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Self::Host, Failure> {
        traces::remove_of_the_dead();
        let traces = Traces::of(directory);
        Ok((Services::open(directory, setup)?, traces))
    }

    fn sender(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Sending, Failure> {
        let services = Services::open(directory, setup)?;
        let publisher = services
            .samples
            .publisher_builder()
            .initial_max_slice_len(setup.message_bytes.max(1))
            .allocation_strategy(AllocationStrategy::Static)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(Failure::of("make a publisher"))?;
        let notifier = match &services.events {
            None => None,
            Some(events) => {
                let notifier = events.notifier_builder().create();
                Some(notifier.map_err(Failure::of("make a notifier"))?)
            }
        };
        services.wait_for_all(setup);
        publisher.update_connections().map_err(Failure::of("connect to the subscribers"))?;
        Ok(Sending { publisher, notifier, notify_every: buffered(setup) / 2, _services: services })
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let services = Services::open(directory, setup)?;
        let subscriber = services.samples.subscriber_builder().buffer_size(buffered(setup));
        let subscriber = subscriber.create().map_err(Failure::of("make a subscriber"))?;
        let listener = match &services.events {
            None => None,
            Some(events) => {
                let listener = events.listener_builder().create();
                Some(listener.map_err(Failure::of("make a listener"))?)
            }
        };
        services.wait_for_all(setup);
        // A publisher drops what a subscriber has no buffer for, in spite of `RetryUntilDelivered`, until the
        // subscriber has connected. Otherwise it connects with its first `receive`.
        subscriber.update_connections().map_err(Failure::of("connect to the publishers"))?;
        Ok(Receiving { subscriber, listener, idle: Idle::new(setup), _services: services })
    }
}

/// Makes a node whose files have the prefix of the run.
fn node(directory: &RunDirectory) -> Result<Node<ipc::Service>, Failure> {
    iceoryx2::prelude::set_log_level(iceoryx2::prelude::LogLevel::Error);
    let mut config = Config::default();
    let root = Path::new(traces::ROOT.as_bytes()).map_err(Failure::of("use a directory"))?;
    config.global.set_root_path(&root);
    let prefix = FileName::new(traces::prefix(directory).as_bytes());
    config.global.prefix = prefix.map_err(Failure::of("use the name of the run"))?;
    let node = NodeBuilder::new().config(&config).create::<ipc::Service>();
    node.map_err(Failure::of("make a node"))
}

impl Services {
    fn open(directory: &RunDirectory, setup: &Setup) -> Result<Services, Failure> {
        let node = node(directory)?;
        let name = ServiceName::new("bench").map_err(Failure::of("use the name of the service"))?;
        let (senders, receivers) = (usize::from(setup.senders), usize::from(setup.receivers));
        let samples = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(buffered(setup))
            .max_publishers(senders)
            .max_subscribers(receivers)
            .max_nodes(senders + receivers + 1)
            .open_or_create()
            .map_err(Failure::of("open the service of samples"))?;
        let events = match setup.wait {
            Wait::Busy => None,
            Wait::Blocking => Some(
                node.service_builder(&name)
                    .event()
                    .max_notifiers(senders)
                    .max_listeners(receivers)
                    .max_nodes(senders + receivers + 1)
                    .open_or_create()
                    .map_err(Failure::of("open the service of events"))?,
            ),
        };
        Ok(Services { samples, events, _node: node })
    }

    /// Waits until all subscribers exist: messages that are sent afterwards reach all of them. This is not measured.
    fn wait_for_all(&self, setup: &Setup) {
        let (senders, receivers) = (usize::from(setup.senders), usize::from(setup.receivers));
        loop {
            let samples = self.samples.dynamic_config();
            let events = self.events.as_ref().map(|events| events.dynamic_config());
            if samples.number_of_publishers() == senders
                && samples.number_of_subscribers() == receivers
                && events.is_none_or(|events| {
                    events.number_of_notifiers() == senders
                        && events.number_of_listeners() == receivers
                })
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Sending {
    #[inline]
    fn send_silently(&self, payload: &[u8]) -> Result<(), Failure> {
        let sample = self.publisher.loan_slice_uninit(payload.len());
        let sample = sample.map_err(Failure::of("loan a sample"))?.write_from_slice(payload);
        sample.send().map_err(Failure::of("send a sample"))?;
        Ok(())
    }

    #[inline]
    fn notify(&self) -> Result<(), Failure> {
        if let Some(notifier) = &self.notifier {
            notifier.notify().map_err(Failure::of("notify"))?;
        }
        Ok(())
    }
}

impl Sender for Sending {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.send_silently(payload)?;
        self.notify()
    }

    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        // A subscriber that sleeps must be notified before its buffer is full.
        for some in payloads.chunks(self.notify_every) {
            some.iter().try_for_each(|payload| self.send_silently(payload.as_ref()))?;
            self.notify()?;
        }
        Ok(())
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        let sample = self.publisher.loan_slice_uninit(length);
        let mut sample = sample.map_err(Failure::of("loan a sample"))?;
        fill(&mut Loan(sample.payload_mut()));
        // SAFETY: the sample lies in shared memory, whose bytes are zero until a process writes them: all of them are
        // initialised, even those that `fill` has left out.
        let sample = unsafe { sample.assume_init() };
        sample.send().map_err(Failure::of("send a sample"))?;
        self.notify()
    }
}

/// Messages that one `poll` passes on, at most, so that its caller can do something else.
const POLL_LIMIT: usize = 256;

impl Receiver for Receiving {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        for count in 0..POLL_LIMIT {
            match self.subscriber.receive().map_err(Failure::of("receive"))? {
                Some(sample) => each(sample.payload()),
                None => return Ok(count),
            }
        }
        Ok(POLL_LIMIT)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            match &self.listener {
                None => self.idle.pause(),
                Some(listener) => {
                    listener.blocking_wait(|_| {}).map_err(Failure::of("wait for an event"))?;
                }
            }
        }
    }
}

/// A loaned sample.
struct Loan<'a>(&'a mut [MaybeUninit<u8>]);

impl Slot for Loan<'_> {
    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].write_copy_of_slice(bytes);
    }
}

/// Returns the number of samples in the buffer of a subscriber: as many as fill the bytes that every peer may have in
/// flight, within bounds that keep the queues in the cache.
fn buffered(setup: &Setup) -> usize {
    // A sample has a header, on a cache line of its own.
    let bytes = u64::try_from(setup.message_bytes).unwrap_or(u64::MAX) + 64;
    usize::try_from((setup.capacity_bytes / bytes).clamp(16, 8192)).unwrap_or(8192)
}

toroni_bench_harness::conformance!(Iceoryx2);
