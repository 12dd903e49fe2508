//! Compares `docs/protocol.md` with the code.

use std::fmt::Write;
use std::path::Path;

use crate::config::{PARAMETERS, Quantity, RELATIONS};
use crate::wire::{Reject, samples};

/// The part of the document between two marks, or `None` outside of the repository: the package of
/// this crate does not contain the document.
fn part(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    if !folder.exists() {
        println!("skipped: {} does not exist", folder.display());
        return None;
    }
    let text = std::fs::read_to_string(folder.join("protocol.md")).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let after = text.split_once(&begin).expect("a mark that begins the part").1;
    Some(after.split_once(&end).expect("a mark that ends the part").0.to_owned())
}

/// Fails with the text that the document should have.
fn compare(name: &str, wanted: &str) {
    let wanted = format!("\n{wanted}\n");
    if let Some(found) = part(name)
        && found != wanted
    {
        panic!("docs/protocol.md: replace the part {name:?} by this:\n{wanted}");
    }
}

#[test]
fn the_document_lists_all_parameters() {
    let mut table =
        String::from("| parameter | unit | default | limits | |\n|---|---|---|---|---|\n");
    for parameter in PARAMETERS {
        let shown = |value| Quantity { value, unit: parameter.unit };
        let (least, most) = (shown(parameter.least), shown(parameter.most));
        let (unit, default) = (parameter.unit.name(), parameter.default_text());
        let (name, reason) = (parameter.name, parameter.reason);
        writeln!(table, "| `{name}` | {unit} | {default} | {least} to {most} | {reason}. |")
            .unwrap();
    }
    compare("parameters", &table);
}

#[test]
fn the_document_lists_all_relations() {
    let mut list = String::new();
    for relation in RELATIONS {
        writeln!(list, "- {}.", relation.rule).unwrap();
    }
    compare("relations", &list);
}

#[test]
fn the_document_lists_all_reasons_to_refuse_a_datagram() {
    let mut table = String::from("| | reason | the datagram or frame is or |\n|---|---|---|\n");
    for reason in Reject::ALL {
        writeln!(table, "| {} | {reason:?} | {reason} |", reason.index()).unwrap();
    }
    compare("refusals", &table);
}

#[test]
fn the_document_has_the_test_vectors() {
    let mut text = String::new();
    for sample in samples::all() {
        writeln!(text, "{:?}:\n\n```text", sample.kind).unwrap();
        for line in sample.bytes.chunks(32) {
            writeln!(text, "{}", samples::hexadecimal(line)).unwrap();
        }
        text.push_str("```\n\n");
    }
    compare("vectors", &format!("{}\n", text.trim_end()));
}
