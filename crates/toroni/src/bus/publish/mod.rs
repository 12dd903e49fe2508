//! Publishing. Each file uses only those below it:
//!
//! ```text
//! exclusive       the public handle of the only publisher of a bus
//! inlet           the public handle of a program that brings messages from elsewhere
//! publisher       the public handle: checks lengths, frames messages
//! publishing      what a publish does, step by step
//! backpressure    what a publisher does when the ring is full
//! retained        topics whose newest message is kept
//! commit          what one commit makes visible
//! topics, wake    the ids of topics; who wakes a sleeping subscriber
//! participant     the writer lock, a slot and its lease
//! claim, reader_slots, reentrancy, terms
//! ```

mod backpressure;
mod claim;
mod commit;
mod exclusive;
mod inlet;
mod participant;
mod publisher;
mod publishing;
mod reader_slots;
mod reentrancy;
mod retained;
mod terms;
#[cfg(test)]
pub(super) mod testing;
mod topics;
#[cfg(test)]
#[cfg(not(loom))]
mod unfenced;
mod wake;

pub use exclusive::{Exclusive, ExclusiveTopic};
pub use inlet::{Arrived, Entry, Inlet, InletTopic};
pub use publisher::Publisher;
pub(super) use publishing::Publishing;
pub(super) use reentrancy::by_this_thread as writes_in_this_thread;
pub use terms::Limit;
