//! What the log of a node says of each event.

use super::log::{Level, Line};
use super::notices::put_out;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;
use toroni_net::inlet::{Exclusive, Unretained};
use toroni_net::losses::Lost;
use toroni_net::node::fetch::Fetched;
use toroni_net::node::host_port::HostPort;
use toroni_net::node::kernel::Attribution;
use toroni_net::node::link::{Moved, TooLong, to_socket};
use toroni_net::node::report::{Awaited, Report};
use toroni_net::node::strangers::Stranger;
use toroni_net::node::tcp;
use toroni_net::node::{Event, Node};
use toroni_process::units::as_f64;
use toroni_proto::arrivals::{self, Flow};
use toroni_proto::audience::{Name, PutOut};
use toroni_proto::budget::Exceeded;
use toroni_proto::id::{Source, Stream};
use toroni_proto::receiver::End;
use toroni_proto::sender;
use toroni_proto::wire::Reject;
use toroni_shell::human;
use toroni_shell::notice::{OrderMember, Sequencer, Term};

/// Words for what happens, by what was said before.
pub(super) struct Lines {
    /// How long the process may not run without harm.
    stall: Duration,
    /// The nodes to which a connection was made, and has not ended.
    connected: BTreeSet<HostPort>,
}

impl Lines {
    pub(super) fn new(stall: Duration) -> Self {
        Self { stall, connected: BTreeSet::new() }
    }

    /// Returns the line about an event.
    pub(super) fn of(&mut self, node: &Node, event: &Event) -> Line {
        match event {
            Event::Sender(stream, event) => sender(stream.0, event),
            Event::Arrivals(event) => arrivals(node, event),
            Event::Lost(lost, attribution) => loss(lost, attribution),
            Event::Exceeded(found) => exceeded(found),
            Event::Tcp(event) => self.tcp(event),
            Event::Aside(source, stream) => aside("a group", *source, *stream),
            Event::Fetched(fetched) => history(node, fetched),
            Event::Refused(error) => Line::new(Level::Warn, "refused", error.to_string()),
            Event::Unretained(found) => unretained(found),
            Event::Unsent(error) => {
                let text = format!(
                    "cannot send: {error}; receivers ask again for what was not sent, and the node says when it can send again"
                );
                Line::new(Level::Warn, "unsent", text)
            }
            Event::TooLong(found) => too_long(found),
            Event::Undrained(stream, unsent) => {
                let text = format!(
                    "stops stream {stream} with up to {unsent} messages of the bus unsent: they are sent after a restart, if the bus still has them"
                );
                Line::new(Level::Warn, "undrained", text)
                    .by("stream", *stream)
                    .with("messages", unsent)
            }
            Event::SentAgain(refused) => {
                let text = format!("sends again: {refused} datagrams were refused meanwhile");
                Line::new(Level::Info, "sent_again", text).with("refused", refused)
            }
            Event::Moved(moved) => self::moved(moved),
            Event::Stranger(stranger) => self::stranger(stranger),
            Event::Journal(error) => {
                let text =
                    format!("cannot write the journal: {error}; a restart would send more again");
                Line::new(Level::Warn, "journal", text)
            }
            Event::NewSeries(doubt) => {
                let text = format!(
                    "sends another series: the bus may not be as this node left it, because {doubt}; receivers report that more may be missing"
                );
                Line::new(Level::Warn, "new_series", text)
            }
            Event::JournalAgain(failures) => {
                let text = format!(
                    "writes the journal again: {failures} checkpoints could not be written"
                );
                Line::new(Level::Info, "journal_again", text).with("failures", failures)
            }
            Event::Stalled(ns) => {
                let ms = ns / 1_000_000;
                let text = format!("this process did not run for {ms} ms");
                let is_harmless = Duration::from_nanos(*ns) < self.stall;
                let level = if is_harmless { Level::Debug } else { Level::Warn };
                Line::new(level, "stalled", text).with("ms", ms)
            }
        }
    }

