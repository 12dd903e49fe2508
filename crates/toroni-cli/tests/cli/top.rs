//! `toroni top`: on a terminal, as text and as JSON, with processes that publish, stop and die.

use crate::support::{Buses, Process, json_lines, wait_until};
use crate::terminal::Terminal;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Creates a bus whose publishers wait for ever, and starts a subscriber and a publisher.
fn busy(buses: &Buses) -> (Process, Process) {
    buses.succeed(&["create", "plant", "--capacity", "64KiB", "--policy", "wait:forever"]);
    let reading = ["--bus", "plant", "--payload-only", "plant/**"];
    let mut program = toroni_testkit::Program::start_with_ready_fd({
        let mut command = buses.command(&[&["sub"], &reading[..]].concat());
        command.stdout(Stdio::null());
        command
    });
    program.wait_ready();
    let publisher = publish(buses, "plant");
    wait_until("it publishes", || buses.info("plant")["messages"].as_u64() > Some(0));
    (Process::from(program), publisher)
}

fn publish(buses: &Buses, bus: &str) -> Process {
    let load = ["--size", "200", "--repeat", "1000000000", "--rate", "500/s"];
    let mut command =
        buses.command(&[&["--bus", bus, "pub", "plant/camera/frame"], &load[..]].concat());
    Process::start(command.stdout(Stdio::null()))
}

fn start_on(terminal: &Terminal, buses: &Buses, arguments: &[&str]) -> Process {
    let mut command = buses.command(&[&["top"], arguments].concat());
    terminal.attach(&mut command);
    Process::start(&mut command)
}

fn sees(terminal: &Terminal, what: &str) {
    let is_seen = || terminal.screen().contains(what);
    if !toroni_testkit::wait::within(crate::support::LIMIT, is_seen) {
        panic!("no {what:?} on the screen:\n{}", terminal.screen());
    }
}

/// Returns the line of the screen with this text.
fn line_with(terminal: &Terminal, what: &str) -> String {
    let screen = terminal.screen();
    screen.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned()
}

#[test]
fn a_stopped_subscriber_is_shown_in_the_way() {
    let buses = Buses::new();
    let (subscriber, _publisher) = busy(&buses);
    let terminal = Terminal::new(100, 30);
    let mut top = start_on(&terminal, &buses, &["plant"]);
    sees(&terminal, "plant/camera/frame");
    // On a busy machine, publishers may wait although nothing is stopped.
    wait_until("a subscriber that keeps up", || {
        let screen = terminal.screen();
        screen.contains("no waiting") && !screen.contains("in the way")
    });
    subscriber.stop();
    let stopped = Instant::now();
    sees(&terminal, "◄ in the way");
    println!("shown in the way after {:?}", stopped.elapsed());
    wait_until("the reason", || {
        let line = line_with(&terminal, "in the way");
        line.contains("toroni-sub #0") && line.contains("stopped")
    });
    wait_until("who publishers wait for", || {
        line_with(&terminal, "waited").contains("for toroni-sub #0")
    });
    // The same for programs.
    let shown: Value =
        serde_json::from_str(&buses.succeed(&["top", "plant", "--once", "--json"])).unwrap();
    assert_eq!(shown["in_the_way"], 0, "{shown}");
    assert_eq!(shown["subscribers"][0]["state"], "stopped");
    assert!(shown["waited_per_second"].as_f64().unwrap() > 0.1, "{shown}");
    subscriber.resume();
    wait_until("no subscriber in the way", || !terminal.screen().contains("in the way"));
    terminal.press("q");
    assert!(top.wait().success());
    println!("{}", terminal.screen());
}

