//! Toroni with an exclusive publisher, which keeps the writer lock. Several senders cannot be exclusive: they share the bus as
//! ever.

use super::toroni::{TOPIC, Toroni, ToroniSender, open};
use super::toroni_in_place::ToroniInPlace;
use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Sender, SenderCounts, Setup, Slot, Transport};
use std::marker::PhantomData;
use toroni::{Bus, Exclusive, ExclusiveTopic, Limit};

/// The library of this repository, with an exclusive publisher.
pub type ToroniExclusive = WithExclusiveSender<Toroni>;

/// The same, with receivers that read messages in place.
pub type ToroniExclusiveInPlace = WithExclusiveSender<ToroniInPlace>;

/// A transport whose sender is an exclusive publisher, if it is the only one. Its receivers are those of another transport.
pub struct WithExclusiveSender<T>(PhantomData<T>);

/// A transport of shared publishers.
pub trait SharedSenders: Transport<Host = Bus, Sender = ToroniSender> {
    /// The name of the transport with an exclusive publisher.
    const EXCLUSIVE_NAME: &'static str;
}

impl SharedSenders for Toroni {
    const EXCLUSIVE_NAME: &'static str = "toroni-exclusive";
}

impl SharedSenders for ToroniInPlace {
    const EXCLUSIVE_NAME: &'static str = "toroni-exclusive-in-place";
}

impl<T: SharedSenders> Transport for WithExclusiveSender<T> {
    const NAME: &'static str = T::EXCLUSIVE_NAME;
    type Host = Bus;
    type Sender = ToroniExclusiveSender;
    type Receiver = T::Receiver;

    fn about(setup: &Setup) -> About {
        let publisher = if setup.senders == 1 { "exclusive" } else { "shared" };
        let about = T::about(setup);
        About { settings: format!("{}, publisher {publisher}", about.settings), ..about }
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Bus, Failure> {
        T::host(directory, setup)
    }

    fn sender(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniExclusiveSender, Failure> {
        if setup.senders > 1 {
            return T::sender(directory, setup, index).map(ToroniExclusiveSender::Shared);
        }
        let bus = open(directory, &format!("sender-{index}"))?;
        let exclusive = bus.exclusive().map_err(Failure::of("open an exclusive publisher"))?;
        let topic = exclusive.topic(TOPIC).map_err(Failure::of("make a topic"))?;
        Ok(ToroniExclusiveSender::Exclusive { exclusive, topic })
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<T::Receiver, Failure> {
        T::receiver(directory, setup, index)
    }
}

/// A publisher.
pub enum ToroniExclusiveSender {
    /// The only one.
    Exclusive {
        /// It keeps the lock.
        exclusive: Exclusive,
        /// Its topic.
        topic: ExclusiveTopic,
    },
    /// One of several.
    Shared(ToroniSender),
}

impl Sender for ToroniExclusiveSender {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Exclusive { exclusive, topic } => exclusive
                .publish(topic, payload, Limit::Policy)
                .map(drop)
                .map_err(Failure::of("publish")),
            Self::Shared(sender) => sender.send(payload),
        }
    }

    #[inline]
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        match self {
            Self::Exclusive { exclusive, topic } => exclusive
                .burst(topic, payloads, Limit::Policy)
                .map_err(Failure::of("publish a burst")),
            Self::Shared(sender) => sender.send_all(payloads),
        }
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        match self {
            Self::Exclusive { exclusive, topic } => exclusive
                .publish_with(topic, length, Limit::Policy, |slot| fill(slot))
                .map(drop)
                .map_err(Failure::of("publish in place")),
            Self::Shared(sender) => sender.send_in_place(length, fill),
        }
    }

    fn counts(&self) -> Result<SenderCounts, Failure> {
        match self {
            Self::Exclusive { exclusive, .. } => super::toroni::counts(exclusive.bus()),
            Self::Shared(sender) => sender.counts(),
        }
    }
}

#[cfg(test)]
crate::conformance!(ToroniExclusive);

#[cfg(test)]
mod in_place {
    use super::*;
    crate::conformance!(ToroniExclusiveInPlace);
}
