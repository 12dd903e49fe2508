//! The connections of the proactor paper: the columns of the harness, tokio and compio, in turn in one run.

use toroni_bench_harness::Failure;
use toroni_bench_harness::experiment::connections::{self, Column, Kind};
use toroni_bench_harness::process_group::{Launch, NoObserver, Program};
use toroni_bench_harness::report::Report;
use toroni_bench_harness::transport::Transport as _;
use toroni_bench_harness::transports::Toroni;

use crate::cli::ProactorWithPeers;
use crate::peers::foreign::{self, Missing};

/// The columns of the peers; the first word names the program. Dealt, it has a runtime for each thread; compio has no
/// other.
const PEERS: [&str; 5] = ["tokio", "tokio pairs", "tokio apart", "compio pairs", "compio apart"];

pub(crate) fn run(options: &ProactorWithPeers) -> Result<Report, Failure> {
    let path = std::env::current_exe().map_err(Failure::of("find this program"))?;
    let own = Program { path, arguments: vec!["child".to_owned()] };
    let mut columns = connections::own_columns(&own, options.measured.asked_for());
    columns.extend(PEERS.map(|column| Column {
        name: column.to_owned(),
        kind: Kind::Rival,
        program: peer(options, column),
    }));
    let launch = Launch::new(own, Toroni::NAME, &NoObserver);
    options.measured.compare(&launch, &columns)
}

fn peer(options: &ProactorWithPeers, column: &str) -> Result<Program, String> {
    if !options.measured.wants(column) {
        return Err("it was not asked for".to_owned());
    }
    let name = column.split(' ').next().unwrap_or(column);
    eprintln!("building {name}, which may take minutes the first time");
    let path = foreign::build(&options.peers_directory, name).map_err(|Missing(reason)| reason)?;
    Ok(Program { path, arguments: Vec::new() })
}
