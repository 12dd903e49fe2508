//! The carriers of the objects: each has one end that sends batches, and several ends that receive them all.

use super::objects::{OBJECT, Seen};
use super::{over_queue, over_tcp, over_toroni};
use crate::Failure;
use crate::run_directory::RunDirectory;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What carries the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// Toroni: a batch is a message.
    Toroni,
    /// TCP: one send for each batch and receiver.
    Tcp,
    /// The queue of the published experiment.
    Queue {
        /// Whether its mutex spins before it sleeps.
        adaptive: bool,
    },
}

impl fmt::Display for Carrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Toroni => "Toroni",
            Self::Tcp => "TCP, send and recv",
            Self::Queue { adaptive: false } => "queue, standard mutex",
            Self::Queue { adaptive: true } => "queue, adaptive mutex",
        })
    }
}

/// The sizes of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Number of objects that each receiver gets.
    pub(crate) objects: u64,
    pub(crate) receivers: usize,
    /// Bytes of a batch of objects.
    pub(crate) batch_bytes: usize,
    /// Packets of the queue: all, and those of a batch.
    pub(crate) packets: usize,
    pub(crate) packets_per_batch: usize,
    /// Bytes of Toroni's ring.
    pub(crate) capacity_bytes: u64,
}

impl Plan {
    /// Returns the number of objects in a batch without headers.
    pub(super) fn objects_per_batch(&self) -> u64 {
        (self.batch_bytes / OBJECT) as u64
    }

    /// Returns the bytes of a packet of the queue.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.batch_bytes / self.packets_per_batch
    }
}

/// The sending end.
pub(super) trait Sends {
    /// Sends the next batch: at most `left` objects, from number `first` on. Returns how many.
    fn send(&mut self, first: u64, left: u64) -> Result<u64, Failure>;
}

/// A receiving end.
pub(super) trait Receives {
    /// Waits for the next objects, and checks each of them.
    fn receive(&mut self, seen: &mut Seen) -> Result<(), Failure>;
}

impl Carrier {
    /// Creates what the ends need, unless one of them creates it.
    pub(super) fn host(
        self,
        directory: &RunDirectory,
        plan: &Plan,
    ) -> Result<Option<toroni::Bus>, Failure> {
        match self {
            Self::Toroni => over_toroni::host(directory, plan).map(Some),
            Self::Tcp | Self::Queue { .. } => Ok(None),
        }
    }

    /// Opens the sending end. It waits for all receivers if it has to know them.
    pub(super) fn sender(
        self,
        directory: &RunDirectory,
        plan: &Plan,
    ) -> Result<Box<dyn Sends>, Failure> {
        Ok(match self {
            Self::Toroni => Box::new(over_toroni::Sender::open(directory, plan)?),
            Self::Tcp => Box::new(over_tcp::Sender::open(directory, plan)?),
            Self::Queue { adaptive } => {
                Box::new(over_queue::Sender::open(directory, plan, adaptive)?)
            }
        })
    }

    /// Opens the receiving end with this number.
    pub(super) fn receiver(
        self,
        directory: &RunDirectory,
        plan: &Plan,
        index: usize,
    ) -> Result<Box<dyn Receives>, Failure> {
        Ok(match self {
            Self::Toroni => Box::new(over_toroni::Receiver::open(directory)?),
            Self::Tcp => Box::new(over_tcp::Receiver::open(directory, plan)?),
            Self::Queue { adaptive } => {
                Box::new(over_queue::Receiver::open(directory, plan, adaptive, index)?)
            }
        })
    }
}
