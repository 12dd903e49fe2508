//! Manual pages, generated from the same definitions as `--help`.

use crate::failure::Failure;
use clap::Command;
use std::io::{self, Write};
use std::path::Path;

/// Returns a command of a program.
///
/// # Errors
/// [`Failure::Usage`] if there is none of that name.
pub fn find<'a>(program: &'a Command, name: &str) -> Result<&'a Command, Failure> {
    program.find_subcommand(name).ok_or_else(|| {
        let known: Vec<&str> = visible(program).map(Command::get_name).collect();
        Failure::Usage(format!("there is no command {name:?}: use one of {}", known.join(", ")))
    })
}

/// Returns the commands that are not hidden.
pub fn visible(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns the manual page of a command whose definitions are built, in roff.
///
/// # Errors
/// If it cannot be generated.
pub fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    render_into(command, &mut page)
        .map_err(|error| Failure::Failed(format!("cannot generate the manual page: {error}")))?;
    Ok(page)
}

fn render_into(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let Notes { examples, exit_status, rest } = Notes::of(command);
    let man = clap_mangen::Man::new(command.clone().after_help(rest.join("\n\n")));
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(page)?;
    }
    if !rest.is_empty() {
        section(page, "NOTES", &rest.join("\n\n"), false)?;
    }
    section(page, "EXIT STATUS", &exit_status, true)?;
    let variables = environment(command);
    if !variables.is_empty() {
        section(page, "ENVIRONMENT", &variables, true)?;
    }
    if !examples.is_empty() {
        section(page, "EXAMPLES", &examples, true)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(page)?;
    }
    Ok(())
}

/// Describes the variables that stand for options of this command.
fn environment(command: &Command) -> String {
    let shows = |option| {
        command.get_arguments().any(|known| known.get_id() == option && !known.is_hide_set())
    };
    let lines = [
        ("bus", "TORONI_BUS   name of the bus, if --bus is not given"),
        ("dir", "TORONI_DIR   directory of the buses, if --dir is not given"),
    ];
    let shown: Vec<&str> =
        lines.into_iter().filter(|(option, _)| shows(*option)).map(|(_, line)| line).collect();
    shown.join("\n")
}

/// The text below the options of `--help`: examples, paragraphs, exit codes.
struct Notes {
    examples: String,
    exit_status: String,
    rest: Vec<String>,
}

impl Notes {
    fn of(command: &Command) -> Self {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut notes =
            Self { examples: String::new(), exit_status: String::new(), rest: Vec::new() };
        for paragraph in text.split("\n\n") {
            match paragraph.split_once(":\n") {
                Some(("Example" | "Examples", examples)) => notes.examples = examples.to_owned(),
                Some(("Exit codes", codes)) => notes.exit_status = codes.to_owned(),
                _ => notes.rest.push(paragraph.to_owned()),
            }
        }
        notes
    }
}

/// Writes a section in roff. `literal` keeps the line breaks.
fn section(page: &mut Vec<u8>, title: &str, text: &str, literal: bool) -> io::Result<()> {
    writeln!(
        page,
        ".SH {}",
        if title.contains(' ') { format!("\"{title}\"") } else { title.to_owned() }
    )?;
    if literal {
        writeln!(page, ".nf")?;
    }
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        // A line that starts with a dot would be a roff request.
        let guard = if line.starts_with('.') { "\\&" } else { "" };
        writeln!(page, "{guard}{line}")?;
    }
    if literal {
        writeln!(page, ".fi")?;
    }
    Ok(())
}

/// Writes the page of a program whose definitions are built, and those of all its commands, but for those that have
/// one `elsewhere`. Creates the directory if necessary.
///
/// # Errors
/// If a file cannot be written.
pub fn write_all(program: &Command, directory: &Path, elsewhere: &[&str]) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::Failed(format!("cannot create {}: {error}", directory.display()))
    })?;
    write_page(directory, program, elsewhere)
}

/// Writes the page of a command, and those of the commands below it.
fn write_page(directory: &Path, command: &Command, elsewhere: &[&str]) -> Result<(), Failure> {
    let path = directory.join(clap_mangen::Man::new(command.clone()).get_filename());
    std::fs::write(&path, page(command)?)
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?;
    // clap's own `help` has no page.
    visible(command)
        .filter(|below| below.get_name() != "help" && !elsewhere.contains(&below.get_name()))
        .try_for_each(|below| write_page(directory, below, elsewhere))
}
