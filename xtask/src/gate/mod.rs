//! `cargo xtask gate`: what a commit must pass besides `cargo xtask check` and `cargo test --workspace`.
//!
//! Running everything for each commit would take hours a day. The gate always runs what is cheap or has found
//! most. It runs the rest if its own files have changed within a day, and otherwise a sample, which the hash of the tree
//! chooses. All random numbers come from the same hash, so a commit gets the same ones on every machine.

mod choice;
mod history;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use clap::Args;

use self::choice::{Choice, Extent, choose};
use self::history::History;
use self::parts::PARTS;
use crate::command::{Failure, Steps, cargo};
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// Run every part whole, and the tests with their longest repetitions (sets TORONI_LONG_TESTS=1)
    #[arg(long)]
    long: bool,
    /// Only print what would run
    #[arg(long)]
    list: bool,
    /// Only print the number that chooses: the first 32 bits of the hash of HEAD's tree. Tests take their random numbers
    /// from it if TORONI_GATE_SEED is set to it
    #[arg(long, conflicts_with_all = ["list", "long"])]
    seed: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let root = metadata::root();
    let tree = history::tree(root);
    if options.seed {
        println!("{tree}");
        return Ok(());
    }
    let history = History::read(root)?;
    let history = history.as_ref().map_err(|why| *why);
    if history.is_ok() && history::has_changes(root)? {
        println!("files differ from HEAD: the gate chooses for HEAD, and runs what is here");
    }
    let exists = |path: &str| root.join(path).exists();
    let mut chosen = Vec::new();
    for (place, part) in PARTS.iter().enumerate() {
        let own = if history.is_ok() { part.own.paths()? } else { Vec::new() };
        let Choice { extent, reason } =
            choose(part, place, &own, history, tree, exists, options.long)?;
        let commands =
            if extent == Extent::Nothing { Vec::new() } else { (part.commands)(extent, tree) };
        match extent {
            Extent::Nothing => println!("{}: not this time ({reason})", part.name),
            _ if commands.is_empty() => {
                return Err(Failure(format!(
                    "part `{}` has no command for tree {tree}",
                    part.name
                )));
            }
            _ => println!("{}: {} ({reason})", part.name, commands.join(", ")),
        }
        chosen.push((part.name, commands));
    }
    if options.list {
        return Ok(());
    }
    let mut steps = Steps::default();
    for (name, commands) in &chosen {
        if !commands.is_empty() {
            steps.step(name, || {
                commands.iter().try_for_each(|command| start(command, tree, options.long))?;
                Ok(String::new())
            });
        }
    }
    steps.finish_under("the gate")
}

/// How many of the last lines of a command a failure repeats.
const LAST_LINES: usize = 100;

/// Runs `cargo` with these words, and shows what it prints. A failure has the end of it.
fn start(words: &str, tree: u32, long: bool) -> Result<(), Failure> {
    let mut command = match words.strip_prefix("xtask ") {
        Some(words) => {
            let this = std::env::current_exe()
                .map_err(|error| Failure(format!("cannot find this program: {error}")))?;
            let mut command = Command::new(this);
            command.args(words.split_whitespace()).current_dir(metadata::root());
            command
        }
        None => cargo(words.split_whitespace()),
    };
    seed(&mut command, tree);
    if words == "xtask busy" {
        // The longest tests are for a machine that has nothing else to do. `.ci/run --long` asks for them.
        command.env_remove("TORONI_LONG_TESTS");
    } else if long {
        command.env("TORONI_LONG_TESTS", "1");
    }
    println!("$ cargo {words}");
    let failed = |what: &str, error| Failure(format!("cannot {what} `cargo {words}`: {error}"));
    let (output, input) = std::io::pipe().map_err(|error| failed("make a pipe for", error))?;
    let errors = input.try_clone().map_err(|error| failed("make a pipe for", error))?;
    command.stdin(Stdio::null()).stdout(input).stderr(errors);
    let mut child = command.spawn().map_err(|error| failed("start", error))?;
    // Holds the other end of the pipe, which must close when the child ends.
    drop(command);
    let mut last = VecDeque::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| failed("read from", error))?;
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let status = child.wait().map_err(|error| failed("wait for", error))?;
    if status.success() {
        return Ok(());
    }
    let last: Vec<String> = last.into();
    Err(Failure(format!("`cargo {words}` ended with {status}:\n{}", last.join("\n"))))
}

/// Tells tests to take their random numbers from the tree, unless the developer has chosen others.
fn seed(command: &mut Command, tree: u32) {
    for name in ["TORONI_GATE_SEED", "PROPTEST_RNG_SEED"] {
        if std::env::var_os(name).is_none() {
            command.env(name, tree.to_string());
        }
    }
}
