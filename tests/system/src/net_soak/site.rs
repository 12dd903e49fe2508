//! A host with its bus and its node.

use super::supervisor::Plan;
use crate::{Program, Random, TempRoot, program};
use rustix::process::Signal;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Stdio;
use toroni::{Bus, BusConfig, Policy};
use toroni_testkit::directory::copy;
use toroni_testkit::network::Host;

/// Larger than what all hosts publish while a node is away.
const CAPACITY: u64 = 16 << 20;

/// What happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Its node is killed (SIGKILL).
    Kill,
    /// Its node is stopped for a while (SIGSTOP).
    Stop,
    /// Its node is ended in order (SIGTERM).
    End,
    /// Its bus becomes another one.
    Reboot,
    /// Its bus and its state are copied.
    BackUp,
    /// The copies are put back.
    Restore,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Kill, Self::Stop, Self::End, Self::Reboot, Self::BackUp, Self::Restore];

    /// What a table calls it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Kill => "nodes killed",
            Self::Stop => "nodes stopped and continued",
            Self::End => "nodes ended in order",
            Self::Reboot => "hosts rebooted",
            Self::BackUp => "hosts copied",
            Self::Restore => "hosts restored",
        }
    }

    /// Draws one.
    pub(super) fn draw(random: &mut Random, has_backup: bool, plan: &Plan) -> Self {
        match random.below(16) {
            0..4 => Self::Stop,
            4 | 5 => Self::End,
            6 if plan.reboots => Self::Reboot,
            7 if plan.reboots && has_backup => Self::Restore,
            7 if plan.reboots => Self::BackUp,
            _ => Self::Kill,
        }
    }
}

/// One host.
pub(super) struct Site {
    host: Host,
    config: BusConfig,
    name: String,
    /// The bus, which does not vanish while the host's programs close it.
    bus: Option<Bus>,
    buses: PathBuf,
    state: PathBuf,
    file: PathBuf,
    /// A copy of the bus and of the state, if there is one.
    backup: PathBuf,
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
        let bus = Some(config.open(&name).expect("a bus"));
        let state = root.file(&format!("state-{number}"));
        let key = root.file("key");
        let mut text = format!(
            "[node]\nrealm = 'soak'\nname = '{name}'\nid = {}\nbus = '{name}'\ninterfaces = ['eth0']\nstate = {state:?}\n\
             key_file = {key:?}\n[[receive]]\n",
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
        let (buses, backup) = (root.buses(), root.file(&format!("backup-{number}")));
        let host = host.clone();
        Self { host, config, name, bus, buses, state, file, backup, node: None, memory: [0; 2] }
    }

    /// Opens the bus.
    pub(super) fn open(&self) -> Bus {
        self.opener()()
    }

    /// Returns what opens the bus.
    pub(super) fn opener(&self) -> impl Fn() -> Bus + use<> {
        let (config, name) = (self.config.clone(), self.name.clone());
        move || config.open(&name).expect("a bus")
    }

    /// Whether there is a copy of its bus and of its state.
    pub(super) fn has_backup(&self) -> bool {
        self.backup.exists()
    }

    /// The host is started again, and its bus was in memory. No program has the bus open.
    pub(super) fn reboot(&mut self) {
        self.bus = None;
        std::fs::remove_dir_all(self.buses.join(&self.name)).expect("the bus");
        self.bus = Some(self.open());
    }

    /// Copies the bus and the state. No program uses them.
    pub(super) fn back_up(&mut self) {
        self.bus = None;
        if self.has_backup() {
            std::fs::remove_dir_all(&self.backup).expect("the backup before");
        }
        let [bus, state] = ["bus", "state"].map(|name| self.backup.join(name));
        copy(&self.buses.join(&self.name), &bus);
        copy(&self.state, &state);
        self.bus = Some(self.open());
    }

    /// Puts both back: in their place as copies, or into the files that are there.
    pub(super) fn restore(&mut self, as_copies: bool) {
        self.bus = None;
        let kept = [("bus", self.buses.join(&self.name)), ("state", self.state.clone())];
        for (name, place) in kept {
            if as_copies {
                std::fs::remove_dir_all(&place).expect("what is replaced");
            }
            copy(&self.backup.join(name), &place);
        }
        self.bus = Some(self.open());
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

    /// Ends the node in order, with what time it takes to send what waits.
    pub(super) fn end(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.signal(Signal::TERM);
            assert!(node.wait().success(), "{}", node.errors());
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