    fn tcp(&mut self, event: &tcp::Event) -> Line {
        let about = |level, event, text, address: &dyn std::fmt::Display| {
            Line::new(level, event, text).by("address", address)
        };
        match event {
            tcp::Event::Joined { name, address } => {
                let text = format!("node {name} has connected from {address}");
                about(Level::Info, "client_in", text, address)
            }
            // Anyone can connect, from any address: these lines are of one kind.
            tcp::Event::Left { name, address, reason } if name.is_empty() => {
                let text = format!("{address} is no node of this realm: {reason}");
                Line::new(Level::Warn, "stranger", text).with("address", address)
            }
            tcp::Event::Left { name, address, reason } => {
                let text = format!("node {name} at {address} is disconnected: {reason}");
                about(Level::Info, "client_out", text, address)
            }
            tcp::Event::Undrained { name, address, unsent } => {
                let text = format!(
                    "stops with up to {unsent} messages of the bus unsent to node {name} at {address}: it gets them after a restart, if the bus still has them"
                );
                about(Level::Warn, "undrained", text, address).with("messages", unsent)
            }
            tcp::Event::Full(address) => {
                let text = format!(
                    "no place for {address}: as many nodes have connected as `clients` in [listen] says"
                );
                Line::new(Level::Warn, "full", text).with("address", address)
            }
            tcp::Event::Unaccepted(error) => {
                Line::new(Level::Warn, "unaccepted", format!("cannot take a connection: {error}"))
            }
            tcp::Event::Connected(address) => {
                self.connected.insert(address.clone());
                about(Level::Info, "connected", format!("connected to {address}"), address)
            }
            tcp::Event::Disconnected { address, reason, error } => {
                let why = error.as_ref().map_or_else(|| reason.to_string(), ToString::to_string);
                // While the other one is away, each attempt fails.
                let (kind, text) = if self.connected.remove(address) {
                    let text =
                        format!("the connection to {address} has ended: {why}; connects again");
                    ("disconnected", text)
                } else {
                    ("unreachable", format!("no connection to {address}: {why}; tries again"))
                };
                about(Level::Warn, kind, text, address)
            }
            tcp::Event::Aside { address, source, stream } => {
                aside(&address.to_string(), *source, *stream)
            }
            tcp::Event::Refused(error) => Line::new(Level::Warn, "refused", error.to_string()),
            tcp::Event::Unretained(found) => unretained(found),
        }
    }
}

/// Returns the line about a topic that is not retained.
fn unretained(found: &Unretained) -> Line {
    let line = Line::new(Level::Warn, "unretained", found.to_string()).by_text("bus", &found.bus);
    found.topic.iter().fold(line, |line, topic| line.by_text("topic", topic))
}

/// Returns the line about datagrams that are longer than an interface takes.
fn too_long(TooLong { interface, mtu, bytes, headers, refused }: &TooLong) -> Line {
    let (least, why) = (bytes + u64::from(*headers), "receivers report what was in them as lost");
    let text = match mtu {
        Some(mtu) => format!(
            "cannot send datagrams of {bytes} bytes on {interface}, whose MTU of {mtu} bytes leaves less beside {headers} bytes \
             of IP and UDP: {why}. Set the MTU to at least {least} (ip link set {interface} mtu {least}), or `datagram` to at \
             most {}B, and start the node again",
            mtu.saturating_sub(*headers)
        ),
        None => format!("could not send datagrams of {bytes} bytes on {interface}: {why}"),
    };
    let line = Line::new(Level::Warn, "too_long", text).by("interface", interface);
    line.with("bytes", bytes).with("refused", refused)
}

/// Returns the line about an interface whose address has changed.
fn moved(moved: &Moved) -> Line {
    let (level, event, interface, text) = match moved {
        Moved::To { interface, from, to } => {
            let text = format!(
                "the address of {interface} has changed: the node sends from {to}, and no longer from {from}"
            );
            (Level::Info, "moved", interface, text)
        }
        Moved::Failed { interface, error } => {
            let text =
                format!("the address of {interface} has changed: {error}; the node tries again");
            (Level::Warn, "not_moved", interface, text)
        }
    };
    Line::new(level, event, text).by("interface", interface)
}

/// Returns the line about a node that has another key or version. Anyone can forge an address: these lines are of one kind.
fn stranger(Stranger { address, reason }: &Stranger) -> Line {
    let change = match reason {
        Reject::MacMissing => "set the same `key_file` there as here",
        Reject::MacUnexpected => "set the same `key_file` here as there",
        Reject::Version => "run the same version of toroni on both hosts",
        _ => "set the same `key_file` on both hosts",
    };
    let text = format!(
        "refuses what comes from {address} for a node of this realm: it is {reason}; {change}"
    );
    Line::new(Level::Warn, "stranger", text).with("address", address).by("reason", reason.name())
}

