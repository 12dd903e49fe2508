//! The program whose instructions `cargo xtask counts` counts under callgrind, one path at a time.
//!
//! ```text
//!   toroni-counts list          prints the names of all paths, one a line
//!   toroni-counts run NAME      runs one path and prints how many messages were counted
//! ```
//!
//! `paths.rs` has the table of paths of the bus, `echo.rs` those of the proactor, and the crate `toroni-machines` those of
//! the network protocol. This crate does not know how instructions are counted. It only runs the counted part, and nothing
//! else, inside the function `toroni_counted`, where callgrind starts and stops.
//!
//! There is one process and one thread, because another one would make the counts differ. Nothing but what is counted is
//! compiled in, so that the libraries are compiled as their users compile them.

mod echo;
mod fixture;
mod machines;
mod paths;

use std::error::Error;
use std::process::ExitCode;

use crate::fixture::Fixture;
use crate::paths::PATHS;

/// Rounds of a path. With the messages of one round it is a megabyte of the stream and more: more than
/// a dozen blocks of the ring, so that what is done once a block is counted in its due share.
const ROUNDS: u64 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["list"] => {
            let machines = toroni_machines::ROWS.iter().map(|row| row.name);
            let echoes = echo::PATHS.iter().map(|path| path.name);
            let names = PATHS.iter().map(|path| path.name).chain(machines).chain(echoes);
            names.for_each(|name| println!("{name}"));
            Ok(())
        }
        ["run", name] => run(name),
        _ => Err("say `list` or `run NAME`; or better `cargo xtask counts`".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toroni-counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<(), Box<dyn Error>> {
    let path = PATHS.iter().find(|path| path.name == name);
    let row = toroni_machines::ROWS.iter().find(|row| row.name == name);
    let echo = echo::PATHS.iter().find(|path| path.name == name);
    let counted = match (path, row, echo) {
        (Some(path), _, _) => (path.run)(&mut Fixture::new()?, ROUNDS)?,
        (None, Some(row), _) => machines::run(row, ROUNDS),
        (None, None, Some(path)) => echo::run(path, ROUNDS)?,
        (None, None, None) => return Err(format!("no path is called {name}: see `list`").into()),
    };
    println!("{counted}");
    Ok(())
}
