//! Types that may lie in memory that other processes write.

use crate::ring::layout::{
    Arming, ArrivalEntry, Control, PendingArrival, PublisherSlot, ReaderPatterns, ReaderSlot,
    ReadersControl, ValueEntry,
};
use crate::sync::{AtomicU32, AtomicU64};

/// A type that a [`Mapping`](super::mapping::Mapping) hands out by reference.
///
/// # Safety
///
/// - Every bit pattern is a value, because another process may have written anything.
/// - Every field is an atomic, or an array or structure of atomics: another process may write at any time, and a
///   plain load at the same time as its store would be undefined behaviour.
/// - `repr(C)` or `repr(transparent)`: all processes agree on the offsets of the fields.
/// - No destructor: no process owns the memory.
pub(crate) unsafe trait Shareable: Sync {}

// SAFETY: an atomic integer; every bit pattern is one.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: an atomic integer; every bit pattern is one.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: an array of atomic integers.
unsafe impl Shareable for Arming {}
// SAFETY: repr(C), of nothing but atomics and padding that is never read.
unsafe impl Shareable for Control {}
// SAFETY: repr(C), of nothing but atomics and padding that is never read.
unsafe impl Shareable for ReadersControl {}
// SAFETY: repr(C), of nothing but atomics.
unsafe impl Shareable for PublisherSlot {}
// SAFETY: repr(C), of nothing but atomics.
unsafe impl Shareable for ReaderSlot {}
// SAFETY: repr(C), of nothing but atomics.
unsafe impl Shareable for ReaderPatterns {}
// SAFETY: repr(C), of nothing but atomics and padding that is never read.
unsafe impl Shareable for PendingArrival {}
// SAFETY: repr(C), of nothing but atomics and padding that is never read.
unsafe impl Shareable for ArrivalEntry {}
// SAFETY: repr(C), of nothing but atomics and padding that is never read.
unsafe impl Shareable for ValueEntry {}
