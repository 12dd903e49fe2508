//! `record --control` and signals: a recorder that runs splits, pauses, resumes and takes a snapshot.

use crate::record::{finish, listed, printed};
use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use toroni_testkit::Directory;
use toroni_testkit::directory::entries;

fn control(buses: &Buses, file: &Path, command: &str) -> Output {
    buses.run(&["record", "--control", file.to_str().unwrap(), command])
}

/// Returns what a command said that the recorder has done.
fn done(buses: &Buses, file: &Path, command: &str) -> String {
    let output = control(buses, file, command);
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns why a command was not done.
fn refused(buses: &Buses, file: &Path, command: &str) -> String {
    let output = control(buses, file, command);
    assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn payloads(buses: &Buses, file: &Path) -> Vec<String> {
    let lines = printed(buses, file);
    lines.iter().filter_map(|line| Some(line.get("payload")?.as_str()?.to_owned())).collect()
}

fn begin() -> (Buses, Directory, PathBuf) {
    begin_with(&[])
}

fn begin_with(options: &[&str]) -> (Buses, Directory, PathBuf) {
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&[&["create", "default"], options].concat());
    let file = files.path().join("a.mcap");
    (buses, files, file)
}

#[test]
fn split_begins_the_next_file() {
    let (buses, files, file) = begin();
    let part = |number: u32| files.path().join(format!("a.{number:04}.mcap"));
    let recorder = buses.record(&file, &["--split", "1GiB"]);
    buses.succeed(&["pub", "t", "one"]);
    let said = done(&buses, &file, "split");
    assert!(said.contains("a.0002.mcap"), "{said}");
    assert!(part(2).exists());
    // What was published before is in the first, and complete.
    assert_eq!(payloads(&buses, &part(1)), ["one"]);
    assert_eq!(listed(&buses, &part(1))["complete"], true);
    buses.succeed(&["pub", "t", "two"]);
    recorder.signal(Signal::USR1);
    wait_until("the third file", || part(3).exists());
    buses.succeed(&["pub", "t", "three"]);
    // Another way to write the name.
    let other = files.path().join(".").join("a.mcap");
    assert!(refused(&buses, &other, "snapshot").contains("without --trigger"));
    finish(recorder);
    assert_eq!(payloads(&buses, &part(2)), ["two"]);
    assert_eq!(payloads(&buses, &part(3)), ["three"]);
}

/// `--keep` counts the part that is being written. A number that another recorder has taken is left out.
#[test]
fn at_most_as_many_parts_as_are_kept() {
    let (buses, files, file) = begin();
    let names = || entries(files.path());
    for number in 1..=5 {
        fs::write(files.path().join(format!("a.{number:04}.mcap")), "old").unwrap();
    }
    let recorder = buses.record(&file, &["--split", "1h", "--keep", "3"]);
    assert_eq!(names(), ["a.0004.mcap", "a.0005.mcap", "a.0006.mcap"]);
    fs::write(files.path().join("a.0007.mcap"), "of another").unwrap();
    assert!(done(&buses, &file, "split").contains("a.0008.mcap"));
    assert_eq!(names(), ["a.0005.mcap", "a.0006.mcap", "a.0007.mcap", "a.0008.mcap"]);
    finish(recorder);
    assert_eq!(fs::read(files.path().join("a.0007.mcap")).unwrap(), b"of another");
    // Those beyond the number are removed at the start, although nothing is written yet.
    fs::remove_file(files.path().join("a.0007.mcap")).unwrap();
    let trigger = ["--split", "1h", "--keep", "2", "--trigger", "alarm"];
    let recorder = buses.record(&file, &trigger);
    assert_eq!(names(), ["a.0006.mcap", "a.0008.mcap"]);
    finish(recorder);
}

#[test]
fn a_signal_does_not_end_a_recorder_that_waits_for_its_bus() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let recorder = buses.start(&["record", file.to_str().unwrap(), "--split", "1GiB"]);
    recorder.wait_for_error("waiting until");
    recorder.signal(Signal::USR1);
    buses.succeed(&["create", "default"]);
    wait_until("the second file", || files.path().join("a.0002.mcap").exists());
    finish(recorder);
}

