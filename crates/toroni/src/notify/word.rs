//! The futex as the proactor waits for it: the kernel looks at the word for as long as the operation lasts,
//! so the operation owns what the word lies in.

use crate::sync::AtomicU32;
use std::sync::Arc;
use toroni_proactor::Word;

/// A word, and what it lies in.
pub(crate) struct HeldWord<K> {
    keeper: Arc<K>,
    word: for<'a> fn(&'a K) -> &'a AtomicU32,
}

impl<K> HeldWord<K> {
    /// The word that the function finds.
    pub(crate) fn new(keeper: Arc<K>, word: for<'a> fn(&'a K) -> &'a AtomicU32) -> Self {
        Self { keeper, word }
    }
}

// SAFETY: the function gives a reference that is good for as long as the keeper is borrowed. It may be
// borrowed for as long as this holds a part of the `Arc`, in which it does not move and is shared only. That
// the address is the same each time follows for the keepers here, which map a file once.
unsafe impl<K: Send + Sync + 'static> Word for HeldWord<K> {
    fn address(&self) -> *const AtomicU32 {
        (self.word)(&self.keeper)
    }
}
