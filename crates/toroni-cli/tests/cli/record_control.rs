//! `record --control` and signals: a recorder that runs splits, pauses, resumes and takes a snapshot.

use crate::record::{finish, listed, printed};
use crate::support::{Buses, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use toroni_testkit::Directory;

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
    let (buses, files) = (Buses::new(), Directory::new());
    buses.succeed(&["create", "default"]);
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
    wait_until("they were read", || buses.info("default")["subscribers"][0]["lag_bytes"] == 0);
    assert!(done(&buses, &file, "resume").contains("resumed"));
    assert!(done(&buses, &file, "resume").contains("was not paused"));
    buses.succeed(&["pub", "t", "two"]);
    wait_until("it was read", || buses.info("default")["subscribers"][0]["lag_bytes"] == 0);
    // The signal does both.
    recorder.signal(Signal::USR2);
    wait_until("it is paused", || recorder.errors().matches("paused").count() == 2);
    buses.succeed(&["pub", "t", "left out"]);
    wait_until("it was read", || buses.info("default")["subscribers"][0]["lag_bytes"] == 0);
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
    let output = buses.run(&["record", file.to_str().unwrap(), "--split", "1h"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another recorder"), "{output:?}");
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
