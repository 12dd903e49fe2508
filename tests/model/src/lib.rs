//! The protocol of the bus as a state space: publishers, subscribers, a ring of a few records, and a
//! search that visits every state that can be reached, with every death at every step.
//!
//! # What is a step
//!
//! A step is one load or store of shared memory that another process can notice, or one question to the kernel, in
//! the order of the code. Between any two steps a process may die, which frees its leases and leaves all that it wrote.
//! It may be stopped for ever, which frees nothing. A dead process may be replaced by a new one in its slot. What the
//! owner of the writer lock loads is no step, because no other process changes it. An exclusive publisher may also lose its
//! lease and live on; then others take over from it while it writes.
//!
//! ```text
//!  state.rs        the words that are shared, the registers of each process, and the truth
//!  publisher.rs    lock, takeover, recovery, commit, unlock, wake
//!  space.rs        the check of slow readers, and the wait for them
//!  waking.rs       the wake-ups: who sleeps, and who wants what was published
//!  writing.rs      what one commit stores, store by store
//!  subscriber.rs   read-ahead, long records, its position, its sleep
//!  passing.rs      passing over what a subscriber does not want
//!  joining.rs      claim, join, and the return of one that was lapped
//!  model.rs        who can take a step, who may die, and what "finished" is
//!  properties.rs   what has to hold
//!  mistakes.rs     known mistakes, each of which must break a property
//!  setups.rs       how large the rings are and who takes part, by name
//!  search.rs       the search
//!  cycles.rs       checks that no path returns to a state, so that every path ends
//!  trace.rs        a counterexample for people
//!  values.rs       the values of retained topics: a state space of its own
//!  points.rs       where the crash points of the library are in the model
//! ```
//!
//! `cargo xtask model` runs it, in about 15 s; `cargo xtask model --mistakes` shows each mistake's counterexample.
//!
//! # What is shown
//!
//! [`properties`] lists it. Liveness is shown like this: a process that can only wait has no step, and a check that
//! would find nothing new is no step either. Then no path can return to a state ([`cycles`]), so every path ends, and
//! [`properties::NOT_STUCK`] says that it ends with all work done. This holds for every order of steps, fair or not.
//! Time-outs are left out wherever the protocol promises a wake-up: a sleeping subscriber rechecks by itself only if a
//! publisher died, or was stopped, between its commit and its wake. A publisher that waits for space is promised only
//! the time-out of 1 ms, and its wake-up is a hint. There the time-out is a step.
//!
//! # What is left out
//!
//! - **Weak memory.** Steps happen in one order, as if every access were sequentially consistent. The loom models beside
//!   the code show that the fences make it so where it matters. So the fence that an exclusive publisher may leave out has
//!   no step, and neither has the membarrier that replaces it.
//! - **The bits of the lock's waiters** (WAITERS, STARVING) and its sleeps: a waiter rechecks every few milliseconds. In
//!   the model, a process that can have the lock may take it at any time.
//! - **The seqlock of an index entry** for its readers: they read position and sequence in one step.
//!   Writers store them one by one. A slot is read in one step, too; several slots in any order.
//! - **Names, patterns, extensions, descriptors.** A reader wants a set of at most two topics, which are numbers. Messages of
//!   a topic that a reader does not want are checked, too. A payload is one to three words, of the worst kind: they
//!   look like headers, or like the end of the stream ([`word`]).
//! - **The number of slots in use.** All of them are, from the beginning.
//! - **A new topic** is appended by the first store of its message. The library appends it earlier, also under the lock.
//! - **The end by the blocks index**, with which a subscriber that was lapped passes over what a dead publisher has committed,
//!   and the topics that it looks at while it passes over them. It reports a loss in place of the first.
//! - **A subscriber that lost its lease** and still writes to the column of its slot.
//! - **A publisher that crosses a quarter of the ring** wakes no subscriber for that. One that waits for space does.
//! - **Several threads of a publisher**, which share what it knows of sleepers: loom has them.
//! - **Messages in place.** A reader reads ahead and copies.
//! - **Starts at a position.** A reader joins at the end, or at the oldest message, which is the same protocol.
//! - **Two loads of the same word in a row** are one, as are the two writes of a position before a sleep.
//! - **Wrap-around of counters.** Counters that only grow and are only compared are kept as "is it still
//!   the same".
//! - **Clocks.** A limit is reached at any time. Who takes over from an exclusive publisher waits for longer than a
//!   message takes; so in the model it waits until that one is between two messages.
//! - **The lease of a shared publisher that lives on.** It is in the middle of a message for a moment only, and others
//!   test its lease every few milliseconds.
//!
//! States are distinguished by a hash of 64 bits. The chance that two of 100 million share a hash is about 1 in 4,000.

#![allow(missing_docs, reason = "this crate is not published")]

pub mod coverage;
pub mod cycles;
mod joining;
pub mod mistakes;
pub mod model;
pub mod passing;
pub mod points;
pub mod properties;
pub mod publisher;
pub mod search;
pub mod setup;
pub mod setups;
mod space;
pub mod state;
pub mod subscriber;
mod symmetry;
pub mod trace;
pub mod values;
mod waking;
pub mod word;
pub mod writing;
