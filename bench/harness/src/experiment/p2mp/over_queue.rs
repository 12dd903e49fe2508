//! Objects in packets of the queue. A packet begins with the number of its objects.

use super::carrier::{Plan, Receives, Sends};
use super::objects::{OBJECT, Seen, make};
use super::queue::{self, Shape};
use crate::Failure;
use crate::run_directory::RunDirectory;

/// Bytes before the objects of a packet. With 16, a packet of 50,000 bytes holds 999 objects, as in the
/// experiment.
pub(super) const HEADER: usize = 16;

pub(super) struct Sender {
    queue: queue::Sender,
    packets_per_batch: usize,
    objects_per_packet: u64,
}

impl Sender {
    pub(super) fn open(
        directory: &RunDirectory,
        plan: &Plan,
        adaptive: bool,
    ) -> Result<Self, Failure> {
        let shape = shape(plan, adaptive);
        let queue = queue::Host::create(&directory.path, shape)
            .and_then(queue::Host::accept)
            .map_err(Failure::of("make the queue"))?;
        let objects_per_packet = (shape.packet_bytes - HEADER) / OBJECT;
        Ok(Self {
            queue,
            packets_per_batch: plan.packets_per_batch,
            objects_per_packet: objects_per_packet as u64,
        })
    }
}

impl Sends for Sender {
    fn send(&mut self, first: u64, left: u64) -> Result<u64, Failure> {
        let packets = usize::try_from(left.div_ceil(self.objects_per_packet)).unwrap_or(usize::MAX);
        let mut made = 0;
        let fill = |packet: &mut [u8]| {
            let objects = self.objects_per_packet.min(left - made);
            let (header, body) = packet.split_at_mut(HEADER);
            header[..8].copy_from_slice(&objects.to_le_bytes());
            // At most what a packet holds.
            let length = usize::try_from(objects).unwrap_or(0) * OBJECT;
            made += make(&mut body[..length], first + made);
        };
        self.queue
            .send(packets.min(self.packets_per_batch), fill)
            .map_err(Failure::of("send a batch"))?;
        Ok(made)
    }
}

pub(super) struct Receiver {
    queue: queue::Receiver,
    packets_per_batch: usize,
}

impl Receiver {
    pub(super) fn open(
        directory: &RunDirectory,
        plan: &Plan,
        adaptive: bool,
        index: usize,
    ) -> Result<Self, Failure> {
        let queue = queue::Receiver::join(&directory.path, shape(plan, adaptive), index)
            .map_err(Failure::of("join the queue"))?;
        Ok(Self { queue, packets_per_batch: plan.packets_per_batch })
    }
}

impl Receives for Receiver {
    fn receive(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        let mut broken = false;
        let each = |packet: &[u8]| match objects_in(packet) {
            Some(objects) => seen.check(objects),
            None => broken = true,
        };
        self.queue.receive(self.packets_per_batch, each).map_err(Failure::of("receive a batch"))?;
        if broken { Err(Failure::new("a packet has no header")) } else { Ok(()) }
    }
}

fn shape(plan: &Plan, adaptive: bool) -> Shape {
    Shape {
        packets: plan.packets,
        packet_bytes: plan.packet_bytes(),
        receivers: plan.receivers,
        adaptive,
    }
}

/// Returns the objects of a packet, if its header makes sense.
fn objects_in(packet: &[u8]) -> Option<&[u8]> {
    let (count, rest) = packet.split_first_chunk::<8>()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    rest.get(HEADER - 8..)?.get(..count.checked_mul(OBJECT)?)
}
