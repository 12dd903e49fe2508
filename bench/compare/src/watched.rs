//! A measurement with a progress bar, which SIGINT, SIGTERM and SIGHUP end.

use crate::child;
use std::cell::RefCell;
use toroni_bench_harness::options::Root;
use toroni_bench_harness::process_group::{Launch, Observer};
use toroni_bench_harness::report::Report;
use toroni_bench_harness::transport::Transport as _;
use toroni_bench_harness::transports::Toroni;
use toroni_bench_harness::{Failure as Failed, cache_line};
use toroni_shell::failure::Failure;
use toroni_shell::progress::Progress;
use toroni_shell::stop::{GracePeriod, Stop};

/// Measures. Adds to the conditions of the report what a cache line took before and after.
pub(crate) fn run(
    root: &Root,
    measure: impl FnOnce(&Launch<'_>) -> Result<Report, Failed>,
) -> Result<Report, Failure> {
    let program = child::program().map_err(crate::failed)?;
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let observer = Terminal { stop, bar: RefCell::default() };
    let mut launch = Launch::new(program, Toroni::NAME, &observer);
    launch.root = root.directory();
    let before = cache_line::one_way_ns();
    let mut report = measure(&launch).map_err(|failure| match failure {
        Failed::Interrupted => observer.stop.interrupted("interrupted"),
        other => crate::failed(other),
    })?;
    report.condition("cache line", cache_line::describe(before, cache_line::one_way_ns()));
    Ok(report)
}

/// Handles signals and shows the progress bar, which is removed when this is dropped.
struct Terminal {
    stop: Stop,
    bar: RefCell<Option<Progress>>,
}

impl Observer for Terminal {
    fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }

    fn progress(&self, done: u64, total: u64) {
        let mut bar = self.bar.borrow_mut();
        bar.get_or_insert_with(|| Progress::new(Some(total))).set(done);
    }
}
