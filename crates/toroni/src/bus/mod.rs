//! The public interface: opens the files of a bus and joins the layers. No other module knows them all, and
//! nothing here is unsafe.
//!
//! | question | file |
//! |---|---|
//! | how is a bus opened or created? | `open/config.rs`; after a reboot, `open/disk.rs` |
//! | what does a publish do, step by step? | `publish/publishing.rs` |
//! | what does a publisher do when the ring is full? | `publish/backpressure/mod.rs` |
//! | how do messages from elsewhere get in, each once? | `publish/inlet.rs`, and `ring/arrivals.rs` |
//! | who wakes a sleeping subscriber? | `publish/wake.rs` |
//! | what does a receive do, step by step? | `subscribe/receive.rs` |
//! | how does a subscriber wait? | `subscribe/waiting.rs`; how long it polls before, `subscribe/backoff.rs` |
//! | who wakes a publisher that waits for free space? | `subscribe/progress.rs` |
//! | how does a subscriber join the stream? | `subscribe/builder.rs` |
//! | what do `toroni info` and `toroni clean` call? | `inspect/` |
//! | subscribers in a proactor | `proactor/` |
//!
//! `handle` is [`Bus`], and knows both sides: it opens each when it is first needed. `publish` and
//! `subscribe` do not use one another. Both use three small files: `local` (the subscribers of this process),
//! `polling`, and `views` (the memory that the layers need of mapped files).

mod clock;
mod handle;
mod inspect;
mod local;
mod open;
mod polling;
#[cfg(feature = "proactor")]
pub mod proactor;
mod publish;
mod subscribe;
mod views;

pub use handle::{Bus, BusId};
pub use inspect::{
    BusStats, LockOwner, PublisherStats, RetainedStats, SubscriberSlotStats, TopicStats,
    ValueStats, admin,
};
pub use open::{BusConfig, Reopened};
pub use publish::{Arrived, Entry, Exclusive, ExclusiveTopic, Inlet, InletTopic, Limit, Publisher};
pub use subscribe::{
    Borrowed, Continue, InPlace, Interrupter, Message, RetainedMessage, Router, Start, Subscriber,
    SubscriberBuilder, SubscriberStats, WaitStrategy,
};
