//! Measures Toroni: alone, in published experiments, beside other transports, and beside the floors of the machine.
//!
//! ```text
//!   cli        the command line; the workloads and their options come from the harness
//!   watched    a progress bar, and signals that end a measurement
//!   child      the child processes of a run
//!   machines   the network protocol alone
//!   net/       the network protocol between hosts, beside plain datagrams
//!   floors/    copies, cache lines, wake-ups
//!   peers/     contenders, in turn, on the bench harness; ratios and goals
//!   sequencer/ the sequencer, beside TCP and NATS JetStream
//!   bystanders processor time of a message while others sleep, beside peers with topics
//!   proactor   the connections of the proactor paper, with tokio and compio
//! ```
//!
//! `bench/README.md` says how each peer is configured, and how to add one.
//!
//! This program deliberately does not know how a transport works. Transports that need no foreign library are in the crate
//! `toroni-bench-harness`; the others are programs in a workspace of their own, `bench/peers`. A peer that cannot be built
//! or started is part of every report, with the reason.

#![allow(missing_docs, reason = "this program is not published")]

mod bystanders;
mod child;
mod cli;
mod floors;
mod machines;
mod net;
mod peers;
mod proactor;
mod sequencer;
mod watched;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use toroni_bench_harness::Failure as Failed;
use toroni_bench_harness::options::Output;
use toroni_bench_harness::report::Report;
use toroni_shell::failure::Failure;

use cli::{Arguments, Command, Peers};

fn main() -> ExitCode {
    if child::is_child() {
        return child::run();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        // Help and version. Unlike clap, this fails if they cannot be written.
        Err(error) => return toroni_shell::program::report_usage(&error),
    };
    let Err(failure) = run(arguments.command) else { return ExitCode::SUCCESS };
    let (code, text) = failure.report();
    if let Some(text) = text {
        eprintln!("toroni-bench: {text}");
    }
    ExitCode::from(code)
}

fn run(command: Command) -> Result<(), Failure> {
    let without_chart = |json| Output { json, plot: None };
    match command {
        Command::Workload(workload) => {
            check_plots(workload.output.plot.as_slice())?;
            let report = watched::run(&workload.root, |launch| workload.run(launch))?;
            print(&[report], &workload.output)
        }
        Command::Proactor(options) => {
            check_plots(options.output.plot.as_slice())?;
            let report = watched::run(&options.root, |launch| proactor::run(&options, launch))?;
            print(&[report], &options.output)
        }
        Command::Bystanders(options) => {
            check_plots(options.output.plot.as_slice())?;
            let report = watched::run(&options.root, |launch| bystanders::run(&options, launch))?;
            print(&[report], &options.output)
        }
        Command::Floors { quick, json } => {
            let length = if quick { floors::RunLength::QUICK } else { floors::RunLength::FULL };
            let report =
                floors::report(length).map_err(|error| Failure::Failed(error.to_string()))?;
            print(&[report], &without_chart(json))
        }
        Command::Machines { quick, json } => {
            let length = if quick { machines::RunLength::QUICK } else { machines::RunLength::FULL };
            print(&[machines::report(length).map_err(failed)?], &without_chart(json))
        }
        Command::Net(options) => {
            print(&net::run(&options).map_err(failed)?, &without_chart(options.json))
        }
        Command::Peers(options) => {
            check_plots(&plots_of_peers(&options)?)?;
            print(&peers::run(&options).map_err(failed)?, &options.output)
        }
        Command::Sequencer(options) => {
            let report = sequencer::report(&options).map_err(failed)?;
            print(&[report], &without_chart(options.json))
        }
        Command::SequencerMember(options) => sequencer::member(options).map_err(failed),
        Command::FloorPartner { kind, pages, core } => floors::partner_main(&kind, &pages, core)
            .map_err(|error| Failure::Failed(error.to_string())),
    }
}

/// Converts a failure of a measurement.
fn failed(failure: Failed) -> Failure {
    Failure::Failed(failure.to_string())
}

fn failed_to_draw(error: toroni_chart::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Returns the files of the charts that `--plot` asks for.
fn plots_of_peers(options: &Peers) -> Result<Vec<PathBuf>, Failure> {
    let Some(plot) = &options.output.plot else { return Ok(Vec::new()) };
    let wanted = options.wanted();
    let charts = wanted.iter().filter(|workload| workload.has_chart());
    let paths: Vec<_> =
        charts.map(|workload| plot_path(plot, workload.report(), wanted.len())).collect();
    if paths.is_empty() {
        return Err(Failure::Failed(
            "the report of many has no chart: leave out --plot, or also measure throughput, latency or values"
                .to_owned(),
        ));
    }
    Ok(paths)
}

/// Checks before the measurement, which may take an hour, that the charts can be written.
fn check_plots(paths: &[PathBuf]) -> Result<(), Failure> {
    paths.iter().try_for_each(|path| toroni_chart::check_writable(path)).map_err(failed_to_draw)
}

/// Returns the file for the chart of a report. If there are several `reports`, each file is named after its report.
fn plot_path(plot: &Path, report: &str, reports: usize) -> PathBuf {
    if reports == 1 {
        return plot.to_owned();
    }
    let stem = plot.file_stem().unwrap_or_default().to_string_lossy();
    plot.with_file_name(format!("{stem}-{report}.svg"))
}

/// Prints the reports, and then draws their charts, in one file for each report. Charts are also drawn if the reader of
/// the output has left.
fn print(reports: &[Report], output: &Output) -> Result<(), Failure> {
    let printed = print_text(reports, output.json);
    if let Some(plot) = &output.plot {
        if reports.iter().all(|report| report.charts.is_empty()) {
            return Err(Failure::Failed(format!(
                "wrote no chart to {}: the report has none",
                plot.display()
            )));
        }
        for report in reports.iter().filter(|report| !report.charts.is_empty()) {
            let path = plot_path(plot, &report.name, reports.len());
            let svg = report.svg().map_err(failed)?;
            toroni_chart::write(&path, &svg).map_err(failed_to_draw)?;
        }
    }
    printed
}

fn print_text(reports: &[Report], json: bool) -> Result<(), Failure> {
    let mut output = toroni_shell::output::Output::new()?;
    for (number, report) in reports.iter().enumerate() {
        if json {
            report.json().iter().try_for_each(|line| output.json(line))?;
        } else {
            let gap = if number == 0 { "" } else { "\n" };
            output.bytes(format!("{gap}{}", report.human()).as_bytes())?;
        }
    }
    output.flush()
}
