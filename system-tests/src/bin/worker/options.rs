//! What a worker is told: `key=value` words.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use system_tests::board::Board;
use toroni::{Bus, BusConfig};

pub(crate) struct Options(HashMap<String, String>);

impl Options {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Self {
        let pair = |word: String| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => panic!("{word:?} is not key=value"),
        };
        Self(words.map(pair).collect())
    }

    /// A value that must be there.
    pub(crate) fn get<T: FromStr>(&self, key: &str) -> T {
        self.find(key).unwrap_or_else(|| panic!("no {key}=…"))
    }

    /// A value, or its default.
    pub(crate) fn or<T: FromStr>(&self, key: &str, default: T) -> T {
        self.find(key).unwrap_or(default)
    }

    pub(crate) fn find<T: FromStr>(&self, key: &str) -> Option<T> {
        let value = self.0.get(key)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{key}={value} cannot be parsed")))
    }

    /// The board of the test.
    pub(crate) fn board(&self) -> Board {
        Board::open(&self.get::<PathBuf>("board"))
    }

    /// The bus of the test, which exists.
    pub(crate) fn bus(&self) -> Bus {
        let config = BusConfig::new().directory(self.get::<PathBuf>("dir"));
        let config = config.participant_name(format!("worker-{}", self.or("id", 0_u32)));
        config.open_existing(&self.get::<String>("bus")).expect("the bus of the test")
    }
}
