//! The wall clock is set while `record` runs: the times of the recording advance as before.
//!
//! A library between the recorder and the kernel (`LD_PRELOAD`) sets what it takes for the wall clock.

use crate::record::{finish, listed, printed};
use crate::support::{Buses, Process, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toroni::{BusConfig, Entry, Limit};
use toroni_testkit::{Directory, Program};

/// Adds the seconds in a file to the wall clock.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("TEST_CLOCK");
    if (result == 0 && clock == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0)
                time->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
"#;

/// The wall clock of a test.
struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    fn new(directory: &Path) -> Self {
        let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
        fs::write(&source, SHIM).unwrap();
        // A C compiler is there: lz4 and zstd were built with it.
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let compiled = compiler.output().unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        let clock = Self { library, file: directory.join("clock") };
        clock.set(0);
        clock
    }

    /// Sets it ahead of the real one.
    fn set(&self, seconds: i64) {
        // Renamed into place: no process reads half of it.
        let other = self.file.with_extension("new");
        fs::write(&other, seconds.to_string()).unwrap();
        fs::rename(&other, &self.file).unwrap();
    }

    fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", &self.library).env("TEST_CLOCK", &self.file)
    }

    fn record(&self, buses: &Buses, file: &Path, arguments: &[&str]) -> Process {
        let path = file.to_str().unwrap();
        let mut command = buses.command(&[&["record", path], arguments].concat());
        self.prepare(&mut command);
        let mut program = Program::start_with_ready_fd(command);
        program.wait_ready();
        Process::from(program)
    }

    /// Publishes a message as a process would that has this clock. The library asks the kernel itself.
    fn publish(&self, buses: &Buses, payload: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let ahead: i64 = fs::read_to_string(&self.file).unwrap().parse().unwrap();
        let stamp = u64::try_from(now).unwrap().checked_add_signed(ahead * 1_000_000_000).unwrap();
        let bus = BusConfig::new().directory(buses.path()).open_existing("default").unwrap();
        let inlet = bus.inlet().unwrap();
        let topic = inlet.topic("t").unwrap();
        let payload: &[&[u8]] = &[payload.as_bytes()];
        let entry = Entry { published_ns: Some(stamp), ..Entry::new(&topic, payload) };
        inlet.publish(&[entry], Limit::Policy).unwrap();
    }
}

/// Times of publication, in the order of the file.
fn stamps(buses: &Buses, file: &Path) -> Vec<i64> {
    let lines = printed(buses, file);
    let stamp = |line: &serde_json::Value| line["timestamp_ns"].as_str().unwrap().parse().unwrap();
    lines.iter().map(stamp).collect()
}

