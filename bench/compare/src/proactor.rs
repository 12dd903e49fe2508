//! The sessions of the proactor paper: the rig's own columns, tokio and compio, in turn in one run.

use toroni_bench_harness::Failure;
use toroni_bench_harness::experiment::connections::{self, Column, Kind, Options};
use toroni_bench_harness::process_group::{Launch, NoObserver, Program};
use toroni_bench_harness::report::Report;
use toroni_bench_harness::transport::Transport as _;
use toroni_bench_harness::transports::Toroni;
use toroni_bench_harness::workload::RunLength;

use crate::cli::Proactor;
use crate::peers::foreign::{self, Missing};

const PEERS: [&str; 2] = ["tokio", "compio"];

/// Measures what the command line asks for.
///
/// # Errors
/// If a row is asked for that there is not, or a run fails.
pub(crate) fn run(options: &Proactor) -> Result<Report, Failure> {
    let path = std::env::current_exe().map_err(Failure::of("find this program"))?;
    let own = Program { path, arguments: vec!["child".to_owned()] };
    let mut columns = connections::own_columns(&own);
    columns.extend(PEERS.map(|name| Column {
        name: name.to_owned(),
        kind: Kind::Peer,
        program: peer(options, name),
    }));
    let launch = Launch::new(own, Toroni::NAME, &NoObserver);
    connections::run(&launch, &measured(options), &columns)
}

fn peer(options: &Proactor, name: &str) -> Result<Program, String> {
    if !options.columns.is_empty() && options.columns.iter().all(|wanted| wanted != name) {
        return Err("it was not asked for".to_owned());
    }
    eprintln!("building {name}, which may take minutes the first time");
    let path = foreign::build(&options.peers_directory, name).map_err(|Missing(reason)| reason)?;
    Ok(Program { path, arguments: Vec::new() })
}

fn measured(options: &Proactor) -> Options {
    let mut measured = Options::of(match (options.quick, options.full) {
        (true, _) => RunLength::Quick,
        (_, true) => RunLength::Full,
        _ => RunLength::Usual,
    });
    measured.columns.clone_from(&options.columns);
    measured.milliseconds = options.milliseconds.or(measured.milliseconds);
    if !options.rows.is_empty() {
        measured.rows.clone_from(&options.rows);
    }
    measured.repetitions = options.repetitions.unwrap_or(measured.repetitions);
    measured
}