/// Returns the line about another term of a feed, or another leader.
pub(super) fn term(term: &Term) -> Line {
    let Term { feed, member, term, leader, hindrance } = term;
    let (level, text) = match leader {
        Some(leader) if leader == member => {
            (Level::Info, format!("leads the feed {feed} in term {term}"))
        }
        Some(leader) => {
            (Level::Info, format!("follows {leader} in the feed {feed}, in term {term}"))
        }
        None if *term == 0 => {
            let text = match hindrance {
                Some(why) => format!("is no member of the group of the feed {feed}: {why}"),
                None => format!("the feed {feed} has not begun: toroni sequencer init begins it"),
            };
            (Level::Warn, text)
        }
        None if let Some(why) = hindrance => {
            let text =
                format!("leads the feed {feed} in term {term}, but {why}: it takes no commands");
            (Level::Warn, text)
        }
        None => (Level::Warn, format!("the feed {feed} has no leader, in term {term}")),
    };
    Line::new(level, "term", text).by("term", term)
}

/// Returns a line about everything that keeps a member of a feed from its work.
pub(super) fn troubles(feed: &str, member: &OrderMember) -> impl Iterator<Item = Line> {
    let full = member.is_full.then(|| {
        let room = member.room_bytes;
        let text = format!("the disk of the log of the feed {feed} is full: the member takes no more until there is room");
        Line::new(Level::Warn, "full", text).with("room", room)
    });
    let uncertain = member.is_uncertain.then(|| {
        let text = format!(
            "this host rebooted before the log of the feed {feed} was synced: the member neither votes nor leads until a \
             leader has brought it what it lacks"
        );
        Line::new(Level::Warn, "uncertain", text)
    });
    let recovery = member.needs_recovery.then(|| {
        let text = format!("too many members of the feed {feed} rebooted before their logs were synced: none can lead");
        Line::new(Level::Error, "needs_recovery", text)
    });
    [full, uncertain, recovery].into_iter().flatten()
}

/// Returns a line about what keeps the multicast, the archive, the courier and the follower of a feed from their work.
pub(super) fn ways(sequencer: &Sequencer) -> impl Iterator<Item = Line> {
    let feed = &sequencer.feed;
    let multicast = sequencer.multicast.as_ref().and_then(|it| it.problem.as_ref());
    let multicast = multicast.map(|problem| {
        let text = format!(
            "events of the feed {feed} go over TCP alone, because multicast fails: {problem}"
        );
        Line::new(Level::Warn, "feed_multicast", text)
    });
    let archive = sequencer.archive.as_ref();
    let stopped = archive.and_then(|it| it.problem.as_ref()).map(|problem| {
        let text = format!("the archive of the feed {feed} takes no more events: {problem}");
        Line::new(Level::Error, "archive_stopped", text)
    });
    let full = archive.filter(|it| it.is_full).map(|_| {
        let text = format!("the disk of the archive of the feed {feed} is full: it takes no more until there is room");
        Line::new(Level::Warn, "archive_full", text)
    });
    let refused = sequencer.refused.as_ref().map(|why| {
        let text = format!("the order of the feed {feed} takes no commands of this host: {why}");
        Line::new(Level::Error, "commands_refused", text)
    });
    let diverged =
        sequencer.stopped.as_ref().map(|why| Line::new(Level::Error, "feed_stopped", why));
    [multicast, stopped, full, refused, diverged].into_iter().flatten()
}

/// Returns the line with the counters of the node.
pub(super) fn counters(report: &Report) -> Line {
    Counted::of(report).add_to(Line::new(Level::Debug, "counters", "counters"))
}

/// Returns the line with what the node has counted in all the time that it runs.
pub(super) fn summary(report: &Report, run: Duration) -> Line {
    let counted = Counted::of(report);
    let text = format!(
        "in {}: sent {}, and {} again; brought {}, and {} were lost; the kernel dropped {}",
        human::duration(run),
        human::counted(counted.sent, "message"),
        human::counted(counted.repairs, "datagram"),
        human::counted(counted.brought, "message"),
        human::count(counted.lost),
        human::counted(counted.dropped, "datagram"),
    );
    counted.add_to(Line::new(Level::Info, "summary", text).with("seconds", run.as_secs()))
}

/// What tells whether the network and the node keep up.
struct Counted {
    sent: u64,
    repairs: u64,
    naks: u64,
    brought: u64,
    lost: u64,
    datagrams_sent: u64,
    datagrams_received: u64,
    refused: u64,
    dropped: u64,
}

