//! How commands open a bus that may not exist: `sub` waits for it, and `pub` makes it. Neither does so in
//! silence, so that a mistyped name is noticed.

use crate::cli::BusLocation;
use crate::failure::{Failure, no_bus};
use crate::note;
use crate::output::Output;
use crate::stop::Stop;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, OpenError, admin};

/// How often a command that waits for its bus looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A bus that is made if it does not exist; then that is said on standard error.
pub(super) fn or_made(config: &BusConfig, location: &BusLocation) -> Result<Bus, Failure> {
    match config.open_existing(&location.bus) {
        Err(OpenError::NotFound { path }) => {
            let was_missing = no_bus(&path);
            match config.create(&location.bus) {
                // Somebody else was faster.
                Err(OpenError::AlreadyExists { .. }) => Ok(config.open(&location.bus)?),
                answer => {
                    let bus = answer?;
                    note::remark(&format!("{was_missing}: made it with the default settings"));
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
    location: &BusLocation,
    timeout: Option<Duration>,
    stop: &Stop,
    output: &Output,
) -> Result<Awaited, Failure> {
    let path = match config.open_existing(&location.bus) {
        Err(OpenError::NotFound { path }) => path,
        answer => return Ok(Awaited::Found(answer?)),
    };
    if let Some(path) = missing_parent(location) {
        return Err(OpenError::MissingDirectory { path }.into());
    }
    note::remark(&format!(
        "{}: waiting until somebody makes it (--create makes it now)",
        no_bus(&path)
    ));
    let began = Instant::now();
    while timeout.is_none_or(|timeout| began.elapsed() < timeout) && stop.sleep(LOOK_EVERY) {
        output.check_reader()?;
        match config.open_existing(&location.bus) {
            Err(OpenError::NotFound { .. }) => {}
            answer => return Ok(Awaited::Made(answer?)),
        }
    }
    Ok(Awaited::Missing)
}

/// A directory that must exist before anybody can make the directory of buses.
fn missing_parent(location: &BusLocation) -> Option<PathBuf> {
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    let parent = std::path::absolute(&directory).ok()?.parent()?.to_owned();
    (!directory.exists() && !parent.exists()).then_some(parent)
}
