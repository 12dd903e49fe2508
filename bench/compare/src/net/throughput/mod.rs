//! As many messages a second as two hosts can pass on, beside full datagrams and other libraries.
//!
//! ```text
//!   raw      plain datagrams, full of messages
//!   direct   Toroni without a bus
//!   buses    Toroni from bus to bus
//!   credit   the window of those that have none of their own
//! ```

mod buses;
mod credit;
mod direct;
mod raw;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use toroni_bench_harness::child::Child;
use toroni_bench_harness::job::Role;
use toroni_bench_harness::process_group::{self, Begin, Launch, NoObserver, Place, Program};
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::sequence::Lengths;
use toroni_bench_harness::summary::Summary;
use toroni_bench_harness::transport::{About, Setup, Transport as _, Wait};
use toroni_bench_harness::workload::flow::Flow;
use toroni_bench_harness::{Failure, machine, registry};
use toroni_testkit::network::Network;

use super::{Length, rig};
use crate::child;
use crate::peers::foreign::{self, Missing};
use crate::peers::rate::LearnedRate;
use crate::peers::{CAPACITY_BYTES, throughput};
use buses::Buses;
use direct::WithoutBus;
use raw::Raw;

const SIZES: [usize; 2] = [64, 1_024];
/// Messages that are handed over with one call, by those that have one for several.
const BUNDLE: usize = 64;
/// Longer than any run takes, and shorter than a person waits for a run that hangs.
const SILENCE: Duration = Duration::from_secs(30);

/// A row.
struct Contender {
    transport: &'static str,
    label: &'static str,
    /// The package in `bench/peers` that knows the transport, unless it is this program.
    package: Option<&'static str>,
    wait: Wait,
    bundle: usize,
}

const fn own(transport: &'static str, label: &'static str, wait: Wait, bundle: usize) -> Contender {
    Contender { transport, label, package: None, wait, bundle }
}

const fn foreign(transport: &'static str, label: &'static str, package: &'static str) -> Contender {
    Contender { transport, label, package: Some(package), wait: Wait::Busy, bundle: 1 }
}

const CONTENDERS: [Contender; 6] = [
    own(Raw::NAME, "plain datagrams", Wait::Blocking, BUNDLE),
    own(WithoutBus::NAME, "Toroni, no bus", Wait::Blocking, BUNDLE),
    own(Buses::NAME, "Toroni, bus to bus", Wait::Blocking, BUNDLE),
    foreign("aeron-udp", "Aeron, UDP multicast", "aeron"),
    foreign("zeromq-norm", "ZeroMQ, norm", "zeromq-net"),
    foreign("zeromq-epgm", "ZeroMQ, epgm", "zeromq-net"),
];

/// Does the work of a child over the transport that its job names, if it is one of these.
pub(crate) fn perform(child: &mut Child) -> Option<Result<(), Failure>> {
    match child.job().transport.as_str() {
        Raw::NAME => Some(registry::perform::<Raw>(child)),
        WithoutBus::NAME => Some(registry::perform::<WithoutBus>(child)),
        Buses::NAME => Some(registry::perform::<Buses>(child)),
        _ => None,
    }
}

/// Senders run on the first host, and each receiver on one of the next.
struct Hosts<'a>(&'a Network);

impl Place for Hosts<'_> {
    fn command(&self, role: Role, program: &Path) -> Command {
        let at = if let Role::Receiver(number) = role { usize::from(number) + 1 } else { 0 };
        self.0.hosts[at].command(program)
    }
}

/// What is known of a contender.
struct Row<'a> {
    contender: &'a Contender,
    state: Result<Program, Missing>,
    about: Option<About>,
    /// M msg/s, for each size and repetition.
    rates: Vec<Vec<f64>>,
}

impl<'a> Row<'a> {
    fn new(contender: &'a Contender, own: &Program, peers: &Path) -> Self {
        let state = contender
            .package
            .map_or_else(|| Ok(own.clone()), |package| foreign::build(peers, package));
        Self { contender, state, about: None, rates: vec![Vec::new(); SIZES.len()] }
    }

    /// Runs once. Returns messages per second, or `None` if the contender is missing.
    fn run(&mut self, network: &Network, size: usize, messages: u64) -> Option<f64> {
        let Contender { transport, wait, bundle, .. } = *self.contender;
        let program = self.state.as_ref().ok()?.clone();
        let hosts = Hosts(network);
        let mut launch = Launch::new(program, transport, &NoObserver);
        (launch.silence_timeout, launch.place) = (SILENCE, &hosts);
        let capacity_bytes = CAPACITY_BYTES;
        let setup = Setup {
            senders: 1,
            receivers: 1,
            message_bytes: size,
            capacity_bytes,
            wait,
            in_place: false,
        };
        let lengths = Lengths::Fixed(size);
        let flow = Flow { messages, lengths, bundle, stamped: false, ordered: false };
        match process_group::run(&launch, &setup, &flow, Begin::AtTheGate) {
            Ok(outcome) => {
                // If the sender moves to another core, the kernel may bring its datagrams in another order. Then a
                // message counts as lost when a later one overtakes it, and as misordered when it comes.
                let wrong = if outcome.about.guarantees.total_order {
                    throughput::wrong(&outcome.receivers)
                } else {
                    let faults = outcome.receivers.iter().map(|receiver| receiver.faults);
                    faults.map(|of| of.lost.abs_diff(of.misordered) + of.alien).sum()
                };
                self.about = Some(outcome.about);
                if wrong > 0 {
                    self.state = Err(Missing(format!("{wrong} messages were lost or disordered")));
                    return None;
                }
                Some(throughput::rate(&flow, &outcome.senders, &outcome.receivers))
            }
            Err(failure) => {
                self.state = Err(Missing(failure.to_string()));
                None
            }
        }
    }