#[test]
fn a_pause_is_noted_with_the_count() {
    let (buses, _files, file) = begin();
    let recorder = buses.record(&file, &[]);
    buses.succeed(&["pub", "t", "one"]);
    assert!(done(&buses, &file, "pause").contains("paused"));
    buses.succeed(&["pub", "t", "left out", "--repeat", "7"]);
    assert!(done(&buses, &file, "pause").contains("was paused before"));
    assert!(done(&buses, &file, "resume").contains("resumed"));
    assert!(done(&buses, &file, "resume").contains("was not paused"));
    buses.succeed(&["pub", "t", "two"]);
    // The signal does both.
    recorder.signal(Signal::USR2);
    wait_until("it is paused", || recorder.errors().matches("paused").count() == 2);
    buses.succeed(&["pub", "t", "left out"]);
    recorder.signal(Signal::USR2);
    wait_until("it continues", || recorder.errors().contains("left out 1 message"));
    buses.succeed(&["pub", "t", "three"]);
    assert!(refused(&buses, &file, "split").contains("without --split"));
    recorder.signal(Signal::USR1);
    recorder.wait_for_error("without --split");
    // The end ends a pause, and notes it.
    assert!(done(&buses, &file, "pause").contains("paused"));
    finish(recorder);
    assert_eq!(payloads(&buses, &file), ["one", "two", "three"]);
    let list = listed(&buses, &file);
    let notes: Vec<(&str, Option<u64>)> = list["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| (note["kind"].as_str().unwrap(), note["messages"].as_u64()))
        .collect();
    let expected = [
        ("paused", None),
        ("resumed", Some(7)),
        ("paused", None),
        ("resumed", Some(1)),
        ("paused", None),
        ("resumed", Some(0)),
    ];
    assert_eq!(notes, expected);
    let output = buses.run(&["sub", "--file", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("the recorder was paused") && said.contains("left out 7 messages"),
        "{said}"
    );
}

/// The recorder is far behind when a request comes: it takes effect where the stream ends then.
#[test]
fn a_request_takes_effect_where_the_stream_ends() {
    const COUNT: u64 = 400;
    let (buses, files, file) = begin_with(&["--capacity", "16MiB"]);
    let recorder = buses.record(&file, &["--split", "1GiB", "--compress", "none"]);
    let publish = |payload: &str| {
        let payload = payload.repeat(20_000);
        buses.succeed(&["pub", "t", &payload, "--repeat", &COUNT.to_string()]);
    };
    let signal_while_behind = |payload: &str, signal, said: &str| {
        let before = recorder.errors().matches(said).count();
        recorder.stop();
        publish(payload);
        recorder.signal(signal);
        recorder.resume();
        wait_until(said, || recorder.errors().matches(said).count() > before);
    };
    signal_while_behind("a", Signal::USR2, "was paused");
    signal_while_behind("b", Signal::USR2, "left out 400 messages");
    signal_while_behind("c", Signal::USR1, "a.0002.mcap");
    buses.succeed(&["pub", "t", "last"]);
    finish(recorder);
    let first = |file: &str| {
        let payloads = payloads(&buses, &files.path().join(file));
        payloads.iter().map(|payload| payload[..1].to_owned()).collect::<String>()
    };
    let count = usize::try_from(COUNT).unwrap();
    assert_eq!(first("a.0001.mcap"), "a".repeat(count) + &"c".repeat(count));
    assert_eq!(first("a.0002.mcap"), "l");
}

#[test]
fn two_signals_are_two() {
    let (buses, _files, file) = begin();
    let recorder = buses.record(&file, &[]);
    let is_pending = || {
        let status = fs::read_to_string(format!("/proc/{}/status", recorder.id())).unwrap();
        let masks = status.lines().filter_map(|line| line.split_once("Pnd:\t"));
        masks.into_iter().any(|(_, mask)| !mask.trim_matches('0').is_empty())
    };
    for _ in 0..2 {
        recorder.signal(Signal::USR2);
        // The kernel takes two that are pending for one.
        wait_until("it was delivered", || !is_pending());
    }
    wait_until("it continues", || recorder.errors().contains("left out 0 messages"));
    finish(recorder);
}

/// A command that failed is not done later.
#[test]
fn what_failed_is_not_done_later() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    let recorder = buses.start(&["record", file.to_str().unwrap()]);
    recorder.wait_for_error("waiting until");
    assert!(refused(&buses, &file, "pause").contains("it waits for its bus"));
    buses.succeed(&["create", "default"]);
    wait_until("the file", || file.exists());
    buses.succeed(&["pub", "t", "one"]);
    recorder.stop();
    // The program that asks does not wait.
    let mut asking = buses.start(&["record", "--control", file.to_str().unwrap(), "pause"]);
    let inode = fs::metadata(files.path()).unwrap().ino();
    let socket = format!("/{inode:x}/");
    wait_until("it has asked", || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().filter(|line| line.contains(&socket)).count() > 1
    });
    asking.kill();
    recorder.resume();
    // After that, because it answers one after the other.
    assert!(refused(&buses, &file, "split").contains("without --split"));
    buses.succeed(&["pub", "t", "two"]);
    finish(recorder);
    assert_eq!(payloads(&buses, &file), ["one", "two"]);
    assert_eq!(listed(&buses, &file)["notes"].as_array().unwrap().len(), 0);
}

