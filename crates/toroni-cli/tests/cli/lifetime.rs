//! How buses are created, kept and removed.

use crate::support::{Buses, Process, json_lines, wait_until};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fails(buses: &Buses, arguments: &[&str], wanted: &[&str]) {
    let output = buses.run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    let said = stderr(&output);
    assert!(said.starts_with("toroni: "), "{arguments:?}: {said}");
    for word in wanted {
        assert!(said.contains(word), "{arguments:?}: {word:?} is not in {said}");
    }
}

/// Otherwise the next publisher would create the bus again, with default rights and settings.
#[test]
fn what_was_made_on_purpose_survives_a_clean() {
    let buses = Buses::new();
    let create = ["create", "secret", "--mode", "0600", "--policy", "overwrite"];
    buses.succeed(&create);
    assert_eq!(buses.succeed(&["clean"]), "Nothing to clean.\n");
    buses.succeed(&["--bus", "secret", "pub", "t", "x"]);
    let info = buses.info("secret");
    assert_eq!((&info["policy"], &info["persistent"]), (&"overwrite".into(), &true.into()));
    let ring = buses.path().join("secret/ring").metadata().unwrap();
    assert_eq!(ring.permissions().mode() & 0o777, 0o600);
    fails(&buses, &["clean", "secret"], &["is persistent (`toroni rm secret` removes it)"]);
    assert_eq!(buses.entries(), ["secret"]);
}

#[test]
fn clean_removes_buses_that_are_not_persistent() {
    let buses = Buses::new();
    for bus in ["idle", "other"] {
        buses.succeed(&["--bus", bus, "pub", "t", "x"]);
    }
    buses.succeed(&["create", "kept"]);
    buses.succeed(&["create", "scratch", "--temporary"]);
    let subscriber = buses.subscribe(&["--bus", "busy"]);
    let dry = buses.succeed(&["clean", "--dry-run"]);
    assert!(dry.contains("would remove bus") && dry.contains("idle"), "{dry}");
    fails(&buses, &["clean", "busy"], &["is in use"]);
    assert_eq!(buses.entries(), ["busy", "idle", "kept", "other", "scratch"]);
    buses.succeed(&["clean", "idle"]);
    buses.succeed(&["--bus", "other", "clean"]);
    assert_eq!(buses.entries(), ["busy", "kept", "scratch"]);
    let done = json_lines(buses.succeed(&["clean", "--json"]).as_bytes());
    assert!(done.iter().any(|line| line["done"] == true), "{done:?}");
    assert_eq!(buses.entries(), ["busy", "kept"]);
    drop(subscriber);
    buses.succeed(&["clean"]);
    assert_eq!(buses.entries(), ["kept"]);
}

