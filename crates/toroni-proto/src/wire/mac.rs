//! The code that authenticates a datagram: keyed BLAKE3 over everything before it.
//!
//! ```text
//!  byte 0                                  length - 16          length
//!       +--------------------------------------+------------------+
//!       | header (flag MAC set), body          | first 16 bytes   |
//!       |                                      | of keyed BLAKE3  |
//!       +--------------------------------------+------------------+
//!       |<------------ what is hashed -------->|
//! ```
//!
//! One key is shared by the realm. It keeps strangers and mistakes of configuration out. It neither
//! tells members apart nor hides anything.

use core::fmt;

use crate::hook::mutant;

/// The length of the code, in bytes.
pub const MAC_BYTES: usize = 16;

/// The secret of a realm.
#[derive(Clone, Copy)]
pub struct Key([u8; Key::BYTES]);

impl Key {
    /// The length of a key, in bytes.
    pub const BYTES: usize = 32;

    /// Wraps the bytes of a key file.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    fn code(&self, context: &[u8], bytes: &[u8]) -> [u8; MAC_BYTES] {
        let hash = if context.is_empty() {
            blake3::keyed_hash(&self.0, bytes)
        } else {
            blake3::Hasher::new_keyed(&self.0).update(context).update(bytes).finalize()
        };
        let (code, _) = hash.as_bytes().split_at(MAC_BYTES);
        let mut copy = [0; MAC_BYTES];
        copy.copy_from_slice(code);
        copy
    }
}

/// Does not print the key.
impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(…)")
    }
}

/// The keys of a realm: one, or two while they are changed.
///
/// To change the key without a stop, give every node the new key as `next`, then make it the first
/// one of every node, then remove the old one.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// Signs, and is accepted.
    pub first: Key,
    /// Is accepted too.
    pub next: Option<Key>,
}

impl Keys {
    /// Returns the code of these bytes.
    #[must_use]
    pub fn sign(&self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        self.sign_within(&[], bytes)
    }

    /// Returns the code of the context, which both ends know, followed by these bytes.
    pub(super) fn sign_within(&self, context: &[u8], bytes: &[u8]) -> [u8; MAC_BYTES] {
        self.first.code(context, bytes)
    }

    /// Returns whether the code belongs to these bytes. How long a comparison takes does not depend
    /// on where the codes differ.
    #[must_use]
    pub fn verify(&self, bytes: &[u8], code: [u8; MAC_BYTES]) -> bool {
        self.verify_within(&[], bytes, code)
    }

    /// The same for the code of a context followed by these bytes.
    pub(super) fn verify_within(
        &self,
        context: &[u8],
        bytes: &[u8],
        code: [u8; MAC_BYTES],
    ) -> bool {
        let belongs = |key: &Key| widened(key.code(context, bytes)) == widened(code);
        let next = self.next.as_ref().filter(|_| !mutant("one_key_only"));
        belongs(&self.first) || next.is_some_and(belongs)
    }
}

/// Hashes of BLAKE3 are compared in constant time, and plain arrays are not.
fn widened(code: [u8; MAC_BYTES]) -> blake3::Hash {
    let mut bytes = [0; blake3::OUT_LEN];
    bytes[..MAC_BYTES].copy_from_slice(&code);
    blake3::Hash::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Key = Key::new([1; 32]);
    const NEW: Key = Key::new([2; 32]);

    #[test]
    fn a_code_is_the_start_of_the_keyed_hash() {
        // From the test vectors of BLAKE3: the keyed hash of 1 byte, which is 0.
        let key = Key::new(*b"whats the Elvish word for friend");
        let code = Keys { first: key, next: None }.sign(&[0]);
        assert_eq!(code[..4], [0x6d, 0x78, 0x78, 0xdf], "{code:02x?}");
    }

    #[test]
    fn during_a_change_of_keys_all_nodes_understand_each_other() {
        let steps = [
            Keys { first: OLD, next: None },
            Keys { first: OLD, next: Some(NEW) },
            Keys { first: NEW, next: Some(OLD) },
            Keys { first: NEW, next: None },
        ];
        for pair in steps.windows(2) {
            assert!(pair[1].verify(b"text", pair[0].sign(b"text")));
            assert!(pair[0].verify(b"text", pair[1].sign(b"text")));
        }
        assert!(!steps[3].verify(b"text", steps[0].sign(b"text")));
    }

    #[test]
    fn a_code_that_differs_in_any_bit_is_refused() {
        let keys = Keys { first: OLD, next: Some(NEW) };
        let code = keys.sign(b"text");
        assert!(keys.verify(b"text", code));
        for bit in 0..MAC_BYTES * 8 {
            let mut wrong = code;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys.verify(b"text", wrong), "bit {bit}");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{OLD:?}"), "Key(…)");
    }
}
