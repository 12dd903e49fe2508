//! A server that a host starts for the run of a peer: a broker or a daemon, as a package of Debian has it.

use crate::Failure;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
pub use toroni_process::Process;

/// How long a server may take to start.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// Starts a server, and waits until `connect` succeeds. The package of Debian has the name of the program. What the server
/// prints is left out. It is killed and reaped when it is dropped.
///
/// # Errors
/// If it cannot be started, or that of `connect`, if it never succeeds.
pub fn start<T>(
    command: &mut Command,
    mut connect: impl FnMut() -> Result<T, Failure>,
) -> Result<Process, Failure> {
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::spawn(command).map_err(Failure::of(format!(
        "start {program} (Debian's package {program}, or bench/install-peers, has it)"
    )))?;
    let start = Instant::now();
    while let Err(failure) = connect() {
        if start.elapsed() > PATIENCE {
            return Err(failure);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_when_a_client_has_connected() {
        let mut attempts = 0;
        let server = start(Command::new("sleep").arg("60"), || {
            attempts += 1;
            if attempts < 3 { Err(Failure::new("not yet")) } else { Ok(()) }
        });
        assert!(server.unwrap().is_running().unwrap());
        assert_eq!(attempts, 3);
    }

    #[test]
    fn a_server_that_is_missing_is_named_with_its_package() {
        let mut command = Command::new("carrier-pigeon");
        let failure = start(&mut command, || -> Result<(), Failure> { Ok(()) }).unwrap_err();
        let text = failure.to_string();
        assert!(
            text.contains("start carrier-pigeon (Debian's package carrier-pigeon, or"),
            "{text}"
        );
        assert!(text.contains("bench/install-peers"), "{text}");
    }
}