#[test]
fn a_snapshot_has_what_was_before() {
    let (buses, _files, file) = begin();
    let recorder =
        buses.record(&file, &["--trigger", "alarm", "--before", "1min", "--after", "200ms"]);
    buses.succeed(&["pub", "t", "before"]);
    for command in ["pause", "resume", "split"] {
        assert!(refused(&buses, &file, command).contains("waits for --trigger"));
    }
    assert!(!file.exists());
    let said = done(&buses, &file, "snapshot");
    assert!(said.contains("a.mcap"), "{said}");
    // As after a trigger, it ends by itself.
    let output = recorder.finish();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(payloads(&buses, &file), ["before"]);
    assert_eq!(listed(&buses, &file)["complete"], true);
}

#[test]
fn without_a_recorder_it_says_so() {
    let (buses, files, file) = begin();
    let none = |buses: &Buses| {
        let said = refused(buses, &file, "pause");
        assert!(said.contains("no recorder that was started with"), "{said}");
    };
    none(&buses);
    assert!(refused(&buses, &files.path().join("none/a.mcap"), "pause").contains("No such file"));
    assert_eq!(control(&buses, &file, "rewind").status.code(), Some(2));
    // One that was killed leaves nothing in the way of the next.
    let mut recorder = buses.record(&file, &["--split", "1h"]);
    recorder.kill();
    none(&buses);
    let recorder = buses.record(&file, &["--split", "1h"]);
    // A second one would write the same parts.
    for file in [&file, &file.with_extension("")] {
        let output = buses.run(&["record", file.to_str().unwrap(), "--split", "1h"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("another recorder"), "{output:?}");
    }
    assert!(done(&buses, &file, "split").contains("a.0003.mcap"));
    finish(recorder);
    none(&buses);
}

#[test]
fn another_user_does_not_control_it() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt;

    let (buses, files, file) = begin();
    for path in [buses.path(), files.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let recorder = buses.record(&file, &[]);
    let command = ["record", "--control", file.to_str().unwrap(), "pause"];
    let output = Process::start(&mut buses.as_other_user(&command)).finish();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("only the user of the recorder"), "{said}");
    finish(recorder);
    assert_eq!(listed(&buses, &file)["notes"].as_array().unwrap().len(), 0);
}
