//! A directory of buses for one test.

use std::path::Path;
use toroni::{Bus, BusConfig};
use toroni_testkit::Directory;

/// A fresh directory in memory, removed with all its buses when dropped.
pub(crate) struct Fixture(Directory);

impl Fixture {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    #[allow(dead_code, reason = "each test takes what it needs")]
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A configuration for buses in it.
    pub(crate) fn config(&self) -> BusConfig {
        BusConfig::new().directory(self.path())
    }

    /// A bus with the defaults.
    #[allow(dead_code, reason = "each test takes what it needs")]
    pub(crate) fn open(&self) -> Bus {
        self.config().open("b").unwrap()
    }
}
