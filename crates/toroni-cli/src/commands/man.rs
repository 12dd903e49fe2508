//! `toroni man`: manual pages, generated from the same definitions as `--help`.

use crate::{cli, parts};
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::path::PathBuf;
use toroni_shell::failure::Failure;
use toroni_shell::man::{find, page, write_all};
use toroni_shell::note;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni man | man -l -
  toroni man sub | man -l -
  toroni man --to /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Command to describe [default: the program itself]
    #[arg(conflicts_with = "to", add = ArgValueCompleter::new(cli::complete_commands))]
    command: Option<String>,
    /// Write the pages of all commands to this directory, with those of toroni-node if it is installed; creates it if
    /// necessary
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

/// Prints one manual page, or writes all of them.
pub(crate) fn run(arguments: &Man) -> Result<(), Failure> {
    let mut program = cli::shown();
    // The definitions then have the versions and global options that they inherit.
    program.build();
    if let Some(directory) = &arguments.to {
        let elsewhere: Vec<&str> = parts::PARTS.iter().map(|part| part.name).collect();
        write_all(&program, directory, &elsewhere)?;
        if !parts::write_pages(directory)? {
            note::remark("toroni-node is not installed: the pages of its commands are not written");
        }
        return Ok(());
    }
    let text = match &arguments.command {
        None => page(&program)?,
        Some(name) => page(find(&program, name)?)?,
    };
    let mut output = Output::new()?;
    output.bytes(&text)?;
    output.flush()
}
