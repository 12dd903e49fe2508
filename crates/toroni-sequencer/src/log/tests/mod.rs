//! The log against a list in memory: in ordinary use, after a kill at each step, after torn and changed bytes, and
//! without room.

mod crash;
mod damage;
mod inspect;
mod reach;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use toroni_testkit::{Directory, Random, wait};

use super::*;
use crate::batch::{Builder, Command, CommandId, Publish};
use crate::entry::{Payload, Vote};

const SMALL: Options = Options { segment_bytes: 16 << 10, sync: Sync::Always };

/// A directory on which `fdatasync` costs nothing.
fn in_memory() -> Directory {
    Directory::below("/dev/shm")
}

fn place(term: u64, index: u64) -> Place {
    Place { term, leader: term % 3, index }
}

/// An entry whose contents follow from its place.
fn entry(place: Place) -> Entry {
    if place.index.is_multiple_of(7) {
        return Entry { place, payload: Payload::Blank };
    }
    let mut random = Random::new(place.index << 8 | place.term);
    entry_of(place, random.below(600))
}

/// An entry with a command of `bytes` bytes.
fn entry_of(place: Place, bytes: u64) -> Entry {
    let contents: Vec<u8> = (0..bytes).map(|at| at.to_le_bytes()[0]).collect();
    let mut builder = Builder::new();
    let id = CommandId { source: 1, series: 2, number: place.index };
    let publish = Publish { id, to_descendants: false, topic: "t", payload: &contents };
    builder.push(&Command::Publish(publish)).expect("a short command");
    Entry { place, payload: Payload::Batch(builder.finish().expect("a command").into()) }
}

fn append(log: &Log, entries: &[Entry]) {
    let (sender, done) = mpsc::channel();
    let append = log.append(entries.to_vec(), move |result| {
        let _ = sender.send(result);
    });
    append.expect("there is room");
    done.recv_timeout(wait::LIMIT).expect("an answer").expect("synced");
}

/// All entries, one at a time and many at a time.
fn all(log: &Log) -> Vec<Entry> {
    let found = log.read(0..u64::MAX, usize::MAX).expect("readable");
    let mut one_by_one = vec![];
    while let Some(next) = found.get(one_by_one.len()) {
        one_by_one
            .extend(log.read(next.place.index..u64::MAX, 0).expect("readable").into_iter().take(1));
    }
    assert_eq!(one_by_one, found);
    found
}

/// What a log has to hold.
#[derive(Default, Clone, Debug, PartialEq)]
struct Model {
    vote: Option<Vote>,
    purged: Option<Place>,
    entries: VecDeque<Entry>,
    snapshot: Option<Vec<u8>>,
}

/// A change of a log.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Entry>),
    Truncate(u64),
    Purge(Place),
    Vote(Vote),
    Snapshot(Vec<u8>),
}

impl Model {
    fn of(log: &Log) -> Self {
        Self {
            vote: log.vote(),
            purged: log.ends().0,
            entries: all(log).into(),
            snapshot: log.snapshot().expect("readable"),
        }
    }

    fn last(&self) -> Option<Place> {
        self.entries.back().map(|entry| entry.place).or(self.purged)
    }

    fn choose(&self, random: &mut Random) -> Step {
        let next = self.last().map_or(0, |place| place.index + 1);
        let term = self.last().map_or(1, |place| place.term) + u64::from(random.below(20) == 0);
        let first = self.purged.map_or(0, |place| place.index + 1);
        match random.below(20) {
            0 if next > first => {
                Step::Truncate(random.between(next.saturating_sub(60).max(first), next))
            }
            1 if next > first => {
                let upto = random.between(first, next);
                Step::Purge(self.entries[usize::try_from(upto - first).expect("short")].place)
            }
            2 if random.below(4) == 0 => Step::Purge(place(term, next + random.below(5))),
            3 => Step::Vote(Vote {
                term,
                candidate: random.below(3),
                committed: random.below(2) == 0,
            }),
            4 => Step::Snapshot(vec![7; random.index(3000)]),
            _ => Step::Append(
                (next..next + random.between(1, 12))
                    .map(|index| entry(place(term, index)))
                    .collect(),
            ),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Append(entries) => self.entries.extend(entries.iter().cloned()),
            Step::Truncate(index) => self.entries.retain(|entry| entry.place.index < *index),
            Step::Purge(place) => {
                self.purged = Some(*place);
                self.entries.retain(|entry| entry.place.index > place.index);
            }
            Step::Vote(vote) => self.vote = Some(*vote),
            Step::Snapshot(bytes) => self.snapshot = Some(bytes.clone()),
        }
    }
}

