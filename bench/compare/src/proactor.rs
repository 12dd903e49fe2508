//! The connections of the proactor paper: the columns of the harness, and with them tokio and compio, in turn in one run.

use toroni_bench_harness::Failure;
use toroni_bench_harness::experiment::connections::{self, Column, Kind};
use toroni_bench_harness::process_group::{Launch, Program};
use toroni_bench_harness::report::Report;

use crate::cli::Connections;
use crate::peers::foreign::{self, Missing};

/// The columns of the peers; the first word names the program. Dealt, it has a runtime for each thread; compio has no
/// other.
const PEERS: [&str; 5] = ["tokio", "tokio pairs", "tokio apart", "compio pairs", "compio apart"];

pub(crate) fn run(options: &Connections, launch: &Launch<'_>) -> Result<Report, Failure> {
    let asked_for = options.measured.asked_for();
    let mut columns = connections::own_columns(&launch.program, asked_for);
    let is_peer = |column: &String| PEERS.contains(&column.as_str());
    if options.with_peers || asked_for.iter().any(is_peer) {
        columns.extend(PEERS.map(|column| Column {
            name: column.to_owned(),
            kind: Kind::Rival,
            program: peer(options, column),
        }));
    }
    options.measured.compare(launch, &columns)
}

fn peer(options: &Connections, column: &str) -> Result<Program, String> {
    if !options.measured.wants(column) {
        return Err("it was not asked for".to_owned());
    }
    let name = column.split(' ').next().unwrap_or(column);
    foreign::build(&options.packages.peers_directory, name).map_err(|Missing(reason)| reason)
}
