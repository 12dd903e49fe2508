//! The committed counts: `tests/counts/baseline-ARCHITECTURE.json`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::command::Failure;
use crate::metadata;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    /// The versions of the programs that determine the counts.
    pub(super) made_with: BTreeMap<String, String>,
    /// The keys are the names of the paths.
    pub(super) instructions_per_message: BTreeMap<String, f64>,
}

/// The baseline for this processor architecture.
pub(super) fn file() -> PathBuf {
    metadata::root().join(format!("tests/counts/baseline-{}.json", std::env::consts::ARCH))
}

/// A path from the root of the repository.
pub(super) fn shown(path: &Path) -> String {
    path.strip_prefix(metadata::root()).unwrap_or(path).display().to_string()
}

impl Counts {
    /// Reads a baseline. If the file does not exist, it is empty.
    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        match fs::read_to_string(file) {
            Ok(text) => Self::parse(&text).map_err(|what| {
                let again =
                    "restore it from git, or write it again with `cargo xtask counts --bless`";
                Failure(format!("{} is not a baseline: {what}; {again}", shown(file)))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure(format!("cannot read {}: {error}", shown(file)))),
        }
    }

    pub(super) fn write(&self, file: &Path) -> Result<(), Failure> {
        let cannot = |error: &dyn std::fmt::Display| {
            Failure(format!("cannot write {}: {error}", shown(file)))
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| cannot(&error))?;
        fs::write(file, text + "\n").map_err(|error| cannot(&error))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let counts: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (path, count) in &counts.instructions_per_message {
            if !(count.is_finite() && *count > 0.0) {
                return Err(format!("{path} has an impossible count: {count}"));
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let counts = Counts {
            made_with: BTreeMap::from([("rustc".to_owned(), "1.88.0".to_owned())]),
            instructions_per_message: BTreeMap::from([("publish-8".to_owned(), 123.45)]),
        };
        let name = format!("toroni-xtask-baseline-{}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        counts.write(&file).unwrap();
        let read = Counts::read(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(read.unwrap(), counts);
        assert_eq!(Counts::read(&file).unwrap(), Counts::default());
    }

    #[test]
    fn a_baseline_that_nothing_can_be_compared_with_is_refused() {
        let with = |count: &str| {
            format!(
                r#"{{"made_with": {{}}, "instructions_per_message": {{"publish-8": {count}}}}}"#
            )
        };
        assert!(Counts::parse(&with("1.5")).is_ok());
        for count in ["0.0", "-1.5", "null", "\"many\""] {
            assert!(Counts::parse(&with(count)).is_err(), "{count}");
        }
        assert!(Counts::parse("").is_err());
        assert!(Counts::parse("{}").is_err());
    }
}
