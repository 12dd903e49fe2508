//! `cargo xtask mutants`: tests of the tests.
//!
//! Each mutant is one known way to get the protocol wrong. It stands in the library's source, at the
//! place where the mistake would be made, under `#[cfg(toroni_mutant = "NAME")]`. This task compiles
//! the library's own tests once without and once with each mutant; the first must pass, the second
//! must fail. A mutant that survives is a promise that no test holds.

mod harness;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::Args;

use self::harness::{Harness, Verdict};
use self::table::{Checker, MUTANTS, Mutant};
use crate::command::Failure;
use crate::{directions, metadata};

#[derive(Args)]
pub(crate) struct Options {
    /// Only the mutants whose names contain this
    filter: Option<String>,
    /// Only print the table
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let wanted = |mutant: &&Mutant| {
        options.filter.as_deref().is_none_or(|filter| mutant.name.contains(filter))
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if options.list {
        for mutant in &mutants {
            println!("{:<28} {:<10} {}", mutant.name, mutant.checker.title(), mutant.mistake);
        }
        return Ok(());
    }
    every_mutant_stands_in_the_source(&mutants)?;

    let mut sound = BTreeMap::new();
    let mut survivors = Vec::new();
    let mut lines = Vec::new();
    for mutant in mutants {
        let checker = mutant.checker;
        let count = match sound.get(&checker) {
            Some(count) => *count,
            None => {
                println!("\n== without a mutant: {}", checker.title());
                let count = passes_without_mutant(checker)?;
                sound.insert(checker, count);
                count
            }
        };
        println!("\n== {}: {}", mutant.name, mutant.mistake);
        let verdict = Harness::build(checker, Some(mutant.name))?.run(checker)?;
        if matches!(verdict, Verdict::Passed { .. }) {
            survivors.push(mutant.name);
        }
        lines.push(format!("{:<28} {verdict} (of {count}, {})", mutant.name, checker.title()));
    }
    println!("\n== mutants");
    lines.iter().for_each(|line| println!("{line}"));
    if survivors.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("no test notices {}", survivors.join(", "))))
}

/// Else a test that fails for another reason, or a filter that matches nothing, would count as a
/// mutant noticed.
fn passes_without_mutant(checker: Checker) -> Result<usize, Failure> {
    match Harness::build(checker, None)?.run(checker)? {
        Verdict::Passed { count: 0 } => {
            Err(Failure(format!("no test matches the filter of {}", checker.title())))
        }
        Verdict::Passed { count } => Ok(count),
        other => Err(Failure(format!("{} fail without any mutant: {other}", checker.title()))),
    }
}

fn every_mutant_stands_in_the_source(mutants: &[&Mutant]) -> Result<(), Failure> {
    let found = mutants_in_the_source()?;
    let missing: Vec<&str> =
        mutants.iter().map(|mutant| mutant.name).filter(|name| !found.contains(*name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("no source has toroni_mutant = \"{}\"", missing.join("\", \""))))
}

/// The names that stand behind `toroni_mutant =` anywhere in the library.
fn mutants_in_the_source() -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    for file in directions::rust_files(&metadata::root().join("crates/toroni/src"))? {
        let text = read(&file)?;
        let uses = text.split("toroni_mutant").skip(1);
        found.extend(uses.filter_map(|rest| {
            let value = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
            Some(value.split_once('"')?.0.to_owned())
        }));
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
}
