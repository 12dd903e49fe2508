//! Any bytes in the files of a member's log.

use crate::Directory;
use crate::input::Input;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use toroni_sequencer::entry::{Entry, Member, Members, Payload, Place, Vote};
use toroni_sequencer::log::inspect::Inspection;
use toroni_sequencer::log::{Log, LogError, Options, Sync};

/// So that a few entries have several segments.
const OPTIONS: Options = Options { segment_bytes: 1024, sync: Sync::Always };
const HEADER_BYTES: usize = 96;
const COPY_AT: usize = 4_096;
const COPY_BYTES: usize = 147;
const MOST_ENTRIES: u8 = 12;

/// Writes a log, damages its files, and opens it again. It does not open, or has the first of its entries as they were
/// written; if the checksums were made right again, only the place of an entry is known. If it was closed and opens, it has
/// all of them. What is appended then is found again.
pub fn fuzz(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let directory = Directory::new();
    let path = directory.path();
    let written = write(path, &mut input);
    let is_forged = damage(path, &mut input);
    let log = match Log::open(path, OPTIONS) {
        Ok(log) => log,
        Err(LogError::InUse(_)) => panic!("no process uses it"),
        Err(_) => return,
    };
    let Ok(found) = entries(&log) else { return };
    if !is_forged {
        assert_eq!(log.vote(), written.vote);
        for entry in &found {
            let index = entry.place.index;
            assert_eq!(Some(entry), written.entries.get(&index), "entry {index} has changed");
        }
        if written.closed {
            assert_eq!(log.ends(), written.ends, "synced entries are missing");
        }
    }
    let _ = log.snapshot();
    let last = log.ends().1;
    let index = last.map_or(0, |last| last.index + 1);
    let place = Place { term: u64::MAX, leader: 1, index };
    let new = Entry { place, payload: Payload::Blank };
    if append(&log, new.clone()).is_err() {
        assert!(is_forged, "it takes no entry");
        return;
    }
    let _ = log.close();
    drop(log);
    let log = match Log::open(path, OPTIONS) {
        Ok(log) => log,
        Err(error) => panic!("it opens once: {error}"),
    };
    let again = entries(&log).unwrap();
    let (end, before) = again.split_last().unwrap();
    assert_eq!((end, before), (&new, &found[..]));
    drop(log);
    let Ok(mut inspection) = Inspection::open(path) else {
        assert!(is_forged);
        return;
    };
    let mut seen = Vec::new();
    while let Ok(Some(found)) = inspection.next() {
        seen.push(found.entry);
    }
    assert!(is_forged || seen.ends_with(&again), "another reader finds other entries");
}

struct Written {
    entries: BTreeMap<u64, Entry>,
    vote: Option<Vote>,
    /// What was purged, and the last entry.
    ends: (Option<Place>, Option<Place>),
    closed: bool,
}

fn write(path: &Path, input: &mut Input<'_>) -> Written {
    let log = Log::open(path, OPTIONS).unwrap();
    let mut entries = BTreeMap::new();
    for index in 0..u64::from(input.byte() % MOST_ENTRIES) {
        let length = usize::from(input.byte());
        let payload = match length {
            0 => Payload::Blank,
            _ => Payload::Members(members(length)),
        };
        let entry = Entry { place: Place { term: 1 + index / 3, leader: 2, index }, payload };
        append(&log, entry.clone()).unwrap();
        entries.insert(index, entry);
    }
    let choices = input.byte();
    if choices & 1 != 0 {
        log.save_vote(Vote { term: 9, candidate: 3, committed: choices & 2 != 0 }).unwrap();
    }
    if choices & 4 != 0
        && let Some(entry) = entries.get(&u64::from(input.byte() % MOST_ENTRIES))
    {
        log.purge(entry.place).unwrap();
    }
    if choices & 8 != 0 {
        let index = u64::from(input.byte() % MOST_ENTRIES);
        // What was purged cannot be cut off.
        if log.ends().0.is_none_or(|purged| purged.index < index) {
            log.truncate(index).unwrap();
            entries.split_off(&index);
        }
    }
    let closed = choices & 16 != 0;
    if closed {
        log.close().unwrap();
    }
    Written { entries, vote: log.vote(), ends: log.ends(), closed }
}

