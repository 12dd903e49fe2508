//! Durations, sizes and rates with their units, as files contain them.
//!
//! A number alone is refused: what 200 means would depend on the key. Fractions are exact or refused.

use std::fmt::Write;

/// What a number with a unit measures. Its value is in the smallest unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Bits in a second.
    Rate,
}

impl Quantity {
    /// The units and what they are worth, the smallest first.
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Time => &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
                ("h", 3_600_000_000_000),
            ],
            Self::Bytes => {
                &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)]
            }
            Self::Rate => {
                &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)]
            }
        }
    }

    /// Returns what a text of this kind is called in messages.
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Time => "a duration with a unit (ns, us, ms, s, min, h), such as \"20ms\"",
            Self::Bytes => "a size with a unit (B, KiB, MiB, GiB, TiB), such as \"64MiB\"",
            Self::Rate => {
                "a rate with a unit (bit/s, kbit/s, Mbit/s, Gbit/s), such as \"200Mbit/s\""
            }
        }
    }

    /// Reads a number with a unit. `None` if it is malformed, too large, or no whole number of the smallest unit.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<u64> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let &(_, worth) = self.units().iter().find(|(name, _)| *name == unit.trim_start())?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if fraction.is_empty() || fraction.len() > 9 {
            return None;
        }
        let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(worth);
        if !parts.is_multiple_of(scale.into()) {
            return None;
        }
        let parts = u64::try_from(parts / u128::from(scale)).ok()?;
        whole.parse::<u64>().ok()?.checked_mul(worth)?.checked_add(parts)
    }

    /// Returns the shortest text that [`Self::parse`] reads as this value.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        let fits = |(_, worth): &&(&str, u64)| value.is_multiple_of(*worth);
        // Zero is a multiple of all. Minutes and hours would be harder to compare.
        let units = self.units().iter().filter(|(name, _)| !matches!(*name, "min" | "h"));
        let (name, worth) = match value {
            0 if self == Self::Time => ("s", 1),
            0 => self.units()[0],
            _ => *units.rev().find(fits).expect("the smallest unit"),
        };
        let mut text = (value / worth).to_string();
        // Writing to a text cannot fail.
        let _ = text.write_str(name);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_with_units_are_read_exactly() {
        for (quantity, text, value) in [
            (Quantity::Time, "20ms", 20_000_000),
            (Quantity::Time, "1.5 s", 1_500_000_000),
            (Quantity::Time, "2min", 120_000_000_000),
            (Quantity::Time, "0.000000001s", 1),
            (Quantity::Bytes, "64MiB", 64 << 20),
            (Quantity::Bytes, "1408B", 1408),
            (Quantity::Bytes, "1.5KiB", 1536),
            (Quantity::Rate, "200Mbit/s", 200_000_000),
            (Quantity::Rate, "2.5Gbit/s", 2_500_000_000),
        ] {
            assert_eq!(quantity.parse(text), Some(value), "{text}");
        }
        for text in ["", "200", "ms", "-1s", "1 fortnight", "1.2.3s", "1.s", ".5s", "0.5ns", "1e3s"]
        {
            assert_eq!(Quantity::Time.parse(text), None, "{text}");
        }
        assert_eq!(Quantity::Time.parse("99999999999999999999h"), None);
        assert_eq!(Quantity::Time.parse("18446744073709551615h"), None);
        assert_eq!(Quantity::Time.parse("0.0000000001s"), None);
        assert_eq!(Quantity::Bytes.parse("64MB"), None, "a power of 1000 is never meant");
        assert_eq!(Quantity::Rate.parse("200Mbit"), None);
    }

    #[test]
    fn values_are_shown_in_their_greatest_unit() {
        for (quantity, value, text) in [
            (Quantity::Time, 0, "0s"),
            (Quantity::Time, 1_500_000_000, "1500ms"),
            (Quantity::Time, 90_000_000_000, "90s"),
            (Quantity::Bytes, 0, "0B"),
            (Quantity::Bytes, 1408, "1408B"),
            (Quantity::Rate, 200_000_000, "200Mbit/s"),
        ] {
            assert_eq!(quantity.show(value), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(value: u64) {
            for quantity in [Quantity::Time, Quantity::Bytes, Quantity::Rate] {
                prop_assert_eq!(quantity.parse(&quantity.show(value)), Some(value));
            }
        }
    }
}
