//! What the checks of `doctor` found, and how to fix it.

use crate::failure::Failure;
use crate::human;
use crate::output::{Output, printable};
use crate::stop::{GracePeriod, Stop};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How what was checked is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// There is nothing to fix.
    Ok,
    /// It works, but something is slower, or an option has no effect.
    Warn,
    /// What was checked does not work.
    Fail,
}

/// The result of a check, and how to fix the problem.
#[derive(Serialize)]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    /// There is nothing to fix.
    #[must_use]
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, message: message.into(), remedy: None }
    }

    /// Adds what may still be done, although there is nothing to fix.
    #[must_use]
    pub fn proposing(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Something is slower, or an option has no effect.
    #[must_use]
    pub fn warn(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, status: Status::Warn, message, remedy }
    }

    /// What is checked does not work.
    #[must_use]
    pub fn fail(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, status: Status::Fail, message, remedy }
    }
}

fn show(finding: &Finding, output: &mut Output) -> Result<(), Failure> {
    let status = match finding.status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
    };
    output.line(&format!("{status:<5} {:<16} {}", finding.check, printable(&finding.message)))?;
    if let Some(remedy) = &finding.remedy {
        output.line(&format!("{:<22} -> {}", "", printable(remedy)))?;
    }
    Ok(())
}

/// Prints what each check finds, as soon as it is known. `what_works` begins the last line if there are only warnings:
/// what they do not prevent.
///
/// # Errors
/// If a check fails.
pub fn report(
    checks: impl Iterator<Item = Vec<Finding>>,
    what_works: &str,
    json: bool,
) -> Result<(), Failure> {
    // After a signal, it still has to remove the bus that it created for a check.
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let mut output = Output::new()?;
    let mut failures = 0;
    let mut warnings = 0;
    // Lazy: the loop runs one check after the other.
    for finding in checks.flatten() {
        if stop.is_set() {
            return Err(stop.interrupted("interrupted"));
        }
        match finding.status {
            Status::Ok => {}
            Status::Warn => warnings += 1,
            Status::Fail => failures += 1,
        }
        if json {
            output.json(&finding)?;
        } else {
            show(&finding, &mut output)?;
        }
        // A check may take a second: show each result as soon as it is known.
        output.flush()?;
    }
    if failures > 0 {
        return Err(Failure::Failed(format!(
            "{} failed, with {}: follow the lines that start with ->",
            human::counted(failures, "check"),
            human::counted(warnings, "warning")
        )));
    }
    if !json {
        output.line(&match warnings {
            0 => "\nNo problems found.".to_owned(),
            1 => format!("\n{what_works}, with one warning."),
            _ => format!("\n{what_works}, with {warnings} warnings."),
        })?;
    }
    output.flush()
}

/// Returns the directory itself, or the nearest ancestor that exists.
#[must_use]
pub fn existing(directory: &Path) -> PathBuf {
    directory
        .ancestors()
        .find(|path| path.exists())
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}
