//! Topics and patterns of the bus, as keys and key expressions of Zenoh.
//!
//! The rules of both are the same, so a key is a prefix and the topic, unchanged. There are two differences. A segment
//! that begins with `@` is matched by no wildcard of Zenoh. And a topic has at most 255 bytes.
//!
//! What bridges tell one another has keys of its own, with the segment `@bridge` that no wildcard matches:
//!
//! | key | what |
//! |---|---|
//! | `@bridge/alive/<realm>/<bus>/<rank>` | the liveliness token of a bridge |
//! | `<prefix>/@bridge/beat/<bus>/<stream>` | the heartbeats of an export |
//! | `<prefix>/@bridge/batch/<bus>/<stream>` | its messages, in batches |
//! | `<prefix>/@bridge/loss/<bus>/<stream>` | the losses that it relays |
//! | `<prefix>/@bridge/join/<numbering>` | asks an export for its counts, and for what an importer has missed |
//! | `<prefix>/@bridge/witness/<bus>/<stream>` | asks importers for the last heartbeat of an export |

use crate::BridgeError;
use toroni::{Lost, Pattern, Topic};
use zenoh::key_expr::KeyExpr;
use zenoh::{Session, Wait};

/// The segment of the keys by which bridges talk.
pub(crate) const CONTROL: &str = "@bridge";

/// What stands in front of topics in keys: nothing, or segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    pub(crate) fn new(setting: &str, prefix: &str) -> Result<Self, BridgeError> {
        if prefix.is_empty() {
            return Ok(Self(String::new()));
        }
        Topic::new(prefix).map_err(|error| BridgeError::Config {
            setting: setting.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Self(format!("{prefix}/")))
    }

    /// Returns the key of a topic, or of any other text below the prefix.
    pub(crate) fn key(&self, topic: &str) -> String {
        format!("{}{topic}", self.0)
    }

    /// Returns the key of what bridges tell one another.
    pub(crate) fn control(&self, what: &str) -> String {
        format!("{}{CONTROL}/{what}", self.0)
    }

    /// Returns whether it has a segment that no wildcard of Zenoh matches.
    pub(crate) fn has_verbatim(&self) -> bool {
        has_verbatim(&self.0)
    }

    /// Returns what follows the prefix in a key.
    pub(crate) fn strip<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.0)
    }
}

/// As many keys are declared.
const DECLARED: usize = 1024;

/// Keys that Zenoh knows in advance, so that it finds the way of a sample once for all. For others it compares the key with
/// all subscriptions each time.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<KeyExpr<'static>>);

impl Keys {
    /// Declares a key, unless there are too many or it is none.
    pub(crate) fn declare(&mut self, session: &Session, key: &str) -> Option<KeyExpr<'static>> {
        if self.0.len() >= DECLARED {
            return None;
        }
        let key = session.declare_keyexpr(key.to_owned()).wait().ok()?;
        self.0.push(key.clone());
        Some(key)
    }

    pub(crate) fn undeclare(&mut self, session: &Session) {
        for key in self.0.drain(..) {
            if let Err(error) = session.undeclare(key).wait() {
                tracing::debug!(%error, "cannot undeclare a key");
            }
        }
    }
}

/// Returns whether a topic has a segment that no wildcard of Zenoh matches.
pub(crate) fn has_verbatim(topic: &str) -> bool {
    topic.split('/').any(|segment| segment.starts_with('@'))
}

/// Returns whether bridges use the topic themselves.
pub(crate) fn is_control(topic: &str) -> bool {
    // The first check is for the many that have none.
    topic.as_bytes().contains(&b'@') && topic.split('/').any(|segment| segment == CONTROL)
}

/// Makes a key expression of a pattern or topic that was checked by Toroni's rules.
pub(crate) fn expression(text: String) -> Result<KeyExpr<'static>, zenoh::Error> {
    KeyExpr::autocanonize(text).map(KeyExpr::into_owned)
}

/// Returns patterns of the topics above those of a pattern. A message that is posted to one of them and its descendants
/// is for subscribers of the pattern.
pub(crate) fn ancestors(pattern: &str) -> Vec<String> {
    let segments: Vec<&str> = pattern.split('/').collect();
    let mut found = Vec::new();
    for length in 1..segments.len() {
        let above = segments[..length].join("/");
        // `a/**` matches `a`, and all that follows.
        if segments[length] == "**" && length + 1 == segments.len() {
            break;
        }
        let is_open = segments[length - 1] == "**";
        found.push(above);
        if is_open {
            break;
        }
    }
    found
}

