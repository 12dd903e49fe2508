//! Hosts that exist only during a test: two network namespaces, joined by cables.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use toroni_testkit::Program;

/// Two hosts with an interface for each leg: `eth0`, `eth1`, …
pub(crate) struct Hosts {
    pub(crate) hosts: [Host; 2],
}

/// A network namespace. It ends with the process that holds it.
pub(crate) struct Host {
    number: u8,
    holder: Program,
}

impl Hosts {
    /// Makes two hosts with so many cables between them. If that is impossible here, says so and returns `None`.
    pub(crate) fn new(legs: u8) -> Option<Self> {
        if let Some(reason) = obstacle() {
            let required =
                std::env::var_os("TORONI_NETNS").is_some_and(|value| value == "required");
            assert!(!required, "TORONI_NETNS=required, but {reason}");
            eprintln!("SKIPPED: {reason}");
            return None;
        }
        let hosts = [1, 2].map(|number| Host { number, holder: namespace() });
        let peer = hosts[1].holder.id();
        for host in &hosts {
            host.ip("link set lo up");
            // Addresses of IPv6 work at once.
            for of in ["all", "default"] {
                let setting = format!("/proc/sys/net/ipv6/conf/{of}/accept_dad");
                host.enter(|| std::fs::write(setting, "0")).unwrap();
            }
        }
        for leg in 0..legs {
            hosts[0].ip(&format!("link add eth{leg} type veth peer name eth{leg} netns {peer}"));
            for host in &hosts {
                host.ip(&format!("address add {}/24 dev eth{leg}", host.address_on(leg)));
                host.ip(&format!("address add {}/64 dev eth{leg} nodad", host.address_v6_on(leg)));
                host.ip(&format!("link set eth{leg} up"));
            }
        }
        Some(Self { hosts })
    }
}

impl Host {
    pub(crate) fn address_on(&self, leg: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, leg, self.number)
    }

    pub(crate) fn address_v6_on(&self, leg: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, leg.into(), 0, 0, 0, self.number.into())
    }

    /// Runs `ip` with these arguments.
    pub(crate) fn ip(&self, arguments: &str) {
        let output = self.command("ip").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// Returns a command that runs on this host.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command
    }

    /// Runs `work` in a thread on this host. Sockets that it opens stay there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        let run = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            work()
        };
        let result = std::thread::scope(|scope| scope.spawn(run).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Why there cannot be hosts here, or `None`.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("making network namespaces needs root".to_owned());
    }
    for program in ["ip", "unshare", "nsenter"] {
        if Command::new(program).arg("-V").output().is_err() {
            return Some(format!("there is no program {program}"));
        }
    }
    let made = Command::new("unshare").args(["--net", "true"]).status();
    (!made.is_ok_and(|status| status.success()))
        .then(|| "this system makes no network namespaces".to_owned())
}

fn namespace() -> Program {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo made; exec sleep infinity"]);
    let mut holder = Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(holder.line().as_deref(), Some("made"), "{}", holder.errors());
    holder
}
