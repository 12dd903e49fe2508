//! What a channel must offer to be measured: as little as possible, and each adapter does it as an
//! expert of that channel would.
//!
//! Workloads are generic over these traits and compiled for each transport: at 250 million messages a
//! second a virtual call would show.

use crate::Failure;
use crate::run_directory::RunDirectory;
use serde::{Deserialize, Serialize};
use toroni::RacyBytesMut;

/// One kind of channel.
pub trait Transport {
    /// In lower case: `toroni`, `aeron`, `tcp`.
    const NAME: &'static str;
    /// What lives in a process of its own around the run: a bus, a media driver, a router.
    type Host;
    /// The sending end.
    type Sender: Sender;
    /// The receiving end.
    type Receiver: Receiver;

    /// Its version, what it promises, and the settings that matter.
    fn about(setup: &Setup) -> About;

    /// Makes what the ends meet in.
    ///
    /// # Errors
    /// If it cannot.
    fn host(directory: &RunDirectory, setup: &Setup) -> Result<Self::Host, Failure>;

    /// Opens sending end `index`; connected, mapped and prefaulted when it returns. All ends are
    /// opened at the same time: whoever needs another one waits for it.
    ///
    /// # Errors
    /// If it cannot.
    fn sender(directory: &RunDirectory, setup: &Setup, index: u16)
    -> Result<Self::Sender, Failure>;

    /// Opens receiving end `index`; when it returns, what is sent from then on arrives.
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
    /// Sends one message; returns when it is accepted. Waits for room by itself and drops nothing, if
    /// the transport is lossless.
    ///
    /// # Errors
    /// If it cannot be sent.
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure>;

    /// Sends several messages in this order, by the transport's own call for that where it has one.
    ///
    /// # Errors
    /// As [`Self::send`]; some may have been sent then.
    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        payloads.iter().try_for_each(|payload| self.send(payload.as_ref()))
    }

    /// Sends a message that `fill` writes where the transport keeps it, if it can lend that.
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

    /// Hands over what is still in a buffer of this process.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// What it counted so far.
    ///
    /// # Errors
    /// If the transport cannot tell.
    fn counts(&self) -> Result<SenderCounts, Failure> {
        Ok(SenderCounts::default())
    }
}

/// The receiving end of a transport.
pub trait Receiver {
    /// Passes on what is there, in order, without waiting; bounded by what the transport bounds.
    /// Returns the number of messages.
    ///
    /// # Errors
    /// If messages were lost, or the transport fails.
    fn poll(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure>;

    /// As [`Self::poll`], and waits for at least one message, as [`Setup::wait`] says.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn wait(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure>;

    /// What it counted so far.
    ///
    /// # Errors
    /// If the transport cannot tell.
    fn counts(&self) -> Result<ReceiverCounts, Failure> {
        Ok(ReceiverCounts::default())
    }
}

/// Room for a message that a transport lends.
pub trait Slot {
    /// Writes `bytes` from `offset` on. Panics if they do not fit, as with a slice.
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

/// What a sender counted; `None` where the transport does not know such a thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderCounts {
    /// Notifications: how often it woke receivers.
    pub notifications: Option<u64>,
    /// How often it waited for a slow receiver, and how long in all.
    pub waits: Option<u64>,
    /// In nanoseconds.
    pub waited_ns: Option<u64>,
    /// How long its notifications took in all, in nanoseconds, if it takes the time.
    pub notifying_ns: Option<u64>,
}

/// What a receiver counted; `None` where the transport does not know such a thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverCounts {
    /// How often it was overtaken and lost messages.
    pub lapses: Option<u64>,
}

/// Sizes and manners of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Sending processes.
    pub senders: u16,
    /// Receiving processes.
    pub receivers: u16,
    /// Bytes of the largest message.
    pub message_bytes: usize,
    /// Bytes of the ring, term or queue; adapters round up to what their transport allows.
    pub capacity_bytes: u64,
    /// How receivers wait, and senders where they wait.
    pub wait: Wait,
    /// Whether messages are written and read where they lie, for transports that can.
    pub in_place: bool,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Polling: a short spin, then `sched_yield` between two looks. Never sleeps.
    Busy,
    /// The transport's own blocking call, with its default manner.
    Blocking,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version.
    pub version: String,
    /// The settings that matter, as a sentence.
    pub settings: String,
    /// What it promises.
    pub guarantees: Guarantees,
}

/// What a transport promises in this setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// Nothing is dropped because a receiver is slow: the sender waits.
    pub lossless: bool,
    /// All receivers see the messages of all senders in one order.
    pub total_order: bool,
    /// Messages can be written and read where they lie.
    pub in_place: bool,
}
