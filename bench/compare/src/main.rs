//! Toroni beside other transports, and beside what the machine itself takes.
//!
//! ```text
//!   cli        the command line                    README.md says how each peer is configured,
//!   floors/    copies, cache lines, wake-ups        and how to add one
//!   peers/     contenders, in turn, on the rig; ratios and goals
//!   proactor   the sessions of the proactor paper, with tokio and compio
//! ```
//!
//! What it deliberately does not know: how a transport works. Those that need no foreign library are in
//! the crate `toroni-bench-harness`; the others are programs of a workspace of their own, `bench/peers`, and a
//! peer that cannot be built or started is part of every report, with the reason.

mod cli;
mod floors;
mod peers;
mod proactor;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use toroni_bench_harness::report::Report;
use toroni_bench_harness::{Failure, child, transports};

use cli::{Arguments, Command, Output};

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
            // The parent has been told what went wrong, and tells the user.
            let done = child::run(transports::perform).is_ok();
            return if done { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Command::FloorPartner { kind, board, core } => floors::partner_main(&kind, &board, core)
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

/// Prints the reports, and draws what is in them: one picture for each, named after it if there are
/// several.
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
