//! The `toroni` program. All of it is in the library beside, where trials of any bytes reach it, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    toroni_cli::main()
}
