//! The workloads, one line each in the table below, and what a workload is.
//!
//! `toroni-bench NAME`, its help and its processes come from the table. `toroni-bench proactor` and
//! `bystanders` also measure peers, so the program defines them. CONTRIBUTING.md says how to add a workload.

use crate::Failure;
use crate::child::Child;
use crate::options::{Output, Root};
use crate::process_group::Launch;
use crate::report::Report;
use crate::transport::Transport;
use crate::workload::call::Call;
use crate::workload::ping_pong::PingPong;
use crate::{experiment, workload};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;

workloads! {
    workload::throughput::Throughput,
    workload::latency::Latency,
    workload::stress::Stress,
    experiment::rmp_tcp::RmpTcp,
    experiment::p2mp::P2mp,
    experiment::sweep::Sweep,
    experiment::fanout::Fanout,
    experiment::scale::Scaling,
    experiment::jitter::Jitter,
}

/// A workload with its options: the implementing type holds what the command line can say. Its
/// `#[command(after_help)]` holds an example and what a reader of the help must know besides.
pub trait Workload: Args {
    /// Names it on the command line and in reports.
    const NAME: &'static str;
    /// Says in one line of help what it measures.
    const SUMMARY: &'static str;
    /// Whether its report has a chart. If not, the command line has no `--plot`.
    const HAS_CHART: bool = true;
    /// What the processes of its runs do.
    type Work: Work;

    /// Measures and returns the report.
    ///
    /// # Errors
    /// If an option makes no sense, a run fails, or a message is lost.
    fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure>;
}

/// What the processes of one run do. It travels to them as JSON, in their [`Job`](crate::job::Job).
pub trait Work: Serialize + DeserializeOwned {
    /// Names it in jobs.
    const NAME: &'static str;
    /// What each sender reports.
    type Sent: DeserializeOwned;
    /// What each receiver reports.
    type Received: DeserializeOwned;

    /// Does the part of this process, over `T`. An experiment that compares channels of its own ignores `T`.
    ///
    /// # Errors
    /// If it fails.
    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure>;
}

/// An entry of the table of workloads.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// See [`Workload::NAME`].
    pub name: &'static str,
    /// Returns its command line.
    pub command: fn() -> Command,
    select: fn(&ArgMatches) -> Result<Selected, clap::Error>,
}

impl Entry {
    fn of<W: Workload + 'static>() -> Self {
        Self {
            name: W::NAME,
            command: || {
                let command = Root::augment_args(W::augment_args(Command::new(W::NAME)));
                let command = Output::augment_args(command);
                let command = command.mut_arg("plot", |plot| plot.hide(!W::HAS_CHART));
                // After the arguments: each flattened group of them would bring a summary of its own.
                command.about(W::SUMMARY).long_about(None)
            },
            select: |matches| {
                let workload = W::from_arg_matches(matches)?;
                let root = Root::from_arg_matches(matches)?;
                let output = Output::from_arg_matches(matches)?;
                if output.plot.is_some() && !W::HAS_CHART {
                    let text =
                        format!("the report of {} has no chart: leave out --plot\n", W::NAME);
                    return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
                }
                Ok(Selected { run: Box::new(move |launch| workload.run(launch)), root, output })
            },
        }
    }
}

