//! The topic table: topic names in the file `ring`, which let a record carry a 3-byte id instead of
//! a name.
//!
//! ```text
//!            entry 0                  entry 1           entry 2              the end
//!            +-----------------------+----------------+--------------------+- - - - - -
//!    words   | length | name | zeros | length | name  | length | name  | … | anything
//!            +-----------------------+----------------+--------------------+- - - - - -
//!            0        1       multiple of 8
//!    count   3
//! ```
//!
//! The table only grows. An entry is the length of the name (one byte, 1 to 255), the name, and
//! zeros to the next multiple of 8. The id of an entry is its index. An entry does not change once
//! `count` includes it.
//!
//! Synchronisation, label TOPIC:
//!
//! 1. A writer, under the writer lock, stores an entry's bytes, then raises `count` with release.
//! 2. A reader that loads `count` with acquire sees the bytes of every entry below it, whichever
//!    writer wrote them, because each writer has seen the entries before its own.
//! 3. A writer uses an id in a record only after step 1, and commits the record after that. So a
//!    reader that has seen a valid record finds its topic in the table.
//!
//! If a writer dies before it raises `count`, the next writer overwrites the bytes of the entry.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::HashMap;

use super::frame::TopicId;
use super::name::{self, Topic, TopicError};
use crate::error::Corrupt;
use crate::hook::{self, CrashPoint, weakened};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The memory of a topic table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableMemory<'a> {
    /// The number of complete entries.
    pub(crate) count: &'a AtomicU32,
    /// The entries, one after the other. What follows the last one has no meaning.
    pub(crate) words: &'a [AtomicU64],
}

/// A private, checked copy of the topic table.
///
/// It holds at most what the table can hold, plus two words of at least 64 bits per name. A topic
/// cache belongs to one table for its whole life.
#[derive(Debug, Default)]
pub(crate) struct TopicCache {
    names: Vec<Topic>,
    ids: HashMap<Topic, TopicId>,
    /// Where the next entry starts, in words.
    end: usize,
}

/// The result of adding a topic to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    Added(TopicId),
    /// The topic was already there. Another process may have added it in the meantime.
    Existing(TopicId),
    /// There is no space for the name, or no free id. Records carry the name inline.
    Full,
}

/// The number of topics for which `reserve` takes memory.
const SOME: usize = 16;

/// Why the table's bytes are invalid.
///
/// Entries that were copied before the fault stay known. While the bytes do not change, a retry
/// returns the same error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    #[error(
        "the topic table claims {count} entries but can hold only {limit}: the bus is corrupt, \
         recreate it"
    )]
    TooMany { count: u32, limit: u32 },

    #[error(
        "the topic table claims {count} entries but had {known} before: the bus is corrupt, \
         recreate it"
    )]
    Shrunk { count: u32, known: u32 },

    #[error(
        "entry {index} of the topic table takes {wanted} words but only {available} are left: the \
         bus is corrupt, recreate it"
    )]
    Truncated { index: u32, wanted: usize, available: usize },

    #[error(
        "entry {index} of the topic table is not a topic: {fault}; the bus is corrupt, recreate it"
    )]
    Name {
        index: u32,
        #[source]
        fault: TopicError,
    },

    #[error(
        "entries {first} and {index} of the topic table are both {name}: the bus is corrupt, \
         recreate it"
    )]
    Duplicate { first: u32, index: u32, name: Topic },
}

impl TopicCache {
    /// Copies what is new in the table. If nothing is new, the cost is one load. Otherwise the time
    /// is proportional to what is new, which is at most the size of the table.
    #[inline]
    pub(crate) fn sync(&mut self, memory: TableMemory<'_>) -> Result<(), TableError> {
        let count = memory.count.load(Ordering::Acquire); // TOPIC
        if count == self.count() { Ok(()) } else { self.catch_up(memory, count) }
    }

    /// Takes memory for a few more topics.
    #[cold]
    pub(crate) fn reserve(&mut self) {
        self.names.reserve(SOME);
        self.ids.reserve(SOME);
    }

