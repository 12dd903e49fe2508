//! Bytes that are torn, or that change at rest.

use std::fs;
use std::path::PathBuf;

use super::super::segment::RECORD_BYTES;
use super::*;

/// A log of one segment, with what is needed to change it and to open it again.
struct Sample {
    directory: Directory,
    entries: Vec<Entry>,
    /// Where each record begins, and the end of the last.
    starts: Vec<u64>,
    bytes: Vec<u8>,
}

impl Sample {
    /// Appends one entry after the other, so that each states that all before it were synced.
    fn new(count: u64) -> Self {
        let directory = in_memory();
        let log = open(directory.path());
        let entries: Vec<_> = (0..count).map(|index| entry(place(1, index))).collect();
        let mut starts = vec![HEADER_BYTES];
        for entry in &entries {
            append(&log, std::slice::from_ref(entry));
            starts.push(log.shared.lock().tail);
        }
        drop(log);
        let bytes = fs::read(directory.join(Segment::name(0))).expect("readable");
        Self { directory, entries, starts, bytes }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(Segment::name(0))
    }

    fn open_with(&self, bytes: &[u8]) -> Result<Log, LogError> {
        fs::write(self.path(), bytes).expect("written");
        Log::open(self.directory.path(), SMALL)
    }
}

#[test]
fn a_changed_byte_before_a_mark_is_an_error_and_after_it_an_end() {
    let sample = Sample::new(9);
    let end = usize::try_from(sample.starts[9]).expect("short");
    let mut random = Random::from_environment();
    let mut errors = 0;
    for offset in 0..end + 40 {
        let mut bytes = sample.bytes.clone();
        bytes[offset] ^= 1 << random.below(8);
        let damaged = sample.starts.partition_point(|start| *start <= offset as u64);
        match (damaged, sample.open_with(&bytes)) {
            // The header, and all records but the last: the next one states that they were synced.
            (..=8, Err(LogError::Rotten { path, offset: at })) => {
                assert_eq!(path, sample.path());
                assert_eq!(at, damaged.checked_sub(1).map_or(0, |record| sample.starts[record]));
                errors += 1;
            }
            (9, Ok(log)) => assert_eq!(all(&log), sample.entries[..8], "byte {offset}"),
            (10, Ok(log)) => assert_eq!(all(&log), sample.entries, "byte {offset}"),
            (_, result) => {
                panic!("byte {offset} of record {damaged}: {:?}", result.map(|log| all(&log).len()))
            }
        }
    }
    assert_eq!(errors, sample.starts[8]);
}

#[test]
fn after_a_clean_close_every_byte_is_known_to_be_synced() {
    let sample = Sample::new(5);
    let log = sample.open_with(&sample.bytes).expect("as it was");
    log.close().expect("closed");
    drop(log);
    let state = fs::read(sample.directory.join("state")).expect("readable");
    for offset in usize::try_from(HEADER_BYTES).expect("short")
        ..usize::try_from(sample.starts[5]).expect("short")
    {
        fs::write(sample.directory.join("state"), &state).expect("written");
        let mut bytes = sample.bytes.clone();
        bytes[offset] ^= 0x10;
        assert!(matches!(sample.open_with(&bytes), Err(LogError::Rotten { .. })), "byte {offset}");
    }
}

