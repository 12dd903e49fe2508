//! Runs the fuzz target without a fuzzer: on inputs that a fixed seed generates, and on all that a fuzzer has collected.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::Path;

fn runner(cases: u32) -> TestRunner {
    // The same inputs each time.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    TestRunner::new_with_rng(Config { cases, failure_persistence: None, ..Config::default() }, rng)
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

#[test]
fn the_losses_of_an_honest_sender_are_exact() {
    let check = |bytes: Vec<u8>| {
        toroni_zenoh_fuzz::order_of_an_honest_sender(&bytes);
        Ok(())
    };
    runner(4_000).run(&bytes(200), check).unwrap();
}

#[test]
fn hostile_senders_break_nothing() {
    let check = |bytes: Vec<u8>| {
        toroni_zenoh_fuzz::order_of_hostile_senders(&bytes);
        Ok(())
    };
    runner(4_000).run(&bytes(800), check).unwrap();
}

/// Texts that resemble heartbeats and loss reports.
#[test]
fn what_is_parsed_means_the_same_when_it_is_written_again() {
    let number = prop_oneof![0..300_u64, any::<u64>(), Just(1 << 48)];
    let text = prop_oneof![Just("a/b".to_owned()), Just("a/**".to_owned()), ".{0,20}"];
    let beat = (number.clone(), number.clone(), number.clone(), text.clone(), any::<bool>()).prop_map(
        |(begins, until, count, topic, full)| {
            serde_json::json!({"bus": "b", "source": 1, "series": 2, "stream": 3, "numbering": 4, "beat": 5,
                "begins": begins, "until": until, "full": full, "topics": {topic: count}})
            .to_string()
        },
    );
    let bound = prop_oneof![Just("exact"), Just("at_most"), Just("never")];
    let loss = (number.clone(), number.clone(), number, text, bound).prop_map(
        |(from, until, messages, scope, bound)| {
            serde_json::json!({"source": 1, "series": 2, "stream": 3, "from": from, "until": until,
                "messages": messages, "bound": bound, "reason": "gone", "scope": [scope]})
            .to_string()
        },
    );
    let texts = prop_oneof![
        beat.prop_map(String::into_bytes),
        loss.prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 30..34),
    ];
    let check = |bytes: Vec<u8>| {
        toroni_zenoh_fuzz::parse(&bytes);
        Ok(())
    };
    runner(4_000).run(&texts, check).unwrap();
}

/// Repeats what the fuzzer has collected, and what once failed.
#[test]
fn the_corpus_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fuzz");
    let mut count = 0;
    for kind in ["corpus/bridge", "regressions/bridge"] {
        for entry in std::fs::read_dir(folder.join(kind)).into_iter().flatten().flatten() {
            toroni_zenoh_fuzz::all(&std::fs::read(entry.path()).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "the corpus is missing");
}
