//! A host with its node.

use super::disk::{Disk, bytes_below};
use super::shim::Shim;
use crate::{Program, TempRoot, program};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write;
use std::fs::{OpenOptions, remove_dir_all};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use toroni::{BusConfig, Policy};
use toroni_testkit::directory::copy;
use toroni_testkit::network::Host;
use toroni_testkit::wait;

pub(super) const FEED: &str = "orders";
/// Room for what a reader has not read yet.
const CAPACITY: u64 = 16 << 20;
/// The log of a member, which gives up what is older, and what it allocates ahead.
const DISK_MEBIBYTES: u64 = 320;
/// Where an archive answers.
pub(super) const ARCHIVE_PORT: u16 = 4483;

/// What a host does beside sending and receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is the member with the number of the host.
    Member,
    /// Nothing.
    Plain,
    /// It keeps all events.
    Archive,
}

/// One host.
pub(super) struct Site {
    pub(super) number: usize,
    pub(super) host: Host,
    pub(super) role: Role,
    /// Where the state of its node is.
    state: PathBuf,
    buses: PathBuf,
    file: PathBuf,
    /// What all its nodes wrote to standard error.
    said: PathBuf,
    pub(super) disk: Option<Disk>,
    /// Only if a fault of the plan needs it.
    shim: Option<Shim>,
    /// An earlier copy of the log of its member.
    backup: PathBuf,
    node: Option<Program>,
    is_starting: bool,
    is_stopped: bool,
    /// The most that one of its nodes had.
    pub(super) memory_kib: u64,
    /// The most that its log took.
    pub(super) log_bytes: u64,
}

/// The addresses of the members, as files of nodes have them.
pub(super) fn addresses(hosts: &[Host]) -> Vec<SocketAddr> {
    hosts.iter().map(|host| SocketAddr::from((host.address(), 4481))).collect()
}

impl Site {
    /// Makes the directories of a host, and the file of its node. The last host is the archive, the one before it has no member.
    pub(super) fn new(root: &TempRoot, number: usize, hosts: &[Host], has_shim: bool) -> Self {
        let members = hosts.len() - 2;
        let role = match number {
            _ if number < members => Role::Member,
            _ if number == members => Role::Plain,
            _ => Role::Archive,
        };
        let state = root.file(&format!("state-{number}"));
        let buses = root.buses().join(format!("host-{number}"));
        let file = root.file(&format!("host-{number}.toml"));
        std::fs::create_dir_all(&buses).expect("a directory");
        let disk = (role == Role::Member).then(|| Disk::mount(&state, DISK_MEBIBYTES));
        let has_shim = has_shim && role == Role::Member;
        let shim = has_shim.then(|| Shim::new(state.join("shim"), state.join("log")));
        let site = Self {
            number,
            host: hosts[number].clone(),
            role,
            state,
            buses,
            file,
            said: root.file(&format!("said-{number}")),
            disk,
            shim,
            backup: root.file(&format!("backup-{number}")),
            node: None,
            is_starting: false,
            is_stopped: false,
            memory_kib: 0,
            log_bytes: 0,
        };
        std::fs::write(&site.file, site.text(root, hosts)).expect("the file of the node");
        site
    }

    fn text(&self, root: &TempRoot, hosts: &[Host]) -> String {
        let (number, members) = (self.number, hosts.len() - 2);
        let realm = root.path().file_name().expect("a name").to_string_lossy().into_owned();
        let listed = addresses(&hosts[..members]).into_iter().enumerate();
        let listed: Vec<_> = listed.map(|(id, address)| format!("m{id}={address}")).collect();
        let mut text = format!(
            "[node]\nrealm = '{realm}'\nname = 'host-{number}'\nstate = {:?}\nkey_file = {:?}\ninterfaces = ['eth0']\n\
             [node.bus]\ndirectory = {:?}\n[sequencer]\nfeed = '{FEED}'\nmembers = {listed:?}\ngroup = '239.192.84.80:4482'\n",
            self.state,
            root.file("key"),
            self.buses,
        );
        let archive = hosts[members + 1].address();
        let _ = match self.role {
            // Little, so that logs are purged.
            Role::Member => write!(
                text,
                "member = 'm{number}'\ndata_rate = '50Mbit/s'\nretain = '1MiB'\narchives = ['{archive}:{ARCHIVE_PORT}']\n"
            ),
            Role::Plain => writeln!(text, "archives = ['{archive}:{ARCHIVE_PORT}']"),
            Role::Archive => write!(
                text,
                "archive = true\narchive_address = '{archive}:{ARCHIVE_PORT}'\narchive_capacity = '8GiB'\n"
            ),
        };
        // One that loses its power may lack what it has answered.
        if self.shim.is_some() && number % 2 == 1 {
            text.push_str("sync = 'interval'\n");
        }
        text
    }

    /// How programs open its buses. The follower waits for the reader.
    pub(super) fn config(&self) -> BusConfig {
        let config = BusConfig::new().directory(&self.buses).capacity(CAPACITY);
        config.policy(Policy::Wait { limit: None })
    }

