//! Compares `docs/protocol.md` with the code.

use std::fmt::Write;
use std::path::Path;

use crate::config::tcp::{TCP_PARAMETERS, TCP_RELATIONS};
use crate::config::{PARAMETERS, Parameter, Quantity, RELATIONS, Relation};
use crate::wire::{Reject, samples, tcp};

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

fn parameter_table<C: Default>(parameters: &[Parameter<C>]) -> String {
    let mut table =
        String::from("| parameter | unit | default | limits | |\n|---|---|---|---|---|\n");
    for parameter in parameters {
        let shown = |value| Quantity { value, unit: parameter.unit };
        let (least, most) = (shown(parameter.least), shown(parameter.most));
        let (unit, default) = (parameter.unit.name(), parameter.default_text());
        let (name, reason) = (parameter.name, parameter.reason);
        writeln!(table, "| `{name}` | {unit} | {default} | {least} to {most} | {reason}. |")
            .unwrap();
    }
    table
}

fn relation_list<C>(relations: &[Relation<C>]) -> String {
    relations.iter().map(|relation| format!("- {}.\n", relation.rule)).collect()
}

#[test]
fn the_document_lists_all_parameters() {
    compare("parameters", &parameter_table(PARAMETERS));
    compare("tcp parameters", &parameter_table(TCP_PARAMETERS));
}

#[test]
fn the_document_lists_all_relations() {
    compare("relations", &relation_list(RELATIONS));
    compare("tcp relations", &relation_list(TCP_RELATIONS));
}

#[test]
fn the_document_lists_all_reasons_to_refuse_a_datagram() {
    let mut table = String::from("| | reason | the datagram or frame is or |\n|---|---|---|\n");
    for reason in Reject::ALL {
        writeln!(table, "| {} | {reason:?} | {reason} |", reason.index()).unwrap();
    }
    compare("refusals", &table);
}

fn vector(kind: &str, bytes: &[u8]) -> String {
    let lines: String = bytes.chunks(32).map(|line| samples::hexadecimal(line) + "\n").collect();
    format!("{kind}:\n\n```text\n{lines}```\n\n")
}

#[test]
fn the_document_has_the_test_vectors() {
    let datagrams: String =
        samples::all().map(|one| vector(&format!("{:?}", one.kind), &one.bytes)).collect();
    compare("vectors", &format!("{}\n", datagrams.trim_end()));
    let frames: String = tcp::Kind::ALL
        .into_iter()
        .map(|kind| vector(&format!("{kind:?}"), &tcp::samples::of(kind)))
        .collect();
    compare("tcp vectors", &format!("{}\n", frames.trim_end()));
}
