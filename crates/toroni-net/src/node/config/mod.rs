//! The configuration of a node: a file in TOML, read by one schema.
//!
//! ```text
//!  text ──► document ──► rules ──► Node          schema: every section and key, once
//!             │            │                       │
//!             └─ findings ─┘                       └─► reference, effective configuration
//! ```
//!
//! All mistakes are found at once, each with line and column. Nothing here opens a socket, a bus or another file.
//!
//! ```
//! use toroni_net::node::config::{self, Severity};
//!
//! let text = "[node]\nrealm = 'plant'\n[[send]]\nstream = 1\npatterns = ['plant/**']\ndata_rate = '200'\n";
//! let reading = config::read(text, "/etc/toroni".as_ref());
//! assert!(reading.node.is_none());
//! assert_eq!(reading.findings[0].severity, Severity::Error);
//! assert!(reading.findings[0].to_string().starts_with("6:13: error: [[send]] 1: data_rate: is \"200\": write a rate"));
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `schema` | every section and key: kind, limits, default, purpose |
//! | `document`, `value`, `units` | read a text by the schema |
//! | `finding` | what is wrong, and where |
//! | `rules` | how values must relate |
//! | `host` | whether they suit the interfaces of a host |
//! | `ring` | whether the ring of the bus suits the streams |
//! | `tcp` | the parameters of TCP, as the protocol wants them |
//! | `model` | the configuration as the node uses it |
//! | `effective` | all values in force, and what follows from them |

mod document;
mod effective;
mod finding;
mod host;
mod model;
mod ring;
mod rules;
pub mod schema;
mod tcp;
#[cfg(test)]
mod tests;
pub mod units;
mod value;

pub use document::{LONGEST, MOST_SECTIONS};
pub use effective::{Derived, RECEIVE_BUFFER, derived};
pub use finding::{Finding, Place, Severity};
pub use host::{Link, check_host};
pub use model::{
    Bus, Connect, Destination, FEED_STREAM, Incoming, Join, Listen, Node, Outgoing, Sequencer,
    datagram_within,
};
pub use rules::bus_patience;

use document::Document;
use finding::Findings;
use std::path::Path;

/// What came of reading a file.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The configuration, unless a finding is an error.
    pub node: Option<Node>,
    /// What is wrong or doubtful, errors first.
    pub findings: Vec<Finding>,
    /// All values in force, as a file with the same meaning. Empty if a finding is an error.
    pub effective: String,
    document: Document,
}

impl Reading {
    /// Returns where a key of a section stands, or else the section. `index` counts the sections of this name from 0.
    #[must_use]
    pub fn place(&self, section: &str, index: usize, key: Option<&str>) -> Option<Place> {
        let values = self.document.all(section).get(index)?;
        key.map_or(values.place, |key| values.place_of(key))
    }
}

/// Reads and checks the text of a file. `folder` is where its relative paths begin.
#[must_use]
pub fn read(text: &str, folder: &Path) -> Reading {
    let mut findings = Findings::default();
    let document = Document::read(text, &mut findings);
    rules::check(&document, &mut findings);
    let node = if findings.has_errors() { None } else { Node::of(&document, folder) };
    let effective = match node {
        Some(_) => effective::text(&document),
        None => String::new(),
    };
    Reading { node, findings: findings.sorted(), effective, document }
}
