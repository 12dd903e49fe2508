//! Options that workloads have in common.

use crate::run_directory::DEFAULT_ROOT;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
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

/// Where the processes of a run meet.
#[derive(Args, Clone, Debug, Default)]
pub struct Root {
    /// Directory for the buses and pipes of the runs [default: TORONI_DIR, or else /dev/shm]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Root {
    /// Returns the directory. As in the library, an empty TORONI_DIR counts as not set.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let variable = || std::env::var_os("TORONI_DIR").filter(|value| !value.is_empty());
        let given = self.dir.clone().or_else(|| variable().map(PathBuf::from));
        given.unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT))
    }
}

/// What to do with a report.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub json: bool,
    /// Write a chart to this file, as SVG
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(toroni_chart::parse_path))]
    pub plot: Option<PathBuf>,
}

/// Replaces a default list, if the command line has one.
pub(crate) fn replace<T: Clone>(list: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *list = given.to_vec();
    }
}
