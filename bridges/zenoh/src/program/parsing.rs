//! Errors of the configuration file, and values with units.

use serde::de::{
    self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer,
};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

/// Names that are less similar are not suggested: one wrong letter in three is allowed.
const SIMILARITY: f64 = 0.6;

/// Returns the text of an error: file, line, column, what was expected, and the nearest known name.
pub(crate) fn explain(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(text.len(), |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = error.message().trim_end();
    let suggestion = suggestion(message).unwrap_or_default();
    let shown = text.lines().nth(line - 1).unwrap_or_default();
    let quoted = if shown.trim().is_empty() { String::new() } else { format!("\n  | {shown}") };
    format!("{}:{line}:{column}: {message}{suggestion}{quoted}", path.display())
}

/// Finds the name in `unknown field `a`, expected one of `b`, `c`` that is most similar to the unknown one.
fn suggestion(message: &str) -> Option<String> {
    let rest =
        message.strip_prefix("unknown field `").or(message.strip_prefix("unknown variant `"));
    let (unknown, expected) = rest?.split_once('`')?;
    nearest(unknown, expected.split('`').skip(1).step_by(2))
        .map(|name| format!(": did you mean `{name}`?"))
}

/// Returns the most similar of these names, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(similarity, _)| *similarity > SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// A duration with a unit, such as `"20ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a duration with a unit, us, ms, s or min, such as \"20ms\"";
        with_unit(deserializer, EXPECTED, |number, unit| {
            let nanoseconds = match unit {
                "us" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "min" => 60_000_000_000,
                _ => return None,
            };
            number.checked_mul(nanoseconds).map(|all| Self(Duration::from_nanos(all)))
        })
    }
}

/// Returns a duration as [`Span`] reads it.
pub(crate) fn shown_span(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else if duration.subsec_nanos().is_multiple_of(1_000_000) {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{}us", duration.as_micros())
    }
}

/// A number of bytes with a unit, such as `"64MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) usize);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a size with a unit, B, KiB, MiB or GiB, such as \"64MiB\"";
        with_unit(deserializer, EXPECTED, |number, unit| {
            let shift = match unit {
                "B" => 0,
                "KiB" => 10,
                "MiB" => 20,
                "GiB" => 30,
                _ => return None,
            };
            usize::try_from(number.checked_mul(1 << shift)?).ok().map(Self)
        })
    }
}

/// Returns a size as [`Bytes`] reads it.
pub(crate) fn shown_bytes(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |shift: u32| bytes > 0 && bytes.is_multiple_of(1 << shift);
    match units.into_iter().find(|(shift, _)| fits(*shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// Deserializes a text that begins with digits and ends with a unit.
fn with_unit<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    read: impl Fn(u64, &str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<T, F>(&'static str, F, PhantomData<T>);

    impl<T, F: Fn(u64, &str) -> Option<T>> Visitor<'_> for Text<T, F> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = text.split_at(digits);
            let value = number.parse().ok().and_then(|number| (self.1)(number, unit.trim_start()));
            value.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Text(expected, read, PhantomData))
}

/// Deserializes a name, or a table with more.
pub(crate) fn name_or_table<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + From<String>,
{
    struct Either<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + From<String>> Visitor<'de> for Either<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a name, or a table")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            Ok(T::from(text.to_owned()))
        }

        fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_any(Either(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_again() {
        for duration in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(20)]
            .into_iter()
            .chain([Duration::from_secs(90), Duration::from_millis(1500)])
        {
            let shown = toml::Value::String(shown_span(duration));
            assert_eq!(shown.try_into(), Ok(Span(duration)));
        }
        for bytes in [0, 1, 1000, 1 << 10, 3 << 20, 1 << 30, usize::MAX] {
            let shown = toml::Value::String(shown_bytes(bytes));
            assert_eq!(shown.try_into(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn numbers_need_units_and_fit() {
        for text in
            ["", "20", "ms", "-1s", "1.5s", "1h", "99999999999999999999s", "18446744073709s"]
        {
            let value = toml::Value::String(text.to_owned());
            let error = value.try_into::<Span>().unwrap_err().to_string();
            assert!(error.contains("a duration with a unit"), "{text}: {error}");
        }
        assert!(toml::Value::Integer(20).try_into::<Span>().is_err());
        assert!(toml::Value::Integer(64).try_into::<Bytes>().is_err());
        assert!(toml::Value::String("64MB".to_owned()).try_into::<Bytes>().is_err());
    }
}
