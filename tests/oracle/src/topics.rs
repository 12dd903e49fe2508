//! Topics and patterns by their definitions: slow, and obviously right.

/// Bytes of the longest topic, and of the longest pattern.
const LONGEST_BYTES: usize = 255;

/// Whether a string is a topic.
#[must_use]
pub fn is_topic(name: &str) -> bool {
    is_path(name) && !name.contains(['*', '#', '+', '$', '?'])
}

/// Whether a string is a pattern.
#[must_use]
pub fn is_pattern(pattern: &str) -> bool {
    let whole = |segment: &str| !segment.contains('*') || ["*", "**"].contains(&segment);
    is_path(pattern) && !pattern.contains(['#', '+', '$', '?']) && pattern.split('/').all(whole)
}

/// Whether a message posted to `topic` is for somebody who asked for `pattern`.
#[must_use]
pub fn matches(pattern: &str, topic: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    meet(&pattern, &topic, |rest| rest.iter().all(|segment| *segment == "**"))
}

/// As [`matches()`], of a message posted to `topic` and all that could stand below it.
#[must_use]
pub fn matches_descendants(pattern: &str, topic: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    // Below the topic anything may stand: also what the rest of the pattern asks for.
    meet(&pattern, &topic, |_| true)
}

/// Whether there can be a topic that both patterns match.
#[must_use]
pub fn intersect(left: &str, right: &str) -> bool {
    fn both(left: &[&str], right: &[&str]) -> bool {
        match (left, right) {
            ([], []) => true,
            // It takes nothing, or the next segment of the other, whatever that may be.
            (["**", rest @ ..], _) => {
                both(rest, right) || right.split_first().is_some_and(|(_, below)| both(left, below))
            }
            (_, ["**", ..]) => both(right, left),
            ([one, left @ ..], [other, right @ ..]) => {
                (one == other || *one == "*" || *other == "*") && both(left, right)
            }
            _ => false,
        }
    }
    let left: Vec<&str> = left.split('/').collect();
    let right: Vec<&str> = right.split('/').collect();
    both(&left, &right)
}

/// Whether `pattern` leads through `topic`, and what is left of it then may be left.
fn meet(pattern: &[&str], topic: &[&str], may_be_left: impl Fn(&[&str]) -> bool) -> bool {
    // There is one row for each number of segments left of the topic, from 0 on. Its entry `n` says whether the last
    // `n` segments of the pattern match what is left.
    let mut row: Vec<bool> =
        (0..=pattern.len()).map(|left| may_be_left(&pattern[pattern.len() - left..])).collect();
    for have in topic.iter().rev() {
        let mut next = vec![false];
        for left in 1..=pattern.len() {
            let want = pattern[pattern.len() - left];
            next.push(match want {
                // It takes nothing, or this segment and perhaps more.
                "**" => next[left - 1] || row[left],
                "*" => row[left - 1],
                _ => want == *have && row[left - 1],
            });
        }
        row = next;
    }
    row[pattern.len()]
}

fn is_path(path: &str) -> bool {
    path.len() <= LONGEST_BYTES
        && !path.contains(char::is_control)
        && path.split('/').all(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_documented() {
        assert!(is_topic("plant/boiler/temperature") && is_topic("ä") && !is_topic("plant/*"));
        for path in ["", "/", "a/", "/a", "a//b", "a\n", "a#", &"a".repeat(256)] {
            assert!(!is_topic(path) && !is_pattern(path), "{path}");
        }
        assert!(is_pattern("**") && is_pattern("*/a/**") && !is_pattern("boil*"));
        for (pattern, topic, itself, descendants) in [
            ("plant/**", "plant", true, true),
            ("plant/**", "plants/x", false, false),
            ("plant/boiler/*", "plant", false, true),
            ("plant/*", "plant/boiler/2", false, false),
            ("**/2", "plant/boiler/2", true, true),
            ("**/2", "plant", false, true),
            ("a/**/b", "a/b/b", true, true),
            ("*", "a", true, true),
        ] {
            assert_eq!(matches(pattern, topic), itself, "{pattern} {topic}");
            assert_eq!(matches_descendants(pattern, topic), descendants, "{pattern} {topic}");
        }
    }
    /// All pairs of patterns of up to three segments, with all topics of up to five.
    #[test]
    fn patterns_intersect_if_a_topic_matches_both() {
        let lists = |segments: &[&str], most: usize| -> Vec<String> {
            let mut all: Vec<String> = Vec::new();
            let mut last = vec![String::new()];
            for _ in 0..most {
                let longer = |path: &String| -> Vec<String> {
                    segments.iter().map(|segment| format!("{path}/{segment}")).collect()
                };
                last = last.iter().flat_map(longer).collect();
                all.extend(last.iter().map(|path| path[1..].to_owned()));
            }
            all
        };
        let (patterns, topics) = (lists(&["a", "b", "*", "**"], 3), lists(&["a", "b"], 5));
        for left in &patterns {
            for right in &patterns {
                let common =
                    topics.iter().any(|topic| matches(left, topic) && matches(right, topic));
                assert_eq!(intersect(left, right), common, "{left} {right}");
            }
        }
    }
}
