//! Toroni and its peers, in turn in one run, and the ratios between them.
//!
//! - [`contender`]: the transports, and the manners in which messages are handed to them.
//! - [`foreign`]: builds the peers that are programs of their own. A peer that cannot be built is missing, and the report
//!   says why.
//! - [`field`]: all contenders of a run. One that fails is named and left out; the others continue.
//! - [`throughput`], [`latency`], [`many`], [`values`]: one report each.

mod contender;
mod field;
pub(crate) mod foreign;
mod latency;
mod many;
mod presenting;
pub(crate) mod rate;
pub(crate) mod throughput;
mod values;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::Report;
use toroni_bench_harness::transport::Wait;

use crate::cli::{Peers, WaitKind, Workload};
use contender::peers_of;
use field::Field;

/// What to measure.
struct Plan {
    sizes: Vec<usize>,
    /// Whether the command line chose the sizes.
    sizes_are_chosen: bool,
    waits: Vec<Wait>,
    repetitions: u32,
    /// Duration of a throughput run.
    seconds: f64,
    /// Round trips of a latency run: polling, and blocking.
    rounds: (u64, u64),
    quick: bool,
}

/// Bytes that each transport may have in flight: ring, term, queue or buffer.
pub(crate) const CAPACITY_BYTES: u64 = 4 << 20;

pub(crate) fn run(options: &Peers) -> Result<Vec<Report>, Failure> {
    let plan = Plan::of(options);
    let wanted = options.wanted();
    check_names(&options.peers, wanted)?;
    let mut programs = BTreeMap::new();
    let mut build = |name| {
        let program = programs.entry(name).or_insert_with(|| {
            foreign::build(&options.packages.peers_directory, name)
                .inspect_err(|missing| eprintln!("{name} is missing: {}", missing.0))
        });
        program.clone()
    };
    // All are built before the first measurement, each once. Workloads with the same peers have the same field: one that
    // cannot be started is missing in all their reports.
    let mut fields: BTreeMap<Vec<&str>, Field> = BTreeMap::new();
    for workload in wanted {
        if let Entry::Vacant(place) = fields.entry(peers_of(*workload)) {
            let names = place.key().clone();
            place.insert(Field::gather(names, &options.peers, &mut build)?);
        }
    }
    let mut reports = Vec::new();
    for workload in wanted {
        let Some(field) = fields.get_mut(&peers_of(*workload)) else { continue };
        reports.push(match workload {
            Workload::Throughput => throughput::run(field, &plan)?,
            Workload::Latency => latency::run(field, &plan)?,
            Workload::Many => many::run(field, &plan)?,
            Workload::Values => values::run(field, &plan)?,
        });
    }
    Ok(reports)
}

/// Checks that each of these peers takes part in one of these workloads.
fn check_names(peers: &[String], wanted: &[Workload]) -> Result<(), Failure> {
    let mut known: Vec<&str> = Vec::new();
    for name in wanted.iter().flat_map(|workload| peers_of(*workload)) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    match peers.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known = known.join(", ");
            Err(Failure::new(format!("there is no peer {unknown:?}: use some of {known}")))
        }
    }
}

impl Plan {
    fn of(options: &Peers) -> Plan {
        let quick = options.quick;
        let mut sizes = options.sizes.clone();
        if sizes.is_empty() {
            sizes = if quick { vec![8, 1024] } else { vec![8, 64, 256, 1024, 65_536] };
        }
        let waits = match options.wait {
            Some(WaitKind::Busy) => vec![Wait::Busy],
            Some(WaitKind::Blocking) => vec![Wait::Blocking],
            None => vec![Wait::Busy, Wait::Blocking],
        };
        Plan {
            sizes_are_chosen: !options.sizes.is_empty(),
            sizes,
            waits,
            repetitions: options.repetitions.unwrap_or(if quick { 3 } else { 5 }),
            seconds: if quick { 0.1 } else { 0.25 },
            rounds: if quick { (50_000, 2_000) } else { (200_000, 5_000) },
            quick,
        }
    }

    /// Returns the sizes that the command line chose, or else those that a workload prefers.
    fn sizes_up_to(&self, most: usize, preferred: &[usize]) -> Vec<usize> {
        let of_them = |size: &&usize| preferred.contains(size) || self.sizes_are_chosen;
        self.sizes.iter().filter(of_them).copied().filter(|size| *size <= most).collect()
    }
}

fn wait_name(wait: Wait) -> &'static str {
    match wait {
        Wait::Busy => "busy",
        Wait::Blocking => "blocking",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_no_wanted_workload_knows_is_refused() {
        let refused = |peer: &str, wanted: &[Workload]| {
            check_names(&[peer.to_owned()], wanted).err().map(|error| error.to_string())
        };
        let error = refused("carrier-pigeon", &[Workload::Many]).unwrap();
        assert!(error.contains("carrier-pigeon") && error.contains("nng"), "{error}");
        let error = refused("nng", &[Workload::Values]).unwrap();
        assert!(error.ends_with("use some of iceoryx2, zenoh, nats, mosquitto"), "{error}");
        assert_eq!(refused("nng", &[Workload::Values, Workload::Many]), None);
        assert_eq!(refused("mosquitto", &[Workload::Values]), None);
    }
}
