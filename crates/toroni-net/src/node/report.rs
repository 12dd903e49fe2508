//! Report: everything that a node has counted, at one time. Metrics, notices and `toroni top` are made of it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::Node;
use super::host_port::HostPort;
use super::kernel::SocketDrops;
use super::tcp::{self, Tcp};
use super::{fetch, link};
use crate::losses::Count;
use crate::now::now;
use crate::{inlet, outlet};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use toroni::LostReason;
use toroni_proto::arrivals::{Arrivals, Backlog, Rejects};
use toroni_proto::bounded::{client, server};
use toroni_proto::budget::{Budget, Part};
use toroni_proto::id::{Session, Source, Stream};
use toroni_proto::legs::{Leg, LegCounters};
use toroni_proto::time::Monotonic;
use toroni_proto::wire::Reject;
use toroni_proto::{receiver, sender};

/// The upper ends of the counts of times, in nanoseconds: 1, 2 and 5 of each power of ten from 1 µs to 10 s.
pub const BOUNDS_NS: [u64; 22] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Everything that a node has counted.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The streams that it sends.
    pub sent: Vec<Sent>,
    /// The streams that it hears.
    pub heard: Vec<Heard>,
    /// Losses that were reported on the bus, by stream and reason.
    pub losses: Vec<(Source, Stream, LostReason, Count)>,
    /// Its sockets together.
    pub link: link::Counters,
    /// What the kernel dropped for each socket.
    pub sockets: Vec<SocketDrops>,
    /// Datagrams that were refused, by reason, in the order of [`Reject::ALL`].
    pub refused: Rejects,
    /// Datagrams for which there was no buffer, and for which their source found no room.
    pub no_room: (u64, u64),
    /// Buffers that are free.
    pub free_buffers: usize,
    /// What the inlet counted, if there is one.
    pub inlet: Option<inlet::Counters>,
    /// Bytes of messages that wait for room in the ring of the bus, and for how long the oldest has waited, in nanoseconds.
    pub staged: (u64, u64),
    /// Which process alone may publish on a bus, so that nothing can be brought there.
    pub exclusive: Option<inlet::Exclusive>,
    /// What was fetched that sources had sent before.
    pub fetched: fetch::Counters,
    /// What it serves over TCP, if it listens.
    pub served: Option<Served>,
    /// Its connections to other nodes over TCP.
    pub connections: Vec<Connection>,
    /// How long the parts of the way took: those of a stream, and those of the node.
    pub times: Vec<Times>,
}

/// A stream that a node sends.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Which.
    pub stream: Stream,
    /// What the sender counted.
    pub counters: sender::Counters,
    /// What the outlet counted.
    pub outlet: outlet::Counters,
    /// NAKs that were dropped because there were too many.
    pub naks_refused: u64,
    /// Datagrams that receivers asked for and that were not sent again, because too many waited.
    pub shed: u64,
    /// Messages of the bus that it has not taken yet, in bytes of the ring.
    pub lag_bytes: u64,
    /// Datagrams in the window.
    pub window_datagrams: u64,
    /// Bytes that are packed and not sent.
    pub unsent_bytes: u64,
    /// The receivers that sent a STATUS.
    pub receivers: Vec<Receiver>,
    /// What it waits for before it sends anything.
    pub awaited: Option<Awaited>,
}

/// What a stream waits for before it sends anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// How many required receivers are missing.
    pub missing: u64,
    /// The names of the required receivers that are not there.
    pub absent: Vec<String>,
}

/// What a node serves over TCP.
#[derive(Clone, Debug)]
pub struct Served {
    /// Clients that are connected.
    pub clients: usize,
    /// Messages of the bus that were overwritten before they were taken.
    pub overtaken: u64,
    /// What the server counted.
    pub counters: server::Counters,
    /// What waits for each client, by its name and address.
    pub queues: Vec<Queue>,
}

/// What waits for a client over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The name of the other node.
    pub name: String,
    /// From where it has connected.
    pub address: SocketAddr,
    /// Bytes of frames that were not begun.
    pub bytes: u64,
    /// For how long the oldest of them has waited, in nanoseconds.
    pub age_ns: u64,
    /// Messages that were left out since it connected.
    pub left_out: u64,
}

/// A connection to another node over TCP.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other node.
    pub address: HostPort,
    /// What the client counted.
    pub counters: client::Counters,
}

