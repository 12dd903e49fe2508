//! What the owner of the writer lock writes, store by store, in the order of `ring/writer.rs`.
//!
//! While it holds the lock, no other process changes the words that it reads here. Its loads are therefore not steps.

use crate::mistakes::Mistake;
use crate::setup::{Setup, Work};
use crate::state::{Committed, Fault, NO_ENTRY, RecordStart, State};
use crate::word;

/// One store to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The count of the topic table, with which the topic of a message is in it.
    Topic(u8),
    /// A word of a payload.
    Payload(u8, u8),
    /// The header of a record of a batch that is not its first.
    Header(u8, u8),
    /// The 0 that ends the stream after a record.
    End(u8),
    /// An index entry loses its position.
    EntryAway(u8),
    /// An index entry gets its sequence.
    EntrySequence(u8, u8),
    /// An index entry gets its position.
    EntryPosition(u8, u8),
    /// The bound of a topic.
    Bound(u8, u8),
    /// `next`.
    Next(u8),
    /// The header word of the first record, which makes this many records visible.
    Commit(u8, u8, u8),
    /// `sequence`.
    Sequence(u8),
    /// `tail`.
    Tail(u8),
    /// `reserved`, in a mistake.
    Reserved(u8),
}

/// A message to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) stamp: u8,
    pub(crate) length: u8,
}

/// The messages under one commit: a whole batch, or the record that a burst is at.
pub(crate) fn messages(setup: &Setup, publisher: usize, work: u8, item: u8) -> Vec<Message> {
    let call = &setup.works[publisher][usize::from(work)];
    let first = setup.stamp(publisher, work.into());
    let all =
        (first..).zip(call.lengths()).map(|(stamp, length)| Message { stamp, length: *length });
    match call {
        Work::Burst(_) => all.skip(item.into()).take(1).collect(),
        Work::One(_) | Work::Batch(_) => all.collect(),
    }
}

pub(crate) fn bytes(messages: &[Message]) -> u8 {
    messages.iter().map(|message| 1 + message.length).sum()
}

/// All stores of a commit from `from` on, in order.
pub(crate) fn stores(
    setup: &Setup,
    state: &State,
    from: RecordStart,
    messages: &[Message],
) -> Vec<Store> {
    let has = |mistake| setup.mistake == Some(mistake);
    let mut stores = Vec::with_capacity(16);
    let mut at = from;
    let (mut commit, mut bounds) = (None, Vec::new());
    for message in messages {
        let topics = setup.topic_bit(message.stamp).ilog2() + 1;
        if topics > setup.known_topics.into() {
            stores.push(Store::Topic(crate::setup::small(topics as usize)));
        }
        let header = word::header(message.stamp, message.length);
        for index in 0..message.length {
            stores
                .push(Store::Payload(at.position + 1 + index, word::payload(message.stamp, index)));
        }
        match commit {
            None => {
                commit =
                    Some(Store::Commit(at.position, header, crate::setup::small(messages.len())));
            }
            Some(_) => stores.push(Store::Header(at.position, header)),
        }
        let next =
            RecordStart { position: at.position + 1 + message.length, sequence: at.sequence + 1 };
        let is_last = next.position == from.position + bytes(messages);
        // `write` ends the stream before it indexes blocks, `write_batch` after all records.
        if messages.len() == 1 {
            stores.push(Store::End(next.position));
        }
        index_blocks(setup, state, at.position, next, from.position, &mut stores);
        if setup.passes {
            let topic = crate::setup::small(setup.topic_bit(message.stamp).ilog2() as usize);
            bounds.push(Store::Bound(topic, next.position));
        }
        if messages.len() > 1 && is_last {
            stores.push(Store::End(next.position));
        }
        at = next;
    }
    if !has(Mistake::BoundAfterCommit) {
        stores.append(&mut bounds);
    }
    stores.push(Store::Next(at.position));
    stores.extend(commit);
    misplace_commit(setup, &mut stores);
    stores.push(Store::Sequence(at.sequence));
    stores.push(Store::Tail(at.position));
    stores.append(&mut bounds);
    if has(Mistake::ReservedAfterCopy) {
        let wanted = wanted(setup, from.position, bytes(messages));
        if wanted > state.ring.reserved {
            stores.push(Store::Reserved(wanted));
        }
    }
    stores
}

