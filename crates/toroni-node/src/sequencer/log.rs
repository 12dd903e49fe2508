//! `toroni sequencer log`: prints and checks the log of a member, also while it runs, or exports its events.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::feed::hex;
use clap::{Args, ValueHint};
use serde_json::{Value, json};
use std::path::PathBuf;
use toroni_sequencer::batch::{Batch, Command, Lost, Open, Publish};
use toroni_sequencer::entry::{Entry, Members, Payload, Place};
use toroni_sequencer::log::inspect::Inspection;
use toroni_sequencer::machine::{Machine, Outcome};
use toroni_sequencer::raft::machine_of_snapshot;
use toroni_shell::exchange::base64;
use toroni_shell::failure::Failure;
use toroni_shell::human::counted;
use toroni_shell::note;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sequencer log /var/lib/toroni/orders/log
  toroni sequencer log /var/lib/toroni/orders/log --check
  toroni sequencer log backup/0000000000000000.log --json | jq -c 'select(.kind == \"publish\")'
  toroni sequencer log /var/lib/toroni/orders/log --export orders.mcap

It reads and changes nothing, so the member may run. Each record is checked: its CRC, that it follows the one before, and that \
its entry has the next index. Of a log whose beginning was given up, events have numbers from the snapshot on. The last entries \
of one member alone may never become part of the order: a majority has to have them.")]
pub(super) struct Log {
    /// The directory of the log, or one of its segments
    #[arg(value_hint = ValueHint::AnyPath)]
    path: PathBuf,
    /// Print JSON: one object per command, and per entry without commands
    #[arg(long, conflicts_with = "check")]
    json: bool,
    /// Print only what was checked
    #[arg(long)]
    check: bool,
    /// Write the events to an MCAP file, as toroni record does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["json", "check"])]
    export: Option<PathBuf>,
}

/// What becomes of the entries.
trait Sink {
    fn entry(&mut self, entry: &Entry) -> Result<(), Failure>;
    fn command(
        &mut self,
        entry: &Entry,
        command: Command<'_>,
        outcome: Option<Outcome>,
    ) -> Result<(), Failure>;
}

pub(super) fn run(arguments: &Log) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let mut inspection = Inspection::open(&arguments.path).map_err(|error| failed(&error))?;
    if let Some(about) = inspection.about() {
        let vote = about.vote.map_or_else(
            || "no vote".to_owned(),
            |vote| format!("vote for member {} in term {}", vote.candidate, vote.term),
        );
        let state = if about.closed { "closed" } else { "open, or its member was killed" };
        note::remark(&format!("log {}: {vote}, {state}", hex(&about.log)));
    }
    if let Some(path) = &arguments.export {
        let mut export = export::Exporting::new(path, &inspection);
        walk(&mut inspection, &mut export)?;
        return export.finish();
    }
    let mut output = Output::new()?;
    let walked = if arguments.check {
        walk(&mut inspection, &mut Nothing)
    } else if arguments.json {
        walk(&mut inspection, &mut Json(&mut output))
    } else {
        walk(&mut inspection, &mut Text(&mut output))
    };
    // What was read before an error is shown, too.
    output.flush()?;
    walked
}

/// Reads all entries, and says at the end how many there are.
fn walk(inspection: &mut Inspection, sink: &mut impl Sink) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let mut machine = inspection.before().is_none().then(Machine::new);
    let mut later = match inspection.snapshot().map_err(|error| failed(&error))? {
        Some(bytes) if machine.is_none() => {
            let (last, machine) = machine_of_snapshot(&bytes).map_err(|error| failed(&error))?;
            Some((last, machine))
        }
        _ => None,
    };
    let (mut count, mut first, mut last) = (0_u64, None, None::<Place>);
    while let Some(found) = inspection.next().map_err(|error| failed(&error))? {
        let entry = found.entry;
        count = count.saturating_add(1);
        first = first.or(Some(entry.place.index));
        last = Some(entry.place);
        sink.entry(&entry)?;
        if let Payload::Batch(bytes) = &entry.payload {
            let batch = Batch::check(bytes).map_err(|error| failed(&error))?;
            commands(&entry, batch, machine.as_mut(), sink)?;
        }
        if later.as_ref().is_some_and(|(at, _)| *at == Some(entry.place)) {
            machine = later.take().map(|(_, machine)| machine);
        }
    }
    let range = match (first, last) {
        (Some(first), Some(last)) => {
            format!(" {first} to {}, the last of term {}", last.index, last.term)
        }
        _ => String::new(),
    };
    let events = machine.map_or_else(String::new, |machine| {
        format!(
            "; {} in series {}, digest {}",
            counted(machine.next(), "event"),
            machine.series(),
            machine.digest()
        )
    });
    let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
    note::remark(&format!("checked {entries}{range}{events}"));
    Ok(())
}

