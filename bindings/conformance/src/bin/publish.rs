//! The publisher of the conformance test in Rust; README.md says what it takes and writes.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use toroni::{BusConfig, PublishError};
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
    let publisher = BusConfig::new().open_existing(bus)?.publisher(topic)?;
    wait_for_go()?;
    let mut number = 0;
    while number < wanted {
        if matches!(mode.as_str(), "batch" | "burst") {
            let end = wanted.min(number + 16);
            let group: Vec<Vec<u8>> =
                (number..end).map(|number| messages.message(number)).collect();
            if mode == "batch" {
                publisher.publish_batch(&group)?;
            } else {
                publisher.burst(&group)?;
            }
            number = end;
            continue;
        }
        let message = messages.message(number);
        match mode.as_str() {
            "one" => publisher.publish(&message)?,
            "try" => loop {
                match publisher.try_publish(&message) {
                    Err(PublishError::Full | PublishError::Busy) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => break other?,
                }
            },
            "in-place" => {
                publisher.publish_with(message.len(), |bytes| bytes.write(0, &message))?
            }
            _ => return Err("MODE is one, try, batch, burst or in-place".into()),
        }
        number += 1;
    }
    println!("published\t{number}");
    Ok(())
}
