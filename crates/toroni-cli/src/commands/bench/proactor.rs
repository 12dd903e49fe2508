//! `toroni bench proactor`.

use super::options::Shared;
use clap::Args;
use toroni_bench_harness::experiment::connections::Options;

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench proactor --rows 1,9 --plot proactor.svg

The test of the proactor paper (section 13): clients write blocks, and servers write back what they read. All run \
in one process on one pool of threads. The handler of each completed read and write takes a delay; a row with a \
delay is measured twice, with handlers that sleep and with handlers that spin.")]
pub(crate) struct Proactor {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Rows of the paper's table, counting from 1 [default: all 12; five with --quick]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) rows: Vec<usize>,
    /// Columns, by their titles in the table [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Milliseconds per run [default: 300; 100 with --quick, 1 to 5 s as in the paper with --full]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub(crate) milliseconds: Option<u32>,
}

impl Proactor {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.milliseconds = self.milliseconds.or(options.milliseconds);
        options.columns.clone_from(&self.columns);
        if !self.rows.is_empty() {
            options.rows.clone_from(&self.rows);
        }
        options
    }
}
