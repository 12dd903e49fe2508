//! The child processes of a run. They are this program again, with one word.

use crate::net;
use std::process::ExitCode;
use toroni_bench_harness::process_group::Program;
use toroni_bench_harness::{Failure, child, transports};

const CHILD: &str = "child";

/// Whether this process is a child process of a run. `main` checks this before it builds the definitions of all
/// commands, which would dominate the start of a child; some workloads measure from there.
pub(crate) fn is_child() -> bool {
    std::env::args_os().skip(1).eq([CHILD])
}

/// Runs a child process.
pub(crate) fn run() -> ExitCode {
    let done = child::run(|child| {
        net::throughput::perform(child).unwrap_or_else(|| transports::perform(child))
    });
    // The child has reported the error to its parent, which reports it to the user.
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the program that a run starts for each child.
pub(crate) fn program() -> Result<Program, Failure> {
    let path = std::env::current_exe().map_err(Failure::of("find this program"))?;
    Ok(Program { path, arguments: vec![CHILD.to_owned()] })
}