#[test]
fn rm_removes_named_buses_that_no_process_has_open() {
    let buses = Buses::new();
    for bus in ["a", "b", "c"] {
        buses.succeed(&["create", bus]);
    }
    let removed = buses.succeed(&["rm", "a", "b"]);
    assert_eq!(removed.matches("remove bus").count(), 2, "{removed}");
    assert_eq!(buses.entries(), ["c"]);
    fails(&buses, &["rm", "d"], &["there is no bus at", "/d (in this directory: c)"]);
    let subscriber = buses.subscribe(&["--bus", "c"]);
    fails(&buses, &["rm", "c"], &["cannot remove c: it is in use"]);
    drop(subscriber);
    // A missing bus does not keep the others from being removed.
    let output = buses.run(&["rm", "d", "c", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_lines(&output.stdout)[0]["done"], true);
    assert!(buses.entries().is_empty());
}

#[test]
fn clean_all_removes_persistent_buses_if_confirmed() {
    let buses = Buses::new();
    buses.succeed(&["create", "a"]);
    buses.succeed(&["create", "b"]);
    buses.succeed(&["--bus", "c", "pub", "t", "x"]);
    let subscriber = buses.subscribe(&["--bus", "b"]);
    let dry = buses.succeed(&["clean", "--all", "--dry-run"]);
    assert_eq!(dry.matches("would remove bus").count(), 2, "{dry}");
    let refused = buses.run(&["clean", "--all"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--yes"), "{refused:?}");
    assert_eq!(buses.entries(), ["a", "b", "c"]);
    buses.succeed(&["clean", "--all", "--yes"]);
    assert_eq!(buses.entries(), ["b"]);
    drop(subscriber);
    buses.succeed(&["clean", "--all", "--yes"]);
    assert!(buses.entries().is_empty());
}

/// Runs the program in `script`, which gives it a terminal.
#[test]
fn clean_all_asks_on_a_terminal() {
    let buses = Buses::new();
    buses.succeed(&["create", "a"]);
    let answer = |answer: &str| {
        let mut command = std::process::Command::new("script");
        let program = env!("CARGO_BIN_EXE_toroni");
        command.args(["-qec", &format!("{program} clean --all"), "/dev/null"]);
        command.env("TORONI_DIR", buses.path()).env_remove("TORONI_BUS");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut process = Process::start(&mut command);
        let mut input = process.stdin().unwrap();
        let (mut screen, mut said) = (process.take_stdout().unwrap(), Vec::new());
        // The terminal echoes the answer. It would stand in the question if it came before all of that.
        while !said.ends_with(b"[y/N] ") {
            let mut byte = [0];
            screen.read_exact(&mut byte).unwrap();
            said.extend(byte);
        }
        input.write_all(answer.as_bytes()).unwrap();
        screen.read_to_end(&mut said).unwrap();
        (process.finish().status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    for no in ["n\n", "\n", "\u{4}"] {
        let (code, said) = answer(no);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Remove the persistent buses a? [y/N]"), "{said}");
        assert_eq!(buses.entries(), ["a"], "{no:?}");
    }
    let (code, said) = answer("y\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(buses.entries().is_empty());
}

#[test]
fn if_absent_compares_what_is_given() {
    let buses = Buses::new();
    let create = ["create", "plant", "--if-absent", "--capacity", "64KiB", "--mode", "0600"];
    assert!(buses.succeed(&create).starts_with("Created "));
    assert!(buses.succeed(&create).starts_with("Found "));
    // Settings that are not given are not compared.
    buses.succeed(&["create", "plant", "--if-absent", "--lock", "lease"]);
    for (option, value, found) in [
        ("--capacity", "128KiB", "65536"),
        ("--topic-table", "64KiB", "1048576"),
        ("--max-publishers", "3", "128"),
        ("--max-subscribers", "3", "128"),
        ("--max-arrivals", "3", "256"),
        ("--retained-topics", "3", "512 topics"),
        ("--retained-bytes", "4KiB", "458752 bytes"),
        ("--policy", "overwrite", "100ms"),
        ("--lock", "robust", "ease"),
        ("--notify", "datagram", "utex"),
        ("--mode", "0660", "0600"),
        ("--writers", "0", "none"),
        ("--readers", "0", "none"),
    ] {
        let arguments = ["create", "plant", "--if-absent", option, value];
        fails(&buses, &arguments, &[&format!("has {option}"), found, "is required"]);
    }
    // Of the two for retained topics, one may be given alone.
    buses.succeed(&["create", "small", "--retained-topics", "3", "--retained-bytes", "8KiB"]);
    for one in [["--retained-topics", "3"], ["--retained-bytes", "8KiB"]] {
        buses.succeed(&[&["create", "small", "--if-absent"], &one[..]].concat());
    }
    for flag in ["--huge-pages", "--temporary"] {
        fails(&buses, &["create", "plant", "--if-absent", flag], &["is required"]);
    }
    // A bus that `clean` would remove is not persistent, which `create` implies.
    buses.succeed(&["--bus", "scratch", "pub", "t", "x"]);
    fails(&buses, &["create", "scratch", "--if-absent"], &["persistent false", "is required"]);
}

#[test]
fn pub_reports_that_it_created_the_bus() {
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let made = buses.run(&["--bus", "plnat", "pub", "t", "x"]);
    assert!(made.status.success() && made.stdout.is_empty(), "{made:?}");
    let said = stderr(&made);
    assert!(said.starts_with("toroni: there is no bus at ") && said.lines().count() == 1, "{said}");
    assert!(said.contains("/plnat (in this directory: plant): created it"), "{said}");
    let again = buses.run(&["--bus", "plnat", "pub", "t", "x"]);
    assert!(again.status.success() && again.stderr.is_empty(), "{again:?}");
}

#[test]
fn an_invalid_topic_or_pattern_creates_no_bus() {
    let buses = Buses::new();
    for arguments in
        [&["pub", "plant/*", "x"][..], &["pub", "", "x"], &["sub", "a/b*"], &["hz", "a/b*"]]
    {
        assert_eq!(buses.run(arguments).status.code(), Some(2), "{arguments:?}");
        assert!(buses.entries().is_empty(), "{arguments:?}");
    }
}

#[test]
fn errors_list_the_existing_buses() {
    let buses = Buses::new();
    for bus in ["plant", "ticks"] {
        buses.succeed(&["create", bus]);
    }
    let hz = ["--bus", "plnat", "hz", "--count", "1"];
    for arguments in [&["info", "plnat"][..], &["--bus", "plnat", "topics"], &hz] {
        fails(
            &buses,
            arguments,
            &["/plnat (in this directory: plant, ticks)", "`toroni create plnat`"],
        );
    }
    assert_eq!(buses.entries(), ["plant", "ticks"]);
}

/// With a mistyped name, `sub` creates no bus and prints a remark. When the bus appears, `sub` misses no message.
#[test]
fn a_subscriber_waits_for_its_bus() {
    let buses = Buses::new();
    buses.succeed(&["create", "plnat"]);
    let mut subscriber = buses.start(&["--bus", "plant", "sub", "--count", "2"]);
    let said = subscriber.error_line();
    assert!(said.starts_with("toroni: there is no bus at "), "{said}");
    assert!(
        said.contains("/plant (in this directory: plnat)") && said.contains("--create"),
        "{said}"
    );
    assert_eq!(buses.entries(), ["plnat"]);
    buses.succeed(&["--bus", "plant", "pub", "t", "first"]);
    assert_eq!(subscriber.line(), "t\tfirst\n");
    wait_until("it is subscribed", || buses.subscriber_count("plant") == 1);
    buses.succeed(&["--bus", "plant", "pub", "t", "second"]);
    assert_eq!(subscriber.line(), "t\tsecond\n");
    assert!(subscriber.finish().status.success());
}

#[test]
fn a_subscriber_that_waits_for_its_bus_can_be_ended() {
    let buses = Buses::new();
    let timed_out = buses.run(&["sub", "--timeout", "0.1"]);
    assert_eq!(timed_out.status.code(), Some(0), "{timed_out:?}");
    let counted = buses.run(&["sub", "--timeout", "0.1", "--count", "1"]);
    assert_eq!(counted.status.code(), Some(1));
    assert!(stderr(&counted).contains("received 0 of 1"), "{counted:?}");
    let waiting = buses.start(&["sub"]);
    waiting.error_line();
    waiting.signal(rustix::process::Signal::INT);
    assert_eq!(waiting.finish().status.code(), Some(0));
    let mut piped = buses.start(&["sub"]);
    drop(piped.take_stdout());
    assert_eq!(piped.finish().status.code(), Some(0));
    // No process can create a bus if the parent directory does not exist.
    let deep = buses.path().join("no/where");
    fails(&buses, &["--dir", deep.to_str().unwrap(), "sub"], &["there is no directory", "/no"]);
    assert!(buses.entries().is_empty());
    buses.succeed(&["sub", "--create", "--timeout", "0.01"]);
    assert_eq!(buses.entries(), ["default"]);
}
