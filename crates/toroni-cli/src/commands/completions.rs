//! `toroni completions`: the script by which a shell asks this program what could come next.

use crate::cli::Completions;
use crate::complete::VARIABLE;
use crate::failure::Failure;
use crate::output::Output;
use clap_complete::env::Shells;

/// Prints the completions for a shell.
pub(crate) fn run(arguments: &Completions) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let shell = shells
        .completer(&arguments.shell.to_string())
        .ok_or_else(|| Failure::Usage(format!("no completions for {}", arguments.shell)))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "toroni", "toroni", "toroni", &mut script)
        .map_err(|error| Failure::Failed(format!("cannot make the script: {error}")))?;
    let mut output = Output::new()?;
    output.bytes(&script)?;
    output.flush()
}
