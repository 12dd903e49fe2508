//! The shim of a member: its clock is set, its disk fails, or its power is taken. See `shim/lib.rs`.

#[path = "../../shim/journal.rs"]
mod journal;

use self::journal::{BOOT, CONTROL, DIRECTORY, FAIL, FAILED, JOURNAL, KEEP, Record, WALL, WORDS};
pub(super) use self::journal::{PWRITE, RENAME, SYNC};
use crate::Random;
use crate::shared::words_of;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A disk writes as many bytes at a time, or none of them.
const SECTOR: usize = 512;

/// What stands between the node of a member and the kernel.
pub(super) struct Shim {
    /// Where its files are, on the disk of the member.
    directory: PathBuf,
    log: PathBuf,
    words: &'static [AtomicU64],
}

impl Shim {
    /// For the node whose log is in this directory, with files in another one of the same disk.
    pub(super) fn new(directory: PathBuf, log: PathBuf) -> Self {
        fs::create_dir_all(&directory).expect("a directory");
        let words = words_of(&directory.join("control"), WORDS);
        let shim = Self { directory, log, words };
        shim.reboot(1);
        shim
    }

    /// Puts it between the kernel and a program that is started.
    pub(super) fn prepare(&self, command: &mut Command) {
        command.env("LD_PRELOAD", crate::program::shim()).env(DIRECTORY, &self.log);
        for (name, file) in [(CONTROL, "control"), (JOURNAL, "journal"), (BOOT, "boot")] {
            command.env(name, self.directory.join(file));
        }
    }

    /// Sets the wall clock of the node.
    pub(super) fn set_clock(&self, ahead: Duration, is_back: bool) {
        let ns = i64::try_from(ahead.as_nanos()).expect("some hours");
        let ns = if is_back { -ns } else { ns };
        self.words[WALL].store(ns.cast_unsigned(), Ordering::Relaxed);
    }

    /// Lets these calls fail.
    pub(super) fn fail(&self, calls: u64) {
        self.words[FAILED].store(0, Ordering::Relaxed);
        self.words[FAIL].store(calls, Ordering::Relaxed);
    }

    /// How many have failed.
    pub(super) fn failed(&self) -> u64 {
        self.words[FAILED].load(Ordering::Relaxed)
    }

    /// From now on, it is known what a power failure can take.
    pub(super) fn keep(&self) {
        self.words[KEEP].store(1, Ordering::Relaxed);
    }

    /// Everything is as it should be again.
    pub(super) fn heal(&self) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn reboot(&self, boot: u64) {
        let id = format!("{boot:08x}-0000-4000-8000-000000000000\n");
        fs::write(self.directory.join("boot"), id).expect("a file");
    }

    /// After the node was killed, takes what was not synced since [`Self::keep`]: all, a part or nothing of each write, and renames.
    /// Returns how many writes and renames that concerns.
    pub(super) fn lose_power(&self, random: &mut Random) -> usize {
        let journal = fs::read(self.directory.join("journal")).unwrap_or_default();
        let lost = lose(&unsynced(&journal, &self.log), random);
        for entry in fs::read_dir(&self.directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"journal")) {
                fs::remove_file(path).expect("a file of the journal");
            }
        }
        self.reboot(random.below(1 << 32));
        lost
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// What is not on the disk for sure, in order.
fn unsynced(mut journal: &[u8], directory: &Path) -> Vec<Record> {
    let length = journal.len();
    let mut all: Vec<(u64, Record)> = vec![];
    let mut synced: HashMap<Vec<u8>, u64> = HashMap::new();
    loop {
        let at = (length - journal.len()) as u64;
        let Some(record) = Record::decode(&mut journal) else { break };
        match &record {
            Record::Synced { path, upto } => {
                let known = synced.entry(path.clone()).or_default();
                *known = (*known).max(*upto);
            }
            Record::Renamed { from, to, .. } => {
                // What was synced of the file is synced by its new name, too.
                if let Some(upto) = synced.remove(from) {
                    synced.insert(to.clone(), upto);
                }
                for (_, earlier) in &mut all {
                    if let Record::Written { path, .. } = earlier
                        && path == from
                    {
                        path.clone_from(to);
                    }
                }
                all.push((at, record));
            }
            Record::Written { .. } => all.push((at, record)),
        }
    }
    let directory = directory.as_os_str().as_bytes();
    let is_synced = |at: &u64, path: &[u8]| synced.get(path).is_some_and(|upto| at < upto);
    all.retain(|(at, record)| match record {
        Record::Written { path, .. } => !is_synced(at, path),
        _ => !is_synced(at, directory),
    });
    all.into_iter().map(|(_, record)| record).collect()
}

