//! Receiving in async code, on a tokio runtime.

use crate::bus::subscribe::descriptor::Descriptor;
use crate::bus::subscribe::receive::Body;
use crate::bus::{Message, Subscriber};
use crate::error::ReceiveError;
use std::io;
use std::os::fd::OwnedFd;
use tokio::net::{UdpSocket, UnixDatagram};

/// The subscriber's descriptor, registered with the runtime, which has a duplicate of its own: it may
/// close that when it likes.
pub(in crate::bus) enum Readiness {
    Mailbox(UnixDatagram),
    Group(UdpSocket),
}

impl Subscriber {
    /// As [`Subscriber::receive`], without blocking the thread.
    ///
    /// ```
    /// # async fn serve(mut subscriber: toroni::Subscriber) -> Result<(), toroni::ReceiveError> {
    /// let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
    /// loop {
    ///     tokio::select! {
    ///         message = subscriber.receive_async() => println!("{}", message?.text()),
    ///         _ = second.tick() => println!("tick"),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// Cancel-safe: a message is taken only by
    /// a call that returns it. Where messages come without end, it still lets other tasks run now and
    /// then.
    ///
    /// It wakes as a descriptor does ([`Subscriber::fd`]): if a publisher is killed between publishing
    /// and waking, its last message arrives with the next one; and while nothing is published, it does
    /// not notice that the bus was removed. Where that matters, call it within a time-out, again and
    /// again: each call looks at the bus.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled, at the first call.
    pub async fn receive_async(&mut self) -> Result<Message<'_>, ReceiveError> {
        let failed = |source| ReceiveError::Os { action: "wait for a message", source };
        if self.readiness.is_none() {
            let descriptor = self.fd().map_err(|error| failed(io::Error::other(error)))?;
            let descriptor = descriptor.try_clone_to_owned().map_err(failed)?;
            self.readiness = Some(self.register(descriptor).map_err(failed)?);
        }
        loop {
            // A subscriber with much to read is always ready, and would keep its thread for itself.
            tokio::task::coop::consume_budget().await;
            if self.try_next(Body::Whole)? {
                return Ok(self.last());
            }
            if let Some(readiness) = &self.readiness {
                readiness.wait().await.map_err(failed)?;
            }
        }
    }

    fn register(&self, descriptor: OwnedFd) -> io::Result<Readiness> {
        match &self.descriptor {
            Some(Descriptor::Group(_)) => {
                UdpSocket::from_std(descriptor.into()).map(Readiness::Group)
            }
            _ => UnixDatagram::from_std(descriptor.into()).map(Readiness::Mailbox),
        }
    }
}

/// More than a queue holds.
const MOST_DATAGRAMS: u32 = 1000;

impl Readiness {
    /// Waits for a datagram and takes it: an empty queue is how the runtime learns that the descriptor
    /// is no longer readable. What a datagram announces is found by the look that follows.
    async fn wait(&self) -> io::Result<()> {
        let mut byte = [0];
        // At most so many: a flood must not keep the task here. What is left wakes it once more.
        match self {
            Self::Mailbox(socket) => {
                socket.readable().await?;
                let _ = (0..MOST_DATAGRAMS).find(|_| socket.try_recv(&mut byte).is_err());
            }
            Self::Group(socket) => {
                socket.readable().await?;
                let _ = (0..MOST_DATAGRAMS).find(|_| socket.try_recv(&mut byte).is_err());
            }
        }
        Ok(())
    }
}
