//! Configurations as text: TOML, from a file or from the environment.

use super::{Config, ConfigError, ProcessorConfig, ProviderType, WaitType};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// The variable that [`Config::from_environment`] reads.
const VARIABLE: &str = "TORONI_PROACTOR";

/// More than any machine has use for: each shard has descriptors of its own.
const MOST_SHARDS: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    shards: Option<usize>,
    #[serde(default)]
    processor: Vec<ProcessorConfig>,
}

impl Config {
    /// Parses TOML text, as in the example above.
    ///
    /// # Errors
    ///
    /// If the text is not a valid configuration.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text, "the text")
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a valid configuration.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_path_buf(), source })?;
        parse(&text, &path.display().to_string())
    }

    /// Reads the variable `TORONI_PROACTOR`.
    ///
    /// - Not set or empty: the default.
    /// - `auto`, `combined`, `uring`, `epoll`, `poll`: one shared processor on that engine.
    /// - `posix`: the C library's asynchronous I/O for files, and epoll for everything else.
    /// - Text that contains `=`: TOML.
    /// - Anything else: the name of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the text is not a valid configuration.
    pub fn from_environment() -> Result<Self, ConfigError> {
        match std::env::var(VARIABLE) {
            Ok(value) => Self::from_value(&value),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(value)) => Self::from_file(value),
        }
    }

    fn from_value(value: &str) -> Result<Self, ConfigError> {
        let processor =
            |provider, wait| ProcessorConfig { provider, wait, ..ProcessorConfig::default() };
        let one = |provider, wait| Self::one(processor(provider, wait));
        Ok(match value.trim() {
            "" | "auto" => Self::default(),
            "combined" => one(ProviderType::Combined, WaitType::Epoll),
            "uring" => one(ProviderType::Uring, WaitType::Native),
            "epoll" => one(ProviderType::Select, WaitType::Epoll),
            "poll" => one(ProviderType::Select, WaitType::Native),
            "posix" => Self::two(
                processor(ProviderType::Posix, WaitType::Native),
                processor(ProviderType::Select, WaitType::Epoll),
            ),
            text if text.contains('=') => parse(text, VARIABLE)?,
            path => Self::from_file(path).map_err(|error| match error {
                ConfigError::Unreadable { source, .. } => ConfigError::Syntax {
                    origin: VARIABLE.to_owned(),
                    message: format!(
                        "{path:?} is no engine (auto, combined, uring, epoll, poll, posix), no TOML, which has an `=`, and \
                         no file that can be read: {source}"
                    ),
                },
                error => error,
            })?,
        })
    }

    /// Checks what the types do not express.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self.processors.len() {
            1 | 2 => {}
            found => return Err(ConfigError::Processors { found }),
        }
        if let Some(found) = self.shards.filter(|shards| !(1..=MOST_SHARDS).contains(shards)) {
            return Err(ConfigError::Shards { found, most: MOST_SHARDS });
        }
        if self.processors.iter().any(|processor| processor.max_operations == Some(0)) {
            return Err(ConfigError::NoOperations);
        }
        Ok(())
    }
}

fn parse(text: &str, origin: &str) -> Result<Config, ConfigError> {
    let file: File = basic_toml::from_str(text).map_err(|error| ConfigError::Syntax {
        origin: origin.to_owned(),
        message: error.to_string(),
    })?;
    let config = Config { processors: file.processor, shards: file.shards, threads: 0 };
    config.check()?;
    Ok(config)
}

#[cfg(test)]
mod tests;
