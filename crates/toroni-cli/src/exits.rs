//! The exit codes of every command, as `--help` and the manual pages show them.

use std::fmt::Write;

struct Exits {
    command: &'static str,
    /// Exit code 0.
    success: &'static str,
    /// Exit code 1.
    failure: &'static str,
    /// What else than wrong usage has exit code 2.
    refused: Option<&'static str>,
    /// Exit code 3, for commands that report lost messages.
    lost: Option<&'static str>,
    /// When a signal is the usual way to end the command, which then exits with 0.
    ended_by_signal: Option<&'static str>,
}

impl Exits {
    const fn new(command: &'static str, success: &'static str, failure: &'static str) -> Self {
        Self { command, success, failure, refused: None, lost: None, ended_by_signal: None }
    }

    #[cfg(feature = "net")]
    const fn refused(self, refused: &'static str) -> Self {
        Self { refused: Some(refused), ..self }
    }

    const fn lost(self, lost: &'static str) -> Self {
        Self { lost: Some(lost), ..self }
    }

    const fn ended_by_signal(self, when: &'static str) -> Self {
        Self { ended_by_signal: Some(when), ..self }
    }
}

/// One row for each command that is not hidden, in the order of the help.
const TABLE: &[Exits] = &[
    Exits::new("demo", "every check passed", "a check failed, or the demo could not run"),
    Exits::new(
        "pub",
        "every message was published",
        "a message could not be published, or another publisher is exclusive",
    )
    .lost("the input reports lost messages, with --json --strict")
    .ended_by_signal("while it reads messages from a terminal or a pipe"),
    Exits::new(
        "sub",
        "--count messages were printed; without --count, --timeout passed",
        "failure, or --timeout passed before --count messages were printed",
    )
    .lost("messages were lost, with --strict")
    .ended_by_signal("without --count"),
    Exits::new("hz", "--count reports were printed", "failure").ended_by_signal("without --count"),
    #[cfg(feature = "record")]
    Exits::new(
        "record",
        "everything was recorded until --count, --duration or --after",
        "failure, such as a full disk; the file is finished with what fits",
    )
    .lost("messages were lost, with --strict")
    .ended_by_signal("without --count and --duration"),
    #[cfg(feature = "record")]
    Exits::new("replay", "everything was played, or listed", "failure")
        .lost("a recording has losses, with --lost fail")
        .ended_by_signal("with --loop without a number"),
    Exits::new(
        "create",
        "the bus was created, or with --if-absent exists with the given settings",
        "failure",
    ),
    Exits::new("ls", "success, even if there is no bus", "failure"),
    Exits::new("info", "success", "failure, or there is no such bus"),
    Exits::new("topics", "success, even if there is no topic", "failure, or there is no such bus"),
    #[cfg(feature = "top")]
    Exits::new(
        "top",
        "a key ended it, or --once printed its screen",
        "failure, or there is no such bus",
    )
    .ended_by_signal("without --once"),
    Exits::new("doctor", "every check passed, possibly with warnings", "a check failed"),
    #[cfg(feature = "net")]
    Exits::new(
        "net",
        "the answer was printed\nnet receive: --count messages came\nnet replay: all of the history that is there came",
        "failure\nnet address: the groups cannot be used together\nnet probe: an expected host is not heard both ways\n\
         net latency: no stream was heard\nnet replay: the source cannot be reached",
    )
    .refused("net send, net receive: a node would not start with the options")
    .lost("net replay: messages were lost, with --strict")
    .ended_by_signal("while it runs send, receive, probe or latency"),
    #[cfg(feature = "net")]
    Exits::new(
        "node",
        "node check: a node would start with the file",
        "the file cannot be read, or the node cannot go on",
    )
    .refused("the node does not start with the file")
    .ended_by_signal("with --config"),
    #[cfg(feature = "sequencer")]
    Exits::new(
        "sequencer",
        "it is done, or printed",
        "failure\nsequencer status: there is no leader\n\
         sequencer send: the command is not known to be part of the order\n\
         sequencer digest: the members differ, or one does not answer\n\
         sequencer rewind: no member has all of the events\nsequencer log: the log is damaged\n\
         sequencer elect, members: the group is not known to have changed\nsequencer recover: the log cannot be used",
    ),
    Exits::new("rm", "every bus was removed", "a bus could not be removed"),
    Exits::new("clean", "success", "failure, or nothing could be done for the named bus"),
    #[cfg(feature = "metrics")]
    Exits::new(
        "serve-metrics",
        "never by itself: it serves until a signal ends it",
        "it cannot listen on the address",
    )
    .ended_by_signal("while it serves"),
    #[cfg(feature = "bench")]
    Exits::new("bench", "the benchmark is complete, whether or not it met its goals", "failure"),
    Exits::new("completions", "success", "failure"),
    Exits::new("man", "success", "failure"),
];

const INTERRUPTED: &str = "a signal (SIGHUP, SIGINT, SIGTERM) ended it before it was done";

/// Returns the codes of one command, one per line, or `None` if the command is not in the table.
pub(crate) fn of(command: &str) -> Option<String> {
    let exits = TABLE.iter().find(|exits| exits.command == command)?;
    let ended = exits.ended_by_signal.map(|when| format!("a signal ended it {when}"));
    let mut text = String::new();
    row(&mut text, "0", exits.success);
    if let Some(ended) = &ended {
        row(&mut text, "0", ended);
    }
    row(&mut text, "1", exits.failure);
    row(&mut text, "2", "wrong usage");
    if let Some(refused) = exits.refused {
        row(&mut text, "2", refused);
    }
    if let Some(lost) = exits.lost {
        row(&mut text, "3", lost);
    }
    row(&mut text, "129, 130, 143", INTERRUPTED);
    Some(text)
}

/// Returns the codes of all commands, and those in which commands differ.
pub(crate) fn overview() -> String {
    let mut text = String::new();
    row(&mut text, "0", "success, or the reader of the output closed it");
    for exits in TABLE {
        if let Some(when) = exits.ended_by_signal {
            row(&mut text, "0", &format!("{}: a signal ended it {when}", exits.command));
        }
    }
    row(&mut text, "1", "failure");
    row(&mut text, "2", "wrong usage");
    for exits in TABLE {
        if let Some(refused) = exits.refused {
            row(&mut text, "2", &format!("{}: {refused}", exits.command));
        }
    }
    for exits in TABLE {
        if let Some(lost) = exits.lost {
            row(&mut text, "3", &format!("{}: {lost}", exits.command));
        }
    }
    row(&mut text, "129, 130, 143", INTERRUPTED);
    text
}

/// Adds a row for each line of the meaning.
fn row(text: &mut String, code: &str, meaning: &str) {
    for meaning in meaning.lines() {
        let feed = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{feed}  {code:<14} {meaning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definitions;

    #[test]
    fn every_command_has_one_row() {
        let program = definitions();
        let shown: Vec<&str> = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let rows: Vec<&str> = TABLE.iter().map(|exits| exits.command).collect();
        assert_eq!(rows, shown);
    }

    #[test]
    fn rows_fit_a_line_of_the_help() {
        for exits in TABLE {
            let rows = of(exits.command).unwrap();
            for row in rows.lines() {
                assert!(row.chars().count() <= 100, "{}: {row}", exits.command);
            }
        }
    }
}