type Run = dyn Fn(&Launch<'_>) -> Result<Report, Failure>;

/// The workload that a command line asks for, with its options.
pub struct Selected {
    run: Box<Run>,
    /// Where the processes of its runs meet.
    pub root: Root,
    /// What to do with the report.
    pub output: Output,
}

impl Selected {
    /// Measures; see [`Workload::run`].
    ///
    /// # Errors
    /// See [`Workload::run`].
    pub fn run(&self, launch: &Launch<'_>) -> Result<Report, Failure> {
        (self.run)(launch)
    }
}

impl FromArgMatches for Selected {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "name a workload\n");
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let entry = all().into_iter().find(|entry| entry.name == name).ok_or_else(missing)?;
        (entry.select)(matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Selected {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommand_required(true).subcommands(all().into_iter().map(|it| (it.command)()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        all().iter().any(|entry| entry.name == name)
    }
}

/// Makes [`all`] and [`perform`] of the table.
macro_rules! workloads {
    ($($workload:ty),+ $(,)?) => {
        /// Returns all workloads of the table, in the order of the help.
        #[must_use]
        pub fn all() -> Vec<Entry> {
            vec![$(Entry::of::<$workload>()),+]
        }

        /// Does the work that a child was given, over `T`.
        ///
        /// # Errors
        /// If this program does not know the work, or the work fails.
        pub fn perform<T: Transport>(child: &mut Child) -> Result<(), Failure> {
            $(if let Some(work) = child.work::<<$workload as Workload>::Work>()? {
                return work.perform::<T>(child);
            })+
            // Commands of the program that are not in the table ask for these.
            if let Some(work) = child.work::<PingPong>()? {
                return work.perform::<T>(child);
            }
            if let Some(work) = child.work::<Call>()? {
                return work.perform::<T>(child);
            }
            if let Some(work) = child.work::<experiment::connections::Task>()? {
                return work.perform::<T>(child);
            }
            if let Some(work) = child.work::<experiment::bystanders::Plan>()? {
                return work.perform::<T>(child);
            }
            if let Some(work) = child.work::<workload::values::Keeping>()? {
                return work.perform::<T>(child);
            }
            Err(Failure::new(format!("this program does not know the work {:?}", child.job().work)))
        }
    };
}
use workloads;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_workload_has_a_name_of_its_own_and_a_sound_command_line() {
        let names: BTreeSet<&str> = all().iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), all().len());
        for entry in all() {
            (entry.command)().debug_assert();
            let command = (entry.command)().no_binary_name(true);
            let matches = command.try_get_matches_from(["--quick", "--json"]).unwrap();
            assert!((entry.select)(&matches).unwrap().output.json, "{}", entry.name);
            let help = (entry.command)().render_help().to_string();
            assert!(help.contains("Example") && help.contains("--repetitions"), "{help}");
        }
    }

    /// A workload whose report has no chart.
    #[derive(Args, Debug)]
    struct Uncharted {
        #[command(flatten)]
        _run: crate::options::RunOptions,
    }

    impl Workload for Uncharted {
        const NAME: &'static str = "uncharted";
        const SUMMARY: &'static str = "Nothing";
        const HAS_CHART: bool = false;
        type Work = PingPong;

        fn run(&self, _: &Launch<'_>) -> Result<Report, Failure> {
            Ok(Report::default())
        }
    }

    #[test]
    fn a_workload_without_a_chart_refuses_to_plot() {
        let entry = Entry::of::<Uncharted>();
        let select = |arguments: &[&str]| {
            let command = (entry.command)().no_binary_name(true);
            (entry.select)(&command.try_get_matches_from(arguments).unwrap())
        };
        assert!(select(&["--json"]).is_ok());
        let refused = select(&["--plot", "x.svg"]).err().unwrap();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("uncharted has no chart: leave out --plot"));
        assert!(!(entry.command)().render_help().to_string().contains("--plot"));
        assert!((all()[0].command)().render_help().to_string().contains("--plot"));
    }

    #[test]
    fn a_command_line_selects_a_workload() {
        let program = || Selected::augment_subcommands(Command::new("bench")).no_binary_name(true);
        let matches = program().try_get_matches_from(["stress", "--plot", "x.svg"]).unwrap();
        let selected = Selected::from_arg_matches(&matches).unwrap();
        assert_eq!(selected.output.plot.as_deref(), Some(std::path::Path::new("x.svg")));
        assert!(program().try_get_matches_from(["speed"]).is_err());
        assert!(Selected::has_subcommand("stress") && !Selected::has_subcommand("speed"));
    }
}
