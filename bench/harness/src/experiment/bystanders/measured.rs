//! What runs show: costs less those of silence, losses, and contenders with their runs.

use super::{Contender, Kind, Options, Used};
use crate::Failure;
use crate::experiment::{self, float};
use crate::process_group::{self, Begin, Launch};
use crate::report::Cell;
use crate::summary::Summary;
use crate::transport::About;

/// What one run shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Processor time of all processes for each message, less that in silence, in nanoseconds.
    pub(super) each_ns: f64,
    /// How often a bystander went to sleep for each 1,000 messages, more than in silence.
    pub(super) sleeps: f64,
    /// Messages that a subscriber should have received, and did not.
    pub(super) lost: u64,
    /// Messages published in a second.
    pub(super) rate: f64,
}

impl Measured {
    pub(super) fn of(sent: Used, received: &[Used], kind: Kind) -> Self {
        let messages = float(sent.messages.max(1));
        let in_busy = |used: &Used, silent: u64| {
            float(silent) * float(used.busy_length_ns) / float(used.silent_length_ns.max(1))
        };
        let more_ns = |used: &Used| float(used.busy_ns) - in_busy(used, used.silent_ns);
        let more_sleeps = |used: &Used| float(used.busy_sleeps) - in_busy(used, used.silent_sleeps);
        let bystanders = received.get(1..).unwrap_or_default();
        let wanting =
            if kind == Kind::Same { received } else { &received[..received.len().min(1)] };
        let lost = |used: &Used| sent.messages.saturating_sub(used.messages);
        // The sum of nothing would be -0.
        let sleeps = bystanders.iter().map(more_sleeps).fold(0.0, |sum, more| sum + more);
        Self {
            each_ns: received.iter().chain([&sent]).map(more_ns).sum::<f64>() / messages,
            sleeps: sleeps * 1e3 / messages / float(bystanders.len().max(1) as u64),
            lost: wanting.iter().map(lost).sum(),
            rate: messages * 1e9 / float(sent.publishing_ns.max(1)),
        }
    }
}

/// The runs of one contender with one number of bystanders of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) measured: Vec<Measured>,
    pub(super) failed: Option<String>,
}

pub(super) type Figure = fn(&Measured) -> f64;

impl Runs {
    pub(super) fn lost(&self) -> u64 {
        self.measured.iter().map(|run| run.lost).sum()
    }

    pub(super) fn summary(&self, figure: Figure) -> Option<Summary> {
        let is_sound = self.failed.is_none() && self.lost() == 0;
        let values: Vec<f64> = self.measured.iter().map(figure).collect();
        is_sound.then(|| Summary::of(&values)).flatten()
    }

    pub(super) fn cell(&self, figure: Figure) -> Cell {
        match self.failed {
            Some(_) => Cell::text("failed"),
            None if self.lost() > 0 => Cell::text("lost"),
            None => self.summary(figure).map_or_else(Cell::none, Cell::median),
        }
    }
}

/// A contender with its runs: `runs[kind][count]`.
pub(super) struct Lane {
    pub(super) contender: Contender,
    pub(super) runs: Vec<Vec<Runs>>,
    pub(super) about: Option<About>,
}

impl Lane {
    pub(super) fn new(contender: &Contender, options: &Options) -> Self {
        let runs = vec![vec![Runs::default(); options.counts.len()]; options.kinds.len()];
        Self { contender: contender.clone(), runs, about: None }
    }

    pub(super) fn measure(
        &mut self,
        launch: &Launch<'_>,
        options: &Options,
        (kind, row): (usize, usize),
    ) -> Result<(), Failure> {
        let Ok(program) = &self.contender.program else { return Ok(()) };
        let runs = &mut self.runs[kind][row];
        if runs.failed.is_some() {
            return Ok(());
        }
        let launch = Launch {
            program: program.clone(),
            transport: self.contender.name.clone(),
            ..launch.clone()
        };
        let subscribers = options.counts[row].saturating_add(1);
        let setup = experiment::setup(1, subscribers, 64, 4 << 20);
        let kind = options.kinds[kind];
        match process_group::run(&launch, &setup, &options.plan(kind), Begin::AtTheGate) {
            Ok(outcome) => {
                let sent = outcome.senders.first().copied().unwrap_or_default();
                runs.measured.push(Measured::of(sent, &outcome.receivers, kind));
                self.about = Some(outcome.about);
                Ok(())
            }
            Err(Failure::Interrupted) => Err(Failure::Interrupted),
            Err(failure) if self.contender.is_toroni() => Err(failure),
            Err(failure) => {
                runs.failed = Some(failure.to_string());
                // What has never run cannot be started.
                if self.about.is_none() {
                    self.contender.program = Err(format!("it cannot be started: {failure}"));
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(ns: (u64, u64), sleeps: (u64, u64), messages: u64) -> Used {
        Used {
            silent_ns: ns.0,
            busy_ns: ns.1,
            silent_length_ns: 1_000_000_000,
            busy_length_ns: 1_000_000_000,
            silent_sleeps: sleeps.0,
            busy_sleeps: sleeps.1,
            messages,
            publishing_ns: 1_000_000_000,
        }
    }

    #[test]
    fn what_sleepers_cost_in_silence_is_taken_off() {
        let sent = used((0, 1_000_000), (0, 500), 500);
        let received = [
            used((1_000, 2_001_000), (4, 504), 500),
            used((5_000, 505_000), (8, 18), 0),
            used((5_000, 5_000), (8, 8), 0),
        ];
        let measured = Measured::of(sent, &received, Kind::Others);
        assert!((measured.each_ns - 7_000.0).abs() < 1e-6, "{measured:?}");
        assert!((measured.sleeps - 10.0).abs() < 1e-6, "{measured:?}");
        assert_eq!(measured.lost, 0);
        assert!(Measured::of(sent, &received[..1], Kind::Others).sleeps.abs() < 1e-9);
        // The same took three times as long as the silence.
        let long = |used: Used| Used { busy_length_ns: 3_000_000_000, ..used };
        let measured = Measured::of(long(sent), &received.map(long), Kind::Others);
        assert!((measured.each_ns - 7_000.0 + 2.0 * 11_000.0 / 500.0).abs() < 1e-6, "{measured:?}");
    }

    #[test]
    fn bystanders_that_want_the_messages_may_lose_some() {
        let sent = used((0, 0), (0, 0), 500);
        let received = [500, 490, 499].map(|messages| used((0, 0), (0, 0), messages));
        assert_eq!(Measured::of(sent, &received, Kind::Same).lost, 11);
        assert_eq!(Measured::of(sent, &received, Kind::Others).lost, 0);
        let lossy =
            Runs { measured: vec![Measured::of(sent, &received, Kind::Same)], failed: None };
        assert!(lossy.summary(|run| run.each_ns).is_none());
        assert_eq!(lossy.cell(|run| run.each_ns).text, "lost");
    }
}
