//! Opens a bus that may not exist: `sub` waits for it, and `pub` creates it. Both report that on standard error, so
//! that a user notices a mistyped name.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, FileError, OpenError, admin};
use toroni_shell::failure::{Failure, no_bus};
use toroni_shell::location::BusLocation;
use toroni_shell::note;
use toroni_shell::output::Output;
use toroni_shell::stop::Stop;

/// How often a command that waits for its bus checks whether it exists.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Opens the bus. If it does not exist, creates it and says so on standard error.
pub(crate) fn open_or_create(config: &BusConfig, location: &BusLocation) -> Result<Bus, Failure> {
    match config.open_existing(&location.bus) {
        Err(OpenError::File(FileError::NotFound { path })) => {
            let was_missing = no_bus(&path);
            match config.create(&location.bus) {
                // Another process was faster.
                Err(OpenError::AlreadyExists { .. }) => Ok(config.open(&location.bus)?),
                answer => {
                    let bus = answer?;
                    note::remark(&format!("{was_missing}: created it with the default settings"));
                    Ok(bus)
                }
            }
        }
        answer => Ok(answer?),
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
