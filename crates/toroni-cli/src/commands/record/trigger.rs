//! `--trigger`: the recorder reads along and writes nothing, until a message matches.

use super::intake::Mark;
use std::collections::VecDeque;
use std::time::Duration;
use toroni::Pattern;

/// The most marks that are kept.
const MOST_MARKS: u64 = 16_384;

/// Remembers when the messages that are still in the ring came.
pub(super) struct Trigger<'a> {
    patterns: &'a [Pattern],
    before_ns: u64,
    spacing_ns: u64,
    marks: VecDeque<Mark>,
    /// Where it began to read along. When older messages came is unknown.
    began: u64,
}

/// Whether a message on this topic starts a recording.
pub(super) fn matches(patterns: &[Pattern], topic: &str, to_descendants: bool) -> bool {
    patterns.iter().any(|pattern| {
        if to_descendants { pattern.matches_descendants(topic) } else { pattern.matches(topic) }
    })
}

impl<'a> Trigger<'a> {
    pub(super) fn new(patterns: &'a [Pattern], before: Duration, began: u64) -> Self {
        let before_ns = u64::try_from(before.as_nanos()).unwrap_or(u64::MAX);
        // A mark each millisecond, or fewer for long times.
        let spacing_ns = (before_ns / MOST_MARKS).max(1_000_000);
        Self { patterns, before_ns, spacing_ns, marks: VecDeque::new(), began }
    }

    /// Returns whether a message on this topic starts a recording.
    pub(super) fn matches(&self, topic: &str, to_descendants: bool) -> bool {
        matches(self.patterns, topic, to_descendants)
    }

    /// Remembers that the stream was read up to a position.
    pub(super) fn mark(&mut self, position: u64, time_ns: u64) {
        match self.marks.back_mut() {
            // A mark has the time of the first message after the mark before.
            Some(last) if time_ns.saturating_sub(last.time_ns) < self.spacing_ns => {
                last.position = position;
            }
            _ => self.marks.push_back(Mark { position, time_ns }),
        }
        let oldest = time_ns.saturating_sub(self.before_ns);
        // One that is older stays: its position is where the time before begins.
        while self.marks.get(1).is_some_and(|second| second.time_ns < oldest) {
            self.marks.pop_front();
        }
    }

    /// Returns where the recording starts, and when the messages from there on came.
    pub(super) fn fire(&mut self, now_ns: u64) -> (u64, VecDeque<Mark>) {
        let oldest = now_ns.saturating_sub(self.before_ns);
        let mut marks = std::mem::take(&mut self.marks);
        let mut start = self.began;
        while let Some(first) = marks.front()
            && first.time_ns < oldest
        {
            start = first.position;
            marks.pop_front();
        }
        (start, marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_when_messages_came() {
        let patterns: Vec<Pattern> = vec!["alarm/**".parse().unwrap()];
        let mut trigger = Trigger::new(&patterns, Duration::from_secs(10), 50);
        let now = 1_000_000_000_000;
        assert_eq!(trigger.fire(now), (50, VecDeque::new()));
        assert!(trigger.matches("alarm/fire", false) && !trigger.matches("alarms", false));
        let second = 1_000_000_000;
        for (ago, position) in [(30, 100), (20, 200), (15, 300), (5, 400), (1, 500)] {
            trigger.mark(position, now - ago * second);
        }
        let (start, marks) = trigger.fire(now);
        // Those before position 300 came more than 10 s ago.
        assert_eq!(start, 300);
        let positions: Vec<u64> = marks.iter().map(|mark| mark.position).collect();
        assert_eq!(positions, [400, 500]);
    }
}
