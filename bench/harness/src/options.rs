//! Options that workloads have in common.

use crate::Failure;
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// Checks that a chart can be written to this file. Call it before a measurement, which may take minutes. Leaves no
/// new file behind, because the measurement may fail.
///
/// # Errors
/// If the file can be neither made nor opened for writing.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let checked = match File::create_new(path) {
        Ok(_) => std::fs::remove_file(path),
        // Append, because it may be the chart of an earlier run.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    };
    checked.map_err(cannot_write(path))
}

/// Writes a chart to this file.
///
/// # Errors
/// If it cannot be written.
pub fn write_chart(path: &Path, svg: &str) -> Result<(), Failure> {
    std::fs::write(path, svg).map_err(cannot_write(path))
}

fn cannot_write(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    Failure::of(format!("write {}", path.display()))
}

/// Replaces a default list, if the command line has one.
pub(crate) fn replace<T: Clone>(list: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *list = given.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::Directory;

    #[test]
    fn the_check_of_a_file_changes_nothing() {
        let directory = Directory::new();
        let path = directory.path().join("chart.svg");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        write_chart(&path, "<svg/>").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "<svg/>");
        for wrong in [directory.path().to_owned(), directory.path().join("missing/chart.svg")] {
            let said = check_writable(&wrong).unwrap_err().to_string();
            assert!(said.starts_with(&format!("cannot write {}: ", wrong.display())), "{said}");
        }
    }
}
