//! Exit codes after signals, and the table of exit codes in help and manual.

use crate::support::{Buses, LIMIT, Process, wait_until};
use rustix::process::Signal;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// Returns the exit code that a shell shows, also for a process killed by a signal.
fn shell_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
}

/// Runs a command once for SIGINT and once for SIGTERM, sends the signal when `ready`, and returns the exit codes.
fn codes_after_signals(
    buses: &Buses,
    arguments: &[&str],
    ready: impl Fn(&Buses) -> bool,
) -> [i32; 2] {
    [Signal::INT, Signal::TERM].map(|signal| {
        let mut command = buses.command(arguments);
        let mut process = Process::start(command.stdin(Stdio::piped()));
        // Keeps standard input open.
        let _input = process.stdin();
        wait_until("it is ready", || ready(buses));
        process.signal(signal);
        shell_code(process.finish().status)
    })
}

fn has_subscriber(buses: &Buses) -> bool {
    buses.subscriber_count("default") == 1
}

fn has_publisher(buses: &Buses) -> bool {
    buses.info("default")["publishers"].as_array().is_some_and(|all| !all.is_empty())
}

#[test]
fn endless_commands_exit_with_0_after_a_signal() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    for arguments in [&["sub"][..], &["sub", "--timeout", "600"], &["hz"]] {
        assert_eq!(codes_after_signals(&buses, arguments, has_subscriber), [0, 0], "{arguments:?}");
    }
    // This is how users end typing messages.
    assert_eq!(codes_after_signals(&buses, &["pub", "t"], has_publisher), [0, 0]);
}

#[test]
fn interrupted_commands_exit_with_the_code_of_the_signal() {
    let buses = Buses::new();
    buses.succeed(&["create", "default"]);
    for arguments in [&["sub", "--count", "3"][..], &["hz", "--count", "3", "--interval", "600"]] {
        let codes = codes_after_signals(&buses, arguments, has_subscriber);
        assert_eq!(codes, [130, 143], "{arguments:?}");
    }
    for arguments in [
        &["pub", "t", "x", "--wait-subscribers", "1"][..],
        &["pub", "t", "x", "--repeat", "1000000", "--rate", "1"],
        &["pub", "t", "--raw"],
    ] {
        let codes = codes_after_signals(&buses, arguments, has_publisher);
        assert_eq!(codes, [130, 143], "{arguments:?}");
    }
}

#[test]
fn a_signal_interrupts_a_file_of_lines() {
    let buses = Buses::new();
    let path = buses.path().join("lines");
    std::fs::write(&path, "line\n".repeat(1000)).unwrap();
    buses.succeed(&["create", "default"]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = buses.command(&["pub", "t", "--rate", "1"]);
        let publisher = Process::start(command.stdin(File::open(&path).unwrap()));
        wait_until("it publishes", || has_publisher(&buses));
        publisher.signal(signal);
        let output = publisher.finish();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[test]
fn short_commands_are_killed_by_the_signal() {
    let buses = Buses::new();
    buses.succeed(&["pub", "t", "x", "--retain"]);
    for arguments in [
        &["create", "b"][..],
        &["ls"],
        &["info"],
        &["topics"],
        &["get"],
        &["clean", "--dry-run"],
        &["completions", "bash"],
        &["man"],
    ] {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            // It cannot end by itself, because the pipe of its output is full.
            let (_reader, writer) = full_pipe();
            let mut command = with_default_signals(&buses.command(arguments));
            let mut process = Process::start(command.stdout(writer));
            wait_until("it is the program", || status(process.id(), "Name:") == "toroni");
            process.signal(signal);
            assert_eq!(shell_code(process.wait()), code, "{arguments:?}");
            // `create` may already have created the bus.
            let _ = std::fs::remove_dir_all(buses.path().join("b"));
        }
    }
}

/// Returns the command with default signal handling, as on a terminal. A shell without job control makes background
/// processes, and so these tests and their children, ignore SIGINT.
fn with_default_signals(command: &Command) -> Command {
    let mut with = Command::new("env");
    with.arg("--default-signal").arg(command.get_program()).args(command.get_args());
    with.stdin(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with.env(name, value),
            None => with.env_remove(name),
        };
    }
    with
}

