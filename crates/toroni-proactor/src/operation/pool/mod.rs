//! The cached allocator: all records of a proactor, in chunks of equal places, with a list of the free
//! ones. It is used under the proactor's lock, so creating and starting takes one lock, and no heap once
//! there have been as many records at the same time as there are now.

use super::list::Links;
use super::{Completion, Done, Key, Outcome, Record, Request, State};
use std::ops::{Index, IndexMut};

/// Records in a chunk: 2 to this power.
const CHUNK_BITS: u32 = 7;

/// What a record holds for others: the request and the outcome have descriptors, the completion what belongs
/// to the user.
pub(crate) type Contents = (Request, Option<Outcome>, Option<Box<dyn Completion>>);

/// All records.
pub(crate) struct Records {
    /// Chunks never move: growing copies nothing, however many records there are.
    chunks: Vec<Box<[Record]>>,
    free: Vec<u32>,
    live: usize,
}

impl Records {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), live: 0 }
    }

    /// How many are in use.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// A record in state INITIALIZED.
    pub(crate) fn create(
        &mut self,
        request: Request,
        completion: Option<Box<dyn Completion>>,
    ) -> Key {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let record = &mut self[index];
        record.state = State::Initialized;
        record.request = request;
        record.completion = completion;
        let generation = record.generation;
        self.live += 1;
        Key { index, generation }
    }

    /// Gives a record back. It is in no list.
    pub(crate) fn destroy(&mut self, index: u32) -> Option<Box<dyn Completion>> {
        let record = &mut self[index];
        assert!(
            record.links.iter().all(|links| links.member_of == Links::NONE.member_of),
            "a record that is given back is in no list"
        );
        record.generation = record.generation.wrapping_add(1);
        record.is_cancelled = false;
        record.outcome = None;
        record.request = Request::timer();
        let completion = record.completion.take();
        self.free.push(index);
        self.live -= 1;
        completion
    }

    /// Takes out what the handler needs, and goes over to COMPLETED.
    pub(crate) fn complete(&mut self, index: u32) -> (Box<dyn Completion>, Done) {
        let record = &mut self[index];
        record.become_(State::Completed);
        let done = Done {
            operation: record.request.operation,
            descriptor: record.request.descriptor.take(),
            outcome: record.outcome.take().unwrap_or(Outcome::of(Ok(0))),
        };
        let completion = record.completion.take().expect("internal reads are never dispatched");
        (completion, done)
    }

    /// The record of that name, if it still lives.
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Record> {
        let chunk = self.chunks.get_mut((key.index >> CHUNK_BITS) as usize)?;
        let record = &mut chunk[(key.index & ((1 << CHUNK_BITS) - 1)) as usize];
        (record.generation == key.generation).then_some(record)
    }

    /// The first of those that are chosen, from this number on.
    pub(crate) fn find(&self, from: u32, chosen: impl Fn(&Record) -> bool) -> Option<u32> {
        let count = u32::try_from(self.chunks.len() << CHUNK_BITS).unwrap_or(u32::MAX);
        (from..count).find(|index| chosen(&self[*index]))
    }

    /// The name of a record.
    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self[index].generation }
    }

    /// Takes out what all records hold, whatever their state: at the end of the proactor.
    pub(crate) fn take_all(&mut self) -> Vec<Contents> {
        let records = self.chunks.iter_mut().flatten();
        records
            .map(|record| {
                let request = std::mem::replace(&mut record.request, Request::timer());
                (request, record.outcome.take(), record.completion.take())
            })
            .collect()
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let first =
            u32::try_from(self.chunks.len() << CHUNK_BITS).expect("fewer than 2^32 records");
        let chunk = (0..1 << CHUNK_BITS).map(|_| Record {
            generation: 0,
            links: [Links::NONE; 2],
            state: State::Initialized,
            is_cancelled: false,
            processor: 0,
            request: Request::timer(),
            outcome: None,
            completion: None,
        });
        self.chunks.push(chunk.collect());
        // As many places as there are records: giving one back never allocates.
        self.free.reserve(self.chunks.len() << CHUNK_BITS);
        self.free.extend((first + 1..first + (1 << CHUNK_BITS)).rev());
        first
    }
}

impl Index<u32> for Records {
    type Output = Record;

    fn index(&self, index: u32) -> &Record {
        let chunk = &self.chunks[(index >> CHUNK_BITS) as usize];
        &chunk[(index & ((1 << CHUNK_BITS) - 1)) as usize]
    }
}

impl IndexMut<u32> for Records {
    fn index_mut(&mut self, index: u32) -> &mut Record {
        let chunk = &mut self.chunks[(index >> CHUNK_BITS) as usize];
        &mut chunk[(index & ((1 << CHUNK_BITS) - 1)) as usize]
    }
}

#[cfg(test)]
mod tests;
