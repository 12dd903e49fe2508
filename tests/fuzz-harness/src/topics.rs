//! Compares names and patterns made of any bytes with their definitions.

use crate::input::Input;
use toroni::{Pattern, PatternError, Topic, TopicError};
use toroni_oracle::topics;

/// Segments that are not unlikely to meet.
const SEGMENTS: [&str; 12] =
    ["a", "b", "ab", "*", "**", "*", "**", "ä", "plant", "", "a*", "\u{85}"];

/// Takes a pattern and a topic from the bytes. The first says whether the rest is text, or numbers of
/// segments; in text a line feed is where the topic begins.
pub fn fuzz(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (pattern, topic) = if input.byte().is_multiple_of(2) {
        let text = String::from_utf8_lossy(input.rest());
        let (pattern, topic) = text.split_once('\n').unwrap_or((&text, "a"));
        (pattern.to_owned(), topic.to_owned())
    } else {
        let split = usize::from(input.byte());
        let bytes = input.rest();
        let (pattern, topic) = bytes.split_at(split.min(bytes.len()));
        (path(pattern), path(topic))
    };
    compare(&pattern, &topic);
    // Every topic is a pattern.
    compare(&topic, &topic);
    compare(&pattern, &pattern);
}

fn path(numbers: &[u8]) -> String {
    let segments = numbers.iter().map(|number| SEGMENTS[usize::from(*number) % SEGMENTS.len()]);
    segments.collect::<Vec<_>>().join("/")
}

fn compare(pattern: &str, topic: &str) {
    let made = Topic::new(topic);
    assert_eq!(made.is_ok(), topics::is_topic(topic), "topic {topic:?}: {made:?}");
    match made {
        Ok(made) => {
            assert_eq!(made.as_str(), topic);
            assert_eq!(made.segments().collect::<Vec<_>>().join("/"), topic);
            assert!(Pattern::from(&made).matches(topic));
        }
        Err(error) => explains(topic, &error),
    }
    let made = Pattern::new(pattern);
    assert_eq!(made.is_ok(), topics::is_pattern(pattern), "pattern {pattern:?}: {made:?}");
    let pattern = match made {
        Ok(pattern) => pattern,
        Err(PatternError::Name(error)) => return explains(pattern, &error),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    // What is no topic gets some answer.
    let (itself, descendants) = (pattern.matches(topic), pattern.matches_descendants(topic));
    if topics::is_topic(topic) {
        let shown = pattern.as_str();
        assert_eq!(itself, topics::matches(shown, topic), "{shown:?} and {topic:?}");
        let below = topics::matches_descendants(shown, topic);
        assert_eq!(descendants, below, "{shown:?} and {topic:?} and below");
        assert!(descendants || !itself, "what matches {topic:?} matches it and below");
    }
}

/// Errors show what they are about, and point into it.
fn explains(name: &str, error: &TopicError) {
    assert!(!error.to_string().is_empty());
    if let TopicError::EmptySegment { offset, .. }
    | TopicError::ControlCharacter { offset, .. }
    | TopicError::ReservedCharacter { offset, .. } = error
    {
        assert!(name.is_char_boundary(*offset) && *offset < name.len(), "{error}");
    }
}