#[test]
fn keys_change_what_is_shown() {
    let buses = Buses::new();
    let (_subscriber, _publisher) = busy(&buses);
    let terminal = Terminal::new(80, 30);
    let mut top = start_on(&terminal, &buses, &["--bus", "plant"]);
    sees(&terminal, "SUBSCRIBERS 1/");
    // The subscriber that reads topics is not listed, but it is there while topics are shown.
    let is_reading = || buses.subscriber_count("plant") == 2;
    wait_until("a subscriber for topics", is_reading);
    terminal.press("3");
    sees(&terminal, "none since top was started");
    terminal.press("2");
    sees(&terminal, "plant/camera/frame");
    assert!(!terminal.screen().contains("SUBSCRIBERS"), "{}", terminal.screen());
    terminal.press("/xyz");
    sees(&terminal, "none with this text");
    terminal.press("\r");
    sees(&terminal, "/xyz");
    terminal.press("\x1b");
    sees(&terminal, "plant/camera/frame");
    terminal.press("s");
    sees(&terminal, "sort: bytes");
    terminal.press("p");
    sees(&terminal, "PAUSED");
    wait_until("no subscriber while paused", || buses.subscriber_count("plant") == 1);
    terminal.press("p");
    wait_until("a subscriber for topics", is_reading);
    terminal.press("\x1b");
    sees(&terminal, "BUSES 1");
    wait_until("no subscriber for the list", || buses.subscriber_count("plant") == 1);
    terminal.press("\r");
    sees(&terminal, "SUBSCRIBERS 1/");
    // A larger terminal has room for more columns.
    assert!(!terminal.screen().contains("LAST MIN"), "{}", terminal.screen());
    terminal.resize(140, 40);
    top.signal(Signal::WINCH);
    sees(&terminal, "LAST MIN");
    terminal.press("+");
    sees(&terminal, "every 1 s");
    terminal.press("q");
    assert!(top.wait().success());
}

#[test]
fn however_it_ends_the_terminal_is_given_back() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let signals = [Signal::TERM, Signal::INT, Signal::HUP];
    let keys = ["q", "\x03"];
    for end in 0..signals.len() + keys.len() {
        let terminal = Terminal::new(80, 24);
        let before = terminal.modes().local_modes;
        let mut top = start_on(&terminal, &buses, &["plant"]);
        sees(&terminal, "q quit");
        assert_eq!(terminal.is_taken(), (true, true));
        assert_ne!(terminal.modes().local_modes, before);
        match signals.get(end) {
            Some(signal) => top.signal(*signal),
            None => terminal.press(keys[end - signals.len()]),
        }
        assert_eq!(top.wait().code(), Some(0), "{end}");
        assert_eq!(terminal.modes().local_modes, before, "{end}");
        wait_until("the first screen", || terminal.is_taken() == (false, false));
        assert!(top.stderr().is_empty(), "{}", top.errors());
    }
    assert_eq!(buses.subscriber_count("plant"), 0);
}

/// The subscriber of `top` takes the slot of one that died. The dead one stays in the list.
#[test]
fn the_dead_are_shown() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let mut subscriber = buses.subscribe(&["--bus", "plant"]);
    subscriber.kill();
    let listed = buses.succeed(&["top", "--once"]);
    assert!(listed.contains("DEAD"), "{listed}");
    let listed = json_lines(buses.succeed(&["top", "--once", "--json"]).as_bytes());
    let row = &listed[0]["buses"][0];
    assert_eq!((&row["subscribers"], &row["dead"]), (&0.into(), &1.into()), "{row}");
    let info = buses.succeed(&["info", "plant"]);
    assert!(info.contains("\nsubscribers 0 of 128, and 1 dead\n"), "{info}");
    let text = buses.succeed(&["top", "plant", "--once"]);
    assert!(text.contains("toroni-sub #0") && text.contains("  dead"), "{text}");
    assert!(text.contains("! 1 participant died"), "{text}");
    assert!(text.contains("SUBSCRIBERS 0/"), "{text}");
    let mut subscriber = buses.subscribe(&["--bus", "plant"]);
    subscriber.kill();
    let terminal = Terminal::new(100, 30);
    let mut top = start_on(&terminal, &buses, &["plant"]);
    sees(&terminal, "no messages since");
    // A part of the screen may be drawn.
    wait_until("a dead subscriber", || line_with(&terminal, "toroni-sub #0").ends_with("dead"));
    terminal.press("q");
    assert!(top.wait().success());
}

