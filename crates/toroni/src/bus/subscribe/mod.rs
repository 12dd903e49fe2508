//! Subscribing.

pub(in crate::bus) mod backoff;
pub(in crate::bus) mod builder;
pub(in crate::bus) mod descriptor;
pub(in crate::bus) mod in_place;
pub(in crate::bus) mod interrupter;
pub(in crate::bus) mod message;
pub(in crate::bus) mod receive;
pub(in crate::bus) mod router;
#[cfg(feature = "tokio")]
pub(in crate::bus) mod stream;
pub(in crate::bus) mod subscriber;
