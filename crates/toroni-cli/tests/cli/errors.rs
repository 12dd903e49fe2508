//! Error messages. They name options of the program, not items of the Rust library.

use crate::support::Buses;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;

/// Names of settings in the library. Errors name the options instead.
const SETTINGS: [&str; 4] = ["max_publishers", "max_subscribers", "max_arrivals", "topic_table"];

/// Arguments, the exit code, and a part of the error message.
const WRONG: [(&[&str], i32, &str); 46] = [
    (&["create", "there"], 1, "there is already a bus at "),
    (&["info", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["topics", "--bus", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["hz", "--bus", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["clean", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["clean", "--all"], 2, "cannot ask for confirmation: add --yes"),
    (&["sub", "--timeout", "0"], 2, "'--timeout <S>': 0 is too short"),
    (&["hz", "--interval", "0"], 2, "'--interval <S>': 0 is too short"),
    (&["pub", "a//b", "x"], 2, "empty segment"),
    (&["pub", "a/*", "x"], 2, "reserved character"),
    (&["get", "--bus", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["clear", "t", "--bus", "nosuch"], 1, "in this directory: odd, other, there"),
    (&["get", "a/b*"], 2, "mixes a wildcard"),
    (&["clear", "a//b"], 2, "empty segment"),
    (&["pub"], 2, "`toroni pub TOPIC`"),
    (&["pub"], 2, "with --json, each message on standard input names its own"),
    (&["pub", "--size", "8", "--repeat", "5"], 2, "`toroni pub TOPIC`"),
    (&["pub", "a", "--size", "3MiB"], 1, "--capacity"),
    (&["pub", "a", "--repeat", "5"], 2, "--repeat needs"),
    (&["pub", "a", "--file", "/no/such/file"], 1, "/no/such/file"),
    (&["pub", "a", "x", "--rate", "0"], 2, "'--rate <R/s>'"),
    (&["--bus", "nosuch", "sub", "a/b*"], 2, "mixes a wildcard"),
    (&["sub", "--from", "77", "--timeout", "9"], 1, "no message starts at position 77"),
    (&["sub", "--wait", "nap"], 2, "'--wait <WAIT>'"),
    (&["sub", "--ready-fd", "77"], 2, "--ready-fd 77"),
    (&["sub", "--nonsense"], 2, "unexpected argument"),
    (
        &["nonsense"],
        2,
        "there is no command \"nonsense\", and no program toroni-nonsense beside this one or in PATH",
    ),
    (&["help", "nonsense"], 2, "there is no command \"nonsense\""),
    (&["./nonsense"], 2, "there is no command \"./nonsense\": `toroni --help`"),
    (&["create", ".x"], 2, "the bus name \".x\""),
    (&["create", "q", "--capacity", "100"], 2, "--capacity is 100 bytes"),
    (&["create", "q", "--max-publishers", "0"], 2, "--max-publishers is 0"),
    (&["create", "q", "--max-arrivals", "65537"], 2, "--max-arrivals is 65537"),
    (&["create", "q", "--retained-topics", "4097"], 2, "--retained-topics is 4097 topics"),
    (&["create", "q", "--retained-bytes", "5000"], 2, "--retained-bytes is 5000 bytes"),
    (&["create", "q", "--max-subscribers", "9999"], 2, "--max-subscribers is 9999"),
    (&["create", "q", "--topic-table", "17"], 2, "--topic-table is 17 bytes"),
    (&["create", "q", "--policy", "wait:5h"], 2, "--policy is a wait of at most 18000s"),
    (&["create", "q", "--notify", "multicast:1.2.3.4:5"], 2, "--notify is the group 1.2.3.4:5"),
    (&["create", "q", "--writers", "no such group"], 1, "(option --writers or --readers)"),
    (&["--bus", "file", "pub", "a", "x"], 1, "is not a directory: choose another bus name"),
    (&["--bus", "odd", "pub", "a", "x"], 1, "is not a part of a Toroni bus"),
    (&["--bus", "link", "pub", "a", "x"], 1, "is a symbolic link"),
    (&["--dir", "/dev/null", "pub", "a", "x"], 1, "is not a directory: choose another bus name"),
    (&["--dir", "/no/such/dir/x", "pub", "a", "x"], 1, "there is no directory /no/such/dir"),
    (&["man", "nonsense"], 2, "there is no command"),
];

#[test]
fn errors_name_options_and_not_rust() {
    let buses = Buses::new();
    for name in ["there", "other"] {
        buses.succeed(&["create", name]);
    }
    // Not buses of Toroni: no message may advise to remove them.
    std::fs::write(buses.path().join("file"), "a file").unwrap();
    std::fs::create_dir(buses.path().join("odd")).unwrap();
    std::fs::write(buses.path().join("odd/ring"), "no bus").unwrap();
    symlink("/tmp", buses.path().join("link")).unwrap();
    let entries = buses.entries();

    for (arguments, code, part) in WRONG {
        let output = buses.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert!(said.starts_with("toroni: "), "{arguments:?}: {said}");
        assert_eq!(rust_in(&said), None, "{arguments:?}: {said}");
        if arguments.iter().any(|one| ["file", "odd", "link", "/dev/null"].contains(one)) {
            assert!(
                !said.contains("remove"),
                "advises to remove something that is not a bus: {said}"
            );
        }
    }
    // `pub` has created the default bus.
    let left: Vec<String> = buses.entries().into_iter().filter(|name| name != "default").collect();
    assert_eq!(left, entries);
}

/// As root leaves it with `mkdir`, or by creating the first bus in it.
#[test]
fn a_directory_that_root_made_comes_with_the_command_that_shares_it() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("skipped: only root can become other users");
    }
    let buses = Buses::new();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(buses.path(), 0o755);
    let shared = buses.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let command = format!("install -d -m 1777 {}", shared.display());
    for mode in [0o755, 0o700] {
        set(&shared, mode);
        for arguments in
            [&["create", "x"][..], &["pub", "a", "x"], &["sub", "--create"], &["doctor"]]
        {
            let mut process = buses.as_other_user(arguments);
            let output = process.env("TORONI_DIR", &shared).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            assert_eq!(output.status.code(), Some(1), "{mode:o} {arguments:?}: {said}");
            assert!(said.contains(&command), "{mode:o} {arguments:?}: {said}");
        }
    }
    // A directory that does not exist is named itself, and never the one above it.
    let missing = shared.join("missing");
    let command_for_missing = format!("install -d -m 1777 {}", missing.display());
    set(&shared, 0o755);
    for arguments in [&["create", "x"][..], &["pub", "a", "x"], &["sub", "--create"], &["doctor"]] {
        let said = said_to_other_user(&buses, arguments, &missing);
        let advised: Vec<_> = said.split("1777 ").skip(1).collect();
        assert!(!advised.is_empty(), "{arguments:?}: {said}");
        for path in advised {
            assert!(path.starts_with(missing.to_str().unwrap()), "{arguments:?}: {said}");
        }
        assert!(said.contains(&command_for_missing), "{arguments:?}: {said}");
    }
    // Below one that may not be searched, and in directories of the system, no command helps without harm.
    set(&shared, 0o700);
    for directory in [&*missing, "/etc".as_ref(), "/".as_ref()] {
        for arguments in
            [&["create", "x"][..], &["pub", "a", "x"], &["sub", "--create"], &["doctor"], &["ls"]]
        {
            let said = said_to_other_user(&buses, arguments, directory);
            let may_list = arguments == ["ls"] && directory != missing;
            assert!(may_list || said.contains("set TORONI_DIR to"), "{arguments:?}: {said}");
            assert!(!said.contains("1777"), "{arguments:?}: {said}");
        }
    }
    // The command helps.
    let status = std::process::Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(status.success());
    let mut process = buses.as_other_user(&["pub", "a", "x"]);
    assert!(process.env("TORONI_DIR", &shared).output().unwrap().status.success());
}

/// Returns what the program says if it runs as another user, with a directory of buses.
fn said_to_other_user(buses: &Buses, arguments: &[&str], directory: &std::path::Path) -> String {
    let mut process = buses.as_other_user(arguments);
    let output = process.env("TORONI_DIR", directory).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn errors_list_no_bus_if_there_is_none() {
    let buses = Buses::new();
    let output = buses.run(&["clean", "nosuch"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.ends_with("/nosuch: `toroni create nosuch` creates it\n"), "{said}");
}

/// Finds a word that has a meaning only in Rust.
fn rust_in(text: &str) -> Option<&str> {
    let types = ["BusConfig", "Error", "Policy", "LockKind", "NotifyKind", "Duration", "PathBuf"];
    let syntax = ["::", "Some(", "None", " { ", "Wait", "Overwrite", "Bounded"];
    types.iter().chain(&syntax).chain(&SETTINGS).copied().find(|part| text.contains(part)).or_else(
        || {
            // A name in backticks begins with a small letter, unless it stands for a value (NAME).
            let quoted = text.split('`').skip(1).step_by(2);
            quoted.into_iter().find(|name| {
                let mut letters = name.chars();
                letters.next().is_some_and(char::is_uppercase)
                    && letters.next().is_some_and(char::is_lowercase)
            })
        },
    )
}

/// A datagram per write shows the writes apart.
#[test]
fn an_error_is_one_write() {
    let buses = Buses::new();
    let (standard_error, reader) = UnixDatagram::pair().unwrap();
    let mut command = buses.command(&["info", "nosuch"]);
    let status = command.stderr(OwnedFd::from(standard_error)).status().unwrap();
    assert_eq!(status.code(), Some(1));
    reader.set_nonblocking(true).unwrap();
    let mut first = [0; 4096];
    let length = reader.recv(&mut first).unwrap();
    let first = str::from_utf8(&first[..length]).unwrap();
    assert!(first.starts_with("toroni: ") && first.ends_with('\n'), "{first:?}");
    assert_eq!(first.lines().count(), 1, "{first:?}");
}