/// Loses some of what was not synced: first all of it, and then some is done again, in its order.
fn lose(unsynced: &[Record], random: &mut Random) -> usize {
    let open = |path: &[u8]| File::options().write(true).open(path_of(path)).ok();
    for record in unsynced.iter().rev() {
        if let Record::Written { path, offset, before, after } = record
            && let Some(file) = open(path)
        {
            let mut bytes = before.clone();
            bytes.resize(after.len(), 0);
            file.write_all_at(&bytes, *offset).expect("what was there before");
        }
    }
    let mut lost = 0;
    for record in unsynced {
        match record {
            Record::Written { path, offset, after, .. } => {
                let (kind, file) = (random.below(3), open(path));
                let Some(file) = file else { continue };
                for (at, sector) in after.chunks(SECTOR).enumerate() {
                    if kind == 0 || kind == 1 && random.below(2) == 0 {
                        let offset = offset + (at * SECTOR) as u64;
                        file.write_all_at(sector, offset).expect("a sector");
                    }
                }
                lost += usize::from(kind > 0);
            }
            Record::Renamed { from, to, kept } if random.below(2) == 0 => {
                if fs::rename(path_of(to), path_of(from)).is_ok() && !kept.is_empty() {
                    fs::rename(path_of(kept), path_of(to)).expect("what had the name before");
                }
                lost += 1;
            }
            Record::Renamed { .. } | Record::Synced { .. } => {}
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::Directory;

    /// Runs a command of the shell, with the log in this directory.
    fn run(shim: &Shim, text: &str) -> (bool, String) {
        let mut command = Command::new("sh");
        shim.prepare(&mut command);
        let output = command.args(["-c", text]).output().expect("a shell");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn shim(directory: &Directory) -> Shim {
        let (own, log) = (directory.path().join("shim"), directory.path().join("log"));
        fs::create_dir(&log).expect("a directory");
        Shim::new(own, log)
    }

    #[test]
    fn a_clock_is_set_and_a_disk_reports_errors_until_it_heals() {
        let directory = Directory::new();
        let shim = shim(&directory);
        let seconds = |shim: &Shim| run(shim, "date +%s").1.parse::<i64>().expect("a time");
        let before = seconds(&shim);
        shim.set_clock(Duration::from_secs(36_000), true);
        assert!((35_000..=36_000).contains(&(before - seconds(&shim))));
        shim.set_clock(Duration::from_secs(36_000), false);
        assert!((36_000..37_000).contains(&(seconds(&shim) - before)));

        let text = format!("dd if=/dev/zero of={}/1 count=1 conv=fsync", shim.log.display());
        assert!(run(&shim, &text).0);
        shim.fail(SYNC);
        assert!(!run(&shim, &text).0);
        assert_eq!(shim.failed(), 1);
        assert!(run(&shim, &text.replace("/log/1", "/1")).0, "a file elsewhere");
        shim.heal();
        assert!(run(&shim, &text).0 && seconds(&shim) - before < 1_000);
    }

    #[test]
    fn power_takes_what_was_not_synced_and_changes_the_boot() {
        let directory = Directory::new();
        let shim = shim(&directory);
        let boot = |shim: &Shim| run(shim, "cat /proc/sys/kernel/random/boot_id").1;
        let first = boot(&shim);
        // The mark of what is committed is never synced, and not of interest.
        let write = format!(
            "import os\nos.chdir({:?})\nfor name, sync in ('synced', 1), ('not', 0), ('committed', 0):\n  \
             f = os.open(name, os.O_RDWR | os.O_CREAT)\n  os.pwrite(f, b'x' * 4096, 0)\n  sync and os.fdatasync(f)\n",
            shim.log
        );
        let write = format!("python3 -c \"$(cat <<'E'\n{write}\nE\n)\"");
        shim.keep();
        let mut lost = 0;
        for seed in 0..8 {
            assert!(run(&shim, &write).0, "{write}");
            lost += shim.lose_power(&mut Random::new(seed));
            let kept = |name| fs::read(shim.log.join(name)).expect("a file") == [b'x'; 4096];
            assert!(kept("synced") && kept("committed"));
            fs::remove_file(shim.log.join("not")).expect("a file");
        }
        assert!((1..=8).contains(&lost), "{lost}");
        assert_ne!(boot(&shim), first);
    }

    fn written(path: &Path, offset: u64, before: &[u8], after: &[u8]) -> Record {
        let path = path.as_os_str().as_bytes().to_vec();
        Record::Written { path, offset, before: before.to_vec(), after: after.to_vec() }
    }

    fn synced(path: &Path, upto: u64) -> Record {
        Record::Synced { path: path.as_os_str().as_bytes().to_vec(), upto }
    }

    #[test]
    fn what_was_written_before_a_sync_began_is_kept() {
        let path = Path::new("/log/1");
        let (first, second) = (written(path, 0, b"", b"a"), written(path, 1, b"", b"b"));
        let upto = first.encode().len() as u64;
        let renamed = Record::Renamed {
            from: b"/log/1".to_vec(),
            to: b"/log/2".to_vec(),
            kept: b"".to_vec(),
        };
        let all = [first, second.clone(), synced(path, upto), renamed.clone()];
        let mut journal: Vec<u8> = all.iter().flat_map(Record::encode).collect();
        let unsynced = |journal: &[u8]| super::unsynced(journal, Path::new("/log"));
        let Record::Written { offset, before, after, .. } = second else { panic!("a write") };
        let moved = Record::Written { path: b"/log/2".to_vec(), offset, before, after };
        assert_eq!(unsynced(&journal), [moved.clone(), renamed]);
        let end = journal.len() as u64;
        journal.extend(synced(Path::new("/log"), end).encode());
        assert_eq!(unsynced(&journal), [moved]);
        // The last record is torn.
        journal.extend(&synced(Path::new("/log/2"), end).encode()[..20]);
        assert_eq!(unsynced(&journal).len(), 1);
    }

    #[test]
    fn a_power_failure_leaves_old_sectors_or_new_ones() {
        let directory = Directory::new();
        let path = directory.path().join("file");
        let (old, new) = ([1; 4 * SECTOR], [2; 4 * SECTOR]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            fs::write(&path, new).expect("a file");
            lose(&[written(&path, 0, &old, &new)], &mut Random::new(seed));
            let found = fs::read(&path).expect("a file");
            let sectors: Vec<u8> = found.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(found.chunks(SECTOR).all(|sector| sector.iter().all(|it| *it == sector[0])));
            seen.insert(sectors);
        }
        assert!(seen.contains(&vec![1; 4]) && seen.contains(&vec![2; 4]), "{seen:?}");
        assert!(seen.len() > 4, "{seen:?}");
    }

    #[test]
    fn a_rename_that_was_not_synced_may_be_undone() {
        let directory = Directory::new();
        let path = |name| directory.path().join(name);
        let bytes = |name| path(name).as_os_str().as_bytes().to_vec();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..16 {
            fs::write(path("to"), "new").expect("a file");
            fs::write(path("kept"), "old").expect("a file");
            let renamed =
                Record::Renamed { from: bytes("from"), to: bytes("to"), kept: bytes("kept") };
            lose(&[renamed], &mut Random::new(seed));
            let from = fs::read_to_string(path("from")).ok();
            seen.insert((fs::read_to_string(path("to")).expect("a file"), from));
            let _ = fs::remove_file(path("from"));
        }
        let both = [("new".to_owned(), None), ("old".to_owned(), Some("new".to_owned()))];
        assert_eq!(seen, both.into());
    }
}
