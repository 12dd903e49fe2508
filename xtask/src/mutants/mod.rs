//! `cargo xtask mutants`: tests the tests.
//!
//! Each mutant is one known way to get a protocol wrong. It is in the source of the library, of the proactor, of the
//! network protocol, of its nodes or of the sequencer, where the mistake would be made, inside `if mutant("NAME")`. This task
//! compiles the tests of all five, the loom models, and the lists of the fuzz harness, once with all mutants in them. It runs the tests
//! of the table without a mutant, and they must pass. Then it runs each of them with its mutant, and it must fail. If a
//! mutant survives, no test checks that promise. If a model catches no mutant, it shows nothing.

mod harness;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, thread};

use clap::Args;

use self::harness::{Harness, Run, StopAt, Verdict};
use self::table::{Checker, KINDS, MUTANTS, Mutant};
use crate::command::Failure;
use crate::{directions, metadata};

#[derive(Args)]
pub(crate) struct Options {
    /// Run only the mutants whose names contain this
    filter: Option<String>,
    /// Only print the table
    #[arg(long)]
    list: bool,
    /// Run only the tests of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = KINDS)]
    kinds: Vec<String>,
    /// How many mutants run at a time [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let wanted = |mutant: &&Mutant| {
        options.filter.as_deref().is_none_or(|filter| mutant.name.contains(filter))
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if options.list {
        for mutant in &mutants {
            println!("{:<34} {}", mutant.name, mutant.mistake);
            for checker in mutant.noticed_by {
                println!("{:<34}   {}", "", checker.title());
            }
        }
        return Ok(());
    }
    every_mutant_stands_in_the_source(&mutants)?;

    let runs: Vec<(&Mutant, Checker)> = mutants
        .iter()
        .flat_map(|mutant| mutant.noticed_by.iter().map(|checker| (*mutant, *checker)))
        .filter(|(_, checker)| {
            options.kinds.is_empty() || options.kinds.iter().any(|kind| kind == checker.kind())
        })
        .collect();
    if runs.is_empty() {
        return Err(Failure("no mutant has this name and a test of this kind".to_owned()));
    }
    let mut kinds = BTreeMap::new();
    for kind in KINDS {
        if let Some(built) = Kind::build(&runs, kind)? {
            kinds.insert(kind, built);
        }
    }

    let jobs = options.jobs.or_else(|| thread::available_parallelism().ok().map(Into::into));
    let queue = Mutex::new(runs.iter().enumerate());
    let done = Mutex::new(BTreeMap::new());
    let work = || -> Result<(), Failure> {
        loop {
            let next = queue.lock().map_or(None, |mut queue| queue.next());
            let Some((number, (mutant, checker))) = next else { return Ok(()) };
            let missing = || Failure(format!("{} was not compiled", checker.title()));
            let start = Instant::now();
            let kind = kinds.get(checker.kind()).ok_or_else(missing)?;
            let verdict = kind.verdict(mutant, *checker)?;
            println!("{:<34} {verdict} ({:.1} s)", mutant.name, start.elapsed().as_secs_f64());
            if let Ok(mut done) = done.lock() {
                done.insert(number, (verdict, start.elapsed()));
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.unwrap_or(1).max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| Failure("a thread of this task panicked".to_owned()))?
        })
    })?;
    let done =
        done.into_inner().map_err(|_| Failure("a thread of this task panicked".to_owned()))?;
    summarise(&runs, &done)
}

fn summarise(
    runs: &[(&Mutant, Checker)],
    done: &BTreeMap<usize, (Verdict, Duration)>,
) -> Result<(), Failure> {
    println!("\n== mutants");
    let mut survivors = Vec::new();
    for (number, (verdict, time)) in done {
        let (mutant, checker) = runs[*number];
        println!("{:>7.1} s  {:<34} {verdict}", time.as_secs_f64(), mutant.name);
        if matches!(verdict, Verdict::Passed { .. }) {
            survivors.push(format!("{} not by {}", mutant.name, checker.title()));
        }
    }
    if survivors.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("not noticed: {}", survivors.join(", "))))
}

/// The tests of the table that one executable has: models or tests of one crate.
struct Kind {
    harness: Harness,
    /// The full names of the tests that each name of the table matches.
    tests: BTreeMap<&'static str, Vec<String>>,
}

impl Kind {
    /// Compiles them, if there are any, and checks that they pass without a mutant. Otherwise a test that fails for
    /// another reason, or a name that no test has, would count as a mutant that was noticed.
    fn build(runs: &[(&Mutant, Checker)], kind: &str) -> Result<Option<Self>, Failure> {
        let checkers: Vec<Checker> = runs
            .iter()
            .map(|(_, checker)| *checker)
            .filter(|checker| checker.kind() == kind)
            .collect();
        let mut tests = BTreeMap::new();
        let Some(first) = checkers.first() else { return Ok(None) };
        let harness = Harness::build(*first)?;
        let known = harness.tests()?;
        for name in checkers.iter().map(|checker| checker.name()) {
            let is_meant = |test: &&String| {
                test.strip_suffix(name).is_some_and(|path| path.is_empty() || path.ends_with("::"))
            };
            let meant: Vec<String> = known.iter().filter(is_meant).cloned().collect();
            if meant.is_empty() {
                return Err(Failure(format!(
                    "there is no test `{name}`: see xtask/src/mutants/table.rs"
                )));
            }
            tests.insert(name, meant);
        }
        let all: Vec<&str> = tests.values().flatten().map(String::as_str).collect();
        println!("\n== without a mutant: {} tests", all.len());
        let start = Instant::now();
        match harness.run(&Run { tests: &all, mutant: None, stop_at: StopAt::End })? {
            Verdict::Passed { count } if count == all.len() => {
                println!("{count} pass ({:.1} s)\n", start.elapsed().as_secs_f64());
                Ok(Some(Self { harness, tests }))
            }
            Verdict::Passed { count } => {
                Err(Failure(format!("{count} tests ran in place of {}", all.len())))
            }
            Verdict::Failed { first } => Err(Failure(format!("{first} fails without any mutant"))),
            Verdict::Hung => Err(Failure("the tests hang without any mutant".to_owned())),
        }
    }

