//! How commands come to their bus: one that looks needs it, one that follows it waits for it, one that
//! publishes makes it. None makes a bus in silence, so that a mistyped name is noticed.

use crate::cli::Place;
use crate::failure::Failure;
use crate::output::{Output, printable};
use crate::stop::Stop;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, OpenError, admin};

/// How often a command that waits for its bus looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Names in a message.
const MOST_NAMES: usize = 10;

/// A bus that exists. The error names those that do.
pub(super) fn existing(config: &BusConfig, place: &Place, name: &str) -> Result<Bus, Failure> {
    match config.open_existing(name) {
        Err(OpenError::NotFound { path }) => Err(Failure::Failed(format!(
            "{}: `toroni create {name}` makes one",
            missing(&path, place)
        ))),
        answer => Ok(answer?),
    }
}

/// A bus that is made if it does not exist; then that is said on standard error.
pub(super) fn or_made(config: &BusConfig, place: &Place) -> Result<Bus, Failure> {
    match config.open_existing(&place.bus) {
        Err(OpenError::NotFound { path }) => {
            let was_missing = missing(&path, place);
            match config.create(&place.bus) {
                // Somebody else was faster.
                Err(OpenError::AlreadyExists { .. }) => Ok(config.open(&place.bus)?),
                answer => {
                    let bus = answer?;
                    say(&format!("{was_missing}: made it with the default settings"));
                    Ok(bus)
                }
            }
        }
        answer => Ok(answer?),
    }
}

/// What came of waiting for a bus.
pub(super) enum Awaited {
    /// It was there.
    Found(Bus),
    /// It was made meanwhile: everything on it was published after the command began.
    Made(Bus),
    /// It is not there. A signal came, or the time is over.
    Missing,
}

/// Waits until the bus exists, as long as `timeout`; says so on standard error if it has to.
pub(super) fn awaited(
    config: &BusConfig,
    place: &Place,
    timeout: Option<Duration>,
    stop: &Stop,
    output: &Output,
) -> Result<Awaited, Failure> {
    let path = match config.open_existing(&place.bus) {
        Err(OpenError::NotFound { path }) => path,
        answer => return Ok(Awaited::Found(answer?)),
    };
    if let Some(path) = missing_parent(place) {
        return Err(OpenError::MissingDirectory { path }.into());
    }
    say(&format!(
        "{}: waiting until somebody makes it (--create makes it now)",
        missing(&path, place)
    ));
    let began = Instant::now();
    while timeout.is_none_or(|timeout| began.elapsed() < timeout) && stop.sleep(LOOK_EVERY) {
        output.check_reader()?;
        match config.open_existing(&place.bus) {
            Err(OpenError::NotFound { .. }) => {}
            answer => return Ok(Awaited::Made(answer?)),
        }
    }
    Ok(Awaited::Missing)
}

/// That there is no bus at `path`, and which there are beside it.
pub(super) fn missing(path: &Path, place: &Place) -> String {
    let mut text = format!("there is no bus at {}", path.display());
    let buses = admin::list(place.dir.as_deref()).unwrap_or_default();
    if !buses.is_empty() {
        let names: Vec<&str> = buses.iter().take(MOST_NAMES).map(|bus| &*bus.name).collect();
        text += &format!(" (there are {}", names.join(", "));
        text += match buses.len() - names.len() {
            0 => ")",
            _ => ", and others)",
        };
    }
    text
}

/// A directory that must exist before anybody can make the directory of buses.
fn missing_parent(place: &Place) -> Option<PathBuf> {
    let directory = place.dir.clone().unwrap_or_else(admin::default_directory);
    let parent = std::path::absolute(&directory).ok()?.parent()?.to_owned();
    (!directory.exists() && !parent.exists()).then_some(parent)
}

fn say(text: &str) {
    // There is nobody to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "toroni: {}", printable(text));
}
