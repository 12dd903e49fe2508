//! `toroni node --config FILE`: connects the bus of this host with those of other hosts, until a signal arrives.

use super::check;
use crate::failure::Failure;
use crate::note;
use crate::ready::ReadyFd;
use crate::stop::{GracePeriod, Stop};
use rustix::fd::AsFd;
use sd_notify::NotifyState;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};
use toroni_net::inlet;
use toroni_net::node::config::{self, Severity};
use toroni_net::node::link::to_socket;
use toroni_net::node::{Event, Node, scheduling, start, tcp};
use toroni_proto::arrivals::{self, Flow};
use toroni_proto::audience::PutOut;
use toroni_proto::budget::Exceeded;
use toroni_proto::id::{Source, Stream};
use toroni_proto::receiver::End;
use toroni_proto::sender;
use toroni_testkit::units::as_f64;

/// A line of one kind is logged at most once in this time.
const PAUSE: Duration = Duration::from_secs(10);

/// Runs the node that a file describes.
pub(super) fn run(path: &Path, ready_fd: Option<i32>) -> Result<(), Failure> {
    let ready = ReadyFd::claim(ready_fd)?;
    let reading = check::read(path, true)?;
    check::print_findings(path, &reading);
    let errors =
        reading.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let Some(config) = reading.node.filter(|_| errors == 0) else {
        return Err(check::refused(path, errors));
    };
    serve(&config, &path.display().to_string(), ready, || false)
}

