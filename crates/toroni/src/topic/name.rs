//! Topics: hierarchical names that are checked once, when they are made.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name on which a message is published: one or more non-empty segments joined by `/`, such as
/// `plant/boiler/temperature`.
///
/// A topic is UTF-8 and at most [`Topic::MAX_BYTES`] bytes long. It has no leading or trailing `/`,
/// no empty segment and no control character. The characters `*`, `#`, `+`, `$` and `?` are
/// reserved. These are the rules of Zenoh's key expressions, so a topic can be used there
/// unchanged.
///
/// A `Topic` is checked when it is created. Cloning it only copies a pointer. Topics compare and
/// hash like their strings.
///
/// ```
/// use toroni::{Topic, TopicError};
///
/// let topic: Topic = "plant/boiler/temperature".parse()?;
/// assert_eq!(topic.segments().collect::<Vec<_>>(), ["plant", "boiler", "temperature"]);
/// assert!("plant//temperature".parse::<Topic>().is_err());
/// # Ok::<(), TopicError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    /// The maximum length of a topic, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 255;

    /// Checks `name` and copies it.
    ///
    /// # Errors
    ///
    /// Returns the first rule that `name` breaks, with the offending part.
    pub fn new(name: &str) -> Result<Self, TopicError> {
        check(name)?;
        Ok(Self(name.into()))
    }

    /// Returns the whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments from left to right. There is at least one, and none is empty.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.0.split(SEPARATOR)
    }
}

/// Why a string is not a valid topic.
///
/// Offsets are in bytes from the start of the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name is empty.
    #[error("the name is empty: give at least one segment, such as \"status\"")]
    Empty,

    /// The name is longer than [`Topic::MAX_BYTES`].
    #[error("the name has {length} bytes and may have {limit}: shorten it")]
    TooLong {
        /// The length of the name, in bytes.
        length: usize,
        /// The maximum length, in bytes.
        limit: usize,
    },

    /// The name begins with `/`.
    #[error("{name:?} begins with '/': remove it, names have no root")]
    LeadingSlash {
        /// The name as given.
        name: String,
    },

    /// The name ends with `/`.
    #[error("{name:?} ends with '/': remove it, or append a segment")]
    TrailingSlash {
        /// The name as given.
        name: String,
    },

    /// The name contains `//`.
    #[error("{name:?} has an empty segment at byte {offset}: remove one '/', or name the segment")]
    EmptySegment {
        /// The name as given.
        name: String,
        /// The position of the empty segment.
        offset: usize,
    },

    /// The name contains a control character (Unicode category Cc).
    #[error("{name:?} contains the control character {character:?} at byte {offset}: remove it")]
    ControlCharacter {
        /// The name as given.
        name: String,
        /// The character.
        character: char,
        /// Where it stands.
        offset: usize,
    },

    /// The name contains one of `*`, `#`, `+`, `$` and `?`.
    #[error(
        "{name:?} contains the reserved character {character:?} at byte {offset}: a topic may not \
         contain * # + $ ?; the wildcards * and ** belong in the pattern of a subscriber"
    )]
    ReservedCharacter {
        /// The name as given.
        name: String,
        /// The character.
        character: char,
        /// Where it stands.
        offset: usize,
    },

    /// The bytes are not UTF-8.
    #[error("the name is not valid UTF-8 at byte {valid_up_to}: encode it as UTF-8")]
    NotUtf8 {
        /// The number of bytes at the start that are valid UTF-8.
        valid_up_to: usize,
    },
}

/// The separator of the segments of a topic or pattern.
pub(super) const SEPARATOR: char = '/';

/// The characters that a topic must not contain.
const RESERVED: &[char] = &['*', '#', '+', '$', '?'];

/// Checks whether `name` is a valid topic.
pub(crate) fn check(name: &str) -> Result<(), TopicError> {
    check_except(name, RESERVED)
}

/// Checks whether `bytes`, which another process may have written, are a valid topic, and returns
/// them as a string.
pub(crate) fn check_bytes(bytes: &[u8]) -> Result<&str, TopicError> {
    let name = std::str::from_utf8(bytes)
        .map_err(|error| TopicError::NotUtf8 { valid_up_to: error.valid_up_to() })?;
    check(name)?;
    Ok(name)
}

/// Checks the rules that topics and patterns share. They differ only in the reserved characters.
pub(super) fn check_except(name: &str, reserved: &[char]) -> Result<(), TopicError> {
    if name.is_empty() {
        return Err(TopicError::Empty);
    }
    if name.len() > Topic::MAX_BYTES {
        return Err(TopicError::TooLong { length: name.len(), limit: Topic::MAX_BYTES });
    }
    if name.starts_with(SEPARATOR) {
        return Err(TopicError::LeadingSlash { name: name.into() });
    }
    if name.ends_with(SEPARATOR) {
        return Err(TopicError::TrailingSlash { name: name.into() });
    }
    let mut previous = None;
    for (offset, character) in name.char_indices() {
        if character == SEPARATOR && previous == Some(SEPARATOR) {
            return Err(TopicError::EmptySegment { name: name.into(), offset });
        }
        if character.is_control() {
            return Err(TopicError::ControlCharacter { name: name.into(), character, offset });
        }
        if reserved.contains(&character) {
            return Err(TopicError::ReservedCharacter { name: name.into(), character, offset });
        }
        previous = Some(character);
    }
    Ok(())
}

