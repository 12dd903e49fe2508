//! Keeps the last heartbeats of exports, for a bridge that takes over or was restarted.

use crate::beat::{Beat, Known};
use crate::context::lock;
use crate::key::Prefix;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use zenoh::Session;
use zenoh::Wait;
use zenoh::query::{ConsolidationMode, Query, QueryTarget};
use zenoh::sample::Locality;

/// As many exports are remembered.
const MOST: usize = 1024;

/// An export: prefix, bus, stream.
type Export = (String, String, u16);

#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<HashMap<Export, Known>>);

impl Witness {
    /// Learns from a heartbeat.
    pub(crate) fn take(&self, prefix: &Prefix, beat: &Beat) {
        let mut known = lock(&self.0);
        let export = (prefix.key(""), beat.bus.clone(), beat.stream);
        if known.len() >= MOST && !known.contains_key(&export) {
            return;
        }
        known.entry(export).or_default().take(beat);
    }

    /// Returns the last heartbeat of an export, with all topics, if it is known.
    pub(crate) fn last(&self, prefix: &Prefix, bus: &str, stream: u16) -> Option<Beat> {
        let export = (prefix.key(""), bus.to_owned(), stream);
        lock(&self.0).get(&export).and_then(Known::complete).cloned()
    }

    /// Returns the numbering of an export of which only a part is known.
    pub(crate) fn incomplete(&self, prefix: &Prefix, bus: &str, stream: u16) -> Option<u32> {
        let export = (prefix.key(""), bus.to_owned(), stream);
        let known = lock(&self.0);
        let known = known.get(&export)?;
        known.complete().is_none().then(|| known.numbering())
    }

    /// Answers a bridge that asks for the last heartbeat of its predecessor.
    pub(crate) fn answer(&self, prefix: &Prefix, query: &Query) {
        let key = query.key_expr().as_str();
        let mut segments = key.rsplit('/');
        let stream = segments.next().and_then(|text| u16::from_str_radix(text, 16).ok());
        if let (Some(stream), Some(bus)) = (stream, segments.next())
            && let Some(beat) = self.last(prefix, bus, stream)
            && let Err(error) = query.reply(query.key_expr(), beat.to_bytes()).wait()
        {
            tracing::debug!(%error, "cannot answer a bridge that asks for its numbers");
        }
    }
}

/// Returns what follows the prefix in the key of an export's heartbeats, losses or witnesses.
pub(crate) fn name(what: &str, bus: &str, stream: u16) -> String {
    format!("{what}/{bus}/{stream:04x}")
}

/// Asks all importers for the last heartbeat of an export.
pub(crate) fn ask(
    session: &Session,
    prefix: &Prefix,
    bus: &str,
    stream: u16,
    timeout: Duration,
) -> Vec<Beat> {
    let key = prefix.control(&name("witness", bus, stream));
    let asked = session
        .get(key)
        .target(QueryTarget::All)
        .consolidation(ConsolidationMode::None)
        .allowed_destination(Locality::Remote)
        .timeout(timeout)
        .wait();
    let replies = match asked {
        Ok(replies) => replies,
        Err(error) => {
            tracing::debug!(%error, "cannot ask for the last heartbeat");
            return Vec::new();
        }
    };
    let mut beats = Vec::new();
    while let Ok(reply) = replies.recv() {
        if let Ok(sample) = reply.result()
            && let Some(beat) = Beat::parse(&sample.payload().to_bytes())
            && beat.bus == bus
            && beat.stream == stream
            && beat.full
        {
            beats.push(beat);
        }
    }
    beats
}

/// Returns the heartbeat at which a successor continues: of the youngest numbering the one of the importer that has
/// received least, unless its messages are no longer in the ring.
pub(crate) fn least(beats: Vec<Beat>, oldest: u64) -> Option<Beat> {
    let youngest = beats.iter().max_by_key(|beat| (beat.begins, beat.until))?.numbering;
    let mut beats: Vec<_> = beats.into_iter().filter(|beat| beat.numbering == youngest).collect();
    beats.sort_by_key(|beat| beat.until);
    let at = beats.iter().position(|beat| beat.until >= oldest);
    let last = beats.len() - 1;
    Some(beats.swap_remove(at.unwrap_or(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_continues_where_the_importer_stands_that_has_least() {
        let beat = |numbering, begins, until| Beat { numbering, begins, until, ..Beat::default() };
        let beats =
            || vec![beat(1, 5, 90), beat(2, 100, 150), beat(2, 100, 120), beat(2, 100, 200)];
        assert_eq!(least(beats(), 0), Some(beat(2, 100, 120)));
        assert_eq!(least(beats(), 130), Some(beat(2, 100, 150)));
        assert_eq!(least(beats(), 300), Some(beat(2, 100, 200)), "the least loss");
        assert_eq!(least(Vec::new(), 0), None);
    }
}
