//! Checks that every small setup holds, and that every known mistake is found.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use toroni_protocol_model::mistakes::MISTAKES;
use toroni_protocol_model::setups::{self, Named, Size};
use toroni_protocol_model::{cycles, search, trace, values};

fn small() -> impl Iterator<Item = Named> {
    setups::all().into_iter().filter(|named| named.size == Size::Small)
}

/// What holds because nothing happens shows nothing: between them, the setups take every step.
#[test]
fn the_protocol_holds_and_every_step_is_taken() {
    let mut never: Option<BTreeSet<&str>> = None;
    for named in small() {
        let report = search::exhaust(&named.setup, 2);
        for broken in &report.broken {
            println!("{}", trace::render(broken));
        }
        println!(
            "{}: {} states, {} steps deep, {:.1} s",
            named.name,
            report.states,
            report.depth,
            report.took.as_secs_f64()
        );
        assert!(report.broken.is_empty(), "{}: see above", named.name);
        let here = report.never.into_iter().collect();
        never = Some(match never {
            None => here,
            Some(before) => before.intersection(&here).copied().collect(),
        });
    }
    // The only step that belongs to a mistake.
    assert_eq!(never.unwrap(), BTreeSet::from(["PositionFirst"]));
}

#[test]
fn every_mistake_is_found() {
    let mut missed = Vec::new();
    for line in MISTAKES {
        let report = search::shortest(&setups::of_mistake(line));
        let found = report.broken.iter().find(|broken| broken.property == line.breaks);
        match found {
            Some(broken) => println!("{}: {}", line.name, trace::render(broken)),
            None => missed.push((line.name, report.broken.len())),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn values_hold_and_every_mistake_about_them_is_found() {
    let report = values::search(None);
    println!("values: {} states, {:.1} s", report.states, report.seconds);
    assert_eq!(report.broken, []);
    for (mistake, breaks) in values::MISTAKES {
        let report = values::search(Some(mistake));
        println!("{mistake:?}: {} states, {:?}", report.states, report.broken);
        assert_eq!(report.broken.first().map(|(property, _)| *property), Some(breaks));
    }
}

/// Without this, "no process is stuck" would say nothing of processes that run in circles.
#[test]
fn no_way_comes_back() {
    for name in [
        "lap",
        "batch",
        "takeover",
        "sleeping",
        "bystander",
        "adding",
        "reclaimed",
        "after-a-reset",
        "passing",
        "limit",
        "exclusive-takeover",
        "exclusive-heirs",
    ] {
        let setup = setups::named(name).unwrap().setup;
        match cycles::seek(&setup) {
            Ok(states) => println!("{name}: none in {states} states"),
            Err(way) => panic!("{name}: after {} steps it is where it was: {way:?}", way.len()),
        }
    }
}

#[test]
fn setups_that_the_model_cannot_hold_are_refused() {
    let fine = setups::named("lap").unwrap().setup;
    assert_eq!(fine.check(), Ok(()));
    for wrong in [
        toroni_protocol_model::setup::Setup { words: 12, ..fine.clone() },
        toroni_protocol_model::setup::Setup { blocks: 16, ..fine.clone() },
        toroni_protocol_model::setup::Setup { read_ahead: 9, ..fine.clone() },
        toroni_protocol_model::setup::Setup { words: 4, ..fine.clone() },
        toroni_protocol_model::setup::Setup { exclusive: 3, ..fine.clone() },
        toroni_protocol_model::setup::Setup { topics: vec![0], ..fine.clone() },
        toroni_protocol_model::setup::Setup { known_topics: 3, ..fine.clone() },
        toroni_protocol_model::setup::Setup { stale_columns: true, ..fine.clone() },
        toroni_protocol_model::setup::Setup { subscribers: 4, ..fine },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}