impl fmt::Display for Topic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` honours width and alignment, for tables of topics.
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Topic({:?})", &self.0)
    }
}

impl FromStr for Topic {
    type Err = TopicError;

    fn from_str(name: &str) -> Result<Self, TopicError> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Topic {
    type Error = TopicError;

    fn try_from(name: &str) -> Result<Self, TopicError> {
        Self::new(name)
    }
}

impl TryFrom<&String> for Topic {
    type Error = TopicError;

    fn try_from(name: &String) -> Result<Self, TopicError> {
        Self::new(name)
    }
}

impl TryFrom<String> for Topic {
    type Error = TopicError;

    fn try_from(name: String) -> Result<Self, TopicError> {
        check(&name)?;
        Ok(Self(name.into()))
    }
}

impl From<&Topic> for Topic {
    fn from(topic: &Topic) -> Self {
        topic.clone()
    }
}

impl AsRef<str> for Topic {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Lets a map with `Topic` keys be queried with a `&str`.
impl Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Lets a function that accepts `impl TryInto<Topic>` accept a `Topic` itself.
impl From<Infallible> for TopicError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_names() {
        for name in ["a", "plant", "plant/boiler/temperature", "größe/温度", " ", "a b/-_.!~", "."]
        {
            let topic = Topic::new(name).unwrap();
            assert_eq!(topic.as_str(), name);
            assert_eq!(topic.to_string(), name);
            assert_eq!(topic.segments().collect::<Vec<_>>().join("/"), name);
            assert_eq!(check_bytes(name.as_bytes()), Ok(name));
        }
    }

    #[test]
    fn names_each_broken_rule() {
        let name = String::from;
        let cases = [
            ("", TopicError::Empty),
            ("/", TopicError::LeadingSlash { name: name("/") }),
            ("/a", TopicError::LeadingSlash { name: name("/a") }),
            ("a/", TopicError::TrailingSlash { name: name("a/") }),
            ("a//b", TopicError::EmptySegment { name: name("a//b"), offset: 2 }),
            ("ä///b", TopicError::EmptySegment { name: name("ä///b"), offset: 3 }),
            (
                "a/b\n",
                TopicError::ControlCharacter { name: name("a/b\n"), character: '\n', offset: 3 },
            ),
            ("\0", TopicError::ControlCharacter { name: name("\0"), character: '\0', offset: 0 }),
            (
                "a\u{7f}",
                TopicError::ControlCharacter {
                    name: name("a\u{7f}"),
                    character: '\u{7f}',
                    offset: 1,
                },
            ),
            (
                "a\u{85}",
                TopicError::ControlCharacter {
                    name: name("a\u{85}"),
                    character: '\u{85}',
                    offset: 1,
                },
            ),
        ];
        for (text, error) in cases {
            assert_eq!(Topic::new(text), Err(error.clone()), "{text:?}");
            assert_eq!(check_bytes(text.as_bytes()), Err(error), "{text:?}");
        }
        for character in ['*', '#', '+', '$', '?'] {
            let text = format!("a/b{character}");
            assert_eq!(
                Topic::new(&text),
                Err(TopicError::ReservedCharacter { name: text.clone(), character, offset: 3 })
            );
        }
    }

    #[test]
    fn limits_the_length_in_bytes() {
        assert!(Topic::new(&"x".repeat(255)).is_ok());
        assert_eq!(
            Topic::new(&"x".repeat(256)),
            Err(TopicError::TooLong { length: 256, limit: 255 })
        );
        assert!(Topic::new(&"ä".repeat(127)).is_ok());
        assert_eq!(
            Topic::new(&"ä".repeat(128)),
            Err(TopicError::TooLong { length: 256, limit: 255 })
        );
    }

    #[test]
    fn refuses_what_is_not_utf8() {
        assert_eq!(check_bytes(b"ab\xff"), Err(TopicError::NotUtf8 { valid_up_to: 2 }));
        // A surrogate, and an overlong encoding of '/'.
        assert_eq!(check_bytes(b"\xed\xa0\x80"), Err(TopicError::NotUtf8 { valid_up_to: 0 }));
        assert_eq!(check_bytes(b"a\xc0\xaf"), Err(TopicError::NotUtf8 { valid_up_to: 1 }));
    }

    #[test]
    fn messages_say_what_and_what_to_do() {
        assert_eq!(
            Topic::new("a\n").unwrap_err().to_string(),
            "\"a\\n\" contains the control character '\\n' at byte 1: remove it"
        );
        assert!(Topic::new("a/*").unwrap_err().to_string().contains("pattern of a subscriber"));
    }

    #[test]
    fn converts_from_what_callers_have() {
        fn open<T>(topic: T) -> Result<Topic, TopicError>
        where
            T: TryInto<Topic>,
            TopicError: From<T::Error>,
        {
            Ok(topic.try_into()?)
        }
        let topic = Topic::new("a/b").unwrap();
        assert_eq!(open("a/b"), Ok(topic.clone()));
        let owned = String::from("a/b");
        assert_eq!(open(&owned), Ok(topic.clone()));
        assert_eq!(open(owned), Ok(topic.clone()));
        assert_eq!(open(&topic), Ok(topic.clone()));
        assert_eq!(open(topic.clone()), Ok(topic));
        assert_eq!(open(""), Err(TopicError::Empty));
    }

    proptest! {
        /// The same rules, each as one expression over the whole name.
        #[test]
        fn agrees_with_the_rules(name in "[ab/*#+$?\u{0}\n\u{9f}ä]{0,6}|\\PC{0,130}") {
            let legal = (1..=255).contains(&name.len())
                && name.split('/').all(|segment| !segment.is_empty())
                && !name.chars().any(char::is_control)
                && !name.contains(['*', '#', '+', '$', '?']);
            prop_assert_eq!(Topic::new(&name).is_ok(), legal);
        }

        #[test]
        fn never_panics_on_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(name) = check_bytes(&bytes) {
                prop_assert_eq!(name.as_bytes(), &bytes[..]);
                prop_assert!(Topic::new(name).is_ok());
            }
        }
    }
}
