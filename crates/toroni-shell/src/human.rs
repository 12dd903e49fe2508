//! Parses and prints sizes, rates and durations. Does no I/O.

use std::time::Duration;
pub use toroni_process::units::{as_f64, count, parse_bytes, parse_duration, to_u64};
use toroni_process::units::{parse_number, split_unit};

/// Parses seconds without a unit, or a duration with its unit.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let bare = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if bare { parse_duration(&format!("{text}s")) } else { parse_duration(text) }
}

/// Parses like [`parse_seconds`] and requires more than 0.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        Duration::ZERO => {
            Err("0 is too short: write seconds above 0, such as 0.5, or a duration with its unit, such as 200ms"
                .to_owned())
        }
        interval => Ok(interval),
    }
}

/// Parses a rate and returns events per second: `500`, `10k/s`, `2.5M/s`, `30/min`, `10Hz`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("{text:?} is not a rate: write for example 500/s, 10k/s, 30/min or 10Hz");
    // A hertz is one event per second.
    let hertz = text.len().checked_sub(2).and_then(|at| text.split_at_checked(at));
    let is_hertz = |(_, unit): &(&str, &str)| unit.eq_ignore_ascii_case("Hz");
    let (count, seconds) = match hertz.filter(is_hertz) {
        Some((count, _)) => (count, 1.0),
        None => match text.split_once('/') {
            None => (text, 1.0),
            Some((count, "s")) => (count, 1.0),
            Some((count, "m" | "min")) => (count, 60.0),
            Some((count, "h")) => (count, 3600.0),
            Some((_, unit)) => {
                return Err(format!(
                    "{text:?}: {unit:?} is not a unit of a rate: write for example 500/s, 30/min or 10Hz"
                ));
            }
        },
    };
    let (number, unit) = split_unit(count).map_err(|_| wrong())?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(wrong()),
    };
    let rate = parse_number(number).map_err(|_| wrong())? * factor / seconds;
    if rate > 0.0 { Ok(rate) } else { Err(format!("{text:?}: a rate must be above 0")) }
}

/// Parses a file mode as `chmod` does: `0660`.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not a file mode: write octal digits such as 0660")),
    }
}

/// Prints bytes: `4 MiB`, `1.53 KiB`, `17 B`.
pub fn bytes(count: u64) -> String {
    if count < 1024 { format!("{count} B") } else { scaled_bytes(as_f64(count)) }
}

/// Prints bytes per second in the units of [`bytes`]: `1.53 MiB/s`.
pub fn bytes_per_second(rate: f64) -> String {
    format!("{}/s", scaled_bytes(rate))
}

fn scaled_bytes(mut value: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = "B";
    for next in UNITS {
        // 1023.9 KiB would be shown as 1024 KiB.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", three_digits(value))
}

/// Prints a rate: `72.1 M/s`.
pub fn per_second(rate: f64) -> String {
    scaled(rate, &["/s", "k/s", "M/s", "G/s"])
}

/// Prints bits per second: `200 Mbit/s`.
pub fn bit_rate(bits: u64) -> String {
    scaled(as_f64(bits), &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Prints a duration: `8.21 µs`, `100 ms`, `2.5 s`.
pub fn duration(value: Duration) -> String {
    let seconds = value.as_secs_f64();
    if value.is_zero() {
        "0 s".to_owned()
    } else if seconds < 0.999_5e-6 {
        format!("{} ns", value.as_nanos())
    } else if seconds < 0.999_5e-3 {
        format!("{} µs", three_digits(seconds * 1e6))
    } else if seconds < 0.999_5 {
        format!("{} ms", three_digits(seconds * 1e3))
    } else if seconds < 120.0 {
        format!("{} s", three_digits(seconds))
    } else if seconds < 2.0 * 3600.0 {
        format!("{} min", three_digits(seconds / 60.0))
    } else if seconds < 48.0 * 3600.0 {
        format!("{} h", three_digits(seconds / 3600.0))
    } else {
        format!("{} d", three_digits(seconds / 86400.0))
    }
}

/// Prints a time, given in nanoseconds since 1970, in UTC and as in RFC 3339: `2026-11-22T19:27:09.000000001Z`.
pub fn rfc3339(nanoseconds: u64) -> String {
    let (seconds, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar. It counts years from March on, so that
/// the leap day is the last of the year: <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 1 March of the year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Prints a number of things: `1 message`, `1,000 messages`.
pub fn counted(value: u64, what: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(value))
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut chosen = 0;
    while value >= 999.5 && chosen + 1 < units.len() {
        value /= 1000.0;
        chosen += 1;
    }
    format!("{} {}", three_digits(value), units[chosen])
}

/// Prints three significant digits, without trailing zeros.
fn three_digits(value: f64) -> String {
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_need_no_unit() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(parse_seconds("20ms"), Ok(Duration::from_millis(20)));
        assert!(parse_interval("0").is_err());
    }

    #[test]
    fn rates_are_parsed() {
        for (text, rate) in
            [("500", 500.0), ("500/s", 500.0), ("10k/s", 1e4), ("2.5M", 2.5e6), ("30/min", 0.5)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for (text, rate) in [("10Hz", 10.0), ("2.5kHz", 2500.0), ("1 MHz", 1e6)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for (text, rate) in [("10hz", 10.0), ("2.5kHZ", 2500.0)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        // An error names what was written, and all of it.
        for text in ["10x", "10ms", "5/fortnight", "0hz", "1.2.3Hz", "xHz", "ä"] {
            let said = parse_rate(text).unwrap_err();
            assert!(said.starts_with(&format!("{text:?}")), "{text}: {said}");
            assert!(said.ends_with("or 10Hz") || said.ends_with("above 0"), "{said}");
        }
        for text in ["", "Hz", "Hz/s", "5/sHz", "0", "0/s", "-3", "5/fortnight", "5x/s", "/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert_eq!(parse_mode("640"), Ok(0o640));
        for text in ["", "0888", "rw-", "1777", "-1"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_rates_are_shown_with_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4 << 20), "4 MiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
        assert_eq!(per_second(72_123_456.0), "72.1 M/s");
        assert_eq!(per_second(0.0), "0 /s");
        assert_eq!(per_second(999.7), "1 k/s");
        assert_eq!(bytes_per_second(1_604_321.0), "1.53 MiB/s");
        assert_eq!(bytes_per_second(0.25), "0.25 B/s");
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(1000, "message"), "1,000 messages");
    }

    #[test]
    fn durations_are_shown_with_a_fitting_unit() {
        for (nanos, text) in [
            (0, "0 s"),
            (17, "17 ns"),
            (8_210, "8.21 µs"),
            (999_900, "1 ms"),
            (100_000_000, "100 ms"),
            (2_500_000_000, "2.5 s"),
            (3_600_000_000_000, "60 min"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        for (nanoseconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_827_696_123_456_789, "2000-02-29T12:34:56.123456789Z"),
            (1_709_251_199_999_999_999, "2024-02-29T23:59:59.999999999Z"),
            (1_709_251_200_000_000_000, "2024-03-01T00:00:00.000000000Z"),
            (4_107_542_400_000_000_001, "2100-03-01T00:00:00.000000001Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(rfc3339(nanoseconds), text);
        }
    }
}
