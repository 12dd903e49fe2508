//! What the programs of all soaks have in common: they end early by a signal, and say what was wrong.

use crate::options::Options;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a signal: the run ends early, in order.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Lets SIGINT and SIGTERM set [`INTERRUPTED`].
pub fn end_by_signals() {
    // SAFETY: the handler stores to an atomic, and nothing else.
    unsafe {
        let handler = interrupted as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
    }
}

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// The seed of the words, or one that differs from run to run.
#[must_use]
pub fn seed(options: &Options) -> u64 {
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    options.or("seed", clock.as_secs() << 20 ^ u64::from(clock.subsec_nanos()))
}

/// Prints the table, writes the file `json`, and prints the violations. `kept` is where evidence of them is.
#[must_use]
pub fn conclude(
    options: &Options,
    seed: u64,
    table: &str,
    json: &Value,
    violations: &[String],
    kept: Option<&Path>,
) -> ExitCode {
    print!("\n{table}");
    if let Some(path) = options.find::<PathBuf>("json")
        && let Err(error) = std::fs::write(&path, format!("{json:#}\n"))
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if violations.is_empty() {
        println!("\nnothing wrong");
        return ExitCode::SUCCESS;
    }
    println!();
    for violation in violations {
        println!("VIOLATION {violation}");
    }
    println!("seed {seed}");
    if let Some(kept) = kept {
        println!("evidence is kept in {}", kept.display());
    }
    ExitCode::FAILURE
}