    /// Returns the number of known topics. Their ids are the numbers below it.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.names.len()).expect("there are fewer entries than topic ids")
    }

    /// Returns whether the known topics take half of the table's words, or of the ids.
    pub(crate) fn is_half_full(&self, memory: TableMemory<'_>) -> bool {
        self.end >= memory.words.len() / 2 || self.count() >= memory.most_entries() / 2
    }

    /// Returns the id of `name`, if it is known.
    pub(crate) fn lookup(&self, name: &str) -> Option<TopicId> {
        self.ids.get(name).copied()
    }

    /// Returns the topic with this id, if it is known.
    #[inline]
    pub(crate) fn name(&self, id: TopicId) -> Option<&Topic> {
        self.names.get(id.index())
    }

    pub(crate) fn names(&self) -> &[Topic] {
        &self.names
    }

    /// Gives `topic` an id, unless it has one.
    ///
    /// The caller holds the writer lock. It should call [`TopicCache::sync`] before it takes the
    /// lock: otherwise other publishers wait while this call catches up.
    pub(crate) fn append(
        &mut self,
        memory: TableMemory<'_>,
        topic: &Topic,
    ) -> Result<Appended, TableError> {
        self.sync(memory)?;
        if let Some(id) = self.lookup(topic.as_str()) {
            return Ok(Appended::Existing(id));
        }
        let Some(id) = TopicId::new(self.count()) else { return Ok(Appended::Full) };
        let Some(end) = write_entry(memory.words, self.end, topic) else {
            return Ok(Appended::Full);
        };
        hook::point(CrashPoint::TopicAppend);
        let release = weakened("topics_relaxed", Ordering::Release);
        memory.count.store(self.count().saturating_add(1), release); // TOPIC
        self.learn(topic.clone(), id, end);
        Ok(Appended::Added(id))
    }

    #[cold]
    fn catch_up(&mut self, memory: TableMemory<'_>, count: u32) -> Result<(), TableError> {
        let limit = memory.most_entries();
        if count > limit {
            return Err(TableError::TooMany { count, limit });
        }
        if count < self.count() {
            return Err(TableError::Shrunk { count, known: self.count() });
        }
        // Each iteration consumes at least one word of what is left, or ends with an error.
        while self.count() < count {
            let index = self.count();
            let id = TopicId::new(index).expect("`most_entries` leaves an id for each");
            let (name, end) = read_entry(memory.words, self.end, index)?;
            if let Some(first) = self.ids.get(&name) {
                let first = u32::try_from(first.index()).expect("ids have 24 bits");
                return Err(TableError::Duplicate { first, index, name });
            }
            self.learn(name, id, end);
        }
        Ok(())
    }

    fn learn(&mut self, topic: Topic, id: TopicId, end: usize) {
        self.names.push(topic.clone());
        self.ids.insert(topic, id);
        self.end = end;
    }
}

impl TableMemory<'_> {
    /// Returns the maximum number of entries: each takes a word and an id.
    fn most_entries(&self) -> u32 {
        let ids = TopicId::INLINE.index();
        u32::try_from(self.words.len().min(ids)).expect("ids have 24 bits")
    }
}

/// The value is the number of the entry, or the count.
impl From<TableError> for Corrupt {
    fn from(error: TableError) -> Self {
        let (what, value) = match error {
            TableError::TooMany { count, .. } | TableError::Shrunk { count, .. } => {
                ("count of the topic table", count)
            }
            TableError::Truncated { index, .. } => ("length of a topic table entry", index),
            TableError::Name { index, .. } => ("name in a topic table entry", index),
            TableError::Duplicate { index, .. } => ("duplicate topic table entry", index),
        };
        Self { what, value: value.into(), position: 0 }
    }
}

/// The maximum length of an entry, in words.
const MAX_ENTRY_WORDS: usize = entry_words(Topic::MAX_BYTES);

/// Returns the length of an entry in words: length byte, name and padding.
const fn entry_words(name_length: usize) -> usize {
    name_length.saturating_add(1).div_ceil(WORD_BYTES)
}

const WORD_BYTES: usize = size_of::<u64>();

const _: () = assert!(MAX_ENTRY_WORDS == 32 && entry_words(1) == 1 && entry_words(7) == 1);

/// Writes the bytes of an entry. No process reads them before `count` includes the entry. Returns
/// where the entry ends, or `None` if it does not fit.
fn write_entry(words: &[AtomicU64], start: usize, topic: &Topic) -> Option<usize> {
    let name = topic.as_str().as_bytes();
    let end = start.saturating_add(entry_words(name.len()));
    let entry = words.get(start..end)?;

    let mut bytes = [0; MAX_ENTRY_WORDS * WORD_BYTES];
    bytes[0] = u8::try_from(name.len()).expect("topics are at most 255 bytes long");
    bytes[1..=name.len()].copy_from_slice(name);
    let (chunks, _) = bytes.as_chunks();
    for (word, chunk) in entry.iter().zip(chunks) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    Some(end)
}