/// Applies a batch as members do, if it is known what was before.
fn commands(
    entry: &Entry,
    batch: Batch<'_>,
    machine: Option<&mut Machine>,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let mut result = Ok(());
    let Some(machine) = machine else {
        return batch.commands().try_for_each(|(command, _)| sink.command(entry, command, None));
    };
    machine.apply(
        batch,
        |_| {},
        |command, outcome| {
            if result.is_ok() {
                result = sink.command(entry, command, Some(outcome));
            }
        },
    );
    result
}

/// Returns what became of a command: a word, the number of its event, and why it was refused.
fn outcome_of(outcome: Option<Outcome>) -> (&'static str, Option<u64>, Option<String>) {
    match outcome {
        None => ("unknown", None, None),
        Some(Outcome::Sequenced(event)) => ("event", Some(event), None),
        Some(Outcome::Duplicate) => ("duplicate", None, None),
        Some(Outcome::Refused(why)) => ("refused", None, Some(why.to_string())),
    }
}

struct Nothing;

impl Sink for Nothing {
    fn entry(&mut self, _: &Entry) -> Result<(), Failure> {
        Ok(())
    }

    fn command(&mut self, _: &Entry, _: Command<'_>, _: Option<Outcome>) -> Result<(), Failure> {
        Ok(())
    }
}

struct Text<'a>(&'a mut Output);

impl Sink for Text<'_> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let Place { term, leader, index } = entry.place;
        let what = match &entry.payload {
            Payload::Blank => "a leader begins".to_owned(),
            Payload::Batch(_) => "commands".to_owned(),
            Payload::Members(members) => format!("members {}", list(members)),
        };
        self.0.line(&format!("entry {index}, term {term} of member {leader}: {what}"))
    }

    fn command(
        &mut self,
        _: &Entry,
        command: Command<'_>,
        outcome: Option<Outcome>,
    ) -> Result<(), Failure> {
        let (word, event, why) = outcome_of(outcome);
        let event = event.map_or_else(String::new, |event| format!(" {event}"));
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let what = match command {
            Command::Publish(Publish { id, to_descendants, topic, payload }) => format!(
                "{:08x}/{:08x}/{}  {topic}{}  {} bytes",
                id.source,
                id.series,
                id.number,
                if to_descendants { " and its descendants" } else { "" },
                payload.len()
            ),
            Command::Open(Open { source, series, session, bus, .. }) => {
                format!("{source:08x}/{series:08x}  opened in session {session}, bus {}", hex(&bus))
            }
            Command::Lost(Lost { source, series, first, last }) => {
                format!("{source:08x}/{series:08x}/{first} to {last}  never left their host")
            }
            Command::Begin { series } => format!("the feed begins series {series}"),
            Command::Release { source } => format!("{source:08x}  may open any bus"),
            Command::Remove { source } => format!("{source:08x}  is removed"),
        };
        self.0.line(&toroni_shell::output::printable(&format!("  {word}{event}{why}  {what}")))
    }
}

fn list(members: &Members) -> String {
    let shown = members
        .members
        .iter()
        .map(|(id, member)| format!("{}={} ({id})", member.name, member.address));
    shown.collect::<Vec<_>>().join(", ")
}

struct Json<'a>(&'a mut Output);