fn take(log: &Log, step: &Step) {
    match step {
        Step::Append(entries) => append(log, entries),
        Step::Truncate(index) => log.truncate(*index).expect("cut"),
        Step::Purge(place) => log.purge(*place).expect("purged"),
        Step::Vote(vote) => log.save_vote(*vote).expect("kept"),
        Step::Snapshot(bytes) => log.save_snapshot(bytes).expect("kept"),
    }
}

fn open(directory: &Path) -> Log {
    Log::open(directory, SMALL).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_log_is_what_was_done_to_it() {
    let mut random = Random::from_environment();
    for _ in 0..6 {
        let directory = in_memory();
        let mut model = Model::default();
        let mut log = open(directory.path());
        assert!(log.found().new);
        for _ in 0..150 {
            let step = model.choose(&mut random);
            take(&log, &step);
            model.take(&step);
            assert_eq!(log.ends(), (model.purged, model.last()), "{step:?}");
            if random.below(8) == 0 {
                assert_eq!(Model::of(&log), model, "{step:?}");
                let closes = random.below(2) == 0;
                if closes {
                    log.close().expect("closed");
                }
                let id = log.found().log;
                drop(log);
                log = open(directory.path());
                assert_eq!(
                    log.found(),
                    Found { log: id, new: false, closed: closes, rebooted: false }
                );
                assert_eq!(Model::of(&log), model, "reopened after {step:?}");
            }
        }
        assert_eq!(Model::of(&log), model);
    }
}

#[test]
fn a_reader_gets_as_much_as_it_takes() {
    let directory = in_memory();
    let log = open(directory.path());
    let entries: Vec<_> = (0..300).map(|index| entry(place(1, index))).collect();
    append(&log, &entries);
    drop(log);
    // Nothing is in memory now.
    let log = open(directory.path());
    for start in [0, 1, 150, 299] {
        let found = log.read(start..300, 4096).expect("readable");
        let weight: usize = found.iter().map(Entry::weight).sum();
        assert!(weight <= 4096 && !found.is_empty());
        let place = usize::try_from(start).expect("short");
        assert_eq!(found, entries[place..place + found.len()]);
    }
    assert_eq!(log.read(300..400, 4096).expect("readable"), []);
}

#[test]
fn a_log_is_of_one_process() {
    let directory = in_memory();
    let log = open(directory.path());
    assert!(matches!(Log::open(directory.path(), SMALL), Err(LogError::InUse(_))));
    drop(log);
    open(directory.path());
}

#[test]
fn a_closed_log_is_for_reading_and_another_may_open_it() {
    let directory = in_memory();
    let old = open(directory.path());
    append(&old, &[entry(place(1, 0))]);
    old.close().expect("closed");
    let new = open(directory.path());
    append(&new, &[entry(place(1, 1))]);
    assert!(matches!(old.append([entry(place(1, 1))], |_| ()), Err(LogError::Closed)));
    assert!(matches!(old.save_vote(Vote::default()), Err(LogError::Closed)));
    assert!(matches!(old.truncate(0), Err(LogError::Closed)));
    assert!(matches!(old.purge(place(1, 0)), Err(LogError::Closed)));
    assert!(matches!(old.save_snapshot(&[]), Err(LogError::Closed)));
    assert!(!old.has_room(1 << 20));
    assert_eq!(all(&old).len(), 1);
    assert_eq!(all(&new).len(), 2);
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (one, other) = (in_memory(), in_memory());
    drop((open(one.path()), open(other.path())));
    let name = Segment::name(0);
    std::fs::copy(one.join(&name), other.join(&name)).expect("copied");
    assert!(matches!(Log::open(other.path(), SMALL), Err(LogError::Foreign { .. })));
    std::fs::remove_file(one.join("state")).expect("removed");
    assert!(matches!(Log::open(one.path(), SMALL), Err(LogError::Foreign { .. })));
}

#[test]
fn an_entry_must_follow_the_last_one() {
    let directory = in_memory();
    let log = open(directory.path());
    append(&log, &[entry(place(1, 0)), entry(place(1, 1))]);
    for wrong in [1, 3] {
        assert!(matches!(log.append([entry(place(1, wrong))], |_| ()), Err(LogError::Order(_))));
    }
    append(&log, &[entry(place(1, 2))]);
    drop(log);
    assert_eq!(all(&open(directory.path())).len(), 3);
}

#[test]
fn segments_are_purged_by_bytes() {
    let directory = in_memory();
    let log = open(directory.path());
    append(&log, &(0..400).map(|index| entry(place(1, index))).collect::<Vec<_>>());
    assert_eq!(log.purgeable(u64::MAX), None);
    let upto = log.purgeable(3 * SMALL.segment_bytes).expect("more than three segments");
    log.purge(place(1, upto)).expect("purged");
    let kept = directory.entries().iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(kept, 3);
    assert_eq!(all(&log)[0].place.index, upto + 1);
}

/// The kernel refuses to allocate a segment of 16 TiB, as it does with a small one on a full disk.
#[test]
fn a_full_disk_costs_nothing_that_was_answered() {
    let directory = in_memory();
    let small = open(directory.path());
    append(&small, &[entry(place(1, 0))]);
    drop(small);
    let log = Log::open(directory.path(), Options { segment_bytes: 1 << 44, sync: Sync::Always })
        .expect("opened");
    let mut index = 1;
    while log.has_room(entry(place(1, index)).weight()) {
        append(&log, &[entry(place(1, index))]);
        index += 1;
    }
    assert!(index > 10);
    let full = (index..index + 100).map(|index| entry(place(1, index)));
    assert!(matches!(log.append(full, |_| ()), Err(LogError::Full(_))));
    let vote = Vote { term: 9, candidate: 1, committed: false };
    log.save_vote(vote).expect("a vote needs no room");
    drop(log);
    let log = open(directory.path());
    let found = all(&log);
    assert!(found.len() >= usize::try_from(index).expect("short"));
    assert!(found.iter().all(|found| *found == entry(found.place)));
    assert_eq!(log.vote(), Some(vote));
    assert!(log.has_room(4096));
    append(&log, &[entry(place(1, found.len() as u64))]);
}

#[test]
fn who_synced_in_intervals_is_uncertain_after_a_reboot() {
    for (sync, is_closed, wanted) in
        [(Sync::OFTEN, false, true), (Sync::OFTEN, true, false), (Sync::Always, false, false)]
    {
        let directory = in_memory();
        let log = Log::open(directory.path(), Options { sync, ..SMALL }).expect("opened");
        append(&log, &[entry(place(1, 0))]);
        if is_closed {
            log.close().expect("closed");
        }
        drop(log);
        Log::forget_boot(directory.path()).expect("written");
        // Starting again, with whatever setting, makes nothing certain.
        for _ in 0..2 {
            assert_eq!(
                open(directory.path()).is_uncertain(),
                wanted,
                "{sync:?}, closed: {is_closed}"
            );
        }
        open(directory.path()).settle().expect("written");
        assert!(!open(directory.path()).is_uncertain());
    }
}

#[test]
fn a_log_that_left_its_group_has_another_id_and_the_same_entries() {
    let directory = in_memory();
    let log = open(directory.path());
    append(&log, &[entry(place(1, 0))]);
    log.save_snapshot(b"state").expect("kept");
    let before = log.found().log;
    let id = log.leave().expect("written");
    drop(log);
    let log = open(directory.path());
    assert_ne!(id, before);
    assert_eq!(log.found().log, id);
    assert_eq!(all(&log), [entry(place(1, 0))]);
    assert_eq!(log.snapshot().expect("of this log").as_deref(), Some(&b"state"[..]));
}

/// The file of a snapshot is allocated before, so a disk that fills up in between does no harm.
#[test]
fn room_for_a_snapshot_is_reserved() {
    let directory = in_memory();
    let log = open(directory.path());
    let new = log.reserve_snapshot(100_000).expect("room");
    let path = directory.join("snapshot-1.tmp");
    assert!(path.metadata().expect("allocated").len() >= 100_000);
    new.write(b"shorter").expect("room");
    log.replace_snapshot(new).expect("renamed");
    assert_eq!(log.snapshot().expect("readable").as_deref(), Some(&b"shorter"[..]));
    drop(log.reserve_snapshot(10).expect("room"));
    assert!(!directory.join("snapshot-2.tmp").exists(), "it was given up");
    assert!(log.reserve_snapshot(1 << 50).is_err(), "no disk is that large");
}

#[test]
fn a_log_can_begin_after_a_place_that_it_never_had() {
    let directory = in_memory();
    let options = Options { segment_bytes: 8 << 10, sync: Sync::OFTEN };
    // The first entry may need a segment of its own.
    for first in [10, 20_000] {
        for begin in [0, 7] {
            let path = directory.join(format!("{first} {begin}"));
            let log = Log::open(&path, options).expect("opened");
            log.purge(place(1, begin)).expect("purged");
            let entries: Vec<_> = (1..=200)
                .map(|index| {
                    entry_of(place(1, begin + index), if index == 1 { first } else { 100 })
                })
                .collect();
            entries.iter().for_each(|entry| append(&log, std::slice::from_ref(entry)));
            log.close().expect("closed");
            drop(log);
            let log = Log::open(&path, options).expect("the same log");
            assert_eq!(log.ends(), (Some(place(1, begin)), Some(place(1, begin + 200))));
            assert_eq!(all(&log), entries);
        }
    }
}

#[test]
fn what_was_purged_is_not_passed_over() {
    let directory = in_memory();
    let log = open(directory.path());
    let entries: Vec<_> = (0..10).map(|index| entry(place(1, index))).collect();
    append(&log, &entries);
    log.purge(place(1, 5)).expect("purged");
    for start in 1..6 {
        let error = log.read(start..10, usize::MAX).expect_err("it is gone");
        assert!(matches!(error, LogError::Gone { wanted, first: 6 } if wanted == start), "{error}");
    }
    for start in [0, 6] {
        assert_eq!(log.read(start..10, usize::MAX).expect("readable"), entries[6..]);
    }
}

#[test]
fn what_is_committed_is_a_lower_bound_that_is_in_the_log() {
    let directory = in_memory();
    let open_new = || {
        Log::open(directory.path(), Options { segment_bytes: 64 << 10, ..SMALL }).expect("opened")
    };
    let log = open_new();
    assert_eq!(log.committed().expect("readable"), None);
    let entries: Vec<_> = (0..100).map(|index| entry_of(place(1, index), 1000)).collect();
    for entry in &entries {
        append(&log, std::slice::from_ref(entry));
        log.note_committed(entry.place);
    }
    // Without a close, as after a kill: some of the last ones may be missing.
    drop(log);
    let log = open_new();
    let found = log.committed().expect("readable").expect("known");
    assert!((60..100).contains(&found.index), "{found:?}");
    assert_eq!(found, place(1, found.index));
    // With a close, none is.
    log.note_committed(place(1, 99));
    log.close().expect("closed");
    drop(log);
    let log = open_new();
    assert_eq!(log.committed().expect("readable"), Some(place(1, 99)));
    // One that the log does not have, or has otherwise, is not believed.
    log.truncate(99).expect("cut");
    assert_eq!(log.committed().expect("readable"), None);
    append(&log, &[entry(place(2, 99))]);
    assert_eq!(log.committed().expect("readable"), None);
    log.note_committed(place(2, 99));
    log.leave().expect("written");
    assert_eq!(log.committed().expect("readable"), None, "it is another log now");
    // Nor is a damaged one.
    log.note_committed(place(2, 99));
    log.close().expect("closed");
    drop(log);
    assert!(open_new().committed().expect("readable").is_some());
    let path = directory.join("committed");
    let bytes = std::fs::read(&path).expect("readable");
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        std::fs::write(&path, wrong).expect("written");
        assert_eq!(open_new().committed().expect("readable"), None, "byte {at}");
    }
    std::fs::write(&path, &bytes[..40]).expect("written");
    assert_eq!(open_new().committed().expect("readable"), None);
}

