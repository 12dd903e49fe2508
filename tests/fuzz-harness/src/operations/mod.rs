//! Lists of operations, done to a whole bus in a directory and to the model of `tests/oracle/`, with everything
//! that comes of it compared: what is received, in which order, what is lost, refused, counted and shown.
//!
//! - `world`: a bus with its participants, and the model beside it.
//! - `writers`, `readers`: what each of them does, and what must come of it.
//! - `look`: what statistics must say.
//! - `act`: deaths, with the feature `deaths`; without it everybody lives, and the library is the one that
//!   its users have.

mod act;
mod look;
mod readers;
mod world;
mod writers;

use crate::Directory;
use std::path::Path;
use toroni_oracle::Scenario;

pub use world::Tally;

/// Longer lists of a fuzzer hide what matters.
const MOST_OPERATIONS: usize = 100;

/// A directory for buses, one after the other.
#[derive(Debug, Default)]
pub struct Stage(Directory);

impl Stage {
    /// In a directory of its own.
    #[must_use]
    pub fn new() -> Self {
        Self(Directory::new())
    }

    /// Does the list that the bytes are.
    ///
    /// # Panics
    /// If anything is not as the model has it.
    pub fn trial(&self, bytes: &[u8]) {
        self.perform(&Scenario::from_bytes(bytes, MOST_OPERATIONS));
    }

    /// Does a list, and says what came about.
    ///
    /// # Panics
    /// As [`Self::trial`] does.
    pub fn perform(&self, scenario: &Scenario) -> Tally {
        let buses = self.0.join("buses");
        let _removed = Removed(&buses);
        let mut world = world::World::new(&buses, &scenario.setup);
        for operation in &scenario.operations {
            world.perform(operation);
        }
        world.finish()
    }
}

/// Removes the buses, also when a trial fails.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