/// `doctor` has files to remove, so the signal does not kill it: it stops after the running check.
#[test]
fn the_doctor_is_interrupted() {
    let buses = Buses::new();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (reader, writer) = full_pipe();
        let process = Process::start(buses.command(&["doctor"]).stdout(writer));
        wait_until("it handles signals", || {
            handles_signals(process.id()) && has_both_ends_of_a_pipe(process.id())
        });
        process.signal(signal);
        // It closes the writing end of a pipe, which tells all that wait.
        wait_until("it has handled the signal", || !has_both_ends_of_a_pipe(process.id()));
        // Only now read the output, so that `doctor` can write its first result. It must not start a second check.
        let reader = std::thread::spawn(move || std::io::copy(&mut &reader, &mut std::io::sink()));
        assert_eq!(shell_code(process.finish().status), code);
        reader.join().unwrap().unwrap();
    }
    assert!(buses.entries().is_empty());
}

/// Whether SIGINT has a handler.
fn handles_signals(pid: u32) -> bool {
    let caught = u64::from_str_radix(&status(pid, "SigCgt:"), 16).unwrap();
    caught & (1 << (Signal::INT.as_raw() - 1)) != 0
}

/// Whether it has both ends of the same pipe open. It may have its output open twice.
fn has_both_ends_of_a_pipe(pid: u32) -> bool {
    let open = PathBuf::from(format!("/proc/{pid}/fd"));
    // It may have ended by now.
    let Ok(output) = std::fs::read_link(open.join("1")) else { return false };
    let targets = std::fs::read_dir(open).unwrap();
    let targets = targets.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
    let is_pipe = |it: &PathBuf| it.to_string_lossy().starts_with("pipe:") && *it != output;
    let mut seen = HashSet::new();
    !targets.filter(is_pipe).all(|pipe| seen.insert(pipe))
}

/// Returns a field of /proc/PID/status.
fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    value.trim().to_owned()
}

/// Returns a pipe that is full.
fn full_pipe() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let mut writer = File::from(writer);
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let started = Instant::now();
    while writer.write(&[b'.'; 4096]).is_ok() {
        assert!(started.elapsed() < LIMIT);
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (File::from(reader), writer)
}

#[test]
fn help_and_manual_have_the_same_table() {
    let buses = Buses::new();
    for command in ["", "demo", "pub", "sub", "hz", "clean", "man"] {
        let (help, manual) = if command.is_empty() {
            (buses.succeed(&["--help"]), buses.succeed(&["man"]))
        } else {
            (buses.succeed(&[command, "--help"]), buses.succeed(&["man", command]))
        };
        let (_, codes) = help.split_once("Exit codes:\n").unwrap();
        let codes: Vec<&str> = codes.lines().take_while(|line| !line.is_empty()).collect();
        let interrupted = |line: &&str| line.trim_start().starts_with("129, 130, 143 ");
        assert_eq!(codes.iter().copied().filter(interrupted).count(), 1, "{command}: {help}");
        let (_, manual) = manual.split_once(".SH \"EXIT STATUS\"\n.nf\n").unwrap();
        let (manual, _) = manual.split_once("\n.fi\n").unwrap();
        assert_eq!(manual.replace('\\', ""), codes.join("\n"), "{command}");
    }
    let overview = buses.succeed(&["--help"]);
    let (_, codes) = overview.split_once("Exit codes:\n").unwrap();
    assert!(include_str!("../../../../docs/guide.md").contains(codes.trim_end()), "{codes}");
    for line in [
        "0              success, or the reader of the output closed it",
        "0              sub: a signal ended it without --count",
        "3              sub: messages were lost, with --strict",
    ] {
        assert!(overview.contains(line), "{line}: {overview}");
    }
}

#[test]
fn an_empty_variable_is_not_set() {
    let buses = Buses::new();
    let mut command = buses.command(&["pub", "t", "x"]);
    let output = command.env("TORONI_BUS", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(buses.entries(), ["default"]);
    // No bus has this name, and `info` does not create it.
    let mut command = buses.command(&["info", "no-bus-has-this-name"]);
    let output = command.env("TORONI_DIR", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/dev/shm/toroni") && !said.contains(buses.path().to_str().unwrap()));
}