/// A receiver as its sender knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Who it is.
    pub source: Source,
    /// The name of its node.
    pub name: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Datagrams that had been sent and that it had not taken when it was heard last.
    pub lag_datagrams: u64,
    /// Messages that it lost, as it says.
    pub lost: u64,
    /// NAKs that it sent, as it says.
    pub naks: u64,
    /// Datagrams that its kernel dropped, as it says.
    pub dropped: u32,
    /// The round trip, in nanoseconds.
    pub rtt_ns: u64,
}

/// A stream that a node hears.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Who sends it.
    pub source: Source,
    /// Which of its streams.
    pub stream: Stream,
    /// In which life of the source.
    pub session: Session,
    /// The name of its node, if a SESSION has come.
    pub name: Option<String>,
    /// How many receivers its source knows, if a SESSION has come.
    pub receivers: Option<u16>,
    /// What the receiver counted in this session.
    pub counters: receiver::Counters,
    /// Buffers that are held: datagrams that wait behind a gap.
    pub held: usize,
    /// For how long the oldest of them has waited, in nanoseconds.
    pub held_ns: u64,
    /// Gaps that are open.
    pub open_gaps: usize,
    /// What each leg brought.
    pub legs: Vec<(Leg, LegCounters)>,
}

/// How long one part of the way took.
#[derive(Clone, Debug)]
pub struct Times {
    /// Which.
    pub part: Part,
    /// Of which stream; `None` if it is measured for all streams together.
    pub stream: Option<(Source, Stream)>,
    /// How many times were measured.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// The median, p99, p99.9 and the longest, in nanoseconds.
    pub p50_ns: u64,
    /// See [`Self::p50_ns`].
    pub p99_ns: u64,
    /// See [`Self::p50_ns`].
    pub p999_ns: u64,
    /// See [`Self::p50_ns`].
    pub longest_ns: u64,
    /// The limit, if there is one.
    pub limit_ns: Option<u64>,
    /// How often the part took longer than its limit.
    pub exceeded: u64,
    /// How many were not longer than each of [`BOUNDS_NS`].
    pub within: [u64; BOUNDS_NS.len()],
}

impl Times {
    /// Reads a budget.
    #[must_use]
    pub fn of(part: Part, stream: Option<(Source, Stream)>, budget: &Budget) -> Self {
        let histogram = budget.histogram();
        let count = histogram.count();
        let ranks = [500_000, 990_000, 999_000].map(|share: u128| {
            u64::try_from(u128::from(count).saturating_mul(share).div_ceil(1_000_000))
                .unwrap_or(u64::MAX)
        });
        let mut found = [0; 3];
        let mut within = [0; BOUNDS_NS.len()];
        let mut counted: u64 = 0;
        // One pass: a histogram has thousands of counters.
        for (ns, times) in histogram.counts() {
            for (found, rank) in found.iter_mut().zip(ranks) {
                if counted < rank {
                    *found = ns;
                }
            }
            counted = counted.saturating_add(times);
            for (within, bound) in within.iter_mut().zip(BOUNDS_NS) {
                if ns <= bound {
                    *within = counted;
                }
            }
        }
        let [p50_ns, p99_ns, p999_ns] = found;
        Self {
            part,
            stream,
            count,
            sum_ns: histogram.sum_ns(),
            p50_ns,
            p99_ns,
            p999_ns,
            longest_ns: histogram.longest_ns(),
            limit_ns: budget.limit_ns(),
            exceeded: budget.exceeded(),
            within,
        }
    }
}

