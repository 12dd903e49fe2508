//! Names that come from the network: of nodes, of topics, and patterns.

use super::reject::Reject;

/// The name of a node, valid: 1 to 64 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeName<'a>(&'a str);

impl<'a> NodeName<'a> {
    /// The greatest length, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Returns `None` if the name breaks a rule.
    #[must_use]
    pub fn new(name: &'a str) -> Option<Self> {
        // A name appears in logs: a control character could forge a line.
        let valid = !name.is_empty()
            && name.len() <= Self::MAX_BYTES
            && !name.contains(|character: char| character.is_control());
        valid.then_some(Self(name))
    }

    /// Checks bytes from the network.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        core::str::from_utf8(bytes).ok().and_then(Self::new).ok_or(Reject::Name)
    }

    /// Returns the text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the length in bytes, which a byte can hold.
    pub(super) fn length(self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }
}

/// An entry of a stream's table of names, valid: a topic or a pattern.
///
/// The rules are those of the bus: 1 to 255 bytes of UTF-8, segments joined by `/` of which none is
/// empty, no control characters, none of `#`, `+`, `$` and `?`. In a pattern, a segment may be `*` or
/// `**`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableName<'a>(&'a str);

impl<'a> TableName<'a> {
    /// The greatest length, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Returns `None` if the name breaks a rule.
    #[must_use]
    pub fn new(name: &'a str) -> Option<Self> {
        let valid = name.len() <= Self::MAX_BYTES && name.split('/').all(is_segment);
        valid.then_some(Self(name))
    }

    /// Checks bytes from the network.
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        core::str::from_utf8(bytes).ok().and_then(Self::new).ok_or(Reject::Name)
    }

    /// Returns the text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns whether the name has a wildcard, so that it cannot be a topic.
    #[must_use]
    pub fn has_wildcard(self) -> bool {
        self.0.contains('*')
    }

    /// Returns the length in bytes, which a byte can hold.
    pub(super) fn length(self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }
}

fn is_segment(segment: &str) -> bool {
    let is_forbidden = |character: char| {
        character.is_control() || matches!(character, '*' | '#' | '+' | '$' | '?')
    };
    match segment {
        "" => false,
        "*" | "**" => true,
        _ => !segment.contains(is_forbidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_short_and_printable() {
        assert!(NodeName::new("line-3").is_some());
        assert!(NodeName::new(&"x".repeat(64)).is_some());
        for wrong in ["", &"x".repeat(65), "a\nb", "a\u{85}b"] {
            assert_eq!(NodeName::new(wrong), None, "{wrong:?}");
        }
        assert_eq!(NodeName::parse(&[0xff]), Err(Reject::Name));
    }

    #[test]
    fn names_of_the_table_keep_the_rules_of_topics_and_patterns() {
        for name in ["a", "plant/boiler/temperature", "ä/b", &"x".repeat(255)] {
            assert!(TableName::new(name).is_some_and(|name| !name.has_wildcard()), "{name}");
        }
        for pattern in ["**", "plant/*/temperature", "a/**"] {
            assert!(TableName::new(pattern).is_some_and(TableName::has_wildcard), "{pattern}");
        }
        let long = "x".repeat(256);
        let wrong =
            ["", "/", "/a", "a/", "a//b", "a*", "a/***", "a\0", "a#", "a/+", "$a", "a?", &long];
        for name in wrong {
            assert_eq!(TableName::new(name), None, "{name:?}");
        }
        assert_eq!(TableName::parse(&[b'a', 0xff]), Err(Reject::Name));
    }
}
