//! `toroni node --config FILE`: connects the bus of this host with those of other hosts, until a signal arrives.

use super::check;
use super::lines::{self, Lines};
use super::log::{Format, Level, Line, Log};
use super::metrics::{Latest, Reports};
use super::notices::{Identity, Notices};
use super::sequencer::Sequencer;
use super::silence::Silence;
use super::waiting::{AGAIN, Kept, Waiting};
use super::wishes::Wishes;
use rustix::fd::AsFd;
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toroni_http::Request;
use toroni_net::node::config::{self, Severity};
use toroni_net::node::link::to_socket;
use toroni_net::node::report::{Awaited, Report};
use toroni_net::node::start::Lack;
use toroni_net::node::{Event, Node, scheduling, start, tcp};
use toroni_proto::arrivals;
use toroni_proto::budget::{Limits, Part};
use toroni_proto::id::Stream;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::note;
use toroni_shell::notice::{self, Term};
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};

/// How often the node takes a report of what it has counted.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How often it writes to the log what it has counted since its start.
const SUMMARY_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the node that a file describes.
pub(super) fn run(
    location: &BusLocation,
    path: &Path,
    format: Format,
    ready_fd: Option<i32>,
) -> Result<(), Failure> {
    let ready = ReadyFd::claim(ready_fd)?;
    // The interfaces of this host may come later: the node itself compares the file with them.
    let reading = check::read(path, false)?;
    match format {
        Format::Text => check::print_findings(path, &reading),
        Format::Json => {
            let log = Log::new(Level::Warn, format);
            for finding in &reading.findings {
                let level = match finding.severity {
                    Severity::Error => Level::Error,
                    Severity::Warning => Level::Warn,
                };
                log.answer(&Line::new(level, "configuration", check::shown(path, finding)));
            }
        }
    }
    let errors =
        reading.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let Some(mut config) = reading.node.filter(|_| errors == 0) else {
        return Err(check::refused(path, errors));
    };
    config.bus.directory = config.bus.directory.or_else(|| location.dir.clone());
    let origin = path.display().to_string();
    serve(&config, &Way { origin: &origin, about: None, format, is_service: true }, ready, || false)
}

/// How a node runs.
pub(crate) struct Way<'a> {
    /// Where its configuration comes from.
    pub(crate) origin: &'a str,
    /// What is said once it works.
    pub(crate) about: Option<&'a str>,
    pub(crate) format: Format,
    /// Whether it is to run for ever. Then it waits for what it lacks at the start, and SIGHUP ends it only if its log is a
    /// terminal. Otherwise a user waits for the first messages, and learns why none come.
    pub(crate) is_service: bool,
}

