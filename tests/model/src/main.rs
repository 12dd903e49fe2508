//! Runs the searches: `cargo xtask model`, which builds it with optimisation.

mod options;

use clap::Parser;
use options::Options;
use std::process::ExitCode;
use toroni_protocol_model::mistakes::MISTAKES;
use toroni_protocol_model::search::{self, Report};
use toroni_protocol_model::setups::{self, Named};
use toroni_protocol_model::{trace, values};

fn main() -> ExitCode {
    let options = Options::parse();
    let holds = if let Some(names) = &options.mistakes {
        show_mistakes(names)
    } else {
        let chosen = match options.setups() {
            Ok(chosen) => chosen,
            Err(problem) => {
                eprintln!("toroni-protocol-model: {problem}");
                return ExitCode::FAILURE;
            }
        };
        check(&chosen, &options) & (!options.is_for_all() || check_values())
    };
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Visits all states of some setups.
fn check(chosen: &[Named], options: &Options) -> bool {
    println!("{:<16} {:>12} {:>13} {:>6} {:>9}", "setup", "states", "steps", "depth", "seconds");
    let mut holds = true;
    for named in chosen {
        let mut report = search::exhaust(&named.setup, options.threads);
        line(named.name, &report);
        if !report.broken.is_empty() && !options.quick {
            // The way that the search came is long; this one is the shortest.
            report = search::shortest(&named.setup);
        }
        holds &= report.broken.is_empty();
        for broken in &report.broken {
            print!("{}", trace::render(broken));
        }
    }
    holds
}

/// Visits all states of the values of retained topics.
fn check_values() -> bool {
    let values::Report { states, seconds, broken } = values::search(None);
    println!("{:<16} {states:>12} {:>13} {:>6} {seconds:>9.1}", "values", "", "");
    broken.iter().for_each(|(property, way)| println!("{property}: {way:?}"));
    broken.is_empty()
}

fn line(name: &str, report: &Report) {
    let seconds = report.took.as_secs_f64();
    println!(
        "{name:<16} {:>12} {:>13} {:>6} {seconds:>9.1}",
        report.states, report.transitions, report.depth
    );
}

/// Builds each mistake in and shows what it leads to.
fn show_mistakes(names: &[String]) -> bool {
    let mut found = true;
    for entry in MISTAKES {
        if !names.is_empty() && !names.iter().any(|name| name == entry.name) {
            continue;
        }
        let setup = setups::of_mistake(entry);
        let report = search::shortest(&setup);
        let is_found = report.broken.iter().any(|broken| broken.property == entry.breaks);
        let verdict = if is_found { "found" } else { "NOT FOUND" };
        println!(
            "{verdict}: {} in {}, {} states, {:.1} s",
            entry.name,
            entry.setup,
            report.states,
            report.took.as_secs_f64()
        );
        found &= is_found;
        // If the mistake breaks something else first, that is worth seeing, too.
        for broken in &report.broken {
            print!("{}", trace::render(broken));
        }
    }
    for (mistake, breaks) in values::MISTAKES.into_iter().filter(|_| names.is_empty()) {
        let report = values::search(Some(mistake));
        let way = report.broken.iter().find(|(property, _)| *property == breaks);
        let verdict = if way.is_some() { "found" } else { "NOT FOUND" };
        println!("{verdict}: {mistake:?} in values, {} states: {way:?}", report.states);
        found &= way.is_some();
    }
    for name in names.iter().filter(|name| MISTAKES.iter().all(|entry| entry.name != **name)) {
        eprintln!("no mistake {name}: `--mistakes` without a name runs all");
        found = false;
    }
    found
}
