//! `toroni sub`: prints messages in the order of the bus.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(feature = "record")]
mod file;
mod history;
pub(crate) mod options;

use crate::opening::{self, Awaited};
use history::{History, Kept};
use options::Subscribe;
use std::time::Instant;
use toroni::{Continue, Message, ReceiveError, Start, Subscriber};
use toroni_shell::exchange::{self, Lapse, Loss, MissingValue};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::printer::Printer;
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};
use toroni_shell::{human, note};

/// Prints messages until the arguments, a signal or a closed output end it.
pub(crate) fn run(location: &BusLocation, arguments: Subscribe) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    arguments.form.check()?;
    let patterns = toroni_shell::location::patterns(&arguments.patterns)?;
    let stop = Stop::install(GracePeriod::OneSecond(
        "writing to standard output, which its reader does not read".to_owned(),
    ))?;
    let output = Output::new()?;
    #[cfg(feature = "record")]
    if let Some(path) = &arguments.file {
        return file::run(path, &patterns, &arguments, output, &stop);
    }
    opening::remark_on_bus_as_pattern(location, &patterns, "sub");
    let config = location.config().participant_name(arguments.name.as_str());
    let (bus, is_new) = if arguments.create {
        (config.open(&location.bus)?, false)
    } else {
        let (timeout, advice) = (arguments.timeout, "--create creates it now");
        match opening::open_or_wait(&config, location, timeout, advice, &stop, &output)? {
            Awaited::Found(bus) => (bus, false),
            Awaited::Created(bus) => (bus, true),
            Awaited::Missing => return ended_early(&arguments, 0, &stop),
        }
    };
    // All messages of a new bus were published after this command started: print them all.
    let last = arguments.last.filter(|_| !is_new);
    let start = match arguments.from {
        Start::Latest if is_new || last.is_some() => Start::Oldest,
        start => start,
    };
    let mut builder = bus
        .subscriber()
        .start(start)
        .gating(!arguments.no_gate)
        .retained(arguments.retained)
        .name(arguments.name.as_str())
        .wait(arguments.wait.into());
    if arguments.newest {
        builder = builder.after_loss(Continue::Newest);
    }
    if let Some(max_age) = arguments.max_age {
        builder = builder.max_age(max_age);
    }
    for pattern in &patterns {
        builder = builder.pattern(pattern.as_str());
    }
    let mut subscriber = builder.build()?;
    let history = match last {
        Some(wanted) => {
            Some(History::new(usize::try_from(wanted).unwrap_or(usize::MAX), bus.stats()?.tail))
        }
        None => None,
    };
    ready.signal()?;
    if arguments.verbose {
        let patterns = arguments.patterns.join(", ");
        note::remark(&format!("subscribed to {patterns} on bus {}", location.bus));
    }

    let printer = arguments.form.printer(output);
    let mut run = Run {
        printer: if arguments.retained { printer.showing_state() } else { printer },
        arguments: &arguments,
        history,
        printed: 0,
        lost: 0,
    };
    let started = Instant::now();
    let ended = run.print_all(&mut subscriber, &stop);
    // Whatever ended it, print what was received.
    let flushed = run.printer.output.flush();
    if arguments.verbose {
        let stale = match subscriber.stats().stale {
            0 => String::new(),
            stale => format!(", {} too old", human::count(stale)),
        };
        note::remark(&format!(
            "printed {} in {}, {} lost{stale}",
            human::counted(run.printed, "message"),
            human::duration(started.elapsed()),
            human::count(run.lost),
        ));
    }
    ended.and(flushed)
}

struct Run<'a> {
    printer: Printer,
    arguments: &'a Subscribe,
    /// With `--last`: `Some` until the history is printed.
    history: Option<History>,
    printed: u64,
    lost: u64,
}

