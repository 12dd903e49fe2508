//! `toroni record`: writes the messages of a bus to an MCAP file.
//!
//! Two threads: the intake (`intake.rs`) copies messages out of the ring, and the writer (`split.rs`, `file.rs`) makes
//! files of them. A slow disk is no slow reader until all buffers between them are full.

mod clock;
mod control;
mod intake;
pub(crate) mod options;
mod split;
mod trigger;
mod values;

use crate::opening::{self, Awaited};
use control::{Action, Control, Request};
use intake::{BUFFERS, Buffer, HAND_ON_AFTER, Intake};
use options::Record;
use split::{Report, Series};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Bus, Start, Subscriber, SubscriberError};

use toroni_recording::format;
use toroni_shell::exchange::now_ns;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};
use toroni_shell::{human, note};
use trigger::Trigger;
use values::Retained;

/// Records until the arguments or a signal end it.
pub(crate) fn run(location: &BusLocation, arguments: &Record) -> Result<(), Failure> {
    if let [file, command] = &arguments.control[..] {
        return control::send(Path::new(file), &command.to_string_lossy());
    }
    // The definitions of the options require it.
    let file = arguments.file.as_deref().unwrap_or(Path::new(""));
    if arguments.repair {
        let stop = Stop::install(GracePeriod::Unlimited)?;
        return toroni_recording::repair::run(file, &stop);
    }
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    let patterns = toroni_shell::location::patterns(&arguments.patterns)?;
    opening::remark_on_bus_as_pattern(location, &patterns, "record");
    if arguments.split.is_none() && file.exists() {
        return Err(Failure::Failed(format!(
            "{} exists: choose another name, or remove it",
            file.display()
        )));
    }
    let stop = Stop::install(GracePeriod::Unlimited)?;
    // Before it waits for a bus: the signals would end it.
    let control = Control::start(file)?;
    let output = Output::new()?;
    let config = location.config().participant_name(arguments.name.as_str());
    let advice = format!("`toroni create {}` creates it now", location.bus);
    let (bus, start) =
        match opening::open_or_wait(&config, location, None, &advice, &stop, &output)? {
            Awaited::Found(bus) => (bus, arguments.from),
            // All of its messages were published after this command started.
            Awaited::Created(bus) if arguments.from == Start::Latest => (bus, Start::Oldest),
            Awaited::Created(bus) => (bus, arguments.from),
            Awaited::Missing => return Err(stop.interrupted("interrupted before there was a bus")),
        };
    let stats = bus.stats()?;
    let has_values = stats.retained.max_topics > 0;
    let mut subscriber = subscribe(&bus, arguments, start, has_values)?;
    control.ready();
    let stats = bus.stats()?;
    let description = arguments.description(notes(&bus, arguments, stats.sequence))?;
    let mut series = Series::new(file, description, arguments, stats.retained.bytes);
    if arguments.trigger.is_empty() {
        series.begin(0)?;
    }

    let (full, to_write) = mpsc::sync_channel(BUFFERS);
    let (written, free) = mpsc::channel();
    for _ in 1..BUFFERS {
        // The receiver is in scope.
        let _ = written.send(Buffer::default());
    }
    let writer = std::thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || series.run(&to_write, &written))
        .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    let exclude = arguments.exclude.clone();
    // Until the first message, a loss stands at the end of the stream.
    let trigger = arguments.trigger.clone();
    let retained = has_values.then(|| {
        let triggers = trigger.iter().map(|pattern| pattern.as_str().to_owned());
        Retained::new(&bus, arguments.patterns.iter().cloned().chain(triggers).collect())
    });
    let place = (stats.sequence, arguments.quiet);
    let intake = Intake::new(full, free, exclude, trigger, retained, place);
    let mut session = Session {
        bus: &bus,
        arguments,
        stop: &stop,
        writer: &writer,
        control: &control,
        has_values,
        intake,
        started: Instant::now(),
    };
    let ended = session.take_values(&mut subscriber).and_then(|()| ready.signal()).and_then(|()| {
        if arguments.trigger.is_empty() {
            session.record(&mut subscriber, false)
        } else {
            session.record_when_triggered(&mut subscriber)
        }
    });
    // Publishers need not wait for it any longer.
    drop(subscriber);
    let handed_on = session.intake.end_file();
    let (messages, lost) = (session.intake.messages, session.intake.lost);
    // The writer ends when the intake is gone.
    drop(session);
    // If it failed, that is why the intake did.
    let report = match writer.join() {
        Ok(report) => report?,
        Err(_) => return Err(Failure::Failed("the thread that writes has panicked".to_owned())),
    };
    let ended = ended.and(handed_on);
    if ended.is_err() && report.totals.is_empty() {
        // They would only be in the way of the next try.
        for file in &report.files {
            let _ = std::fs::remove_file(file);
        }
    } else if !arguments.quiet {
        describe(&report, lost);
    }
    ended?;
    if arguments.strict && lost > 0 {
        let lost = human::counted(lost, "message");
        return Err(Failure::Lost(format!("{lost} lost: the file says where")));
    }
    match arguments.count {
        Some(wanted) if messages < wanted && stop.is_set() => {
            Err(stop.interrupted(format!("interrupted after {messages} of {wanted} messages")))
        }
        _ if arguments.duration.is_some() && stop.is_set() => {
            Err(stop.interrupted("interrupted before --duration had passed"))
        }
        _ => Ok(()),
    }
}

