//! Checks a text against the grammar of OpenMetrics 1.0, and reads its samples. It shares no code with the program.

use std::collections::{BTreeMap, BTreeSet};

/// One line with a value.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All samples of a valid text.
#[derive(Debug)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// Returns the values of a metric whose labels have at least these values.
    pub(crate) fn all(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let has = |sample: &&Sample| {
            let equal = |(label, value): &(&str, &str)| {
                sample.labels.get(*label).is_some_and(|found| found == value)
            };
            sample.name == name && labels.iter().all(equal)
        };
        self.0.iter().filter(has).map(|sample| sample.value).collect()
    }

    /// Returns the value of the only such sample, or `None` if there is none.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let all = self.all(name, labels);
        assert!(all.len() <= 1, "{name} {labels:?}: {all:?}");
        all.first().copied()
    }
}

#[derive(Default)]
struct Family {
    name: String,
    kind: Option<String>,
    unit: Option<String>,
    has_help: bool,
    seen: BTreeSet<String>,
}

/// Parses a text, and panics if it breaks a rule.
pub(crate) fn parse(text: &str) -> Samples {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text:?}"));
    assert!(body.is_empty() || body.ends_with('\n'), "the last line has no end");
    let mut families = BTreeSet::new();
    let mut family = Family::default();
    let mut samples = Vec::new();
    for line in body.lines() {
        assert!(!line.is_empty() && !line.contains('\r'), "{line:?}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
            let (kind, name, rest) = (word(), word(), word());
            assert!(is_name(name, true), "{line:?}");
            if name != family.name {
                assert!(families.insert(name.to_owned()), "a family in two places: {line:?}");
                family = Family { name: name.to_owned(), ..Family::default() };
            }
            assert!(family.seen.is_empty(), "after the samples: {line:?}");
            match kind {
                "TYPE" => {
                    assert!(["counter", "gauge", "histogram"].contains(&rest), "{line:?}");
                    assert!(family.kind.replace(rest.to_owned()).is_none(), "twice: {line:?}");
                }
                "HELP" => {
                    assert!(!std::mem::replace(&mut family.has_help, true), "twice: {line:?}");
                    let _ = unescaped(rest);
                }
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{rest}")), "{line:?}");
                    assert!(family.unit.replace(rest.to_owned()).is_none(), "twice: {line:?}");
                }
                _ => panic!("{line:?}"),
            }
            continue;
        }
        let sample = sample(line);
        let kind = family.kind.as_deref().unwrap_or_else(|| panic!("no type: {line:?}"));
        assert!(family.has_help, "no help: {line:?}");
        if kind == "counter" {
            assert_eq!(sample.name, format!("{}_total", family.name));
            assert!(sample.value >= 0.0 && sample.value.is_finite(), "{line:?}");
        } else if kind == "histogram" {
            let suffix =
                sample.name.strip_prefix(&family.name).unwrap_or_else(|| panic!("{line:?}"));
            assert!(["_bucket", "_count", "_sum"].contains(&suffix), "{line:?}");
            assert_eq!(suffix == "_bucket", sample.labels.contains_key("le"), "{line:?}");
        } else {
            assert_eq!(sample.name, family.name);
        }
        let series = format!("{} {:?}", sample.name, sample.labels);
        assert!(family.seen.insert(series), "twice: {line:?}");
        samples.push(sample);
    }
    Samples(samples)
}

/// Parses `name{label="value",…} value`, without a time or an exemplar, which the program does not write.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line:?}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line:?}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line:?}"));
            assert!(is_name(label, false), "{line:?}");
            let length = quoted_length(after).unwrap_or_else(|| panic!("{line:?}"));
            let value = unescaped(&after[..length]);
            assert!(labels.insert(label.to_owned(), value).is_none(), "twice: {line:?}");
            rest = &after[length + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("{line:?}"));
    }
    let number = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line:?}"));
    let is_digit = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    assert!(!number.is_empty() && number.chars().all(is_digit), "{line:?}");
    let value = number.parse().unwrap_or_else(|error| panic!("{line:?}: {error}"));
    Sample { name: name.to_owned(), labels, value }
}

fn is_name(name: &str, may_have_colons: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (may_have_colons && c == ':');
    name.chars().next().is_some_and(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Returns the length up to the quotation mark that is not escaped.
fn quoted_length(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => panic!("{text:?}: a backslash before {other:?}"),
            },
            c => c,
        });
    }
    plain
}

/// The checks can fail.
#[test]
fn the_grammar_is_checked() {
    let good = "# HELP a_bytes x\n# TYPE a_bytes gauge\n# UNIT a_bytes bytes\na_bytes{l=\"\\\"}\"} 1.5\n# EOF\n";
    assert_eq!(parse(good).value("a_bytes", &[("l", "\"}")]), Some(1.5));
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF"),
        ("gauge", "counter"),
        ("# UNIT a_bytes bytes", "# UNIT a_bytes seconds"),
        ("1.5\n", "1.5\na_bytes{l=\"\\\"}\"} 2\n"),
        ("1.5\n", "1.5\n\n"),
        ("1.5", "inf"),
        ("\\\"}\"", "\\x\""),
        ("{l=", "{1="),
        ("# TYPE a_bytes gauge\n", ""),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        let parsed = std::panic::catch_unwind(|| parse(&bad));
        assert!(parsed.is_err(), "{bad}");
    }
}
