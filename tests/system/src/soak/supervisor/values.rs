//! Retained topics: their values after each kill.

use super::{BUS, Soak};
use crate::soak::mix::{Lane, MANY};
use crate::soak::source;
use std::collections::BTreeMap;

/// The sequence of the newest value of each topic that was read.
pub(super) type Newest = BTreeMap<String, u64>;

impl Soak<'_> {
    /// Declares the topics that all publishers share, with a handle that leaves again.
    pub(super) fn retain_topics(&self) {
        let bus = self.root.config().open_existing(BUS).expect("the bus");
        for number in 0..MANY {
            let publisher = bus.publisher(&Lane::Many.topic(0, 0, number)).expect("a publisher");
            publisher.retained().expect("a retained topic");
        }
    }

    /// Reads all values. Each is whole, and none is older than it was, or missing: a publisher that dies leaves the newest
    /// message that it committed.
    pub(super) fn check_values(&mut self) {
        let read = self.bus.as_ref().expect("the bus").retained_matching("soak/many/*");
        let mut found = Newest::new();
        let mut wrong = None;
        for value in read.expect("values") {
            match value {
                Ok(value) => {
                    found.insert(value.topic().to_owned(), value.sequence());
                    wrong = source::read(Lane::Many, 0, value.payload()).err().or(wrong);
                }
                // Publishers publish on.
                Err(toroni::RetainedError::Unstable { topic }) => {
                    let before = self.newest.get(&topic).copied();
                    found.insert(topic, before.unwrap_or_default());
                }
                Err(error) => wrong = Some(error.to_string()),
            }
        }
        self.figures.values[1] += found.len() as u64;
        let is_older = |(topic, before): &(&String, &u64)| found.get(*topic) < Some(*before);
        if let Some((topic, before)) = self.newest.iter().find(is_older) {
            let now = found.get(topic);
            wrong = Some(format!("the value of {topic} was {before}, and after a kill is {now:?}"));
        }
        self.newest = found;
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }
}
