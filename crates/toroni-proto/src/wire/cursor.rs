//! Reads and writes little-endian fields one after another, within the bounds of their bytes.

use super::reject::Reject;

/// A buffer is too small for a datagram or chunk. Nothing in it is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer is too small for the datagram")]
pub struct NoRoom;

/// Reads fields from bytes that a stranger may have sent.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// If there are not that many left: some count or length promised more than the datagram has.
    #[inline]
    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Reject> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Reject::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Reject> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Reject::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes `count` records of `N` bytes.
    pub(super) fn arrays<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]], Reject> {
        let (taken, _) = self.bytes(count.saturating_mul(N))?.as_chunks::<N>();
        Ok(taken)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, Reject> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Reject> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Reject> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Reject> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes `N` bytes that must be 0: a later version may give them a meaning.
    pub(super) fn zeros<const N: usize>(&mut self) -> Result<(), Reject> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(Reject::Reserved) }
    }

    /// All bytes that are left.
    #[inline]
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that nothing is left.
    pub(super) const fn end(&self) -> Result<(), Reject> {
        if self.is_empty() { Ok(()) } else { Err(Reject::Trailing) }
    }
}

/// Writes fields into a caller's buffer.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, written: 0 }
    }

    /// The bytes written so far.
    pub(super) const fn written(&self) -> usize {
        self.written
    }

    /// How many more bytes fit.
    pub(super) const fn room(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// Replaces bytes that were written.
    pub(super) fn overwrite(&mut self, at: usize, bytes: &[u8]) -> Result<(), NoRoom> {
        let written = self.buffer.get_mut(..self.written).ok_or(NoRoom)?;
        written.get_mut(at..at + bytes.len()).ok_or(NoRoom)?.copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let end = self.written.checked_add(bytes.len()).ok_or(NoRoom)?;
        self.buffer.get_mut(self.written..end).ok_or(NoRoom)?.copy_from_slice(bytes);
        self.written = end;
        Ok(())
    }

    #[inline]
    pub(super) fn u8(&mut self, value: u8) -> Result<(), NoRoom> {
        self.bytes(&[value])
    }

    #[inline]
    pub(super) fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.bytes(&value.to_le_bytes())
    }

    #[inline]
    pub(super) fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.bytes(&value.to_le_bytes())
    }

    #[inline]
    pub(super) fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.bytes(&value.to_le_bytes())
    }
}
