//! Which bus a command is about: the options `--bus` and `--dir`.

use crate::complete;
use crate::failure::Failure;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::path::PathBuf;
use toroni::{Bus, BusConfig, Pattern};

/// A bus and the directory it is in.
#[derive(Args, Clone)]
pub struct BusLocation {
    /// Name of the bus
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        env = "TORONI_BUS",
        default_value = "default",
        help_heading = "Which bus",
        add = ArgValueCompleter::new(complete::buses)
    )]
    pub bus: String,
    /// Directory that contains the buses [default: /dev/shm/toroni]
    #[arg(long, global = true, value_name = "DIR", env = "TORONI_DIR", help_heading = "Which bus")]
    pub dir: Option<PathBuf>,
}

impl BusLocation {
    /// Returns a configuration with the directory of the command line.
    #[must_use]
    pub fn config(&self) -> BusConfig {
        match &self.dir {
            Some(directory) => BusConfig::new().directory(directory),
            None => BusConfig::new(),
        }
    }

    /// Opens the bus of a command that only inspects it: the one with this name, or else that of `--bus`.
    ///
    /// # Errors
    /// If the bus does not exist, or cannot be opened.
    pub fn open_existing(&self, name: Option<&str>) -> Result<Bus, Failure> {
        Ok(self.config().open_existing(name.unwrap_or(&self.bus))?)
    }
}

/// Parses patterns. Call it before the command waits for its bus or creates it.
///
/// # Errors
/// [`Failure::Usage`] if one is not a pattern.
pub fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let patterns: Result<Vec<Pattern>, _> = texts.iter().map(|text| Pattern::new(text)).collect();
    Ok(patterns?)
}