fn members(length: usize) -> Members {
    let name = "n".repeat(length);
    let member = Member { name, address: "10.0.0.1:4481".to_owned(), log: [7; 16] };
    Members { voters: vec![[1].into()], members: [(1, member)].into() }
}

fn append(log: &Log, entry: Entry) -> Result<(), LogError> {
    let (done, wait) = mpsc::channel();
    log.append([entry], move |result| drop(done.send(result)))?;
    wait.recv().unwrap().unwrap();
    Ok(())
}

fn entries(log: &Log) -> Result<Vec<Entry>, LogError> {
    let (purged, last) = log.ends();
    let first = purged.map_or(0, |purged| purged.index + 1);
    let found = log.read(first..last.map_or(0, |last| last.index + 1), usize::MAX)?;
    for (entry, index) in found.iter().zip(first..) {
        assert_eq!(entry.place.index, index);
    }
    Ok(found)
}

/// Changes the files. Returns whether checksums were made right again.
fn damage(path: &Path, input: &mut Input<'_>) -> bool {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut is_forged = false;
    while !input.is_empty() {
        let file = input.pick(&files);
        let mut bytes = std::fs::read(file).unwrap();
        let at = usize::from(input.u16()) % (bytes.len() + 1);
        match input.byte() % 8 {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x40),
            1 => {
                let count = usize::from(input.byte() % 33);
                let new = input.bytes(count);
                bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
            }
            2 => bytes.truncate(at),
            3 => bytes.extend(vec![input.byte(); usize::from(input.byte())]),
            4 => bytes.iter_mut().skip(at).take(64).for_each(|byte| *byte = 0),
            // A piece of the file at another place.
            5 => {
                let from = usize::from(input.u16()) % (bytes.len() + 1);
                let piece = bytes[from..].iter().copied().take(200).collect::<Vec<_>>();
                bytes.iter_mut().skip(at).zip(piece).for_each(|(byte, new)| *byte = new);
            }
            6 => bytes.clear(),
            _ => {
                is_forged = true;
                let is_state = file.ends_with("state");
                if is_state { seal_state(&mut bytes) } else { seal_segment(&mut bytes) }
            }
        }
        std::fs::write(file, bytes).unwrap();
    }
    is_forged
}

fn seal_state(bytes: &mut [u8]) {
    for at in [0, COPY_AT] {
        if let Some(copy) = bytes.get_mut(at..at + COPY_BYTES) {
            let (covered, checksum) = copy.split_at_mut(COPY_BYTES - 4);
            checksum.copy_from_slice(&crc32c(0, covered).to_le_bytes());
        }
    }
}

/// Makes the checksums of a segment right, as far as its records have possible lengths.
fn seal_segment(bytes: &mut [u8]) {
    let Some((header, records)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let (covered, checksum) = header.split_at_mut(HEADER_BYTES - 4);
    let mut previous = crc32c(0, covered).to_le_bytes();
    checksum.copy_from_slice(&previous);
    let number = &covered[24..32];
    let mut rest = records;
    while let Some(length) = rest.first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let whole = (32 + length).next_multiple_of(8);
        let Some((record, after)) = rest.split_at_mut_checked(whole) else { return };
        if length == 0 {
            return;
        }
        record[24..28].copy_from_slice(&previous);
        let checksum = crc32c(crc32c(crc32c(0, number), &record[..4]), &record[8..32 + length]);
        previous = checksum.to_le_bytes();
        record[4..8].copy_from_slice(&previous);
        rest = after;
    }
}

/// CRC-32C of bytes that follow others.
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!before, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82F6_3B78 & 0_u32.wrapping_sub(crc & 1))
        })
    });
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_the_log() {
        assert_eq!(super::crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(super::crc32c(super::crc32c(0, b"1234"), b"56789"), 0xE306_9283);
    }
}