    fn verdict(&self, mutant: &Mutant, checker: Checker) -> Result<Verdict, Failure> {
        let missing = || Failure(format!("{} was not compiled", checker.title()));
        let tests = self.tests.get(checker.name()).ok_or_else(missing)?;
        let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
        let stop_at = match checker {
            // A model leaves no files.
            Checker::Loom(_) | Checker::ProactorLoom(_) => StopAt::FirstFailure,
            Checker::Tests(_)
            | Checker::Protocol(_)
            | Checker::Network(_)
            | Checker::Sequencer(_)
            | Checker::Oracle(_) => StopAt::End,
            Checker::Proactor(_) => StopAt::FirstPanic,
        };
        let run = Run { tests: &tests, mutant: Some(mutant.name), stop_at };
        self.harness.run(&run)
    }
}

fn every_mutant_stands_in_the_source(mutants: &[&Mutant]) -> Result<(), Failure> {
    let found = mutants_in_the_source()?;
    let missing: Vec<&str> =
        mutants.iter().map(|mutant| mutant.name).filter(|name| !found.contains(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("no source contains mutant(\"{}\")", missing.join("\"), mutant(\""))))
}

/// The names in `mutant("…")` and `weakened("…")`, in the code of the crates that have mutants.
fn mutants_in_the_source() -> Result<BTreeSet<String>, Failure> {
    let mut names = names_after("mutant(\"", '"')?;
    names.extend(names_after("weakened(\"", '"')?);
    Ok(names)
}

/// The texts between `start` and `end` in the code of the crates that have mutants.
fn names_after(start: &str, end: char) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    for file in files()? {
        found.extend(names_in(&read(&file)?, start, end));
    }
    Ok(found)
}

/// The texts between `start` and `end` in the code of one file.
fn names_in(text: &str, start: &str, end: char) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(start).skip(1))
        .filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()))
        .collect()
}

/// The sources of the crates that have mutants.
fn files() -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for name in ["toroni", "toroni-proactor", "toroni-proto", "toroni-net", "toroni-sequencer"] {
        let folder = metadata::root().join("crates").join(name).join("src");
        files.extend(directions::rust_files(&folder)?);
    }
    Ok(files)
}

/// The sources with mutants that tests of this kind must notice, from the root of the repository.
pub(crate) fn files_of(kind: &str) -> Result<Vec<String>, Failure> {
    let is_mine = |mutant: &&Mutant| mutant.noticed_by.iter().any(|one| one.kind() == kind);
    let mine: BTreeSet<&str> = MUTANTS.iter().filter(is_mine).map(|mutant| mutant.name).collect();
    let mut found = Vec::new();
    for file in files()? {
        let text = read(&file)?;
        let mut names = names_in(&text, "mutant(\"", '"');
        names.extend(names_in(&text, "weakened(\"", '"'));
        if names.iter().any(|name| mine.contains(name.as_str())) {
            let path = file.strip_prefix(metadata::root()).unwrap_or(&file);
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_of_the_source_is_in_the_table() {
        let table: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(table.len(), MUTANTS.len(), "a name stands twice in the table");
        let source = mutants_in_the_source().unwrap();
        let forgotten: Vec<&String> =
            source.iter().filter(|name| !table.contains(name.as_str())).collect();
        assert!(forgotten.is_empty(), "add to xtask/src/mutants/table.rs: {forgotten:?}");
    }

    #[test]
    fn every_kind_has_mutants_in_files() {
        let kinds: BTreeSet<&str> =
            MUTANTS.iter().flat_map(|mutant| mutant.noticed_by).map(|one| one.kind()).collect();
        assert_eq!(kinds, BTreeSet::from(KINDS));
        for kind in KINDS {
            assert!(!files_of(kind).unwrap().is_empty(), "{kind}");
        }
        let of_protocol = files_of("protocol").unwrap();
        assert!(of_protocol.iter().all(|path| path.starts_with("crates/toroni-proto/")));
    }

    #[test]
    fn every_mutant_is_to_be_noticed() {
        assert!(MUTANTS.iter().all(|mutant| !mutant.noticed_by.is_empty()));
    }

    /// A model that no mutant makes fail shows nothing.
    #[test]
    fn every_model_catches_a_mutant() {
        let table: BTreeSet<&str> = MUTANTS
            .iter()
            .flat_map(|mutant| mutant.noticed_by)
            .filter(|checker| matches!(checker, Checker::Loom(_) | Checker::ProactorLoom(_)))
            .map(|checker| checker.name())
            .collect();
        let models = names_after("fn loom_", '(').unwrap();
        assert!(!models.is_empty());
        let idle: Vec<String> = models
            .iter()
            .map(|model| format!("loom_{model}"))
            .filter(|model| !table.contains(model.as_str()))
            .collect();
        assert!(idle.is_empty(), "no mutant for {idle:?} in xtask/src/mutants/table.rs");
    }
}