impl Report {
    /// Adds times of a part that several inlets measure. The percentiles are then the greatest of them.
    fn add_times(&mut self, more: Times) {
        let same = |times: &&mut Times| times.part == more.part && times.stream == more.stream;
        let Some(times) = self.times.iter_mut().find(same) else { return self.times.push(more) };
        times.count = times.count.saturating_add(more.count);
        times.sum_ns = times.sum_ns.saturating_add(more.sum_ns);
        times.exceeded = times.exceeded.saturating_add(more.exceeded);
        for (one, other) in [
            (&mut times.p50_ns, more.p50_ns),
            (&mut times.p99_ns, more.p99_ns),
            (&mut times.p999_ns, more.p999_ns),
            (&mut times.longest_ns, more.longest_ns),
        ] {
            *one = other.max(*one);
        }
        for (sum, count) in times.within.iter_mut().zip(more.within) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds what has arrived from some groups.
    fn arrived(&mut self, now: Monotonic, arrivals: &Arrivals) {
        for (sum, count) in self.refused.iter_mut().zip(arrivals.rejects()) {
            *sum = sum.saturating_add(*count);
        }
        let (no_buffer, no_source) = arrivals.dropped();
        self.no_room =
            (self.no_room.0.saturating_add(no_buffer), self.no_room.1.saturating_add(no_source));
        self.free_buffers = self.free_buffers.saturating_add(arrivals.buffers().0);
        let names = arrivals.names();
        let mut names: BTreeMap<_, _> =
            names.map(|(source, stream, it)| ((source, stream), it.as_str().to_owned())).collect();
        let backlogs = arrivals.backlogs();
        let backlogs: BTreeMap<_, _> =
            backlogs.map(|(source, stream, it)| ((source, stream), it)).collect();
        for (source, stream, session, counters) in arrivals.counters() {
            let key = (source, stream);
            let Backlog { held, held_since, open_gaps } =
                backlogs.get(&key).copied().unwrap_or_default();
            let legs = arrivals.legs().filter(|(a, b, ..)| (*a, *b) == key);
            let legs = legs.map(|(.., leg, counters)| (leg, counters)).collect();
            let name = names.remove(&key);
            self.heard.push(Heard {
                source,
                stream,
                session,
                name,
                receivers: arrivals.receivers_of(source, stream),
                counters,
                held,
                held_ns: age_ns(now, held_since),
                open_gaps,
                legs,
            });
        }
        for (source, stream, [repair, order]) in arrivals.budgets() {
            let stream = Some((source, stream));
            self.times.push(Times::of(Part::Repair, stream, repair));
            self.times.push(Times::of(Part::Order, stream, order));
        }
    }

    /// Adds what all inlets of the node have brought to the bus.
    fn brought<'a>(&mut self, now: Monotonic, inlets: impl Iterator<Item = &'a inlet::Inlet>) {
        let mut losses: BTreeMap<_, (LostReason, Count)> = BTreeMap::new();
        for inlet in inlets {
            for (part, budget) in [Part::Ring, Part::Total].into_iter().zip(inlet.times()) {
                self.add_times(Times::of(part, None, budget));
            }
            let sum = self.inlet.get_or_insert_default();
            *sum = sum.plus(&inlet.counters());
            if self.exclusive.is_none() {
                self.exclusive = inlet.exclusive().cloned();
            }
            let (bytes, since) = inlet.staged();
            self.staged =
                (self.staged.0.saturating_add(bytes), self.staged.1.max(age_ns(now, since)));
            for (source, stream, reason, count) in inlet.losses().counts() {
                let key = (source, stream, reason.as_str());
                let (_, sum) = losses.entry(key).or_insert((reason, Count::default()));
                sum.reports = sum.reports.saturating_add(count.reports);
                sum.messages = sum.messages.saturating_add(count.messages);
            }
        }
        let all = losses.into_iter();
        self.losses =
            all.map(|((source, stream, _), (reason, sum))| (source, stream, reason, sum)).collect();
    }

    /// Returns the frames over TCP that were refused by reason, without reasons that did not occur.
    pub fn tcp_refused(&self) -> impl Iterator<Item = (Reject, u64)> {
        let of_server = self.served.iter().map(|it| it.counters.rejects);
        let of_clients = self.connections.iter().map(|it| it.counters.rejects);
        let mut sum = [0_u64; Reject::ALL.len()];
        for rejects in of_server.chain(of_clients) {
            for (sum, count) in sum.iter_mut().zip(rejects) {
                *sum = sum.saturating_add(count);
            }
        }
        Reject::ALL.into_iter().zip(sum).filter(|(_, count)| *count > 0)
    }

    /// Returns the refused datagrams by reason, without reasons that did not occur.
    pub fn refused(&self) -> impl Iterator<Item = (Reject, u64)> {
        let all = Reject::ALL.into_iter().zip(self.refused);
        all.filter(|(_, count)| *count > 0)
    }
}

