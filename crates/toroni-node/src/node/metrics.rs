//! Every metric of a node: its name, labels, text, and where its values come from. `docs/network.md` has the same table,
//! and a test compares the two.

use super::notices::{Identity, socket_kind};
use std::sync::{Arc, Mutex, PoisonError};
use toroni_net::node::report::{
    BOUNDS_NS, Connection, Heard, Queue, Receiver, Report, Sent, Served, Times,
};
use toroni_net::node::start::Lack;
use toroni_process::units::as_f64;
use toroni_proto::budget::Part;
use toroni_shell::notice::Sequencer;
use toroni_shell::openmetrics::{self, Family, Kind, Sample, Value};

/// The last report of a node, for those who ask.
pub(super) struct Latest {
    realm: String,
    reports: Mutex<Arc<Reports>>,
}

/// What a node reports.
#[derive(Default)]
pub(super) struct Reports {
    /// What it waits for, before it works.
    pub(super) lack: Option<Lack>,
    /// Who it is, once it works.
    pub(super) identity: Option<Identity>,
    pub(super) node: Report,
    /// That of its feed.
    pub(super) sequencer: Option<Sequencer>,
}

impl Latest {
    pub(super) fn new(realm: String) -> Self {
        Self { realm, reports: Mutex::default() }
    }

    pub(super) fn set(&self, reports: Reports) {
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(reports);
    }

    /// Returns the metrics in the text format of OpenMetrics.
    pub(super) fn text(&self) -> String {
        let reports = Arc::clone(&self.reports.lock().unwrap_or_else(PoisonError::into_inner));
        let samples = |metric: &Metric| {
            let mut samples = metric.samples(&reports);
            samples.iter_mut().for_each(|(labels, _)| labels.insert(0, self.realm.clone()));
            (metric.family, samples)
        };
        let of_feed = |metric: &OfFeed| (metric.family, metric.samples(&reports, &self.realm));
        openmetrics::text(ALL.iter().map(samples).chain(OF_FEEDS.iter().map(of_feed)).collect())
    }
}

struct Metric {
    family: Family,
    source: Source,
}

/// Where the values of a metric come from.
enum Source {
    /// One value of the node.
    Node(fn(&Report) -> u64),
    /// One for each stream that is sent.
    Sent(fn(&Sent) -> u64),
    /// How long what waits of each stream that is sent needs at its rate.
    SentLag,
    /// One age for each stream that is heard, in nanoseconds.
    HeardAge(fn(&Heard) -> u64),
    /// One age of the node, in nanoseconds.
    NodeAge(fn(&Report) -> u64),
    /// One for each client over TCP.
    Queue(fn(&Queue) -> u64),
    /// How long the oldest has waited for each client over TCP.
    QueueAge,
    /// Messages that were not sent, for each stream and reason.
    NotSent,
    /// One for each receiver of a stream that is sent.
    Receiver(fn(&Receiver) -> u64),
    /// One for each stream that is heard.
    Heard(fn(&Heard) -> u64),
    /// For each stream, interface and what the interface brought.
    Legs,
    /// Reports or messages, for each stream and reason.
    Losses(fn(&toroni_net::losses::Count) -> u64),
    /// How often history was fetched with each outcome.
    Fetches,
    Refused,
    /// Frames over TCP that were refused, by reason.
    TcpRefused,
    Sockets,
    /// One value of the node, if it listens for TCP.
    Served(fn(&Served) -> u64),
    /// One for each connection to another node.
    Connection(fn(&Connection) -> u64),
    /// The times of each part.
    Times,
    /// How often each part took longer than its limit.
    Exceeded,
    /// For each thing that a node may lack, whether it waits for it.
    Waiting,
}

const REALM: &[&str] = &["realm"];
const SENT: &[&str] = &["realm", "stream"];
const HEARD: &[&str] = &["realm", "source", "stream"];
const MEMBER: &[&str] = &["realm", "stream", "receiver", "name"];
const LOSS: &[&str] = &["realm", "source", "stream", "reason"];
const CLIENT: &[&str] = &["realm", "name", "address"];
const PART: &[&str] = &["realm", "part", "source", "stream"];

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    source: Source,
) -> Metric {
    Metric { family: Family { name, kind, labels, help }, source }
}

