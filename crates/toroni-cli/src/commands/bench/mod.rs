//! `toroni bench`: the workloads of the harness on this library. The harness is a crate of its own; here are the progress
//! bar and the output.

pub(crate) mod options;

use options::Bench;
use std::cell::RefCell;
use std::process::ExitCode;
use toroni_bench_harness::process_group::{Launch, Observer, Program};
use toroni_bench_harness::report::Report;
use toroni_bench_harness::transports::{self, Toroni};
use toroni_bench_harness::{cache_line, child, transport::Transport};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::progress::Progress;
use toroni_shell::stop::{GracePeriod, Stop};

/// The arguments of a child process of a benchmark.
const CHILD: [&str; 2] = ["bench", "child"];

/// Whether this process is a child process of a benchmark. `main` checks this before it builds the definitions of all
/// commands, which would dominate the start of a child; some benchmarks measure from there.
pub(crate) fn is_child() -> bool {
    std::env::args_os().skip(1).eq(CHILD)
}

/// Runs a child process of a benchmark.
pub(crate) fn run_child() -> ExitCode {
    match child::run(transports::perform) {
        Ok(()) => ExitCode::SUCCESS,
        // The child has reported the error to its parent, which reports it to the user.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs a benchmark and prints its report.
pub(crate) fn run(location: &BusLocation, arguments: &Bench) -> Result<(), Failure> {
    let workload = &arguments.workload;
    let failed = |failure: toroni_bench_harness::Failure| Failure::Failed(failure.to_string());
    if let Some(path) = &workload.output.plot {
        toroni_chart::check_writable(path).map_err(|error| failed(error.into()))?;
    }
    let path = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find this program: {error}")))?;
    let arguments = CHILD.map(str::to_owned).to_vec();
    let observer =
        BenchObserver { stop: Stop::install(GracePeriod::Unlimited)?, bar: RefCell::default() };
    let mut launch = Launch::new(Program { path, arguments }, Toroni::NAME, &observer);
    if let Some(directory) = &location.dir {
        launch.root.clone_from(directory);
    }
    let before = cache_line::one_way_ns();
    let mut report = workload.run(&launch).map_err(|failure| match failure {
        toroni_bench_harness::Failure::Interrupted => observer.stop.interrupted("interrupted"),
        other => failed(other),
    })?;
    let cache_line = cache_line::describe(before, cache_line::one_way_ns());
    report.conditions.push(("cache line".to_owned(), cache_line));
    // Remove the bar before the report is printed.
    observer.bar.take();

    let printed = print(&report, workload.output.json);
    // After the report, which is not lost if the chart cannot be written. A reader that has left does not cost the
    // chart either.
    if let Some(path) = &workload.output.plot {
        let svg = report.svg().map_err(failed)?;
        toroni_chart::write(path, &svg).map_err(|error| failed(error.into()))?;
    }
    printed
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    let mut output = Output::new()?;
    if json {
        for line in report.json() {
            output.json(&line)?;
        }
    } else {
        output.bytes(report.human().as_bytes())?;
    }
    output.flush()
}

/// Handles signals and shows the progress bar.
struct BenchObserver {
    stop: Stop,
    bar: RefCell<Option<Progress>>,
}

impl Observer for BenchObserver {
    fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }

    fn progress(&self, done: u64, total: u64) {
        let mut bar = self.bar.borrow_mut();
        bar.get_or_insert_with(|| Progress::new(Some(total))).set(done);
    }
}
