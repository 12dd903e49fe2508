//! Compares Toroni with other transports, and with the floors of the machine.
//!
//! ```text
//!   cli        the command line
//!   machines   the network protocol alone
//!   net/       the network protocol between hosts, beside plain datagrams
//!   floors/    copies, cache lines, wake-ups
//!   peers/     contenders, in turn, on the bench harness; ratios and goals
//!   sequencer/ the sequencer, beside TCP and NATS JetStream
//!   proactor   the connections of the proactor paper, with tokio and compio
//! ```
//!
//! `bench/README.md` says how each peer is configured, and how to add one.
//!
//! This program deliberately does not know how a transport works. Transports that need no foreign library are in the crate
//! `toroni-bench-harness`; the others are programs in a workspace of their own, `bench/peers`. A peer that cannot be built
//! or started is part of every report, with the reason.

#![allow(missing_docs, reason = "this program is not published")]

mod cli;
mod floors;
mod machines;
mod net;
mod peers;
mod proactor;
mod sequencer;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use toroni_bench_harness::options::Output;
use toroni_bench_harness::report::Report;
use toroni_bench_harness::{Failure, child, transports};

use cli::{Arguments, Command, Peers};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Floors { quick, json } => {
            let length = if quick { floors::RunLength::QUICK } else { floors::RunLength::FULL };
            floors::report(length)
                .map_err(|error| Failure::new(error.to_string()))
                .and_then(|report| print(&[report], &Output { json, plot: None }))
        }
        Command::Machines { quick, json } => {
            let length = if quick { machines::RunLength::QUICK } else { machines::RunLength::FULL };
            machines::report(length)
                .and_then(|report| print(&[report], &Output { json, plot: None }))
        }
        Command::Net(options) => {
            net::run(&options).and_then(|reports| print(&reports, &options.output))
        }
        Command::Peers(options) => plots_of_peers(&options)
            .and_then(|plots| check_plots(&plots))
            .and_then(|()| peers::run(&options))
            .and_then(|reports| print(&reports, &options.output)),
        Command::Proactor(options) => check_plots(options.output.plot.as_slice())
            .and_then(|()| proactor::run(&options))
            .and_then(|report| print(&[report], &options.output)),
        Command::Sequencer(options) => {
            sequencer::report(&options).and_then(|report| print(&[report], &options.output))
        }
        Command::SequencerMember(options) => sequencer::member(options),
        Command::Child => {
            // The child has reported the error to its parent, which reports it to the user.
            let done = child::run(|child| {
                net::throughput::perform(child).unwrap_or_else(|| transports::perform(child))
            })
            .is_ok();
            return if done { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Command::FloorPartner { kind, pages, core } => floors::partner_main(&kind, &pages, core)
            .map_err(|error| Failure::new(error.to_string())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("toroni-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the files of the charts that `--plot` asks for.
fn plots_of_peers(options: &Peers) -> Result<Vec<PathBuf>, Failure> {
    let Some(plot) = &options.output.plot else { return Ok(Vec::new()) };
    let wanted = options.wanted();
    let charts = wanted.iter().filter(|workload| workload.has_chart());
    let paths: Vec<_> =
        charts.map(|workload| plot_path(plot, workload.report(), wanted.len())).collect();
    if paths.is_empty() {
        return Err(Failure::new(
            "the report of many has no chart: leave out --plot, or also measure throughput or latency",
        ));
    }
    Ok(paths)
}

/// Checks before the measurement, which may take an hour, that the charts can be written.
fn check_plots(paths: &[PathBuf]) -> Result<(), Failure> {
    Ok(paths.iter().try_for_each(|path| toroni_chart::check_writable(path))?)
}

/// Returns the file for the chart of a report. If there are several `reports`, each file is named after its report.
fn plot_path(plot: &Path, report: &str, reports: usize) -> PathBuf {
    if reports == 1 {
        return plot.to_owned();
    }
    let stem = plot.file_stem().unwrap_or_default().to_string_lossy();
    plot.with_file_name(format!("{stem}-{report}.svg"))
}

/// Prints the reports, and then draws their charts, in one file for each report.
fn print(reports: &[Report], output: &Output) -> Result<(), Failure> {
    let mut text = String::new();
    for report in reports {
        if output.json {
            report.json().iter().for_each(|line| text.push_str(&format!("{line}\n")));
        } else {
            text.push_str(&report.human());
            text.push('\n');
        }
    }
    let mut printed = std::io::stdout().lock();
    printed
        .write_all(text.as_bytes())
        .and_then(|()| printed.flush())
        .map_err(Failure::of("print"))?;
    let Some(plot) = &output.plot else { return Ok(()) };
    for report in reports.iter().filter(|report| !report.charts.is_empty()) {
        toroni_chart::write(&plot_path(plot, &report.name, reports.len()), &report.svg()?)?;
    }
    Ok(())
}
