//! `cargo xtask peers`: builds the foreign peers of the comparisons, and runs the suite of all transports on each.

use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, run as run_command};
use crate::metadata::root;

#[derive(Args)]
pub(crate) struct Options {
    /// Peers to build and test [default: all]
    peers: Vec<String>,
    /// Do not install the packages of Debian that they need
    #[arg(long)]
    no_install: bool,
}

const PEERS: [&str; 11] = [
    "aeron",
    "compio",
    "dbus",
    "iceoryx2",
    "mosquitto",
    "nats",
    "nng",
    "tokio",
    "zenoh",
    "zeromq",
    "zeromq-net",
];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(unknown) = options.peers.iter().find(|name| !PEERS.contains(&name.as_str())) {
        return Err(Failure(format!(
            "there is no peer {unknown}: use some of {}",
            PEERS.join(", ")
        )));
    }
    let mut steps = Steps::default();
    if !options.no_install {
        steps.step("install what they need", || {
            run_command(&mut Command::new(root().join("bench/install-peers")))?;
            Ok(String::new())
        });
    }
    let wanted =
        |name: &&str| options.peers.is_empty() || options.peers.iter().any(|peer| peer == name);
    for peer in PEERS.into_iter().filter(wanted) {
        steps.step(peer, || {
            // Optimised, as the comparisons build them, so that nothing is compiled twice.
            run_command(&mut cargo(&["build", "--release"], peer))?;
            run_command(cargo(&["test", "--release"], peer).args(["--", "--test-threads", "2"]))?;
            Ok(String::new())
        });
    }
    steps.finish()
}

/// Returns `cargo` for the package of one peer, in the workspace of the peers.
fn cargo(arguments: &[&str], peer: &str) -> Command {
    let workspace = root().join("bench/peers");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(["--locked", "-p", &format!("toroni-peer-{peer}")]);
    // The folder into which `toroni-bench` also builds them.
    if let Some(folder) = std::env::var_os("CARGO_TARGET_DIR") {
        command.arg("--target-dir").arg(std::path::Path::new(&folder).join("peers"));
    }
    let cmake = workspace.join("target/tools/bin/cmake");
    if std::env::var_os("CMAKE").is_none() && cmake.exists() {
        command.env("CMAKE", cmake);
    }
    command.current_dir(workspace);
    command
}
