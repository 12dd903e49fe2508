//! Patterns: the topics that a subscriber asks for.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::name::{self, SEPARATOR, Topic, TopicError};

/// A topic with optional wildcards, which selects the topics that a subscriber receives. A segment
/// may be `*`, which matches exactly one segment, or `**`, which matches zero or more segments.
///
/// `plant/**` matches `plant` and everything below it, but not `plants/x`, because wildcards match
/// whole segments. `**` alone matches everything. Wildcards may appear anywhere and more than once,
/// but a wildcard is always a whole segment: `boil*` is not a valid segment. In all other respects
/// a pattern follows the rules of a [`Topic`].
///
/// Two patterns are equal if they are spelled the same. Patterns with different spellings are not
/// equal, even if they match the same topics (`**/**` and `**`).
///
/// ```
/// use toroni::{Pattern, PatternError};
///
/// let pattern: Pattern = "plant/*/temperature".parse()?;
/// assert!(pattern.matches("plant/boiler/temperature"));
/// assert!(!pattern.matches("plant/boiler/2/temperature"));
/// assert!(pattern.matches_descendants("plant"));
/// assert!("plant/boil*".parse::<Pattern>().is_err());
/// # Ok::<(), PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// The maximum length of a pattern, in bytes of UTF-8.
    pub const MAX_BYTES: usize = Topic::MAX_BYTES;

    /// Checks `pattern` and copies it.
    ///
    /// # Errors
    ///
    /// Returns the first rule that `pattern` breaks, with the offending part.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        check(pattern)?;
        Ok(Self(pattern.into()))
    }

    /// Returns `**`, the pattern that matches every topic.
    #[must_use]
    pub fn everything() -> Self {
        Self(ANY_NUMBER.into())
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern matches `topic`.
    ///
    /// Compares at most as many pairs of segments as the product of the two segment counts (at most
    /// 128 × 128), whatever the wildcards. If `topic` is not a valid topic, the result is
    /// unspecified, but the method does not panic.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        let mut wanted = self.segments();
        let mut given = topic.split(SEPARATOR);
        // Where to continue after a mismatch: after the last `**`, which then matches one more
        // segment. An earlier `**` never needs to match more: the segments between the two have
        // matched as early as possible, which leaves the most choice to the later one.
        let mut retry = None;
        loop {
            match (wanted.next(), given.clone().next()) {
                (Some(ANY_NUMBER), _) => retry = Some((wanted.clone(), given.clone())),
                (None, None) => return true,
                (Some(want), Some(have)) if want == ANY_ONE || want == have => {
                    given.next();
                }
                _ => {
                    let Some((after, swallowed)) = &mut retry else { return false };
                    if swallowed.next().is_none() {
                        return false;
                    }
                    wanted = after.clone();
                    given = swallowed.clone();
                }
            }
        }
    }

    /// Returns whether the pattern matches `topic` or any topic that could exist below it. A
    /// subscriber with this pattern receives a message that is posted to `topic` and its
    /// descendants.
    ///
    /// Only segments count: the method ignores that a topic below may exceed the maximum length.
    /// Compares each segment of `topic` at most once.
    #[must_use]
    pub fn matches_descendants(&self, topic: &str) -> bool {
        let mut wanted = self.segments();
        for have in topic.split(SEPARATOR) {
            match wanted.next() {
                // `**` matches the rest of `topic`, and a topic below can match the rest of the
                // pattern.
                Some(ANY_NUMBER) => return true,
                Some(want) if want == ANY_ONE || want == have => {}
                // The segments differ, or the pattern is shorter than `topic`.
                _ => return false,
            }
        }
        // A topic below can match the rest of the pattern, if there is any.
        true
    }

    /// Returns whether there could be a topic that both patterns match.
    ///
    /// Only segments count: the method ignores that such a topic may exceed the maximum length.
    /// Compares at most as many pairs of segments as the product of the two segment counts (at most
    /// 128 × 128).
    ///
    /// ```
    /// # use toroni::{Pattern, PatternError};
    /// let pattern: Pattern = "plant/*/temperature".parse()?;
    /// assert!(pattern.intersects(&"plant/boiler/**".parse()?));
    /// assert!(!pattern.intersects(&"plant/boiler".parse()?));
    /// # Ok::<(), PatternError>(())
    /// ```
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        let others: Vec<&str> = other.segments().collect();
        // `reached[n]`: some path is matched by the segments of this pattern so far, and by the
        // first `n` of the other.
        let mut reached = vec![false; others.len() + 1];
        reached[0] = true;
        skip_any_number(&mut reached, &others);
        for mine in self.segments() {
            let before = reached.clone();
            if mine != ANY_NUMBER {
                reached.fill(false);
            }
            for (n, theirs) in others.iter().enumerate() {
                if mine == ANY_NUMBER {
                    // It matches what this segment matches, and what came before.
                    reached[n + 1] |= reached[n];
                } else if *theirs == ANY_NUMBER {
                    // The other's `**` matches one more segment.
                    reached[n + 1] |= before[n + 1];
                } else if mine == ANY_ONE || *theirs == ANY_ONE || mine == *theirs {
                    reached[n + 1] |= before[n];
                }
            }
            skip_any_number(&mut reached, &others);
        }
        reached[others.len()]
    }

    fn segments(&self) -> std::str::Split<'_, char> {
        self.0.split(SEPARATOR)
    }
}

