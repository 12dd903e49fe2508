//! Checks that no path returns to a state in which it was before.
//!
//! There are finitely many states, so every path ends then, and a check of the last states shows what happens in the end
//! on all paths.

use crate::model::{Action, Protocol};
use crate::setup::Setup;
use crate::state::State;
use stateright::Model;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Whether a state is on the current path, or everything reachable from it was visited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    OnTheWay,
    Done,
}

/// Looks for a way that comes back; returns the first that it finds, from the first state on, or the
/// number of states that it visited.
///
/// # Errors
pub fn seek(setup: &Setup) -> Result<usize, Vec<Action>> {
    let model = Protocol::new(setup.clone());
    let mut visits = HashMap::new();
    let mut way: Vec<(u64, State, Vec<Action>, Action)> = Vec::new();
    let first = model.init_states().remove(0);
    enter(&model, &mut visits, &mut way, first, Action::Publisher(0, 0));
    while let Some((_, state, left, _)) = way.last_mut() {
        let Some(action) = left.pop() else {
            let (number, ..) = way.pop().expect("it is the last");
            visits.insert(number, Visit::Done);
            continue;
        };
        let Some(next) = model.next_state(state, action) else { continue };
        match visits.get(&number_of(&next)) {
            Some(Visit::Done) => {}
            None => enter(&model, &mut visits, &mut way, next, action),
            Some(Visit::OnTheWay) => {
                let taken = way.iter().skip(1).map(|(.., action)| *action);
                return Err(taken.chain([action]).collect());
            }
        }
    }
    Ok(visits.len())
}

fn enter(
    model: &Protocol,
    visits: &mut HashMap<u64, Visit>,
    way: &mut Vec<(u64, State, Vec<Action>, Action)>,
    state: State,
    by: Action,
) {
    let mut actions = Vec::new();
    model.actions(&state, &mut actions);
    let number = number_of(&state);
    visits.insert(number, Visit::OnTheWay);
    way.push((number, state, actions, by));
}

fn number_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
