//! What `record` and `replay` do without rights, on a damaged bus, and when a bus or a directory vanishes.

use crate::record::{finish, listed, printed};
use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Output;
use toroni_testkit::{Directory, Random};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Records one message on a bus of its own.
fn recording(file: &Path) {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    let recorder = buses.record(file, &[]);
    buses.succeed(&["pub", "t", "played"]);
    finish(recorder);
}

/// Asserts that a process has failed with one line that contains these words.
fn refused(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
}

#[test]
fn another_user_records_and_plays_as_far_as_the_rights_go() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let (buses, files) = (Buses::new(), Directory::new());
    set_mode(files.path(), 0o777);
    let played = files.path().join("played.mcap");
    recording(&played);
    set_mode(&played, 0o644);
    buses.succeed(&["create", "default"]);
    let bus = buses.path().join("default");
    set_mode(buses.path(), 0o755);
    let set_modes = |ring, readers, publishers| {
        for (path, mode) in [("", 0o755), ("ring", ring), ("readers", readers)] {
            set_mode(&bus.join(path), mode);
        }
        set_mode(&bus.join("publishers"), publishers);
    };
    let run = |arguments: &[&str]| Process::start(&mut buses.as_other_user(arguments)).finish();
    let file = files.path().join("a.mcap");
    let record = ["record", file.to_str().unwrap(), "--from", "oldest", "-n", "1"];
    let replay = ["replay", played.to_str().unwrap()];
    buses.succeed(&["pub", "t", "recorded"]);
    // Neither a subscriber nor a publisher without the right to write its files.
    set_modes(0o644, 0o600, 0o600);
    refused(&run(&record), &["no permission", "default/readers"]);
    assert!(!file.exists());
    refused(&run(&replay), &["no permission", "default/"]);
    // What is needed to subscribe is enough to record, and not to play.
    set_modes(0o644, 0o666, 0o600);
    let output = run(&record);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(printed(&buses, &file)[0]["payload"], "recorded");
    refused(&run(&replay), &["no permission", "default/"]);
    assert_eq!(buses.info("default")["messages"], 1);
    // A directory in which it may not create the file.
    set_mode(files.path(), 0o755);
    let other = files.path().join("b.mcap");
    let output = run(&["record", other.to_str().unwrap()]);
    refused(&output, &["cannot create", "b.mcap", "ermission denied"]);
    assert_eq!(buses.subscriber_count("default"), 0);
}

/// Overwrites a part of a bus, but for its header, while processes use it.
fn damage(path: &Path, random: &mut Random) {
    let length = usize::try_from(fs::metadata(path).unwrap().len()).unwrap();
    let numbers = (0..length.div_ceil(8)).flat_map(|_| random.number().to_ne_bytes());
    let bytes: Vec<u8> = numbers.take(length - 4096).collect();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes, 4096).unwrap();
}

#[test]
fn hostile_bytes_end_neither_in_a_crash_nor_in_a_broken_file() {
    let mut random = Random::from_environment();
    let files = Directory::new();
    let played = files.path().join("played.mcap");
    recording(&played);
    for (round, part) in ["readers", "publishers", "ring"].into_iter().cycle().take(9).enumerate() {
        let buses = Buses::new();
        buses.succeed(&["create", "default", "--capacity", "64KiB"]);
        let file = files.path().join(format!("{round}.mcap"));
        let arguments: &[&str] = [&[][..], &["--gate"], &["--trigger", "nothing"]][round / 3];
        let recorder = buses.record(&file, arguments);
        let play = ["replay", played.to_str().unwrap(), "--rate", "1000/s", "--loop"];
        let replay = buses.start(&play);
        wait_until("messages", || buses.info("default")["messages"].as_u64().unwrap() > 10);
        for _ in 0..3 {
            damage(&buses.path().join("default").join(part), &mut random);
            // Something that meets the bytes. Whether it succeeds depends on them.
            let _ = buses.run(&["pub", "t", "after", "--timeout", "0.1"]);
        }
        for (what, process) in [("replay", replay), ("record", recorder)] {
            if process.is_running() {
                process.signal(Signal::INT);
            }
            let output = process.finish();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{part}: {what}: {output:?}");
            assert!(!said.contains("panicked"), "{part}: {what}: {said}");
        }
        if file.exists() {
            assert_eq!(listed(&buses, &file)["complete"], true, "{part}");
        }
    }
}