/// Runs the node of a configuration until a signal arrives, or `is_done`, which is asked at least once a second.
pub(crate) fn serve(
    config: &config::Node,
    way: &Way<'_>,
    ready: ReadyFd,
    is_done: impl Fn() -> bool,
) -> Result<(), Failure> {
    let Way { origin, about, format, is_service } = *way;
    let wishes = Wishes::install(is_service && !std::io::stderr().is_terminal())?;
    // It sends END, and repairs what others miss, before it leaves.
    let stop = Stop::install_for(wishes.others(), GracePeriod::Unlimited)?;
    let refused =
        |error: &dyn Display| Failure::Usage(format!("{origin}: the node does not start: {error}"));
    let mut prepared = start::prepare(config).map_err(|error| refused(&error))?;
    let mut log = Log::new(Level::named(&config.log), format);
    let latest = Arc::new(Latest::new(config.realm.clone()));
    let mut metrics = config.metrics;
    let watchdog = watchdog();
    let mut waiting = Waiting::default();
    let (settings, mut node) = loop {
        let error = match prepared.start() {
            Ok(started) => break started,
            Err(error) => error,
        };
        let Some(lack) = error.lack().filter(|_| is_service) else { return Err(refused(&error)) };
        waiting.say(lack, &error, &mut log, &latest);
        // The address may be that of another process, which has the source id, too, and ends soon.
        if let Some(address) = metrics
            && serve_metrics(address, &latest, &mut log).is_ok()
        {
            metrics = None;
        }
        if !stop.sleep(watchdog.map_or(AGAIN, |interval| interval.min(AGAIN))) {
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
            return Ok(());
        }
        if watchdog.is_some() {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
    };
    let mut sequencer = Sequencer::start(config, &settings).map_err(|error| refused(&error))?;
    node.set_limits(&limits(config));
    if let Some(about) = about {
        note::remark(about);
    }
    let member = &settings.member;
    let identity = Identity::new(config, &settings);
    let mut observer = Observer {
        log,
        lines: Lines::new(config.stall),
        notices: Notices::new(&config.bus, identity.clone()),
        identity: identity.clone(),
        latest,
        awaited: BTreeMap::new(),
        status: String::new(),
        silence: (!is_service).then(Silence::default),
        kept: Kept::default(),
        term: None,
        begun: Instant::now(),
        due: Instant::now(),
        summaries: Every::new(SUMMARY_EVERY, Instant::now()),
    };
    observer.log.line(
        Line::new(
            Level::Info,
            "start",
            format!(
                "node {} of realm {}: source {}, session {}, bus {}, on {}",
                member.name,
                config.realm,
                member.source,
                member.session,
                prepared.bus().name(),
                if identity.interfaces.is_empty() {
                    "TCP only".to_owned()
                } else {
                    identity.interfaces.join(", ")
                },
            ),
        )
        .with("source", member.source)
        .with("session", member.session),
    );
    if let Some(listener) = node.tcp().and_then(tcp::Tcp::listener) {
        let address = listener.address();
        let line = Line::new(Level::Info, "listen", format!("listens on {address}"));
        observer.log.line(line.with("address", address));
    }
    if let Some(sequencer) = &sequencer {
        observer.log.line(Line::new(Level::Info, "sequencer", sequencer.description()));
        if let Some(warning) = sequencer.warning() {
            observer.log.line(Line::new(Level::Warn, "descriptors", warning));
        }
    }
    if let Some(grant) = node.link().buffers().find(|grant| !grant.is_enough())
        && let Some(change) = grant.change()
    {
        let text = format!(
            "the kernel gave a receive buffer of {} bytes, and {} are needed to survive {:?} without reading: {change}",
            grant.granted, grant.requested, config.stall
        );
        observer.log.line(Line::new(Level::Warn, "buffer", text).with("bytes", grant.granted));
    }
    observer.report(&mut node, sequencer.as_mut());
    if let Some(address) = metrics {
        serve_metrics(address, &observer.latest, &mut observer.log).map_err(|error| {
            refused(&format!(
                "cannot serve metrics on {address}: {error}; choose another `metrics`"
            ))
        })?;
    }
    // After the thread that serves metrics was started, which would inherit it and never run beside a busy one.
    if let Some(cpu) = config.cpu.filter(|_| config.is_busy) {
        scheduling::stay_on(cpu).map_err(|error| refused(&error))?;
    }
    if let Some(priority) = config.realtime {
        scheduling::realtime(priority).map_err(|error| refused(&error))?;
    }
    // A node that sleeps for longer would be late.
    node.set_longest_sleep(watchdog.unwrap_or(Duration::MAX));
    // Fails if systemd did not start this process, or does not wait for it.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    ready.signal()?;
    let mut session = Session { config, node, sequencer, observer, watchdog, is_service };
    let ended = session.run(&stop, &wishes, is_done);
    // Also if it ends because of an error.
    session.summarise();
    ended?;
    session.observer.notices.end();
    session.sequencer.map_or(Ok(()), Sequencer::end).map_err(|error| failed(&error))
}

fn failed(error: &dyn Display) -> Failure {
    Failure::Failed(format!("the node ends: {error}"))
}

/// A node that works.
struct Session<'a> {
    config: &'a config::Node,
    node: Node,
    sequencer: Option<Sequencer>,
    observer: Observer,
    /// How often systemd wants to hear that this process works.
    watchdog: Option<Duration>,
    is_service: bool,
}

