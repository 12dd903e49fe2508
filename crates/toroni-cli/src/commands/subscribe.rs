//! `toroni sub`: prints messages, in the order of the bus.

use crate::cli::{Format, Place, Subscribe};
use crate::failure::Failure;
use crate::output::{Output, hex, printable};
use crate::ready::ReadyFd;
use crate::stop::{Patience, Stop};
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant, UNIX_EPOCH};
use toroni::{Message, ReceiveError, Subscriber};

/// Prints until one of the ends that the arguments set, a signal, or nobody reads the output.
pub(crate) fn run(place: &Place, arguments: Subscribe) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    let stop = Stop::install(Patience::ASecond("waiting for whoever reads its output".to_owned()))?;
    let output = Output::new()?;
    let format = if arguments.json { Format::Json } else { arguments.format };
    let bus = super::config(place).participant_name(arguments.name.as_str()).open(&place.bus)?;
    let mut builder = bus
        .subscriber()
        .start(arguments.from)
        .gating(!arguments.no_gate)
        .name(arguments.name.as_str())
        .wait(arguments.wait.into());
    for pattern in &arguments.patterns {
        builder = builder.pattern(pattern);
    }
    let mut subscriber = builder.build()?;
    ready.announce()?;

    let mut printer = Printer::new(output, format, arguments.payload_only);
    let ended = print_all(&mut subscriber, &mut printer, &arguments, &stop);
    // What was received is printed, however it ended.
    let flushed = printer.output.flush();
    ended.and(flushed)
}

fn print_all(
    subscriber: &mut Subscriber,
    printer: &mut Printer,
    arguments: &Subscribe,
    stop: &Stop,
) -> Result<(), Failure> {
    let wanted = arguments.count.unwrap_or(u64::MAX);
    let mut printed = 0;
    let mut quiet_since = Instant::now();
    while printed < wanted && !stop.is_set() {
        match subscriber.try_receive() {
            Ok(Some(message)) => {
                printer.print(&message)?;
                printed += 1;
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                printer.output.flush()?;
                report_loss(error, printer.format, arguments.strict)?;
                continue;
            }
        }
        // Drained: the reader of our output gets what there is before we sleep.
        printer.output.flush()?;
        printer.output.check_reader()?;
        let patience = match arguments.timeout {
            None => super::LOOK_UP_EVERY,
            Some(timeout) => {
                let left = timeout.saturating_sub(quiet_since.elapsed());
                if left.is_zero() {
                    return timed_out(timeout, printed, arguments.count);
                }
                left.min(super::LOOK_UP_EVERY)
            }
        };
        match subscriber.receive_timeout(patience) {
            Ok(Some(message)) => {
                printer.print(&message)?;
                printed += 1;
                quiet_since = Instant::now();
            }
            Ok(None) => {}
            Err(error) => report_loss(error, printer.format, arguments.strict)?,
        }
    }
    match arguments.count {
        Some(wanted) if printed < wanted => {
            Err(stop.interrupted(format!("interrupted after {printed} of {wanted} messages")))
        }
        _ => Ok(()),
    }
}

fn timed_out(timeout: Duration, printed: u64, count: Option<u64>) -> Result<(), Failure> {
    let Some(wanted) = count else { return Ok(()) };
    Err(Failure::Failed(format!(
        "no message for {}: received {printed} of {wanted}",
        crate::human::duration(timeout)
    )))
}

/// Losses go to standard error: the outputs of two subscribers to the same messages are the same.
fn report_loss(error: ReceiveError, format: Format, strict: bool) -> Result<(), Failure> {
    let ReceiveError::Lapped { lost_messages, lost_bytes } = error else {
        return Err(error.into());
    };
    let text = match format {
        Format::Json => {
            json!({ "lost_messages": lost_messages, "lost_bytes": lost_bytes }).to_string()
        }
        _ => format!("toroni: {error}"),
    };
    // There is nobody to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
    if strict {
        return Err(Failure::Lost("ended at a loss, because of --strict".to_owned()));
    }
    Ok(())
}

/// Messages in one of the formats.
pub(crate) struct Printer {
    pub(crate) output: Output,
    format: Format,
    payload_only: bool,
    scratch: String,
}

/// A message as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    position: u64,
    sequence: u64,
    length: usize,
    /// Nanoseconds since 1970, if the publisher stamps its messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp_ns: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    to_descendants: bool,
    /// If it is UTF-8; else `payload_hex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<&'a str>,
}

impl Printer {
    pub(crate) fn new(output: Output, format: Format, payload_only: bool) -> Self {
        Self { output, format, payload_only, scratch: String::new() }
    }

    pub(crate) fn print(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let payload = message.payload();
        match self.format {
            Format::Raw => self.output.bytes(payload),
            Format::Json => self.json(message),
            Format::Text if self.output.is_terminal() => {
                // A terminal must not obey what somebody published.
                let text = printable(&String::from_utf8_lossy(payload));
                self.topic(message)?;
                self.output.line(&text)
            }
            Format::Text => {
                self.topic(message)?;
                self.output.bytes(payload)?;
                self.output.bytes(b"\n")
            }
            Format::Hex => {
                self.topic(message)?;
                self.scratch.clear();
                hex(payload, &mut self.scratch);
                self.output.line(&self.scratch)
            }
        }
    }

    fn topic(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        if self.payload_only {
            return Ok(());
        }
        if self.output.is_terminal() {
            self.output.bytes(printable(message.topic()).as_bytes())?;
        } else {
            self.output.bytes(message.topic().as_bytes())?;
        }
        self.output.bytes(b"\t")
    }

    fn json(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let bytes = message.payload();
        let payload = std::str::from_utf8(bytes).ok();
        self.scratch.clear();
        if payload.is_none() {
            hex(bytes, &mut self.scratch);
        }
        self.output.json(&Line {
            topic: (!self.payload_only).then(|| message.topic()),
            position: message.position(),
            sequence: message.sequence(),
            length: bytes.len(),
            timestamp_ns: message
                .timestamp()
                .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                .and_then(|since| u64::try_from(since.as_nanos()).ok()),
            to_descendants: message.to_descendants(),
            payload,
            payload_hex: payload.is_none().then_some(&self.scratch),
        })
    }
}
