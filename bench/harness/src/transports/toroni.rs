//! Toroni itself: each run has a bus of its own, with one topic.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{
    About, Guarantees, Receiver, ReceiverCounts, Sender, SenderCounts, Setup, Slot, Transport, Wait,
};
use toroni::{Bus, BusConfig, Limit, Policy, Publisher, Subscriber, WaitStrategy};

/// The library of this repository.
pub struct Toroni;

pub(super) const BUS: &str = "bench";
pub(super) const TOPIC: &str = "bench/flow";

impl Transport for Toroni {
    const NAME: &'static str = "toroni";
    type Host = Bus;
    type Sender = ToroniSender;
    type Receiver = ToroniReceiver;

    fn about(setup: &Setup) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!(
                "ring of {} bytes, policy wait:forever, lock lease, notifier futex, wait strategy {}, \
                 prefaulted, one topic",
                setup.capacity_bytes,
                strategy(setup.wait)
            ),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
        }
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Bus, Failure> {
        config(directory)
            .capacity(setup.capacity_bytes)
            // No message may be lost: a publisher waits as long as the slowest subscriber lives.
            .policy(Policy::Wait { limit: None })
            .create(BUS)
            .map_err(Failure::of("create the bus"))
    }

    fn sender(directory: &RunDirectory, _: &Setup, index: u16) -> Result<ToroniSender, Failure> {
        let bus = open(directory, &format!("sender-{index}"))?;
        let publisher = bus.publisher(TOPIC).map_err(Failure::of("open a publisher"))?;
        Ok(ToroniSender { publisher })
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniReceiver, Failure> {
        let bus = open(directory, &format!("receiver-{index}"))?;
        let subscriber = bus
            .subscriber()
            .pattern(TOPIC)
            .wait(strategy(setup.wait))
            .build()
            .map_err(Failure::of("subscribe"))?;
        Ok(ToroniReceiver { subscriber })
    }
}

fn strategy(wait: Wait) -> WaitStrategy {
    match wait {
        Wait::Busy => WaitStrategy::Yield,
        Wait::Blocking => WaitStrategy::Backoff,
    }
}

pub(super) fn config(directory: &RunDirectory) -> BusConfig {
    BusConfig::new().directory(&directory.path).prefault(true)
}

pub(super) fn open(directory: &RunDirectory, name: &str) -> Result<Bus, Failure> {
    config(directory).participant_name(name).open_existing(BUS).map_err(Failure::of("open the bus"))
}

/// A publisher.
pub struct ToroniSender {
    publisher: Publisher,
}

impl ToroniSender {
    /// Returns the publisher, for adapters that send in other ways.
    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

impl Sender for ToroniSender {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.publisher.publish(payload).map(drop).map_err(Failure::of("publish"))
    }

    #[inline]
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        self.publisher.burst(payloads, Limit::Policy).map_err(Failure::of("publish a burst"))
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        self.publisher
            .publish_with(length, Limit::Policy, |slot| fill(slot))
            .map(drop)
            .map_err(Failure::of("publish in place"))
    }

    fn counts(&self) -> Result<SenderCounts, Failure> {
        counts(self.publisher.bus())
    }
}

/// Returns what the bus has counted of the publisher of this process.
pub(super) fn counts(bus: &Bus) -> Result<SenderCounts, Failure> {
    let stats = bus.stats().map_err(Failure::of("read the counters of the bus"))?;
    let own = std::process::id();
    let publishers = stats.publishers.unwrap_or_default();
    let Some(me) = publishers.iter().find(|other| other.pid == own) else {
        return Ok(SenderCounts::default());
    };
    Ok(SenderCounts {
        notifications: Some(me.wakes),
        waits: Some(me.waits),
        waited_ns: u64::try_from(me.waited.as_nanos()).ok(),
        notifying_ns: None,
    })
}

/// A subscriber.
pub struct ToroniReceiver {
    subscriber: Subscriber,
}

impl ToroniReceiver {
    /// Returns the subscriber, for adapters that receive in other ways.
    pub(super) fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }
}

impl Receiver for ToroniReceiver {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        match self.subscriber.try_receive().map_err(Failure::of("receive"))? {
            None => Ok(0),
            Some(message) => {
                each(message.payload());
                Ok(1)
            }
        }
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        each(self.subscriber.receive().map_err(Failure::of("receive"))?.payload());
        Ok(1)
    }

    fn counts(&self) -> Result<ReceiverCounts, Failure> {
        Ok(ReceiverCounts { lapses: Some(self.subscriber.stats().lapses) })
    }
}

#[cfg(test)]
crate::conformance!(Toroni);
