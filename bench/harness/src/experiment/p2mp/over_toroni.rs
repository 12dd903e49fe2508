//! A batch of objects as one message, written and read in place.

use super::carrier::{Plan, Receives, Sends};
use super::objects::{OBJECT, Seen, make};
use crate::Failure;
use crate::run_directory::RunDirectory;
use std::path::Path;
use toroni::{Bus, BusConfig, Limit, Policy, Publisher, Subscriber};

const BUS: &str = "objects";

/// Creates the bus. Its publisher waits for the receivers as long as they live: no message is lost, and no bytes change
/// while a receiver reads them.
pub(super) fn host(directory: &RunDirectory, plan: &Plan) -> Result<Bus, Failure> {
    config(&directory.path)
        .capacity(plan.capacity_bytes)
        .policy(Policy::Wait { limit: None })
        .create(BUS)
        .map_err(Failure::of("create the bus"))
}

pub(super) struct Sender {
    publisher: Publisher,
    objects_per_batch: u64,
}

impl Sender {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        let bus =
            config(&directory.path).open_existing(BUS).map_err(Failure::of("open the bus"))?;
        let publisher = bus.publisher("objects").map_err(Failure::of("make a publisher"))?;
        Ok(Self { publisher, objects_per_batch: plan.objects_per_batch() })
    }
}

impl Sends for Sender {
    fn send(&mut self, first: u64, left: u64) -> Result<u64, Failure> {
        let objects = left.min(self.objects_per_batch);
        // A batch is a message, so its bytes fit a usize.
        let length = usize::try_from(objects).unwrap_or(usize::MAX).saturating_mul(OBJECT);
        let fill = |message: &mut toroni::RacyBytesMut<'_>| {
            // SAFETY: no subscriber reads these bytes now: the policy of this bus is to wait for every subscriber without
            // a limit, and all of them gate (the default).
            make(unsafe { message.as_mut_slice() }, first)
        };
        let published = self.publisher.publish_with(length, Limit::Policy, fill);
        published.map(|(_, made)| made).map_err(Failure::of("publish a batch"))
    }
}

pub(super) struct Receiver(Subscriber);

impl Receiver {
    pub(super) fn open(directory: &RunDirectory) -> Result<Self, Failure> {
        let bus =
            config(&directory.path).open_existing(BUS).map_err(Failure::of("open the bus"))?;
        Ok(Self(bus.subscribe("objects").map_err(Failure::of("subscribe"))?))
    }
}

impl Receives for Receiver {
    fn receive(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        let failed = |error| Failure::of("receive batches")(error);
        let mut batches = self.0.receive_in_place().map_err(failed)?;
        for batch in batches.by_ref() {
            // SAFETY: the publisher waits without a limit for this subscriber, which gates, and all publishers of this bus
            // belong to this program: no process writes the batches until the next call.
            seen.check(unsafe { batch.payload().as_slice() });
        }
        batches.validate().map_err(failed)
    }
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).prefault(true)
}