#[test]
fn what_follows_an_entry_is_known() {
    let directory = in_memory();
    let log = open(directory.path());
    assert_eq!(log.after(None), (0, 0));
    let entries: Vec<_> = (0..200).map(|index| entry_of(place(1, index), 1000)).collect();
    append(&log, &entries);
    let (all, count) = log.after(None);
    assert!(count == 200 && (200_000..400_000).contains(&all), "{all} bytes, {count} entries");
    let (half, count) = log.after(Some(place(1, 99)));
    assert!(count == 100 && half < all && half >= 100_000, "{half} bytes, {count} entries");
    assert_eq!(log.after(Some(place(1, 199))), (0, 0));
    // After a start, no less.
    drop(log);
    let log = open(directory.path());
    let (again, count) = log.after(Some(place(1, 99)));
    assert!(count == 100 && again >= half && again <= all, "{again} bytes, {count} entries");
    log.purge(place(1, 199)).expect("purged");
    assert_eq!(log.after(Some(place(1, 199))), (0, 0));
}

/// A member that leads again after a kill reads from the disk for its followers, while the next leader cuts its log.
#[test]
fn what_is_cut_off_while_it_is_read_is_read_again() {
    let directory = in_memory();
    let options = Options { segment_bytes: 256 << 10, sync: Sync::OFTEN };
    let entries = |indices: Range<u64>, term| -> Vec<_> {
        indices.map(|index| entry_of(place(term, index), 50 + 7 * (index % 40))).collect()
    };
    let log = Log::open(directory.path(), options).expect("opened");
    append(&log, &entries(0..500, 1));
    drop(log);
    // Nothing of it is in memory.
    let log = Log::open(directory.path(), options).expect("opened");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !ends.load(Ordering::Relaxed) {
                let found = log.read(100..u64::MAX, usize::MAX).expect("nothing is rotten");
                for (index, entry) in (100..).zip(&found) {
                    assert_eq!(entry.place.index, index);
                }
                assert!(found.is_sorted_by_key(|entry| entry.place.term));
                assert!(found.len() >= 200);
                reads += 1;
            }
            reads
        });
        for term in 2..400 {
            log.truncate(300).expect("cut");
            append(&log, &entries(300..420, term));
            if reader.is_finished() {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("the reader does not fail") > 0);
    });
}
