//! Completion in shells.

use crate::support::{Buses, Process};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the completions that bash offers for the last of these words.
fn bash(buses: &Buses, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(toroni completions bash)
        COMP_WORDS=(toroni "$@") COMP_CWORD=$# COMP_TYPE=9
        function=$(complete -p toroni); function=${function##*-F }
        "${function% toroni}" toroni "${@: -1}" "${COMP_WORDS[-2]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-c", script, "bash"]).args(words);
    let output = run(buses, &mut command);
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

fn run(buses: &Buses, command: &mut Command) -> Output {
    let directory = Path::new(env!("CARGO_BIN_EXE_toroni")).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    command
        .env("PATH", path)
        .env_remove("TORONI_BUS")
        .env("TORONI_DIR", buses.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Process::start(command).finish()
}

#[test]
fn bash_offers_commands_and_options() {
    let buses = Buses::new();
    let commands = bash(&buses, &[""]);
    let is_offered = |command| commands.iter().any(|offered| offered == command);
    for command in ["demo", "pub", "sub", "hz", "info", "topics", "clean", "man"] {
        assert!(is_offered(command), "{command}: {commands:?}");
    }
    assert!(!commands.iter().any(|offered| offered.starts_with("demo-")), "{commands:?}");
    assert_eq!(bash(&buses, &["comp"]), ["completions"]);
    assert_eq!(bash(&buses, &["sub", "--templ"]), ["--template"]);
    assert_eq!(bash(&buses, &["echo", "--format", "h"]), ["hex"]);
    assert!(buses.entries().is_empty(), "completion creates no bus");
}

#[test]
fn bash_offers_buses_and_topics() {
    let buses = Buses::new();
    for topic in ["plant/boiler/heat", "plant/pump", "office", "-b", "`touch x`", "a;b", "größe"]
    {
        buses.succeed(&["-b", "plant", "pub", "--", topic, "x"]);
    }
    buses.succeed(&["create", "plan-b"]);
    buses.succeed(&["create", "other"]);
    assert_eq!(bash(&buses, &["info", "pl"]), ["plan-b", "plant"]);
    for before in [&["-b", "o"][..], &["clean", "o"], &["sub", "--bus", "o"]] {
        assert_eq!(bash(&buses, before), ["other"], "{before:?}");
    }
    let topics = ["plant/boiler/heat", "plant/pump"];
    for before in [
        &["-b", "plant", "sub", "pl"][..],
        &["sub", "x", "-b", "plant", "pl"],
        &["--bus", "plant", "pub", "pl"],
        &["hz", "-b", "plant", "pl"],
        &["-b", "plant", "topics", "pl"],
    ] {
        assert_eq!(bash(&buses, before), topics, "{before:?}");
    }
    // Only retained topics have values.
    buses.succeed(&["-b", "plant", "pub", "--retain", "plant/pump", "x"]);
    for command in ["get", "clear"] {
        assert_eq!(bash(&buses, &["-b", "plant", command, "pl"]), ["plant/pump"], "{command}");
    }
    // Names that a shell would not read as one word are not offered.
    let all = bash(&buses, &["-b", "plant", "pub", ""]);
    let words: Vec<&String> = all.iter().filter(|word| !word.starts_with('-')).collect();
    assert_eq!(words, ["größe", "office", "plant/boiler/heat", "plant/pump"]);
    assert!(bash(&buses, &["-b", "nosuch", "sub", "pl"]).is_empty());
}

/// Options that take a file or a directory offer those that are there. An option that may be repeated offers buses each
/// time.
#[test]
fn bash_offers_files_directories_and_commands() {
    let buses = Buses::new();
    let files = buses.path().join("files");
    std::fs::create_dir_all(files.join("inner-folder")).unwrap();
    std::fs::write(files.join("inner-file"), "x").unwrap();
    let begun = format!("{}/inner", files.display());
    let file = format!("{}/inner-file", files.display());
    let folder = format!("{}/inner-folder/", files.display());
    for before in [&["pub", "t", "--file"][..], &["man", "--to"], &["ls", "--dir"]] {
        let offered = bash(&buses, &[before, &[&begun]].concat());
        assert!(offered.contains(&folder), "{before:?}: {offered:?}");
        let takes_files = before.contains(&"--file");
        assert!(!takes_files || offered.contains(&file), "{before:?}: {offered:?}");
    }
    assert_eq!(bash(&buses, &["man", "topi"]), ["topics"]);
    buses.succeed(&["create", "plant"]);
    buses.succeed(&["create", "planet"]);
    #[cfg(feature = "metrics")]
    for before in
        [&["serve-metrics", "--bus", "pl"][..], &["serve-metrics", "--bus", "plant", "--bus", "pl"]]
    {
        assert_eq!(bash(&buses, before), ["planet", "plant"], "{before:?}");
    }
}

/// Skips shells that are not installed.
#[test]
fn shells_can_read_their_scripts() {
    let buses = Buses::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = buses.succeed(&["completions", shell]);
        assert!(script.contains("TORONI_COMPLETE"), "{shell}");
        let path = buses.path().join(shell);
        std::fs::write(&path, script).unwrap();
        let mut command = Command::new(shell);
        command.arg("-n").arg(&path).stderr(Stdio::piped());
        match command.output() {
            Ok(output) => {
                assert!(output.status.success() && output.stderr.is_empty(), "{output:?}")
            }
            Err(error) => eprintln!("{shell} is not installed here: {error}"),
        }
    }
    assert_eq!(buses.run(&["completions", "tcsh"]).status.code(), Some(2));
}