impl Session<'_> {
    /// Runs until a signal or `is_done` has ended it, and all is sent.
    fn run(
        &mut self,
        stop: &Stop,
        wishes: &Wishes,
        is_done: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let wake = stop.descriptor().map_err(|error| failed(&error))?;
        let mut fed = Instant::now();
        let mut ends = false;
        while !(ends && self.node.is_closed()) {
            if (stop.is_set() || is_done()) && !ends {
                ends = true;
                let _ = sd_notify::notify(&[NotifyState::Stopping]);
                self.node.end(!self.is_service);
            }
            let is_urgent = ends && stop.is_repeated();
            if is_urgent {
                self.node.abandon();
            }
            let has_more = self.node.turn().map_err(|error| failed(&error))?;
            while let Some(event) = self.node.event() {
                if let Event::Arrivals(arrivals::Event::Collision { address, stop: true }) = event {
                    self.observer.notices.event(&event);
                    let other = to_socket(address);
                    return Err(failed(&format!(
                        "another node of this realm, at {other}, has the source id {}, and was there first: give one of \
                         them another `name` or `id`",
                        self.observer.identity.source
                    )));
                }
                self.observer.event(&self.node, &event);
            }
            if self.observer.is_due() {
                if let Some(problem) = self.sequencer.as_mut().and_then(Sequencer::problem) {
                    return Err(failed(&problem));
                }
                self.observer.report(&mut self.node, self.sequencer.as_mut());
            }
            if wishes.counters() {
                self.observer.counters(&mut self.node, self.sequencer.as_mut());
            }
            if wishes.hangup() {
                let text = "SIGHUP has no effect: restart the node to have it read its file again";
                self.observer.log.answer(&Line::new(Level::Warn, "hangup", text));
            }
            if let Some(interval) = self.watchdog
                && fed.elapsed() >= interval
            {
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
                fed = Instant::now();
            }
            if is_urgent {
                break;
            }
            if !(has_more || self.config.is_busy || ends && self.node.is_closed()) {
                // Once it ends, the descriptor stays readable.
                self.node.wait((!ends).then_some(wake.as_fd())).map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }

    /// Writes to the log what the node has counted.
    fn summarise(&mut self) {
        let report = self.node.report();
        self.observer.log.line(lines::summary(&report, self.observer.begun.elapsed()));
    }
}

/// Serves metrics in a thread of its own, and says at which address: the system may have chosen the port.
fn serve_metrics(
    address: std::net::SocketAddr,
    latest: &Arc<Latest>,
    log: &mut Log,
) -> std::io::Result<()> {
    let latest = Arc::clone(latest);
    let answer =
        move |request: &Request<'_>| toroni_http::metrics::answer(request, || latest.text());
    let bound = toroni_http::serve_in_thread(address, Arc::new(answer))?;
    log.line(Line::new(Level::Info, "metrics", format!("serving http://{bound}/metrics")));
    Ok(())
}

/// Returns how long each part of the way may take.
fn limits(config: &config::Node) -> Limits {
    let mut limits = Limits::default();
    for (name, limit) in &config.budget {
        if let Some(part) = Part::ALL.into_iter().find(|part| part.name() == *name) {
            limits.set(part, Some(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)));
        }
    }
    limits
}

/// Returns how often systemd wants to hear that this process works, if it does: three times in its interval.
fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|interval| interval / 3)
}

/// What a node tells: its log, its notices and its metrics.
struct Observer {
    log: Log,
    lines: Lines,
    notices: Notices,
    identity: Identity,
    latest: Arc<Latest>,
    /// What the streams wait for before they send anything.
    awaited: BTreeMap<Stream, Awaited>,
    /// What systemd was told.
    status: String,
    /// Says once that no other host answers, if that is to be said.
    silence: Option<Silence>,
    /// Says that an exclusive publisher keeps the bus for itself.
    kept: Kept,
    /// The term of the member of a feed, and its leader.
    term: Option<Term>,
    begun: Instant,
    due: Instant,
    summaries: Every,
}

/// What happens once in each interval.
struct Every {
    interval: Duration,
    last: Instant,
}

impl Every {
    fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, last: now }
    }

    /// Whether it is to happen now. What was missed is not made up for.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.last) >= self.interval;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