/// Pages that were not synced persist in any order: each sector of them may be old or new.
#[test]
fn sectors_of_a_group_that_was_not_synced_may_be_missing() {
    let mut random = Random::from_environment();
    for _ in 0..150 {
        let directory = in_memory();
        let log =
            Log::open(directory.path(), Options { sync: Sync::Always, ..SMALL }).expect("opened");
        let synced: Vec<_> =
            (0..random.between(1, 12)).map(|index| entry(place(1, index))).collect();
        append(&log, &synced);
        let from = log.shared.lock().tail;
        // As in a group under way: the marks of these records name no byte of the group.
        let count = synced.len() as u64;
        let mut entries = synced.clone();
        for index in count..count + random.between(1, 12) {
            let mut inner = log.shared.lock();
            inner.synced = from;
            drop(inner);
            let (sender, done) = mpsc::channel::<()>();
            let next = entry(place(1, index));
            entries.push(next.clone());
            // The thread that syncs cannot run between the append and the reset above.
            log.append([next], move |_| drop(sender)).expect("there is room");
            let _ = done.recv_timeout(wait::LIMIT);
        }
        let tail = log.shared.lock().tail;
        drop(log);
        let path = directory.join(Segment::name(0));
        let mut bytes = fs::read(&path).expect("readable");
        let (from, tail) =
            (usize::try_from(from).expect("short"), usize::try_from(tail).expect("short"));
        let mut first_lost = tail;
        for sector in from / 512..tail.div_ceil(512) {
            if random.below(3) == 0 {
                let lost = (sector * 512).max(from)..(sector * 512 + 512).min(tail);
                if bytes[lost.clone()].iter().any(|byte| *byte != 0) {
                    first_lost = first_lost.min(lost.start);
                }
                bytes[lost].fill(0);
            }
        }
        fs::write(&path, &bytes).expect("written");
        let log = open(directory.path());
        let found = all(&log);
        assert!(found.len() >= synced.len());
        assert_eq!(found, entries[..found.len()]);
        assert!(first_lost < tail || found.len() == entries.len());
        // What follows the cut stays away, though some of it was whole.
        let mut model: Vec<_> = found;
        for _ in 0..3 {
            let next = entry(place(2, model.len() as u64));
            append(&log, std::slice::from_ref(&next));
            model.push(next);
            drop(log.shared.lock());
        }
        drop(log);
        assert_eq!(all(&open(directory.path())), model);
    }
}

#[test]
fn a_torn_append_is_cut_wherever_it_was_torn() {
    let sample = Sample::new(4);
    let (from, end) = (sample.starts[3], sample.starts[4]);
    for offset in from..end {
        let mut bytes = sample.bytes.clone();
        bytes[usize::try_from(offset).expect("short")..].fill(0);
        let log = sample.open_with(&bytes).expect("torn, and not rotten");
        let whole =
            sample.bytes[usize::try_from(offset).expect("short")..].iter().all(|byte| *byte == 0);
        assert_eq!(all(&log), sample.entries[..if whole { 4 } else { 3 }], "torn at {offset}");
    }
    assert!(end - from > RECORD_BYTES as u64);
}

#[test]
fn one_damaged_copy_of_the_vote_costs_nothing_and_two_are_an_error() {
    let directory = in_memory();
    let log = open(directory.path());
    let vote = Vote { term: 7, candidate: 2, committed: true };
    log.save_vote(vote).expect("kept");
    drop(log);
    let path = directory.join("state");
    let bytes = fs::read(&path).expect("readable");
    for copy in [0, 4096] {
        for offset in (0..bytes.len() - 4096).chain([bytes.len() - 4097]) {
            let mut bytes = bytes.clone();
            bytes[copy + offset] ^= 1;
            fs::write(&path, &bytes).expect("written");
            assert_eq!(
                open(directory.path()).vote(),
                Some(vote),
                "byte {offset} of the copy at {copy}"
            );
        }
    }
    let mut bytes = bytes.clone();
    bytes[20] ^= 1;
    bytes[4096 + 20] ^= 1;
    fs::write(&path, &bytes).expect("written");
    assert!(matches!(Log::open(directory.path(), SMALL), Err(LogError::Foreign { .. })));
}

#[test]
fn a_changed_snapshot_is_refused() {
    let directory = in_memory();
    let log = open(directory.path());
    log.save_snapshot(b"state of the machine").expect("kept");
    let path = directory.join("snapshot");
    let bytes = fs::read(&path).expect("readable");
    for offset in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[offset] ^= 1;
        fs::write(&path, &bytes).expect("written");
        assert!(log.snapshot().is_err(), "byte {offset}");
        fs::write(&path, &bytes[..offset]).expect("written");
        assert!(log.snapshot().is_err(), "{offset} bytes");
    }
}