/// Why a string is not a valid pattern.
///
/// Offsets are in bytes from the start of the pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The pattern breaks a rule that patterns share with topics.
    #[error(transparent)]
    Name(TopicError),

    /// A segment contains `*` but is neither `*` nor `**`.
    #[error(
        "the segment {segment:?} of the pattern {pattern:?} mixes a wildcard with other \
         characters: a wildcard is a segment of its own, * for one segment, ** for any number"
    )]
    PartialWildcard {
        /// The pattern as given.
        pattern: String,
        /// The segment.
        segment: String,
    },

    /// The pattern contains one of `#`, `+`, `$` and `?`.
    #[error(
        "the pattern {pattern:?} contains the reserved character {character:?} at byte {offset}: \
         the wildcards are * for one segment (the + of MQTT) and ** for any number (its #)"
    )]
    ReservedCharacter {
        /// The pattern as given.
        pattern: String,
        /// The character.
        character: char,
        /// Where it stands.
        offset: usize,
    },
}

/// The patterns of one subscriber. A message is delivered once, no matter how many of them match.
#[derive(Debug, Clone, Default)]
pub(crate) struct PatternSet(Vec<Pattern>);

impl PatternSet {
    pub(crate) fn push(&mut self, pattern: Pattern) {
        self.0.push(pattern);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    /// Returns whether any of the patterns matches `topic`. An empty set matches nothing.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(topic))
    }

    /// Returns whether any of the patterns matches `topic` or a topic that could exist below it.
    pub(crate) fn matches_descendants(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches_descendants(topic))
    }
}

/// The wildcard for exactly one segment.
const ANY_ONE: &str = "*";

/// The wildcard for zero or more segments.
const ANY_NUMBER: &str = "**";

/// Goes past each `**` of a pattern that is reached, because it may match nothing.
fn skip_any_number(reached: &mut [bool], segments: &[&str]) {
    for (n, segment) in segments.iter().enumerate() {
        reached[n + 1] |= reached[n] && *segment == ANY_NUMBER;
    }
}

/// The characters that a pattern must not contain.
const RESERVED: &[char] = &['#', '+', '$', '?'];