#[test]
fn a_bus_that_is_created_again_is_another_bus() {
    for arguments in
        [&[][..], &["--split", "1MiB"], &["--gate"], &["--trigger", "t", "--after", "1h"]]
    {
        let (buses, files) = (Buses::new(), Directory::new());
        let played = files.path().join("played.mcap");
        recording(&played);
        buses.succeed(&["create", "default", "--capacity", "64KiB"]);
        let recorder = buses.record(&files.path().join("a.mcap"), arguments);
        buses.succeed(&["pub", "t", "kept"]);
        if arguments.contains(&"--trigger") {
            recorder.wait_for_error("recording");
        }
        let replay =
            buses.start(&["replay", played.to_str().unwrap(), "--rate", "10k/s", "--loop", "-q"]);
        wait_until("messages", || buses.info("default")["messages"].as_u64().unwrap() > 10);
        // At once, as another process would create it.
        let (bus, aside) = (buses.path().join("default"), buses.path().join("other"));
        buses.succeed(&["create", "other"]);
        let old = files.path().join("old");
        fs::rename(&bus, &old).unwrap();
        fs::rename(&aside, &bus).unwrap();
        fs::remove_dir_all(&old).unwrap();
        buses.succeed(&["pub", "other", "of the new bus"]);
        for process in [recorder, replay] {
            refused(&process.finish(), &["was removed: open it again"]);
        }
        let name = if arguments.contains(&"--split") { "a.0001.mcap" } else { "a.mcap" };
        let file = files.path().join(name);
        assert_eq!(listed(&buses, &file)["complete"], true);
        let lines = printed(&buses, &file);
        assert_eq!(lines[0]["payload"], "kept", "{arguments:?}");
        assert!(lines.iter().all(|line| line["topic"] == "t"), "{arguments:?}");
        assert_eq!(buses.info("default")["messages"], 1);
    }
}

#[test]
fn a_recorder_whose_directory_vanishes_says_so() {
    // The next part cannot be created.
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let folder = files.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let split = ["--split", "1MiB", "--compress", "none", "--gate"];
    let recorder = buses.record(&folder.join("a.mcap"), &split);
    fs::remove_dir_all(&folder).unwrap();
    let _ = buses.run(&["pub", "t", "--size", "1000", "--repeat", "2000"]);
    refused(&recorder.finish(), &["cannot create", "a.0002.mcap"]);
    // The file is removed, and what was recorded is lost.
    fs::create_dir(&folder).unwrap();
    let recorder = buses.record(&folder.join("a.mcap"), &[]);
    buses.succeed(&["pub", "t", "lost"]);
    fs::remove_dir_all(&folder).unwrap();
    recorder.signal(Signal::INT);
    refused(&recorder.finish(), &["a.mcap", "was removed"]);
    // A file that is renamed is whole at its new place.
    let recorder = buses.record(&files.path().join("a.mcap"), &[]);
    buses.succeed(&["pub", "t", "kept"]);
    fs::rename(files.path().join("a.mcap"), files.path().join("b.mcap")).unwrap();
    finish(recorder);
    assert_eq!(printed(&buses, &files.path().join("b.mcap"))[0]["payload"], "kept");
    // The directory of the buses.
    let recorder = buses.record(&files.path().join("c.mcap"), &[]);
    buses.succeed(&["pub", "t", "kept"]);
    fs::remove_dir_all(buses.path()).unwrap();
    refused(&recorder.finish(), &["was removed"]);
    fs::create_dir(buses.path()).unwrap();
    assert_eq!(printed(&buses, &files.path().join("c.mcap"))[0]["payload"], "kept");
}