    fn summary(&self, size: usize) -> Option<Summary> {
        if self.state.is_err() { None } else { Summary::of(&self.rates[size]) }
    }
}

/// Measures all contenders in turn.
pub(super) fn report(length: &Length, peers: &Path) -> Result<Report, Failure> {
    let network = rig::bridged(2)?;
    let program = child::program()?;
    let mut rows: Vec<Row<'_>> =
        CONTENDERS.iter().map(|contender| Row::new(contender, &program, peers)).collect();
    for (at, size) in SIZES.into_iter().enumerate() {
        let learned = LearnedRate::new(length.each.as_secs_f64(), size);
        let mut learned = vec![learned; rows.len()];
        // The first round only shows how long runs must be, and does not count.
        for repetition in 0..=length.repetitions {
            for (row, learned) in rows.iter_mut().zip(&mut learned) {
                let Some(rate) = row.run(&network, size, learned.messages()) else { continue };
                learned.learn(rate);
                if repetition > 0 {
                    row.rates[at].push(rate / 1e6);
                }
            }
        }
    }
    let mut report = Report {
        name: "net-throughput".to_owned(),
        title: "Messages per second from host to host, without loss".to_owned(),
        conditions: machine::describe(),
        tables: vec![table(&rows)],
        goals: goals(&rows),
        ..Report::default()
    };
    report.condition("hosts", "network namespaces, joined by a bridge of the kernel, no offloads");
    report.condition(
        "processes",
        "one for each end, not pinned; Toroni and plain datagrams sleep while nothing comes; others wait as their libraries do",
    );
    report.condition(
        "on the way",
        format!(
            "{} KiB of Toroni without a bus and of plain datagrams, whose receivers say what they have after each \
             {} KiB; rings and terms of 4 MiB",
            credit::ON_THE_WAY >> 10,
            credit::EVERY >> 10
        ),
    );
    report.condition("repetitions", format!("{}, all in turn in each", length.repetitions));
    for row in &rows {
        if let Some(About { version, settings, .. }) = &row.about {
            report.condition(row.contender.label, format!("{version}: {settings}"));
        }
        if let Err(Missing(reason)) = &row.state {
            report.notes.push(format!("MISSING: {}: {reason}", row.contender.label));
        }
    }
    report.notes.push(
        "lost = 0: every receiver got every message, and in order, except for plain datagrams."
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[Row<'_>]) -> Table {
    let columns = SIZES.iter().flat_map(|size| [format!("{size} B, M msg/s"), "MB/s".to_owned()]);
    let cells = |row: &Row<'_>| {
        let of_size = |(at, size): (usize, usize)| {
            let summary = row.summary(at);
            let megabytes = summary.map(|summary| Cell::number(summary.median * size as f64));
            [summary.map_or_else(Cell::none, Cell::median), megabytes.unwrap_or_else(Cell::none)]
        };
        SIZES.into_iter().enumerate().flat_map(of_size).collect()
    };
    Table {
        name: "throughput".to_owned(),
        title: "medians of the repetitions".to_owned(),
        corner: "contender".to_owned(),
        columns: columns.collect(),
        rows: rows.iter().map(|row| (row.contender.label.to_owned(), cells(row))).collect(),
        ..Table::default()
    }
}

/// The better of Toroni's two ways, beside the others.
fn goals(rows: &[Row<'_>]) -> Vec<Goal> {
    let of = |transport: &str, at: usize| {
        let row = rows.iter().find(|row| row.contender.transport == transport)?;
        row.summary(at).map(|summary| (summary.median, row.contender.label))
    };
    let mut goals = Vec::new();
    for (at, size) in SIZES.into_iter().enumerate() {
        for ours in [WithoutBus::NAME, Buses::NAME] {
            let Some((measured, label)) = of(ours, at) else { continue };
            let mut goal = |times: f64, transport: &str| {
                let Some((reference, whose)) = of(transport, at) else { return };
                goals.push(Goal {
                    what: format!("{size} B, {label}: ≥ {times} × {whose}"),
                    unit: "M msg/s".to_owned(),
                    reference: Some((reference, whose.to_owned())),
                    bound: Bound::AtLeast(times * reference),
                    measured,
                });
            };
            if size == 1_024 {
                goal(0.8, Raw::NAME);
            }
            goal(1.0, "aeron-udp");
            goal(5.0, "zeromq-epgm");
        }
    }
    goals
}