impl Counted {
    fn of(report: &Report) -> Self {
        let sum = |of: &dyn Fn(&toroni_net::node::report::Sent) -> u64| {
            report.sent.iter().map(of).sum::<u64>()
        };
        let inlet = report.inlet.unwrap_or_default();
        Self {
            sent: sum(&|sent| sent.outlet.messages),
            repairs: sum(&|sent| sent.counters.repairs),
            naks: sum(&|sent| sent.counters.naks),
            brought: inlet.messages,
            lost: inlet.lost,
            datagrams_sent: report.link.sent,
            datagrams_received: report.link.received,
            refused: report.refused.iter().sum(),
            dropped: report.sockets.iter().map(|socket| socket.dropped).sum(),
        }
    }

    fn add_to(&self, line: Line) -> Line {
        line.with("sent_messages", self.sent)
            .with("retransmissions", self.repairs)
            .with("naks_received", self.naks)
            .with("received_messages", self.brought)
            .with("lost_messages", self.lost)
            .with("datagrams_sent", self.datagrams_sent)
            .with("datagrams_received", self.datagrams_received)
            .with("datagrams_refused", self.refused)
            .with("kernel_dropped", self.dropped)
    }
}

/// Returns the line about what a stream waits for, or that it waits no more.
pub(super) fn group(stream: Stream, awaited: Option<&Awaited>) -> Line {
    let line = match awaited {
        Some(Awaited { missing, absent }) => {
            let text = format!(
                "stream {stream}: sends nothing yet: its group lacks {}; not there: {}",
                human::counted(*missing, "required receiver"),
                absent.join(", ")
            );
            Line::new(Level::Warn, "group_waits", text).with("missing", missing)
        }
        None => {
            let text = format!("stream {stream}: its group is complete");
            Line::new(Level::Info, "group_complete", text)
        }
    };
    line.by("stream", stream)
}

/// Returns what the node does, in one line.
pub(super) fn status(report: &Report) -> String {
    let receivers = report.sent.iter().map(|sent| sent.receivers.len()).sum::<usize>();
    let lost = report.inlet.unwrap_or_default().lost;
    let mut status = format!(
        "sends {} to {}, follows {}, lost {}",
        human::counted(report.sent.len() as u64, "stream"),
        human::counted(receivers as u64, "receiver"),
        human::counted(report.heard.len() as u64, "stream"),
        human::counted(lost, "message"),
    );
    for sent in &report.sent {
        if let Some(awaited) = &sent.awaited {
            // Writing to a string cannot fail.
            let _ =
                write!(status, "; stream {} waits for {}", sent.stream, awaited.absent.join(", "));
        }
    }
    if let Some(Exclusive { bus, name, pid }) = &report.exclusive {
        let _ =
            write!(status, "; waits: {name:?}, process {pid}, publishes exclusively on bus {bus}");
    }
    status
}

/// Returns a line for each counter, as the metrics have them.
pub(super) fn all_counters(metrics: &str) -> impl Iterator<Item = Line> {
    let samples =
        metrics.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
    samples.map(|sample| Line::new(Level::Info, "counter", sample))
}

fn loss(lost: &Lost, attribution: &Attribution) -> Line {
    let Lost { source, stream, reason, messages, bound, .. } = lost;
    let (reason, bound) = (reason.as_str(), bound.as_str());
    let cause =
        if attribution.is_about_datagrams { format!(": {attribution}") } else { String::new() };
    let exact = match bound {
        "at_least" => "at least ",
        "at_most" => "at most ",
        _ => "",
    };
    let of = format!("messages of stream {stream} of source {source}{cause}");
    let text = move |messages| format!("lost {exact}{messages} {of}");
    Line::counting(Level::Warn, "loss", *messages, text)
        .by("reason", reason)
        .with_count("messages")
        .by("bound", bound)
        .by("source", source)
        .by("stream", stream)
        .with("place", attribution.place())
        .with("socket_dropped", attribution.socket)
}

fn aside(from: &str, source: Source, stream: Stream) -> Line {
    let text = format!(
        "stream {stream} of source {source} comes by another way, too; from {from} it is not taken: give both the same \
         topics, prefix and order"
    );
    Line::new(Level::Warn, "aside", text).by("source", source).by("stream", stream)
}

/// What a source had sent before, fetched from its server.
fn history(node: &Node, fetched: &Fetched) -> Line {
    let Fetched { source, stream, address, messages, failure } = fetched;
    let from = node.name_of(*source).map_or_else(|| source.to_string(), str::to_owned);
    let of = format!("of stream {stream} of {from}");
    let line = match failure {
        None => {
            Line::new(Level::Info, "fetched", format!("fetched {messages} earlier messages {of}"))
        }
        Some(why) => {
            let text = format!(
                "cannot fetch earlier messages {of}, after {messages}: {why}; what is missing is reported as lost"
            );
            Line::new(Level::Warn, "unfetched", text)
        }
    };
    let line = line.with("source", source).with("stream", stream).with("messages", messages);
    match address {
        Some(address) => line.with("address", address),
        None => line,
    }
}

