//! Publishes what a node does on its bus of notices, `node.REALM`. A node whose notices cannot be published works on.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toroni::{Bus, BusConfig, Policy, PublishError, Publisher};
use toroni_net::losses::Lost;
use toroni_net::node::config;
use toroni_net::node::kernel::Attribution;
use toroni_net::node::link::to_socket;
use toroni_net::node::report::{Awaited, Report};
use toroni_net::node::{Event, Settings};
use toroni_process::units::as_f64;
use toroni_proto::arrivals::{self, Flow};
use toroni_proto::audience::PutOut;
use toroni_proto::budget::Exceeded;
use toroni_proto::id::Stream;
use toroni_proto::receiver::End;
use toroni_proto::sender;
use toroni_shell::notice::{
    BUS_PREFIX, Collision, Crybaby, Datagrams, Excess, Group, Heard, Leg, Loss, LossCount, Member,
    Notice, Receiver, Sent, Sequencer, Socket, Source, Stats, Term, Time, topic,
};

/// The capacity of the bus of notices.
const CAPACITY: u64 = 1 << 20;
/// How long to wait until a bus that cannot be used is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How many entries the lists of `stats` have at most, if it is too long otherwise: each is tried after the one before.
const SHORTER: [usize; 4] = [1_024, 256, 64, 8];
/// Of how many streams the session is remembered.
const REMEMBERED: usize = 4_096;

/// Who publishes.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) node: String,
    pub(super) realm: String,
    pub(super) bus: String,
    pub(super) source: String,
    pub(super) session: u32,
    /// The names of the interfaces, by leg.
    pub(super) interfaces: Vec<String>,
    /// The rates of the streams, in bits per second.
    rates: Vec<(Stream, Option<u64>)>,
}

impl Identity {
    pub(super) fn new(config: &config::Node, settings: &Settings) -> Self {
        let member = &settings.member;
        Self {
            node: member.name.clone(),
            realm: config.realm.clone(),
            bus: config.bus.name.clone(),
            source: member.source.to_string(),
            session: member.session.0,
            interfaces: member.interfaces.iter().map(|one| one.name.clone()).collect(),
            rates: settings.send.iter().map(|it| (it.stream, it.config.data_rate)).collect(),
        }
    }

    /// Returns the rate of a stream that is sent, in bits per second, if it has a limit.
    pub(super) fn rate(&self, stream: Stream) -> Option<u64> {
        self.rates.iter().find(|(known, _)| *known == stream).and_then(|(_, rate)| *rate)
    }

    /// Returns the name of the interface of a leg.
    pub(super) fn interface(&self, leg: usize) -> &str {
        self.interfaces.get(leg).map_or("", String::as_str)
    }
}

/// The bus of notices.
pub(super) struct Notices {
    identity: Identity,
    config: BusConfig,
    name: String,
    bus: Option<Bus>,
    publishers: BTreeMap<&'static str, Publisher>,
    /// When to open the bus at the earliest.
    due: Instant,
    problem: Option<String>,
    /// The session of this node, which its counters name.
    session: Option<u32>,
    /// The session of each stream that was followed.
    sessions: BTreeMap<(u32, u16), u32>,
    /// The receivers at the last report: stream, name and address.
    receivers: BTreeSet<(u16, String, String)>,
}

impl Notices {
    pub(super) fn new(config: &config::Bus, identity: Identity) -> Self {
        let mut bus =
            BusConfig::new().participant_name("node").capacity(CAPACITY).policy(Policy::Overwrite);
        if let Some(directory) = &config.directory {
            bus = bus.directory(directory);
        }
        if let Some(group) = &config.writers {
            bus = bus.writers_group(group);
        }
        if let Some(group) = &config.readers {
            bus = bus.readers_group(group);
        }
        let name = format!("{BUS_PREFIX}{}", identity.realm);
        Self {
            identity,
            config: bus,
            name,
            bus: None,
            publishers: BTreeMap::new(),
            due: Instant::now(),
            problem: None,
            session: None,
            sessions: BTreeMap::new(),
            receivers: BTreeSet::new(),
        }
    }

    /// Takes why notices cannot be published, if that is new.
    pub(super) fn problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Publishes a notice of a few lines, for which every bus has room.
    fn publish(&mut self, topic: &'static str, content: impl Serialize) {
        self.publish_if_it_fits(topic, content);
    }