fn subscribe(
    bus: &Bus,
    arguments: &Record,
    start: Start,
    has_values: bool,
) -> Result<Subscriber, SubscriberError> {
    let mut builder =
        bus.subscriber().start(start).gating(arguments.gate).name(arguments.name.as_str());
    let patterns = arguments.patterns.iter().map(String::as_str);
    // Values come first, so those of the trigger's topics must be known by then.
    for pattern in patterns.chain(arguments.trigger.iter().map(toroni::Pattern::as_str)) {
        builder = builder.pattern(pattern);
    }
    builder.retained(has_values).build()
}

/// Returns the metadata at the front of each file.
fn notes(bus: &Bus, arguments: &Record, sequence: u64) -> BTreeMap<String, String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let joined = |patterns: Vec<&str>| patterns.join(" ");
    [
        ("bus", bus.name().to_owned()),
        ("bus_id", bus.id().to_string()),
        ("host", host),
        ("started", human::rfc3339(now_ns())),
        (format::PATTERNS, joined(arguments.patterns.iter().map(String::as_str).collect())),
        ("exclude", joined(arguments.exclude.iter().map(toroni::Pattern::as_str).collect())),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        // The files have the low 32 bits of sequences. Those of the ring are near this one, on either side.
        (format::SEQUENCE_BASE, sequence.saturating_sub(1 << 31).to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

fn describe(report: &Report, lost: u64) {
    let file = match &report.files[..] {
        [] => "no file, because nothing triggered one".to_owned(),
        [file] => file.display().to_string(),
        [first, .., last] => format!("{} … {}", first.display(), last.display()),
    };
    note::remark(&format!(
        "recorded {}, {}, to {file} ({}), {} lost",
        human::counted(report.totals.messages, "message"),
        human::bytes(report.totals.bytes),
        human::bytes(report.length),
        human::count(lost),
    ));
}

struct Session<'a> {
    bus: &'a Bus,
    arguments: &'a Record,
    stop: &'a Stop,
    writer: &'a JoinHandle<Result<Report, Failure>>,
    control: &'a Control,
    /// Whether the bus keeps values.
    has_values: bool,
    intake: Intake,
    started: Instant,
}

impl Session<'_> {
    /// Whether `--duration`, a signal or a writer that has failed ends the recording. On a silent bus, the intake hands
    /// nothing on, and so would not notice the latter.
    fn is_over(&self) -> bool {
        self.stop.is_set()
            || self.writer.is_finished()
            || self.arguments.duration.is_some_and(|wanted| self.started.elapsed() >= wanted)
    }

    /// Takes the values that come first. Of a topic that is published before that, there is none: its message is in the stream.
    fn take_values(&mut self, subscriber: &mut Subscriber) -> Result<(), Failure> {
        while self.arguments.trigger.is_empty() && !subscriber.is_current() {
            match subscriber.receive_in_place_timeout(Duration::ZERO) {
                Ok(Some(mut run)) => {
                    let limit = self.arguments.count.unwrap_or(u64::MAX) - self.intake.messages;
                    self.intake.run(&mut run, limit, u64::MAX)?;
                }
                Ok(None) => {}
                Err(error) => self.intake.loss(error)?,
            }
        }
        Ok(())
    }

    /// Records until it is over, or until `--after` has passed since the last message that matches the trigger.
    fn record(&mut self, subscriber: &mut Subscriber, is_triggered: bool) -> Result<(), Failure> {
        let wanted = self.arguments.count.unwrap_or(u64::MAX);
        let mut end = u64::MAX;
        let mut fired = Instant::now();
        loop {
            while let Some(request) = self.control.next() {
                if request.action == Action::Snapshot && is_triggered {
                    fired = Instant::now();
                }
                self.handle(request, is_triggered)?;
            }
            self.intake.reach(subscriber.position());
            if end == u64::MAX
                && (self.is_over() || is_triggered && fired.elapsed() >= self.arguments.after)
            {
                // What was published until now belongs to the recording.
                end = self.bus.stats()?.tail;
            }
            let limit = wanted - self.intake.messages;
            if limit == 0 || subscriber.position() >= end && subscriber.is_current() {
                return Ok(());
            }
            // While there is nothing to hand on, only signals need a look.
            let wait = if end < u64::MAX || self.intake.has_due() {
                Duration::ZERO
            } else if self.intake.has_some() {
                HAND_ON_AFTER
            } else {
                toroni_shell::stop::CHECK_EVERY.min(self.left(is_triggered, fired))
            };
            match subscriber.receive_in_place_timeout(wait) {
                Ok(Some(mut run)) => {
                    if self.intake.run(&mut run, limit, end)? {
                        return Ok(());
                    }
                    if std::mem::take(&mut self.intake.fired) {
                        fired = Instant::now();
                    }
                }
                Ok(None) => {
                    self.intake.tick()?;
                    if end < u64::MAX {
                        return Ok(());
                    }
                }
                Err(error) => self.intake.loss(error)?,
            }
        }
    }

    /// Takes what is asked of the recorder while it records. It takes effect where the stream ends now.
    fn handle(&mut self, request: Request, is_triggered: bool) -> Result<(), Failure> {
        match request.action {
            Action::Split if self.arguments.split.is_none() => {
                request.answer(Err("it was started without --split".to_owned()));
            }
            Action::Snapshot if !is_triggered => {
                request.answer(Err(
                    "it was started without --trigger: it records everything".to_owned()
                ));
            }
            _ => self.intake.ask(self.bus.stats()?.tail, request, false),
        }
        Ok(())
    }

    /// Returns how long nothing is due.
    fn left(&self, is_triggered: bool, fired: Instant) -> Duration {
        let mut left = Duration::MAX;
        if let Some(duration) = self.arguments.duration {
            left = duration.saturating_sub(self.started.elapsed());
        }
        if is_triggered {
            left = left.min(self.arguments.after.saturating_sub(fired.elapsed()));
        }
        left.max(Duration::from_millis(1))
    }

    /// Reads along until a message matches, and then records what was before, and what comes after.
    fn record_when_triggered(&mut self, watcher: &mut Subscriber) -> Result<(), Failure> {
        let patterns = &self.arguments.trigger[..];
        loop {
            let began = watcher.position();
            let mut trigger = Trigger::new(patterns, self.arguments.before, began);
            if !self.watch(watcher, &mut trigger)? {
                return Ok(());
            }
            let (position, past) = trigger.fire(self.intake.clock.now_ns());
            self.intake.begin(past);
            let start = Start::Position(position);
            let has_values = self.has_values;
            let mut subscriber = match subscribe(self.bus, self.arguments, start, has_values) {
                // The ring does not reach back as far.
                Err(SubscriberError::PositionLost { .. }) => {
                    subscribe(self.bus, self.arguments, Start::Oldest, has_values)?
                }
                subscriber => subscriber?,
            };
            if !self.arguments.quiet {
                note::remark("triggered: recording");
            }
            self.record(&mut subscriber, true)?;
            let is_last = self.arguments.split.is_none()
                || self.is_over()
                || self.arguments.count.is_some_and(|wanted| self.intake.messages >= wanted);
            self.intake.end_file()?;
            if is_last {
                return Ok(());
            }
            // The next capture begins with what this one has not read.
            *watcher = subscriber;
        }
    }

    /// Reads along. Returns whether a message matched.
    fn watch(
        &mut self,
        watcher: &mut Subscriber,
        trigger: &mut Trigger<'_>,
    ) -> Result<bool, Failure> {
        while !self.is_over() {
            self.intake.wait();
            while let Some(request) = self.control.next() {
                if request.action == Action::Snapshot {
                    if !request.take() {
                        continue;
                    }
                    self.intake.ask(self.bus.stats()?.tail, request, true);
                    return Ok(true);
                }
                request.answer(Err("nothing is recorded: it waits for --trigger".to_owned()));
            }
            match watcher.receive_in_place_timeout(toroni_shell::stop::CHECK_EVERY) {
                Ok(Some(run)) => {
                    let mut fires = false;
                    let mut position = 0;
                    for message in run {
                        if message.is_retained() || message.is_cleared() {
                            continue;
                        }
                        position = message.next_position();
                        // Names of topics do not come from the part of the ring that may be overwritten.
                        fires |= trigger.matches(message.topic(), message.to_descendants());
                    }
                    if position > 0 {
                        trigger.mark(position, self.intake.clock.now_ns());
                    }
                    if fires {
                        return Ok(true);
                    }
                }
                Ok(None) => {}
                // What was overwritten could not have been recorded either.
                Err(error) if error.is_loss() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}
