//! Help, manual pages and completion of the commands between hosts, and the versions of the two programs.

use crate::support::Buses;
use std::path::Path;
use std::process::Command;

/// Each command with those below it, whether its help shows `--bus`, and whether it shows `--dir`.
const COMMANDS: &[(&str, &[&str], bool, bool)] = &[
    (
        "net",
        &["send", "receive", "replay", "nodes", "probe", "latency", "buffer", "address"],
        false,
        false,
    ),
    ("node", &["check", "doctor"], false, true),
    (
        "sequencer",
        &["init", "status", "send", "digest", "rewind", "elect", "members", "recover", "log"],
        false,
        true,
    ),
];

#[test]
fn every_command_explains_itself_and_shows_the_options_that_mean_something() {
    let buses = Buses::new();
    for (command, below, bus, dir) in COMMANDS {
        let help = buses.succeed(&[command, "--help"]);
        assert_eq!(help, buses.succeed(&["help", command]), "{command}");
        assert!(help.contains(&format!("Usage: toroni {command}")), "{help}");
        assert!(help.contains("Example") && help.contains("Exit codes:"), "{help}");
        assert_eq!(help.contains("--bus <NAME>"), *bus, "{command}");
        assert_eq!(help.contains("--dir <DIR>"), *dir, "{command}");
        for name in *below {
            assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
            let help = buses.succeed(&[command, name, "--help"]);
            assert!(help.contains(&format!("Usage: toroni {command} {name}")), "{help}");
            let both = *command == "net" && ["send", "receive"].contains(name);
            assert_eq!(help.contains("--bus <NAME>"), both, "{command} {name}");
        }
    }
    assert_eq!(buses.run(&["net"]).status.code(), Some(2), "a command is missing");
}

/// A node runs until a signal ends it, and the commands below `node` end by themselves.
#[test]
fn the_check_and_the_doctor_have_exit_codes_of_their_own() {
    let buses = Buses::new();
    let codes = |arguments: &[&str]| {
        let help = buses.succeed(&[arguments, &["--help"]].concat());
        help.split_once("Exit codes:\n").unwrap().1.trim_end().to_owned()
    };
    const INTERRUPTED: &str =
        "\n  129, 130, 143  a signal (SIGHUP, SIGINT, SIGTERM) ended it before it was done";
    assert_eq!(
        codes(&["node", "doctor"]),
        "  0              every check passed, possibly with warnings\n  \
           1              a check failed, or the file cannot be read\n  \
           2              wrong usage\n  \
           2              the file is not UTF-8"
            .to_owned()
            + INTERRUPTED
    );
    assert!(
        codes(&["node", "check"]).contains("  0              a node would start with the file\n")
    );
    assert!(codes(&["node"]).contains("  0              a signal ended it while it runs\n"));
    let page = buses.path().join("man1");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toroni-node"));
    assert!(command.args(["man", "--to"]).arg(&page).status().unwrap().success());
    let page = std::fs::read_to_string(page.join("toroni-node-doctor.1")).unwrap();
    assert!(page.contains("every check passed, possibly with warnings"), "{page}");

    // What the two really return.
    let path = buses.path().join("node.toml");
    let file = path.to_str().unwrap();
    let returned = |of: &[u8]| {
        std::fs::write(&path, of).unwrap();
        let check = buses.run(&["node", "check", "--no-host", file]).status.code();
        (check, buses.run(&["node", "doctor", file]).status.code())
    };
    assert_eq!(returned(b"\xff"), (Some(2), Some(2)));
    assert_eq!(returned(b"[node]\n"), (Some(2), Some(1)), "the realm is missing");
    std::fs::remove_file(&path).unwrap();
    for command in ["check", "doctor"] {
        assert_eq!(buses.run(&["node", command, file]).status.code(), Some(1), "{command}");
    }
}

/// Returns the commands of a help with what it says of each, without line breaks.
fn listed(help: &str) -> Vec<(String, String)> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match commands.last_mut() {
            // A description continues in a line with a deeper indentation.
            Some((_, about)) if line.starts_with("   ") => {
                about.push_str(&format!(" {}", words.join(" ")));
            }
            _ => commands.push((words[0].to_owned(), words[1..].join(" "))),
        }
    }
    commands
}

/// The help of `toroni` has a line for each command of `toroni-node`, and does not know its definition.
#[test]
fn both_programs_say_the_same_of_the_commands() {
    let of_toroni = listed(&Buses::new().succeed(&["--help"]));
    let output = Command::new(env!("CARGO_BIN_EXE_toroni-node")).arg("--help").output().unwrap();
    let mut own = listed(&String::from_utf8(output.stdout).unwrap());
    own.retain(|(name, _)| name != "help");
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, COMMANDS.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    let marked = own.iter().map(|(name, about)| (name.clone(), format!("{about} (toroni-node)")));
    let parts = of_toroni.into_iter().filter(|(_, about)| about.ends_with("(toroni-node)"));
    assert_eq!(parts.collect::<Vec<_>>(), marked.collect::<Vec<_>>());
}

