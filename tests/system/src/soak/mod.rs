//! The soak: hours of publishers and subscribers that are killed, stopped, and come and go, with every
//! message checked.
//!
//! ```text
//!   toroni-soak (supervisor) ── starts, kills, stops ──►  workers
//!        ▲                                                   │
//!        └──────── a line of text for each event ────────────┘
//! ```
//!
//! - [`mix`]: the kinds of messages ("lanes"), their topics, and what subscribers ask for.
//! - [`source`]: the messages of one publisher: each can be checked by itself and is chained to the one
//!   before it.
//! - [`verifier`]: what one subscriber can check by itself: whole, once, in order, losses as reported.
//! - [`order`]: what only several can: that all saw the same, and that what was published is there.
//! - [`report`]: the lines between workers and supervisor.
//! - [`progress_record`]: numbers of a worker that outlive it: what it has published, how long it was held up, and
//!   the messages that it saw last.
//! - [`stalls`]: how long the living were held up, and why.
//! - [`supervisor`]: the run itself; [`figures`]: what came of it; [`program`]: what it shares with the soak between hosts.
//!
//! Memory stays bounded, however long it runs: of the order, sums of [`order::KEPT`] stretches are kept.

pub mod figures;
pub mod mix;
pub mod order;
pub mod program;
pub mod progress_record;
pub mod report;
pub mod source;
pub mod stalls;
pub mod supervisor;
pub mod verifier;
