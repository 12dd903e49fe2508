//! Which bus a command is about: the options `--bus` and `--dir`.

use crate::complete;
use crate::failure::{Failure, no_bus};
use crate::note;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use toroni::{Bus, BusConfig, FileError, OpenError, Pattern};

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

/// Opens the bus. If it does not exist, creates it and says so on standard error, because the name may be mistyped.
///
/// # Errors
/// If the bus can neither be opened nor created.
pub fn open_or_create(config: &BusConfig, location: &BusLocation) -> Result<Bus, Failure> {
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

/// Parses an address and a port. A name, such as `localhost`, is looked up.
///
/// # Errors
/// Why the text is no address.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: String| {
        format!("{why}: write ADDRESS:PORT, such as 127.0.0.1:9478, localhost:9478 or [::1]:9478")
    };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
        _ => return Err(wrong(format!("{text:?} has no address or no port"))),
    }
    let found = text.to_socket_addrs().map_err(|error| wrong(format!("{text:?}: {error}")))?;
    // If a name has both kinds of address, IPv4 is preferred.
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| wrong(format!("{text:?} has no address")))
}

/// Parses patterns. Call it before the command waits for its bus or creates it.
///
/// # Errors
/// [`Failure::Usage`] if one is not a pattern.
pub fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let patterns: Result<Vec<Pattern>, _> = texts.iter().map(|text| Pattern::new(text)).collect();
    Ok(patterns?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_names() {
        for text in ["127.0.0.1:80", "[::1]:80"] {
            assert_eq!(parse_address(text).unwrap().to_string(), text);
        }
        let local = parse_address("localhost:9478").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 9478, "{local}");
        for text in ["", "localhost", "9478", ":9478", "localhost:", "localhost:x", "::1"] {
            let why = parse_address(text).unwrap_err();
            assert!(why.contains("write ADDRESS:PORT"), "{text}: {why}");
        }
    }
}
