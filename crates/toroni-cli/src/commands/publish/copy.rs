//! `pub --json`: publishes messages with their topics, as `sub --json` prints them.

use super::Run;
use super::publishers::{Publishers, TopicPublisher};
use super::source::{Lines, Next, too_long};
use std::collections::HashMap;
use toroni::LostBound;
use toroni_shell::exchange::{self, Entry, Lapse};
use toroni_shell::failure::Failure;
use toroni_shell::{human, note};

/// For how many topics publishers are kept. The input may have any number of topics: beyond this one, all publishers
/// are dropped, and created again when they are needed.
const MOST_PUBLISHERS: usize = 4096;

/// What to do about losses in the input.
pub(super) struct Losses {
    pub(super) strict: bool,
    pub(super) quiet: bool,
}

/// Publishes each message of the input on its topic.
pub(super) fn run(
    publishers: &Publishers,
    lines: &mut Lines,
    losses: &Losses,
    run: &mut Run<'_>,
) -> Result<Next, Failure> {
    let mut kept = KeptPublishers { publishers, by_topic: HashMap::new() };
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let bad = |why: String| Failure::Failed(format!("line {number} of standard input: {why}"));
        match lines.next(&mut line, run.stop) {
            Ok(Next::Message) => {}
            Ok(other) => return Ok(other),
            Err(Failure::Failed(why)) => return Err(bad(why)),
            Err(other) => return Err(other),
        }
        match exchange::read(&line).map_err(bad)? {
            Entry::Message { topic, to_descendants, payload } => {
                let publisher = kept.on(&topic, to_descendants).map_err(bad)?;
                let limit = publisher.largest_message();
                if super::as_u64(payload.len()) > limit {
                    return Err(bad(too_long("the payload", limit)));
                }
                if !run.publish(publisher, &payload)? {
                    return Ok(Next::Interrupted);
                }
            }
            // Without --retain there is no value.
            Entry::Cleared { .. } if !publishers.retain => {}
            Entry::Cleared { topic, to_descendants } => {
                if !run.wait_for_turn(1) {
                    return Ok(Next::Interrupted);
                }
                kept.on(&topic, to_descendants).map_err(bad)?.clear()?;
            }
            Entry::Lapse(Lapse { messages, bytes }) => {
                losses.report(number, "", messages, &format!(" ({bytes} bytes)"))?;
            }
            Entry::LostOnTheWay { messages, bound } => {
                let bound = match bound {
                    LostBound::Exact => "",
                    LostBound::AtLeast => "at least ",
                    LostBound::AtMost => "at most ",
                };
                losses.report(number, bound, messages, " on the way to the bus that it is from")?;
            }
        }
    }
    Ok(Next::End)
}

impl Losses {
    /// Reports a loss of `messages`, between a word before that number and what is said after it.
    fn report(&self, line: u64, bound: &str, messages: u64, after: &str) -> Result<(), Failure> {
        let lost = human::counted(messages, "message");
        if !self.quiet {
            note::loss(&format!(
                "line {line} of standard input reports a loss of {bound}{lost}{after}"
            ));
        }
        if self.strict {
            return Err(Failure::Lost("stopped at a loss because of --strict".to_owned()));
        }
        Ok(())
    }
}

/// Two publishers for each topic: the second also publishes to the topic's descendants.
struct KeptPublishers<'a> {
    publishers: &'a Publishers,
    by_topic: HashMap<String, [TopicPublisher; 2]>,
}

impl KeptPublishers<'_> {
    fn on(&mut self, topic: &str, to_descendants: bool) -> Result<&TopicPublisher, String> {
        if !self.by_topic.contains_key(topic) {
            if self.by_topic.len() >= MOST_PUBLISHERS {
                self.by_topic.clear();
            }
            let publisher = self.publishers.on(topic);
            let publisher = publisher.map_err(|failure| failure.report().1.unwrap_or_default())?;
            let both = [publisher.clone(), publisher.with_descendants(true)];
            self.by_topic.insert(topic.to_owned(), both);
        }
        Ok(&self.by_topic[topic][usize::from(to_descendants)])
    }
}
