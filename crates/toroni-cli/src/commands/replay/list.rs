//! `toroni replay --list`: what is in a recording.

use super::source::of_broken;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use toroni_recording::format::Retention;
use toroni_recording::reader::{Broken, ChannelKind, ItemKind, Reader};
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::{Output, Table};

/// The most notes and damaged parts of a file that are printed.
const MOST_NOTES: usize = 1000;

#[derive(Default)]
struct Count {
    messages: u64,
    values: u64,
    is_retained: bool,
    bytes: u64,
    longest: u64,
    encoding: String,
}

/// Prints what is in each file.
pub(super) fn run(files: &[std::path::PathBuf], as_json: bool) -> Result<(), Failure> {
    let mut output = Output::new()?;
    for (number, path) in files.iter().enumerate() {
        if number > 0 && !as_json {
            output.line("")?;
        }
        one(path, as_json, &mut output)?;
    }
    output.flush()
}

fn one(path: &Path, as_json: bool, output: &mut Output) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut reader =
        Reader::open(file, length, false).map_err(|broken| of_broken(path, &broken))?;
    let mut topics: BTreeMap<(String, bool), Count> = BTreeMap::new();
    let (mut first, mut last) = (u64::MAX, 0);
    let (mut losses, mut lost_messages) = (0_u64, 0_u64);
    let (mut notes, mut damages) = (Vec::new(), Vec::new());
    // Where it ends although there is more.
    let mut damage = None;
    'file: loop {
        match reader.load() {
            Ok(true) => {}
            Ok(false) => break,
            Err(broken) => {
                damage = Some(broken);
                break;
            }
        }
        loop {
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(broken) => {
                    damage = Some(broken);
                    break 'file;
                }
            };
            if item.kind == ItemKind::Damage {
                damages.extend(reader.damage().filter(|_| damages.len() < MOST_NOTES).cloned());
                continue;
            }
            (first, last) = (first.min(item.log_time), last.max(item.log_time));
            if item.kind == ItemKind::Note {
                if let Some(note) = reader.note(&item)
                    && notes.len() < MOST_NOTES
                {
                    notes.push((item.log_time, note));
                }
                continue;
            }
            if item.kind == ItemKind::Loss {
                losses = losses.saturating_add(1);
                let messages = reader.loss(&item).map_or(0, |loss| loss.messages);
                lost_messages = lost_messages.saturating_add(messages);
                continue;
            }
            let bytes = reader.payload(&item).len() as u64;
            let Some(channel) = reader.channel_of(item.channel) else { continue };
            let ChannelKind::Topic { to_descendants, retention } = channel.kind else { continue };
            let count = match topics.get_mut(&(channel.topic.clone(), to_descendants)) {
                Some(count) => count,
                None => {
                    let encoding = channel.encoding.clone();
                    let key = (channel.topic.clone(), to_descendants);
                    topics.entry(key).or_insert(Count { encoding, ..Count::default() })
                }
            };
            count.is_retained |= retention != Retention::None;
            if item.kind != ItemKind::Message {
                let is_value = item.kind == ItemKind::Value;
                count.values = count.values.saturating_add(is_value.into());
                continue;
            }
            count.messages = count.messages.saturating_add(1);
            count.bytes = count.bytes.saturating_add(bytes);
            count.longest = count.longest.max(bytes);
        }
    }
    let messages: u64 = topics.values().map(|count| count.messages).sum();
    let values: u64 = topics.values().map(|count| count.values).sum();
    let has_any = messages > 0 || values > 0 || losses > 0;
    let span = last.saturating_sub(first);
    let complete = reader.is_complete && damage.is_none() && damages.is_empty();
    let state = match &damage {
        None if complete => "complete".to_owned(),
        None if !damages.is_empty() => {
            "damaged: `toroni record --repair` copies what can be read".to_owned()
        }
        None => "incomplete: `toroni record --repair` completes it".to_owned(),
        Some(broken) => format!("damaged at byte {}: {}", broken.offset, broken.what),
    };
    let seconds = Duration::from_nanos(span).as_secs_f64();
    if as_json {
        let of_notes: Vec<_> = notes
            .iter()
            .map(|(time, note)| {
                let mut object = json!(note);
                object["time_ns"] = time.to_string().into();
                object
            })
            .collect();
        let of_topics: Vec<_> = topics
            .iter()
            .map(|((topic, to_descendants), count)| {
                json!({
                    "topic": topic, "to_descendants": to_descendants, "encoding": count.encoding,
                    "messages": count.messages, "bytes": count.bytes, "longest": count.longest,
                    "retained": count.is_retained, "values": count.values,
                })
            })
            .collect();
        let of_damages: Vec<_> = damages
            .iter()
            .map(|damage| {
                let Broken { offset, what } = &damage.broken;
                json!({"offset": offset, "what": what, "messages": damage.messages})
            })
            .collect();
        return output.json(&json!({
            "file": path.display().to_string(),
            "bytes": length,
            "complete": complete,
            "state": state,
            "chunks": reader.chunks_read,
            "messages": messages,
            "values": values,
            "start_ns": if has_any { first } else { 0 }.to_string(),
            "duration_ns": if has_any { span } else { 0 }.to_string(),
            "losses": losses,
            "lost_messages": lost_messages,
            "notes": of_notes,
            "damage": of_damages,
            "bus": reader.notes.0.get("bus"),
            "host": reader.notes.0.get("host"),
            "previous": reader.notes.0.get("previous"),
            "topics": of_topics,
        }));
    }
    output.line(&format!("{}: {}, {state}", path.display(), human::bytes(length)))?;
    let note = |key: &str| reader.notes.0.get(key).map_or("", String::as_str).to_owned();
    if !note("bus").is_empty() {
        output.line(&format!("bus       {} on {}", note("bus"), note("host")))?;
    }
    if has_any {
        output.line(&format!("start     {}", human::rfc3339(first)))?;
        output.line(&format!("duration  {}", human::duration(Duration::from_nanos(span))))?;
    }
    output.line(&format!("messages  {}", human::count(messages)))?;
    if values > 0 {
        output.line(&format!("values    {}", human::count(values)))?;
    }
    output.line(&format!(
        "losses    {} ({})",
        human::count(losses),
        human::counted(lost_messages, "message")
    ))?;
    for damage in &damages {
        output.line(&format!("damage    {damage}"))?;
    }
    for (time, note) in &notes {
        output.line(&format!("note      {}: {note}", human::rfc3339(*time)))?;
    }
    output.line(&format!("chunks    {}", human::count(reader.chunks_read)))?;
    let mut table = Table::new(&["TOPIC", ">MESSAGES", ">RATE", ">BYTES", ">LONGEST", "ENCODING"]);
    for ((topic, to_descendants), count) in &topics {
        let topic =
            if *to_descendants { format!("{topic} (to descendants)") } else { topic.clone() };
        let rate = if seconds > 0.0 {
            human::per_second(human::as_f64(count.messages) / seconds)
        } else {
            "-".to_owned()
        };
        table.row(vec![
            topic,
            human::count(count.messages),
            rate,
            human::bytes(count.bytes),
            human::bytes(count.longest),
            count.encoding.clone(),
        ]);
    }
    if table.is_empty() { Ok(()) } else { output.table(&table) }
}
