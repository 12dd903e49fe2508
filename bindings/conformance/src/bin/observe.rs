//! The observer of the conformance test in Rust; README.md says what it takes and writes.

use std::error::Error;
use std::process::ExitCode;
use toroni::BusConfig;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match observe(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn observe(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [bus] = arguments else { return Err("observe BUS".into()) };
    let stats = BusConfig::new().open_existing(bus)?.stats()?;
    if let Some(owner) = stats.lock_owner {
        show("lock", "-", owner.alive == Some(true), owner.stopped, owner.dumping);
    }
    for one in stats.publishers.unwrap_or_default() {
        show("publisher", &one.name, one.alive, one.stopped, one.dumping);
    }
    for one in stats.subscribers.unwrap_or_default() {
        show("subscriber", &one.name, one.alive, one.stopped, one.dumping);
    }
    Ok(())
}

fn show(what: &str, name: &str, alive: bool, stopped: bool, dumping: bool) {
    println!("{what}\t{name}\t{}\t{}\t{}", u8::from(alive), u8::from(stopped), u8::from(dumping));
}
