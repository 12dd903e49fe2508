//! Publishing.

pub(in crate::bus) mod backpressure;
pub(in crate::bus) mod claim;
pub(in crate::bus) mod participant;
pub(in crate::bus) mod publisher;
pub(in crate::bus) mod reentrancy;