const fn sent(name: &'static str, help: &'static str, read: fn(&Sent) -> u64) -> Metric {
    metric(name, Kind::Counter, SENT, help, Source::Sent(read))
}

const fn heard(name: &'static str, help: &'static str, read: fn(&Heard) -> u64) -> Metric {
    metric(name, Kind::Counter, HEARD, help, Source::Heard(read))
}

const fn node(name: &'static str, help: &'static str, read: fn(&Report) -> u64) -> Metric {
    metric(name, Kind::Counter, REALM, help, Source::Node(read))
}

/// Every metric, in the order of the answer.
const ALL: &[Metric] = &[
    sent("toroni_net_sent_messages", "Messages of the bus that were packed", |it| {
        it.outlet.messages
    }),
    sent("toroni_net_sent_datagrams", "New datagrams with messages", |it| it.counters.data),
    sent("toroni_net_retransmissions", "Datagrams that were sent again", |it| it.counters.repairs),
    sent("toroni_net_sessions_sent", "Datagrams that say where the stream is", |it| {
        it.counters.sessions
    }),
    sent("toroni_net_ncfs_sent", "Answers to requests that are not served at once", |it| {
        it.counters.ncfs
    }),
    sent(
        "toroni_net_ncfs_dropped",
        "Such answers that were dropped, because an eighth of the retransmission rate allowed no more",
        |it| it.counters.ncfs_dropped,
    ),
    sent(
        "toroni_net_echoes_sent",
        "Datagrams that show receivers that the sender lives, before they follow it",
        |it| it.counters.echoes,
    ),
    sent("toroni_net_topics_sent", "Datagrams with names of topics that were asked for", |it| {
        it.counters.topics
    }),
    sent("toroni_net_naks_received", "Requests for retransmission that were read", |it| {
        it.counters.naks
    }),
    sent(
        "toroni_net_naks_refused",
        "Requests that were dropped because there were too many",
        |it| it.naks_refused,
    ),
    sent(
        "toroni_net_retransmissions_shed",
        "Datagrams that receivers asked for and that were not queued, because too many waited",
        |it| it.shed,
    ),
    metric(
        "toroni_net_unsent_messages",
        Kind::Counter,
        &["realm", "stream", "reason"],
        "Messages of the bus that were not sent, and reported as lost: overtaken (overwritten before), too_long, topic",
        Source::NotSent,
    ),
    metric(
        "toroni_net_sent_lag_bytes",
        Kind::Gauge,
        SENT,
        "What waits in the ring of the bus to be sent",
        Source::Sent(|it| it.lag_bytes),
    ),
    metric(
        "toroni_net_sent_lag_seconds",
        Kind::Gauge,
        SENT,
        "How long that, and what is packed, needs at the stream's rate; not with the policy uncontrolled",
        Source::SentLag,
    ),
    metric(
        "toroni_net_window_datagrams",
        Kind::Gauge,
        SENT,
        "Datagrams that can be sent again",
        Source::Sent(|it| it.window_datagrams),
    ),
    metric(
        "toroni_net_receivers",
        Kind::Gauge,
        SENT,
        "Receivers that are heard",
        Source::Sent(|it| it.receivers.len() as u64),
    ),
    metric(
        "toroni_net_receiver_lag_datagrams",
        Kind::Gauge,
        MEMBER,
        "Datagrams that a receiver had not taken when it was heard last",
        Source::Receiver(|it| it.lag_datagrams),
    ),
    metric(
        "toroni_net_receiver_lost_messages",
        Kind::Counter,
        MEMBER,
        "Messages that a receiver lost, as it says",
        Source::Receiver(|it| it.lost),
    ),
    metric(
        "toroni_net_receiver_naks",
        Kind::Counter,
        MEMBER,
        "Requests for retransmission that a receiver sent, as it says",
        Source::Receiver(|it| it.naks),
    ),
    metric(
        "toroni_net_receiver_kernel_dropped",
        Kind::Counter,
        MEMBER,
        "Datagrams for which a receiver's sockets had no room, as it says",
        Source::Receiver(|it| it.dropped.into()),
    ),
    heard("toroni_net_received_messages", "Messages that were delivered in this session", |it| {
        it.counters.messages
    }),
    heard("toroni_net_missing_messages", "Messages of this session that were given up", |it| {
        it.counters.lost
    }),
    heard("toroni_net_duplicates", "Datagrams of this session that came more than once", |it| {
        it.counters.duplicates
    }),
    heard(
        "toroni_net_known_messages",
        "Messages of this session that an earlier one had brought",
        |it| it.counters.known,
    ),
    heard("toroni_net_repaired", "Datagrams of this session that were missing and came", |it| {
        it.counters.repaired
    }),
    heard("toroni_net_naks_sent", "Requests for retransmission in this session", |it| {
        it.counters.naks
    }),
    metric(
        "toroni_net_open_gaps",
        Kind::Gauge,
        HEARD,
        "Ranges of datagrams that are missing now",
        Source::Heard(|it| it.open_gaps as u64),
    ),
    metric(
        "toroni_net_held_datagrams",
        Kind::Gauge,
        HEARD,
        "Datagrams that wait for a missing one, or for room in the ring of the bus, now",
        Source::Heard(|it| it.held as u64),
    ),
    metric(
        "toroni_net_held_seconds",
        Kind::Gauge,
        HEARD,
        "How long the oldest of them has waited",
        Source::HeardAge(|it| it.held_ns),
    ),
    heard(
        "toroni_net_held_dropped",
        "Datagrams of this session that came and were dropped, because too many waited; they are asked for again",
        |it| it.counters.dropped,
    ),
    metric(
        "toroni_net_leg_datagrams",
        Kind::Counter,
        &["realm", "source", "stream", "interface", "what"],
        "What an interface brought in this session: first, duplicate, or missing there and not elsewhere",
        Source::Legs,
    ),
    metric(
        "toroni_net_lost_messages",
        Kind::Counter,
        LOSS,
        "Messages that were reported on the bus as lost, as far as their number is known",
        Source::Losses(|it| it.messages),
    ),
    metric(
        "toroni_net_losses",
        Kind::Counter,
        LOSS,
        "How often that was reported, for a known number of messages or not",
        Source::Losses(|it| it.reports),
    ),
    node("toroni_net_filtered_messages", "Messages that `accept` leaves out", |it| {
        it.inlet.map_or(0, |it| it.filtered)
    }),
    node(
        "toroni_net_published_messages",
        "Messages of other nodes that the bus took, or knew already",
        |it| it.inlet.map_or(0, |it| it.messages),
    ),
    node(
        "toroni_net_too_long_messages",
        "Messages that are too long for the bus, and were reported as lost",
        |it| it.inlet.map_or(0, |it| it.too_long),
    ),
    node(
        "toroni_net_unnameable_messages",
        "Messages whose topic, with its prefix, cannot be one of the bus, and that were reported as lost",
        |it| it.inlet.map_or(0, |it| it.no_topic),
    ),
    node(
        "toroni_net_bus_full",
        "How often the ring of the bus had no room for what had come",
        |it| it.inlet.map_or(0, |it| it.full),
    ),
    metric(
        "toroni_net_staged_bytes",
        Kind::Gauge,
        REALM,
        "Messages of other nodes that wait for room in the ring of the bus; none of them is dropped",
        Source::Node(|it| it.staged.0),
    ),
    metric(
        "toroni_net_staged_seconds",
        Kind::Gauge,
        REALM,
        "How long the oldest of them has waited",
        Source::NodeAge(|it| it.staged.1),
    ),
    node(
        "toroni_net_overwriting_messages",
        "Messages and losses that were published when the wait for a slow subscriber was over; that subscriber may have missed others",
        |it| it.inlet.map_or(0, |it| it.overwriting),
    ),
    node("toroni_net_refused_by_bus", "Messages and losses that the bus refused", |it| {
        it.inlet.map_or(0, |it| it.refused)
    }),
    node(
        "toroni_net_unretained_topics",
        "Topics that arrived and could not be retained, although `retain` is set",
        |it| it.inlet.map_or(0, |it| it.unretained),
    ),
    metric(
        "toroni_net_fetches",
        Kind::Counter,
        &["realm", "outcome"],
        "How often history of a stream was fetched: complete, or why the rest was reported as lost",
        Source::Fetches,
    ),
    node("toroni_net_fetched_messages", "Messages that were fetched as history", |it| {
        it.fetched.messages
    }),
    node("toroni_net_datagrams_sent", "Datagrams of all kinds that the kernel took", |it| {
        it.link.sent
    }),
    node("toroni_net_datagrams_unsent", "Datagrams that the kernel refused to send", |it| {
        it.link.refused
    }),
    node("toroni_net_datagrams_received", "Datagrams of all kinds that arrived", |it| {
        it.link.received
    }),
    node(
        "toroni_net_datagrams_truncated",
        "Datagrams that were longer than any stream sends",
        |it| it.link.truncated,
    ),
    node("toroni_net_datagrams_without_buffer", "Datagrams for which there was no memory", |it| {
        it.no_room.0
    }),
    node("toroni_net_datagrams_without_source", "Datagrams of sources beyond the limit", |it| {
        it.no_room.1
    }),
    metric(
        "toroni_net_free_buffers",
        Kind::Gauge,
        REALM,
        "Buffers for datagrams that are free",
        Source::Node(|it| it.free_buffers as u64),
    ),
    metric(
        "toroni_net_datagrams_refused",
        Kind::Counter,
        &["realm", "reason"],
        "Datagrams that were not believed",
        Source::Refused,
    ),
    metric(
        "toroni_net_kernel_dropped",
        Kind::Counter,
        &["realm", "interface", "socket", "kind"],
        "Datagrams for which a socket had no room",
        Source::Sockets,
    ),
    metric(
        "toroni_net_tcp_clients",
        Kind::Gauge,
        REALM,
        "Nodes that are connected to this one over TCP",
        Source::Served(|it| it.clients as u64),
    ),
    metric(
        "toroni_net_tcp_accepted",
        Kind::Counter,
        REALM,
        "Nodes that have connected to this one over TCP",
        Source::Served(|it| it.counters.accepted),
    ),
    metric(
        "toroni_net_tcp_full",
        Kind::Counter,
        REALM,
        "Nodes for which there was no place",
        Source::Served(|it| it.counters.full),
    ),
    metric(
        "toroni_net_tcp_frames",
        Kind::Counter,
        REALM,
        "Frames of messages that were made, each for all nodes with the same patterns",
        Source::Served(|it| it.counters.frames),
    ),
    metric(
        "toroni_net_tcp_refused",
        Kind::Counter,
        &["realm", "reason"],
        "Frames of other nodes that were not believed",
        Source::TcpRefused,
    ),
    metric(
        "toroni_net_tcp_left_out_messages",
        Kind::Counter,
        REALM,
        "Messages that were left out because they waited too long, counted for each client",
        Source::Served(|it| it.counters.left_out),
    ),
    metric(
        "toroni_net_tcp_queue_bytes",
        Kind::Gauge,
        CLIENT,
        "What waits for a node that is connected to this one over TCP",
        Source::Queue(|it| it.bytes),
    ),
    metric(
        "toroni_net_tcp_queue_seconds",
        Kind::Gauge,
        CLIENT,
        "How long the oldest of that has waited",
        Source::QueueAge,
    ),
    metric(
        "toroni_net_tcp_queue_dropped_messages",
        Kind::Counter,
        CLIENT,
        "Messages that were left out for this node since it connected, because they waited too long",
        Source::Queue(|it| it.left_out),
    ),
    metric(
        "toroni_net_tcp_overtaken_messages",
        Kind::Counter,
        REALM,
        "Messages of the bus that were overwritten before they were taken for TCP",
        Source::Served(|it| it.overtaken),
    ),
    metric(
        "toroni_net_tcp_received_messages",
        Kind::Counter,
        &["realm", "address"],
        "Messages that a connection to another node brought",
        Source::Connection(|it| it.counters.messages),
    ),
    metric(
        "toroni_net_tcp_known_messages",
        Kind::Counter,
        &["realm", "address"],
        "Messages that a connection to another node brought, and that had come before",
        Source::Connection(|it| it.counters.known),
    ),
    metric(
        "toroni_net_tcp_missing_messages",
        Kind::Counter,
        &["realm", "address"],
        "Messages that a connection to another node reported as lost",
        Source::Connection(|it| it.counters.lost),
    ),
    metric(
        "toroni_net_tcp_connections",
        Kind::Counter,
        &["realm", "address"],
        "How often another node answered a connection",
        Source::Connection(|it| it.counters.connections),
    ),
    metric(
        "toroni_net_time_seconds",
        Kind::Histogram,
        PART,
        "How long each part of the way took; network, socket, ring, tcp_queue and total for all streams together",
        Source::Times,
    ),
    metric(
        "toroni_net_time_exceeded",
        Kind::Counter,
        PART,
        "How often a part took longer than its limit in [budget]",
        Source::Exceeded,
    ),
    metric(
        "toroni_net_waiting",
        Kind::Gauge,
        &["realm", "for"],
        "1 if the node waits for this, else 0: interface, publisher or subscriber (a place on the bus), listen (its address), \
         source (its id), exclusive (the end of an exclusive publisher of the bus; all else goes on)",
        Source::Waiting,
    ),
];