impl Run<'_> {
    fn print_all(&mut self, subscriber: &mut Subscriber, stop: &Stop) -> Result<(), Failure> {
        let wanted = self.arguments.count.unwrap_or(u64::MAX);
        let mut quiet_since = Instant::now();
        let mut is_quiet = true;
        while self.printed < wanted && !stop.is_set() {
            match subscriber.try_receive() {
                Ok(Some(message)) => {
                    self.message(&message)?;
                    is_quiet = false;
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    self.loss(error)?;
                    continue;
                }
            }
            self.show_history()?;
            if !is_quiet {
                (is_quiet, quiet_since) = (true, Instant::now());
                // The history may have had more messages than `--count` wants.
                continue;
            }
            // No more messages: flush the output before sleeping.
            self.printer.output.flush()?;
            self.printer.output.check_reader()?;
            let wait = match self.arguments.timeout {
                None => toroni_shell::stop::CHECK_EVERY,
                Some(timeout) => {
                    let left = timeout.saturating_sub(quiet_since.elapsed());
                    if left.is_zero() {
                        return ended_early(self.arguments, self.printed, stop);
                    }
                    left.min(toroni_shell::stop::CHECK_EVERY)
                }
            };
            match subscriber.receive_timeout(wait) {
                Ok(Some(message)) => {
                    self.message(&message)?;
                    is_quiet = false;
                }
                Ok(None) => {}
                Err(error) => self.loss(error)?,
            }
        }
        // A signal may have come before the history was complete.
        self.show_history()?;
        ended_early(self.arguments, self.printed, stop)
    }

    fn message(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        if let Some(history) = &mut self.history {
            if message.position() < history.end {
                let mut rendered = Vec::new();
                self.printer.render(&message.into(), &mut rendered);
                history.message(rendered);
                return Ok(());
            }
            self.show_history()?;
            if self.arguments.count.is_some_and(|wanted| self.printed >= wanted) {
                return Ok(());
            }
        }
        // It is no message.
        if !message.is_cleared() {
            self.printed = self.printed.saturating_add(1);
        }
        self.printer.print(&message.into())
    }

    /// Prints the messages of `--last`.
    fn show_history(&mut self) -> Result<(), Failure> {
        let Some(history) = self.history.take() else { return Ok(()) };
        let wanted = self.arguments.count.unwrap_or(u64::MAX);
        for kept in history.into_kept() {
            if self.printed >= wanted {
                break;
            }
            match kept {
                Kept::Message(rendered) => {
                    self.printed = self.printed.saturating_add(1);
                    self.printer.output.bytes(&rendered)?;
                }
                Kept::Loss(loss, text) => self.printer.loss(&loss, &text, self.arguments.quiet)?,
            }
        }
        Ok(())
    }

    fn loss(&mut self, error: ReceiveError) -> Result<(), Failure> {
        let loss = match &error {
            ReceiveError::Lapped { lost_messages, lost_bytes } => {
                Loss::Lapse(Lapse { messages: *lost_messages, bytes: *lost_bytes })
            }
            ReceiveError::Lost(lost) => Loss::from(&**lost),
            ReceiveError::ValueMissing { topic, sequence, length } => {
                Loss::Value(MissingValue::new(topic, Some(*sequence), *length))
            }
            _ => return Err(error.into()),
        };
        let text = exchange::loss_text(&error);
        self.lost = self.lost.saturating_add(loss.messages());
        match &mut self.history {
            Some(history) => history.loss(loss, text),
            None => self.printer.loss(&loss, &text, self.arguments.quiet)?,
        }
        if self.arguments.strict {
            self.show_history()?;
            return Err(Failure::Lost("stopped at a loss because of --strict".to_owned()));
        }
        Ok(())
    }
}

/// Returns the result after a signal or after `--timeout`: a failure if `--count` wanted more messages.
fn ended_early(arguments: &Subscribe, printed: u64, stop: &Stop) -> Result<(), Failure> {
    let Some(wanted) = arguments.count.filter(|wanted| printed < *wanted) else { return Ok(()) };
    match arguments.timeout {
        Some(timeout) if !stop.is_set() => Err(Failure::Failed(format!(
            "no message for {}: received {printed} of {wanted}",
            human::duration(timeout)
        ))),
        _ => Err(stop.interrupted(format!("interrupted after {printed} of {wanted} messages"))),
    }
}
