//! Toroni with batches: several messages that are handed over together become visible together, with one commit.

use super::toroni::{Toroni, ToroniReceiver, ToroniSender};
use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Sender, SenderCounts, Setup, Transport};
use toroni::{Bus, Limit};

/// The library of this repository, with `publish_batch` in place of `burst`.
pub struct ToroniBatch;

impl Transport for ToroniBatch {
    const NAME: &'static str = "toroni-batch";
    type Host = Bus;
    type Sender = ToroniBatchSender;
    type Receiver = ToroniReceiver;

    fn about(setup: &Setup) -> About {
        Toroni::about(setup)
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Bus, Failure> {
        Toroni::host(directory, setup)
    }

    fn sender(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniBatchSender, Failure> {
        Toroni::sender(directory, setup, index).map(ToroniBatchSender)
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniReceiver, Failure> {
        Toroni::receiver(directory, setup, index)
    }
}

/// A publisher.
pub struct ToroniBatchSender(ToroniSender);

impl Sender for ToroniBatchSender {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.0.send(payload)
    }

    #[inline]
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        let publisher = self.0.publisher();
        let most = usize::try_from(publisher.largest_message()).unwrap_or(usize::MAX);
        let mut rest = payloads;
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(fitting(rest, most));
            publisher
                .publish_batch(batch, Limit::Policy)
                .map_err(Failure::of("publish a batch"))?;
            rest = others;
        }
        Ok(())
    }

    fn counts(&self) -> Result<SenderCounts, Failure> {
        self.0.counts()
    }
}

/// Returns how many of the first payloads fit into a batch of `most` bytes. At least one, which may be too long by itself.
fn fitting<P: AsRef<[u8]>>(payloads: &[P], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |payload: &&P| {
        bytes += payload.as_ref().len() + LARGEST_FRAME;
        bytes <= most
    };
    payloads.iter().take_while(fits).count().max(1)
}

/// More bytes than a record has besides its payload, if its topic is in the table.
const LARGEST_FRAME: usize = 64;

#[cfg(test)]
crate::conformance!(ToroniBatch);
