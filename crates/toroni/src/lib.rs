//! Toroni: a message bus for the processes of one Linux machine, without a broker.

#![allow(
    dead_code,
    unused_imports,
    reason = "the layers are being put in place; the bus will use all of them"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "a bus is mapped twice in a row and positions are 64 bits wide: 64-bit targets only"
);

pub mod crash;
mod error;
pub(crate) mod notify;
pub(crate) mod ring;
mod settings;
pub(crate) mod shm;
pub(crate) mod sync;
pub(crate) mod topic;

pub use error::{Corrupt, Forked, OpenError, PublishError, ReceiveError};
pub use ring::racy::{RacyBytes, RacyBytesMut};
pub use settings::{InvalidSetting, LockKind, NotifyKind, Policy};
pub use topic::{Pattern, PatternError, Topic, TopicError};