/// Copies an entry and checks every byte of the copy. Returns the topic and where the entry ends.
fn read_entry(words: &[AtomicU64], start: usize, index: u32) -> Result<(Topic, usize), TableError> {
    let left = words.get(start..).unwrap_or_default();
    let truncated = |wanted| TableError::Truncated { index, wanted, available: left.len() };

    // The length is used as loaded here. If it changes after this, the check of the name is not
    // weaker.
    let first = left.first().ok_or_else(|| truncated(1))?.load(Ordering::Relaxed);
    let length = usize::from(first.to_ne_bytes()[0]);
    let size = entry_words(length);
    let entry = left.get(..size).ok_or_else(|| truncated(size))?;

    let mut bytes = [0; MAX_ENTRY_WORDS * WORD_BYTES];
    let (chunks, _) = bytes.as_chunks_mut();
    for (chunk, word) in chunks.iter_mut().zip(entry) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    let name = name::check_bytes(&bytes[1..=length]).and_then(Topic::new);
    let name = name.map_err(|fault| TableError::Name { index, fault })?;
    Ok((name, start.saturating_add(size)))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Memory {
        count: AtomicU32,
        words: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(words: usize) -> Self {
            // Unwritten words may hold anything.
            let words = (0..words).map(|_| AtomicU64::new(0xEEEE_EEEE_EEEE_EEEE)).collect();
            Self { count: AtomicU32::new(0), words }
        }

        fn with_bytes(count: u32, bytes: &[u8]) -> Self {
            let words = bytes
                .chunks(8)
                .map(|chunk| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    AtomicU64::new(u64::from_ne_bytes(word))
                })
                .collect();
            Self { count: AtomicU32::new(count), words }
        }

        fn get(&self) -> TableMemory<'_> {
            TableMemory { count: &self.count, words: &self.words }
        }

        fn bytes(&self) -> Vec<u8> {
            self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
        }
    }

    fn topic(name: &str) -> Topic {
        Topic::new(name).unwrap()
    }

    fn id(index: u32) -> TopicId {
        TopicId::new(index).unwrap()
    }

    fn names(topic_cache: &TopicCache) -> Vec<&str> {
        topic_cache.names().iter().map(Topic::as_str).collect()
    }

    #[test]
    fn entries_have_the_documented_bytes() {
        let memory = Memory::new(5);
        let mut topic_cache = TopicCache::default();
        topic_cache.append(memory.get(), &topic("plant/x")).unwrap();
        topic_cache.append(memory.get(), &topic("plant/xy")).unwrap();
        topic_cache.append(memory.get(), &topic("a")).unwrap();
        assert_eq!(&memory.bytes()[..8], b"\x07plant/x");
        assert_eq!(&memory.bytes()[8..24], b"\x08plant/xy\0\0\0\0\0\0\0");
        assert_eq!(&memory.bytes()[24..32], b"\x01a\0\0\0\0\0\0");
        assert_eq!(memory.count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn topic_caches_see_what_others_append() {
        let memory = Memory::new(64);
        let (mut one, mut other) = (TopicCache::default(), TopicCache::default());
        assert_eq!(one.append(memory.get(), &topic("a")), Ok(Appended::Added(id(0))));
        assert_eq!(other.append(memory.get(), &topic("b/c")), Ok(Appended::Added(id(1))));
        assert_eq!(one.lookup("b/c"), None);
        assert_eq!(one.name(id(1)), None);
        assert_eq!(one.sync(memory.get()), Ok(()));
        assert_eq!(one.lookup("b/c"), Some(id(1)));
        assert_eq!(one.name(id(1)), Some(&topic("b/c")));
        assert_eq!(one.name(TopicId::INLINE), None);
        assert_eq!(one.lookup("b"), None);
        assert_eq!(one.append(memory.get(), &topic("b/c")), Ok(Appended::Existing(id(1))));
        assert_eq!(memory.count.load(Ordering::Relaxed), 2);
    }

    /// Two publishers want the same new topic. The one that gets the lock second finds the topic.
    #[test]
    fn checks_again_before_it_appends() {
        let memory = Memory::new(64);
        let (mut one, mut other) = (TopicCache::default(), TopicCache::default());
        assert_eq!(one.lookup("a"), None);
        assert_eq!(other.lookup("a"), None);
        assert_eq!(one.append(memory.get(), &topic("a")), Ok(Appended::Added(id(0))));
        assert_eq!(other.append(memory.get(), &topic("a")), Ok(Appended::Existing(id(0))));
    }

    #[test]
    fn is_full_at_the_last_word_and_stays_usable() {
        let memory = Memory::new(MAX_ENTRY_WORDS + 1);
        let mut topic_cache = TopicCache::default();
        let longest = topic(&"x".repeat(255));
        assert_eq!(topic_cache.append(memory.get(), &longest), Ok(Appended::Added(id(0))));
        assert_eq!(topic_cache.append(memory.get(), &topic("12345678")), Ok(Appended::Full));
        assert_eq!(topic_cache.append(memory.get(), &topic("1234567")), Ok(Appended::Added(id(1))));
        assert_eq!(topic_cache.append(memory.get(), &topic("a")), Ok(Appended::Full));
        assert_eq!(topic_cache.append(memory.get(), &longest), Ok(Appended::Existing(id(0))));
        let mut other = TopicCache::default();
        assert_eq!(other.sync(memory.get()), Ok(()));
        assert_eq!(names(&other), names(&topic_cache));

        let nothing = Memory::new(0);
        assert_eq!(TopicCache::default().append(nothing.get(), &topic("a")), Ok(Appended::Full));
    }

    /// If a writer dies before TOPIC, no process sees the entry, and the next entry replaces it.
    #[test]
    fn a_half_appended_entry_is_written_over() {
        let memory = Memory::new(64);
        let (mut one, mut other) = (TopicCache::default(), TopicCache::default());
        one.append(memory.get(), &topic("a")).unwrap();
        write_entry(&memory.words, one.end, &topic("a/rather/long/name")).unwrap();
        drop(one);

        assert_eq!(other.sync(memory.get()), Ok(()));
        assert_eq!(names(&other), ["a"]);
        assert_eq!(other.append(memory.get(), &topic("b")), Ok(Appended::Added(id(1))));
        assert_eq!(other.append(memory.get(), &topic("c")), Ok(Appended::Added(id(2))));
        let mut third = TopicCache::default();
        assert_eq!(third.sync(memory.get()), Ok(()));
        assert_eq!(names(&third), ["a", "b", "c"]);
    }

    #[test]
    fn refuses_impossible_counts() {
        let memory = Memory::with_bytes(3, b"\x01a\0\0\0\0\0\0\x01b\0\0\0\0\0\0");
        let mut topic_cache = TopicCache::default();
        let too_many = Err(TableError::TooMany { count: 3, limit: 2 });
        assert_eq!(topic_cache.sync(memory.get()), too_many);
        memory.count.store(u32::MAX, Ordering::Relaxed);
        let too_many = TableError::TooMany { count: u32::MAX, limit: 2 };
        assert_eq!(topic_cache.append(memory.get(), &topic("c")), Err(too_many));
        memory.count.store(2, Ordering::Relaxed);
        assert_eq!(topic_cache.sync(memory.get()), Ok(()));
        memory.count.store(1, Ordering::Relaxed);
        assert_eq!(topic_cache.sync(memory.get()), Err(TableError::Shrunk { count: 1, known: 2 }));
        assert_eq!(names(&topic_cache), ["a", "b"]);
    }

    #[test]
    fn refuses_impossible_entries() {
        let sync = |count, bytes: &[u8]| {
            let memory = Memory::with_bytes(count, bytes);
            let mut topic_cache = TopicCache::default();
            let error = topic_cache.sync(memory.get()).unwrap_err();
            assert_eq!(topic_cache.sync(memory.get()), Err(error.clone()));
            assert!(names(&topic_cache).len() < count as usize);
            error
        };
        let fault = |index, fault| TableError::Name { index, fault };
        assert_eq!(sync(1, b"\0a\0\0\0\0\0\0"), fault(0, TopicError::Empty));
        assert_eq!(
            sync(2, b"\x01a\0\0\0\0\0\0\x02b\xff\0\0\0\0\0"),
            fault(1, TopicError::NotUtf8 { valid_up_to: 1 })
        );
        assert_eq!(
            sync(1, b"\x02/a\0\0\0\0\0"),
            fault(0, TopicError::LeadingSlash { name: "/a".into() })
        );
        assert_eq!(
            sync(1, b"\x08abcdefg"),
            TableError::Truncated { index: 0, wanted: 2, available: 1 }
        );
        assert_eq!(
            sync(2, b"\x08abcdefgh\0\0\0\0\0\0\0"),
            TableError::Truncated { index: 1, wanted: 1, available: 0 }
        );
        assert_eq!(
            sync(3, b"\x01a\0\0\0\0\0\0\x01b\0\0\0\0\0\0\x01a\0\0\0\0\0\0"),
            TableError::Duplicate { first: 0, index: 2, name: topic("a") }
        );
    }

    proptest! {
        /// Runs several processes against one list of names. Some of them die before TOPIC.
        #[test]
        fn behaves_like_a_list(
            size in 0..60usize,
            steps in proptest::collection::vec(
                (0..3usize, "[ab]{1,2}(/[ab]{1,9}){0,2}", proptest::bool::weighted(0.2)),
                0..40,
            ),
        ) {
            let memory = Memory::new(size);
            let mut topic_caches = [TopicCache::default(), TopicCache::default(), TopicCache::default()];
            let mut model: Vec<Topic> = Vec::new();
            let mut used = 0;
            for (process, name, dies) in steps {
                let name = topic(&name);
                let topic_cache = &mut topic_caches[process];
                let known = model.iter().position(|other| *other == name);
                let fits = entry_words(name.as_str().len()) <= size - used;
                if dies {
                    prop_assert_eq!(topic_cache.sync(memory.get()), Ok(()));
                    prop_assert_eq!(write_entry(&memory.words, topic_cache.end, &name).is_some(), fits);
                    *topic_cache = TopicCache::default();
                    continue;
                }
                let next = id(u32::try_from(model.len()).unwrap());
                let expected = match known {
                    Some(index) => Appended::Existing(id(u32::try_from(index).unwrap())),
                    None if fits => Appended::Added(next),
                    None => Appended::Full,
                };
                prop_assert_eq!(topic_cache.append(memory.get(), &name), Ok(expected));
                if let Appended::Added(_) = expected {
                    used += entry_words(name.as_str().len());
                    model.push(name);
                }
            }
            for mut topic_cache in topic_caches {
                prop_assert_eq!(topic_cache.sync(memory.get()), Ok(()));
                prop_assert_eq!(topic_cache.names(), &model[..]);
                for (index, name) in model.iter().enumerate() {
                    let index = id(u32::try_from(index).unwrap());
                    prop_assert_eq!(topic_cache.lookup(name.as_str()), Some(index));
                    prop_assert_eq!(topic_cache.name(index), Some(name));
                }
            }
        }

        /// Whatever the bytes and the count, the result is an error or valid names, within bounds.
        #[test]
        fn never_panics_on_what_memory_holds(
            count in prop_oneof![0..8u32, any::<u32>()],
            bytes in proptest::collection::vec(prop_oneof![0..10u8, b'a'..=b'e', any::<u8>()], 0..200),
        ) {
            let memory = Memory::with_bytes(count, &bytes);
            let mut topic_cache = TopicCache::default();
            if topic_cache.sync(memory.get()).is_ok() {
                prop_assert_eq!(topic_cache.count(), count);
                let _ = topic_cache.append(memory.get(), &topic("z"));
            }
            for name in topic_cache.names() {
                prop_assert!(name::check(name.as_str()).is_ok());
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two writers take turns under a lock while a reader catches up. The reader sees a prefix of
    /// what they wrote, and the topic of every record that it sees.
    #[test]
    fn loom_readers_see_whole_entries() {
        loom::model(|| {
            struct Shared {
                count: AtomicU32,
                words: [AtomicU64; 3],
                lock: loom::sync::Mutex<()>,
                // The id + 1 of the last record, published as COMMIT does.
                record: AtomicU32,
            }
            fn memory(shared: &Shared) -> TableMemory<'_> {
                TableMemory { count: &shared.count, words: &shared.words }
            }
            let shared = Arc::new(Shared {
                count: AtomicU32::new(0),
                words: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
                lock: loom::sync::Mutex::new(()),
                record: AtomicU32::new(0),
            });
            let writers = ["a", "b/c/d/e/f"].map(|name| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = shared.lock.lock().unwrap();
                    let topic = Topic::new(name).unwrap();
                    let appended = TopicCache::default().append(memory(&shared), &topic).unwrap();
                    let Appended::Added(id) = appended else { panic!("{appended:?}") };
                    let record = u32::try_from(id.index()).unwrap() + 1;
                    shared.record.store(record, Ordering::Release);
                })
            });

            let mut topic_cache = TopicCache::default();
            topic_cache.sync(memory(&shared)).unwrap();
            let record = shared.record.load(Ordering::Acquire);
            topic_cache.sync(memory(&shared)).unwrap();
            assert!(topic_cache.count() >= record);
            for topic in topic_cache.names() {
                assert!(["a", "b/c/d/e/f"].contains(&topic.as_str()));
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
    }
}
