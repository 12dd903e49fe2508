//! The options of `toroni replay`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use toroni::Pattern;
use toroni_shell::human::{parse_interval, parse_rate};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni replay day.mcap                             at the recorded times
  toroni replay day.mcap --speed 10 --start +1h --end +2h
  toroni replay log.0001.mcap log.0002.mcap --speed max
  toroni replay plant.mcap --topics 'plant/**' --prefix copy --map plant=factory
  toroni replay --list day.mcap                      what is in it
  toroni -b test replay day.mcap --wait-subscribers 1 --loop

If the bus does not exist, replay creates it. Several files are merged by time. Losses in a recording are reported to \
the subscribers of the bus at their places (--lost changes that). The / that topics of ROS 2 begin with is left out.

Topics that were retained are retained on the bus, too. The recording has their values first, and they are published first, \
but not where the bus has a newer value (--overwrite-newer changes that).

Keys on a terminal: space pauses and continues, → plays one message, ← goes back 5 s, + and - change the speed, q ends. \
In the background, it plays without keys until the shell brings it to the foreground.")]
pub(crate) struct Replay {
    /// Recordings (MCAP files)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Show what is in each file instead of playing it
    #[arg(long)]
    pub(crate) list: bool,
    /// With --list: print JSON, one object per line
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
    /// How fast: 1 as recorded, 0.5 at half the speed, max without waiting
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed, conflicts_with = "rate")]
    pub(crate) speed: Speed,
    /// Messages per second, instead of the recorded times
    #[arg(long, value_name = "R/s", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Shorten silences to this time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) gap_limit: Option<Duration>,
    /// Which recorded time counts
    #[arg(long, value_enum, default_value_t = By::Received)]
    pub(crate) by: By,
    /// Topics to play; repeatable [default: all]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) topics: Vec<Pattern>,
    /// Topics not to play; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<Pattern>,
    /// Where to start: an offset such as +10s, or a time of day such as 12:00:31 (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_point)]
    pub(crate) start: Option<Point>,
    /// Where to end, as --start
    #[arg(long, value_name = "TIME", value_parser = parse_point)]
    pub(crate) end: Option<Point>,
    /// Play N times; without N, until a signal ends it
    #[arg(long = "loop", value_name = "N", num_args = 0..=1, default_missing_value = "0", require_equals = true)]
    pub(crate) repeat: Option<u64>,
    /// Put these segments before each topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) prefix: Option<String>,
    /// Rename a topic and all below it; repeatable, the first that fits counts
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_map)]
    pub(crate) map: Vec<(String, String)>,
    /// What to do with losses in the recording
    #[arg(long, value_enum, default_value_t = OnLoss::Report)]
    pub(crate) lost: OnLoss,
    /// Publish the values of retained topics in the recording even where the bus has newer ones
    #[arg(long)]
    pub(crate) overwrite_newer: bool,
    /// Publish with the recorded origins: then what has arrived on the bus before is left out
    #[arg(long)]
    pub(crate) keep_origin: bool,
    /// Time of publication in the messages
    #[arg(long, value_enum, default_value_t = Stamp::Recorded)]
    pub(crate) stamp: Stamp,
    /// Wait until N subscribers are on the bus
    #[arg(long, value_name = "N")]
    pub(crate) wait_subscribers: Option<u32>,
    /// Start paused: a key plays the first message
    #[arg(long, conflicts_with_all = ["no_keys", "list"])]
    pub(crate) paused: bool,
    /// Leave the terminal alone: keys do not control the replay
    #[arg(long)]
    pub(crate) no_keys: bool,
    /// Do not report what was played, or that a file is incomplete
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Name of this publisher in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-replay")]
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    Factor(f64),
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// When the recorder received a message
    Received,
    /// When it was published; noted steps of the recorder's clock are left out
    Publish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// Report it to subscribers
    Report,
    /// Leave it out
    Ignore,
    /// End with exit code 3
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stamp {
    /// That of the recording, if the message had one
    Recorded,
    /// When it is played
    Now,
    /// None
    None,
}

