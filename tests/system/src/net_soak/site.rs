//! A host with its bus and its node.

use super::supervisor::Plan;
use crate::{Program, TempRoot, program};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Stdio;
use toroni::{Bus, Policy};
use toroni_testkit::network::Host;

/// Larger than what all hosts publish while a node is away.
const CAPACITY: u64 = 16 << 20;

/// One host.
pub(super) struct Site {
    host: Host,
    pub(super) bus: Bus,
    buses: PathBuf,
    file: PathBuf,
    node: Option<Program>,
    /// The most memory of its nodes, in KiB: of those that were killed, and of the present one.
    memory: [u64; 2],
}

impl Site {
    /// Makes the bus of the host with this number, and writes the file of its node. A host that publishes nothing has
    /// no stream.
    pub(super) fn new(root: &TempRoot, host: &Host, number: usize, plan: &Plan) -> Self {
        let name = format!("host-{number}");
        let policy = Policy::Wait { limit: None };
        let config = root.config().capacity(CAPACITY).timestamps(true).policy(policy);
        let bus = config.open(&name).expect("a bus");
        let state = root.file(&format!("state-{number}"));
        let mut text = format!(
            "[node]\nrealm = 'soak'\nname = '{name}'\nid = {}\nbus = '{name}'\ninterfaces = ['eth0']\nstate = {state:?}\n\
             [[receive]]\n",
            number + 1
        );
        if number < plan.hosts {
            let _ = write!(
                text,
                "[[send]]\nstream = 1\npatterns = ['{name}/**']\ndata_rate = '{}Mbit/s'\n",
                plan.data_mbit
            );
        }
        let file = root.file(&format!("{name}.toml"));
        std::fs::write(&file, text).expect("the file of the node");
        let buses = root.buses();
        Self { host: host.clone(), bus, buses, file, node: None, memory: [0; 2] }
    }

    /// Starts the node.
    pub(super) fn start(&mut self) {
        let mut command = self.host.command(program::path());
        command.env("TORONI_DIR", &self.buses).args(["node", "--config"]).arg(&self.file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut node = Program::start_with_ready_fd(command);
        node.wait_ready();
        self.node = Some(node);
    }

    /// Ends the node by SIGKILL.
    pub(super) fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.kill();
        }
        self.memory = [self.most_memory(), 0];
    }

    /// The node, which runs.
    pub(super) fn node(&mut self) -> &mut Program {
        self.node.as_mut().expect("a node")
    }

    /// Notes how much memory the node has.
    pub(super) fn weigh(&mut self) {
        let kib = self.node.as_ref().and_then(|node| resident_kib(node.id())).unwrap_or(0);
        self.memory[1] = self.memory[1].max(kib);
    }

    /// The most memory that one of its nodes had, in KiB.
    pub(super) fn most_memory(&self) -> u64 {
        self.memory[0].max(self.memory[1])
    }
}

/// Field `VmRSS` of `/proc/PID/status`, in KiB.
fn resident_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
