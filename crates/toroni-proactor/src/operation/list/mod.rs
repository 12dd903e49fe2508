//! Intrusive doubly linked lists of records: the links are in the records, so that moving a record
//! from list to list allocates nothing, cannot fail, and takes the same time wherever it stands.
//!
//! A link is the number of a record in [`Records`], which makes all of this safe code.

use super::Records;

/// No record.
const END: u32 = u32::MAX;

/// Which list a record is in. Each record knows, and each list checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// In none.
    None,
    /// The dispatcher's.
    Completed,
    /// The dispatcher's: behind the next look at what is finished.
    BehindLook,
    /// The dispatcher's: READY as far as anybody knows.
    Speculative,
    /// A processor's, by its number.
    Started(usize),
    /// A processor's, by its number.
    Deferred(usize),
    /// A processor's: finished, on the way to the dispatcher.
    Finished(usize),
    /// A provider's queue of one descriptor and direction. Held by the second pair of links.
    Queued,
}

/// The two lists that a record may be in at the same time: its owner's, and a provider's queue.
#[derive(Clone, Copy)]
enum Pair {
    Owner = 0,
    Queue = 1,
}

/// The number of the second pair.
pub(super) const QUEUE: usize = Pair::Queue as usize;

/// One pair of links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
    pub(crate) member_of: Membership,
}

impl Links {
    pub(crate) const NONE: Self = Self { previous: END, next: END, member_of: Membership::None };

    /// Whether there is a record in front of this one.
    pub(super) fn is_behind_another(&self) -> bool {
        self.previous != END
    }
}

/// A list.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    length: usize,
    name: Membership,
}

impl List {
    /// An empty list.
    pub(crate) const fn new(name: Membership) -> Self {
        Self { head: END, tail: END, length: 0, name }
    }

    /// How many records are in it.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first record's number.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != END).then_some(self.head)
    }

    /// The number of the record behind this one.
    pub(crate) fn after(&self, records: &Records, index: u32) -> Option<u32> {
        let next = self.links(records, index).next;
        (next != END).then_some(next)
    }

    /// Adds a record, which must be in no such list, at the end.
    pub(crate) fn push(&mut self, records: &mut Records, index: u32) {
        let tail = self.tail;
        let links = self.links_mut(records, index);
        assert_eq!(links.member_of, Membership::None, "a record is in one list at a time");
        *links = Links { previous: tail, next: END, member_of: self.name };
        if tail == END {
            self.head = index;
        } else {
            self.links_mut(records, tail).next = index;
        }
        self.tail = index;
        self.length += 1;
    }

    /// Adds a record, which must be in no such list, behind another one, or at the beginning.
    pub(crate) fn insert(&mut self, records: &mut Records, behind: Option<u32>, index: u32) {
        let previous = behind.unwrap_or(END);
        let next = behind.map_or(self.head, |behind| self.links(records, behind).next);
        let links = self.links_mut(records, index);
        assert_eq!(links.member_of, Membership::None, "a record is in one list at a time");
        *links = Links { previous, next, member_of: self.name };
        match behind {
            None => self.head = index,
            Some(behind) => self.links_mut(records, behind).next = index,
        }
        if next == END {
            self.tail = index;
        } else {
            self.links_mut(records, next).previous = index;
        }
        self.length += 1;
    }

    /// Takes a record out, wherever it stands.
    pub(crate) fn remove(&mut self, records: &mut Records, index: u32) {
        let links = std::mem::replace(self.links_mut(records, index), Links::NONE);
        assert_eq!(links.member_of, self.name, "a record is removed from the list that it is in");
        if links.previous == END {
            self.head = links.next;
        } else {
            self.links_mut(records, links.previous).next = links.next;
        }
        if links.next == END {
            self.tail = links.previous;
        } else {
            self.links_mut(records, links.next).previous = links.previous;
        }
        self.length -= 1;
    }

    /// Takes the first record out.
    pub(crate) fn pop(&mut self, records: &mut Records) -> Option<u32> {
        let first = self.first()?;
        self.remove(records, first);
        Some(first)
    }

    fn pair(&self) -> usize {
        (if self.name == Membership::Queued { Pair::Queue } else { Pair::Owner }) as usize
    }

    fn links<'a>(&self, records: &'a Records, index: u32) -> &'a Links {
        &records[index].links[self.pair()]
    }

    fn links_mut<'a>(&self, records: &'a mut Records, index: u32) -> &'a mut Links {
        let pair = self.pair();
        &mut records[index].links[pair]
    }
}

#[cfg(test)]
mod tests;
