//! What a channel must offer to be measured: as little as possible. Each adapter does it as an expert in that channel
//! would.
//!
//! Workloads are generic over these traits and compiled for each transport: at 250 million messages a second the cost of
//! a virtual call would show.

use crate::Failure;
use crate::run_directory::RunDirectory;
use serde::{Deserialize, Serialize};
use toroni::RacyBytesMut;

/// A kind of channel.
pub trait Transport {
    /// Its name, in lower case: `toroni`, `aeron`, `tcp`.
    const NAME: &'static str;
    /// What a process of its own keeps during the run: a bus, a media driver, a router.
    type Host;
    /// The sending end.
    type Sender: Sender;
    /// The receiving end.
    type Receiver: Receiver;

    /// Returns its version, its guarantees, and the settings that matter.
    fn about(setup: &Setup) -> About;

    /// Creates what the ends need.
    ///
    /// # Errors
    /// If it cannot.
    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Self::Host, Failure>;

    /// Opens sending end `index`, which is connected, mapped and prefaulted when this returns. All ends are opened at the
    /// same time; an end that needs another one waits for it.
    ///
    /// # Errors
    /// If it cannot.
    fn sender(directory: &RunDirectory, setup: &Setup, index: u16)
    -> Result<Self::Sender, Failure>;

    /// Opens receiving end `index`. Messages that are sent after this has returned arrive.
    ///
    /// # Errors
    /// If it cannot.
    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Self::Receiver, Failure>;
}

/// The sending end of a transport.
pub trait Sender {
    /// Sends one message, and returns when the transport has accepted it. A lossless transport waits for space here and
    /// drops nothing.
    ///
    /// # Errors
    /// If it cannot be sent.
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure>;

    /// Sends several messages in this order, with the transport's own call for that if it has one.
    ///
    /// # Errors
    /// As [`Self::send`]; some of them may have been sent.
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        payloads.iter().try_for_each(|payload| self.send(payload.as_ref()))
    }

    /// Sends a message that `fill` writes where the transport keeps it, if the transport can lend that memory.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        let mut message = vec![0; length];
        fill(&mut &mut message[..]);
        self.send(&message)
    }

    /// Hands over messages that are still in a buffer of this process.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns its counters.
    ///
    /// # Errors
    /// If the transport cannot read them.
    fn counts(&self) -> Result<SenderCounts, Failure> {
        Ok(SenderCounts::default())
    }
}

/// The receiving end of a transport.
pub trait Receiver {
    /// Passes on the messages that have come, in order and without waiting. A transport may limit their number. Returns how
    /// many there were.
    ///
    /// # Errors
    /// If messages were lost, or the transport fails.
    fn poll(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure>;

    /// Waits for at least one message, as [`Setup::wait`] says, and does the same as [`Self::poll`].
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn wait(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure>;

    /// Returns its counters.
    ///
    /// # Errors
    /// If the transport cannot read them.
    fn counts(&self) -> Result<ReceiverCounts, Failure> {
        Ok(ReceiverCounts::default())
    }
}

/// Memory for a message that a transport lends.
pub trait Slot {
    /// Writes `bytes` at `offset`.
    ///
    /// # Panics
    /// If they do not fit.
    fn write(&mut self, offset: usize, bytes: &[u8]);
}

impl Slot for &mut [u8] {
    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl Slot for RacyBytesMut<'_> {
    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        Self::write(self, offset, bytes);
    }
}

/// The counters of a sender; `None` if the transport has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderCounts {
    /// Number of notifications, which wake receivers.
    pub notifications: Option<u64>,
    /// Number of waits for a slow receiver.
    pub waits: Option<u64>,
    /// Time of all these waits.
    pub waited_ns: Option<u64>,
    /// Time of all notifications, if the transport measures it.
    pub notifying_ns: Option<u64>,
}

/// The counters of a receiver; `None` if the transport has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverCounts {
    /// Number of times that it was overtaken and lost messages.
    pub lapses: Option<u64>,
}

/// Numbers of processes and sizes of one run, and how they wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Number of sending processes.
    pub senders: u16,
    /// Number of receiving processes.
    pub receivers: u16,
    /// Bytes of the largest message.
    pub message_bytes: usize,
    /// Bytes of the ring, term or queue. Adapters round up to what their transport allows.
    pub capacity_bytes: u64,
    /// How receivers wait, and senders if they have to.
    pub wait: Wait,
    /// Whether messages are written and read in place, if the transport can.
    pub in_place: bool,
}

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// It polls: it spins briefly, then calls `sched_yield` between two checks. It never sleeps.
    Busy,
    /// It uses the transport's own blocking call, with default settings.
    Blocking,
}

/// How a transport describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version of the transport.
    pub version: String,
    /// The settings that matter, as a sentence.
    pub settings: String,
    /// Guarantees of the transport.
    pub guarantees: Guarantees,
}

/// The guarantees of a transport in a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// No message is dropped because a receiver is slow: the sender waits.
    pub lossless: bool,
    /// All receivers see the messages of all senders in one order.
    pub total_order: bool,
    /// Messages can be written and read in place.
    pub in_place: bool,
}
