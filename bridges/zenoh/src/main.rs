//! The program `toroni-zenoh`, which `toroni zenoh` runs: a bridge between a bus and Zenoh.

mod program;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
