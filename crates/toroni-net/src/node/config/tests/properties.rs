//! Whatever a file contains, reading it ends, without a panic.

use super::super::{derived, read};
use super::documents::EXAMPLE;
use proptest::prelude::*;
use std::path::Path;

fn survives(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let reading = read(&text, Path::new("/etc"));
    // A file is refused exactly if there is an error, which has a text.
    let errors = reading.findings.iter().filter(|it| it.severity == super::super::Severity::Error);
    assert_eq!(reading.node.is_none(), errors.count() > 0, "{:?}", reading.findings);
    assert!(reading.findings.iter().all(|finding| !finding.to_string().contains('\n')));
    if let Some(node) = reading.node {
        let _ = derived(&node);
        let again = read(&reading.effective, Path::new("/etc"));
        assert_eq!(again.node.as_ref(), Some(&node), "{}", reading.effective);
    }
}

/// Neither the reader nor what drops its result may use the stack up.
#[test]
fn deep_nesting_is_answered() {
    let most = super::super::LONGEST;
    for text in [
        format!("a = {}", "[".repeat(most - 4)),
        format!("a = {}", "{a=".repeat(most / 3 - 4)),
        format!("a{} = 1", ".a".repeat(most / 2 - 4)),
        format!("[a{}]", ".a".repeat(most / 2 - 4)),
        format!("node = {{ realm{} = 1 }}", ".a".repeat(most / 2 - 20)),
        "[[send]]\n".repeat(most / 9),
    ] {
        survives(text.as_bytes());
    }
}

#[test]
fn findings_are_bounded() {
    let most = super::super::LONGEST;
    let unknown: String = (0..most / 12).map(|number| format!("k{number:06} = 1\n")).collect();
    for text in ["=\n".repeat(most / 2), unknown, "[[send]]\n".repeat(250)] {
        let found = super::found(&text);
        assert_eq!(found.len(), 101, "{:?}", found.first());
        assert!(found.contains(&"error: there are more than 100 findings".to_owned()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        survives(&bytes);
    }

    /// Changes, removes, doubles and swaps parts of the example.
    #[test]
    fn a_damaged_example_is_answered(
        edits in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0_usize..60, any::<u8>()), 1..6),
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (kind, at, length, byte) in edits {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                2 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
                _ => bytes.insert(at, b"0'\"[]={}.\n-"[usize::from(byte) % 11]),
            }
            bytes.push(b'\n');
        }
        survives(&bytes);
    }
}
