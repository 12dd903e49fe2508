//! Reading a log that is at rest, damaged, or being written.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::inspect::{Found, Inspection};
use super::*;

fn read(path: &Path) -> Result<Vec<Found>, LogError> {
    let mut inspection = Inspection::open(path)?;
    let mut found = vec![];
    while let Some(next) = inspection.next()? {
        found.push(next);
    }
    Ok(found)
}

fn entries(path: &Path) -> Vec<Entry> {
    let found = read(path).unwrap_or_else(|error| panic!("{error}"));
    found.into_iter().map(|found| found.entry).collect()
}

#[test]
fn all_segments_are_read_and_the_log_stays_as_it_was() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    let written: Vec<_> = (0..200).map(|index| entry(place(1, index))).collect();
    append(&log, &written);
    log.save_vote(Vote { term: 3, candidate: 1, committed: true }).expect("saved");
    // Its member still has it.
    assert_eq!(entries(directory.path()), written);
    let inspection = Inspection::open(directory.path()).expect("opened");
    let about = inspection.about().expect("a directory");
    assert_eq!((about.log, about.vote), (log.found().log, log.vote()));
    assert!(!about.closed && inspection.snapshot().expect("readable").is_none());
    log.close().expect("closed");
    drop(log);
    let contents = |name: &str| fs::read(directory.join(name)).expect("readable");
    let before: Vec<_> = directory.entries().iter().map(|name| contents(name)).collect();
    assert_eq!(entries(directory.path()), written);
    assert!(Inspection::open(directory.path()).expect("opened").about().expect("some").closed);
    let after: Vec<_> = directory.entries().iter().map(|name| contents(name)).collect();
    assert!(before == after, "reading has changed the log");
    let first = entries(&directory.join(Segment::name(0)));
    assert_eq!(first, written[..first.len()]);
    assert!(!first.is_empty() && first.len() < written.len());
}

#[test]
fn entries_are_read_from_where_the_log_was_purged() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    let written: Vec<_> = (0..200).map(|index| entry(place(1, index))).collect();
    append(&log, &written);
    log.purge(place(1, 150)).expect("purged");
    let found = entries(directory.path());
    let first = usize::try_from(found[0].place.index).expect("short");
    assert!((1..=151).contains(&first), "{first}");
    assert_eq!(found, written[first..]);
    let before = Inspection::open(directory.path()).expect("opened").before();
    assert_eq!(before.map(|place| place.index + 1), Some(first as u64));
}

#[test]
fn a_wrong_byte_before_the_last_record_is_named() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    for index in 0..4 {
        append(&log, &[entry(place(1, index))]);
    }
    log.close().expect("closed");
    drop(log);
    let path = directory.join(Segment::name(0));
    let found = read(&path).expect("whole");
    let right = fs::read(&path).expect("readable");
    let last = usize::try_from(found[3].offset).expect("short");
    // Each that is wrong is read again for a while, in case it is being written.
    for offset in (0..last).step_by(13) {
        let mut wrong = right.clone();
        wrong[offset] ^= 0x20;
        fs::write(&path, &wrong).expect("written");
        // The name of a segment says that it has one.
        let named = found.iter().rfind(|found| found.offset <= offset as u64);
        match Inspection::open(&path) {
            Err(_) => assert!(offset < 96, "byte {offset}"),
            Ok(mut inspection) => {
                let error = loop {
                    match inspection.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                };
                let Some(LogError::Rotten { offset: at, .. }) = error else {
                    panic!("byte {offset}: {error:?}")
                };
                assert_eq!(Some(at), named.map(|found| found.offset), "byte {offset}");
            }
        }
    }
    assert!(matches!(read(&directory.join("state")), Err(LogError::Foreign { .. })));
    assert!(matches!(read(&directory.join("nonesuch")), Err(LogError::Io { .. })));
    let empty = in_memory();
    assert!(matches!(read(empty.path()), Err(LogError::Foreign { .. })));
}

#[test]
fn a_log_is_read_while_its_member_writes_it() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    append(&log, &[entry(place(1, 0))]);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 1..2_000 {
                append(&log, &[entry(place(1, index))]);
            }
            ends.store(true, Ordering::Relaxed);
        });
        let mut longest = 0;
        loop {
            let is_last = ends.load(Ordering::Relaxed);
            let found = entries(directory.path());
            assert!(found.len() >= longest, "{} entries after {longest}", found.len());
            longest = found.len();
            assert!(found.iter().all(|one| *one == entry(one.place)));
            if is_last {
                break;
            }
        }
        assert_eq!(longest, 2_000);
    });
}
