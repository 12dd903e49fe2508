//! The lines by which workers tell the supervisor what happens.

use super::mix::LANES;
use super::stalls::Stall;
use super::verifier::{Kind, Progress, Stretch};
use std::fmt::{self, Write};
use std::str::SplitWhitespace;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It takes part from now on.
    Ready,
    /// A stretch of the order, by one who asked for the filter of that number.
    Stretch(usize, Stretch),
    /// How far a publisher has come.
    Progress(u32, Progress),
    /// It was held up.
    Stall(Stall),
    Violation(Kind, String),
    /// It has ended in order, after this number of messages.
    Done(u64),
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => formatter.write_str("ready"),
            Self::Stretch(filter, Stretch { number, lanes }) => {
                write!(formatter, "stretch {filter} {number}")?;
                lanes.iter().try_for_each(|(count, sum)| write!(formatter, " {count} {sum}"))
            }
            Self::Progress(worker, Progress { next, sequence, is_exact }) => {
                write!(formatter, "progress {worker} {next} {sequence} {}", u8::from(*is_exact))
            }
            Self::Stall(Stall { start_ns, length_ns, queued_ns, policy_ns }) => {
                write!(formatter, "stall {start_ns} {length_ns} {queued_ns} {policy_ns}")
            }
            Self::Violation(kind, evidence) => {
                write!(formatter, "violation {} ", kind.word())?;
                // A line, whatever it holds.
                evidence
                    .chars()
                    .try_for_each(|c| formatter.write_char(if c.is_control() { ' ' } else { c }))
            }
            Self::Done(messages) => write!(formatter, "done {messages}"),
        }
    }
}

impl Event {
    /// Reads a line; `None` if it is none of these.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = &mut rest.split_whitespace();
        let event = match word {
            "ready" => Self::Ready,
            "stretch" => {
                let filter = usize::try_from(number(words)?).ok()?;
                let mut stretch = Stretch { number: number(words)?, lanes: [(0, 0); LANES] };
                for lane in &mut stretch.lanes {
                    *lane = (number(words)?, number(words)?);
                }
                Self::Stretch(filter, stretch)
            }
            "progress" => {
                let worker = u32::try_from(number(words)?).ok()?;
                {
                    let (next, sequence) = (number(words)?, number(words)?);
                    let is_exact = number(words)? != 0;
                    Self::Progress(worker, Progress { next, sequence, is_exact })
                }
            }
            "stall" => Self::Stall(Stall {
                start_ns: number(words)?,
                length_ns: number(words)?,
                queued_ns: number(words)?,
                policy_ns: number(words)?,
            }),
            "violation" => {
                let (kind, evidence) = rest.split_once(' ')?;
                let kind = Kind::ALL.into_iter().find(|one| one.word() == kind)?;
                return Some(Self::Violation(kind, evidence.to_owned()));
            }
            "done" => Self::Done(number(words)?),
            _ => return None,
        };
        words.next().is_none().then_some(event)
    }
}

fn number(words: &mut SplitWhitespace<'_>) -> Option<u64> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_written() {
        let mut lanes = [(0, 0); LANES];
        lanes[2] = (7, u64::MAX);
        for event in [
            Event::Ready,
            Event::Stretch(3, Stretch { number: 9, lanes }),
            Event::Progress(4, Progress { next: 5, sequence: 6, is_exact: true }),
            Event::Stall(Stall { start_ns: 1, length_ns: 2, queued_ns: 3, policy_ns: 4 }),
            Event::Violation(Kind::Torn, "one two".to_owned()),
            Event::Done(8),
        ] {
            let line = event.to_string();
            assert_eq!(Event::parse(&line), Some(event));
            assert_eq!(Event::parse(&format!("x{line}")), None);
        }
        let broken = Event::Violation(Kind::Torn, "one\ntwo".to_owned()).to_string();
        assert!(!broken.contains('\n'));
        for line in ["", "done", "done 2 3", "stretch 1 2 3", "violation new x"] {
            assert_eq!(Event::parse(line), None, "{line:?}");
        }
    }
}