/// As Ctrl-Z does in a shell.
#[test]
fn it_can_be_suspended() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let terminal = Terminal::new(80, 24);
    let before = terminal.modes().local_modes;
    let mut command = buses.command(&["top", "plant"]);
    terminal.attach(&mut command);
    // A shell does the same. The signal would not stop a process that no shell could continue.
    let mut top = Process::start(command.process_group(0));
    sees(&terminal, "q quit");
    wait_until("a subscriber for topics", || buses.subscriber_count("plant") == 1);
    terminal.press("\x1a");
    wait_until("it has stopped", || toroni_testkit::process::is_stopped(top.id()));
    assert_eq!(terminal.modes().local_modes, before);
    wait_until("the first screen", || terminal.is_taken() == (false, false));
    assert_eq!(buses.subscriber_count("plant"), 0, "it reads nothing");
    top.signal(Signal::CONT);
    wait_until("the screen", || terminal.is_taken() == (true, true));
    sees(&terminal, "q quit");
    terminal.press("q");
    assert!(top.wait().success());
    assert_eq!(terminal.modes().local_modes, before);
}

/// By another process: `kill -TSTP` asks it to stop, `kill -STOP` does not ask.
#[test]
fn after_any_stop_it_takes_its_terminal_again() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let terminal = Terminal::new(80, 24);
    let before = terminal.modes();
    let mut command = buses.command(&["top", "plant"]);
    terminal.attach(&mut command);
    let mut top = Process::start(command.process_group(0));
    sees(&terminal, "q quit");
    let taken = terminal.modes().local_modes;
    for signal in [Signal::TSTP, Signal::STOP, Signal::TSTP, Signal::STOP] {
        top.signal(signal);
        wait_until("it has stopped", || toroni_testkit::process::is_stopped(top.id()));
        if signal == Signal::TSTP {
            assert_eq!(terminal.modes().local_modes, before.local_modes);
            wait_until("the first screen", || terminal.is_taken() == (false, false));
        }
        terminal.take_back(&before);
        wait_until("the shell", || terminal.screen().trim() == "$ fg");
        top.signal(Signal::CONT);
        wait_until("the screen", || terminal.is_taken() == (true, true));
        sees(&terminal, "q quit");
        sees(&terminal, "SUBSCRIBERS 0/");
        wait_until("the modes", || terminal.modes().local_modes == taken);
    }
    terminal.press("q");
    assert!(top.wait().success());
    assert_eq!(terminal.modes().local_modes, before.local_modes);
}

#[test]
fn it_ends_with_its_terminal() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let terminal = Terminal::new(80, 24);
    let mut top = start_on(&terminal, &buses, &["plant"]);
    sees(&terminal, "q quit");
    drop(terminal);
    assert_eq!(top.wait().code(), Some(0));
    assert_eq!(buses.subscriber_count("plant"), 0);
}

/// Nothing can be written to standard error either.
#[test]
fn it_ends_with_a_terminal_that_is_also_its_standard_error() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    for arguments in [&["top"][..], &["top", "plant"]] {
        let terminal = Terminal::new(80, 24);
        let mut command = buses.command(arguments);
        terminal.attach_all(&mut command);
        let mut top = Process::start(&mut command);
        // Else it has the terminal's other end, too.
        drop(command);
        sees(&terminal, "q quit");
        drop(terminal);
        assert_eq!(top.wait().code(), Some(0), "{arguments:?}");
    }
}

/// The first process of a container, or a terminal's only one: the kernel does not stop what no shell could continue.
#[test]
fn where_no_shell_could_continue_it_ctrl_z_says_so() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let terminal = Terminal::new(80, 24);
    let mut command = std::process::Command::new("setsid");
    command.arg("--wait").arg(buses.command(&[]).get_program()).args(["top", "plant"]);
    command.env("TORONI_DIR", buses.path());
    terminal.attach(&mut command);
    let mut top = Process::start(&mut command);
    sees(&terminal, "q quit");
    terminal.press("\x1a");
    sees(&terminal, "no shell could continue top");
    assert_eq!(terminal.is_taken(), (true, true));
    terminal.press("?");
    sees(&terminal, "WHAT IT DOES");
    terminal.press("?");
    wait_until("the keys are hidden", || !terminal.screen().contains("WHAT IT DOES"));
    terminal.press("q");
    assert!(top.wait().success());
}

