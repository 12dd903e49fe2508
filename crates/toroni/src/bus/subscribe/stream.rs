//! The descriptor of a subscriber on a tokio runtime.

use super::descriptor::Descriptor;
use std::io;
use std::os::fd::OwnedFd;
use tokio::net::{UdpSocket, UnixDatagram};

/// A duplicate of the subscriber's descriptor that is registered with the runtime, which may close it at
/// any time.
pub(super) enum Readiness {
    Datagram(UnixDatagram),
    Multicast(UdpSocket),
}

/// More than a queue holds.
const MOST_DATAGRAMS: u32 = 1000;

impl Readiness {
    /// Registers a duplicate of a subscriber's descriptor.
    pub(super) fn register(of: &Descriptor, duplicate: OwnedFd) -> io::Result<Self> {
        match of {
            Descriptor::Multicast(_) => UdpSocket::from_std(duplicate.into()).map(Self::Multicast),
            Descriptor::Datagram(_) => UnixDatagram::from_std(duplicate.into()).map(Self::Datagram),
        }
    }

    /// Waits for a datagram and empties the queue, by which the runtime learns that the descriptor is no
    /// longer readable. The check that follows finds the messages.
    pub(super) async fn wait(&self) -> io::Result<()> {
        let mut byte = [0];
        // At most that many: a flood must not keep the task here. What is left wakes it once more.
        match self {
            Self::Datagram(socket) => {
                socket.readable().await?;
                let _ = (0..MOST_DATAGRAMS).find(|_| socket.try_recv(&mut byte).is_err());
            }
            Self::Multicast(socket) => {
                socket.readable().await?;
                let _ = (0..MOST_DATAGRAMS).find(|_| socket.try_recv(&mut byte).is_err());
            }
        }
        Ok(())
    }
}
