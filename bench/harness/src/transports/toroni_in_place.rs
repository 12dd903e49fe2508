//! Toroni with receivers that read messages in place, in runs: no receiver copies anything.

use super::toroni::{Toroni, ToroniReceiver, ToroniSender};
use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Receiver, ReceiverCounts, Setup, Transport};
use toroni::{Bus, InPlace};

/// The library of this repository, with `receive_in_place` in place of `receive`.
pub struct ToroniInPlace;

impl Transport for ToroniInPlace {
    const NAME: &'static str = "toroni-in-place";
    type Host = Bus;
    type Sender = ToroniSender;
    type Receiver = ToroniInPlaceReceiver;

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
    ) -> Result<ToroniSender, Failure> {
        Toroni::sender(directory, setup, index)
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<ToroniInPlaceReceiver, Failure> {
        Toroni::receiver(directory, setup, index).map(ToroniInPlaceReceiver)
    }
}

/// A subscriber.
pub struct ToroniInPlaceReceiver(ToroniReceiver);

impl Receiver for ToroniInPlaceReceiver {
    #[inline]
    fn poll(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let run = self.0.subscriber().try_receive_in_place().map_err(Failure::of("receive"))?;
        run.map_or(Ok(0), |run| pass_on(run, each))
    }

    #[inline]
    fn wait(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let run = self.0.subscriber().receive_in_place().map_err(Failure::of("receive"))?;
        pass_on(run, each)
    }

    fn counts(&self) -> Result<ReceiverCounts, Failure> {
        self.0.counts()
    }
}

#[inline]
fn pass_on(mut run: InPlace<'_>, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
    let mut count = 0;
    for message in run.by_ref() {
        // SAFETY: the policy of this bus is to wait for every subscriber without a limit, this one gates (the default),
        // and all publishers belong to this program: no process writes the message until the next call on the
        // subscriber, which the run borrows.
        each(unsafe { message.payload().as_slice() });
        count += 1;
    }
    // It cannot fail here, but it is part of what reading in place costs.
    run.validate().map_err(Failure::of("read in place"))?;
    Ok(count)
}

#[cfg(test)]
crate::conformance!(ToroniInPlace);
