//! Options that workloads have in common.

use clap::Args;
use std::path::PathBuf;

/// How long a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// Less than 20 s: few repetitions and little data. Reports say how many.
    Quick,
    /// One minute to several minutes.
    Usual,
    /// Everything, however long it takes.
    Full,
}

/// The options of every workload.
#[derive(Args, Clone, Debug, Default)]
pub struct RunOptions {
    /// Measure less, in under 20 s: fewer repetitions, smaller volumes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure everything; may take long
    #[arg(long)]
    full: bool,
    /// Number of runs of each table cell, or of the whole benchmark [default: depends on the benchmark]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: Option<u32>,
}

impl RunOptions {
    /// Returns how long the measurement may take.
    #[must_use]
    pub fn length(&self) -> RunLength {
        match (self.quick, self.full) {
            (true, _) => RunLength::Quick,
            (_, true) => RunLength::Full,
            _ => RunLength::Usual,
        }
    }
}

/// What to do with a report.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub json: bool,
    /// Write a chart to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Replaces a default list, if the command line has one.
pub(crate) fn replace<T: Clone>(list: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *list = given.to_vec();
    }
}