#[test]
fn manual_pages_render() {
    let buses = Buses::new();
    let program = env!("CARGO_BIN_EXE_toroni-node");
    let pages = buses.path().join("man1");
    let written = Command::new(program).args(["man", "--to"]).arg(&pages).status().unwrap();
    assert!(written.success());
    assert!(!pages.join("toroni.1").exists(), "that is the page of the other program");
    let both = buses.path().join("both");
    let output = buses.run(&["man", "--to", both.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(both.join("toroni.1").exists() && both.join("toroni-sub.1").exists());
    for page in std::fs::read_dir(&pages).unwrap() {
        let name = page.unwrap().file_name();
        let of = |folder: &Path| std::fs::read(folder.join(&name)).unwrap();
        assert!(of(&pages) == of(&both), "{name:?}");
    }
    for (command, below, _, dir) in COMMANDS {
        let page = buses.succeed(&["man", command]);
        assert_eq!(
            page,
            std::fs::read_to_string(pages.join(format!("toroni-{command}.1"))).unwrap()
        );
        assert!(page.contains(&format!(".TH toroni-{command} 1")), "{page}");
        for section in ["SYNOPSIS", "\"EXIT STATUS\"", "EXAMPLES"] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{command} {section}\n{page}");
        }
        assert_eq!(page.contains("TORONI_DIR"), *dir, "{command}");
        for name in *below {
            assert!(pages.join(format!("toroni-{command}-{name}.1")).exists(), "{command} {name}");
        }
    }
    let send = std::fs::read_to_string(pages.join("toroni-net-send.1")).unwrap();
    assert!(send.contains("TORONI_BUS") && send.contains("TORONI_DIR"), "{send}");
    let probe = std::fs::read_to_string(pages.join("toroni-net-probe.1")).unwrap();
    assert!(!probe.contains("TORONI_BUS"), "{probe}");
}

#[test]
fn shells_complete_through_both_programs() {
    let buses = Buses::new();
    let offered = |words: &[&str]| {
        let mut command = buses.command(&[]);
        command.env("TORONI_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
        let output = command.args(["--", "toroni"]).args(words).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = offered(&[""]);
    for command in ["net", "node", "sequencer", "sub"] {
        assert!(all.iter().any(|word| word == command), "{command}: {all:?}");
    }
    assert_eq!(offered(&["net", "pr"]), ["probe"]);
    assert_eq!(offered(&["-b", "x", "net", "rep"]), ["replay"]);
    assert_eq!(offered(&["node", "check", "--no-h"]), ["--no-host"]);
    assert_eq!(offered(&["sequencer", "rew"]), ["rewind"]);
    assert_eq!(offered(&["man", "net"]), ["net"]);
    assert_eq!(offered(&["man", "n"]), ["net", "node"]);
    assert_eq!(offered(&["help", "sequencer", "rew"]), ["rewind"]);
    buses.succeed(&["create", "plant"]);
    assert_eq!(offered(&["net", "send", "--bus", "pl"]), ["plant"]);
}

#[test]
fn each_program_states_its_own_version() {
    let own = env!("CARGO_PKG_VERSION");
    let version = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_toroni-node")).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    for option in ["--version", "-V"] {
        assert_eq!(version(&[option]), format!("toroni-node {own}\n"));
        assert_eq!(Buses::new().succeed(&[option]), format!("toroni {own}\n"));
    }
    assert_eq!(version(&["net", "--version"]), format!("toroni-net {own}\n"));
    assert_eq!(version(&["net", "send", "--version"]), format!("toroni-net-send {own}\n"));
}

#[test]
fn another_version_is_refused_and_both_are_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_toroni-node"))
        .args(["net", "address", "239.192.0.1"])
        .env("TORONI_CALLER", "9.8.7")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        said,
        format!(
            "toroni: toroni is version 9.8.7, and toroni-node is version {own}: install the same version of both\n"
        )
    );
    let output = Command::new(env!("CARGO_BIN_EXE_toroni-node"))
        .args(["net", "address", "239.192.0.1", "--color", "always"])
        .env("TORONI_CALLER", "9.8.7")
        .output()
        .unwrap();
    assert!(output.stderr.starts_with(b"\x1b[1;31mtoroni:\x1b[0m toroni is version"), "{output:?}");
}
