//! Help and manual pages.

use crate::support::Buses;

/// Returns the commands that `toroni --help` lists. `help` is clap's own.
fn commands(buses: &Buses) -> Vec<String> {
    let overview = buses.succeed(&["--help"]);
    let (_, list) = overview.split_once("\nCommands:\n").unwrap();
    let names: Vec<String> = list
        .lines()
        .take_while(|line| !line.is_empty())
        // A description continues in a line with a deeper indentation.
        .filter(|line| !line.starts_with("   "))
        // Those of the program toroni-node have tests of their own.
        .filter(|line| {
            !["net", "node", "sequencer"].iter().any(|part| line.starts_with(&format!("  {part} ")))
        })
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    for known in ["demo", "pub", "man"] {
        assert!(names.iter().any(|name| name == known), "{known} is not in {names:?}");
    }
    names
}

/// `clean` takes its bus from the command line alone: without a name, it cleans all of them.
#[test]
fn the_help_of_clean_names_no_default_bus() {
    let buses = Buses::new();
    let help = |command| buses.succeed(&[command, "--help"]);
    assert!(help("info").contains("TORONI_BUS"));
    let help = help("clean");
    assert!(help.contains("--bus <NAME>  Clean only this bus"), "{help}");
    assert!(!help.contains("TORONI_BUS") && !help.contains("[default: default]"), "{help}");
}

#[test]
fn every_command_explains_itself() {
    let buses = Buses::new();
    let overview = buses.succeed(&["--help"]);
    for command in commands(&buses) {
        let help = buses.succeed(&[&command, "--help"]);
        assert!(help.contains("Usage: toroni"), "{command}");
        assert!(help.contains("Example"), "{command}");
    }
    assert!(buses.succeed(&["echo", "--help"]).contains("Usage: toroni"));
    for hidden in ["demo-publisher", "demo-subscriber"] {
        assert!(!overview.contains(hidden));
    }
    assert!(buses.succeed(&["--version"]).starts_with("toroni "));
}

/// The input of `pub --json` names the topics, so there are two ways to use `pub`.
#[test]
fn the_help_of_pub_shows_both_kinds_of_input() {
    let buses = Buses::new();
    let help = buses.succeed(&["pub", "--help"]);
    let usage =
        "\nUsage: toroni pub [OPTIONS] <TOPIC> [MESSAGE]\n       toroni pub [OPTIONS] --json\n";
    assert!(help.contains(usage), "{help}");
}

#[test]
fn without_a_command_there_is_help_without_hidden_commands() {
    let buses = Buses::new();
    for arguments in [&[][..], &["--bus", "x"]] {
        let output = buses.run(arguments);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Usage: toroni") && said.contains("\n  sub "), "{said}");
        assert!(!said.contains("demo-publisher"), "{said}");
        // Variables of the environment make no difference.
        let bare = buses.command(arguments).env_remove("TORONI_DIR").output().unwrap();
        let bare = String::from_utf8_lossy(&bare.stderr);
        assert!(bare.starts_with("A message bus") && said.starts_with("A message bus"), "{bare}");
    }
}

#[test]
fn options_are_shown_where_they_mean_something() {
    let buses = Buses::new();
    let groups = [
        (&["pub", "sub", "get", "clear", "hz", "info", "topics", "clean"][..], true, true),
        (&["ls", "doctor", "demo", "create", "rm"], false, true),
        #[cfg(feature = "top")]
        (&["top"], true, true),
        #[cfg(feature = "metrics")]
        (&["serve-metrics"], true, true),
        #[cfg(feature = "record")]
        (&["record", "replay"], true, true),
        (&["completions", "man"], false, false),
    ];
    let mut listed: Vec<&str> =
        groups.iter().flat_map(|(names, ..)| names.iter().copied()).collect();
    let mut all = commands(&buses);
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all, "list each command above, with the options that its help shows");
    for (names, bus, dir) in groups {
        for command in names {
            let help = buses.succeed(&[command, "--help"]);
            assert_eq!(help.contains("--bus <NAME>"), bus, "{command}");
            assert_eq!(help.contains("--dir <DIR>"), dir, "{command}");
            assert_eq!(help.contains("Which bus:"), bus || dir, "{command}");
        }
    }
    // Hidden options still work.
    let elsewhere = buses.path().join("elsewhere");
    buses.succeed(&["create", "b", "--dir", elsewhere.to_str().unwrap()]);
    assert!(elsewhere.join("b/ring").exists());
}

#[test]
fn manual_pages_render() {
    let buses = Buses::new();
    let page = buses.succeed(&["man"]);
    assert!(page.contains(".TH toroni 1"));
    for command in commands(&buses) {
        let page = buses.succeed(&["man", &command]);
        assert!(page.contains(&format!(".TH toroni-{command} 1")), "{page}");
        for section in ["SYNOPSIS", "\"EXIT STATUS\"", "EXAMPLES"] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{command} {section}\n{page}");
        }
        assert_eq!(
            page.contains("TORONI_DIR"),
            !["completions", "man"].contains(&command.as_str())
        );
    }
    assert!(buses.succeed(&["man", "sub"]).contains("messages were lost, with"));
    assert_eq!(buses.run(&["man", "nonsense"]).status.code(), Some(2));
    let pages = buses.path().join("share/man1");
    buses.succeed(&["man", "--to", pages.to_str().unwrap()]);
    for page in ["toroni.1", "toroni-sub.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
}