fn index_blocks(
    setup: &Setup,
    state: &State,
    position: u8,
    next: RecordStart,
    tail: u8,
    stores: &mut Vec<Store>,
) {
    let block = setup.words / setup.blocks;
    for number in position / block + 1..=next.position / block {
        let entry = number % setup.blocks;
        let old = state.ring.index[usize::from(entry)].position;
        // The stores are listed again for each step: those of this commit are not stale.
        let is_stale = (tail + 1..NO_ENTRY).contains(&old) && old != next.position;
        if setup.mistake == Some(Mistake::StaleIndexEntry) && is_stale {
            continue;
        }
        stores.push(Store::EntryAway(entry));
        stores.push(Store::EntrySequence(entry, next.sequence));
        stores.push(Store::EntryPosition(entry, next.position));
    }
}

fn misplace_commit(setup: &Setup, stores: &mut Vec<Store>) {
    let is_commit = |store: &Store| matches!(store, Store::Commit(..));
    let Some(place) = stores.iter().position(is_commit) else { return };
    let to = match setup.mistake {
        Some(Mistake::CommitBeforePayload) => 0,
        Some(Mistake::BatchCommittedEarly) => {
            stores.iter().position(|store| matches!(store, Store::Header(..))).unwrap_or(place)
        }
        Some(Mistake::EndWordAfterCommit) => {
            stores.iter().position(|store| matches!(store, Store::End(_))).unwrap_or(place)
        }
        _ => return,
    };
    let commit = stores.remove(place);
    stores.insert(to, commit);
}

/// What `reserved` has to become for `bytes` more.
pub(crate) fn wanted(setup: &Setup, tail: u8, bytes: u8) -> u8 {
    let block = setup.words / setup.blocks;
    (tail + bytes + 1).div_ceil(block) * block
}

/// Carries out one store.
pub(crate) fn carry_out(state: &mut State, store: Store, messages: &[Message]) {
    match store {
        Store::Payload(at, word) | Store::Header(at, word) => state.set_word(at, word),
        Store::Topic(topics) => state.ring.topics = state.ring.topics.max(topics),
        Store::End(at) => state.set_word(at, 0),
        Store::EntryAway(entry) => state.ring.index[usize::from(entry)].position = NO_ENTRY,
        Store::EntrySequence(entry, sequence) => {
            state.ring.index[usize::from(entry)].sequence = sequence;
        }
        Store::EntryPosition(entry, position) => {
            state.ring.index[usize::from(entry)].position = position;
        }
        Store::Commit(at, word, _) => {
            state.set_word(at, word);
            if state.truth.end != at {
                state.fail(Fault::Undone);
            }
            let mut start = at;
            for message in messages {
                state.truth.committed.push(Committed { start, stamp: message.stamp });
                start += 1 + message.length;
            }
            state.truth.end = start;
        }
        Store::Bound(topic, end) => state.ring.bounds[usize::from(topic)] = end,
        Store::Next(end) => state.ring.next = end,
        Store::Sequence(sequence) => state.ring.sequence = sequence,
        Store::Tail(tail) => state.ring.tail = tail,
        Store::Reserved(reserved) => state.ring.reserved = reserved,
    }
}

/// Counts records from the newest entry of the index that is not beyond the stored tail to the first 0.
pub(crate) fn find_end(setup: &Setup, state: &State) -> Option<RecordStart> {
    let ring = &state.ring;
    let valid = state.oldest()..=ring.tail;
    let newest = ring
        .index
        .iter()
        .filter(|entry| entry.position != NO_ENTRY && valid.contains(&entry.position))
        .max_by_key(|entry| entry.position);
    let mut at = *newest?;
    loop {
        let word = state.word(at.position);
        if word == 0 {
            break;
        }
        let words = word::record_words(word);
        if !word::is_header(word)
            || words > setup.words / 2
            || at.position + words + 1 > ring.reserved
        {
            return None;
        }
        at = RecordStart { position: at.position + words, sequence: at.sequence + 1 };
    }
    if at.position < ring.tail {
        return None;
    }
    match setup.mistake {
        Some(Mistake::NoRollForward) => at.position = ring.tail,
        Some(Mistake::RecoveryTrustsSequence) => {
            at.sequence = ring.sequence + u8::from(at.position > ring.tail);
        }
        _ => {}
    }
    Some(at)
}
