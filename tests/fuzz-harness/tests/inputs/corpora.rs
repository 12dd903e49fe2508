//! Runs each input of `tests/fuzz/corpus` and `tests/fuzz/regressions` through its fuzz entry: what fuzzers have learned,
//! and what once failed. Needs no fuzzer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use toroni_fuzz_harness::{
    Directory, hostile, journal, member_log, network, node_file, operations, patterns, retained,
    sequencer, topics,
};
#[cfg(feature = "program")]
use toroni_fuzz_harness::{command_line, recordings};

#[test]
fn topics_of_the_corpus() {
    repeat("topics", topics::fuzz);
}

#[test]
fn hostile_bytes_of_the_corpus() {
    let directory = Directory::new();
    let fixture = hostile::Fixture::new(directory.path());
    repeat("hostile", |bytes| fixture.fuzz(bytes));
}

#[test]
fn patterns_of_the_corpus() {
    let directory = Directory::new();
    let fixture = patterns::Fixture::new(directory.path());
    repeat("patterns", |bytes| fixture.fuzz(bytes));
}

#[test]
fn values_of_the_corpus() {
    let directory = Directory::new();
    let fixture = retained::Fixture::new(directory.path());
    repeat("retained", |bytes| fixture.fuzz(bytes));
}

#[cfg(feature = "program")]
#[test]
fn command_lines_of_the_corpus() {
    let directory = Directory::new();
    let fixture = command_line::Fixture::new(directory.path());
    repeat("command_line", |bytes| fixture.fuzz(bytes));
}

#[cfg(feature = "program")]
#[test]
fn recordings_of_the_corpus() {
    repeat("recordings", recordings::fuzz);
}

#[test]
fn datagrams_of_the_corpus() {
    repeat("datagrams", network::datagrams::fuzz);
}

#[test]
fn streams_of_the_corpus() {
    repeat("streams", network::streams::fuzz);
}

#[test]
fn frames_of_the_corpus() {
    repeat("frames", network::frames::fuzz);
}

#[test]
fn connections_of_the_corpus() {
    repeat("connections", network::connections::fuzz);
}

#[test]
fn requests_of_the_corpus() {
    repeat("requests", sequencer::messages);
}

#[test]
fn batches_of_the_corpus() {
    repeat("batches", sequencer::fuzz);
}

#[test]
fn node_files_of_the_corpus() {
    repeat("node_file", node_file::fuzz);
}

#[test]
fn journals_of_the_corpus() {
    let fixture = journal::Fixture::new();
    repeat("journal", |bytes| fixture.fuzz(bytes));
}

#[test]
fn logs_of_the_corpus() {
    repeat("member_log", member_log::fuzz);
}

/// The fuzzer finds no long word by itself.
#[test]
fn the_dictionary_of_node_files_has_every_section_and_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz");
    let words = std::fs::read_to_string(root.join("dictionaries/node_file")).unwrap();
    let sections = toroni_net::node::config::schema::sections();
    let wanted: std::collections::BTreeSet<String> = sections
        .iter()
        .flat_map(|section| {
            let keys = section.keys.iter().map(|key| format!("\"{} = \"", key.name));
            keys.chain([format!("\"{}\\x0a\"", section.header())])
        })
        .collect();
    let missing: Vec<&String> = wanted.iter().filter(|word| !words.contains(*word)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn operations_of_the_corpus() {
    let fixture = operations::Fixture::new();
    repeat("operations", |bytes| fixture.fuzz(bytes));
}

/// Without the feature `deaths`, they are lists of operations as the others.
#[test]
fn deaths_of_the_corpus() {
    let fixture = operations::Fixture::new();
    repeat("deaths", |bytes| fixture.fuzz(bytes));
}

/// Every input of a target; all that fail are named.
fn repeat(target: &str, fuzz: impl Fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz");
    let mut failed = Vec::new();
    let mut count = 0;
    for folder in ["corpus", "regressions"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder).join(target)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            count += 1;
            if catch_unwind(AssertUnwindSafe(|| fuzz(&bytes))).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(count > 0, "tests/fuzz/corpus/{target} is empty");
}
