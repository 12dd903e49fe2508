//! What tests of subscribers publish: losses, messages with any extensions, and records that no program writes.

use super::terms::Limit;
use super::topics::TableShare;
use crate::bus::Bus;
use crate::ring::writer::Record;
use crate::topic::Lost;
use crate::topic::frame::{Extensions, MAX_EXTENSIONS_BYTES, Tag, TopicId};

/// Publishes a loss on the way to this bus. It is not taken for a duplicate if its numbers were published before.
pub(in crate::bus) fn publish_lost(bus: &Bus, lost: &Lost) {
    bus.inlet().unwrap().publish_lost(lost, Some(0), Limit::Policy).unwrap();
}

/// Publishes a message with these extensions. The topic's id is that of a publisher, unless the extensions have an
/// inline topic.
pub(in crate::bus) fn publish_message(
    bus: &Bus,
    topic: &str,
    to_descendants: bool,
    extensions: &Extensions<'_>,
    payload: &[u8],
) {
    let id = match extensions.inline_topic {
        Some(_) => TopicId::INLINE,
        None => {
            let publishing = bus.publishing().unwrap();
            let terms = publishing.participant.terms_without_deadline();
            publishing.intern(&topic.parse().unwrap(), TableShare::All, &terms).unwrap().unwrap()
        }
    };
    let tag = Tag::message(id, to_descendants, extensions);
    let mut buffer = [0; MAX_EXTENSIONS_BYTES];
    let length = extensions.encode(&mut buffer);
    publish_record(bus, tag.raw(), &[&buffer[..length], payload].concat());
}

/// Publishes a record with any tag but 0, and any bytes after its header.
pub(in crate::bus) fn publish_record(bus: &Bus, tag: u32, body: &[u8]) {
    let publishing = bus.publishing().unwrap();
    let terms = publishing.participant.terms_without_deadline();
    publishing.publish(Record { tag, extensions: &[], payload: body }, &terms).unwrap();
}

/// Removes what says that the topics of a bound may be retained, as a publisher without a lease might.
pub(in crate::bus) fn unmark(bus: &Bus, bound: usize) {
    let publishing = bus.publishing().unwrap();
    let bound = &publishing.participant.ring.control().bounds[bound];
    bound.fetch_and(!1, crate::sync::Ordering::Relaxed);
}
