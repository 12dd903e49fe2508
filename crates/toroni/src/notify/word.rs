//! The futex word for waits by the proactor. The kernel reads the word for as long as the operation lasts, so the
//! operation owns the memory that holds the word.

use crate::sync::AtomicU32;
use std::sync::Arc;
use toroni_proactor::Word;

/// A word, and the owner of the memory that holds it.
pub(crate) struct HeldWord<K> {
    keeper: Arc<K>,
    number: u32,
    word: for<'a> fn(&'a K, u32) -> &'a AtomicU32,
}

impl<K> HeldWord<K> {
    /// Holds the word of this number that the function `word` finds in `keeper`.
    pub(crate) fn new(
        keeper: Arc<K>,
        number: u32,
        word: for<'a> fn(&'a K, u32) -> &'a AtomicU32,
    ) -> Self {
        Self { keeper, number, word }
    }
}

// SAFETY: the function returns a reference that is valid for as long as the keeper is borrowed. This value holds a
// share of the `Arc`, in which the keeper does not move and is only shared, so it may be borrowed until this value
// is dropped. The address is the same each time because the keepers used here map a file once.
unsafe impl<K: Send + Sync + 'static> Word for HeldWord<K> {
    fn address(&self) -> *const AtomicU32 {
        (self.word)(&self.keeper, self.number)
    }
}