/// Ctrl-S stops the output of a terminal: the program is blocked in a write when the signal comes.
#[test]
fn a_signal_ends_it_while_the_terminal_is_stopped() {
    let buses = Buses::new();
    let (_subscriber, _publisher) = busy(&buses);
    let terminal = Terminal::new(100, 30);
    let before = terminal.modes().local_modes;
    let mut top = start_on(&terminal, &buses, &["plant", "--interval", "0.1"]);
    sees(&terminal, "q quit");
    terminal.stop_output();
    // The first number is that of the system call: write.
    let write = if cfg!(target_arch = "x86_64") { "1 " } else { "64 " };
    wait_until("a blocked write", || {
        fs::read_to_string(format!("/proc/{}/syscall", top.id()))
            .is_ok_and(|call| call.starts_with(write))
    });
    top.signal(Signal::TERM);
    let code = top.wait().code();
    assert!(matches!(code, Some(0 | 143)), "{code:?}");
    assert_eq!(terminal.modes().local_modes, before);
}

#[test]
fn without_colors_only_colors_are_missing() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    for (variable, colored) in [("", true), ("1", false)] {
        let terminal = Terminal::new(80, 24);
        let mut command = buses.command(&["top", "plant"]);
        terminal.attach(&mut command);
        let mut top = Process::start(command.env("NO_COLOR", variable));
        sees(&terminal, "SUBSCRIBERS 0/");
        // Cyan as a background.
        let has_colors =
            || terminal.has_received("\x1b[48;5;6m") || terminal.has_received(";48;5;6m");
        if colored {
            wait_until("colors", has_colors);
        }
        terminal.press("q");
        assert!(top.wait().success());
        wait_until("the first screen", || terminal.is_taken() == (false, false));
        assert_eq!(has_colors(), colored, "{}", terminal.screen());
    }
}

#[test]
fn a_killed_top_leaves_neither_slot_nor_lock() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant", "--max-subscribers", "1", "--capacity", "64KiB"]);
    let _publisher = publish(&buses, "plant");
    let mut random = toroni_testkit::Random::from_environment();
    for round in 0..8 {
        let terminal = Terminal::new(80, 24);
        let mut top = start_on(&terminal, &buses, &["plant", "--interval", "0.1"]);
        if round % 2 == 0 {
            sees(&terminal, "plant/camera/frame");
        }
        std::thread::sleep(Duration::from_millis(random.below(60)));
        top.kill();
    }
    // The only slot is free: else this subscriber would be refused.
    let mut subscriber = buses.subscribe(&["--bus", "plant", "--count", "10", "--payload-only"]);
    assert!(subscriber.wait().success());
    let info = buses.info("plant");
    let is_dead = |owner: &Value| owner["alive"] == false;
    assert!(!is_dead(&info["lock_owner"]), "{info}");
}

#[test]
fn without_a_terminal_it_prints_one_screen() {
    let buses = Buses::new();
    let (_subscriber, _publisher) = busy(&buses);
    for arguments in [&["top", "plant"][..], &["top", "plant", "--once"]] {
        let text = buses.succeed(arguments);
        for wanted in ["PUBLISHERS 1/", "SUBSCRIBERS 1/", "plant/camera/frame", "lock "] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    let rate = serde_json::from_str::<Value>(&buses.succeed(&["top", "plant", "--once", "--json"]));
    let shown = rate.unwrap();
    let topic = &shown["topics"]["rows"][0];
    assert_eq!(topic["topic"], "plant/camera/frame", "{shown}");
    assert_eq!(topic["mean_bytes"], 200.0);
    assert!(topic["messages_per_second"].as_f64().unwrap() > 0.0, "{shown}");
    let list = buses.succeed(&["top"]);
    assert!(list.contains("BUSES 1") && list.contains("plant"), "{list}");
    let listed = json_lines(buses.succeed(&["top", "--once", "--json"]).as_bytes());
    assert_eq!(listed[0]["buses"][0]["name"], "plant");
    assert_eq!(listed[0]["buses"][0]["subscribers"], 1);
}

#[test]
fn the_examples_of_the_help_run_as_written() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let has_jq = std::process::Command::new("jq")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let examples = buses.examples("top");
    assert_eq!(examples.len(), 3, "{examples:?}");
    for example in &examples {
        let example = match example.split_once(" | jq ") {
            Some((without, _)) if !has_jq => without,
            _ => example,
        };
        let output = Process::start(&mut buses.shell(example)).finish();
        assert!(output.status.success() && !output.stdout.is_empty(), "{example}: {output:?}");
        assert!(output.stderr.is_empty(), "{example}: {output:?}");
    }
}

