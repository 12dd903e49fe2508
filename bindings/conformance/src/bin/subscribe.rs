//! The subscriber of the conformance test in Rust; README.md says what it takes and writes.

use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use toroni::{BusConfig, Continue, ReceiveError, Subscriber};
use toroni_conformance::{from_elsewhere, gone, hash, wait_for_go, wait_for_line};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match subscribe(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn subscribe(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [bus, pattern, count, mode] = arguments else {
        return Err("subscribe BUS PATTERN COUNT MODE".into());
    };
    let mut builder = BusConfig::new().open_existing(bus)?.subscriber().pattern(pattern);
    if mode == "newest" {
        builder = builder.after_loss(Continue::Newest).max_age(Duration::from_secs(3600));
    }
    let (asks, mode) = match mode.strip_prefix("retained-") {
        Some(mode) => (true, mode),
        None => (false, mode.as_str()),
    };
    let mut subscriber = builder.retained(asks).build()?;
    wait_for_go()?;
    let mut left: u64 = count.parse()?;
    let mut was_current = !asks;
    while left > 0 {
        if !was_current && subscriber.is_current() {
            println!("current");
            was_current = true;
        }
        if let Err(error) = receive(&mut subscriber, mode, &mut left) {
            match error.downcast_ref() {
                Some(ReceiveError::Lapped { lost_messages, lost_bytes }) => {
                    println!("lost\t{lost_messages}\t{lost_bytes}");
                }
                Some(ReceiveError::Lost(lost)) => println!("{}", gone(lost)),
                Some(ReceiveError::ValueMissing { topic, sequence, length }) => {
                    println!("missing\t{sequence}\t{topic}\t{length}");
                }
                _ => return Err(error),
            }
        }
    }
    if mode == "hold" {
        show_held(&subscriber);
        wait_for_line()?;
        subscriber.release_hold();
        show_held(&subscriber);
        wait_for_line()?;
    }
    let seen = subscriber.stats();
    println!("done\t{}\t{}\t{}", seen.received, seen.lost_messages, seen.lapses);
    Ok(())
}

/// Receives what one call receives.
fn receive(subscriber: &mut Subscriber, mode: &str, left: &mut u64) -> Result<(), Box<dyn Error>> {
    let message = match mode {
        "receive" | "newest" => Some(subscriber.receive()?),
        "hold" => return receive_and_hold(subscriber, left),
        "timeout" => subscriber.receive_timeout(Duration::from_millis(100))?,
        "descriptor" => {
            // The descriptor must exist before the check that finds nothing: it ends the wait after that check.
            subscriber.enable_fd()?;
            subscriber.try_receive()?
        }
        "in-place" => return receive_in_place(subscriber, left),
        _ => {
            let modes =
                "receive, timeout, in-place or descriptor, also after retained-, or hold or newest";
            return Err(format!("MODE is {modes}").into());
        }
    };
    if let Some(message) = message {
        let what = what(message.is_retained(), message.is_cleared());
        let from = from_elsewhere(message.origin(), message.number());
        show(what, message.sequence(), message.topic(), message.payload(), &from, left);
    } else if mode == "descriptor" {
        poll(&mut [PollFd::new(&*subscriber, PollFlags::IN)], None)?;
    }
    Ok(())
}

fn receive_in_place(subscriber: &mut Subscriber, left: &mut u64) -> Result<(), Box<dyn Error>> {
    for message in subscriber.receive_in_place()? {
        let payload = message.payload().to_vec();
        let from = from_elsewhere(message.origin(), message.number());
        message.validate()?;
        let what = what(message.is_retained(), message.is_cleared());
        show(what, message.sequence(), message.topic(), &payload, &from, left);
        if *left == 0 {
            break;
        }
    }
    Ok(())
}

fn receive_and_hold(subscriber: &mut Subscriber, left: &mut u64) -> Result<(), Box<dyn Error>> {
    let message = subscriber.receive()?;
    let (sequence, from) = (message.sequence(), from_elsewhere(message.origin(), message.number()));
    show("message", sequence, message.topic(), message.payload(), &from, left);
    subscriber.hold(sequence.saturating_sub(20))?;
    Ok(())
}

fn show_held(subscriber: &Subscriber) {
    match subscriber.held() {
        Some(sequence) => println!("held\t{sequence}"),
        None => println!("held\t-"),
    }
}

fn what(is_retained: bool, is_cleared: bool) -> &'static str {
    match (is_retained, is_cleared) {
        (_, true) => "cleared",
        (true, false) => "value",
        (false, false) => "message",
    }
}

fn show(what: &str, sequence: u64, topic: &str, payload: &[u8], from: &str, left: &mut u64) {
    println!("{what}\t{sequence}\t{topic}\t{}\t{:016x}\t{from}", payload.len(), hash(payload));
    *left = if topic == "end" { 0 } else { *left - 1 };
}
