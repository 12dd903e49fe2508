//! Recordings of messages that are not on a bus: the events in the log of a sequencer.

use crate::file::{Compress, Description, Message, Part, Sync, Topic, Totals, Unwritable, failure};
use crate::format::{self, OriginRun, RecordedLoss, Retention};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use toroni::{Lost, Origin};
use toroni_shell::failure::Failure;

/// A recording that is being written.
pub struct Export {
    part: Part,
    description: Description,
    topics: Vec<Topic>,
    numbers: HashMap<(String, bool), u32>,
}

impl Export {
    /// Begins a file that did not exist, and that gets its name when it is finished. `first` is the number of the first
    /// message.
    pub fn create(
        path: &Path,
        first: u64,
        mut notes: BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        notes.insert(format::SEQUENCE_BASE.to_owned(), first.to_string());
        let description = Description {
            encodings: vec![],
            schemas: vec![],
            compress: Compress::Zstd,
            sync: Sync::Never,
            notes,
        };
        let part = Part::create(path, &description)?;
        Ok(Self { part, description, topics: vec![], numbers: HashMap::new() })
    }

    /// Writes an event. Its number stands for its time, too, which a log does not have.
    pub fn event(
        &mut self,
        number: u64,
        (topic, to_descendants): (&str, bool),
        payload: &[u8],
        origin: Origin,
    ) -> Result<(), Failure> {
        let next = u32::try_from(self.topics.len()).unwrap_or(u32::MAX);
        let key = (topic.to_owned(), to_descendants);
        let known = *self.numbers.entry(key).or_insert(next);
        if known == next {
            self.topics.push(Topic { name: topic.to_owned(), to_descendants });
        }
        let message = Message {
            topic: known,
            retention: Retention::None,
            sequence: number,
            times: (number, number),
            payload,
            origin: Some(OriginRun::of(number, origin, Some(number))),
        };
        let written = self.part.message(&message, (&self.topics[..], &self.description));
        written.map_err(|error| self.failure(&error))
    }

    /// Writes that commands are missing.
    pub fn lost(&mut self, number: u64, lost: &Lost) -> Result<(), Failure> {
        let written = self.part.loss(&RecordedLoss::on_the_way(number, lost), (number, number));
        written.map_err(|error| self.failure(&error))
    }

    /// Writes the end of the file. Returns how many messages it has.
    pub fn finish(self) -> Result<u64, Failure> {
        let path = self.part.path.clone();
        let Totals { messages, .. } =
            self.part.finish("the end of the log").map_err(|error| failure(&path, &error))?;
        Ok(messages)
    }

    fn failure(&self, error: &Unwritable) -> Failure {
        failure(&self.part.path, error)
    }
}
