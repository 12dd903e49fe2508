//! iceoryx2 with topics: a topic is a service of samples, and an event service with the same name that wakes its subscribers.
//!
//! Nothing is filtered: subscribers of other topics belong to other services, which share nothing with this one. Each subscriber
//! waits in a `WaitSet` for its listeners. The publisher notifies after each sample.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::update_connections::UpdateConnections as _;
use iceoryx2::prelude::{
    AllocationStrategy, BackpressureStrategy, CallbackProgression, Node, PortFactory as _,
    ServiceName, WaitSetAttachmentId, WaitSetBuilder, ipc,
};
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::topics::{self, Crowd, LONGEST_SILENCE, MESSAGES, PARTS, Topics};
use toroni_bench_harness::transport::{About, Guarantees};

use crate::traces::{self, Traces};
use crate::{Events, Iceoryx2, Samples, node};

type Port<P> = (P, Events);

/// Dropped in this order: ports before the services that made them.
pub(crate) struct Publisher {
    samples: (iceoryx2::port::publisher::Publisher<ipc::Service, [u8], ()>, Samples),
    notifiers: [Port<Notifier<ipc::Service>>; 2],
    _node: Node<ipc::Service>,
}

pub(crate) struct Subscriber {
    samples: (iceoryx2::port::subscriber::Subscriber<ipc::Service, [u8], ()>, Samples),
    listeners: [Port<Listener<ipc::Service>>; 2],
    _node: Node<ipc::Service>,
}

/// Samples in the buffer of a subscriber.
const BUFFERED: usize = 1024;

impl Topics for Iceoryx2 {
    const NAME: &'static str = "iceoryx2";
    type Host = Traces;
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn about(_: &Crowd) -> About {
        About {
            version: concat!("iceoryx2 ", env!("ICEORYX2_VERSION")).to_owned(),
            settings:
                "ipc::Service, WaitSet; a service of samples and an event service for each topic"
                    .to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
        }
    }

