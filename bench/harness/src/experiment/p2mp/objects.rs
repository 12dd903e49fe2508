//! The objects: 50 bytes, of which the first eight are the number of the object.
//!
//! The sender writes every byte of every object. A receiver checks that the number of every object is the next one.

/// Bytes of an object.
pub(crate) const OBJECT: usize = 50;

/// The bytes after the number, in every object.
const BODY: [u8; OBJECT - 8] = *b"An object of fifty bytes; this is its body";

/// Makes as many objects as fit `bytes`, with numbers from `first` on. Returns how many.
#[inline]
pub(crate) fn make(bytes: &mut [u8], first: u64) -> u64 {
    let (objects, _) = bytes.as_chunks_mut::<OBJECT>();
    for (number, object) in (first..).zip(objects.iter_mut()) {
        object[..8].copy_from_slice(&number.to_le_bytes());
        object[8..].copy_from_slice(&BODY);
    }
    objects.len() as u64
}

/// What a receiver has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Seen {
    /// Number of objects.
    pub(crate) objects: u64,
    /// Number of objects that were not the next one.
    pub(crate) wrong: u64,
}

impl Seen {
    /// Checks every object of `bytes`, which hold whole objects.
    #[inline]
    pub(crate) fn check(&mut self, bytes: &[u8]) {
        let (objects, _) = bytes.as_chunks::<OBJECT>();
        // Without a branch in the loop: objects are usually right, and if not, their number is wanted.
        let mut wrong = 0;
        for (expected, object) in (self.objects..).zip(objects) {
            wrong += u64::from(number(object) != expected);
        }
        self.objects += objects.len() as u64;
        self.wrong += wrong;
    }

    /// Returns whether these are `total` objects, all right.
    pub(crate) fn is_right(self, total: u64) -> bool {
        self == Self { objects: total, wrong: 0 }
    }
}

#[inline]
fn number(object: &[u8; OBJECT]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *object;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_right() {
        let mut bytes = [0; 7 * OBJECT + 3];
        assert_eq!(make(&mut bytes, 0), 7);
        let mut seen = Seen::default();
        seen.check(&bytes[..3 * OBJECT]);
        seen.check(&bytes[3 * OBJECT..7 * OBJECT]);
        assert!(seen.is_right(7));
        assert!(!seen.is_right(8));
        assert_eq!(bytes[6 * OBJECT..7 * OBJECT][8..], BODY);
        assert_eq!(bytes[7 * OBJECT..], [0; 3], "nothing after the last whole object");
    }

    #[test]
    fn lost_doubled_and_swapped_objects_are_wrong() {
        let mut bytes = [0; 10 * OBJECT];
        make(&mut bytes, 0);
        let object = |index: usize| &bytes[index * OBJECT..(index + 1) * OBJECT];
        for order in [&[0, 1, 3, 4][..], &[0, 1, 1, 2], &[1, 0], &[9]] {
            let mut seen = Seen::default();
            for &index in order {
                seen.check(object(index));
            }
            assert!(seen.wrong > 0, "{order:?}");
        }
    }
}
