//! `toroni completions` and `toroni man`: made from the definitions behind `--help`.

use crate::cli::{Cli, Completions, Man, Place};
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Command, CommandFactory};
use std::path::Path;

/// Prints the completions for a shell.
pub(crate) fn completions(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut offered(), "toroni", &mut script);
    let mut output = Output::new()?;
    output.bytes(&script)?;
    output.flush()
}

/// Prints a manual page, or writes all of them.
pub(crate) fn man(arguments: &Man) -> Result<(), Failure> {
    if let Some(directory) = &arguments.to {
        return write_all(directory);
    }
    let program = built();
    let page = match &arguments.command {
        None => render(&program)?,
        Some(name) => render(find(&program, name)?)?,
    };
    let mut output = Output::new()?;
    output.bytes(&page)?;
    output.flush()
}

/// The program without its hidden commands, which shells would offer as well.
fn offered() -> Command {
    let program = Cli::command();
    let commands: Vec<Command> = visible(&program).cloned().collect();
    let bare = Command::new("toroni").version(env!("CARGO_PKG_VERSION"));
    Place::augment_args(bare).subcommands(commands)
}

/// All commands with the names, versions and global options that they inherit.
fn built() -> Command {
    let mut program = Cli::command();
    program.build();
    program
}

fn find<'a>(program: &'a Command, name: &str) -> Result<&'a Command, Failure> {
    program.find_subcommand(name).ok_or_else(|| {
        let known: Vec<&str> = visible(program).map(Command::get_name).collect();
        Failure::Usage(format!("there is no command {name:?}: take one of {}", known.join(", ")))
    })
}

fn visible(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set())
}

fn render(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(|error| Failure::Failed(format!("cannot make the manual page: {error}")))?;
    Ok(page)
}

fn write_all(directory: &Path) -> Result<(), Failure> {
    let program = built();
    let pages = std::iter::once(&program).chain(visible(&program));
    for command in pages {
        let path = directory.join(clap_mangen::Man::new(command.clone()).get_filename());
        std::fs::write(&path, render(command)?).map_err(|error| {
            Failure::Failed(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    Ok(())
}
