//! A recording with a damaged chunk: what can be read is read, what is missing is reported, and a repair copies the rest.

use crate::record::{check_with_python, finish, listed, printed};
use crate::support::{Buses, json_lines, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};
use toroni_testkit::Directory;

const MESSAGES: u64 = 5000;

/// Records messages, and damages a byte in the middle of them.
fn damaged(buses: &Buses, files: &Directory, is_cut: bool) -> PathBuf {
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default", "--policy", "wait:forever"]);
    let recorder = buses.record(&file, &["--compress", "none", "--gate"]);
    buses.succeed(&["pub", "t", "--size", "1000", "--repeat", &MESSAGES.to_string()]);
    finish(recorder);
    assert_eq!(printed(buses, &file).len() as u64, MESSAGES);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    if is_cut {
        bytes.truncate(bytes.len() - 1);
    }
    fs::write(&file, &bytes).unwrap();
    file
}

/// Returns how many messages the lines have, and how many they report as lost. Together, their sequences have no gap.
fn counted(lines: &[Value]) -> (u64, u64) {
    let (mut messages, mut lost) = (0, 0);
    for line in lines {
        if let Some(loss) = line.get("lost") {
            lost += loss["messages"].as_str().unwrap().parse::<u64>().unwrap();
        } else {
            assert_eq!(line["sequence"], (messages + lost).to_string());
            messages += 1;
        }
    }
    (messages, lost)
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_is_whole_is_read_and_copied() {
    for is_cut in [false, true] {
        let (buses, files) = (Buses::new(), Directory::new());
        let file = damaged(&buses, &files, is_cut);
        let output = buses.run(&["sub", "--json", "--file", text(&file)]);
        assert!(output.status.success(), "{}", said(&output));
        let (messages, lost) = counted(&json_lines(&output.stdout));
        assert!(lost > 500 && messages > 3000 && messages + lost == MESSAGES, "{messages}, {lost}");
        let missing = format!(
            "{}{:03} messages are missing",
            if lost < 1000 { "" } else { "1," },
            lost % 1000
        );
        assert!(said(&output).contains(&missing), "{missing}: {}", said(&output));
        assert!(said(&output).contains("damaged at byte"), "{}", said(&output));
        let strict = buses.run(&["sub", "--strict", "--file", text(&file)]);
        assert_eq!(strict.status.code(), Some(3), "{}", said(&strict));

        let list = listed(&buses, &file);
        assert_eq!(list["complete"], false, "{list}");
        assert_eq!(list["messages"], messages, "{list}");
        assert_eq!(list["damage"][0]["messages"], lost, "{list}");
        assert!(buses.succeed(&["replay", "--list", text(&file)]).contains(&missing));

        // The loss has one place, in the file and in its copy.
        let place = |file: &Path| {
            let output = buses.run(&["replay", text(file), "--lost", "fail"]);
            let said = said(&output);
            said.split_once("lost at sequence ").map(|(_, place)| place.to_owned()).unwrap()
        };

        // Subscribers of the bus get the loss.
        buses.succeed(&["create", "copy", "--policy", "wait:forever"]);
        let subscriber = buses.subscribe(&["-b", "copy", "--json", "-n", &messages.to_string()]);
        let replay = buses.run(&["-b", "copy", "replay", text(&file), "--speed", "max"]);
        assert!(replay.status.success() && said(&replay).contains(&missing), "{}", said(&replay));
        let received = json_lines(&subscriber.finish().stdout);
        let losses: Vec<&Value> = received.iter().filter_map(|line| line.get("lost")).collect();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(losses[0]["messages"], lost.to_string());
        let fail = ["-b", "copy", "replay", text(&file), "--speed", "max", "--lost", "fail"];
        assert_eq!(buses.run(&fail).status.code(), Some(3));

        let repair = buses.run(&["record", "--repair", text(&file)]);
        assert!(repair.status.success(), "{}", said(&repair));
        assert!(said(&repair).contains(&missing), "{}", said(&repair));
        let repaired = files.path().join("a.repaired.mcap");
        let list = listed(&buses, &repaired);
        assert_eq!((&list["complete"], &list["messages"]), (&true.into(), &messages.into()));
        assert_eq!(counted(&printed(&buses, &repaired)), (messages, lost));
        assert_eq!(place(&file), place(&repaired));
        let plain = buses.run(&["sub", "--file", text(&repaired), "-n", &messages.to_string()]);
        assert!(said(&plain).contains("the recording was damaged here"), "{}", said(&plain));
        check_with_python(&buses, &repaired);
        let again = buses.run(&["record", "--repair", text(&repaired)]);
        assert!(said(&again).contains("nothing to repair"), "{}", said(&again));
    }
}

/// A loss before all messages has no time of its own, if there is no index. A replay does not wait for it, or after it.
#[test]
fn the_first_messages_may_be_damaged() {
    for is_cut in [false, true] {
        let (buses, files) = (Buses::new(), Directory::new());
        let file = files.path().join("a.mcap");
        buses.succeed(&["create", "default"]);
        let recorder = buses.record(&file, &["--compress", "none"]);
        buses.succeed(&["pub", "a", "the first"]);
        wait_until("its chunk", || listed(&buses, &file)["messages"] == 1);
        buses.succeed(&["pub", "b", "another", "--repeat", "10"]);
        finish(recorder);
        let mut bytes = fs::read(&file).unwrap();
        let first = bytes.windows(9).position(|window| window == b"the first").unwrap();
        bytes[first] ^= 1;
        bytes.truncate(bytes.len() - usize::from(is_cut));
        fs::write(&file, &bytes).unwrap();
        let (messages, lost) = counted(&printed(&buses, &file));
        assert_eq!((messages, lost), (10, 1));
        let repair = buses.run(&["record", "--repair", text(&file)]);
        assert!(repair.status.success(), "{}", said(&repair));
        let repaired = files.path().join("a.repaired.mcap");
        assert_eq!(counted(&printed(&buses, &repaired)), (messages, lost));
        for file in [&file, &repaired] {
            let replay = buses.run(&["replay", text(file)]);
            assert!(replay.status.success(), "{}", said(&replay));
            let played = said(&replay);
            assert!(played.contains("and 1 loss report in"), "{played}");
            let output = buses.run(&["replay", text(file), "--lost", "fail"]);
            assert!(said(&output).contains("lost at sequence 0"), "{}", said(&output));
        }
        let list = listed(&buses, &repaired);
        let duration: u64 = list["duration_ns"].as_str().unwrap().parse().unwrap();
        assert!(duration < 3_600_000_000_000, "{list}");
    }
}

#[test]
fn a_start_within_a_damaged_chunk_reports_the_loss() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = buses.record(&file, &["--compress", "none"]);
    buses.succeed(&["pub", "t", "first"]);
    let began = Instant::now();
    wait_until("a later time", || began.elapsed() > Duration::from_millis(300));
    buses.succeed(&["pub", "t", "second"]);
    finish(recorder);
    let mut bytes = fs::read(&file).unwrap();
    let second = bytes.windows(6).position(|window| window == b"second").unwrap();
    bytes[second] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let lost = |start: &str| {
        let fail = ["replay", text(&file), "--start", start, "--lost", "fail"];
        buses.run(&fail).status.code() == Some(3)
    };
    assert!(lost("+0") && lost("+150ms"));
    assert!(!lost("+1h"));
}

