//! The typed handles: streams, listeners, datagram sockets and files. Each operation takes its buffer and
//! its handler, or gives a future; handles are shared by cloning, and the last one that is dropped cancels
//! what is in progress.

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
use rustix::io::ioctl_fionbio;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A descriptor that belongs to a proactor.
pub(crate) struct Handle {
    inner: Arc<Inner>,
    descriptor: Arc<Descriptor>,
    /// Somebody else has it, too, and goes on using it.
    is_shared: bool,
}

impl Handle {
    /// Takes a descriptor over. Sockets become non-blocking: accepting and connecting cannot be told
    /// otherwise not to wait.
    pub(crate) fn new(inner: &Arc<Inner>, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        let descriptor = Descriptor::new(descriptor).map_err(SetupError::system("look at it"))?;
        if descriptor.kind() == DescriptorKind::Socket {
            ioctl_fionbio(&descriptor, true).map_err(SetupError::system("make it non-blocking"))?;
        }
        Ok(Self::with(inner, descriptor, false))
    }

    /// Takes over a duplicate of what somebody else uses: it stays as it is.
    pub(crate) fn shared(inner: &Arc<Inner>, descriptor: OwnedFd) -> Result<Arc<Self>, SetupError> {
        let descriptor = Descriptor::new(descriptor).map_err(SetupError::system("look at it"))?;
        Ok(Self::with(inner, descriptor, true))
    }

    fn with(inner: &Arc<Inner>, descriptor: Descriptor, is_shared: bool) -> Arc<Self> {
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
    /// Nobody is left who could want a result: what is in progress ends, and then the descriptor is closed.
    fn drop(&mut self) {
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

/// What all handles have in common.
macro_rules! handle {
    ($type:ident) => {
        impl $type {
            /// Cancels all operations of this descriptor. Each handler is called, with `ECANCELED` or with
            /// the result that was faster. How many were asked to end.
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
