//! Words in memory that processes or threads wait at: futexes.

use super::Pending;
use crate::buffer::BufResult;
use crate::error::Refused;
use crate::operation::{Completion, Done, Memory, OperationKind, Request};
use crate::proactor::{OperationId, Proactor, identified};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// An object that contains a word to wait at ([`Proactor::wait_while`]).
///
/// # Safety
///
/// [`Word::address`] returns the address of a readable word, the same for each call. The word neither moves nor
/// becomes invalid until the object is dropped, wherever the object itself moves.
pub unsafe trait Word: Send + 'static {
    /// Returns the address of the word.
    fn address(&self) -> *const AtomicU32;
}

// SAFETY: the word is on the heap, and lives as long as one of its owners.
unsafe impl Word for Arc<AtomicU32> {
    fn address(&self) -> *const AtomicU32 {
        Self::as_ptr(self)
    }
}

struct Waiting<W, F> {
    word: W,
    handler: F,
}

impl<W, F> Completion for Waiting<W, F>
where
    W: Word,
    F: FnOnce(BufResult<(), W>) + Send + 'static,
{
    fn complete(self: Box<Self>, done: Done) {
        let Self { word, handler } = *self;
        handler(BufResult(done.result().map(|_| ()), word));
    }
}

impl Proactor {
    /// Waits at a word while it has this value, until a thread of this or, in shared memory, of another process
    /// wakes it (`FUTEX_WAKE`, not private). If the word has another value when the wait begins, the operation
    /// is over at once. Like every wait at a futex, it may end without a reason.
    ///
    /// The object that contains the word belongs to the operation, and comes back with the result.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the word and the handler come back. Only providers with a ring
    /// support it, on Linux 6.7 and newer: ask [`Proactor::supports`].
    pub fn wait_while<W, F>(
        &self,
        word: W,
        value: u32,
        handler: F,
    ) -> Result<OperationId, Refused<W, F>>
    where
        W: Word,
        F: FnOnce(BufResult<(), W>) + Send + 'static,
    {
        // SAFETY: the word goes into the completion, which the operation owns until the operation is over; it
        // stays where it is until then (`Word`).
        let memory = unsafe { Memory::to_watch(word.address()) };
        let completion = Box::new(Waiting { word, handler });
        let started = self.inner().start(Request::word(memory, value), completion);
        identified(started, |Waiting { word, handler }| (word, handler))
    }

    /// [`Proactor::wait_while`] as a future.
    pub fn wait_while_async<W: Word>(&self, word: W, value: u32) -> Pending<BufResult<(), W>> {
        Pending::start(
            self.inner(),
            |handler| self.wait_while(word, value, handler),
            |refused| refused.into_result(OperationKind::WaitWord),
        )
    }
}