impl Node {
    /// Returns everything that it has counted. It takes some time for each stream: once a second is often enough.
    #[must_use]
    pub fn report(&mut self) -> Report {
        let mut report = Report {
            link: self.link.counters(),
            sockets: self.kernel.of_sockets(&self.link),
            ..Report::default()
        };
        let me = self.source;
        let now = now().monotonic;
        for sending in &mut self.outlets {
            let stream = Some((me, sending.stream));
            let outlet = &mut sending.outlet;
            report.times.push(Times::of(Part::Bus, stream, outlet.bus_times()));
            report.sent.push(sent(sending.stream, outlet));
            let sender = outlet.sender();
            report.times.push(Times::of(Part::Batching, stream, sender.batching()));
            report.times.push(Times::of(Part::Pacing, stream, sender.pacing()));
        }
        if let Some(queueing) = self.tcp.as_mut().and_then(Tcp::queueing) {
            report.times.push(Times::of(Part::TcpQueue, None, queueing));
        }
        let connections = self.tcp.as_ref().map_or(&[][..], Tcp::connections);
        for connection in connections {
            let (address, counters) = (connection.host().clone(), *connection.client().counters());
            report.connections.push(Connection { address, counters });
        }
        report.served = self.tcp.as_ref().and_then(Tcp::listener).map(|listener| Served {
            clients: listener.clients(),
            overtaken: listener.overtaken(),
            counters: *listener.counters(),
            queues: queues(now, listener),
        });
        let by_tcp = connections.iter().map(tcp::Connection::inlet);
        let inlets = self.receiving.iter().map(|one| &one.inlet).chain(by_tcp);
        report.brought(now, inlets);
        let [network, socket] = [&self.received.network, &self.received.socket];
        for (part, budget) in [(Part::Network, network), (Part::Socket, socket)] {
            report.times.push(Times::of(part, None, budget));
        }
        for one in &self.receiving {
            report.arrived(now, &one.arrivals);
            report.fetched = report.fetched.plus(one.fetches.counters());
        }
        report
    }
}

/// Returns for how long something has waited that arrived then, in nanoseconds.
fn age_ns(now: Monotonic, since: Option<Monotonic>) -> u64 {
    since.map_or(0, |since| now.since(since))
}

/// Returns what waits for each client.
fn queues(now: Monotonic, listener: &tcp::Listener) -> Vec<Queue> {
    let queue = |(name, address, waiting): (&str, SocketAddr, server::Waiting)| Queue {
        name: name.to_owned(),
        address,
        bytes: waiting.bytes,
        age_ns: age_ns(now, waiting.since),
        left_out: waiting.left_out,
    };
    let mut queues: Vec<Queue> = listener.queues().map(queue).collect();
    queues.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    queues
}

fn sent(stream: Stream, outlet: &mut outlet::Outlet) -> Sent {
    let lag_bytes = outlet.subscriber().lag_bytes();
    let counters = outlet.counters();
    let sender = outlet.sender();
    let window = sender.window();
    let receivers = sender.audience().members().iter().map(|member| Receiver {
        source: member.receiver.source,
        name: member.name.as_str().to_owned(),
        address: link::to_socket(member.address),
        lag_datagrams: member.lag,
        lost: member.lost,
        naks: member.naks,
        dropped: member.dropped,
        rtt_ns: member.rtt_ns,
    });
    Sent {
        stream,
        counters: sender.counters(),
        outlet: counters,
        naks_refused: sender.refused(),
        shed: sender.shed(),
        lag_bytes,
        window_datagrams: window.lead().since(window.trail()),
        unsent_bytes: window.unsent_total(),
        receivers: receivers.collect(),
        awaited: sender.audience().group_awaited().map(|(missing, absent)| Awaited {
            missing,
            absent: absent.map(|name| name.as_str().to_owned()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::budget::{Case, Limits};

    #[test]
    fn times_are_those_of_the_histogram() {
        let mut budget = Budget::new(Part::Ring);
        let mut limits = Limits::default();
        limits.set(Part::Ring, Some(900_000));
        budget.set_limits(&limits);
        let (source, stream) = (Source(1), Stream(2));
        for number in 1..=1_000 {
            budget.record(Case { source, stream, number, took_ns: number * 1_000 });
        }
        let times = Times::of(Part::Ring, None, &budget);
        let histogram = budget.histogram();
        assert_eq!(times.count, 1_000);
        assert_eq!(times.sum_ns, 500_500_000);
        assert_eq!(times.p50_ns, histogram.at(500_000));
        assert_eq!(times.p99_ns, histogram.at(990_000));
        assert_eq!(times.p999_ns, histogram.at(999_000));
        assert_eq!(times.longest_ns, 1_000_000);
        assert_eq!((times.limit_ns, times.exceeded), (Some(900_000), 100));
        // A counter is a thousandth wide, so a time at a bound may be counted beyond it.
        let exact = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 1_000];
        for (found, exact) in times.within.into_iter().zip(exact) {
            assert!(found <= exact && exact <= found + 1 + exact / 1_000, "{found} of {exact}");
        }
        assert_eq!(times.within[BOUNDS_NS.len() - 1], 1_000);
        let none = Times::of(Part::Total, None, &Budget::new(Part::Total));
        assert_eq!((none.p50_ns, none.longest_ns, none.within), (0, 0, [0; BOUNDS_NS.len()]));
    }
}
