//! Reads little-endian fields one after another from bytes that nothing vouches for.

/// The bytes end before a field does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooShort;

/// Reads fields, each within the bounds of the bytes.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], TooShort> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], TooShort> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, TooShort> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, TooShort> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, TooShort> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, TooShort> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }
}
