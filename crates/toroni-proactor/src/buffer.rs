//! Buffers that belong to an operation until it is over, and come back with its result.

use std::ops::Deref;
use std::sync::Arc;

/// The result of an operation with a buffer, and the buffer.
///
/// ```
/// # use toroni_proactor::BufResult;
/// # fn handle(result: BufResult<usize, Vec<u8>>) {
/// let BufResult(result, buffer) = result;
/// match result {
///     Ok(bytes) => println!("{bytes} bytes: {buffer:?}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct BufResult<T, B>(pub Result<T, crate::OperationError>, pub B);

/// A buffer that the kernel may fill.
///
/// Vectors are filled from their beginning up to their capacity, and their length becomes the number of bytes
/// read. Arrays and boxed slices keep their length.
///
/// # Safety
///
/// [`ReadBuffer::target`] returns writable memory that does not move when the buffer moves, stays valid until
/// the buffer is dropped or accessed, and is the same for each call.
pub unsafe trait ReadBuffer: Send + 'static {
    /// Returns where to write, and the maximum number of bytes.
    fn target(&mut self) -> (*mut u8, usize);

    /// Records that the first `bytes` bytes of the target have been written.
    ///
    /// # Safety
    ///
    /// At least `bytes` bytes of the target are initialised.
    unsafe fn filled(&mut self, bytes: usize);
}

/// A buffer that the kernel may send.
///
/// # Safety
///
/// [`WriteBuffer::source`] returns initialised memory that does not move when the buffer moves, and neither
/// changes nor becomes invalid until the buffer is dropped or accessed.
pub unsafe trait WriteBuffer: Send + 'static {
    /// Returns the address and the number of the bytes.
    fn source(&self) -> (*const u8, usize);
}

// SAFETY: the bytes of a vector are on the heap, and only its own methods reallocate them.
unsafe impl ReadBuffer for Vec<u8> {
    fn target(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.capacity())
    }

    unsafe fn filled(&mut self, bytes: usize) {
        // SAFETY: the caller has initialised them, and they are within the capacity.
        unsafe { self.set_len(bytes) };
    }
}

// SAFETY: as above; the vector is not touched meanwhile.
unsafe impl WriteBuffer for Vec<u8> {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes are on the heap.
unsafe impl ReadBuffer for Box<[u8]> {
    fn target(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }

    unsafe fn filled(&mut self, _: usize) {}
}

// SAFETY: the bytes are on the heap.
unsafe impl WriteBuffer for Box<[u8]> {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes are on the heap.
unsafe impl<const N: usize> ReadBuffer for Box<[u8; N]> {
    fn target(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), N)
    }

    unsafe fn filled(&mut self, _: usize) {}
}

// SAFETY: the bytes are on the heap.
unsafe impl<const N: usize> WriteBuffer for Box<[u8; N]> {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), N)
    }
}

// SAFETY: shared bytes never change, and are on the heap until the last handle is dropped.
unsafe impl WriteBuffer for Arc<[u8]> {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes of a string are on the heap.
unsafe impl WriteBuffer for String {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: static bytes stay.
unsafe impl WriteBuffer for &'static [u8] {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: static bytes stay.
unsafe impl<const N: usize> WriteBuffer for &'static [u8; N] {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), N)
    }
}

// SAFETY: static bytes stay.
unsafe impl WriteBuffer for &'static str {
    fn source(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

/// A vector that a read extends, up to its capacity, instead of overwriting it. Use it to assemble data from
/// several reads.
///
/// ```
/// # use toroni_proactor::{Append, BufResult, Proactor, Stream};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let proactor = Proactor::from_environment()?;
/// # let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
/// # std::io::Write::write_all(&mut theirs, b"line")?;
/// # let stream = Stream::new(&proactor, ours)?;
/// let mut line = Vec::with_capacity(80);
/// line.extend(b"a ");
/// let read = stream.read_async(Append(line));
/// let BufResult(result, Append(line)) = proactor.block_on(read).unwrap();
/// assert_eq!((result?, &line[..]), (4, &b"a line"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Append(pub Vec<u8>);

// SAFETY: as for vectors; the spare capacity begins after the bytes that are there.
unsafe impl ReadBuffer for Append {
    fn target(&mut self) -> (*mut u8, usize) {
        let spare = self.0.spare_capacity_mut();
        (spare.as_mut_ptr().cast(), spare.len())
    }

    unsafe fn filled(&mut self, bytes: usize) {
        // SAFETY: the caller has initialised that many bytes after the length, within the capacity.
        unsafe { self.0.set_len(self.0.len() + bytes) };
    }
}

/// The part of a buffer that is left to send. A write may send less than it was given.
#[derive(Debug)]
pub struct Rest<B> {
    buffer: B,
    sent: usize,
}

impl<B: WriteBuffer> Rest<B> {
    /// Returns everything but the first `bytes` bytes; nothing if the buffer is shorter.
    pub fn after(buffer: B, bytes: usize) -> Self {
        let sent = bytes.min(buffer.source().1);
        Self { buffer, sent }
    }

    /// Removes `bytes` more bytes from the beginning.
    #[must_use]
    pub fn advance(self, bytes: usize) -> Self {
        Self::after(self.buffer, self.sent + bytes)
    }

    /// Returns the number of bytes that are left.
    pub fn len(&self) -> usize {
        self.buffer.source().1 - self.sent
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the whole buffer.
    pub fn into_inner(self) -> B {
        self.buffer
    }
}

impl<B: WriteBuffer + Deref<Target = [u8]>> Deref for Rest<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.sent..]
    }
}

// SAFETY: a part of memory that another buffer vouches for.
unsafe impl<B: WriteBuffer> WriteBuffer for Rest<B> {
    fn source(&self) -> (*const u8, usize) {
        let (start, length) = self.buffer.source();
        // `sent` is at most the length, so this stays within the buffer or at its end.
        (start.wrapping_add(self.sent), length - self.sent)
    }
}
