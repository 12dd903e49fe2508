//! `toroni sub --file`: prints a recording.

use super::options::Subscribe;
use crate::commands::replay::options::By;
use crate::commands::replay::source::{Selection, Source, Target, remark};
use std::path::Path;
use toroni::{LostBound, Pattern, ReceiveError};
use toroni_recording::format::RecordedLoss;
use toroni_recording::reader::ItemKind;
use toroni_shell::exchange::{Loss, Shown};
use toroni_shell::failure::Failure;
use toroni_shell::note;
use toroni_shell::output::Output;
use toroni_shell::printer::Format;
use toroni_shell::stop::Stop;

/// Prints the messages and losses of a file that match.
pub(super) fn run(
    path: &Path,
    patterns: &[Pattern],
    arguments: &Subscribe,
    output: Output,
    stop: &Stop,
) -> Result<(), Failure> {
    // Only JSON shows where a message came from.
    let wants_origins = matches!(arguments.form.format(), Format::Json);
    let mut source = Source::open(path, wants_origins, By::Received)?;
    let mut printer = arguments.form.printer(output);
    let ended = print_all(&mut source, patterns, arguments, &mut printer, stop);
    // Whatever ended it, print what was read.
    let flushed = printer.output.flush();
    ended?;
    flushed?;
    if !source.reader.is_complete && !arguments.quiet {
        note::remark(&format!(
            "{} is incomplete: `toroni record --repair` completes it",
            path.display()
        ));
    }
    Ok(())
}

fn print_all(
    source: &mut Source,
    patterns: &[Pattern],
    arguments: &Subscribe,
    printer: &mut toroni_shell::printer::Printer,
    stop: &Stop,
) -> Result<(), Failure> {
    let mut selection = Selection::matching(patterns.to_vec());
    let wanted = arguments.count.unwrap_or(u64::MAX);
    let wants_json = matches!(arguments.form.format(), Format::Json);
    let mut printed = 0;
    while printed < wanted && !stop.is_set() {
        source.load(&mut selection)?;
        let Some((item, target)) = source.head.take() else { break };
        if target == Target::Lost {
            let recorded = source.loss(&item)?;
            let loss = Loss::from(&recorded);
            let damage = source.damage(&item);
            let text = match damage {
                Some(damage) => damage.to_string(),
                None if recorded.is_damage() => of_repair(&recorded),
                None => text(&loss),
            };
            let is_lost = recorded.messages > 0;
            if damage.is_some() && (wants_json || !is_lost) && !arguments.quiet {
                // The line has no place for what is wrong.
                note::loss(&text);
            }
            if is_lost {
                printer.loss(&loss, &text, arguments.quiet)?;
            }
            if is_lost && arguments.strict {
                return Err(Failure::Lost("stopped at a loss because of --strict".to_owned()));
            }
        } else if target == Target::Note {
            if let Some(note) = source.reader.note(&item)
                && !arguments.quiet
            {
                printer.output.flush()?;
                note::remark(&remark(&note, &item));
            }
        } else if let Some(channel) = source.reader.channel_of(item.channel) {
            let (origin, number) = item.origin.unzip();
            printer.print(&Shown {
                topic: &channel.topic,
                payload: source.reader.payload(&item),
                position: None,
                sequence: item.sequence,
                number: number.flatten(),
                origin,
                stamp: item.stamp(),
                age: None,
                to_descendants: matches!(target, Target::Topic { to_descendants: true, .. }),
                is_retained: item.kind == ItemKind::Value,
                is_cleared: item.kind == ItemKind::Cleared,
            })?;
            // What clears a value is no message.
            if item.kind != ItemKind::Cleared {
                printed = printed.saturating_add(1);
            }
        }
        source.advance(&mut selection)?;
    }
    match arguments.count {
        Some(wanted) if printed < wanted && stop.is_set() => {
            Err(stop.interrupted(format!("interrupted after {printed} of {wanted} messages")))
        }
        Some(wanted) if printed < wanted => {
            Err(Failure::Failed(format!("the recording has only {printed} of {wanted} messages")))
        }
        _ => Ok(()),
    }
}

/// Describes a loss that a repair has put in place of what it could not copy.
fn of_repair(loss: &RecordedLoss) -> String {
    let least = if loss.bound() == LostBound::Exact { "" } else { "at least " };
    let messages = toroni_shell::human::counted(loss.messages, "message");
    format!("{least}{messages} missing: the recording was damaged here, and repaired")
}

fn text(loss: &Loss) -> String {
    match loss {
        Loss::Lapse(lapse) => {
            let (lost_messages, lost_bytes) = (lapse.messages, lapse.bytes);
            ReceiveError::Lapped { lost_messages, lost_bytes }.to_string()
        }
        Loss::Value(value) => value.to_string(),
        Loss::OnTheWay(_) => {
            format!(
                "{} lost on their way to the bus",
                toroni_shell::human::counted(loss.messages(), "message")
            )
        }
    }
}
