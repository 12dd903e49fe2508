//! Words in memory that processes or threads wait at: futexes.

use super::Pending;
use crate::buffer::BufResult;
use crate::error::Refused;
use crate::operation::{Completion, Done, Memory, OperationKind, Request};
use crate::proactor::{OperationId, Proactor, take_back};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// What has a word that can be waited at ([`Proactor::wait_while`]).
///
/// # Safety
///
/// [`Word::address`] names a readable word, the same each time, that neither moves nor goes away until this
/// is dropped, wherever this itself is moved to.
pub unsafe trait Word: Send + 'static {
    /// Where the word is.
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
    /// Waits at a word while it has this value: until somebody wakes there (`FUTEX_WAKE`, not private),
    /// in this process or, where the word lies in shared memory, in another. If it has another value when
    /// the wait begins, that is over at once. Like every wait at a futex, it may end for no reason.
    ///
    /// The operation owns what the word lies in, and gives it back.
    ///
    /// # Errors
    ///
    /// If it cannot be started; only the providers with a ring can, on Linux 6.7 and newer: [`Proactor::supports`] tells. The
    /// word and the handler come back.
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
        started.map(OperationId::new).map_err(|returned| {
            let (error, Waiting { word, handler }) = take_back::<Waiting<W, F>>(returned);
            Refused { error, buffer: word, handler }
        })
    }

    /// As [`Proactor::wait_while`], as a future.
    pub fn wait_while_async<W: Word>(&self, word: W, value: u32) -> Pending<BufResult<(), W>> {
        Pending::start(
            self.inner(),
            |handler| self.wait_while(word, value, handler),
            |refused| refused.into_result(OperationKind::WaitWord),
        )
    }
}