fn check(pattern: &str) -> Result<(), PatternError> {
    name::check_except(pattern, RESERVED).map_err(|error| match error {
        TopicError::ReservedCharacter { name, character, offset } => {
            PatternError::ReservedCharacter { pattern: name, character, offset }
        }
        other => PatternError::Name(other),
    })?;
    let mixed =
        |segment: &&str| segment.contains(ANY_ONE) && *segment != ANY_ONE && *segment != ANY_NUMBER;
    match pattern.split(SEPARATOR).find(mixed) {
        None => Ok(()),
        Some(segment) => {
            Err(PatternError::PartialWildcard { pattern: pattern.into(), segment: segment.into() })
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pattern({:?})", &self.0)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(pattern: &str) -> Result<Self, PatternError> {
        Self::new(pattern)
    }
}

impl TryFrom<&str> for Pattern {
    type Error = PatternError;

    fn try_from(pattern: &str) -> Result<Self, PatternError> {
        Self::new(pattern)
    }
}

impl TryFrom<&String> for Pattern {
    type Error = PatternError;

    fn try_from(pattern: &String) -> Result<Self, PatternError> {
        Self::new(pattern)
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(pattern: String) -> Result<Self, PatternError> {
        check(&pattern)?;
        Ok(Self(pattern.into()))
    }
}

impl From<&Pattern> for Pattern {
    fn from(pattern: &Pattern) -> Self {
        pattern.clone()
    }
}

/// Every topic is the pattern that matches just that topic.
impl From<&Topic> for Pattern {
    fn from(topic: &Topic) -> Self {
        Self(topic.as_str().into())
    }
}

/// Every topic is the pattern that matches just that topic.
impl From<Topic> for Pattern {
    fn from(topic: Topic) -> Self {
        Self::from(&topic)
    }
}

impl AsRef<str> for Pattern {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Lets a function that accepts `impl TryInto<Pattern>` accept a `Pattern` itself.
impl From<Infallible> for PatternError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl FromIterator<Pattern> for PatternSet {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of a match, taken literally. Takes exponential time.
    fn reference(wanted: &[&str], given: &[&str]) -> bool {
        match (wanted, given) {
            ([], _) => given.is_empty(),
            (["**", rest @ ..], _) => (0..=given.len()).any(|n| reference(rest, &given[n..])),
            ([_, ..], []) => false,
            ([want, rest @ ..], [have, below @ ..]) => {
                (*want == "*" || want == have) && reference(rest, below)
            }
        }
    }

    /// Returns every path of `least` to `most` segments.
    fn paths<'a>(alphabet: &[&'a str], least: usize, most: usize) -> Vec<Vec<&'a str>> {
        let mut all = Vec::new();
        let mut longest = vec![Vec::new()];
        for length in 0..=most {
            if length >= least {
                all.extend(longest.iter().cloned());
            }
            longest = longest
                .iter()
                .flat_map(|path| alphabet.iter().map(move |next| [&path[..], &[*next]].concat()))
                .collect();
        }
        all
    }

    fn matches(pattern: &str, topic: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(topic)
    }

    fn descendants(pattern: &str, topic: &str) -> bool {
        Pattern::new(pattern).unwrap().matches_descendants(topic)
    }

    #[test]
    fn matches_as_documented() {
        assert!(matches("plant/boiler", "plant/boiler"));
        assert!(!matches("plant/boiler", "plant"));
        assert!(!matches("plant", "plant/boiler"));
        assert!(matches("plant/**", "plant"));
        assert!(matches("plant/**", "plant/boiler/temperature"));
        assert!(!matches("plant/**", "plants/x"));
        assert!(!matches("plant/**", "plants"));
        assert!(matches("**", "anything/at/all"));
        assert!(matches("*", "one"));
        assert!(!matches("*", "one/two"));
        assert!(matches("**/temperature", "temperature"));
        assert!(matches("**/temperature", "plant/boiler/temperature"));
        assert!(matches("a/**/b/*/c/**", "a/x/b/b/y/c"));
        assert!(!matches("a/**/b/*/c/**", "a/x/b/c"));
        assert!(matches("**/**/a", "a"));
    }

    #[test]
    fn descendants_as_documented() {
        assert!(descendants("plant/boiler/*", "plant"));
        assert!(descendants("plant", "plant"));
        assert!(!descendants("plant", "plant/boiler"));
        assert!(!descendants("plants/x", "plant"));
        assert!(descendants("**/temperature", "plant"));
        assert!(descendants("*/temperature", "plant"));
        assert!(!descendants("*/temperature", "plant/boiler"));
        assert!(descendants("**", "plant/boiler"));
    }

    #[test]
    fn matches_agrees_with_the_definition_on_every_small_case() {
        let topics = paths(&["a", "b"], 1, 5);
        for pattern in paths(&["a", "b", "*", "**"], 1, 5) {
            let parsed = Pattern::new(&pattern.join("/")).unwrap();
            for topic in &topics {
                assert_eq!(
                    parsed.matches(&topic.join("/")),
                    reference(&pattern, topic),
                    "{parsed} on {topic:?}"
                );
            }
        }
    }

    /// Compares with the definition: is there a topic at or below T that the pattern matches? It is
    /// enough to search as many levels below as the pattern has segments, because `**` may match
    /// nothing.
    #[test]
    fn descendants_agree_with_enumeration_on_every_small_case() {
        let topics = paths(&["a", "b"], 1, 4);
        for pattern in paths(&["a", "b", "*", "**"], 1, 4) {
            let parsed = Pattern::new(&pattern.join("/")).unwrap();
            let below = paths(&["a", "b"], 0, pattern.len());
            for topic in &topics {
                let intersects =
                    below.iter().any(|rest| reference(&pattern, &[&topic[..], rest].concat()));
                assert_eq!(
                    parsed.matches_descendants(&topic.join("/")),
                    intersects,
                    "{parsed} on {topic:?}"
                );
            }
        }
    }

    /// Compares with the definition: is there a topic that both match? It is enough to search topics
    /// of as many segments as the two patterns have together, because a `**` need not match more.
    /// `c` stands for every segment that neither pattern names.
    #[test]
    fn intersections_agree_with_enumeration_on_every_small_case() {
        let topics = paths(&["a", "b", "c"], 1, 6);
        let patterns = paths(&["a", "b", "*", "**"], 1, 3);
        let matched: Vec<Vec<bool>> = patterns
            .iter()
            .map(|pattern| topics.iter().map(|topic| reference(pattern, topic)).collect())
            .collect();
        for (left, matched_left) in patterns.iter().zip(&matched) {
            let parsed = Pattern::new(&left.join("/")).unwrap();
            for (right, matched_right) in patterns.iter().zip(&matched) {
                let expected = matched_left.iter().zip(matched_right).any(|(l, r)| *l && *r);
                let right = Pattern::new(&right.join("/")).unwrap();
                assert_eq!(parsed.intersects(&right), expected, "{parsed} and {right}");
            }
        }
    }

    #[test]
    fn intersections_of_the_longest_patterns_do_not_explode() {
        let many = |end: &str| Pattern::new(&format!("{}{end}", "**/a/".repeat(50))).unwrap();
        assert!(many("b").intersects(&many("*")));
        assert!(!many("b").intersects(&many("c")));
    }

    /// Uses the longest pattern and topic. An algorithm that tries every way to distribute the
    /// segments among the `**` would not finish.
    #[test]
    fn many_wildcards_do_not_explode() {
        let pattern = format!("{}b", "**/a/".repeat(50));
        assert!(!matches(&pattern, &vec!["a"; 128].join("/")));
        assert!(matches(&pattern, &format!("{}/b", vec!["a"; 127].join("/"))));
        let pattern = format!("{}b", "**/*/".repeat(50));
        assert!(!matches(&pattern, &vec!["a"; 128].join("/")));
    }

    #[test]
    fn accepts_every_topic_as_itself() {
        let topic = Topic::new("plant/boiler").unwrap();
        let pattern = Pattern::from(&topic);
        assert_eq!(pattern.as_str(), topic.as_str());
        assert_eq!(Pattern::new(topic.as_str()), Ok(pattern));
    }

    #[test]
    fn names_each_broken_rule() {
        let partial = |pattern: &str, segment: &str| {
            Err(PatternError::PartialWildcard { pattern: pattern.into(), segment: segment.into() })
        };
        for (pattern, segment) in
            [("a*b", "a*b"), ("x/a*", "a*"), ("x/*a/y", "*a"), ("***", "***"), ("a/**b", "**b")]
        {
            assert_eq!(Pattern::new(pattern), partial(pattern, segment));
        }
        for character in ['#', '+', '$', '?'] {
            let pattern = format!("a/{character}");
            assert_eq!(
                Pattern::new(&pattern),
                Err(PatternError::ReservedCharacter {
                    pattern: pattern.clone(),
                    character,
                    offset: 2
                })
            );
        }
        assert_eq!(Pattern::new(""), Err(PatternError::Name(TopicError::Empty)));
        assert_eq!(
            Pattern::new("/**"),
            Err(PatternError::Name(TopicError::LeadingSlash { name: "/**".into() }))
        );
        assert_eq!(
            Pattern::new("**/"),
            Err(PatternError::Name(TopicError::TrailingSlash { name: "**/".into() }))
        );
        assert_eq!(
            Pattern::new("*//*"),
            Err(PatternError::Name(TopicError::EmptySegment { name: "*//*".into(), offset: 2 }))
        );
        assert_eq!(
            Pattern::new(&"x".repeat(256)),
            Err(PatternError::Name(TopicError::TooLong { length: 256, limit: 255 }))
        );
        assert!(Pattern::new(&"x".repeat(255)).is_ok());
    }

    #[test]
    fn a_set_matches_if_any_does() {
        let mut set = PatternSet::default();
        assert!(!set.matches("a") && !set.matches_descendants("a"));
        set.push(Pattern::new("a/*").unwrap());
        set.push(Pattern::new("b/**").unwrap());
        assert!(set.matches("a/x") && set.matches("b") && !set.matches("a"));
        assert!(set.matches_descendants("a") && !set.matches_descendants("c"));
    }

    /// Generates paths longer than those of the exhaustive tests, but short enough for the
    /// reference.
    fn path(alphabet: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        proptest::collection::vec(proptest::sample::select(alphabet), 1..10)
    }

    proptest! {
        /// A pattern without wildcards intersects exactly the patterns that match it as a topic, and
        /// `T/**` those that match `T` or a topic below.
        #[test]
        fn intersections_agree_with_matches(
            left in path(&["a", "b", "aa", "*", "**", "**"]),
            right in path(&["a", "b", "aa", "*", "**", "**"]),
            topic in path(&["a", "b", "aa"]),
        ) {
            let parse = |path: &[&str]| Pattern::new(&path.join("/")).unwrap();
            let (left, right, topic) = (parse(&left), parse(&right), topic.join("/"));
            prop_assert_eq!(left.intersects(&right), right.intersects(&left));
            prop_assert_eq!(
                left.intersects(&Pattern::new(&topic).unwrap()),
                left.matches(&topic)
            );
            prop_assert_eq!(
                left.intersects(&Pattern::new(&format!("{topic}/**")).unwrap()),
                left.matches_descendants(&topic)
            );
        }

        #[test]
        fn agrees_with_the_definition(
            pattern in path(&["a", "b", "aa", "*", "**", "**"]),
            topic in path(&["a", "b", "aa"]),
            below in path(&["a", "b", "aa"]),
        ) {
            let parsed = Pattern::new(&pattern.join("/")).unwrap();
            let name = topic.join("/");
            prop_assert_eq!(parsed.matches(&name), reference(&pattern, &topic));
            if reference(&pattern, &[topic, below].concat()) {
                prop_assert!(parsed.matches_descendants(&name));
            }
        }

        #[test]
        fn a_match_is_a_match_of_descendants(
            pattern in path(&["a", "b", "*", "**"]),
            topic in path(&["a", "b"]),
        ) {
            let parsed = Pattern::new(&pattern.join("/")).unwrap();
            let name = topic.join("/");
            prop_assert!(!parsed.matches(&name) || parsed.matches_descendants(&name));
        }

        #[test]
        fn never_panics(pattern in "[ab*/]{0,12}|\\PC{0,40}", topic in "\\PC{0,40}|[ab/]{0,12}") {
            if let Ok(pattern) = Pattern::new(&pattern) {
                let _ = pattern.matches(&topic);
                let _ = pattern.matches_descendants(&topic);
            }
        }
    }
}
