//! Tests of the whole: a text goes in, a configuration and findings come out.

mod documents;
mod errors;
mod host;
mod keys;
mod properties;

use super::{Node, Reading, read};
use std::path::Path;

/// A file that is accepted, with one warning: it has no state.
const LEAST: &str = "[node]\nrealm = 'plant'\n[[receive]]\n";

fn reading(text: &str) -> Reading {
    read(text, Path::new("/etc/toroni"))
}

#[track_caller]
fn accepted(text: &str) -> Node {
    let Reading { node, findings, .. } = reading(text);
    node.unwrap_or_else(|| panic!("{text}\n{findings:#?}"))
}

fn found(text: &str) -> Vec<String> {
    reading(text).findings.iter().map(ToString::to_string).collect()
}