impl Stamp {
    /// Returns the stamp of a message that had this one in the recording, and is played now.
    pub(super) fn of(self, recorded: Option<u64>, now: u64) -> Option<u64> {
        match self {
            Self::Recorded => recorded,
            Self::Now => Some(now),
            Self::None => None,
        }
    }
}

/// A point of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Nanoseconds after the first message.
    Offset(u64),
    /// Nanoseconds after midnight, UTC.
    TimeOfDay(u64),
}

const DAY_NS: u64 = 86_400 * 1_000_000_000;

impl Point {
    /// Returns the point as a time, in a recording that starts at `start`.
    pub(crate) fn time(self, start: u64) -> u64 {
        match self {
            Self::Offset(offset) => start.saturating_add(offset),
            Self::TimeOfDay(of_day) => {
                let time = (start / DAY_NS).saturating_mul(DAY_NS).saturating_add(of_day);
                // A recording may go on after midnight.
                if start.saturating_sub(time) > DAY_NS / 2 {
                    time.saturating_add(DAY_NS)
                } else {
                    time
                }
            }
        }
    }
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse::<f64>() {
        Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(Speed::Factor(factor)),
        _ => Err("use a factor such as 0.5 or 10, or max".to_owned()),
    }
}

fn parse_point(text: &str) -> Result<Point, String> {
    let wrong = || {
        format!("{text:?} is neither an offset, such as +10s, nor a time of day, such as 12:00:31")
    };
    if let Some(offset) = text.strip_prefix('+') {
        let offset = toroni_shell::human::parse_seconds(offset)?;
        return u64::try_from(offset.as_nanos()).map(Point::Offset).map_err(|_| wrong());
    }
    let mut parts = text.split(':');
    let (Some(hours), Some(minutes), seconds, None) =
        (parts.next(), parts.next(), parts.next().unwrap_or("0"), parts.next())
    else {
        return Err(wrong());
    };
    let number = |digits: &str, limit: u64| {
        digits.parse::<u64>().ok().filter(|number| *number < limit).ok_or_else(wrong)
    };
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return Err(wrong());
    }
    let nanoseconds = number(&format!("{fraction:0<9}"), 1_000_000_000)?;
    let (hours, minutes) = (number(hours, 24)?, number(minutes, 60)?);
    let minutes = hours.saturating_mul(60).saturating_add(minutes);
    let seconds = minutes.saturating_mul(60).saturating_add(number(whole, 60)?);
    Ok(Point::TimeOfDay(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)))
}

fn parse_map(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("use OLD=NEW, such as plant=factory")?;
    let old = old.trim_start_matches('/').to_owned();
    toroni::Topic::new(new).map_err(|error| error.to_string())?;
    Ok((old, new.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_parsed() {
        assert_eq!(parse_point("+10s"), Ok(Point::Offset(10_000_000_000)));
        assert_eq!(parse_point("+0"), Ok(Point::Offset(0)));
        let noon = 12 * 3_600_000_000_000;
        assert_eq!(parse_point("12:00"), Ok(Point::TimeOfDay(noon)));
        assert_eq!(parse_point("12:00:01.5"), Ok(Point::TimeOfDay(noon + 1_500_000_000)));
        for text in ["", "10s", "24:00", "12:60", "12:00:60", "1:2:3:4", "12:00:01.", "+x"] {
            assert!(parse_point(text).is_err(), "{text}");
        }
        // Across midnight.
        let start = 10 * DAY_NS + 23 * 3_600_000_000_000;
        assert_eq!(
            Point::TimeOfDay(3_600_000_000_000).time(start),
            11 * DAY_NS + 3_600_000_000_000
        );
        assert_eq!(Point::TimeOfDay(22 * 3_600_000_000_000).time(start), start - 3_600_000_000_000);
        assert_eq!(Point::Offset(5).time(start), start + 5);
    }

    #[test]
    fn speeds_are_parsed() {
        assert_eq!(parse_speed("max"), Ok(Speed::Max));
        assert_eq!(parse_speed("0.5"), Ok(Speed::Factor(0.5)));
        for text in ["0", "-1", "nan", "inf", "fast"] {
            assert!(parse_speed(text).is_err(), "{text}");
        }
    }
}