#[test]
fn wrong_usage_is_refused() {
    let buses = Buses::new();
    let said = |arguments: &[&str]| {
        let output = buses.run(arguments);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["top", "nowhere"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no bus at") && text.contains("nowhere"), "{text}");
    let (code, text) = said(&["top", "--interval", "0.01"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("the shortest interval is 0.1 seconds"), "{text}");
    let (code, text) = said(&["--bus", "a", "top", "b"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("two buses"), "{text}");
    assert!(buses.succeed(&["top", "--once"]).contains("no buses in"));
}

/// The next object that `--json` prints, if it meets a condition; else one after it.
fn object_where(top: &mut Process, mut condition: impl FnMut(&Value) -> bool) -> Value {
    let line = top.line_where(|line| condition(&serde_json::from_str(line).unwrap()));
    serde_json::from_str(&line).unwrap()
}

#[test]
fn a_bus_may_be_removed_made_again_and_damaged() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let mut top = buses.start(&["top", "plant", "--json", "--interval", "0.1"]);
    let mut list = buses.start(&["top", "--json", "--interval", "0.1"]);
    object_where(&mut top, |shown| shown["problem"].is_null());
    let is_listed = |shown: &Value| shown["buses"].as_array().is_some_and(|all| !all.is_empty());
    object_where(&mut list, is_listed);

    let directory = buses.path().join("plant");
    fs::remove_dir_all(&directory).unwrap();
    let shown = object_where(&mut top, |shown| !shown["problem"].is_null());
    assert!(shown["problem"].as_str().unwrap().contains("there is no bus at"), "{shown}");
    object_where(&mut list, |shown| !is_listed(shown));

    buses.succeed(&["create", "plant", "--capacity", "128KiB"]);
    let shown = object_where(&mut top, |shown| shown["problem"].is_null());
    assert_eq!(shown["capacity"], 128 << 10);

    // Bytes of an enemy, in place, while it is open.
    let mut random = toroni_testkit::Random::from_environment();
    for file in ["readers", "publishers", "ring"] {
        let path = directory.join(file);
        let length = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
        for _ in 0..3 {
            let bytes: Vec<u8> = (0..length.div_ceil(8))
                .flat_map(|_| random.number().to_ne_bytes())
                .take(length - 4096)
                .collect();
            let open = fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&open, &bytes, 4096).unwrap();
            for _ in 0..3 {
                top.line();
            }
        }
    }
    let ring = fs::OpenOptions::new().write(true).open(directory.join("ring")).unwrap();
    ring.set_len(100).unwrap();
    object_where(&mut top, |shown| !shown["problem"].is_null());
    object_where(&mut list, |shown| !shown["buses"][0]["problem"].is_null());

    // The whole directory vanishes, and comes back.
    let aside = buses.path().with_extension("aside");
    fs::rename(buses.path(), &aside).unwrap();
    object_where(&mut top, |shown| !shown["problem"].is_null());
    object_where(&mut list, |shown| !is_listed(shown));
    fs::remove_dir_all(aside.join("plant")).unwrap();
    fs::rename(&aside, buses.path()).unwrap();
    buses.succeed(&["create", "plant"]);
    object_where(&mut top, |shown| shown["problem"].is_null());
    object_where(&mut list, is_listed);
    for process in [top, list] {
        process.signal(Signal::TERM);
        assert_eq!(process.finish().status.code(), Some(0));
    }
}

#[test]
fn with_the_right_to_read_the_ring_it_says_what_it_cannot_see() {
    let buses = Buses::new();
    let (_subscriber, _publisher) = busy(&buses);
    let directory = buses.path().join("plant");
    let set = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(buses.path(), 0o755);
    set(&directory, 0o755);
    set(&directory.join("ring"), 0o644);
    for file in ["readers", "publishers"] {
        set(&directory.join(file), 0o600);
    }
    let mut command = buses.command(&["top", "plant", "--once"]);
    if rustix::process::getuid().is_root() {
        // Modes do not stop root.
        command = buses.as_other_user(&["top", "plant", "--once"]);
    } else {
        for file in ["readers", "publishers"] {
            set(&directory.join(file), 0);
        }
    }
    let output = Process::start(&mut command).finish();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in [
        "who publishes and who waits is unknown",
        "who lags and who lost messages is unknown",
        "no rates per topic: no permission",
        " msg/s",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}
