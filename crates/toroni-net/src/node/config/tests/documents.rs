//! Compares `docs/node-configuration.md` with the code.

use super::super::schema::{Default, Key, Kind, sections};
use super::super::units::Quantity;
use super::{accepted, found};
use std::fmt::Write;
use std::path::Path;

/// The example of the documentation, which must be there whole.
pub(super) const EXAMPLE: &str = include_str!("example.toml");

/// The part of the document between two marks, or `None` outside of the repository: the package of this crate does not
/// contain the document.
fn part(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    if !folder.exists() {
        println!("skipped: {} does not exist", folder.display());
        return None;
    }
    let text = std::fs::read_to_string(folder.join("node-configuration.md")).unwrap();
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
        panic!("docs/node-configuration.md: replace the part {name:?} by this:\n{wanted}");
    }
}

#[test]
fn the_document_lists_all_keys() {
    let mut text = String::new();
    for section in sections() {
        let header = section.header();
        writeln!(
            text,
            "### `{header}`\n\n{}\n\n| key | contains | default | |\n|---|---|---|---|",
            section.about
        )
        .unwrap();
        for Key { name, kind, default, about } in &section.keys {
            let default = match default {
                Default::Required => "required".to_owned(),
                Default::Value(value) => format!("`{value}`"),
                Default::None(words) => (*words).to_owned(),
            };
            writeln!(text, "| `{name}` | {} | {default} | {about}. |", contains(*kind)).unwrap();
        }
        text.push('\n');
    }
    compare("keys", text.trim_end_matches('\n').trim_end());
}

/// What the table says that a key contains.
fn contains(kind: Kind) -> String {
    let limits = |what: &str, quantity: Quantity, least, most| {
        format!("{what}, {} to {}", quantity.show(least), quantity.show(most))
    };
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Segment => "name".to_owned(),
        Kind::Prefix => "segments".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Quantity(quantity @ Quantity::Time, least, most) => {
            limits("duration", quantity, least, most)
        }
        Kind::Quantity(quantity @ Quantity::Bytes, least, most) => {
            limits("size", quantity, least, most)
        }
        Kind::Quantity(quantity @ Quantity::Rate, least, most) => {
            limits("rate", quantity, least, most)
        }
        Kind::Datagram(least, most) => limits("`\"mtu\"`, or size", Quantity::Bytes, least, most),
        Kind::TimeRange => "two durations".to_owned(),
        Kind::Count(least, most) => format!("number, {least} to {most}"),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Names => "list of names".to_owned(),
        Kind::Patterns => "list of patterns".to_owned(),
        Kind::Address => "address and port".to_owned(),
        Kind::Host => "`\"HOST:PORT\"`".to_owned(),
        Kind::Hosts => "list of addresses or names of hosts, and ports".to_owned(),
        Kind::Addresses => "list of addresses and ports".to_owned(),
        Kind::Group => "group, with or without port".to_owned(),
        Kind::Join => "`\"live\"`, `\"window\"`, or number".to_owned(),
        Kind::BusPolicy => "policy, as `toroni create --policy`".to_owned(),
        Kind::Members => "list of `\"NAME=HOST:PORT\"`".to_owned(),
        Kind::Bus => "name, or the table `[node.bus]`".to_owned(),
    }
}

#[test]
fn the_example_of_the_document_is_accepted_without_findings() {
    let _ = accepted(EXAMPLE);
    assert_eq!(found(EXAMPLE), [""; 0]);
    compare("example", &format!("```toml\n{EXAMPLE}```\n"));
}