impl Sink for Json<'_> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let object = match &entry.payload {
            Payload::Batch(_) => return Ok(()),
            Payload::Blank => with_place(entry, json!({ "kind": "blank" })),
            Payload::Members(members) => {
                let member = |(id, member): (&u64, &toroni_sequencer::entry::Member)| json!({ "number": id, "name": member.name, "address": member.address, "log": hex(&member.log) });
                let all: Vec<_> = members.members.iter().map(member).collect();
                with_place(entry, json!({ "kind": "members", "members": all }))
            }
        };
        self.0.json(&object)
    }

    fn command(
        &mut self,
        entry: &Entry,
        command: Command<'_>,
        outcome: Option<Outcome>,
    ) -> Result<(), Failure> {
        let (word, event, why) = outcome_of(outcome);
        let about = match command {
            Command::Publish(Publish { id, to_descendants, topic, payload }) => {
                let (encoding, payload) = match std::str::from_utf8(payload) {
                    Ok(text) => (Value::Null, text.to_owned()),
                    Err(_) => ("base64".into(), base64(payload)),
                };
                json!({
                    "kind": "publish", "source": id.source, "series": id.series, "number": id.number, "topic": topic,
                    "to_descendants": to_descendants, "encoding": encoding, "payload": payload,
                })
            }
            Command::Open(Open { source, series, session, bus, earlier }) => {
                let earlier: Vec<_> = earlier.into_iter().flatten().map(|bus| hex(bus)).collect();
                json!({
                    "kind": "open", "source": source, "series": series, "session": session, "bus": hex(&bus),
                    "earlier_buses": earlier,
                })
            }
            Command::Release { source } => json!({ "kind": "release", "source": source }),
            Command::Remove { source } => json!({ "kind": "remove", "source": source }),
            Command::Lost(Lost { source, series, first, last }) => {
                json!({ "kind": "lost", "source": source, "series": series, "first": first, "last": last })
            }
            Command::Begin { series } => json!({ "kind": "begin", "feed_series": series }),
        };
        let mut object = with_place(entry, about);
        object["outcome"] = word.into();
        object["event"] = event.into();
        if let Some(why) = why {
            object["why"] = why.into();
        }
        self.0.json(&object)
    }
}

fn with_place(entry: &Entry, mut object: Value) -> Value {
    object["entry"] = entry.place.index.into();
    object["term"] = entry.place.term.into();
    object
}

mod export {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use toroni::{LostBound, LostReason, Origin};
    use toroni_recording::export::Export;

    /// Writes events to a file, which begins with the first one.
    pub(super) struct Exporting {
        path: PathBuf,
        notes: BTreeMap<String, String>,
        export: Option<Export>,
        unnumbered: u64,
    }

    impl Exporting {
        pub(super) fn new(path: &Path, inspection: &Inspection) -> Self {
            let notes = [
                ("sequencer_log", hex(&inspection.log())),
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ];
            let notes = notes.map(|(key, value)| (key.to_owned(), value)).into();
            Self { path: path.to_owned(), notes, export: None, unnumbered: 0 }
        }

        fn begun(&mut self, first: u64) -> Result<&mut Export, Failure> {
            if self.export.is_none() {
                self.export = Some(Export::create(&self.path, first, self.notes.clone())?);
            }
            self.export.as_mut().ok_or_else(|| Failure::Failed("there is no file".to_owned()))
        }

        pub(super) fn finish(self) -> Result<(), Failure> {
            if self.unnumbered > 0 {
                let left_out = counted(self.unnumbered, "command");
                note::remark(&format!(
                    "left out {left_out} of before the snapshot, whose numbers as events this log does not have"
                ));
            }
            let path = self.path.display();
            let Some(export) = self.export else {
                return Err(Failure::Failed(format!(
                    "the log has no events: {path} was not written"
                )));
            };
            let written = counted(export.finish()?, "event");
            note::remark(&format!("wrote {written} to {path}"));
            Ok(())
        }
    }

    impl Sink for Exporting {
        fn entry(&mut self, _: &Entry) -> Result<(), Failure> {
            Ok(())
        }

        fn command(
            &mut self,
            _: &Entry,
            command: Command<'_>,
            outcome: Option<Outcome>,
        ) -> Result<(), Failure> {
            let Some(Outcome::Sequenced(event)) = outcome else {
                self.unnumbered = self.unnumbered.saturating_add(u64::from(outcome.is_none()));
                return Ok(());
            };
            let origin = |source, series, number| Origin { source, series, stream: 0, number };
            match command {
                Command::Publish(Publish { id, to_descendants, topic, payload }) => {
                    let origin = origin(id.source, id.series, id.number);
                    self.begun(event)?.event(event, (topic, to_descendants), payload, origin)
                }
                Command::Lost(Lost { source, series, first, last }) => {
                    let lost = toroni::Lost {
                        from: origin(source, series, first),
                        until: last.saturating_add(1),
                        messages: last.saturating_add(1).saturating_sub(first),
                        bound: LostBound::Exact,
                        reason: LostReason::Overtaken,
                        scope: vec![],
                    };
                    self.begun(event)?.lost(event, &lost)
                }
                Command::Open(_)
                | Command::Begin { .. }
                | Command::Release { .. }
                | Command::Remove { .. } => Ok(()),
            }
        }
    }
}
