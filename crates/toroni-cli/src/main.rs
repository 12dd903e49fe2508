//! The `toroni` program. Its code is in the library, where the fuzz harness can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    toroni_cli::main()
}
