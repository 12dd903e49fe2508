//! Adapters that need no foreign library.

mod seqpacket;
mod streams;
mod toroni;
mod toroni_batch;
mod toroni_exclusive;
mod toroni_in_place;
mod toroni_values;

pub use seqpacket::{PacketReceiver, PacketSender, UnixSeqpacket};
pub use streams::{NamedPipes, StreamReceiver, StreamSender, TcpStreams, UnixStreams};
pub use toroni::{Toroni, ToroniReceiver, ToroniSender};
pub use toroni_batch::{ToroniBatch, ToroniBatchSender};
pub use toroni_exclusive::{
    SharedSenders, ToroniExclusive, ToroniExclusiveInPlace, ToroniExclusiveSender,
    WithExclusiveSender,
};
pub use toroni_in_place::{ToroniInPlace, ToroniInPlaceReceiver};
pub use toroni_values::{RingReader, ToroniPlain, ToroniReader, ToroniWriter};

use crate::Failure;
use crate::child::Child;
use crate::registry;
use crate::transport::Transport;
use crate::values;

/// The names of these transports.
pub const NAMES: [&str; 9] = [
    Toroni::NAME,
    ToroniBatch::NAME,
    ToroniInPlace::NAME,
    ToroniExclusive::NAME,
    ToroniExclusiveInPlace::NAME,
    UnixSeqpacket::NAME,
    UnixStreams::NAME,
    TcpStreams::NAME,
    NamedPipes::NAME,
];

/// Does the work of a child over the transport that its job names, if it is one of these.
///
/// # Errors
/// If there is no such transport, or the work fails.
pub fn perform(child: &mut Child) -> Result<(), Failure> {
    match child.job().transport.as_str() {
        Toroni::NAME => registry::perform::<Toroni>(child),
        // Toroni again, for work with values.
        <ToroniPlain as values::Values>::NAME => registry::perform::<Toroni>(child),
        ToroniBatch::NAME => registry::perform::<ToroniBatch>(child),
        ToroniInPlace::NAME => registry::perform::<ToroniInPlace>(child),
        ToroniExclusive::NAME => registry::perform::<ToroniExclusive>(child),
        ToroniExclusiveInPlace::NAME => registry::perform::<ToroniExclusiveInPlace>(child),
        UnixSeqpacket::NAME => registry::perform::<UnixSeqpacket>(child),
        UnixStreams::NAME => registry::perform::<UnixStreams>(child),
        TcpStreams::NAME => registry::perform::<TcpStreams>(child),
        NamedPipes::NAME => registry::perform::<NamedPipes>(child),
        unknown => Err(Failure::new(format!(
            "there is no transport {unknown:?}: use one of {}",
            NAMES.join(", ")
        ))),
    }
}
