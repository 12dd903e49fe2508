//! Descriptors that another library reads, and that the proactor only waits for.

use super::{Handle, Pending, handle};
use crate::error::{OperationError, Refused, SetupError};
use crate::operation::{Completion, Done, OperationKind};
use crate::proactor::{OperationId, Proactor, identified};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A descriptor that another library reads, and that the proactor only waits for. Clones share it.
///
/// It is usually a duplicate ([`std::os::fd::BorrowedFd::try_clone_to_owned`]). Its flags stay unchanged.
#[derive(Clone)]
pub struct Watch(Arc<Handle>);

handle!(Watch);

impl Watch {
    /// Takes over a descriptor of any kind that can be polled.
    ///
    /// # Errors
    ///
    /// If `fstat` fails for the descriptor.
    pub fn new(proactor: &Proactor, descriptor: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        Handle::shared(proactor.inner(), descriptor.into()).map(Self)
    }

    /// Waits until a read would not block: data, the end or an error has arrived. Takes nothing from the
    /// descriptor. If that is so already, the operation is over at once.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the handler comes back.
    pub fn readable<F>(&self, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<(), OperationError>) + Send + 'static,
    {
        let request = self.0.request(OperationKind::WaitReadable);
        let completion = Box::new(Watching(handler));
        let started = self.0.inner().start(request, completion);
        identified(started, |Watching(handler)| ((), handler))
    }

    /// [`Watch::readable`] as a future.
    pub fn readable_async(&self) -> Pending<Result<(), OperationError>> {
        Pending::start(
            self.0.inner(),
            |handler| self.readable(handler),
            |refused| Err(refused.error.of(OperationKind::WaitReadable)),
        )
    }
}

struct Watching<F>(F);

impl<F: FnOnce(Result<(), OperationError>) + Send + 'static> Completion for Watching<F> {
    fn complete(self: Box<Self>, done: Done) {
        (self.0)(done.result().map(|_| ()));
    }
}
