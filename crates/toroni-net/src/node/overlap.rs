//! Overlap: a topic of a bus is sent to a realm by one node at most.
//!
//! Two nodes are two sources. Receivers know a message by its source, stream and number, so they would get each message
//! twice that both send. Outlets are subscribers, and a bus shows the patterns of its subscribers.

use super::{NodeError, Send};
use crate::membership::{Membership, Opening};
use crate::outlet;
use std::fmt;
use toroni::{Bus, Pattern};
use toroni_proto::id::Stream;

/// What two nodes would both send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The stream that is refused.
    pub stream: Stream,
    /// Its pattern.
    pub pattern: Pattern,
    /// The name of the bus.
    pub bus: String,
    /// The name of the other node; the end may be missing.
    pub node: String,
    /// Its process, if that is one of this PID namespace.
    pub process: Option<u32>,
    /// Its pattern.
    pub other: Pattern,
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, pattern, bus, node, process, other } = self;
        let process = process.map_or_else(String::new, |process| format!(" (process {process})"));
        let (pattern, other) = (pattern.as_str(), other.as_str());
        write!(
            formatter,
            "the node {node}{process} sends {other:?} of the bus {bus} to this realm already, and a topic can match that and \
             {pattern:?} of [[send]] {stream}: receivers would get its messages twice. Change the patterns of one of the \
             nodes, or its realm"
        )
    }
}

/// Refuses streams with topics that another node sends to the same realm. Until the result is dropped, no other node of this
/// host opens streams of this bus.
pub(super) fn refuse(
    bus: &Bus,
    member: &Membership,
    sends: &[Send],
) -> Result<Option<Opening>, NodeError> {
    if sends.is_empty() {
        return Ok(None);
    }
    let opening = Opening::take(member.realm, &bus.id().to_string()).map_err(NodeError::Opening)?;
    let label = outlet::label(member.realm);
    let subscribers = bus.stats()?.subscribers.unwrap_or_default();
    for other in subscribers.iter().filter(|it| it.alive) {
        let Some(node) = other.name.strip_prefix(&label) else { continue };
        let patterns = other.patterns.iter().flatten();
        for theirs in patterns {
            for Send { stream, selection, .. } in sends {
                let ours = selection.patterns.iter().find(|it| it.intersects(theirs));
                let Some(ours) = ours else { continue };
                return Err(NodeError::Overlap(Box::new(Overlap {
                    stream: *stream,
                    pattern: ours.clone(),
                    bus: bus.name().to_owned(),
                    node: node.to_owned(),
                    process: other.same_pid_namespace.then_some(other.pid),
                    other: theirs.clone(),
                })));
            }
        }
    }
    Ok(Some(opening))
}
