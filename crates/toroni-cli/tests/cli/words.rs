//! Users who write one word for another, and output that cannot be written.

use crate::support::Buses;
#[cfg(feature = "top")]
use crate::support::wait_until;
use std::fs::OpenOptions;
use std::process::Stdio;
use toroni_testkit::Directory;

/// Returns the exit code and what was said.
fn said(buses: &Buses, arguments: &[&str]) -> (i32, String) {
    let output = buses.run(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_name_of_a_bus_in_place_of_a_topic_is_noticed() {
    let (buses, files) = (Buses::new(), Directory::new());
    let file = files.path().join("a.mcap");
    for name in ["default", "demo"] {
        buses.succeed(&["create", name]);
    }
    for arguments in [
        &["topics", "demo"][..],
        &["hz", "demo", "--count", "1", "--interval", "0.05"],
        &["sub", "demo", "--timeout", "0.05"],
        &["get", "demo"],
        &["record", file.to_str().unwrap(), "demo", "--duration", "0.05"],
    ] {
        let (_, text) = said(&buses, arguments);
        let advice = format!("there is a bus demo: `toroni --bus demo {}`", arguments[0]);
        assert!(text.contains(&advice), "{arguments:?}: {text}");
    }
    // Not for another word, the bus itself, or a topic that is there.
    buses.succeed(&["pub", "demo", "x"]);
    for arguments in
        [&["topics", "demo"][..], &["topics", "other"], &["--bus", "demo", "topics", "demo"]]
    {
        assert_eq!(said(&buses, arguments), (0, String::new()), "{arguments:?}");
    }
}

#[test]
fn the_words_of_other_programs_get_a_suggestion() {
    let buses = Buses::new();
    for (word, command) in [
        ("list", "ls"),
        ("status", "info"),
        ("publish", "pub"),
        ("subscribe", "sub"),
        ("delete", "rm"),
        #[cfg(feature = "top")]
        ("watch", "top"),
        ("topic", "topics"),
        ("creat", "create"),
        ("version", "--version"),
    ] {
        for arguments in [&[word][..], &["help", word]] {
            let (code, text) = said(&buses, arguments);
            let wanted = format!("did you mean `toroni {command}`?");
            assert!(code == 2 && text.contains(&wanted), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn an_option_for_an_argument_is_explained() {
    let buses = Buses::new();
    for (arguments, name) in [
        (&["sub", "--topic", "a"][..], "PATTERN"),
        (&["topics", "--pattern=a"], "PATTERN"),
        (&["pub", "--topic", "a", "x"], "TOPIC"),
        (&["info", "--name", "a"], "NAME"),
        (&["create", "--name", "a"], "NAME"),
    ] {
        let (code, text) = said(&buses, arguments);
        let option = arguments[1].split('=').next().unwrap();
        let wanted = format!("{name} is no option: write it without '{option}'");
        assert!(code == 2 && text.contains(&wanted), "{arguments:?}: {text}");
        assert!(!text.contains("similar"), "{arguments:?}: {text}");
    }
}

/// `TORONI_DIR` is set in all tests, and `TORONI_BUS` here.
#[test]
fn a_usage_line_requires_nothing_that_the_environment_sets() {
    let buses = Buses::new();
    for arguments in [&["sub", "--nothing"][..], &["create"], &["pub", "a", "x", "--rate"]] {
        let output = buses.command(arguments).env("TORONI_BUS", "plant").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let usage = text.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
        assert!(!usage.contains("--dir") && !usage.contains("--bus"), "{arguments:?}: {text}");
    }
}

#[test]
fn rates_are_understood_as_people_write_them() {
    let buses = Buses::new();
    buses.succeed(&["pub", "a", "x", "--repeat", "2", "--rate", "1kHz"]);
    buses.succeed(&["pub", "a", "x", "--repeat", "2", "--rate", "1khz"]);
    assert_eq!(buses.info("default")["messages"], 4);
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_listen_on_names_and_refuse_what_no_bus_can_be_called() {
    let buses = Buses::new();
    let mut server = buses.start(&["serve-metrics", "--listen", "localhost:0"]);
    let line = server.error_line();
    assert!(line.contains("serving http://127.0.0.1:") || line.contains("http://[::1]:"), "{line}");
    server.kill();
    for wrong in ["localhost", "9478", "localhost:x"] {
        let (code, text) = said(&buses, &["serve-metrics", "--listen", wrong]);
        assert!(code == 2 && text.contains("write ADDRESS:PORT"), "{wrong}: {text}");
    }
    let (code, text) = said(&buses, &["serve-metrics", "--listen", "localhost:0", "--bus", "a/b"]);
    assert!(code == 2 && text.contains("the bus name \"a/b\""), "{text}");
}

#[test]
fn who_has_a_bus_open_is_named() {
    let buses = Buses::new();
    let _subscriber = buses.subscribe(&["--bus", "plant", "--name", "logger"]);
    for command in ["rm", "clean"] {
        let (code, text) = said(&buses, &[command, "plant"]);
        assert!(
            code == 1 && text.contains("it is in use") && text.contains("open in logger ("),
            "{text}"
        );
    }
}

#[cfg(feature = "top")]
#[test]
fn who_only_looks_at_a_bus_is_named() {
    let buses = Buses::new();
    buses.succeed(&["create", "quiet"]);
    // A list of buses opens each, and takes no place on it.
    let mut top = buses.start(&["top", "--json", "--interval", "0.1"]);
    for _ in 0..3 {
        top.line();
    }
    let (code, text) = said(&buses, &["rm", "quiet"]);
    assert!(code == 1 && text.contains(&format!("(open in toroni ({}))", top.id())), "{text}");
    top.kill();
    wait_until("the bus is removed", || buses.run(&["rm", "quiet"]).status.success());
}

/// What is printed is the result: a script must notice that it is incomplete.
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let buses = Buses::new();
    buses.succeed(&["pub", "a", "x"]);
    let commands = [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "sub"],
        &["sub", "--help"],
        &["sub", "--version"],
        &["completions", "bash"],
        &["man"],
        &["man", "sub"],
        &["ls"],
        &["ls", "--json"],
        &["info"],
        &["topics"],
        &["hz", "--count", "1", "--interval", "0.05"],
        &["doctor"],
        &["create", "x"],
        &["rm", "x"],
        &["clean", "--dry-run"],
        &["sub", "--from", "oldest", "--count", "1"],
        &["demo", "--help"],
        #[cfg(feature = "top")]
        &["top", "--once"],
        #[cfg(feature = "top")]
        &["top", "default", "--once", "--json"],
    ];
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = buses.command(arguments);
        let output = command.stdout(Stdio::from(full)).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("cannot write to standard output"), "{arguments:?}: {text}");
    }
}
