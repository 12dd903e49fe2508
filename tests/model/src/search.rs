//! The search through all states, and what it found.

use crate::model::{Action, Protocol};
use crate::setup::Setup;
use crate::state::State;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Report {
    /// States, each counted once; of states that differ only in who is who among the subscribers, one.
    pub states: usize,
    pub transitions: usize,
    /// Steps of the longest way that was gone.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Properties that do not hold, each with a way to a state that shows it.
    pub broken: Vec<Broken>,
    /// Steps that no process took.
    pub never: Vec<&'static str>,
}

/// A property that does not hold.
#[derive(Clone, Debug)]
pub struct Broken {
    pub property: &'static str,
    /// The first state, and each step with what it led to.
    pub first: State,
    pub way: Vec<(Action, State)>,
}

/// Visits all states, with `threads` threads.
#[must_use]
pub fn exhaust(setup: &Setup, threads: usize) -> Report {
    let model = Protocol::new(setup.clone());
    let coverage = model.coverage.clone();
    let began = Instant::now();
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .symmetry()
        .spawn_dfs()
        .join();
    let mut report = report(&checker, began);
    report.never = coverage.never();
    report
}

/// Seeks the shortest way to a state that breaks a property.
#[must_use]
pub fn shortest(setup: &Setup) -> Report {
    let began = Instant::now();
    let checker = Protocol::new(setup.clone())
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    report(&checker, began)
}

fn report(checker: &impl Checker<Protocol>, began: Instant) -> Report {
    let took = began.elapsed();
    let mut broken: Vec<Broken> = checker
        .discoveries()
        .into_iter()
        .map(|(property, path)| {
            let mut states = Vec::new();
            let mut actions = Vec::new();
            for (state, action) in path.into_vec() {
                states.push(state);
                actions.extend(action);
            }
            let first = states.remove(0);
            Broken { property, first, way: actions.into_iter().zip(states).collect() }
        })
        .collect();
    broken.sort_by_key(|broken| broken.property);
    Report {
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        took,
        broken,
        never: Vec::new(),
    }
}
