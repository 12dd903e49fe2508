//! The reader of values of the conformance test in Rust; README.md says what it takes and writes.

use std::error::Error;
use std::process::ExitCode;
use toroni::{BusConfig, RetainedError, RetainedMessage, ValueStats};
use toroni_conformance::{from_elsewhere, hash};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match get(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn get(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [bus, topic, pattern] = arguments else { return Err("get BUS TOPIC PATTERN".into()) };
    let bus = BusConfig::new().open_existing(bus)?;
    match bus.retained(topic).transpose() {
        Some(value) => show(value)?,
        None => println!("none"),
    }
    for value in bus.retained_matching(pattern)? {
        show(value)?;
    }
    let seen = bus.stats()?.retained;
    let (topics, max, missing) = (seen.topics, seen.max_topics, seen.missing);
    println!("retained\t{topics}\t{max}\t{missing}\t{}\t{}", seen.used_bytes, seen.bytes);
    for topic in bus.topics()? {
        let value = match topic.value {
            None => "-\t-\t-".to_owned(),
            Some(ValueStats::None) => "none\t-\t-".to_owned(),
            Some(ValueStats::Kept { sequence, bytes, .. }) => format!("kept\t{sequence}\t{bytes}"),
            Some(ValueStats::Missing { sequence, bytes }) => {
                format!("missing\t{sequence}\t{bytes}")
            }
            Some(other) => return Err(format!("{other:?} of {}", topic.name).into()),
        };
        println!("topic\t{}\t{value}", topic.name);
    }
    Ok(())
}

fn show(value: Result<RetainedMessage, RetainedError>) -> Result<(), RetainedError> {
    match value {
        Ok(value) => {
            let (sequence, topic, payload) = (value.sequence(), value.topic(), value.payload());
            let from = from_elsewhere(value.origin(), value.number());
            let (length, hash) = (payload.len(), hash(payload));
            println!("value\t{sequence}\t{topic}\t{length}\t{hash:016x}\t{from}");
        }
        Err(RetainedError::Missing { topic, sequence, length }) => {
            println!("missing\t{sequence}\t{topic}\t{length}");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
