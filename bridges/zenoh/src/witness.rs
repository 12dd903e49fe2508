//! Keeps the last heartbeats of exports, for a bridge that takes over or was restarted.
//!
//! Such a bridge continues where its predecessor ended. If it does not find that out, importers that know its streams ask
//! for what they have missed. So what is remembered can be bounded.

use crate::beat::{Beat, Known};
use crate::context::lock;
use crate::key::Prefix;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use zenoh::Session;
use zenoh::Wait;
use zenoh::query::{ConsolidationMode, Query, QueryTarget};
use zenoh::sample::Locality;

/// As many exports are remembered, as many bytes of their heartbeats, and for as long. Those that were not heard for
/// longest are forgotten first.
const MOST: usize = 1024;
const MOST_BYTES: usize = 32 << 20;
const MOST_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An export: prefix, bus, stream.
type Export = (String, String, u16);

#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    exports: HashMap<Export, Last>,
    bytes: usize,
}

#[derive(Debug)]
struct Last {
    known: Known,
    bytes: usize,
    heard: Instant,
}

impl Witness {
    /// Learns from a heartbeat.
    pub(crate) fn take(&self, prefix: &Prefix, beat: &Beat) {
        lock(&self.0).take((prefix.key(""), beat.bus.clone(), beat.stream), beat, Instant::now());
    }

    /// Returns the last heartbeats of a bus's exports, with all topics, as far as they are known.
    pub(crate) fn last(&self, prefix: &Prefix, bus: &str) -> Vec<Beat> {
        let (prefix, heard) = (prefix.key(""), lock(&self.0));
        let of = heard.exports.iter().filter(|((at, of, _), _)| *at == prefix && of == bus);
        of.filter_map(|(_, last)| last.known.complete().cloned()).collect()
    }

    /// Returns the numbering of an export of which only a part is known.
    pub(crate) fn incomplete(&self, prefix: &Prefix, bus: &str, stream: u16) -> Option<u32> {
        let export = (prefix.key(""), bus.to_owned(), stream);
        let heard = lock(&self.0);
        let known = &heard.exports.get(&export)?.known;
        known.complete().is_none().then(|| known.numbering())
    }

    /// Answers a bridge that asks for the last heartbeats of its predecessor, or of one of its own exports.
    pub(crate) fn answer(&self, prefix: &Prefix, query: &Query) {
        let key = query.key_expr().as_str();
        let mut segments = key.rsplit('/');
        let (Some(stream), Some(bus)) = (segments.next(), segments.next()) else { return };
        let wanted = u16::from_str_radix(stream, 16).ok();
        for beat in self.last(prefix, bus) {
            if stream != "*" && wanted != Some(beat.stream) {
                continue;
            }
            let key = prefix.control(&name("witness", bus, beat.stream));
            if let Err(error) = query.reply(key, beat.to_bytes()).wait() {
                tracing::debug!(%error, "cannot answer a bridge that asks for its numbers");
            }
        }
    }
}

impl Heard {
    fn take(&mut self, export: Export, beat: &Beat, now: Instant) {
        let last = self.exports.entry(export).or_insert_with(|| Last {
            known: Known::default(),
            bytes: 0,
            heard: now,
        });
        last.known.take(beat);
        last.heard = now;
        self.bytes -= last.bytes;
        last.bytes = last.known.bytes();
        self.bytes = self.bytes.saturating_add(last.bytes);
        self.exports.retain(|_, last| {
            let is_young = now.saturating_duration_since(last.heard) < MOST_AGE;
            if !is_young {
                self.bytes -= last.bytes;
            }
            is_young
        });
        while self.exports.len() > MOST || self.bytes > MOST_BYTES {
            let oldest = self.exports.iter().min_by_key(|(_, last)| last.heard);
            let Some(oldest) = oldest.map(|(export, _)| export.clone()) else { return };
            self.bytes -= self.exports.remove(&oldest).map_or(0, |last| last.bytes);
        }
    }
}

/// Returns what follows the prefix in the key of an export's heartbeats, losses or witnesses.
pub(crate) fn name(what: &str, bus: &str, stream: u16) -> String {
    format!("{what}/{bus}/{stream:04x}")
}

/// What importers know of a bus's exports.
pub(crate) struct Asked {
    pub(crate) beats: Vec<Beat>,
    /// Whether all importers have answered that Zenoh knows of.
    pub(crate) is_complete: bool,
}

/// Asks all importers for the last heartbeats of a bus's exports: for those with this key.
pub(crate) fn ask(session: &Session, key: &str, bus: &str, timeout: Duration) -> Asked {
    let mut found = Asked { beats: Vec::new(), is_complete: false };
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
            return found;
        }
    };
    found.is_complete = true;
    while let Ok(reply) = replies.recv() {
        match reply.result() {
            Ok(sample) => {
                let beat = Beat::parse(&sample.payload().to_bytes());
                found.beats.extend(beat.filter(|beat| beat.bus == bus && beat.full));
            }
            // The time is over.
            Err(_) => found.is_complete = false,
        }
    }
    found
}

/// Returns the heartbeat at which a successor continues: of the youngest numbering the one of the importer that has
/// received least, unless its messages are no longer in the ring.
pub(crate) fn least<'a>(
    beats: impl IntoIterator<Item = &'a Beat>,
    oldest: u64,
) -> Option<&'a Beat> {
    let mut beats: Vec<&Beat> = beats.into_iter().collect();
    let youngest = beats.iter().max_by_key(|beat| (beat.begins, beat.until))?.numbering;
    beats.retain(|beat| beat.numbering == youngest);
    beats.sort_by_key(|beat| beat.until);
    let at = beats.iter().position(|beat| beat.until >= oldest);
    Some(beats.swap_remove(at.unwrap_or(beats.len() - 1)))
}

