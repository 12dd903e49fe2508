//! Numbers with units, as people write them on command lines and read them in reports.

use std::time::Duration;

/// Parses a number of bytes: `4096`, `64KiB`, `4M`, `1.5GiB` (powers of 1024), `10kB`, `1GB` (powers of 1000).
///
/// # Errors
/// The text of the error says what is wrong and what to write.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        // The largest unit in which the program prints bytes.
        "p" | "pib" => 1 << 50,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        _ => {
            return Err(format!(
                "{unit:?} is not a unit of bytes: write for example 65536, 64KiB, 4MiB or 1GiB"
            ));
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is too large"));
    }
    let bytes = parse_number(number)? * as_f64(factor);
    to_u64(bytes).ok_or_else(|| format!("{text} is too large"))
}

/// Parses a duration with its unit: `250us`, `100ms`, `1.5s`, `2min`, `1h`. 0 needs no unit.
///
/// # Errors
/// The text of the error says what is wrong and what to write.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text)?;
    let seconds_each = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == "0" => 1.0,
        _ => {
            return Err(format!(
                "{text:?} is not a duration: write a number and ns, us, ms, s, min or h"
            ));
        }
    };
    Duration::try_from_secs_f64(parse_number(number)? * seconds_each)
        .map_err(|_| format!("{text} is too long"))
}

/// Splits a text into a number, which may be no valid one, and its unit.
///
/// # Errors
/// If the text does not start with a digit or a point.
pub fn split_unit(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(format!("{text:?} does not start with a number"));
    }
    Ok((number, unit.trim_start()))
}

/// Parses a number without a sign or a unit.
///
/// # Errors
/// The text of the error says what is wrong and what to write.
pub fn parse_number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Prints a number: `1,000,000`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Converts a number for display and averages, for which 53 bits are enough.
#[must_use]
pub fn as_f64(value: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    let float = value as f64;
    float
}

/// Rounds to a whole number. Returns `None` if the value is negative, NaN or too large.
#[must_use]
pub fn to_u64(value: f64) -> Option<u64> {
    let rounded = value.round();
    // 2^64 itself does not fit; every float below it does.
    if !(0.0..18_446_744_073_709_551_616.0).contains(&rounded) {
        return None;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked above"
    )]
    let whole = rounded as u64;
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed() {
        for (text, value) in [
            ("0", 0),
            ("8", 8),
            ("17", 17),
            ("64KiB", 65536),
            ("64k", 65536),
            ("4MiB", 4 << 20),
            ("4 MiB", 4 << 20),
            ("1.5GiB", 3 << 29),
            ("1T", 1 << 40),
            ("2 PiB", 1 << 51),
            ("1.5 MiB", 3 << 19),
            ("10kB", 10_000),
            ("100kB", 100_000),
            ("2GB", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "MiB",
            "KiB",
            "-1",
            "1 furlong",
            "4QiB",
            "1.2.3M",
            "18446744073709551616",
            "99999999999TiB",
            "99999999999999TiB",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_parsed() {
        for (text, micros) in [
            ("100ms", 100_000),
            ("20us", 20),
            ("250us", 250),
            ("250µs", 250),
            ("1.5s", 1_500_000),
            ("2min", 120_000_000),
            ("1h", 3_600_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "2", "5", "s", "ms", "-1s", "1 fortnight", "99999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(count(999), "999");
        assert_eq!(count(12_345), "12,345");
    }

    #[test]
    fn floats_become_whole_numbers_only_in_range() {
        assert_eq!(to_u64(1.6), Some(2));
        for value in [-1.0, f64::NAN, f64::INFINITY, 18_446_744_073_709_551_616.0] {
            assert_eq!(to_u64(value), None);
        }
    }
}