    fn host(directory: &RunDirectory, _: &Crowd) -> Result<Traces, Failure> {
        traces::remove_of_the_dead();
        Ok(Traces::of(directory))
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Publisher, Failure> {
        let node = node(directory)?;
        let published = crowd.published();
        let service = samples(&node, &published[MESSAGES], crowd)?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(64)
            .allocation_strategy(AllocationStrategy::Static)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(Failure::of("make a publisher"))?;
        let notifier = |topic: &str| -> Result<Port<Notifier<ipc::Service>>, Failure> {
            let events = events(&node, topic, crowd)?;
            let notifier = events.notifier_builder().create();
            Ok((notifier.map_err(Failure::of("make a notifier"))?, events))
        };
        let notifiers = [notifier(&published[MESSAGES])?, notifier(&published[PARTS])?];
        let publisher = Publisher { samples: (publisher, service), notifiers, _node: node };
        publisher.wait_for_all(crowd);
        let connected = publisher.samples.0.update_connections();
        connected.map_err(Failure::of("connect to the subscribers"))?;
        Ok(publisher)
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Subscriber, Failure> {
        let node = node(directory)?;
        let topics = crowd.topics_of(index);
        let service = samples(&node, &topics[MESSAGES], crowd)?;
        let subscriber = service.subscriber_builder().buffer_size(BUFFERED).create();
        let subscriber = subscriber.map_err(Failure::of("make a subscriber"))?;
        let listener = |topic: &str| -> Result<Port<Listener<ipc::Service>>, Failure> {
            let events = events(&node, topic, crowd)?;
            let listener = events.listener_builder().create();
            Ok((listener.map_err(Failure::of("make a listener"))?, events))
        };
        let listeners = [listener(&topics[MESSAGES])?, listener(&topics[PARTS])?];
        if crowd.wants_messages(index) {
            // As in the flow: what is sent before a subscriber has connected is dropped.
            while service.dynamic_config().number_of_publishers() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let connected = subscriber.update_connections();
            connected.map_err(Failure::of("connect to the publisher"))?;
        }
        Ok(Subscriber { samples: (subscriber, service), listeners, _node: node })
    }
}

fn name(topic: &str) -> Result<ServiceName, Failure> {
    ServiceName::new(topic).map_err(Failure::of("use the name of a topic"))
}

fn samples(node: &Node<ipc::Service>, topic: &str, crowd: &Crowd) -> Result<Samples, Failure> {
    let subscribers = usize::from(crowd.subscribers);
    node.service_builder(&name(topic)?)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .history_size(0)
        .subscriber_max_buffer_size(BUFFERED)
        .max_publishers(1)
        .max_subscribers(subscribers)
        .max_nodes(subscribers + 2)
        .open_or_create()
        .map_err(Failure::of("open the service of samples"))
}

fn events(node: &Node<ipc::Service>, topic: &str, crowd: &Crowd) -> Result<Events, Failure> {
    let subscribers = usize::from(crowd.subscribers);
    node.service_builder(&name(topic)?)
        .event()
        .max_notifiers(1)
        .max_listeners(subscribers)
        .max_nodes(subscribers + 2)
        .open_or_create()
        .map_err(Failure::of("open the service of events"))
}

impl Publisher {
    /// Waits until all subscribers exist. This is not measured.
    fn wait_for_all(&self, crowd: &Crowd) {
        let wanting = usize::from(crowd.wanting());
        let listening = [wanting, usize::from(crowd.subscribers)];
        while self.samples.1.dynamic_config().number_of_subscribers() < wanting
            || self
                .notifiers
                .iter()
                .zip(listening)
                .any(|((_, events), all)| events.dynamic_config().number_of_listeners() < all)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl topics::Publisher for Publisher {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        // A part is only an event.
        if topic == MESSAGES {
            let sample = self.samples.0.loan_slice_uninit(payload.len());
            let sample = sample.map_err(Failure::of("loan a sample"))?.write_from_slice(payload);
            sample.send().map_err(Failure::of("send a sample"))?;
        }
        self.notifiers[topic].0.notify().map_err(Failure::of("notify"))?;
        Ok(())
    }
}

impl topics::Subscriber for Subscriber {
    fn receive(self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        let [(messages, _), (parts, _)] = &self.listeners;
        let waiting = WaitSetBuilder::new().create::<ipc::Service>();
        let waiting = waiting.map_err(Failure::of("make a wait set"))?;
        let attached = |listener| {
            waiting.attach_notification(listener).map_err(Failure::of("attach a listener"))
        };
        let (at_messages, at_parts) = (attached(messages)?, attached(parts)?);
        let mut heard = Instant::now();
        loop {
            let (mut outcome, mut is_part) = (Ok(()), false);
            let on_event = |id: WaitSetAttachmentId<ipc::Service>| {
                heard = Instant::now();
                let of_messages = id.has_event_from(&at_messages);
                is_part |= id.has_event_from(&at_parts);
                let listener = if of_messages { messages } else { parts };
                outcome = listener.try_wait(|_| {}).map(drop).map_err(Failure::of("take an event"));
                CallbackProgression::Continue
            };
            let waited = waiting.wait_and_process_once_with_timeout(on_event, LONGEST_SILENCE);
            waited.map_err(Failure::of("wait for an event"))?;
            outcome?;
            // The samples of a part come before the event that ends it.
            while self.samples.0.receive().map_err(Failure::of("receive"))?.is_some() {
                if each(MESSAGES).is_break() {
                    return Ok(());
                }
            }
            if is_part && each(PARTS).is_break() {
                return Ok(());
            }
            if heard.elapsed() > LONGEST_SILENCE {
                return Err(topics::silence());
            }
        }
    }
}

toroni_bench_harness::topics_conformance!(Iceoryx2);
