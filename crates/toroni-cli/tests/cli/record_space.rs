//! `record` on a full disk and at the limit for files: what is written is finished, and what fails leaves nothing in the way.

use crate::record::{check_with_python, finish, listed, printed};
use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use toroni_testkit::Directory;
use toroni_testkit::directory::entries;

/// A small file system.
struct Disk {
    path: PathBuf,
    _directory: Directory,
}

impl Disk {
    /// Returns `None`, after it has said so, where it cannot be mounted.
    fn new(size: &str) -> Option<Self> {
        let directory = Directory::new();
        let path = directory.path().join("disk");
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path);
        if !mount.output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: it cannot mount a small tmpfs (not root)");
            return None;
        }
        Some(Self { path, _directory: directory })
    }

    /// Writes a file that takes all the space but for some.
    fn fill(&self, but_for: u64) {
        let free = free(self);
        fs::write(self.path.join("filler"), vec![0; usize::try_from(free - but_for).unwrap()])
            .unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Records until the recorder ends by itself, which fails. Returns what it said.
fn record_until_full(buses: &Buses, recorder: Process) -> String {
    let publisher = buses.start(&["pub", "t", "--size", "10000", "--repeat", "20000"]);
    let output = recorder.finish();
    publisher.signal(Signal::TERM);
    let _ = publisher.finish();
    refused(&output)
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_full_disk_ends_the_file_in_order() {
    let Some(disk) = Disk::new("40m") else { return };
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let file = disk.path.join("a.mcap");
    let recorder = buses.record(&file, &["--compress", "none", "--gate"]);
    let said = record_until_full(&buses, recorder);
    for part in ["No space left", "free some space", "the file ends after"] {
        assert!(said.contains(part), "{said}");
    }
    let listed = listed(&buses, &file);
    assert_eq!(listed["complete"], true, "{listed}");
    // It uses the disk to the last MiB or so.
    assert!(listed["messages"].as_u64().unwrap() > 3700, "{listed}");
    check_with_python(&buses, &file);
}

#[test]
fn the_limit_for_files_ends_the_file_in_order() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let file = files.path().join("a.mcap");
    // The shell counts blocks of 512 bytes: 4 MiB.
    let line = "ulimit -f 8192; exec toroni record a.mcap --compress none --gate";
    let recorder = Process::start(buses.shell(line).current_dir(files.path()));
    wait_until("the recorder has subscribed", || buses.subscriber_count("default") == 1);
    let said = record_until_full(&buses, recorder);
    for part in ["File too large", "4 MiB", "ulimit -f", "the file ends after"] {
        assert!(said.contains(part), "{said}");
    }
    let listed = listed(&buses, &file);
    assert_eq!(listed["complete"], true, "{listed}");
    let bytes = fs::metadata(&file).unwrap().len();
    assert!((2 << 20..=4 << 20).contains(&bytes), "{bytes}");
    check_with_python(&buses, &file);
}

fn free(disk: &Disk) -> u64 {
    let found = rustix::fs::statvfs(&disk.path).unwrap();
    found.f_bavail * found.f_frsize
}

#[test]
fn space_is_kept_free() {
    const LEAST: u64 = 24 << 20;
    let Some(disk) = Disk::new("40m") else { return };
    let buses = Buses::new();
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let file = disk.path.join("a.mcap");
    let whole = ["--compress", "none", "--gate", "--min-free", "24MiB"];
    let said = record_until_full(&buses, buses.record(&file, &whole));
    assert!(said.contains("less than 24 MiB (--min-free)"), "{said}");
    assert_eq!(listed(&buses, &file)["complete"], true);
    // A buffer and what is reserved may come before it looks.
    assert!((LEAST / 2..LEAST + (8 << 20)).contains(&free(&disk)), "{}", free(&disk));
    fs::remove_file(&file).unwrap();

    // The oldest parts are removed, and it continues.
    let parts = [&whole[..], &["--split", "1MiB", "--keep", "100"]].concat();
    let recorder = buses.record(&file, &parts);
    buses.succeed(&["pub", "u", "--size", "10000", "--repeat", "4000"]);
    finish(recorder);
    let names = entries(&disk.path);
    assert!((5..=20).contains(&names.len()) && names[0].as_str() > "a.0010.mcap", "{names:?}");
    let last = printed(&buses, &disk.path.join(&names[names.len() - 1]));
    assert_eq!(last.last().unwrap()["topic"], "u");
    assert!(free(&disk) >= LEAST / 2, "{}", free(&disk));

    // There is nothing to remove: only the part that is being written.
    let all = [&whole[..4], &["1GiB", "--split", "1MiB", "--keep", "2"]].concat();
    let said = record_until_full(&buses, buses.record(&disk.path.join("b.mcap"), &all));
    assert!(said.contains("less than 1 GiB (--min-free)"), "{said}");
}

#[test]
fn a_repair_that_fails_leaves_nothing_and_says_why() {
    let Some(disk) = Disk::new("8m") else { return };
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let file = disk.path.join("a.mcap");
    let recorder = buses.record(&file, &["--gate"]);
    // Bytes that hardly shrink.
    for _ in 0..4 {
        let noise: Vec<u8> = fs::read("/proc/self/exe").unwrap()[..200_000].to_vec();
        let output = buses.run_with_input(&["pub", "t", "--raw"], &noise);
        assert!(output.status.success(), "{output:?}");
    }
    finish(recorder);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    disk.fill(16 << 10);
    let repair = ["record", "--repair", file.to_str().unwrap()];
    for _ in 0..2 {
        let said = refused(&buses.run(&repair));
        assert!(said.contains("a.repaired.mcap") && said.contains("No space left"), "{said}");
        assert!(!said.contains("compression stream"), "{said}");
        assert_eq!(entries(&disk.path), ["a.mcap", "filler"]);
    }
    let line = format!("ulimit -f 16; exec toroni record --repair {}", file.display());
    let said = refused(&Process::start(&mut buses.shell(&line)).finish());
    assert!(said.contains("8 KiB") && said.contains("ulimit -f"), "{said}");
    fs::remove_file(disk.path.join("filler")).unwrap();
    buses.succeed(&repair);
    assert_eq!(entries(&disk.path), ["a.mcap", "a.repaired.mcap"]);
    assert_eq!(printed(&buses, &disk.path.join("a.repaired.mcap")).len(), 4);
    // What is there stays.
    let said = refused(&buses.run(&repair));
    assert!(said.contains("a.repaired.mcap") && said.contains("exists"), "{said}");
}

#[test]
fn a_recorder_that_fails_at_its_start_leaves_nothing() {
    let Some(disk) = Disk::new("1m") else { return };
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    disk.fill(0);
    let file = disk.path.join("a.mcap");
    let said = refused(&buses.run(&["record", file.to_str().unwrap(), "-n", "1"]));
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(entries(&disk.path), ["filler"]);
    // The line for --ready-fd cannot be written.
    fs::remove_file(disk.path.join("filler")).unwrap();
    let line = format!("exec toroni record {} --ready-fd 3 3>/dev/full", file.display());
    let said = refused(&Process::start(&mut buses.shell(&line)).finish());
    assert!(said.contains("--ready-fd"), "{said}");
    assert_eq!(entries(&disk.path), [""; 0]);
}

#[test]
fn little_is_reserved_for_a_short_recording() {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
    let file = files.path().join("a.mcap");
    let recorder = buses.record(&file, &[]);
    buses.succeed(&["pub", "t", "one"]);
    let blocks = fs::metadata(&file).unwrap().blocks() * 512;
    assert!(blocks < 1 << 20, "{blocks}");
    assert_eq!(entries(files.path()), ["a.mcap"]);
    finish(recorder);
}

#[test]
fn a_repair_that_is_killed_leaves_nothing() {
    use rustix::fs::{Mode, OFlags, open};

    let (buses, files) = (Buses::new(), Directory::new());
    let flags = OFlags::TMPFILE | OFlags::WRONLY;
    if open(files.path(), flags, Mode::from_raw_mode(0o600)).is_err() {
        eprintln!("skipped: this file system has no files without names");
        return;
    }
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let file = files.path().join("a.mcap");
    let mut recorder = buses.record(&file, &["--compress", "none", "--gate"]);
    buses.succeed(&["pub", "t", "--size", "100000", "--repeat", "300"]);
    wait_until("it is in the file", || fs::metadata(&file).unwrap().len() > 25 << 20);
    recorder.kill();
    let mut repair = buses.start(&["record", "--repair", file.to_str().unwrap()]);
    let descriptors = format!("/proc/{}/fd", repair.id());
    // The one that it reads, and the one that it writes.
    wait_until("it writes, or has ended", || {
        let open = fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        repair.ended().is_some() || open.filter(|path| path.starts_with(files.path())).count() > 1
    });
    // Kills it, if it has not ended.
    drop(repair);
    let left = entries(files.path());
    assert!(!left.iter().any(|name| name.ends_with(".tmp")), "{left:?}");
}