/// A metric of the feed that the node takes part in. `docs/sequencer.md` has the table.
struct OfFeed {
    family: Family,
    /// None if there is no such value now.
    read: fn(&Sequencer) -> Option<u64>,
    value: fn(u64) -> Value,
}

const fn of_feed(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&Sequencer) -> Option<u64>,
) -> OfFeed {
    let family = Family { name, kind, labels: &["realm", "feed"], help };
    OfFeed { family, read, value: Value::Whole }
}

const OF_FEEDS: &[OfFeed] = &[
    of_feed(
        "toroni_sequencer_commands",
        Kind::Counter,
        "Commands of this host that the order has",
        |it| Some(it.brought),
    ),
    of_feed(
        "toroni_sequencer_connections",
        Kind::Counter,
        "How often a leader was found for commands",
        |it| Some(it.connections),
    ),
    of_feed(
        "toroni_sequencer_waiting_bytes",
        Kind::Gauge,
        "Commands of this host in the ring that the order may not have",
        |it| Some(it.waiting_bytes),
    ),
    of_feed(
        "toroni_sequencer_courier_refused",
        Kind::Gauge,
        "1 if the order takes no commands of this host, else 0: the log says why",
        |it| Some(it.refused.is_some().into()),
    ),
    of_feed(
        "toroni_sequencer_delivered",
        Kind::Counter,
        "Events that were brought to the bus of the host",
        |it| Some(it.delivered),
    ),
    of_feed(
        "toroni_sequencer_lost_events",
        Kind::Counter,
        "Events that no member had any more for this host",
        |it| Some(it.lost),
    ),
    of_feed(
        "toroni_sequencer_divergences",
        Kind::Counter,
        "How often the order had other events than the bus of the host",
        |it| Some(it.divergences),
    ),
    of_feed(
        "toroni_sequencer_feed_stopped",
        Kind::Gauge,
        "1 if the bus of the host has no more events because it has diverged, else 0",
        |it| Some(it.stopped.is_some().into()),
    ),
    of_feed(
        "toroni_sequencer_live_events",
        Kind::Counter,
        "Events that came to the host without being asked for",
        |it| Some(it.came),
    ),
    of_feed(
        "toroni_sequencer_asked_events",
        Kind::Counter,
        "Events that members were asked for, over TCP",
        |it| Some(it.asked),
    ),
    of_feed(
        "toroni_sequencer_live",
        Kind::Gauge,
        "1 if events come to the host without being asked for, else 0",
        |it| Some(it.is_live.into()),
    ),
    of_feed(
        "toroni_sequencer_multicast_messages",
        Kind::Counter,
        "Messages with events: those that a member has sent, or that another node has received",
        |it| Some(it.multicast.as_ref()?.messages),
    ),
    of_feed("toroni_sequencer_multicast_events", Kind::Counter, "Events in these messages", |it| {
        Some(it.multicast.as_ref()?.events)
    }),
    of_feed(
        "toroni_sequencer_multicast_lost_messages",
        Kind::Counter,
        "Messages with events that were lost for good, or could not be read; members were asked for these events",
        |it| Some(it.multicast.as_ref()?.lost),
    ),
    of_feed(
        "toroni_sequencer_multicast_retransmissions",
        Kind::Counter,
        "Datagrams with events that a member has sent again",
        |it| Some(it.multicast.as_ref()?.retransmissions),
    ),
    of_feed(
        "toroni_sequencer_multicast_dropped_events",
        Kind::Counter,
        "Events for which there was no room in the queue: of a member, those beyond `data_rate`",
        |it| Some(it.multicast.as_ref()?.dropped),
    ),
    of_feed(
        "toroni_sequencer_archive_events",
        Kind::Counter,
        "Events that came to the archive: the number of the next one",
        |it| Some(it.archive.as_ref()?.events),
    ),
    of_feed(
        "toroni_sequencer_archive_first_event",
        Kind::Gauge,
        "The first event that the archive has",
        |it| Some(it.archive.as_ref()?.first_event),
    ),
    of_feed(
        "toroni_sequencer_archive_bytes",
        Kind::Gauge,
        "The length of the archive's files",
        |it| Some(it.archive.as_ref()?.bytes),
    ),
    of_feed(
        "toroni_sequencer_archive_full",
        Kind::Gauge,
        "1 if the disk of the archive has no room, else 0",
        |it| Some(it.archive.as_ref()?.is_full.into()),
    ),
    of_feed(
        "toroni_sequencer_archive_stopped",
        Kind::Gauge,
        "1 if the archive cannot go on, else 0: the log says why",
        |it| Some(it.archive.as_ref()?.problem.is_some().into()),
    ),
    of_feed(
        "toroni_sequencer_multicast_fails",
        Kind::Gauge,
        "1 if no event goes by multicast because it fails, else 0: the log says why",
        |it| Some(it.multicast.as_ref()?.problem.is_some().into()),
    ),
    of_feed("toroni_sequencer_term", Kind::Gauge, "The term of the member", |it| {
        Some(it.member.as_ref()?.term)
    }),
    of_feed(
        "toroni_sequencer_elections",
        Kind::Counter,
        "How often the member has seen a leader come into office",
        |it| Some(it.member.as_ref()?.elections),
    ),
    of_feed(
        "toroni_sequencer_leader",
        Kind::Gauge,
        "1 if the member leads and hears a majority, else 0",
        |it| Some(it.member.as_ref()?.leads.into()),
    ),
    of_feed(
        "toroni_sequencer_has_leader",
        Kind::Gauge,
        "1 if the member hears its leader, or leads and hears a majority, else 0",
        |it| Some(it.member.as_ref()?.leader.is_some().into()),
    ),
    OfFeed {
        value: seconds,
        ..of_feed(
            "toroni_sequencer_contact_seconds",
            Kind::Gauge,
            "How long ago a member that leads heard a majority, or another member its leader",
            |it| Some(it.member.as_ref()?.contact_ns),
        )
    },
    of_feed("toroni_sequencer_events", Kind::Counter, "Events that the member has applied", |it| {
        Some(it.member.as_ref()?.events)
    }),
    of_feed(
        "toroni_sequencer_sources",
        Kind::Gauge,
        "How many sources the order knows, of at most 4,096",
        |it| Some(it.member.as_ref()?.sources),
    ),
    of_feed(
        "toroni_sequencer_first_event",
        Kind::Gauge,
        "The first event that the member still has by its number",
        |it| it.member.as_ref()?.first_event,
    ),
    of_feed("toroni_sequencer_last_entry", Kind::Gauge, "The last entry of the log", |it| {
        it.member.as_ref()?.last_entry
    }),
    of_feed(
        "toroni_sequencer_applied_entry",
        Kind::Gauge,
        "The last entry that is part of the order and was applied",
        |it| it.member.as_ref()?.applied_entry,
    ),
    of_feed("toroni_sequencer_log_bytes", Kind::Gauge, "The length of the log's files", |it| {
        Some(it.member.as_ref()?.log_bytes)
    }),
    of_feed(
        "toroni_sequencer_room_bytes",
        Kind::Gauge,
        "What is free on the disk of the log",
        |it| Some(it.member.as_ref()?.room_bytes),
    ),
    of_feed(
        "toroni_sequencer_in_flight",
        Kind::Gauge,
        "Commands of all hosts that wait for the member's answer",
        |it| Some(it.member.as_ref()?.in_flight),
    ),
    of_feed(
        "toroni_sequencer_full",
        Kind::Gauge,
        "1 if the disk is too full for more entries, else 0",
        |it| Some(it.member.as_ref()?.is_full.into()),
    ),
    of_feed(
        "toroni_sequencer_uncertain",
        Kind::Gauge,
        "1 if the member may lack entries that it had answered for, and so neither votes nor leads, else 0",
        |it| Some(it.member.as_ref()?.is_uncertain.into()),
    ),
];

