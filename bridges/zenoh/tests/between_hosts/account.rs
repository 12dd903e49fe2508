//! Compares what was published with what arrived and what was reported as lost. It reads only the lines of `toroni sub
//! --json`, and knows nothing of bridges.
//!
//! Each topic carries the numbers 0, 1, 2, …, one in each message. A subscriber must see them in rising order, none of
//! them twice. If numbers are missing, reports of losses must have said so *before* the next message of the topic, and in
//! the end their counts must be those of the missing numbers.

use serde_json::Value;
use std::collections::BTreeMap;
use toroni::Pattern;

/// What one subscriber received.
#[derive(Default)]
pub(crate) struct Account {
    topics: BTreeMap<String, Track>,
    losses: Vec<Loss>,
    problems: Vec<String>,
    payloads: Vec<(String, String)>,
}

#[derive(Default)]
struct Track {
    /// The next number that may come.
    next: u64,
    received: u64,
    /// Numbers that were passed over.
    missing: u64,
}

struct Loss {
    scope: Vec<Pattern>,
    messages: u64,
    bound: String,
    reason: String,
}

impl Loss {
    fn concerns(&self, topic: &str) -> bool {
        self.scope.iter().any(|pattern| pattern.matches(topic))
    }
}

impl Account {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes a line of `toroni sub --json`.
    pub(crate) fn take(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            return self.problem(format!("no JSON: {line}"));
        };
        if let Some(lost) = value.get("lost") {
            return self.take_loss(lost, line);
        }
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let (topic, payload) = (text("topic"), text("payload"));
        self.payloads.truncate(99_999);
        self.payloads.push((topic.clone(), payload.clone()));
        let track = self.topics.entry(topic.clone()).or_default();
        track.received += 1;
        // Only topics that carry numbers are compared.
        let Ok(number) = payload.parse::<u64>() else { return };
        if number < track.next {
            let next = track.next;
            return self.problem(format!("{topic}: {number} after {}", next.saturating_sub(1)));
        }
        track.missing += number - track.next;
        track.next = number + 1;
        let missing = track.missing;
        if missing > self.reported(&topic).1 {
            let (_, most) = self.reported(&topic);
            self.problem(format!(
                "{topic}: before {number}, {missing} are missing and at most {most} are reported"
            ));
        }
    }

    fn take_loss(&mut self, lost: &Value, line: &str) {
        let text = |key: &str| lost[key].as_str().unwrap_or_default().to_owned();
        let messages = text("messages").parse().unwrap_or(u64::MAX);
        if lost.get("bound").is_none() {
            return self.problem(format!("the subscriber of the test was too slow: {line}"));
        }
        let scope = lost["scope"].as_array().cloned().unwrap_or_default();
        let scope: Vec<Pattern> =
            scope.iter().filter_map(|one| Pattern::new(one.as_str()?).ok()).collect();
        self.losses.push(Loss { scope, messages, bound: text("bound"), reason: text("reason") });
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < 10 {
            self.problems.push(text);
        }
    }

    /// Returns the least and the greatest number of messages of a topic that the reports allow to be missing. An open end counts none:
    /// how many are missing is reported when the exporter is back.
    fn reported(&self, topic: &str) -> (u64, u64) {
        let (mut least, mut most) = (0_u64, 0_u64);
        let with_numbers = self.losses.iter().filter(|loss| loss.messages > 0);
        for loss in with_numbers.filter(|loss| loss.concerns(topic)) {
            // A post to descendants of the topic may be among what is missing.
            let below = format!("{topic}/**");
            let is_own = |pattern: &Pattern| [topic, below.as_str()].contains(&pattern.as_str());
            let is_alone = loss.scope.iter().all(is_own);
            match loss.bound.as_str() {
                // A report for several topics does not say how many were of this one.
                "exact" if is_alone => {
                    least = least.saturating_add(loss.messages);
                    most = most.saturating_add(loss.messages);
                }
                "exact" | "at_most" => most = most.saturating_add(loss.messages),
                _ => {
                    least = least.saturating_add(if is_alone { loss.messages } else { 0 });
                    most = u64::MAX;
                }
            }
        }
        (least, most)
    }

    /// Whether each number below `count` has arrived or is reported.
    pub(crate) fn is_settled(&self, topic: &str, count: u64) -> bool {
        let track = self.topics.get(topic);
        let (next, missing) = track.map_or((0, 0), |track| (track.next, track.missing));
        next == count || missing + (count - next.min(count)) <= self.reported(topic).1
    }

    /// Whether the number below `count` has arrived.
    pub(crate) fn has_last(&self, topic: &str, count: u64) -> bool {
        self.topics.get(topic).is_some_and(|track| track.next == count)
    }

    pub(crate) fn received(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |track| track.received)
    }

    /// Returns the topic and the payload of each message, at most 100,000.
    pub(crate) fn messages(&self) -> &[(String, String)] {
        &self.payloads
    }

    /// Checks that of `count` numbers of a topic each arrived, in order, or is reported, and that the report is exact.
    /// Returns how many are missing.
    pub(crate) fn balance(&self, topic: &str, count: u64) -> u64 {
        let missing = self.balance_within_bounds(topic, count);
        let inexact: Vec<&Loss> = self
            .losses
            .iter()
            .filter(|loss| loss.concerns(topic) && loss.bound != "exact")
            .collect();
        assert!(inexact.is_empty(), "a report is not exact: {}", self.summary());
        missing
    }

    /// As [`Self::balance`], where a report may also be a bound.
    pub(crate) fn balance_within_bounds(&self, topic: &str, count: u64) -> u64 {
        assert!(self.problems.is_empty(), "{:#?}\n{}", self.problems, self.summary());
        let (received, next, missing) = self
            .topics
            .get(topic)
            .map_or((0, 0, 0), |track| (track.received, track.next, track.missing));
        assert!(next <= count, "{topic}: {next} numbers of {count}: {}", self.summary());
        let missing = missing + count - next;
        let (least, most) = self.reported(topic);
        assert!(
            (least..=most).contains(&missing),
            "{topic}: {missing} of {count} are missing, and {least} to {most} are reported: {}",
            self.summary()
        );
        assert_eq!(received + missing, count, "{topic}: {}", self.summary());
        missing
    }

    pub(crate) fn summary(&self) -> String {
        let topics: Vec<String> = self
            .topics
            .iter()
            .map(|(topic, track)| {
                format!(
                    "{topic}: {} received, {} missing, next {}",
                    track.received, track.missing, track.next
                )
            })
            .collect();
        let losses: Vec<String> = self
            .losses
            .iter()
            .take(20)
            .map(|loss| {
                let scope: Vec<&str> = loss.scope.iter().map(Pattern::as_str).collect();
                format!("{} {} ({}) of {}", loss.bound, loss.messages, loss.reason, scope.join(" "))
            })
            .collect();
        format!(
            "\n  topics {topics:#?}\n  losses ({}) {losses:#?}\n  problems {:#?}",
            self.losses.len(),
            self.problems
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn message(topic: &str, number: u64) -> String {
        serde_json::json!({"topic": topic, "payload": number.to_string()}).to_string()
    }

    fn loss(topic: &str, messages: u64, bound: &str) -> String {
        serde_json::json!({"lost": {"messages": messages.to_string(), "bound": bound, "reason": "gone",
            "scope": [topic]}})
        .to_string()
    }

    fn balance(lines: &[String]) -> Result<u64, ()> {
        let mut account = Account::new();
        for line in lines {
            account.take(line);
        }
        catch_unwind(AssertUnwindSafe(|| account.balance("a", 4))).map_err(|_| ())
    }

    #[test]
    fn it_accepts_what_is_complete_or_reported() {
        let m = |number| message("a", number);
        assert_eq!(balance(&[m(0), m(1), m(2), m(3)]), Ok(0));
        assert_eq!(balance(&[m(0), loss("a", 2, "exact"), m(3)]), Ok(2));
        assert_eq!(balance(&[m(0), m(1), loss("a", 2, "exact")]), Ok(2), "at the end");
        assert_eq!(balance(&[loss("b", 9, "exact"), m(0), m(1), m(2), m(3)]), Ok(0));
    }

    #[test]
    fn it_refuses_everything_else() {
        let m = |number| message("a", number);
        for (lines, why) in [
            (vec![m(0), m(1), m(3)], "a silent loss"),
            (vec![m(0), m(1), m(2)], "a silent loss at the end"),
            (vec![], "nothing arrived"),
            (vec![m(0), m(1), m(1), m(2), m(3)], "a message twice"),
            (vec![m(0), m(2), m(1), m(3)], "another order"),
            (vec![m(0), m(3), loss("a", 2, "exact")], "a report after the next message"),
            (vec![m(0), loss("a", 3, "exact"), m(3)], "too many are reported"),
            (vec![m(0), loss("a", 1, "exact"), m(3)], "too few are reported"),
            (vec![m(0), loss("b", 2, "exact"), m(3)], "a report of another topic"),
            (vec![m(0), loss("a", 5, "at_most"), m(3)], "a report that is not exact"),
            (vec![m(0), m(1), m(2), m(3), loss("a", 1, "exact")], "a report without a loss"),
            (vec![m(0), m(1), m(2), m(3), m(4)], "more than was published"),
        ] {
            assert_eq!(balance(&lines), Err(()), "{why}");
        }
    }
}