/// Returns the exports that the predecessor had, each with the heartbeat at which a successor continues.
pub(crate) fn predecessors(beats: &[Beat], oldest: u64) -> Vec<&Beat> {
    let Some(youngest) = beats.iter().max_by_key(|beat| (beat.until, beat.begins)) else {
        return Vec::new();
    };
    let of_last = || beats.iter().filter(|beat| beat.edition == youngest.edition);
    let streams: std::collections::BTreeSet<u16> = of_last().map(|beat| beat.stream).collect();
    let of_stream = |stream| least(of_last().filter(|beat| beat.stream == stream), oldest);
    streams.into_iter().filter_map(of_stream).collect()
}

/// Where an export continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Continued<'a> {
    /// With the numbers and counts of its predecessor.
    Numbering(&'a Beat),
    /// With new counts, from this sequence on.
    From(u64),
    /// No predecessor is known.
    Nothing,
}

/// Returns where an export continues, if `last` are the exports that the predecessor had.
pub(crate) fn continued<'a>(last: &[&'a Beat], stream: u16, edition: u32) -> Continued<'a> {
    let Some(first) = last.iter().map(|beat| beat.until).min() else { return Continued::Nothing };
    let own = last.iter().find(|beat| beat.stream == stream);
    match own.filter(|own| own.edition == edition || own.until == first) {
        Some(own) => Continued::Numbering(own),
        None => Continued::From(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_continues_where_the_importer_stands_that_has_least() {
        let beat = |numbering, begins, until| Beat { numbering, begins, until, ..Beat::default() };
        let beats = [beat(1, 5, 90), beat(2, 100, 150), beat(2, 100, 120), beat(2, 100, 200)];
        assert_eq!(least(&beats, 0), Some(&beat(2, 100, 120)));
        assert_eq!(least(&beats, 130), Some(&beat(2, 100, 150)));
        assert_eq!(least(&beats, 300), Some(&beat(2, 100, 200)), "the least loss");
        assert_eq!(least(&[], 0), None);
    }

    #[test]
    fn the_predecessor_had_the_exports_of_the_youngest_heartbeat() {
        let beat = |edition, stream, until| Beat { edition, stream, until, ..Beat::default() };
        let beats = [beat(1, 7, 900), beat(2, 7, 1000), beat(2, 8, 990), beat(1, 9, 10)];
        assert_eq!(predecessors(&beats, 0), [&beats[1], &beats[2]], "the last edition has no 9");
        assert!(predecessors(&[], 0).is_empty());
    }

    /// The exports 7 and 8 had ended at different places: their bridge was killed.
    #[test]
    fn an_export_continues_where_its_topics_may_have_ended() {
        let beat = |stream, until| Beat { edition: 1, stream, until, ..Beat::default() };
        let (early, late) = (beat(7, 90), beat(8, 100));
        let last = [&early, &late];
        for (stream, edition, expected) in [
            (7, 1, Continued::Numbering(&early)),
            (8, 1, Continued::Numbering(&late)),
            // Patterns were edited, or moved between them.
            (7, 2, Continued::Numbering(&early)),
            (8, 2, Continued::From(90)),
            // An export was added, or has another prefix.
            (9, 2, Continued::From(90)),
        ] {
            assert_eq!(continued(&last, stream, edition), expected, "{stream} {edition}");
        }
        assert_eq!(continued(&[], 7, 1), Continued::Nothing);
    }

    fn heard() -> (Heard, Instant) {
        (Heard::default(), Instant::now())
    }

    fn export(stream: u16) -> Export {
        (String::new(), "ab".to_owned(), stream)
    }

    /// A stranger sends heartbeats with many topics, one export after the other.
    #[test]
    fn forged_heartbeats_take_no_more_memory_than_allowed() {
        let (mut heard, now) = heard();
        let topic = |number: usize| (format!("{number:0>200}"), 1);
        let topics = (0..10_000).map(topic).collect();
        let long = Beat { full: true, topics, ..Beat::default() };
        for stream in 0..40u16 {
            heard.take(export(stream), &long, now + Duration::from_secs(stream.into()));
            assert!(heard.bytes <= MOST_BYTES);
            let held: usize = heard.exports.values().map(|last| last.known.bytes()).sum();
            assert_eq!(held, heard.bytes);
        }
        assert!(heard.exports.contains_key(&export(39)) && !heard.exports.contains_key(&export(0)));
        // One that never ends.
        for part in 0..50 {
            let topics = (0..10_000).map(|number| topic(number + part * 10_000)).collect();
            let part = Beat { full: false, topics, ..Beat::default() };
            heard.take(export(7), &part, now + Duration::from_secs(100));
            assert!(heard.bytes <= MOST_BYTES);
        }
        for stream in 0..2000u16 {
            heard.take(export(stream), &Beat::default(), now + Duration::from_secs(200));
        }
        assert_eq!(heard.exports.len(), MOST);
    }

    #[test]
    fn what_is_not_heard_for_long_is_forgotten() {
        let (mut heard, now) = heard();
        heard.take(export(1), &Beat::default(), now);
        heard.take(export(2), &Beat::default(), now + MOST_AGE / 2);
        assert_eq!(heard.exports.len(), 2);
        heard.take(export(3), &Beat::default(), now + MOST_AGE);
        assert_eq!((heard.exports.len(), heard.bytes), (2, 2 * Known::default().bytes()));
    }
}