/// Returns patterns of what may be lost if messages of these patterns are: posts to descendants count as well.
pub(crate) fn scope(patterns: &[Pattern], under: &str) -> Vec<Pattern> {
    let everything = |under: &str| {
        let text = if under.is_empty() { "**".to_owned() } else { format!("{under}/**") };
        Pattern::new(&text).unwrap_or_else(|_| Pattern::everything())
    };
    if !under.is_empty() {
        return vec![everything(under)];
    }
    let mut scope: Vec<Pattern> = Vec::new();
    for pattern in patterns {
        let first = pattern.as_str().split('/').next().unwrap_or("**");
        if first.contains('*') {
            return vec![Pattern::everything()];
        }
        let wide = everything(first);
        if !scope.contains(&wide) {
            scope.push(wide);
        }
    }
    if scope.is_empty() || scope.len() > Lost::MOST_PATTERNS {
        return vec![Pattern::everything()];
    }
    scope
}

/// Returns patterns of what may be lost if messages on this topic are.
pub(crate) fn scope_of_topic(topic: &str) -> Vec<Pattern> {
    let wide = Pattern::new(&format!("{topic}/**")).or_else(|_| Pattern::new(topic));
    vec![wide.unwrap_or_else(|_| Pattern::everything())]
}

/// Checks patterns.
pub(crate) fn patterns(setting: &str, texts: &[String]) -> Result<Vec<Pattern>, BridgeError> {
    let check = |text: &String| {
        Pattern::new(text)
            .map_err(|source| BridgeError::Pattern { setting: setting.to_owned(), source })
    };
    texts.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_a_prefix_and_the_topic() {
        let none = Prefix::new("prefix", "").unwrap();
        assert_eq!((none.key("a/b").as_str(), none.strip("a/b")), ("a/b", Some("a/b")));
        let site = Prefix::new("prefix", "site-a/line").unwrap();
        assert_eq!(site.key("a"), "site-a/line/a");
        assert_eq!(site.strip("site-a/line/a"), Some("a"));
        assert_eq!(site.strip("site-a/lines/a"), None);
        assert_eq!(site.control("beat/1"), "site-a/line/@bridge/beat/1");
        let error = Prefix::new("export.prefix", "site/*").unwrap_err().to_string();
        assert!(error.starts_with("export.prefix: ") && error.contains('*'), "{error}");
    }

    #[test]
    fn posts_to_descendants_come_from_above() {
        let above = |pattern: &str| ancestors(pattern).join(" ");
        assert_eq!(above("a"), "");
        assert_eq!(above("a/b/c"), "a a/b");
        assert_eq!(above("a/**"), "");
        assert_eq!(above("a/b/**"), "a");
        assert_eq!(above("*/b"), "*");
        assert_eq!(above("**"), "");
        assert_eq!(above("**/b"), "**");
        assert_eq!(above("a/**/b"), "a a/**");
    }

    #[test]
    fn a_scope_is_wide_enough_for_posts_to_descendants() {
        let scope = |texts: &[&str], under: &str| {
            let patterns: Vec<_> = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
            super::scope(&patterns, under)
                .iter()
                .map(|pattern| pattern.as_str().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(scope(&["a/b/*", "a/c", "d"], ""), "a/** d/**");
        assert_eq!(scope(&["a", "*/c"], ""), "**");
        assert_eq!(scope(&["a"], "site"), "site/**");
        assert_eq!(
            scope(
                &[
                    "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g",
                    "h"
                ],
                ""
            ),
            "**"
        );
    }

    #[test]
    fn a_pattern_that_is_not_canonical_becomes_one() {
        assert_eq!(expression("a/**/**".to_owned()).unwrap().as_str(), "a/**");
        assert_eq!(expression("a/**/*".to_owned()).unwrap().as_str(), "a/*/**");
    }

    proptest! {
        /// Every topic is a key, and every pattern a key expression that matches the same topics.
        #[test]
        fn zenoh_matches_what_toroni_matches(
            pattern in "([ab]|[*]|[*][*])(/([ab]|[*]|[*][*])){0,4}",
            topic in "[ab](/[ab]){0,4}",
        ) {
            let (toroni, zenoh) = (Pattern::new(&pattern).unwrap(), expression(pattern).unwrap());
            let key = expression(topic.clone()).unwrap();
            prop_assert_eq!(toroni.matches(&topic), zenoh.intersects(&key));
            // Descendants are reached from what `ancestors` returns, or from the pattern itself.
            if toroni.matches_descendants(&topic) {
                let above = ancestors(toroni.as_str());
                let matches = |text: &String| expression(text.clone()).unwrap().intersects(&key);
                prop_assert!(toroni.matches(&topic) || above.iter().any(matches), "{above:?}");
            }
        }

        #[test]
        fn any_topic_is_a_key(topic in "\\PC{1,40}") {
            if Topic::new(&topic).is_ok() {
                let key = zenoh::key_expr::KeyExpr::try_from(topic.as_str()).map(|key| key.to_string());
                prop_assert_eq!(key.ok(), Some(topic));
            }
        }
    }
}
