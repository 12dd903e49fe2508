//! Starts of operations that move bytes. The buffer goes into the completion first, and the kernel learns the
//! address that it has there.

use super::Handle;
use crate::buffer::{BufResult, ReadBuffer, WriteBuffer};
use crate::error::{Refused, StartError};
use crate::operation::{Completion, Done, Memory, OperationKind, Request};
use crate::proactor::{OperationId, identified};

/// Turns an outcome into the handler's argument.
type Report<T> = fn(&mut Done, usize) -> T;

struct Filling<B, T, F> {
    buffer: B,
    handler: F,
    report: Report<T>,
}

struct Sending<B, T, F> {
    buffer: B,
    handler: F,
    report: fn(usize) -> T,
}

/// Starts an operation that fills a buffer. Refuses a buffer without capacity, except for datagrams: 0 bytes
/// would look like the end.
pub(super) fn fill<B, T, F>(
    handle: &Handle,
    mut request: Request,
    buffer: B,
    report: Report<T>,
    handler: F,
) -> Result<OperationId, Refused<B, F>>
where
    B: ReadBuffer,
    T: 'static,
    F: FnOnce(BufResult<T, B>) + Send + 'static,
{
    let mut completion = Box::new(Filling { buffer, handler, report });
    let (pointer, length) = completion.buffer.target();
    if length == 0 && request.kind != OperationKind::ReadDatagram {
        let Filling { buffer, handler, .. } = *completion;
        let error = StartError::NoRoom { operation: request.kind };
        return Err(Refused { error, buffer, handler });
    }
    // SAFETY: the buffer is in the completion, which belongs to the operation until it is over; its
    // bytes do not move with it (`ReadBuffer`), and nothing accesses it there.
    request.memory = unsafe { Memory::to_fill(pointer, length) };
    let started = handle.inner().start(request, completion);
    identified(started, |Filling::<B, T, F> { buffer, handler, .. }| (buffer, handler))
}

/// Starts an operation that sends a buffer.
pub(super) fn send<B, T, F>(
    handle: &Handle,
    mut request: Request,
    buffer: B,
    report: fn(usize) -> T,
    handler: F,
) -> Result<OperationId, Refused<B, F>>
where
    B: WriteBuffer,
    T: 'static,
    F: FnOnce(BufResult<T, B>) + Send + 'static,
{
    let completion = Box::new(Sending { buffer, handler, report });
    let (pointer, length) = completion.buffer.source();
    // SAFETY: as above, by `WriteBuffer`.
    request.memory = unsafe { Memory::to_send(pointer, length) };
    let started = handle.inner().start(request, completion);
    identified(started, |Sending::<B, T, F> { buffer, handler, .. }| (buffer, handler))
}

impl<B, T, F> Completion for Filling<B, T, F>
where
    B: ReadBuffer,
    T: 'static,
    F: FnOnce(BufResult<T, B>) + Send + 'static,
{
    fn complete(self: Box<Self>, mut done: Done) {
        let Self { mut buffer, handler, report } = *self;
        let result = done.result().map(|bytes| {
            // SAFETY: the operation has written that many bytes to the target, which was at least that long.
            unsafe { buffer.filled(bytes) };
            report(&mut done, bytes)
        });
        handler(BufResult(result, buffer));
    }
}

impl<B, T, F> Completion for Sending<B, T, F>
where
    B: WriteBuffer,
    T: 'static,
    F: FnOnce(BufResult<T, B>) + Send + 'static,
{
    fn complete(self: Box<Self>, done: Done) {
        let Self { buffer, handler, report } = *self;
        handler(BufResult(done.result().map(report), buffer));
    }
}
