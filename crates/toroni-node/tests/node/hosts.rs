//! The program on hosts, which are network namespaces.

use crate::support::Buses;
use std::process::{Command, Stdio};
use toroni_testkit::Program;
use toroni_testkit::network::Host;

/// Returns the program on a host, with these buses, not yet started.
pub(crate) fn on(host: &Host, buses: &Buses, arguments: &[&str]) -> Command {
    let mut command = host.command(crate::program());
    command.env_remove("TORONI_BUS").env("TORONI_DIR", buses.path()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the program on a host, and waits until it is ready.
pub(crate) fn start(host: &Host, buses: &Buses, arguments: &[&str]) -> Program {
    let mut program = Program::start_with_ready_fd(on(host, buses, arguments));
    program.wait_ready();
    program
}

/// Publishes a message on a host.
pub(crate) fn publish(host: &Host, buses: &Buses, topic: &str, text: &str) {
    let output = Program::start(on(host, buses, &["pub", topic, text])).finish();
    assert!(output.status.success(), "{output:?}");
}
