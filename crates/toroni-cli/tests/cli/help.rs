//! Help, completions, manual pages.

use crate::support::Buses;
use std::process::{Command, Stdio};

const COMMANDS: [&str; 12] = [
    "demo",
    "pub",
    "sub",
    "hz",
    "create",
    "ls",
    "info",
    "topics",
    "doctor",
    "clean",
    "completions",
    "man",
];

#[test]
fn every_command_explains_itself() {
    let buses = Buses::new();
    let overview = buses.succeed(&["--help"]);
    for command in COMMANDS {
        assert!(overview.contains(&format!("\n  {command} ")), "{command}");
        let help = buses.succeed(&[command, "--help"]);
        assert!(help.contains("Usage: toroni"), "{command}");
        assert!(help.contains("Example"), "{command}");
    }
    assert!(buses.succeed(&["echo", "--help"]).contains("Usage: toroni"));
    for hidden in ["demo-publisher", "demo-subscriber"] {
        assert!(!overview.contains(hidden));
    }
    assert!(buses.succeed(&["--version"]).starts_with("toroni "));
}

#[test]
fn shells_can_complete() {
    let buses = Buses::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = buses.succeed(&["completions", shell]);
        for word in COMMANDS {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        assert!(!script.contains("demo-publisher"), "{shell}");
        // Where the shell is installed, it must be able to read it.
        if let Some(status) = parsed_by(shell, &script) {
            assert!(status, "{shell} cannot read it");
        }
    }
    assert_eq!(buses.run(&["completions", "tcsh"]).status.code(), Some(2));
}

fn parsed_by(shell: &str, script: &str) -> Option<bool> {
    let mut child =
        Command::new(shell).arg("-n").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok()?;
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, script.as_bytes()).unwrap();
    drop(input);
    Some(child.wait().unwrap().success())
}

#[test]
fn manual_pages_render() {
    let buses = Buses::new();
    let page = buses.succeed(&["man"]);
    assert!(page.contains(".TH toroni 1"));
    for command in COMMANDS {
        let page = buses.succeed(&["man", command]);
        assert!(page.contains(&format!(".TH toroni-{command} 1")), "{page}");
        assert!(page.contains("Example"), "{command}");
    }
    assert_eq!(buses.run(&["man", "nonsense"]).status.code(), Some(2));
    buses.succeed(&["man", "--to", buses.path().to_str().unwrap()]);
    let entries = buses.entries();
    assert!(entries.contains(&"toroni.1".to_owned()));
    assert!(entries.contains(&"toroni-sub.1".to_owned()));
}
