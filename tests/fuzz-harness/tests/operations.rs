//! Performs lists of operations on a bus and on the model, and compares. `cargo xtask simulate` does so for longer, with
//! deaths.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use proptest::prelude::*;
use toroni_fuzz_harness::operations::{Fixture, Tally};
use toroni_oracle::{BYTES, Operation, Scenario, Setup};

/// One at a time: tests run on threads of one process.
fn perform(scenario: &Scenario) -> Tally {
    Fixture::new().perform(scenario)
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        5 => any::<[u8; BYTES]>().prop_map(Operation::from_bytes),
        1 => any::<[u8; BYTES]>().prop_map(Operation::of_inlet),
        1 => any::<[u8; BYTES]>().prop_map(Operation::of_values),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        // The failing list is printed, as small as it gets.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_list_does_to_a_bus_what_it_does_to_the_model(
        setup in any::<[u8; BYTES]>().prop_map(Setup::from_bytes),
        operations in prop::collection::vec(operation(), 0..60),
    ) {
        perform(&Scenario { setup, operations });
    }
}

/// The same each time, with deaths if the library has its crash points, and long enough for everything to happen that can; another with `TORONI_SEED`.
#[test]
fn lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model() {
    let seed = toroni_testkit::random::seed_or_else(|| 20_260_101);
    let mut tally = Tally::default();
    // Some mutants of the library need many lists to be noticed.
    let lists = u64::from(toroni_testkit::long::repetitions(100, 400));
    for number in 0..lists {
        tally = tally.plus(perform(&Scenario::from_seed(seed + number, 150)));
    }
    eprintln!("{tally:?}");
    assert!(tally.published > 1000 && tally.received > 1000, "{tally:?}");
    assert!(tally.exclusive > 50 && tally.kept_out > 100 && tally.reigns > 20, "{tally:?}");
    assert!(tally.brought > 400 && tally.losses > 30 && tally.told > 30, "{tally:?}");
    assert!(tally.dropped > 40 && tally.taken > 40, "{tally:?}");
    assert!(tally.passed_laps > 5, "{tally:?}");
    assert!(tally.values > 100 && tally.missing > 3, "{tally:?}");
    assert!(tally.joined > 15 && tally.healed > 1, "{tally:?}");
    assert!(tally.lapses > 10 && tally.lost > 100 && tally.refused > 100, "{tally:?}");
}
