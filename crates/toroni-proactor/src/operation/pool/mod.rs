//! The paper's cached allocator of results: all operations of a proactor, in chunks of entries, with a list of
//! the free ones. It is used under the proactor's lock, so creating and starting an operation takes one lock.
//! It uses the heap only when more operations exist at the same time than ever before.

use super::list::Links;
use super::{Completion, Done, Key, Operation, Outcome, Request, State};
use std::ops::{Index, IndexMut};

/// A chunk has 2 to this power operations.
const CHUNK_BITS: u32 = 7;

/// What an operation holds: descriptors in the request and the outcome, the user's buffer and handler in the
/// completion.
pub(crate) type Contents = (Request, Option<Outcome>, Option<Box<dyn Completion>>);

/// All operations of a proactor.
pub(crate) struct Pool {
    /// Chunks never move: growing copies nothing, however many operations there are.
    chunks: Vec<Box<[Operation]>>,
    free: Vec<u32>,
    live: usize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), live: 0 }
    }

    /// Returns how many are in use.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Creates an operation in state INITIALIZED.
    pub(crate) fn create(
        &mut self,
        request: Request,
        completion: Option<Box<dyn Completion>>,
    ) -> Key {
        let key = self.reserve();
        self.create_at(key, request, completion);
        key
    }

    /// Returns the key of an operation that may be created later, in a free entry that is set aside for it.
    pub(crate) fn reserve(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        self.key(index)
    }

    /// Gives back an entry that was set aside. From now on, its key identifies nothing.
    pub(crate) fn give_back(&mut self, key: Key) {
        let operation = &mut self[key.index];
        debug_assert_eq!(operation.generation, key.generation, "set aside");
        operation.generation = operation.generation.wrapping_add(1);
        self.free.push(key.index);
    }

    /// Creates an operation in the entry that was set aside.
    pub(crate) fn create_at(
        &mut self,
        key: Key,
        request: Request,
        completion: Option<Box<dyn Completion>>,
    ) {
        let operation = &mut self[key.index];
        debug_assert_eq!(operation.generation, key.generation, "set aside");
        operation.state = State::Initialized;
        operation.is_internal = completion.is_none();
        operation.request = request;
        operation.completion = completion;
        self.live += 1;
    }

    /// Frees the entry of an operation, which must be in no list.
    pub(crate) fn destroy(&mut self, index: u32) -> Option<Box<dyn Completion>> {
        let operation = &mut self[index];
        assert!(
            operation.links.iter().all(|links| links.member_of == Links::NONE.member_of),
            "an operation that is given back is in no list"
        );
        operation.generation = operation.generation.wrapping_add(1);
        operation.is_cancelled = false;
        operation.outcome = None;
        operation.request = Request::timer();
        let completion = operation.completion.take();
        self.free.push(index);
        self.live -= 1;
        completion
    }

    /// Takes out what the handler needs, and changes the state to COMPLETED.
    pub(crate) fn complete(&mut self, index: u32) -> (Box<dyn Completion>, Done) {
        let operation = &mut self[index];
        operation.become_(State::Completed);
        let done = Done {
            kind: operation.request.kind,
            descriptor: operation.request.descriptor.take(),
            outcome: operation.outcome.take().unwrap_or(Outcome::of(Ok(0))),
        };
        let completion = operation.completion.take().expect("internal reads are never dispatched");
        (completion, done)
    }

    /// Returns the operation that a key identifies, if it still exists.
    pub(crate) fn get(&self, key: Key) -> Option<&Operation> {
        let chunk = self.chunks.get((key.index >> CHUNK_BITS) as usize)?;
        let operation = &chunk[(key.index & ((1 << CHUNK_BITS) - 1)) as usize];
        (operation.generation == key.generation).then_some(operation)
    }

    /// Returns the first operation, from this index on, for which `chosen` is true.
    pub(crate) fn find(&self, from: u32, chosen: impl Fn(&Operation) -> bool) -> Option<u32> {
        let count = u32::try_from(self.chunks.len() << CHUNK_BITS).unwrap_or(u32::MAX);
        (from..count).find(|index| chosen(&self[*index]))
    }

    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self[index].generation }
    }

    /// Takes out what all operations hold, in any state. Called when the proactor closes.
    pub(crate) fn take_all(&mut self) -> Vec<Contents> {
        let pool = self.chunks.iter_mut().flatten();
        pool.map(|operation| {
            let request = std::mem::replace(&mut operation.request, Request::timer());
            (request, operation.outcome.take(), operation.completion.take())
        })
        .collect()
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let first =
            u32::try_from(self.chunks.len() << CHUNK_BITS).expect("fewer than 2^31 operations");
        let chunk = (0..1 << CHUNK_BITS).map(|_| Operation {
            generation: 0,
            links: [Links::NONE; 2],
            // As when one is over, so that an entry that is set aside is not taken for a timer.
            state: State::Completed,
            is_cancelled: false,
            is_internal: false,
            processor: 0,
            request: Request::timer(),
            outcome: None,
            completion: None,
        });
        self.chunks.push(chunk.collect());
        // Room for all operations: freeing one never allocates.
        self.free.reserve(self.chunks.len() << CHUNK_BITS);
        self.free.extend((first + 1..first + (1 << CHUNK_BITS)).rev());
        first
    }
}

impl Index<u32> for Pool {
    type Output = Operation;

    fn index(&self, index: u32) -> &Operation {
        let chunk = &self.chunks[(index >> CHUNK_BITS) as usize];
        &chunk[(index & ((1 << CHUNK_BITS) - 1)) as usize]
    }
}

impl IndexMut<u32> for Pool {
    fn index_mut(&mut self, index: u32) -> &mut Operation {
        let chunk = &mut self.chunks[(index >> CHUNK_BITS) as usize];
        &mut chunk[(index & ((1 << CHUNK_BITS) - 1)) as usize]
    }
}

#[cfg(test)]
mod tests;