impl OfFeed {
    fn samples(&self, reports: &Reports, realm: &str) -> Vec<Sample> {
        let sample = |sequencer: &Sequencer| {
            let labels = vec![realm.to_owned(), sequencer.feed.clone()];
            (self.read)(sequencer).map(|value| (labels, (self.value)(value)))
        };
        reports.sequencer.iter().filter_map(sample).collect()
    }
}

impl Metric {
    /// Returns the samples, without the label of the realm.
    fn samples(&self, reports: &Reports) -> Vec<Sample> {
        let Reports { lack, identity, node: report, .. } = reports;
        let mut samples = Vec::new();
        let mut add = |labels: &[&dyn ToString], value| {
            samples.push((labels.iter().map(|label| label.to_string()).collect(), value));
        };
        match self.source {
            Source::Node(read) => add(&[], Value::Whole(read(report))),
            Source::Sent(read) => {
                report.sent.iter().for_each(|it| add(&[&it.stream], Value::Whole(read(it))));
            }
            Source::SentLag => {
                for it in &report.sent {
                    let rate = identity.as_ref().and_then(|node| node.rate(it.stream));
                    if let Some(rate) = rate {
                        let bytes = it.lag_bytes.saturating_add(it.unsent_bytes);
                        add(&[&it.stream], Value::Real(as_f64(bytes) * 8.0 / as_f64(rate)));
                    }
                }
            }
            Source::HeardAge(read) => {
                for it in &report.heard {
                    add(&[&it.source, &it.stream], seconds(read(it)));
                }
            }
            Source::NodeAge(read) => add(&[], seconds(read(report))),
            Source::Queue(read) => {
                for it in report.served.iter().flat_map(|it| &it.queues) {
                    add(&[&it.name, &it.address], Value::Whole(read(it)));
                }
            }
            Source::QueueAge => {
                for it in report.served.iter().flat_map(|it| &it.queues) {
                    add(&[&it.name, &it.address], seconds(it.age_ns));
                }
            }
            Source::NotSent => {
                for it in &report.sent {
                    let counters = it.outlet;
                    for (reason, count) in [
                        ("overtaken", counters.overtaken),
                        ("too_long", counters.too_long),
                        ("topic", counters.no_topic),
                    ] {
                        add(&[&it.stream, &reason], Value::Whole(count));
                    }
                }
            }
            Source::Receiver(read) => {
                for sent in &report.sent {
                    for it in &sent.receivers {
                        add(&[&sent.stream, &it.source, &it.name], Value::Whole(read(it)));
                    }
                }
            }
            Source::Heard(read) => {
                for it in &report.heard {
                    add(&[&it.source, &it.stream], Value::Whole(read(it)));
                }
            }
            Source::Legs => {
                for it in &report.heard {
                    for (leg, counters) in &it.legs {
                        let interface =
                            identity.as_ref().map_or("", |node| node.interface(leg.index()));
                        for (what, count) in [
                            ("first", counters.first),
                            ("duplicate", counters.duplicates),
                            ("missing", counters.missing),
                        ] {
                            let labels: [&dyn ToString; 4] =
                                [&it.source, &it.stream, &interface, &what];
                            add(&labels, Value::Whole(count));
                        }
                    }
                }
            }
            Source::Losses(read) => {
                for (source, stream, reason, count) in &report.losses {
                    add(&[source, stream, &reason.as_str()], Value::Whole(read(count)));
                }
            }
            Source::Fetches => {
                for (outcome, count) in report.fetched.outcomes() {
                    add(&[&outcome], Value::Whole(count));
                }
            }
            Source::Refused => {
                report.refused().for_each(|(reason, count)| {
                    add(&[&reason.name()], Value::Whole(count));
                });
            }
            Source::TcpRefused => {
                report.tcp_refused().for_each(|(reason, count)| {
                    add(&[&reason.name()], Value::Whole(count));
                });
            }
            Source::Sockets => {
                for (number, it) in report.sockets.iter().enumerate() {
                    let labels: [&dyn ToString; 3] =
                        [&it.interface, &number, &socket_kind(it.is_group)];
                    add(&labels, Value::Whole(it.dropped));
                }
            }
            Source::Served(read) => {
                report.served.iter().for_each(|it| add(&[], Value::Whole(read(it))));
            }
            Source::Connection(read) => {
                report
                    .connections
                    .iter()
                    .for_each(|it| add(&[&it.address], Value::Whole(read(it))));
            }
            Source::Times => {
                for it in &report.times {
                    let [part, source, stream] = labels_of(it);
                    add(&[&part, &source, &stream], times(it));
                }
            }
            Source::Exceeded => {
                for it in &report.times {
                    let [part, source, stream] = labels_of(it);
                    add(&[&part, &source, &stream], Value::Whole(it.exceeded));
                }
            }
            Source::Waiting => {
                for one in Lack::ALL {
                    add(&[&one.name()], Value::Whole((*lack == Some(one)).into()));
                }
            }
        }
        samples
    }
}