    /// Publishes a notice. Returns whether it was short enough for the bus.
    fn publish_if_it_fits(&mut self, topic: &'static str, content: impl Serialize) -> bool {
        let Identity { node, bus, .. } = &self.identity;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let notice = Notice { time, node: node.clone(), bus: bus.clone(), content };
        let Ok(text) = serde_json::to_vec(&notice) else { return true };
        match self.try_publish(topic, &text) {
            Ok(fits) => fits,
            Err(problem) => {
                self.problem =
                    Some(format!("cannot publish notices on the bus {}: {problem}", self.name));
                (self.bus, self.due) = (None, Instant::now() + TRY_AGAIN);
                self.publishers.clear();
                true
            }
        }
    }

    /// Publishes the counters: as many of them as the bus takes.
    fn stats(&mut self, mut stats: Stats) {
        let mut shorter = SHORTER.into_iter();
        while !self.publish_if_it_fits(topic::STATS, &stats) {
            let Some(most) = shorter.next() else {
                self.problem = Some(format!(
                    "the counters are too long for a message of the bus {}: remove that bus, and the node makes a larger one",
                    self.name
                ));
                return;
            };
            stats.shorten(most);
        }
    }

    fn try_publish(&mut self, topic: &'static str, text: &[u8]) -> Result<bool, String> {
        if self.bus.is_none() {
            if Instant::now() < self.due {
                return Ok(true);
            }
            self.bus = Some(self.config.open(&self.name).map_err(|error| error.to_string())?);
        }
        let Some(bus) = &self.bus else { return Ok(true) };
        if !self.publishers.contains_key(topic) {
            let publisher = bus.publisher(topic).map_err(|error| error.to_string())?;
            self.publishers.insert(topic, publisher);
        }
        let Some(publisher) = self.publishers.get(topic) else { return Ok(true) };
        match publisher.try_publish(text) {
            // A process that holds up this bus must not hold up the node: the notice is left out.
            Ok(_) | Err(PublishError::Busy | PublishError::Full) => Ok(true),
            // The bus is none the worse for it.
            Err(PublishError::TooLong { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Publishes the counters, and which receivers came and went.
    pub(super) fn report(&mut self, report: &Report, sequencer: Option<Sequencer>) {
        let stats = Stats { sequencer, ..stats(report, &self.identity) };
        let now: BTreeSet<(u16, String, String)> = stats
            .sent
            .iter()
            .flat_map(|sent| {
                sent.receivers.iter().map(|it| (sent.stream, it.name.clone(), it.address.clone()))
            })
            .collect();
        self.session = Some(stats.session);
        self.stats(stats);
        let before = std::mem::replace(&mut self.receivers, now.clone());
        for (topic, why, changed) in [
            (topic::IN, "heard", now.difference(&before)),
            (topic::OUT, "not_heard", before.difference(&now)),
        ] {
            for (stream, name, address) in changed {
                let (name, address) = (name.clone(), Some(address.clone()));
                let why = why.to_owned();
                self.publish(topic, Member { stream: *stream, name, address, why });
            }
        }
    }

    /// Publishes that this node has been stopped in order.
    pub(super) fn end(&mut self) {
        if let Some(session) = self.session {
            self.publish(topic::END, toroni_shell::notice::End { session });
        }
    }

    /// Publishes that a member of a feed is in another term, or follows another leader.
    pub(super) fn term(&mut self, term: &Term) {
        self.publish(topic::TERM, term);
    }

    /// Publishes what a stream waits for, or that it waits no more.
    pub(super) fn group(&mut self, stream: Stream, awaited: Option<&Awaited>) {
        let missing = awaited.map_or(0, |awaited| awaited.missing);
        let absent = awaited.map_or_else(Vec::new, |awaited| awaited.absent.clone());
        self.publish(topic::GROUP, Group { stream: stream.0, missing, absent });
    }

    /// Publishes what has happened.
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Sender(stream, event) => self.sender(stream.0, event),
            Event::Arrivals(event) => self.arrivals(event),
            Event::Lost(lost, attribution) => self.publish(topic::LOSS, loss(lost, attribution)),
            Event::Exceeded(exceeded) => self.publish(topic::BUDGET, excess(exceeded)),
            Event::Tcp(_)
            | Event::Aside(..)
            | Event::Fetched(_)
            | Event::Refused(_)
            | Event::Unretained(_)
            | Event::Unsent(_)
            | Event::TooLong(_)
            | Event::Undrained(..)
            | Event::SentAgain(_)
            | Event::Moved(_)
            | Event::Stranger(_)
            | Event::Journal(_)
            | Event::JournalAgain(_)
            | Event::NewSeries(_)
            | Event::Stalled(_) => {}
        }
    }

    fn sender(&mut self, stream: u16, event: &sender::Event) {
        let member = |name: &toroni_proto::audience::Name, why: &str| {
            let (name, why) = (name.as_str().to_owned(), why.to_owned());
            Member { stream, name, address: None, why }
        };
        match event {
            sender::Event::Crybaby { address, name, dropped } => {
                let name = name.as_ref().map(|name| name.as_str().to_owned());
                let address = to_socket(*address).to_string();
                let kernel_dropped = *dropped;
                self.publish(topic::CRYBABY, Crybaby { stream, name, address, kernel_dropped });
            }
            sender::Event::PutOut { name, why } => {
                self.publish(topic::OUT, member(name, put_out(*why)))
            }
            sender::Event::Back { name } => self.publish(topic::IN, member(name, "caught_up")),
            sender::Event::Exceeded(exceeded) => self.publish(topic::BUDGET, excess(exceeded)),
            sender::Event::Closed => {}
        }
    }

    fn arrivals(&mut self, event: &arrivals::Event) {
        match event {
            arrivals::Event::Joined(flow) => {
                let key = (flow.source.0, flow.stream.0);
                if self.sessions.len() >= REMEMBERED {
                    self.sessions.clear();
                }
                let before = self.sessions.insert(key, flow.session.0);
                let is_another = before.is_some_and(|before| before != flow.session.0);
                let topic = if is_another { topic::RESTART } else { topic::UP };
                self.publish(topic, source(flow, None));
            }
            arrivals::Event::Ended(flow, end) => {
                let end = match end {
                    End::Complete | End::Sealed => "complete",
                    End::Silent => "silent",
                };
                self.publish(topic::DOWN, source(flow, Some(end)));
            }
            arrivals::Event::Collision { address, stop } => {
                let address = to_socket(*address).to_string();
                self.publish(topic::COLLISION, Collision { address, stop: *stop });
            }
            arrivals::Event::Exceeded(exceeded) => self.publish(topic::BUDGET, excess(exceeded)),
            // `stats` has what each leg brings.
            arrivals::Event::LegBehind(..) | arrivals::Event::Unlisted(..) => {}
        }
    }
}

pub(super) fn put_out(why: PutOut) -> &'static str {
    match why {
        PutOut::Silent => "silent",
        PutOut::Holds => "holds",
    }
}

fn source(flow: &Flow, end: Option<&str>) -> Source {
    let (source, session) = (flow.source.to_string(), flow.session.0);
    Source { source, stream: flow.stream.0, session, end: end.map(str::to_owned) }
}

fn loss(lost: &Lost, attribution: &Attribution) -> Loss {
    Loss {
        source: lost.source.to_string(),
        stream: lost.stream.0,
        reason: lost.reason.as_str().to_owned(),
        bound: lost.bound.as_str().to_owned(),
        messages: lost.messages,
        reports: lost.reports,
        place: attribution.place().to_owned(),
        socket_dropped: attribution.socket,
        text: attribution.to_string(),
    }
}

fn excess(exceeded: &Exceeded) -> Excess {
    let Exceeded { part, limit_ns, times, worst } = exceeded;
    Excess {
        part: part.name().to_owned(),
        limit_seconds: seconds(*limit_ns),
        times: *times,
        worst_seconds: seconds(worst.took_ns),
        source: worst.source.to_string(),
        stream: worst.stream.0,
        number: worst.number,
    }
}

fn seconds(ns: u64) -> f64 {
    as_f64(ns) / 1e9
}

fn stats(report: &Report, identity: &Identity) -> Stats {
    let receiver = |it: &toroni_net::node::report::Receiver| Receiver {
        source: it.source.to_string(),
        name: it.name.clone(),
        address: it.address.to_string(),
        lag_datagrams: it.lag_datagrams,
        lost: it.lost,
        naks: it.naks,
        kernel_dropped: it.dropped,
        rtt_seconds: seconds(it.rtt_ns),
    };
    let sent = |it: &toroni_net::node::report::Sent| Sent {
        stream: it.stream.0,
        messages: it.outlet.messages,
        datagrams: it.counters.data,
        retransmissions: it.counters.repairs,
        naks: it.counters.naks,
        overtaken: it.outlet.overtaken,
        too_long: it.outlet.too_long,
        no_topic: it.outlet.no_topic,
        lag_bytes: it.lag_bytes,
        window_datagrams: it.window_datagrams,
        data_rate: identity.rate(it.stream),
        receivers: it.receivers.iter().map(receiver).collect(),
    };
    let leg = |(leg, counters): &(toroni_proto::legs::Leg, toroni_proto::legs::LegCounters)| Leg {
        interface: identity.interface(leg.index()).to_owned(),
        first: counters.first,
        duplicates: counters.duplicates,
        missing: counters.missing,
    };
    let heard = |it: &toroni_net::node::report::Heard| Heard {
        source: it.source.to_string(),
        name: it.name.clone().unwrap_or_default(),
        stream: it.stream.0,
        session: it.session.0,
        messages: it.counters.messages,
        lost: it.counters.lost,
        naks: it.counters.naks,
        repaired: it.counters.repaired,
        duplicates: it.counters.duplicates,
        open_gaps: it.open_gaps as u64,
        held_datagrams: it.held as u64,
        legs: it.legs.iter().map(leg).collect(),
    };
    let losses = report.losses.iter().map(|(source, stream, reason, count)| LossCount {
        source: source.to_string(),
        stream: stream.0,
        reason: reason.as_str().to_owned(),
        reports: count.reports,
        messages: count.messages,
    });
    let sockets = report.sockets.iter().map(|it| Socket {
        interface: it.interface.clone(),
        kind: socket_kind(it.is_group).to_owned(),
        dropped: it.dropped,
    });
    let times = report.times.iter().filter(|it| it.count > 0).map(|it| Time {
        part: it.part.name().to_owned(),
        stream: it.stream.map(|(source, stream)| format!("{source}/{stream}")),
        count: it.count,
        p50_seconds: seconds(it.p50_ns),
        p99_seconds: seconds(it.p99_ns),
        p999_seconds: seconds(it.p999_ns),
        longest_seconds: seconds(it.longest_ns),
        limit_seconds: it.limit_ns.map(seconds),
        exceeded: it.exceeded,
    });
    Stats {
        realm: identity.realm.clone(),
        source: identity.source.clone(),
        session: identity.session,
        sent: report.sent.iter().map(sent).collect(),
        heard: report.heard.iter().map(heard).collect(),
        losses: losses.collect(),
        sockets: sockets.collect(),
        datagrams: Datagrams {
            sent: report.link.sent,
            received: report.link.received,
            refused: report.link.refused,
            truncated: report.link.truncated,
        },
        refused: report
            .refused()
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect(),
        times: times.collect(),
        sequencer: None,
        left_out: 0,
    }
}

/// Returns what a socket is for, in one word.
pub(super) fn socket_kind(is_group: bool) -> &'static str {
    if is_group { "group" } else { "unicast" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::{Start, Subscriber};

    fn notices(directory: &toroni_testkit::Directory) -> Notices {
        let config = config::Bus {
            name: "default".to_owned(),
            directory: Some(directory.path().to_owned()),
            capacity: None,
            policy: None,
            writers: None,
            readers: None,
        };
        let text = String::from;
        let identity = Identity {
            node: text("line-3"),
            realm: text("plant"),
            bus: text("default"),
            source: text("00000001"),
            session: 1,
            interfaces: Vec::new(),
            rates: Vec::new(),
        };
        Notices::new(&config, identity)
    }

    /// Returns the topic and the content of the next notice.
    fn next(subscriber: &mut Subscriber) -> Option<(String, serde_json::Value)> {
        let message = subscriber.try_receive().unwrap()?;
        let content = serde_json::from_slice(message.payload()).unwrap();
        Some((message.topic().to_owned(), content))
    }

    #[test]
    fn counters_that_are_too_long_are_shortened_and_stop_no_other_notice() {
        const STREAMS: usize = 5_000;
        let another = || Collision { address: "10.0.0.1:4479".to_owned(), stop: false };
        let directory = toroni_testkit::Directory::new();
        let mut notices = notices(&directory);
        let heard = vec![Heard { name: "n".repeat(64), ..Heard::default() }; STREAMS];
        notices.stats(Stats { heard, ..Stats::default() });
        notices.publish(topic::COLLISION, another());
        assert_eq!(notices.problem(), None);
        let bus = notices.bus.clone().unwrap();
        let mut subscriber = bus.subscriber().start(Start::Oldest).pattern("**").build().unwrap();
        let (on, content) = next(&mut subscriber).unwrap();
        assert_eq!(on, topic::STATS);
        assert_eq!(content["heard"].as_array().unwrap().len(), SHORTER[0]);
        assert_eq!(content["left_out"], STREAMS - SHORTER[0]);
        assert_eq!(next(&mut subscriber).unwrap().0, topic::COLLISION);
        // Even if nothing helps.
        let long = vec![LossCount { reason: "r".repeat(1 << 20), ..LossCount::default() }];
        notices.stats(Stats { losses: long, ..Stats::default() });
        assert!(notices.problem().unwrap().starts_with("the counters are too long for "));
        notices.publish(topic::COLLISION, another());
        assert_eq!(next(&mut subscriber).unwrap().0, topic::COLLISION);
    }
}
