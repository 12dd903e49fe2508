//! Commands that are programs of their own: `toroni NAME` runs the program `toroni-NAME`, which lies beside it or in PATH, if
//! it has no command NAME, as git and cargo do.

use crate::cli;
use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use rustix::fs::Access;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

/// What other programs call a command of this one.
const SYNONYMS: &[(&[&str], &str)] = &[
    (&["list", "buses", "dir"], "ls"),
    (&["status", "stat", "stats", "show", "inspect", "describe"], "info"),
    (&["publish", "send", "write", "put"], "pub"),
    (&["subscribe", "listen", "receive", "read", "cat", "tail", "print"], "sub"),
    (&["rate", "rates", "bw", "bandwidth"], "hz"),
    (&["remove", "delete", "del", "destroy"], "rm"),
    (&["new", "make", "mk", "add", "init"], "create"),
    (&["topic"], "topics"),
    (&["watch", "monitor", "ps"], "top"),
    (&["check", "diagnose"], "doctor"),
    (&["play"], "replay"),
    (&["rec", "dump", "capture"], "record"),
    (&["cleanup", "gc", "prune"], "clean"),
    (&["metrics", "serve", "prometheus"], "serve-metrics"),
    (&["nodes", "probe", "latency"], "net"),
    (&["version"], "--version"),
];

/// What the names of these programs begin with.
const PREFIX: &str = "toroni-";

/// The experiments. No package has their program, so who asks for it must learn how to get it.
const BENCH: &str = "bench";

/// Names that are less similar to the mistyped one are not suggested. One wrong or swapped letter in three is allowed.
const SIMILARITY: f64 = 0.6;

/// Replaces this process by the program of `words[0]`, with the other words as its arguments. Returns only if that
/// fails.
///
/// `--bus` and `--dir` of this command line become TORONI_BUS and TORONI_DIR, because the program parses only what
/// comes after its name.
pub(crate) fn run(words: &[OsString], location: &BusLocation, matches: &ArgMatches) -> Failure {
    let Some((name, arguments)) = words.split_first() else {
        return Failure::Usage("a command is missing".to_owned());
    };
    let Some(program) = find(name) else { return unknown(name) };
    let mut command = Command::new(&program);
    command.arg0(file_name(name)).args(arguments);
    let is_given = |option| matches.value_source(option) == Some(ValueSource::CommandLine);
    if is_given("bus") {
        command.env("TORONI_BUS", &location.bus);
    }
    if let (true, Some(directory)) = (is_given("dir"), &location.dir) {
        command.env("TORONI_DIR", directory);
    }
    replace_by(command, &program)
}

/// Runs `toroni-NAME --help` if clap failed because of `toroni help NAME`. Returns `None` if it failed otherwise, or the
/// failure if there is no such program.
pub(crate) fn help(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // `toroni sub help NAME` is the affair of `sub`.
    let is_command = |word: &OsString| word.to_str().is_some_and(is_known);
    let first = words.iter().position(|word| word == "help" || is_command(word))?;
    if words[first] != "help" || words.get(first + 1).is_none_or(|word| word != name.as_str()) {
        return None;
    }
    let Some(program) = find(OsStr::new(name)) else { return Some(unknown(OsStr::new(name))) };
    let mut command = Command::new(&program);
    command.arg0(file_name(OsStr::new(name))).arg("--help");
    Some(replace_by(command, &program))
}

fn is_known(word: &str) -> bool {
    word != "help" && cli::definitions().find_subcommand(word).is_some()
}

fn replace_by(mut command: Command, program: &Path) -> Failure {
    let error = command.exec();
    Failure::Failed(format!("cannot run {}: {error}", program.display()))
}

fn file_name(name: &OsStr) -> OsString {
    let mut file = OsString::from(PREFIX);
    file.push(name);
    file
}

/// Returns the path of the program for this name. A name with a slash is a path and not the name of a command.
pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() || name.as_encoded_bytes().contains(&b'/') {
        return None;
    }
    let file = file_name(name);
    directories().map(|directory| directory.join(&file)).find(|path| is_executable(path))
}

/// Returns the directory of this program, and then those of PATH. Programs that were built or installed together find one
/// another without PATH. Relative directories are left out: what a name means must not depend on the directory in which
/// the user happens to be.
fn directories() -> impl Iterator<Item = PathBuf> {
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = own.into_iter().chain(std::env::split_paths(&path)).collect();
    all.into_iter().filter(|directory| directory.is_absolute())
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

/// Returns the error for a name that is neither a command nor a program.
fn unknown(name: &OsStr) -> Failure {
    if name == BENCH {
        return Failure::Usage(format!(
            "toroni {BENCH} is the program {PREFIX}{BENCH}, which is not installed: build it in a checkout of Toroni with \
             `cargo build --release -p {PREFIX}{BENCH}`, and put it beside toroni or in PATH"
        ));
    }
    let shown = toroni_shell::output::printable(&name.to_string_lossy());
    let mut text = if name.as_encoded_bytes().contains(&b'/') || name.is_empty() {
        format!("there is no command {shown:?}")
    } else {
        format!(
            "there is no command {shown:?}, and no program {PREFIX}{shown} beside this one or in PATH"
        )
    };
    match nearest(&name.to_string_lossy()) {
        Some(similar) => text.push_str(&format!(": did you mean `toroni {similar}`?")),
        None => text.push_str(": `toroni --help` lists the commands"),
    }
    Failure::Usage(text)
}

/// Returns the command or program whose name is most similar to `name`, if one is similar enough.
fn nearest(name: &str) -> Option<String> {
    let mut known: BTreeSet<String> = programs();
    for command in cli::shown().get_subcommands().filter(|command| !command.is_hide_set()) {
        known.extend(command.get_name_and_visible_aliases().into_iter().map(str::to_owned));
    }
    let meant = SYNONYMS.iter().find(|(others, _)| others.contains(&name)).map(|(_, own)| *own);
    // A command may be left out of this build.
    if let Some(own) = meant.filter(|own| known.contains(*own) || own.starts_with('-')) {
        return Some(own.to_owned());
    }
    known
        .into_iter()
        .map(|known| (strsim::normalized_damerau_levenshtein(name, &known), known))
        .filter(|(similarity, _)| *similarity > SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// Returns the names of all programs that `run` would find.
fn programs() -> BTreeSet<String> {
    directories()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let name = file.strip_prefix(PREFIX)?;
            is_executable(&entry.path()).then(|| name.to_owned())
        })
        // Never printed raw: any user may have chosen the name.
        .filter(|name| name.chars().all(|c| c.is_alphanumeric() || "-_.+".contains(c)))
        .collect()
}
