//! Toroni with an exclusive publisher, which keeps the writer lock. Several senders cannot be exclusive: they share the bus as
//! ever.

use super::toroni::{TOPIC, Toroni, ToroniReceiver, ToroniSender, open};
use super::toroni_in_place::{ToroniInPlace, ToroniInPlaceReceiver};
use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Sender, SenderCounts, Setup, Slot, Transport};
use toroni::{Bus, Exclusive, ExclusiveTopic};

/// The library of this repository, with an exclusive publisher.
pub struct ToroniExclusive;

/// The same, with receivers that read messages in place.
pub struct ToroniExclusiveInPlace;

impl Transport for ToroniExclusive {
    const NAME: &'static str = "toroni-exclusive";
    type Host = Bus;
    type Sender = ToroniExclusiveSender;
    type Receiver = ToroniReceiver;

    fn about(setup: &Setup) -> About {
        about(setup)
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Bus, Failure> {
        Toroni::host(directory, setup)
    }

    fn sender(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniExclusiveSender, Failure> {
        sender(directory, setup, index)
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniReceiver, Failure> {
        Toroni::receiver(directory, setup, index)
    }
}

impl Transport for ToroniExclusiveInPlace {
    const NAME: &'static str = "toroni-exclusive-in-place";
    type Host = Bus;
    type Sender = ToroniExclusiveSender;
    type Receiver = ToroniInPlaceReceiver;

    fn about(setup: &Setup) -> About {
        about(setup)
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Bus, Failure> {
        Toroni::host(directory, setup)
    }

    fn sender(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniExclusiveSender, Failure> {
        sender(directory, setup, index)
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniInPlaceReceiver, Failure> {
        ToroniInPlace::receiver(directory, setup, index)
    }
}

fn about(setup: &Setup) -> About {
    let publisher = if setup.senders == 1 { "exclusive" } else { "shared" };
    let about = Toroni::about(setup);
    About { settings: format!("{}, publisher {publisher}", about.settings), ..about }
}

fn sender(
    directory: &RunDirectory,
    setup: &Setup,
    index: u16,
) -> Result<ToroniExclusiveSender, Failure> {
    if setup.senders > 1 {
        return Toroni::sender(directory, setup, index).map(ToroniExclusiveSender::Shared);
    }
    let bus = open(directory, &format!("sender-{index}"))?;
    let exclusive = bus.exclusive().map_err(Failure::of("open an exclusive publisher"))?;
    let topic = exclusive.topic(TOPIC).map_err(Failure::of("make a topic"))?;
    Ok(ToroniExclusiveSender::Exclusive { exclusive, topic })
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
            Self::Exclusive { exclusive, topic } => {
                exclusive.publish(topic, payload).map_err(Failure::of("publish"))
            }
            Self::Shared(sender) => sender.send(payload),
        }
    }

    #[inline]
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        match self {
            Self::Exclusive { exclusive, topic } => {
                exclusive.burst(topic, payloads).map_err(Failure::of("publish a burst"))
            }
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
                .publish_with(topic, length, |slot| fill(slot))
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