#[test]
fn the_front_may_be_damaged() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = buses.record(&file, &[]);
    buses.succeed(&["pub", "t", "one"]);
    finish(recorder);
    let start = listed(&buses, &file)["start_ns"].clone();
    // The chunk with the channels of the recorder itself.
    let mut bytes = fs::read(&file).unwrap();
    let first = bytes.windows(4).position(|window| window == b"zstd").unwrap();
    bytes[first + 30] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let list = listed(&buses, &file);
    assert_eq!((&list["messages"], &list["start_ns"]), (&1.into(), &start), "{list}");
    assert_eq!(list["damage"][0]["messages"], 0, "{list}");
    // Nothing is lost with it.
    let strict = buses.run(&["sub", "--strict", "--file", text(&file)]);
    assert!(
        strict.status.success() && said(&strict).contains("damaged at byte"),
        "{}",
        said(&strict)
    );
    let repair = buses.run(&["record", "--repair", text(&file)]);
    assert!(said(&repair).contains("a.repaired.mcap with 1 message\n"), "{}", said(&repair));
    let repaired = files.path().join("a.repaired.mcap");
    let list = listed(&buses, &repaired);
    assert_eq!((&list["complete"], &list["losses"]), (&true.into(), &0.into()), "{list}");
    assert_eq!(printed(&buses, &repaired)[0]["payload"], "one");
}
