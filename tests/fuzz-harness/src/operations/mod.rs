//! Performs lists of operations on a whole bus in a directory and on the model of `tests/oracle/`, and compares all
//! results: what is received, in which order, and what is lost, refused, counted and shown.
//!
//! - `state`: a bus with its participants, and the model beside it.
//! - `writers`, `readers`: what each of them does, and what the result must be.
//! - `exclusive`: who is the only publisher, and what that does to the others.
//! - `bridge`, `inlets`: what comes from elsewhere, and what must become of it.
//! - `values`: what the bus keeps of retained topics.
//! - `shortage`: whether publishers find subscribers in their way.
//! - `check`: what statistics must say.
//! - `act`: deaths, with the feature `deaths`. Without it nothing dies, and the library is compiled as for its users.

mod act;
mod bridge;
mod check;
mod exclusive;
mod inlets;
mod readers;
mod shortage;
mod state;
mod values;
mod writers;

use crate::Directory;
use std::path::Path;
use toroni_oracle::Scenario;

pub use state::Tally;

/// Longer lists of a fuzzer hide what matters.
const MOST_OPERATIONS: usize = 100;

/// A directory for buses, one after the other.
#[derive(Debug, Default)]
pub struct Fixture(Directory);

impl Fixture {
    /// In a directory of its own.
    #[must_use]
    pub fn new() -> Self {
        Self(Directory::new())
    }

    /// Does the list that the bytes are.
    pub fn fuzz(&self, bytes: &[u8]) {
        self.perform(&Scenario::from_bytes(bytes, MOST_OPERATIONS));
    }

    /// Does a list, and says what came about.
    pub fn perform(&self, scenario: &Scenario) -> Tally {
        let buses = self.0.join("buses");
        let _removed = Removed(&buses);
        let mut state = state::State::new(&buses, &scenario.setup);
        for operation in &scenario.operations {
            state.perform(operation);
        }
        state.finish()
    }
}

/// Removes the buses, also after a failure.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
