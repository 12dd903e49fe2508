//! Adapters that need no foreign library.

mod seqpacket;
mod streams;
mod toroni;
mod toroni_batch;
mod toroni_in_place;

pub use seqpacket::{PacketReceiver, PacketSender, UnixSeqpacket};
pub use streams::{NamedPipes, StreamReceiver, StreamSender, TcpStreams, UnixStreams};
pub use toroni::{Toroni, ToroniReceiver, ToroniSender};
pub use toroni_batch::{ToroniBatch, ToroniBatchSender};
pub use toroni_in_place::{ToroniInPlace, ToroniInPlaceReceiver};

use crate::Failure;
use crate::child::Child;
use crate::transport::Transport;
use crate::workload;

/// The names of these transports.
pub const NAMES: [&str; 7] = [
    Toroni::NAME,
    ToroniBatch::NAME,
    ToroniInPlace::NAME,
    UnixSeqpacket::NAME,
    UnixStreams::NAME,
    TcpStreams::NAME,
    NamedPipes::NAME,
];

/// Does a child's work over the one of these transports that its job names.
///
/// # Errors
/// If there is no such transport, or the work fails.
pub fn perform(child: &mut Child) -> Result<(), Failure> {
    match child.job().transport.as_str() {
        Toroni::NAME => workload::perform::<Toroni>(child),
        ToroniBatch::NAME => workload::perform::<ToroniBatch>(child),
        ToroniInPlace::NAME => workload::perform::<ToroniInPlace>(child),
        UnixSeqpacket::NAME => workload::perform::<UnixSeqpacket>(child),
        UnixStreams::NAME => workload::perform::<UnixStreams>(child),
        TcpStreams::NAME => workload::perform::<TcpStreams>(child),
        NamedPipes::NAME => workload::perform::<NamedPipes>(child),
        unknown => Err(Failure::new(format!(
            "there is no transport {unknown:?}: take one of {}",
            NAMES.join(", ")
        ))),
    }
}
