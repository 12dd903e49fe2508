//! `toroni completions`: prints the script with which a shell asks this program for completions.

use clap::Args;
use clap_complete::env::Shells;
use toroni_shell::complete::VARIABLE;
use toroni_shell::failure::Failure;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni completions bash > ~/.local/share/bash-completion/completions/toroni
  toroni completions zsh > ~/.zfunc/_toroni
  toroni completions fish > ~/.config/fish/completions/toroni.fish

On Tab the shell calls this program, which also offers existing buses and their topics. After an upgrade of \
the program, print the script again.")]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub(crate) fn run(arguments: &Completions) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let shell = shells.completer(&arguments.shell.to_string()).ok_or_else(|| {
        Failure::Usage(format!(
            "there are no completions for {}: use bash, zsh or fish",
            arguments.shell
        ))
    })?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "toroni", "toroni", "toroni", &mut script)
        .map_err(|error| Failure::Failed(format!("cannot generate the script: {error}")))?;
    let mut output = Output::new()?;
    output.bytes(&script)?;
    output.flush()
}