    /// The directory of the log of its member.
    pub(super) fn log(&self) -> PathBuf {
        self.state.join("log")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(program::path());
        command.env_remove("TORONI_BUS").env("TORONI_DIR", &self.buses).args(arguments);
        command.arg("--config").arg(&self.file).stdin(Stdio::null());
        command
    }

    /// Runs `toroni sequencer` on this host.
    pub(super) fn sequencer(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(&[&["sequencer"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Program::start(command).finish()
    }

    /// The same, and reads the JSON that it prints: null if no member answers in time.
    pub(super) fn sequencer_json(&self, arguments: &[&str]) -> Value {
        let output = self.sequencer(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Whether its node runs, and is not stopped.
    pub(super) fn is_up(&self) -> bool {
        self.node.is_some() && !self.is_stopped
    }

    /// Starts the node, if it does not run, and waits until it is ready.
    pub(super) fn start(&mut self) {
        self.launch();
        self.wait_ready();
    }

    /// Starts the node, if it does not run. Several may start at the same time.
    pub(super) fn launch(&mut self) {
        if self.node.is_some() {
            return;
        }
        let said = OpenOptions::new().create(true).append(true).open(&self.said);
        let mut command = self.command(&["node"]);
        command.stdout(Stdio::null()).stderr(said.expect("a file"));
        if let Some(shim) = &self.shim {
            shim.prepare(&mut command);
        }
        self.node = Some(Program::start_with_ready_fd(command));
        self.is_starting = true;
    }

    /// Waits until the node that was launched is ready.
    pub(super) fn wait_ready(&mut self) {
        if let Some(node) = self.node.as_mut().filter(|_| self.is_starting) {
            node.wait_ready();
        }
        self.is_starting = false;
    }

    /// Kills the nodes of these hosts at the same time.
    pub(super) fn kill(sites: &mut [Self], victims: &[usize]) {
        for victim in victims {
            let site = &mut sites[*victim];
            site.weigh();
            if let Some(node) = &site.node {
                node.signal(Signal::KILL);
            }
        }
        for victim in victims {
            let site = &mut sites[*victim];
            site.is_stopped = false;
            if let Some(mut node) = site.node.take() {
                let status = node.wait();
                assert_eq!(status.signal(), Some(9), "the node of host {victim}");
            }
        }
    }

    /// Asks the node to end, with SIGTERM.
    pub(super) fn terminate(&mut self) {
        self.weigh();
        if let Some(node) = &self.node {
            node.signal(Signal::TERM);
        }
    }

    /// Waits until the node that was asked to end has ended. Returns whether it did so in order.
    pub(super) fn wait_end(&mut self) -> bool {
        self.node.take().is_none_or(|mut node| node.wait().success())
    }

    pub(super) fn stop(&mut self) {
        if let Some(node) = &self.node {
            node.stop();
            self.is_stopped = true;
        }
    }

    pub(super) fn resume(&mut self) {
        if let Some(node) = self.node.as_ref().filter(|_| self.is_stopped) {
            node.resume();
        }
        self.is_stopped = false;
    }

    /// What stands between the node of a member and the kernel.
    pub(super) fn shim(&self) -> &Shim {
        self.shim.as_ref().expect("the plan has a fault that needs it")
    }

    /// Waits this long until the node ends by itself, as it must. Returns whether it has.
    pub(super) fn ends_within(&mut self, time: Duration) -> bool {
        let Some(node) = &mut self.node else { return true };
        let has_ended = wait::within(time, || node.ended().is_some());
        if has_ended {
            self.node = None;
        }
        has_ended
    }

    /// Replaces the log of the member, whose node does not run, by the copy that was made the last time. If there is none, it makes one,
    /// and returns false.
    pub(super) fn restore(&self) -> bool {
        let (log, backup) = (self.log(), &self.backup);
        let has_backup = backup.exists();
        if has_backup {
            remove_dir_all(&log).expect("the log of a member");
            copy(backup, &log);
            remove_dir_all(backup).expect("the copy of a log");
        } else {
            copy(&log, backup);
        }
        has_backup
    }

    /// Removes the log of the member, whose node does not run. An earlier copy is of no use then: the log that comes is another one.
    pub(super) fn wipe(&self) {
        remove_dir_all(self.log()).expect("the log of a member");
        let _ = remove_dir_all(&self.backup);
    }

    /// If the node has ended by itself, says how.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let status = self.node.as_mut()?.ended()?;
        self.node = None;
        self.is_stopped = false;
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let last: Vec<_> = said.lines().rev().take(5).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        Some(format!("H8: the node of host {} ended by itself: {status}: {last}", self.number))
    }

    /// Notes how much memory the node has had, and how long its log is.
    pub(super) fn weigh(&mut self) {
        if let Some(kib) = self.node.as_ref().and_then(|node| most_kib(node.id())) {
            self.memory_kib = self.memory_kib.max(kib);
        }
        if self.role == Role::Member {
            self.log_bytes = self.log_bytes.max(bytes_below(&self.log()));
        }
    }
}

/// Field `VmHWM` of `/proc/PID/status`, in KiB.
fn most_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
