//! The hot paths of the network protocol, ready to be measured. `toroni-bench machines` measures their time, and
//! `cargo xtask counts` their instructions, so both speak of the same work.
//!
//! ```text
//!   Pack       messages ──► sender ──► datagrams
//!   Deliver    datagrams in receive buffers ──► arrivals ──► messages
//!   Repair     NAK ──► sender ──► the datagram again
//!   Gap        a datagram is missing, is asked for, and arrives ──► arrivals
//!   Status     STATUS of many receivers ──► sender
//! ```
//!
//! [`forging`] makes what a hostile peer sends, for measurements and tests beside such a peer.
//!
//! Each of the others is a [`Machine`] that works in rounds. What a round needs is prepared before it, outside of the measurement.
//! Times are handed in to the protocol, so nothing waits for a clock, and the rate is one that no host reaches.

#![allow(missing_docs, reason = "this crate is not published")]

pub mod forging;
mod receiving;
mod rig;
mod sending;

pub use self::receiving::{Deliver, Gap};
pub use self::sending::{Pack, Repair, Status};

/// One hot path.
pub trait Machine {
    /// Makes ready what the next round needs.
    fn prepare(&mut self);
    /// Works. Returns how many units it did.
    ///
    /// # Panics
    /// If it did other work than it is measured for.
    fn run(&mut self) -> u64;
}

/// A row of a report.
pub struct Row {
    pub name: &'static str,
    /// What one unit of the work is.
    pub unit: &'static str,
    /// The most that a unit may take, in nanoseconds.
    pub goal_ns: Option<f64>,
    pub make: fn() -> Box<dyn Machine>,
}

/// The length of the messages that the goals are about, in bytes.
pub const MESSAGE_BYTES: usize = 64;

pub const ROWS: &[Row] = &[
    Row {
        name: "net-pack-64",
        unit: "message",
        goal_ns: Some(25.0),
        make: || Box::new(Pack::new(MESSAGE_BYTES, false)),
    },
    Row {
        name: "net-deliver-64",
        unit: "message",
        goal_ns: Some(25.0),
        make: || Box::new(Deliver::new(MESSAGE_BYTES, false)),
    },
    Row {
        name: "net-pack-1024",
        unit: "message",
        goal_ns: None,
        make: || Box::new(Pack::new(1_024, false)),
    },
    Row {
        name: "net-deliver-1024",
        unit: "message",
        goal_ns: None,
        make: || Box::new(Deliver::new(1_024, false)),
    },
    Row {
        name: "net-pack-64-signed",
        unit: "message",
        goal_ns: None,
        make: || Box::new(Pack::new(MESSAGE_BYTES, true)),
    },
    Row {
        name: "net-deliver-64-signed",
        unit: "message",
        goal_ns: None,
        make: || Box::new(Deliver::new(MESSAGE_BYTES, true)),
    },
    Row { name: "net-repair", unit: "NAK", goal_ns: None, make: || Box::new(Repair::new()) },
    Row { name: "net-gap", unit: "gap", goal_ns: None, make: || Box::new(Gap::new()) },
    Row {
        name: "net-status-of-1000",
        unit: "STATUS",
        goal_ns: None,
        make: || Box::new(Status::new(1_000)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_does_its_work_in_each_round() {
        for row in ROWS {
            let mut machine = (row.make)();
            for round in 0..3 {
                machine.prepare();
                assert!(machine.run() > 100, "{} in round {round}", row.name);
            }
        }
    }
}
