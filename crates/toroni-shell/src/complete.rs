//! Completion in shells: existing buses, and topics of the bus.
//!
//! On Tab, the script of `toroni completions` calls this program with the variable [`VARIABLE`] set.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::location::BusLocation;
use clap_complete::CompletionCandidate;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use toroni::{TopicStats, admin};

/// If this variable names a shell, the program prints completions for the command line of that shell.
pub const VARIABLE: &str = "TORONI_COMPLETE";

/// Finding topics means reading the whole ring, which takes too long in a larger one.
const LARGEST_RING_BYTES: u64 = 256 << 20;

/// Returns the names of buses that begin with `current`.
pub fn buses(current: &OsStr) -> Vec<CompletionCandidate> {
    let buses = admin::list(location().dir.as_deref()).unwrap_or_default();
    candidates(current, buses.into_iter().map(|bus| bus.name))
}

/// Returns the topics in the ring that begin with `current`.
pub fn topics(current: &OsStr) -> Vec<CompletionCandidate> {
    let topics = stats_of(&location()).unwrap_or_default();
    candidates(current, topics.into_iter().map(|topic| topic.name))
}

/// Returns the retained topics that begin with `current`.
pub fn retained_topics(current: &OsStr) -> Vec<CompletionCandidate> {
    let topics = stats_of(&location()).unwrap_or_default().into_iter();
    candidates(current, topics.filter(|topic| topic.value.is_some()).map(|topic| topic.name))
}

/// Returns the names that begin with `current`. A shell inserts them unquoted into the command line, and other users
/// choose them, so names that a shell would not read as one plain word are left out.
pub fn candidates(
    current: &OsStr,
    names: impl IntoIterator<Item = String>,
) -> Vec<CompletionCandidate> {
    let Some(start) = current.to_str() else { return Vec::new() };
    names
        .into_iter()
        .filter(|name| name.starts_with(start) && is_plain(name))
        .map(CompletionCandidate::new)
        .collect()
}

fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || "/_-.,+".contains(c))
}

/// Returns the bus and the directory that the incomplete command line names.
fn location() -> BusLocation {
    // The shell passes its words after the program's own name and `--`.
    location_in(std::env::args_os().skip_while(|word| word != "--").skip(1))
}

fn location_in(words: impl IntoIterator<Item = OsString>) -> BusLocation {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (mut directory, mut bus) = (variable("TORONI_DIR"), variable("TORONI_BUS"));
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-b" | "--bus") => bus = words.next(),
            Some("--dir") => directory = words.next(),
            Some(text) => {
                if let Some(name) = text.strip_prefix("--bus=") {
                    bus = Some(name.into());
                } else if let Some(path) = text.strip_prefix("--dir=") {
                    directory = Some(path.into());
                }
            }
            None => {}
        }
    }
    let bus = bus.and_then(|bus| bus.into_string().ok());
    BusLocation {
        bus: bus.unwrap_or_else(|| "default".to_owned()),
        dir: directory.map(PathBuf::from),
    }
}

/// Returns the topics of a bus, or `None` if it does not exist, is too large, or this user may not read it.
fn stats_of(location: &BusLocation) -> Option<Vec<TopicStats>> {
    let bus = location.open_existing(None).ok()?;
    if bus.stats().ok()?.capacity > LARGEST_RING_BYTES {
        return None;
    }
    let mut topics = bus.topics().ok()?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_of_the_command_line_is_found() {
        let location = |words: &[&str]| location_in(words.iter().map(OsString::from));
        assert_eq!(location(&["toroni", "sub", "-b", "plant", "x"]).bus, "plant");
        assert_eq!(location(&["toroni", "--bus=plant", "sub"]).bus, "plant");
        let location = location(&["toroni", "--dir", "/mnt", "--bus", "a", "--bus", "b", "sub"]);
        assert_eq!((location.dir, location.bus.as_str()), (Some("/mnt".into()), "b"));
    }

    #[test]
    fn shells_are_offered_plain_words_only() {
        for name in ["plant/boiler", "größe", "a-b.c_d,e+1"] {
            assert!(is_plain(name), "{name}");
        }
        for name in
            ["-b", "a b", "a;b", "`b`", "a'b", "a\"b", "a&b", "~a", "a\\b", "a|b", "(a)", "a=b"]
        {
            assert!(!is_plain(name), "{name}");
        }
    }
}
