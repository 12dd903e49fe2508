//! The objects that are moved: 50 bytes, of which the first eight are the object's number.
//!
//! The sender makes every object wholly, each of its bytes; a receiver looks at the number of every
//! object and checks that it is the next one.

/// Bytes of an object.
pub(crate) const OBJECT: usize = 50;

/// What follows the number, in every object.
const BODY: [u8; OBJECT - 8] = *b"An object of fifty bytes; this is its body";

/// Makes objects with the numbers from `first` on, as many as fit `bytes`; how many.
#[inline]
pub(crate) fn make(bytes: &mut [u8], first: u64) -> u64 {
    let (objects, _) = bytes.as_chunks_mut::<OBJECT>();
    for (number, object) in (first..).zip(objects.iter_mut()) {
        object[..8].copy_from_slice(&number.to_le_bytes());
        object[8..].copy_from_slice(&BODY);
    }
    objects.len() as u64
}

/// What one receiver saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Seen {
    /// Objects that came.
    pub(crate) objects: u64,
    /// Those that were not the next one.
    pub(crate) wrong: u64,
}

impl Seen {
    /// Looks at every object of `bytes`, which begin and end with one.
    #[inline]
    pub(crate) fn look(&mut self, bytes: &[u8]) {
        let (objects, _) = bytes.as_chunks::<OBJECT>();
        // Without a branch in the loop: all right is the rule, and the count is wanted if not.
        let mut wrong = 0;
        for (expected, object) in (self.objects..).zip(objects) {
            wrong += u64::from(number(object) != expected);
        }
        self.objects += objects.len() as u64;
        self.wrong += wrong;
    }

    /// Whether these are `total` objects, each in its place.
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
        seen.look(&bytes[..3 * OBJECT]);
        seen.look(&bytes[3 * OBJECT..7 * OBJECT]);
        assert!(seen.is_right(7));
        assert!(!seen.is_right(8));
        assert_eq!(bytes[6 * OBJECT..7 * OBJECT][8..], BODY);
        assert_eq!(bytes[7 * OBJECT..], [0; 3], "nothing behind the last whole object");
    }

    #[test]
    fn lost_doubled_and_swapped_objects_are_wrong() {
        let mut bytes = [0; 10 * OBJECT];
        make(&mut bytes, 0);
        let object = |index: usize| &bytes[index * OBJECT..(index + 1) * OBJECT];
        for order in [&[0, 1, 3, 4][..], &[0, 1, 1, 2], &[1, 0], &[9]] {
            let mut seen = Seen::default();
            for &index in order {
                seen.look(object(index));
            }
            assert!(seen.wrong > 0, "{order:?}");
        }
    }
}
