//! The program around the library: the command line, the file, logs, metrics and signals.
//!
//! | module | contents |
//! |---|---|
//! | `options` | the command line |
//! | `file`, `parsing` | the configuration file; its errors, with line, column and the nearest known key |
//! | `findings` | what is wrong or doubtful in a configuration, all of it at once |
//! | `run` | starts the bridge, waits for signals, stops it |
//! | `log` | log lines as text or JSON; repeated warnings are counted |
//! | `metrics` | counters in the OpenMetrics format |
//! | `bench` | from bus to bus beside plain Zenoh |
//! | `ready` | `--ready-fd`, and systemd |

mod bench;
mod file;
mod findings;
mod log;
mod metrics;
mod options;
mod parsing;
mod ready;
mod run;

use clap::Parser;
use options::{Command, Options};
use std::io::Write;
use std::process::ExitCode;

/// Why the program ends.
#[derive(Debug)]
enum Failure {
    /// It failed: exit code 1.
    Failed(String),
    /// The command line or the configuration is refused: exit code 2.
    Refused(String),
}

/// Runs the program with the arguments and the environment of this process.
pub(crate) fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return report_usage(&error),
    };
    let outcome = match &options.command {
        Some(Command::Check { file }) => findings::check(file),
        Some(Command::Bench(options)) => bench::run(options),
        None => run::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => report(1, &text),
        Err(Failure::Refused(text)) => report(2, &text),
    }
}

fn report(code: u8, text: &str) -> ExitCode {
    // If standard error is closed, the text is lost.
    let _ = writeln!(std::io::stderr(), "toroni zenoh: {text}");
    ExitCode::from(code)
}

/// Prints help and version as clap does, and errors with the prefix of all others. Unlike clap, fails if help or version cannot be
/// written; a reader that has left is no failure.
fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                report(1, &format!("cannot write to standard output: {why}"))
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let text = error.render().to_string();
    report(2, text.strip_prefix("error: ").unwrap_or(&text).trim_end())
}
