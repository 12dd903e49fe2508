//! Compares Toroni with other transports, and with the floors of the machine.
//!
//! ```text
//!   cli        the command line
//!   floors/    copies, cache lines, wake-ups
//!   peers/     contenders, in turn, on the bench harness; ratios and goals
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
mod peers;
mod proactor;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use toroni_bench_harness::options::Output;
use toroni_bench_harness::report::Report;
use toroni_bench_harness::{Failure, child, transports};

use cli::{Arguments, Command};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Floors { quick, output } => {
            let length = if quick { floors::RunLength::QUICK } else { floors::RunLength::FULL };
            floors::report(length)
                .map_err(|error| Failure::new(error.to_string()))
                .and_then(|report| print(&[report], &output))
        }
        Command::Peers(options) => {
            peers::run(&options).and_then(|reports| print(&reports, &options.output))
        }
        Command::Proactor(options) => {
            proactor::run(&options).and_then(|report| print(&[report], &options.output))
        }
        Command::Child => {
            // The child has reported the error to its parent, which reports it to the user.
            let done = child::run(transports::perform).is_ok();
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

/// Prints the reports and draws their charts, in one file for each report. If there are several, files are named after them.
fn print(reports: &[Report], output: &Output) -> Result<(), Failure> {
    let mut text = String::new();
    for report in reports {
        if output.json {
            report.json().iter().for_each(|line| text.push_str(&format!("{line}\n")));
        } else {
            text.push_str(&report.human());
            text.push('\n');
        }
        if let Some(path) = &output.plot
            && !report.charts.is_empty()
        {
            let path = match reports {
                [_] => path.clone(),
                _ => {
                    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                    path.with_file_name(format!("{stem}-{}.svg", report.name))
                }
            };
            std::fs::write(&path, report.svg()?)
                .map_err(Failure::of(format!("write {}", path.display())))?;
        }
    }
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(Failure::of("print"))
}