fn sender(stream: u16, event: &sender::Event) -> Line {
    let shown = |name: &Option<Name>| {
        name.as_ref().map_or_else(|| "unknown".to_owned(), |name| name.as_str().to_owned())
    };
    match event {
        sender::Event::Crybaby { name, dropped, address } => {
            let name = shown(name);
            let text = format!(
                "stream {stream}: node {name} takes more than half of all retransmissions; its kernel has dropped \
                 {dropped} datagrams"
            );
            Line::new(Level::Warn, "crybaby", text)
                .by("stream", stream)
                .by_text("receiver", &name)
                .with("address", to_socket(*address))
                .with("kernel_dropped", dropped)
        }
        sender::Event::PutOut { name, why } => {
            let shown = match why {
                PutOut::Silent => "it is silent",
                PutOut::Holds => "it takes nothing",
            };
            let why = put_out(*why);
            let text = format!("stream {stream}: no longer waits for {}: {shown}", name.as_str());
            Line::new(Level::Warn, "receiver_out", text)
                .by("stream", stream)
                .by_text("receiver", name.as_str())
                .with("why", why)
        }
        sender::Event::Back { name } => {
            let text = format!("stream {stream}: waits for {} again", name.as_str());
            Line::new(Level::Info, "receiver_in", text)
                .by("stream", stream)
                .by_text("receiver", name.as_str())
        }
        sender::Event::Closed => {
            let text = format!("stream {stream}: ended");
            Line::new(Level::Info, "closed", text).by("stream", stream)
        }
        sender::Event::Exceeded(found) => exceeded(found),
    }
}

fn exceeded(exceeded: &Exceeded) -> Line {
    let Exceeded { part, limit_ns, times, worst } = exceeded;
    let ms = |ns: u64| format!("{:.3} ms", as_f64(ns) / 1e6);
    let text = format!(
        "{} took longer than {} {times} times; the longest took {}",
        part.name(),
        ms(*limit_ns),
        ms(worst.took_ns)
    );
    Line::new(Level::Warn, "budget", text)
        .by("part", part.name())
        .with("times", times)
        .with("worst_ns", worst.took_ns)
        .with("source", worst.source)
        .with("stream", worst.stream)
        .with("number", worst.number)
}

fn arrivals(node: &Node, event: &arrivals::Event) -> Line {
    let shown = |flow: &Flow| {
        let Flow { source, stream, session, .. } = flow;
        match node.name_of(*source) {
            Some(name) => format!("stream {stream} of {name} (source {source}, session {session})"),
            None => format!("stream {stream} of source {source}, session {session}"),
        }
    };
    let about = |level, event, text: String, flow: &Flow| {
        let line = Line::new(level, event, text);
        line.by("source", flow.source).by("stream", flow.stream).by("session", flow.session)
    };
    match event {
        arrivals::Event::Exceeded(found) => exceeded(found),
        arrivals::Event::Joined(flow) => {
            about(Level::Info, "source_up", format!("follows {}", shown(flow)), flow)
        }
        arrivals::Event::Ended(flow, End::Complete | End::Sealed) => {
            about(Level::Info, "source_down", format!("{} has ended", shown(flow)), flow)
        }
        arrivals::Event::Ended(flow, End::Silent) => {
            about(Level::Warn, "source_silent", format!("{} is silent", shown(flow)), flow)
        }
        arrivals::Event::Collision { address, .. } => {
            let other = to_socket(*address);
            let text = format!(
                "another node of this realm, at {other}, has the same source id: give one of them another `name` or `id`"
            );
            Line::new(Level::Warn, "collision", text).with("address", other)
        }
        arrivals::Event::Unlisted(flow, address) => {
            let text = format!(
                "{} comes from {}, which is no address of its host: what is asked goes to those, and if the network between \
                 translates addresses, set `announce = \"observed\"` there",
                shown(flow),
                to_socket(*address)
            );
            about(Level::Warn, "unlisted_address", text, flow).by("address", to_socket(*address))
        }
        arrivals::Event::LegBehind(flow, leg) => {
            let text =
                format!("interface {} brings less of {} than others", leg.index(), shown(flow));
            about(Level::Warn, "leg", text, flow).by("leg", leg.index())
        }
    }
}
