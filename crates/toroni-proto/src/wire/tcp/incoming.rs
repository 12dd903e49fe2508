//! Cuts the bytes of a connection into frames.

use super::{HEADER_BYTES, Reject};

/// The bytes that have arrived and were not used yet, in fixed memory.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Incoming {
    /// Allocates memory for frames of up to this many bytes.
    #[must_use]
    pub fn new(frame_max: usize) -> Self {
        Self { bytes: vec![0; frame_max.max(HEADER_BYTES)].into(), from: 0, to: 0 }
    }

    /// Returns memory into which the next bytes are received. It is never empty after [`Self::next_frame`]
    /// has returned `None`.
    pub fn room(&mut self) -> &mut [u8] {
        let left = self.bytes.len().saturating_sub(self.to);
        // Moving the beginning of a frame costs less than receiving into little room.
        if self.from > 0 && left < self.bytes.len() / 4 {
            self.bytes.copy_within(self.from..self.to, 0);
            self.to = self.to.saturating_sub(self.from);
            self.from = 0;
        }
        self.bytes.get_mut(self.to..).unwrap_or_default()
    }

    /// Notes that this many bytes were received.
    pub fn received(&mut self, length: usize) {
        self.to = self.to.saturating_add(length).min(self.bytes.len());
    }

    /// Whether a part of a frame has arrived that is not complete.
    pub(crate) const fn is_within_a_frame(&self) -> bool {
        self.from < self.to
    }

    /// Forgets everything, for a new connection.
    pub const fn clear(&mut self) {
        self.from = 0;
        self.to = 0;
    }

    /// Takes the next frame, if all of it has arrived. Its contents are not checked.
    ///
    /// # Errors
    ///
    /// If it states a length that is less than a header's, or more than there is memory for.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, Reject> {
        let there = self.bytes.get(self.from..self.to).unwrap_or_default();
        let Some((length, _)) = there.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length < HEADER_BYTES {
            return Err(Reject::Short);
        }
        if length > self.bytes.len() {
            return Err(Reject::Length);
        }
        if there.len() < length {
            return Ok(None);
        }
        let frame = self.from..self.from.saturating_add(length);
        self.from = frame.end;
        if self.from == self.to {
            self.clear();
        }
        Ok(self.bytes.get(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            let mut frame = vec![u8::try_from(number % 251).unwrap(); *length];
            frame[..4].copy_from_slice(&u32::try_from(*length).unwrap().to_le_bytes());
            bytes.extend(frame);
        }
        bytes
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_split_the_frames_are_the_same(
            lengths in prop::collection::vec(16..300_usize, 1..40),
            pieces in prop::collection::vec(1..400_usize, 1..40),
        ) {
            let bytes = stream(&lengths);
            let mut incoming = Incoming::new(300);
            let mut frames = Vec::new();
            let mut rest = &bytes[..];
            for piece in pieces.iter().cycle() {
                let room = incoming.room();
                prop_assert!(!room.is_empty());
                let length = rest.len().min(*piece).min(room.len());
                room[..length].copy_from_slice(&rest[..length]);
                incoming.received(length);
                rest = &rest[length..];
                while let Some(frame) = incoming.next_frame().unwrap() {
                    frames.extend_from_slice(frame);
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(frames, bytes);
        }
    }

    #[test]
    fn a_length_outside_of_the_limits_is_refused_as_soon_as_it_is_there() {
        for (length, wanted) in [(15_u32, Reject::Short), (301, Reject::Length)] {
            let mut incoming = Incoming::new(300);
            incoming.room()[..4].copy_from_slice(&length.to_le_bytes());
            incoming.received(3);
            assert_eq!(incoming.next_frame(), Ok(None));
            incoming.received(1);
            assert_eq!(incoming.next_frame(), Err(wanted));
        }
    }
}
