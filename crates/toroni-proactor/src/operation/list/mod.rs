//! Intrusive doubly linked lists of operations. The links are in the operations, so moving an operation from
//! one list to another allocates nothing, cannot fail, and takes the same time at any position.
//!
//! A link is the index of an operation in the [`Pool`], so all of this is safe code.

use super::Pool;

/// No operation.
const END: u32 = u32::MAX;

/// The list that an operation is in. Each operation knows it, and each list checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// In no list.
    None,
    /// The dispatcher's: finished, READY or posted.
    Completed,
    /// The dispatcher's: comes after the next check of the engines.
    AfterCheck,
    /// The dispatcher's: READY as far as is known.
    Speculative,
    /// A processor's, by its number.
    Started(usize),
    /// A processor's, by its number.
    Deferred(usize),
    /// A processor's: on the way to the dispatcher.
    Finished(usize),
    /// A provider's queue of one descriptor and direction. Uses the second pair of links.
    Queued,
}

/// The two lists that an operation may be in at the same time: its owner's, and a provider's queue.
#[derive(Clone, Copy)]
enum Pair {
    Owner = 0,
    Queue = 1,
}

/// The index of the second pair.
pub(super) const QUEUE: usize = Pair::Queue as usize;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
    pub(crate) member_of: Membership,
}

impl Links {
    pub(crate) const NONE: Self = Self { previous: END, next: END, member_of: Membership::None };

    pub(super) fn has_predecessor(&self) -> bool {
        self.previous != END
    }
}

#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    length: usize,
    name: Membership,
}

impl List {
    pub(crate) const fn new(name: Membership) -> Self {
        Self { head: END, tail: END, length: 0, name }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the index of the first operation.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != END).then_some(self.head)
    }

    /// Returns the index of the operation after this one.
    pub(crate) fn after(&self, pool: &Pool, index: u32) -> Option<u32> {
        let next = self.links(pool, index).next;
        (next != END).then_some(next)
    }

    /// Appends an operation, which must not be in another list of the same pair.
    pub(crate) fn push(&mut self, pool: &mut Pool, index: u32) {
        let tail = self.tail;
        let links = self.links_mut(pool, index);
        assert_eq!(links.member_of, Membership::None, "an operation is in one list at a time");
        *links = Links { previous: tail, next: END, member_of: self.name };
        if tail == END {
            self.head = index;
        } else {
            self.links_mut(pool, tail).next = index;
        }
        self.tail = index;
        self.length += 1;
    }

    /// Inserts an operation, which must not be in another list of the same pair, after another one, or at the
    /// beginning.
    pub(crate) fn insert(&mut self, pool: &mut Pool, after: Option<u32>, index: u32) {
        let previous = after.unwrap_or(END);
        let next = after.map_or(self.head, |after| self.links(pool, after).next);
        let links = self.links_mut(pool, index);
        assert_eq!(links.member_of, Membership::None, "an operation is in one list at a time");
        *links = Links { previous, next, member_of: self.name };
        match after {
            None => self.head = index,
            Some(after) => self.links_mut(pool, after).next = index,
        }
        if next == END {
            self.tail = index;
        } else {
            self.links_mut(pool, next).previous = index;
        }
        self.length += 1;
    }

    /// Removes an operation at any position.
    pub(crate) fn remove(&mut self, pool: &mut Pool, index: u32) {
        let links = std::mem::replace(self.links_mut(pool, index), Links::NONE);
        assert_eq!(
            links.member_of, self.name,
            "an operation is removed from the list that it is in"
        );
        if links.previous == END {
            self.head = links.next;
        } else {
            self.links_mut(pool, links.previous).next = links.next;
        }
        if links.next == END {
            self.tail = links.previous;
        } else {
            self.links_mut(pool, links.next).previous = links.previous;
        }
        self.length -= 1;
    }

    /// Removes the first operation.
    pub(crate) fn pop(&mut self, pool: &mut Pool) -> Option<u32> {
        let first = self.first()?;
        self.remove(pool, first);
        Some(first)
    }

    fn pair(&self) -> usize {
        (if self.name == Membership::Queued { Pair::Queue } else { Pair::Owner }) as usize
    }

    fn links<'a>(&self, pool: &'a Pool, index: u32) -> &'a Links {
        &pool[index].links[self.pair()]
    }

    fn links_mut<'a>(&self, pool: &'a mut Pool, index: u32) -> &'a mut Links {
        let pair = self.pair();
        &mut pool[index].links[pair]
    }
}

#[cfg(test)]
mod tests;
