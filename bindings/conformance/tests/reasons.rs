//! Why messages were lost is a number and a word. The protocol between hosts, C and Python have lists of their own, which
//! agree with that of the library.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use toroni::{LostBound, LostReason};

fn read(path: &str) -> String {
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(bindings.join(path)).unwrap()
}

/// The numbers and words of the library.
fn reasons() -> Vec<(u8, String)> {
    LostReason::ALL.iter().map(|reason| (*reason as u8, reason.as_str().to_owned())).collect()
}

fn bounds() -> Vec<(u8, String)> {
    LostBound::ALL.iter().map(|bound| (*bound as u8, bound.as_str().to_owned())).collect()
}

fn words(all: Vec<(u8, String)>) -> Vec<String> {
    all.into_iter().map(|(_, word)| word).collect()
}

/// What stands in quotes between two pieces of a text.
fn quoted(text: &str, from: &str, to: &str) -> Vec<String> {
    let (_, text) = text.split_once(from).unwrap_or_else(|| panic!("there is no {from}"));
    let (text, _) = text.split_once(to).unwrap();
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The tests of the protocol compare its page with its code.
#[test]
fn the_protocol_has_the_reasons_of_the_library() {
    let snake = |name: &str| {
        let mut word = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !word.is_empty() {
                word.push('_');
            }
            word.push(letter.to_ascii_lowercase());
        }
        word
    };
    let page = read("../docs/protocol.md");
    let (_, table) = page.split_once("| reason | name | meaning |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let protocol: Vec<_> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[1].parse().unwrap(), snake(cells[2]))
        })
        .collect();
    assert_eq!(protocol, reasons());
}

#[test]
fn the_header_of_c_has_the_reasons_of_the_library() {
    let header = read("c/include/toroni.h");
    let numbers = |prefix: &str| -> Vec<(u8, String)> {
        let constants = header.split([' ', '\n', ',']).collect::<Vec<_>>();
        let constants = constants.windows(3).filter(|words| words[1] == "=");
        constants
            .filter_map(|words| {
                let word = words[0].strip_prefix(prefix)?.to_lowercase();
                Some((words[2].parse().unwrap(), word))
            })
            .collect()
    };
    assert_eq!(numbers("TORONI_REASON_"), reasons());
    assert_eq!(numbers("TORONI_BOUND_"), bounds());
}

#[test]
fn python_has_the_reasons_of_the_library() {
    let stubs = read("python/python/toroni/_toroni.pyi");
    assert_eq!(quoted(&stubs, "_Reason = Literal[", "]"), words(reasons()));
    assert_eq!(quoted(&stubs, "bound: Literal[", "]"), words(bounds()));
    let errors = read("python/python/toroni/_errors.py");
    assert_eq!(quoted(&errors, "Why they were lost:", "\"\"\""), words(reasons()));
    let inlet = read("python/src/inlet.rs");
    assert_eq!(quoted(&inlet, "/// reason: ", "; see toroni.Lost"), words(reasons()));
    let subscriber = read("python/conformance/subscribe.py");
    let (_, list) = subscriber.split_once("REASONS = \"\"\"").unwrap();
    let list = list.split_once("\"\"\"").unwrap().0.split_whitespace().collect::<Vec<_>>();
    assert_eq!(list, words(reasons()));
}
