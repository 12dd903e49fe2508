//! What carries the objects, as the experiment sees it: one end that sends batches, several that
//! receive them all.

use super::objects::{OBJECT, Seen};
use super::{over_queue, over_tcp, over_toroni};
use crate::Failure;
use crate::run_directory::RunDirectory;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// One message of the bus for each batch.
    Toroni,
    /// A send for each batch and receiver.
    Tcp,
    /// The experiment's queue.
    Queue {
        /// With a mutex that spins before it sleeps.
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
    /// How many objects each receiver gets.
    pub(crate) objects: u64,
    pub(crate) receivers: usize,
    /// Bytes of a batch of objects.
    pub(crate) batch_bytes: usize,
    /// Packets of the queue, all and in a batch.
    pub(crate) packets: usize,
    pub(crate) packets_per_batch: usize,
    /// Bytes of Toroni's ring.
    pub(crate) capacity_bytes: u64,
}

impl Plan {
    /// Objects of a batch that has no headers.
    pub(super) fn objects_per_batch(&self) -> u64 {
        (self.batch_bytes / OBJECT) as u64
    }

    /// Bytes of a packet of the queue.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.batch_bytes / self.packets_per_batch
    }
}

/// The sending end.
pub(super) trait Sends {
    /// Sends the next batch: objects from number `first` on, at most `left`. Returns how many.
    fn send(&mut self, first: u64, left: u64) -> Result<u64, Failure>;
}

/// A receiving end.
pub(super) trait Receives {
    /// Looks at every object of what comes next, and waits for it.
    fn receive(&mut self, seen: &mut Seen) -> Result<(), Failure>;
}

impl Carrier {
    /// What the ends meet in, if that is not made by one of them.
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

    /// The sending end; waits for all receivers, where it has to know them.
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

    /// The receiving end of this number.
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