/// Returns part, source and stream, which are empty for times of all streams together.
fn labels_of(it: &Times) -> [String; 3] {
    let stream = it.stream.map(|(source, stream)| (source.to_string(), stream.to_string()));
    let (source, stream) = stream.unwrap_or_default();
    [Part::name(it.part).to_owned(), source, stream]
}

fn seconds(ns: u64) -> Value {
    Value::Real(as_f64(ns) / 1e9)
}

fn times(it: &Times) -> Value {
    let seconds = |ns: u64| as_f64(ns) / 1e9;
    let within = BOUNDS_NS.into_iter().zip(it.within);
    Value::Times {
        sum: seconds(it.sum_ns),
        count: it.count,
        within: within.map(|(bound, count)| (seconds(bound), count)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_has_the_same_tables() {
        let of_nodes: Vec<Family> = ALL.iter().map(|metric| metric.family).collect();
        let of_feeds: Vec<Family> = OF_FEEDS.iter().map(|metric| metric.family).collect();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // A crate that was unpacked elsewhere has no documents.
        if !root.join("xtask").exists() {
            return;
        }
        for (file, families) in [("network.md", of_nodes), ("sequencer.md", of_feeds)] {
            let mut table =
                String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
            table.extend(families.iter().map(Family::row));
            let documented = std::fs::read_to_string(root.join("docs").join(file)).unwrap();
            assert!(documented.contains(&table), "docs/{file} needs this table:\n{table}");
        }
    }

    /// The dashboard and the rules use no name that does not exist.
    #[test]
    fn the_dashboard_and_the_rules_use_these_names() {
        let families = ALL.iter().map(|metric| metric.family);
        let families = families.chain(OF_FEEDS.iter().map(|metric| metric.family));
        let names: BTreeSet<String> = families.map(|family| family.sample_name()).collect();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        if !root.exists() {
            return;
        }
        for path in [
            "grafana/toroni-net.json",
            "prometheus/net-alerts.yml",
            "prometheus/net-alerts_test.yml",
            "grafana/toroni-sequencer.json",
            "prometheus/sequencer-alerts.yml",
            "prometheus/sequencer-alerts_test.yml",
        ] {
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
            let used: BTreeSet<&str> = text
                .split(|c| !is_part(c))
                .filter(|word| word.starts_with("toroni_"))
                .map(|word| word.strip_suffix("_bucket").unwrap_or(word))
                .collect();
            assert!(used.len() > 3, "{path}: {used:?}");
            for name in used {
                assert!(names.contains(name), "{path} uses {name}, which does not exist");
            }
        }
    }

    #[test]
    fn names_are_used_once_and_end_as_openmetrics_wants_it() {
        let families = ALL.iter().map(|metric| metric.family);
        let families: Vec<_> =
            families.chain(OF_FEEDS.iter().map(|metric| metric.family)).collect();
        let names: BTreeSet<&str> = families.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), families.len());
        for name in names {
            assert!(
                name.starts_with("toroni_net_") || name.starts_with("toroni_sequencer_"),
                "{name}"
            );
            for reserved in ["_total", "_count", "_sum", "_bucket", "_created", "_info"] {
                assert!(!name.ends_with(reserved), "{name}");
            }
        }
    }
}
