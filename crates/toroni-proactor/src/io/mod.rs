//! The typed handles: streams, listeners, datagram sockets and files.
//!
//! Each operation takes its buffer and its handler, or returns a future. Clones share one handle; dropping the
//! last one cancels the operations in progress.

mod connecting;
mod datagram;
mod file;
mod listener;
mod pending;
mod stream;
mod transfer;
mod watch;
mod word;

pub use datagram::{Datagram, Datagrams};
pub use file::File;
pub use listener::{Accepted, Listener};
pub use pending::Pending;
pub use stream::Stream;
pub use watch::Watch;
pub use word::Word;

use crate::error::SetupError;
use crate::inner::Inner;
use crate::operation::{Descriptor, DescriptorKind, OperationKind, Request};
use crate::proactor::Proactor;
use crate::shards::Shard;
use rustix::io::ioctl_fionbio;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A descriptor that belongs to a proactor.
pub(crate) struct Handle {
    inner: Arc<Inner>,
    descriptor: Arc<Descriptor>,
    /// Another library has the descriptor, too, and continues to use it.
    is_shared: bool,
}

impl Handle {
    /// Takes over a descriptor. Sockets become non-blocking, because `accept` and `connect` have no other way
    /// not to wait.
    pub(crate) fn new(inner: &Arc<Inner>, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        let (home, _until_it_is_counted) = inner.home();
        Self::at_home_in(home, inner, descriptor)
    }

    /// The same for a socket that a handler has accepted.
    pub(crate) fn accepted(inner: &Arc<Inner>, socket: OwnedFd) -> Result<Arc<Self>, SetupError> {
        let (home, _until_it_is_counted) = inner.shards.home_of_accepted();
        Self::at_home_in(home, inner, socket)
    }

    /// The same, in the shard of this one.
    pub(crate) fn beside(&self, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        Self::at_home_in(self.descriptor.home(), &self.inner, descriptor)
    }

    pub(crate) fn at_home_in(
        home: Shard,
        inner: &Arc<Inner>,
        descriptor: OwnedFd,
    ) -> Result<Arc<Self>, SetupError> {
        let descriptor = Descriptor::new(descriptor, home)
            .map_err(SetupError::system("find out what kind of file the descriptor is"))?;
        if descriptor.kind() == DescriptorKind::Socket {
            ioctl_fionbio(&descriptor, true)
                .map_err(SetupError::system("make the socket non-blocking"))?;
        }
        Ok(Self::with(inner, descriptor, false))
    }

    /// Takes over a duplicate of a descriptor that another library uses; its flags stay unchanged.
    pub(crate) fn shared(inner: &Arc<Inner>, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        let descriptor = Descriptor::new(descriptor, inner.shards.here())
            .map_err(SetupError::system("find out what kind of file the descriptor is"))?;
        Ok(Self::with(inner, descriptor, true))
    }

    fn with(inner: &Arc<Inner>, descriptor: Descriptor, is_shared: bool) -> Arc<Self> {
        if !is_shared {
            inner.shards.add_handle(descriptor.home());
        }
        Arc::new(Self { inner: Arc::clone(inner), descriptor: Arc::new(descriptor), is_shared })
    }

    pub(crate) fn of(proactor: &Proactor, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        Self::new(proactor.inner(), descriptor)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn request(&self, operation: OperationKind) -> Request {
        Request::new(operation, Arc::clone(&self.descriptor))
    }

    pub(crate) fn cancel(&self) -> usize {
        self.inner.cancel_all_of(&self.descriptor)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&*self.descriptor)
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        AsRawFd::as_raw_fd(&*self.descriptor)
    }
}

impl Drop for Handle {
    /// Cancels what is in progress: no handle is left that could want a result. The descriptor is closed
    /// afterwards.
    fn drop(&mut self) {
        if !self.is_shared {
            self.inner.shards.remove_handle(self.descriptor.home());
        }
        if !self.descriptor.is_idle(OperationKind::ReadStream)
            || !self.descriptor.is_idle(OperationKind::WriteStream)
        {
            self.cancel();
        }
        if self.is_shared {
            self.inner.forget(&self.descriptor);
        }
    }
}

/// Implements what all handles have in common.
macro_rules! handle {
    ($type:ident) => {
        impl $type {
            /// Asks all operations of this descriptor to end, and returns their number.
            ///
            /// Each handler is called: with `ECANCELED`, or with the result if the operation was faster.
            pub fn cancel(&self) -> usize {
                self.0.cancel()
            }
        }

        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.as_raw_fd()
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_tuple(stringify!($type)).field(&self.0.as_raw_fd()).finish()
            }
        }
    };
}
use handle;
