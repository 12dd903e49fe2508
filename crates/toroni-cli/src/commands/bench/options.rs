//! The command line of `toroni bench`. The workloads and their options come from the harness.

use clap::Args;
use toroni_bench_harness::registry::Selected;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni bench throughput --quick
  toroni bench throughput --plot throughput.svg
  toroni bench throughput --json | jq -c 'select(.kind == \"goal\" and .met == false)'

Each writer and each reader is a process of its own, and another process creates the bus; `proactor` measures \
connections within one process. A benchmark uses a bus of its own in /dev/shm (or --dir) and removes it at the \
end. Compare only ratios of results that were measured in the same run on an otherwise idle machine.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) workload: Selected,
}