/// However the node ends, nothing that it has to say is left out.
impl Drop for Observer {
    fn drop(&mut self) {
        self.log.finish();
    }
}

impl Observer {
    fn event(&mut self, node: &Node, event: &Event) {
        self.notices.event(event);
        self.log.line(self.lines.of(node, event));
    }

    /// Writes all counters, because somebody has asked for them.
    fn counters(&mut self, node: &mut Node, sequencer: Option<&mut Sequencer>) {
        self.due = Instant::now();
        self.report(node, sequencer);
        for line in lines::all_counters(&self.latest.text()) {
            self.log.answer(&line);
        }
    }

    /// Whether it is time for a report.
    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    fn report(&mut self, node: &mut Node, sequencer: Option<&mut Sequencer>) {
        self.due = Instant::now() + REPORT_EVERY;
        self.log.write_held();
        let report = node.report();
        let sequencer = sequencer.map(|sequencer| {
            sequencer.notes().for_each(|line| self.log.line(line));
            sequencer.report()
        });
        if let Some(sequencer) = &sequencer {
            self.term(sequencer);
            for line in lines::ways(sequencer) {
                self.log.line(line);
            }
        }
        self.groups(&report);
        if let Some(line) = self.kept.line(report.exclusive.as_ref()) {
            self.log.line(line);
        }
        let silence = self.silence.as_mut();
        if let Some(text) = silence.and_then(|it| it.notice(Instant::now(), &report)) {
            self.log.line(Line::new(Level::Warn, "silence", text));
        }
        let status = lines::status(&report);
        if status != self.status {
            // Fails if systemd did not start this process.
            let _ = sd_notify::notify(&[NotifyState::Status(&status)]);
            self.status = status;
        }
        self.notices.report(&report, sequencer.clone());
        self.log.line(lines::counters(&report));
        if self.summaries.is_due(Instant::now()) {
            self.log.line(lines::summary(&report, self.begun.elapsed()));
        }
        let identity = Some(self.identity.clone());
        let lack = report.exclusive.as_ref().map(|_| Lack::Exclusive);
        self.latest.set(Reports { lack, identity, node: report, sequencer });
        if let Some(problem) = self.notices.problem() {
            self.log.line(Line::new(Level::Warn, "notices", problem));
        }
    }

    /// Tells which streams wait for something else than at the last report.
    fn groups(&mut self, report: &Report) {
        for sent in &report.sent {
            if sent.awaited.as_ref() == self.awaited.get(&sent.stream) {
                continue;
            }
            self.log.line(lines::group(sent.stream, sent.awaited.as_ref()));
            self.notices.group(sent.stream, sent.awaited.as_ref());
            match &sent.awaited {
                Some(awaited) => self.awaited.insert(sent.stream, awaited.clone()),
                None => self.awaited.remove(&sent.stream),
            };
        }
    }

    /// Tells of another term or leader than at the last report.
    fn term(&mut self, sequencer: &notice::Sequencer) {
        let Some(member) = &sequencer.member else { return };
        let term = Term {
            feed: sequencer.feed.clone(),
            member: member.name.clone(),
            term: member.term,
            leader: member.leader.clone(),
            hindrance: member.hindrance.clone(),
        };
        // A member without a group asks the others first whether there is one.
        let asks =
            term.term == 0 && term.hindrance.is_none() && self.begun.elapsed() < REPORT_EVERY;
        if self.term.as_ref() != Some(&term) && !asks {
            self.log.line(lines::term(&term));
            self.notices.term(&term);
            self.term = Some(term);
        }
        for line in lines::troubles(&sequencer.feed, member) {
            self.log.line(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_that_was_slept_through_is_not_made_up_for() {
        let begun = Instant::now();
        let mut daily = Every::new(SUMMARY_EVERY, begun);
        let hours: Vec<u64> = [0, 1, 23, 24, 25, 47, 48, 100, 101, 124]
            .into_iter()
            .filter(|hour| daily.is_due(begun + Duration::from_secs(hour * 3_600)))
            .collect();
        assert_eq!(hours, [24, 48, 100, 124]);
    }
}
