//! Options that workloads have in common, and values with units.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// How long a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// Less than 20 s: few repetitions and little data. Reports say how many.
    Quick,
    /// One minute to several minutes.
    Usual,
    /// Everything, however long it takes.
    Full,
}

/// The options of every workload.
#[derive(Args, Clone, Debug, Default)]
pub struct RunOptions {
    /// Measure less, in under 20 s: fewer repetitions, smaller volumes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure everything; may take long
    #[arg(long)]
    full: bool,
    /// Number of runs of each table cell, or of the whole benchmark [default: depends on the benchmark]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: Option<u32>,
}

impl RunOptions {
    /// Returns how long the measurement may take.
    #[must_use]
    pub fn length(&self) -> RunLength {
        match (self.quick, self.full) {
            (true, _) => RunLength::Quick,
            (_, true) => RunLength::Full,
            _ => RunLength::Usual,
        }
    }
}

/// What to do with a report.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub json: bool,
    /// Write a chart to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Replaces a default list, if the command line has one.
pub(crate) fn replace<T: Clone>(list: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *list = given.to_vec();
    }
}

/// Parses a number of bytes: `65536`, `64KiB`, `4MiB`, `1.5GiB`, `100kB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{unit:?} is no unit of bytes: write 65536, 64KiB, 4MiB or 1GiB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is too large"));
    }
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a number of bytes"))?;
    let bytes = (number * factor as f64).round();
    if !(0.0..=1e15).contains(&bytes) {
        return Err(format!("{text} is too large"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    #[expect(clippy::cast_sign_loss, reason = "checked above")]
    let bytes = bytes as u64;
    Ok(bytes)
}

/// Parses a duration with its unit: `250us`, `100ms`, `1.5s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let seconds_each = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is no duration: write a number and ns, us, ms or s")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a duration"))?;
    Duration::try_from_secs_f64(number * seconds_each).map_err(|_| format!("{text} is too long"))
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("8", Some(8)),
            ("64KiB", Some(64 << 10)),
            ("1.5 MiB", Some(3 << 19)),
            ("100kB", Some(100_000)),
            ("KiB", None),
            ("-1", None),
            ("1 furlong", None),
            ("99999999999999TiB", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, duration) in [
            ("20us", Some(Duration::from_micros(20))),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("2", None),
            ("s", None),
        ] {
            assert_eq!(parse_duration(text).ok(), duration, "{text}");
        }
    }
}
