//! Commands that the program `toroni-node` has: `toroni node …` runs it. It is a program of its own, so that who needs
//! only the bus compiles and installs no network.

use crate::external;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;
use toroni_shell::complete::VARIABLE;
use toroni_shell::failure::Failure;
use toroni_shell::program;

/// A command of `toroni-node`.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// What the help says of it.
    about: &'static str,
}

/// All of them, in the order of the help.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "net",
        about: "Send and receive without a file, and calculate what hosts need (toroni-node)",
    },
    Part {
        name: "node",
        about: "Connect the bus with those of other hosts, or check the configuration for that (toroni-node)",
    },
    Part {
        name: "sequencer",
        about: "One order over several hosts: begin it, observe it, send commands, read its log (toroni-node)",
    },
];

impl Part {
    /// Returns its line in the help. Its definition is in `toroni-node`.
    pub(crate) fn line(&self) -> Command {
        Command::new(self.name).about(self.about)
    }
}

/// Replaces this process by `toroni-node` if these words, which are all arguments, are about one of its commands: they call
/// it, ask for its help or its page, or a shell asks how to complete it. Returns if they are not, or why that fails.
pub(crate) fn run(words: &[OsString]) -> Option<Failure> {
    // The words to be completed come after `--` and the name of this program.
    let is_completion = std::env::var_os(VARIABLE).is_some();
    let typed = match words.iter().position(|word| word == "--") {
        Some(end) if is_completion => words.get(end + 2..).unwrap_or_default(),
        _ => words,
    };
    let part = named(typed)?;
    // This program knows the names of all pages.
    if is_completion && commands(typed).next().is_some_and(|first| first == "man") {
        return None;
    }
    let Some(path) = find() else {
        // A shell shows no errors.
        return (!is_completion).then(|| missing(part));
    };
    let error = calling(&path).args(words).exec();
    Some(cannot_run(&path, &error))
}

/// Lets `toroni-node` write its manual pages to this directory. Returns `false` if it is not installed.
pub(crate) fn write_pages(directory: &Path) -> Result<bool, Failure> {
    let Some(path) = find() else { return Ok(false) };
    let mut command = calling(&path);
    let status = command.args(["man", "--to"]).arg(directory).status();
    match status {
        Ok(status) if status.success() => Ok(true),
        // It has said why.
        Ok(status) => Err(Failure::Failed(format!(
            "{} did not write its manual pages: {status}",
            path.display()
        ))),
        Err(error) => Err(cannot_run(&path, &error)),
    }
}

fn find() -> Option<PathBuf> {
    external::find(OsStr::new("node"))
}

/// Returns the command that runs `toroni-node`, which learns the version of its caller.
fn calling(path: &Path) -> process::Command {
    let mut command = process::Command::new(path);
    command.env(program::CALLER, env!("CARGO_PKG_VERSION"));
    command
}

fn cannot_run(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot run {}: {error}", path.display()))
}

fn missing(part: &Part) -> Failure {
    Failure::Usage(format!(
        "toroni {} is part of toroni-node, which is not installed: install Debian's package toroni-node, or run cargo \
         install toroni-node",
        part.name
    ))
}

/// Returns the part that these words are about.
fn named(words: &[OsString]) -> Option<&'static Part> {
    // These are about the program itself.
    let general = ["-h", "--help", "-V", "--version"];
    if words.first().is_some_and(|word| general.iter().any(|option| word == *option)) {
        return None;
    }
    let mut commands = commands(words);
    let first = commands.next()?;
    let about =
        if ["help", "man"].iter().any(|word| first == *word) { commands.next()? } else { first };
    PARTS.iter().find(|part| about == part.name)
}

/// Returns the words that are neither options of the program nor the values of such.
fn commands(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    /// `--to` is one of `man`.
    const WITH_VALUES: [&str; 5] = ["-b", "--bus", "--dir", "--color", "--to"];
    let mut is_value = false;
    words.iter().filter(move |word| {
        if std::mem::replace(&mut is_value, false) {
            return false;
        }
        is_value = WITH_VALUES.iter().any(|option| *word == option);
        !word.as_encoded_bytes().starts_with(b"-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_recognised_behind_options() {
        let part = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            named(&words).map(|part| part.name)
        };
        for line in [
            "net probe",
            "--bus x net",
            "-b net net probe",
            "--dir=/mnt --color never net send t",
            "help net",
            "help net probe",
            "man net",
        ] {
            assert_eq!(part(line), Some("net"), "{line}");
        }
        for line in [
            "--help net",
            "-V node",
            "",
            "-b net",
            "sub net",
            "--dir net ls",
            "man",
            "man --to net",
            "pub node 1",
            "nets",
        ] {
            assert_eq!(part(line), None, "{line}");
        }
    }

    #[test]
    fn options_with_values_are_those_of_the_program() {
        let program = crate::cli::definitions();
        let takes = |option: &clap::Arg| option.get_action().takes_values();
        for option in program.get_opts().filter(|option| takes(option)) {
            let long = option.get_long().unwrap();
            let words =
                [format!("--{long}"), "net".to_owned(), "ls".to_owned()].map(OsString::from);
            assert!(named(&words).is_none(), "--{long}");
        }
    }
}