/// Runs the node of a configuration until a signal arrives, or `is_done`, which is asked at least once a second. `origin` is
/// where the configuration comes from.
pub(crate) fn serve(
    config: &config::Node,
    origin: &str,
    ready: ReadyFd,
    is_done: impl Fn() -> bool,
) -> Result<(), Failure> {
    // It sends END, and repairs what others miss, before it leaves.
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let refused =
        |error: &dyn Display| Failure::Usage(format!("{origin}: the node does not start: {error}"));
    // Before anything else: it holds for all that this process does.
    if let Some(cpu) = config.cpu.filter(|_| config.is_busy) {
        scheduling::stay_on(cpu).map_err(|error| refused(&error))?;
    }
    if let Some(priority) = config.realtime {
        scheduling::realtime(priority).map_err(|error| refused(&error))?;
    }
    let (bus, settings) = start::prepare(config).map_err(|error| refused(&error))?;
    let mut node = Node::new(&bus, &settings).map_err(|error| refused(&error))?;
    let failed = |error: &dyn Display| Failure::Failed(format!("the node ends: {error}"));
    let wake = stop.descriptor().map_err(|error| failed(&error))?;
    let member = &settings.member;
    let interfaces: Vec<&str> =
        member.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    note::remark(&format!(
        "node {} of realm {}: source {}, session {}, bus {}, on {}",
        member.name,
        config.realm,
        member.source,
        member.session,
        bus.name(),
        if interfaces.is_empty() { "TCP only".to_owned() } else { interfaces.join(", ") },
    ));
    if let Some(listener) = node.tcp().and_then(tcp::Tcp::listener) {
        note::remark(&format!("listens on {}", listener.address()));
    }
    let mut log = Log::default();
    if let Some(grant) = node.link().buffers().find(|grant| !grant.is_enough())
        && let Some(change) = grant.change()
    {
        log.line(
            "buffer",
            format!(
                "the kernel gave a receive buffer of {} bytes, and {} are needed to survive {:?} without reading: {change}",
                grant.granted, grant.requested, config.stall
            ),
        );
    }
    let watchdog = watchdog();
    // Fails if systemd did not start this process, or does not wait for it.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    ready.signal()?;
    let mut fed = Instant::now();
    let mut ends = false;
    while !(ends && node.is_closed()) {
        if (stop.is_set() || is_done()) && !ends {
            ends = true;
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
            node.end(false);
        }
        let has_more = node.turn().map_err(|error| failed(&error))?;
        while let Some(event) = node.event() {
            if let Event::Arrivals(arrivals::Event::Collision { address, stop: true }) = event {
                let other = to_socket(address);
                return Err(failed(&format!(
                    "another node of this realm, at {other}, has the source id {}, and was there first: give one of \
                     them another `name` or `id`",
                    member.source
                )));
            }
            log.event(&node, &event);
        }
        log.losses(&node);
        if let Some(interval) = watchdog
            && fed.elapsed() >= interval
        {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            fed = Instant::now();
        }
        if !(has_more || config.is_busy || ends && node.is_closed()) {
            // Once it ends, the descriptor stays readable.
            node.wait((!ends).then_some(wake.as_fd())).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

/// Returns how often systemd wants to hear that this process works, if it does: three times in its interval.
fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|interval| interval / 3)
}

/// Writes lines to standard error. What happens often is written once in ten seconds, with its count.
#[derive(Default)]
struct Log {
    /// How many losses were reported when they were last looked at.
    losses: u64,
    kinds: HashMap<&'static str, (Instant, u64)>,
}

impl Log {
    fn line(&mut self, kind: &'static str, text: String) {
        let now = Instant::now();
        let (last, held) = match self.kinds.get_mut(kind) {
            Some((last, held)) if now.duration_since(*last) < PAUSE => {
                *held += 1;
                return;
            }
            Some((last, held)) => (last, held),
            None => {
                self.kinds.insert(kind, (now, 0));
                return note::remark(&text);
            }
        };
        *last = now;
        let more = std::mem::take(held);
        let more = if more > 0 { format!(" (and {more} times before)") } else { String::new() };
        note::remark(&format!("{text}{more}"));
    }

    /// Says what was lost since the last line about it.
    fn losses(&mut self, node: &Node) {
        let connections = node.tcp().map_or(&[][..], tcp::Tcp::connections);
        let inlets = node.receiving().map(|(_, inlet)| inlet);
        let inlets = inlets.chain(connections.iter().map(tcp::Connection::inlet));
        let (lost, losses) = inlets.fold((0_u64, 0), |(lost, losses), inlet| {
            let inlet::Counters { lost: of_one, losses: times, .. } = inlet.counters();
            (lost.saturating_add(of_one), losses + times)
        });
        if losses > self.losses {
            self.losses = losses;
            self.line("loss", format!("lost {lost} messages so far, reported {losses} times"));
        }
    }

    fn event(&mut self, node: &Node, event: &Event) {
        match event {
            Event::Sender(stream, event) => self.sender(&stream.to_string(), event),
            Event::Arrivals(event) => self.arrivals(node, event),
            Event::Tcp(event) => self.tcp(event),
            Event::Aside(source, stream) => self.aside("a group", *source, *stream),
            Event::Refused(error) => self.line("refused", error.to_string()),
            Event::Unsent(error) => self.line(
                "unsent",
                format!(
                    "cannot send: {error}; receivers ask again for what was not sent, and the node says when it can \
                     send again"
                ),
            ),
            Event::SentAgain(refused) => self.line(
                "sent again",
                format!("sends again: {refused} datagrams were refused meanwhile"),
            ),
            Event::Journal(error) => self.line(
                "journal",
                format!("cannot write the journal: {error}; a restart would send more again"),
            ),
            Event::Stalled(ns) => {
                self.line("stalled", format!("this process did not run for {} ms", ns / 1_000_000))
            }
        }
    }

    fn aside(&mut self, from: &str, source: Source, stream: Stream) {
        self.line(
            "aside",
            format!(
                "stream {stream} of source {source} comes by another way, too; from {from} it is not taken: give both the \
                 same topics, prefix and order"
            ),
        );
    }

    fn tcp(&mut self, event: &tcp::Event) {
        match event {
            tcp::Event::Joined { name, address } => {
                note::remark(&format!("node {name} has connected from {address}"));
            }
            tcp::Event::Left { name, address, reason } if name.is_empty() => {
                self.line("stranger", format!("{address} is no node of this realm: {reason}"));
            }
            tcp::Event::Left { name, address, reason } => {
                note::remark(&format!("node {name} at {address} is disconnected: {reason}"));
            }
            tcp::Event::Full(address) => self.line(
                "full",
                format!("no place for {address}: as many nodes have connected as `clients` in [listen] says"),
            ),
            tcp::Event::Unaccepted(error) => {
                self.line("unaccepted", format!("cannot take a connection: {error}"));
            }
            tcp::Event::Connected(address) => note::remark(&format!("connected to {address}")),
            tcp::Event::Disconnected { address, reason, error } => {
                let why = error.as_ref().map_or_else(|| reason.to_string(), ToString::to_string);
                // While the other one is away, each attempt fails.
                let kind = if error.is_some() { "unreachable" } else { "disconnected" };
                self.line(kind, format!("no connection to {address}: {why}; tries again"));
            }
            tcp::Event::Aside { address, source, stream } => {
                self.aside(&address.to_string(), *source, *stream);
            }
            tcp::Event::Refused(error) => self.line("refused", error.to_string()),
        }
    }

    fn sender(&mut self, stream: &str, event: &sender::Event) {
        let shown = |name: &Option<toroni_proto::audience::Name>| {
            name.as_ref().map_or_else(|| "unknown".to_owned(), |name| name.as_str().to_owned())
        };
        match event {
            sender::Event::Crybaby { name, dropped, .. } => self.line(
                "crybaby",
                format!(
                    "stream {stream}: node {} takes more than half of all retransmissions; its kernel has dropped {dropped} datagrams",
                    shown(name)
                ),
            ),
            sender::Event::PutOut { name, why } => {
                let why = match why {
                    PutOut::Silent => "it is silent",
                    PutOut::Holds => "it takes nothing",
                };
                note::remark(&format!("stream {stream}: no longer waits for {}: {why}", name.as_str()));
            }
            sender::Event::Back { name } => {
                note::remark(&format!("stream {stream}: waits for {} again", name.as_str()));
            }
            sender::Event::Closed => note::remark(&format!("stream {stream}: ended")),
            sender::Event::Exceeded(exceeded) => self.exceeded(exceeded),
        }
    }

    /// Without `[budget]` there are no limits, and this does not happen.
    fn exceeded(&mut self, exceeded: &Exceeded) {
        let ms = |ns: u64| format!("{:.1} ms", as_f64(ns) / 1e6);
        let Exceeded { part, limit_ns, times, worst } = exceeded;
        note::remark(&format!(
            "{} took longer than {} {times} times; the longest took {}",
            part.name(),
            ms(*limit_ns),
            ms(worst.took_ns)
        ));
    }

    fn arrivals(&mut self, node: &Node, event: &arrivals::Event) {
        let shown = |flow: &arrivals::Flow| {
            let Flow { source, stream, session, .. } = flow;
            match node.name_of(*source) {
                Some(name) => {
                    format!("stream {stream} of {name} (source {source}, session {session})")
                }
                None => format!("stream {stream} of source {source}, session {session}"),
            }
        };
        match event {
            arrivals::Event::Exceeded(exceeded) => self.exceeded(exceeded),
            arrivals::Event::Joined(flow) => note::remark(&format!("follows {}", shown(flow))),
            arrivals::Event::Ended(flow, end) => note::remark(&format!(
                "{} {}",
                shown(flow),
                match end {
                    End::Complete => "has ended",
                    End::Silent => "is silent",
                }
            )),
            arrivals::Event::Collision { address, .. } => self.line(
                "collision",
                format!(
                    "another node of this realm, at {}, has the same source id: give one of them another `name` or `id`",
                    to_socket(*address),
                ),
            ),
            arrivals::Event::LegBehind(flow, leg) => self.line(
                "leg",
                format!("interface {} brings less of {} than others", leg.index(), shown(flow)),
            ),
        }
    }
}
