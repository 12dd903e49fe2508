//! The arguments of a worker: `key=value` words.

use crate::counters::SharedCounters;
use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use toroni::{Bus, BusConfig};

/// The words of one program.
#[derive(Debug)]
pub struct Options(HashMap<String, String>);

impl Options {
    pub fn parse(words: impl Iterator<Item = String>) -> Self {
        let pair = |word: String| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => panic!("{word:?} is not key=value"),
        };
        Self(words.map(pair).collect())
    }

    /// A value that must be there.
    #[must_use]
    pub fn get<T: FromStr>(&self, key: &str) -> T {
        self.find(key).unwrap_or_else(|| panic!("no {key}=…"))
    }

    /// A value, or its default.
    #[must_use]
    pub fn or<T: FromStr>(&self, key: &str, default: T) -> T {
        self.find(key).unwrap_or(default)
    }

    /// A value, if it is there.
    #[must_use]
    pub fn find<T: FromStr>(&self, key: &str) -> Option<T> {
        let value = self.0.get(key)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{key}={value} cannot be parsed")))
    }

    /// The counters of the test.
    #[must_use]
    pub fn counters(&self) -> SharedCounters {
        SharedCounters::open(&self.get::<PathBuf>("counters"))
    }

    /// The bus of the test, which exists.
    #[must_use]
    pub fn bus(&self) -> Bus {
        let config = BusConfig::new().directory(self.get::<PathBuf>("dir"));
        let config = config.participant_name(format!("worker-{}", self.or("id", 0_u32)));
        let config = config.timestamps(self.or("timestamps", false));
        config.open_existing(&self.get::<String>("bus")).expect("the bus of the test")
    }
}
