//! Processor time of a message while other subscribers sleep: Toroni, and with it the peers that have topics, in turn in one
//! run.

use toroni_bench_harness::Failure;
use toroni_bench_harness::experiment::bystanders::Contender;
use toroni_bench_harness::process_group::Launch;
use toroni_bench_harness::report::Report;

use crate::cli::BesidePeers;
use crate::peers::foreign::{self, Missing};

/// The peers that have topics. Each is the package `toroni-peer-NAME` in bench/peers.
const PEERS: [&str; 5] = ["zeromq", "nng", "iceoryx2", "zenoh", "dbus"];

pub(crate) fn run(options: &BesidePeers, launch: &Launch<'_>) -> Result<Report, Failure> {
    options.measured.compare(launch, &contenders(options, launch)?)
}

fn contenders(options: &BesidePeers, launch: &Launch<'_>) -> Result<Vec<Contender>, Failure> {
    let asked_for = &options.peers;
    if let Some(unknown) = asked_for.iter().find(|name| !PEERS.contains(&name.as_str())) {
        let known = PEERS.join(", ");
        return Err(Failure::new(format!(
            "there is no peer with topics {unknown:?}: use some of {known}"
        )));
    }
    let is_wanted = |name: &&str| match &asked_for[..] {
        [] => options.with_peers,
        some => some.iter().any(|other| other == name),
    };
    let peers = PEERS.into_iter().filter(is_wanted).map(|name| {
        let program = foreign::build(&options.packages.peers_directory, name);
        let program = program.map_err(|Missing(reason)| reason);
        Contender { name: name.to_owned(), program }
    });
    Ok(std::iter::once(Contender::toroni(launch)).chain(peers).collect())
}