#[test]
fn a_wall_clock_that_is_set_changes_neither_times_nor_a_replay() {
    let (buses, files) = (Buses::new(), Directory::new());
    let clock = WallClock::new(files.path());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = clock.record(&buses, &file, &[]);
    let began = Instant::now();
    clock.publish(&buses, "before");
    // Back by an hour, forward by two.
    for (number, (ahead, text)) in
        [(-3600, "set back by"), (3600, "set forward by")].into_iter().enumerate()
    {
        clock.set(ahead);
        recorder.wait_for_error(text);
        clock.publish(&buses, &format!("after {number}"));
    }
    clock.publish(&buses, "last");
    finish(recorder);
    let span = began.elapsed();

    let list = listed(&buses, &file);
    let duration: u64 = list["duration_ns"].as_str().unwrap().parse().unwrap();
    let duration = Duration::from_nanos(duration);
    assert!(duration > Duration::ZERO && duration <= span, "{list}");
    let steps = list["notes"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{list}");
    // Rounded, because the processes read their clocks at different times.
    let seconds: Vec<i64> = steps
        .iter()
        .map(|step| (step["step_ns"].as_i64().unwrap() + 500_000_000).div_euclid(1_000_000_000))
        .collect();
    assert_eq!(seconds, [-3600, 7200], "{list}");
    // Publishers keep their own clock.
    let stamps = stamps(&buses, &file);
    assert!(stamps[1] < stamps[0] && stamps[2] > stamps[0] + 3_000_000_000_000, "{stamps:?}");

    // Each reader reports the steps, and none waits for them.
    let path = file.to_str().unwrap();
    for arguments in [
        &["sub", "--file", path][..],
        &["replay", path],
        &["replay", path, "--by", "publish"],
        &["replay", path, "--by", "publish", "--start", "+1ms"],
    ] {
        let output = buses.run(arguments);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        for text in ["set back by", "set forward by"] {
            assert!(said.contains(text) || arguments.contains(&"--start"), "{arguments:?}: {said}");
        }
    }
    let text = buses.succeed(&["replay", "--list", path]);
    assert!(text.contains("set back by"), "{text}");
}

#[test]
fn a_part_after_a_step_is_played_at_its_times() {
    let (buses, files) = (Buses::new(), Directory::new());
    let clock = WallClock::new(files.path());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default"]);
    let recorder = clock.record(&buses, &file, &["--split", "200ms"]);
    clock.publish(&buses, "in the first");
    clock.set(-3600);
    recorder.wait_for_error("set back");
    let second = files.path().join("a.0002.mcap");
    wait_until("a second part", || {
        clock.publish(&buses, "on");
        second.exists()
    });
    clock.set(0);
    recorder.wait_for_error("set forward");
    clock.publish(&buses, "on");
    finish(recorder);
    // It waits an hour if it takes the stamps of the second part as they are.
    let output = buses.run(&["replay", second.to_str().unwrap(), "--by", "publish"]);
    assert!(output.status.success(), "{output:?}");
}

/// The recorder waits for `--trigger` when the clock is set. It keeps the times at which it saw messages, and has the note.
#[test]
fn a_step_while_it_waits_keeps_the_times_of_the_past() {
    const SIZE: usize = 1 << 20;
    let (buses, files) = (Buses::new(), Directory::new());
    let clock = WallClock::new(files.path());
    let file = files.path().join("a.mcap");
    buses.succeed(&["create", "default", "--capacity", "64MiB"]);
    let recorder = clock.record(&buses, &file, &["--trigger", "alarm", "--before", "1min"]);
    let began = Instant::now();
    // More than a buffer of the recorder, so that several runs are of the past.
    let messages = vec!["x".repeat(SIZE); 12];
    for message in &messages {
        clock.publish(&buses, message);
    }
    let read =
        || wait_until("it was read", || buses.info("default")["subscribers"][0]["lag_bytes"] == 0);
    read();
    let published = began.elapsed();
    wait_until("a later time", || began.elapsed() > published + Duration::from_secs(1));
    clock.set(-3600);
    recorder.wait_for_error("set back");
    clock.publish(&buses, "after");
    read();
    let later = began.elapsed();
    buses.succeed(&["pub", "alarm", "fire"]);
    recorder.wait_for_error("triggered");
    finish(recorder);

    let list = listed(&buses, &file);
    assert_eq!(list["messages"], 14, "{list}");
    let notes = list["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{list}");
    let number = |text: &serde_json::Value| text.as_str().unwrap().parse::<u64>().unwrap();
    // The note is at the front, and the first messages have the time at which they came.
    assert_eq!(notes[0]["time_ns"], list["start_ns"]);
    let duration = Duration::from_nanos(number(&list["duration_ns"]));
    assert!(duration >= Duration::from_secs(1), "{duration:?} of {later:?}");
    // All of them: a replay that ends before the step has them.
    let path = file.to_str().unwrap();
    let end = format!("+{}ms", published.as_millis() + 500);
    let replay = buses.run(&["-b", "copy", "replay", path, "--speed", "max", "--end", &end]);
    let said = String::from_utf8_lossy(&replay.stderr);
    assert!(said.contains("played 12 messages"), "{said}");
}
