//! Numbers as cells of a table: the digits and the units of a column are aligned.

use super::super::sample::{Age, How};
use ratatui::text::Span;
use std::time::Duration;
use toroni_shell::human::{self, as_f64, to_u64};

/// What is shown for a number that is not known.
const UNKNOWN: &str = "-";

/// Prints a rate without "/s", which is in the title: `1.82 M`, `620  `.
pub(super) fn rate(value: Option<f64>) -> String {
    let Some(mut value) = value else { return UNKNOWN.to_owned() };
    for unit in [" ", "k", "M", "G"] {
        if value < 999.5 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= 1000.0;
    }
    format!("{value:.0} T")
}

/// Prints bytes: `80.0 MiB`, `512 B  `.
pub(super) fn bytes(value: Option<f64>) -> String {
    let Some(mut value) = value else { return UNKNOWN.to_owned() };
    if value < 1023.5 {
        return format!("{value:.0} B  ");
    }
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        value /= 1024.0;
        if value < 1023.5 {
            return format!("{} {unit}", three_digits(value));
        }
    }
    format!("{:.0} PiB", value / 1024.0)
}

pub(super) fn count(value: u64) -> String {
    if value < 1_000_000 { human::count(value) } else { rate(Some(as_f64(value))) }
}

/// Prints a share of 1: `0.9 %`.
pub(super) fn percent(share: Option<f64>) -> String {
    let Some(share) = share else { return UNKNOWN.to_owned() };
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 {
        format!("{percent:.0} %")
    } else if percent < 0.05 {
        "<0.1 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

pub(super) fn age(age: Option<Age>) -> String {
    let Some(Age { seconds, how }) = age else { return UNKNOWN.to_owned() };
    let sign = match how {
        How::Measured => "",
        How::Estimated => "~",
        How::AtLeast => ">",
    };
    // Minutes have the longest unit. With a sign, they have no room for tenths, which would not be true either.
    let is_minutes = !sign.is_empty() && (120.0..7200.0).contains(&seconds);
    let seconds = if is_minutes { (seconds / 60.0).round() * 60.0 } else { seconds };
    format!("{sign}{}", self::seconds(seconds))
}

pub(super) fn seconds(value: f64) -> String {
    // Less than a microsecond is below what snapshots can tell.
    let rounded = Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX);
    human::duration(if rounded < Duration::from_micros(1) { Duration::ZERO } else { rounded })
}

/// Prints the time of the day in UTC: `12:00:31`.
pub(super) fn clock(unix_seconds: f64) -> String {
    let text = human::rfc3339(to_u64(unix_seconds * 1e9).unwrap_or(0));
    text.get(11..19).unwrap_or_default().to_owned()
}

/// Draws a share of 1 as a bar of eighths.
pub(super) fn bar(share: f64, width: u16) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let whole = u64::from(width) * 8;
    let filled = to_u64((share.clamp(0.0, 1.0) * as_f64(whole)).round()).unwrap_or(0);
    // A little is not nothing.
    let filled = if share > 0.0 { filled.max(1) } else { 0 };
    let (full, rest) = (filled / 8, filled % 8);
    let full = usize::try_from(full).unwrap_or(0);
    let rest = usize::try_from(rest).unwrap_or(0);
    format!("{}{}", "█".repeat(full), EIGHTHS[rest])
}

/// Draws the latest rates as a small chart.
pub(super) fn chart(rates: &[f64], width: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &rates[rates.len().saturating_sub(width)..];
    let highest = shown.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let level = |rate: &f64| {
        let level =
            to_u64((rate / highest * 7.0).round()).and_then(|level| usize::try_from(level).ok());
        LEVELS[level.unwrap_or(0).min(7)]
    };
    shown.iter().map(level).collect()
}

/// Cuts a text to a width in columns of the terminal.
pub(super) fn fit(text: &str, width: u16) -> String {
    let columns = |text: &str| Span::raw(text).width();
    let width = usize::from(width);
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if columns(&cut) >= width {
            cut.pop();
            break;
        }
    }
    if width > 0 {
        cut.push('…');
    }
    cut
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        0.0 => 0,
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_width() {
        let rates = [0.0, 0.5, 620.0, 999.7, 1_820_000.0, 72_123_456.0, 3e15].map(Some).map(rate);
        assert_eq!(rates, ["0  ", "0.50  ", "620  ", "1.00 k", "1.82 M", "72.1 M", "3000 T"]);
        let sizes = [0.0, 1023.0, 1024.0, 12.0 * 1024.0, 4_194_304.0, 1e30].map(Some).map(bytes);
        assert_eq!(sizes[..5], ["0 B  ", "1023 B  ", "1.00 KiB", "12.0 KiB", "4.00 MiB"]);
        assert_eq!((rate(None), bytes(None)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(
            [0.0, 0.0001, 0.009, 0.25, 1.0].map(Some).map(percent),
            ["0 %", "<0.1 %", "0.9 %", "25 %", "100 %"]
        );
        assert_eq!(
            (count(999_999), count(12_345_678)),
            ("999,999".to_owned(), "12.3 M".to_owned())
        );
    }

    #[test]
    fn bars_and_charts_show_shares() {
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(7.0, 4), "████");
        assert_eq!(bar(f64::NAN, 4), "");
        assert_eq!(chart(&[9.0, 0.0, 1.0, 2.0], 3), "▁▅█");
        assert_eq!(chart(&[0.0, 0.0], 3), "");
    }

    #[test]
    fn texts_are_cut_at_columns_of_the_terminal() {
        assert_eq!(fit("camera", 6), "camera");
        assert_eq!(fit("camera", 4), "cam…");
        assert_eq!(fit("温度計測", 5), "温度…");
        assert_eq!(fit("camera", 0), "");
    }

    #[test]
    fn ages_fit_their_column() {
        let shown = |seconds, how| age(Some(Age { seconds, how }));
        assert_eq!(shown(1752.0, How::Measured), "29.2 min");
        assert_eq!(shown(1752.0, How::Estimated), "~29 min");
        for seconds in [0.0, 1e-6, 0.123_4, 59.94, 119.9, 7199.0, 7201.0, 172_000.0, 8e6] {
            for how in [How::Measured, How::Estimated, How::AtLeast] {
                let text = shown(seconds, how);
                assert!(text.chars().count() <= 8, "{text}");
            }
        }
    }

    #[test]
    fn times_are_of_the_day() {
        assert_eq!(clock(951_827_696.5), "12:34:56");
        assert_eq!(clock(f64::NAN), "00:00:00");
    }
}
