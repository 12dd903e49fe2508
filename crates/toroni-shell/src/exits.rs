//! Exit codes of commands, as `--help` and the manual pages show them.

use crate::man::visible;
use clap::Command;
use std::fmt::Write;

/// The exit codes of one command.
pub struct Exits {
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
    /// Says when the command succeeds, and when it fails. A command below another one is named with both words.
    #[must_use]
    pub const fn new(command: &'static str, success: &'static str, failure: &'static str) -> Self {
        Self { command, success, failure, refused: None, lost: None, ended_by_signal: None }
    }

    /// Adds what else than wrong usage has exit code 2.
    #[must_use]
    pub const fn refused(self, refused: &'static str) -> Self {
        Self { refused: Some(refused), ..self }
    }

    /// Adds when it reports lost messages.
    #[must_use]
    pub const fn lost(self, lost: &'static str) -> Self {
        Self { lost: Some(lost), ..self }
    }

    /// Adds when a signal is the usual way to end it.
    #[must_use]
    pub const fn ended_by_signal(self, when: &'static str) -> Self {
        Self { ended_by_signal: Some(when), ..self }
    }
}

const INTERRUPTED: &str = "a signal (SIGHUP, SIGINT, SIGTERM) ended it before it was done";

/// Returns the codes of one command, one per line, or `None` if the command is not in the table.
fn of(table: &[Exits], command: &str) -> Option<String> {
    let exits = table.iter().find(|exits| exits.command == command)?;
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
fn overview(table: &[Exits]) -> String {
    let mut text = String::new();
    row(&mut text, "0", "success, or the reader of the output closed it");
    for exits in table {
        if let Some(when) = exits.ended_by_signal {
            row(&mut text, "0", &format!("{}: a signal ended it {when}", exits.command));
        }
    }
    row(&mut text, "1", "failure");
    row(&mut text, "2", "wrong usage");
    for exits in table {
        if let Some(refused) = exits.refused {
            row(&mut text, "2", &format!("{}: {refused}", exits.command));
        }
    }
    for exits in table {
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

/// Adds the exit codes to the definitions of a program and its commands, after what their help says. `table` has a row
/// for each command that is not hidden, in the order of the help, and after it one for each command below it whose codes
/// are others.
#[must_use]
pub fn add(program: Command, table: &[Exits]) -> Command {
    with_codes(program, &overview(table)).mut_subcommands(|command| {
        let Some(codes) = of(table, command.get_name()) else { return command };
        let above = command.get_name().to_owned();
        with_codes(command, &codes).mut_subcommands(|below| {
            // Without a row, it has the codes of the command above it.
            let own = of(table, &format!("{above} {}", below.get_name()));
            with_codes(below, own.as_deref().unwrap_or(&codes))
        })
    })
}

fn with_codes(command: Command, codes: &str) -> Command {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_help(format!("{notes}\n\nExit codes:\n{codes}"))
}

/// Says what is wrong with the definitions of a program and its table, for its tests: commands without a row, rows that do
/// not fit a line, and commands whose help shows no example.
///
/// # Panics
/// If clap finds a mistake in the definitions.
#[must_use]
pub fn faults(table: &[Exits], program: Command) -> Vec<String> {
    program.clone().debug_assert();
    let mut faults = faults_of_rows(table, &program);
    let shows_example = |command: &&Command| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        help.starts_with("Example") && help.contains(command.get_name())
    };
    let without = visible(&program).filter(|command| !shows_example(command));
    faults.extend(without.map(|command| format!("{} has no example", command.get_name())));
    faults
}

fn faults_of_rows(table: &[Exits], program: &Command) -> Vec<String> {
    let rows: Vec<&str> = table.iter().map(|exits| exits.command).collect();
    let mut commands = Vec::new();
    for command in visible(program) {
        let name = command.get_name();
        commands.push(name.to_owned());
        let below = visible(command).map(|below| format!("{name} {}", below.get_name()));
        commands.extend(below.filter(|below| rows.contains(&below.as_str())));
    }
    let mut faults = Vec::new();
    if rows != commands {
        faults.push(format!("the rows are {rows:?}, and the commands {commands:?}"));
    }
    for codes in rows.iter().filter_map(|command| of(table, command)) {
        faults.extend(codes.lines().filter(|line| line.chars().count() > 100).map(str::to_owned));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Exits] = &[
        Exits::new("one", "done", "failure"),
        Exits::new("two", "done", "failure"),
        Exits::new("two below", "done", "another failure"),
    ];

    fn program() -> Command {
        let example = |name: &str| format!("Example:\n  toroni {name} x");
        let below = ["below", "beside"].map(Command::new);
        let two = Command::new("two").after_help(example("two")).subcommands(below);
        Command::new("toroni")
            .subcommand(Command::new("one").after_help(example("one")))
            .subcommand(two)
    }

    #[test]
    fn a_command_without_a_row_or_an_example_is_found() {
        assert!(faults(TABLE, add(program(), TABLE)).is_empty());
        for table in [&TABLE[..1], &TABLE[1..], &[]] {
            assert_eq!(faults(table, program()).len(), 1, "a row is missing");
        }
        for row in ["two nothing", "nothing", "one"] {
            let mut table =
                TABLE.iter().map(|row| Exits::new(row.command, "", "")).collect::<Vec<_>>();
            table.push(Exits::new(row, "", ""));
            assert_eq!(faults(&table, program()).len(), 1, "{row} is too much");
        }
        for help in ["Examples:\n  toroni two", "one"] {
            let program = program().mut_subcommand("one", |one| one.after_help(help.to_owned()));
            assert!(
                faults(TABLE, program).iter().any(|fault| fault == "one has no example"),
                "{help}"
            );
        }
    }

    #[test]
    fn a_row_of_a_command_below_another_takes_precedence() {
        let program = add(program(), TABLE);
        let help = |name| {
            let two = program.find_subcommand("two").unwrap();
            two.find_subcommand(name).unwrap().get_after_help().unwrap().to_string()
        };
        assert!(help("below").contains("  1              another failure\n"));
        assert!(help("beside").contains("  1              failure\n"));
    }
}
