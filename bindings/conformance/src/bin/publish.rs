//! The publisher of the conformance test in Rust; README.md says what it takes and writes.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use toroni::{
    BurstError, Bus, BusConfig, Entry, Exclusive, ExclusiveTopic, Limit, Lost, LostBound,
    LostReason, Origin, Pattern, PublishError, Publisher,
};
use toroni_conformance::{Messages, wait_for_go};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match publish(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn publish(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [bus, topic, id, count, size, mode] = arguments else {
        return Err("publish BUS TOPIC ID COUNT SIZE MODE".into());
    };
    let messages = Messages { id: id.parse()?, size: size.parse()? };
    let wanted = match count.parse()? {
        0 => u64::MAX,
        count => count,
    };
    let bus = BusConfig::new().open_existing(bus)?;
    let (is_retained, mode) = match mode.strip_prefix("retained-") {
        Some(mode) => (true, mode),
        None => (false, mode.as_str()),
    };
    if mode == "inlet" {
        return bring(&bus, topic, is_retained, &messages, wanted);
    }
    let (sender, mode) = match mode.strip_prefix("exclusive-") {
        Some(mode) => {
            let exclusive = bus.exclusive()?;
            let mut topic = exclusive.topic(topic)?;
            if is_retained {
                topic = exclusive.retained(topic)?;
            }
            (Sender::Exclusive(exclusive, topic), mode)
        }
        None => {
            let publisher = bus.publisher(topic)?;
            let publisher = if is_retained { publisher.retained()? } else { publisher };
            (Sender::Shared(publisher), mode)
        }
    };
    wait_for_go()?;
    let mut number = 0;
    while number < wanted {
        if matches!(mode, "batch" | "burst") {
            let end = wanted.min(number + 16);
            let group: Vec<Vec<u8>> =
                (number..end).map(|number| messages.message(number)).collect();
            if mode == "batch" {
                sender.publish_batch(&group)?;
            } else {
                sender.burst(&group)?;
            }
            number = end;
            continue;
        }
        let message = messages.message(number);
        match mode {
            "one" | "clear" => _ = sender.publish(&message, Limit::Policy)?,
            "try" => loop {
                match sender.publish(&message, Limit::Try) {
                    Ok(_) => break,
                    Err(PublishError::Full | PublishError::Busy) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(error) => return Err(error.into()),
                }
            },
            "in-place" => sender.publish_in_place(&message)?,
            "numbered" => println!("sequence\t{}", sender.publish(&message, Limit::Policy)?),
            _ => {
                let modes = "one, try, batch, burst, in-place, numbered, clear, or one of these after exclusive-, or inlet; or one of all these after retained-";
                return Err(format!("MODE is {modes}").into());
            }
        }
        number += 1;
    }
    if mode == "clear" {
        println!("cleared\t{}", sender.clear()?);
    }
    println!("published\t{number}");
    Ok(())
}

/// The number of the first message in its origin, if an inlet publishes it.
const FIRST: u64 = 10;

/// Publishes with an inlet, each message twice.
fn bring(
    bus: &Bus,
    topic: &str,
    is_retained: bool,
    messages: &Messages,
    wanted: u64,
) -> Result<(), Box<dyn Error>> {
    let inlet = bus.inlet()?;
    let mut topic = inlet.topic(topic)?;
    if is_retained {
        inlet.retain(&mut topic)?;
    }
    let source = u32::try_from(messages.id)?;
    let lost = Lost {
        from: Origin { source, series: 1, stream: 2, number: 0 },
        until: FIRST,
        messages: 7,
        bound: LostBound::AtLeast,
        reason: LostReason::Burst,
        scope: vec![Pattern::new("a/*")?, Pattern::new("end")?],
    };
    wait_for_go()?;
    inlet.publish_lost(&lost, None, Limit::Policy)?;
    inlet.publish_lost(&lost, None, Limit::Policy)?;
    let mut number = 0;
    while number < wanted {
        let end = wanted.min(number + 16);
        let group: Vec<Vec<u8>> = (number..end).map(|number| messages.message(number)).collect();
        let parts: Vec<[&[u8]; 2]> =
            group.iter().map(|message| [&message[..16], &message[16..]]).collect();
        let entries: Vec<Entry<'_>> = (number..end)
            .zip(&parts)
            .map(|(number, parts)| Entry {
                origin: Some(Origin { source, series: 1, stream: 2, number: FIRST + number }),
                number: Some(3 * number),
                published_ns: Some(number),
                ..Entry::new(&topic, parts)
            })
            .collect();
        inlet.publish(&entries, Limit::Policy)?;
        inlet.publish(&entries, Limit::Policy)?;
        number = end;
    }
    println!("published\t{number}");
    Ok(())
}

/// What publishes.
enum Sender {
    Shared(Publisher),
    Exclusive(Exclusive, ExclusiveTopic),
}

impl Sender {
    fn publish(&self, message: &[u8], limit: Limit) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish_within(message, limit),
            Self::Exclusive(exclusive, topic) => exclusive.publish(topic, message, limit),
        }
    }

    fn clear(&self) -> Result<u64, PublishError> {
        match self {
            Self::Shared(publisher) => publisher.clear(Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.clear(topic, Limit::Policy),
        }
    }

    fn publish_batch(&self, group: &[Vec<u8>]) -> Result<(), PublishError> {
        match self {
            Self::Shared(publisher) => publisher.publish_batch(group, Limit::Policy),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_batch(topic, group, Limit::Policy)
            }
        }
        .map(drop)
    }

    fn burst(&self, group: &[Vec<u8>]) -> Result<(), BurstError> {
        match self {
            Self::Shared(publisher) => publisher.burst(group, Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.burst(topic, group, Limit::Policy),
        }
    }

    fn publish_in_place(&self, message: &[u8]) -> Result<(), PublishError> {
        let length = message.len();
        match self {
            Self::Shared(publisher) => {
                publisher.publish_with(length, Limit::Policy, |bytes| bytes.write(0, message))
            }
            Self::Exclusive(exclusive, topic) => {
                exclusive
                    .publish_with(topic, length, Limit::Policy, |bytes| bytes.write(0, message))
            }
        }
        .map(drop)
    }
}
