//! Opens a bus that may not exist: `sub` waits for it, and reports that on standard error, so that a user notices a
//! mistyped name. `pub` creates it: `toroni_shell::location`.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, FileError, OpenError, Pattern, admin};
use toroni_shell::failure::{Failure, no_bus};
use toroni_shell::location::BusLocation;
pub(crate) use toroni_shell::location::open_or_create;
use toroni_shell::note;
use toroni_shell::output::Output;
use toroni_shell::stop::Stop;

/// How often a command that waits for its bus checks whether it exists.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Says so on standard error if the only pattern of a command is the name of a bus, and no topic matches it: other commands
/// take the bus at this place.
pub(crate) fn remark_on_bus_as_pattern(
    location: &BusLocation,
    patterns: &[Pattern],
    command: &str,
) {
    let [pattern] = patterns else { return };
    let name = pattern.as_str();
    // If the directory cannot be read, opening the bus says so.
    let buses = admin::list(location.dir.as_deref()).unwrap_or_default();
    if name == location.bus || !buses.iter().any(|bus| bus.name == name) {
        return;
    }
    let topics = location.open_existing(None).ok().and_then(|bus| bus.topics().ok());
    if !topics.is_some_and(|topics| topics.iter().any(|topic| pattern.matches(&topic.name))) {
        note::remark(&format!(
            "no topic of bus {} matches {name}, but there is a bus {name}: `toroni --bus {name} {command}` is about that one",
            location.bus
        ));
    }
}

/// The result of waiting for a bus.
pub(crate) enum Awaited {
    /// The bus existed.
    Found(Bus),
    /// The bus was created meanwhile: everything on it was published after the command started.
    Created(Bus),
    /// A signal came or the time-out passed, and the bus does not exist.
    Missing,
}

/// Opens the bus. If it does not exist, says so on standard error with `advice`, and waits for it, at most for
/// `timeout`.
pub(crate) fn open_or_wait(
    config: &BusConfig,
    location: &BusLocation,
    timeout: Option<Duration>,
    advice: &str,
    stop: &Stop,
    output: &Output,
) -> Result<Awaited, Failure> {
    let path = match config.open_existing(&location.bus) {
        Err(OpenError::File(FileError::NotFound { path })) => path,
        answer => return Ok(Awaited::Found(answer?)),
    };
    if let Some(path) = missing_parent(location) {
        return Err(OpenError::MissingDirectory { path }.into());
    }
    note::remark(&format!("{}: waiting until a process creates it ({advice})", no_bus(&path)));
    let started = Instant::now();
    while timeout.is_none_or(|timeout| started.elapsed() < timeout) && stop.sleep(CHECK_EVERY) {
        output.check_reader()?;
        match config.open_existing(&location.bus) {
            Err(OpenError::File(FileError::NotFound { .. })) => {}
            answer => return Ok(Awaited::Created(answer?)),
        }
    }
    Ok(Awaited::Missing)
}

/// Returns the parent of the directory of buses if neither exists: then no process can create a bus.
fn missing_parent(location: &BusLocation) -> Option<PathBuf> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    let parent = std::path::absolute(&directory).ok()?.parent()?.to_owned();
    (!directory.exists() && !parent.exists()).then_some(parent)
}
