//! Programs that the tests start and stop.

use crate::common::{LOST, until};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// The engine of an example.
#[derive(Clone, Copy)]
pub(crate) struct Engine {
    /// What the example prints for its first processor.
    pub(crate) effective: &'static str,
    /// The first table `[[processor]]` without its head, and perhaps a second one.
    pub(crate) configuration: &'static str,
}

/// A program that serves until this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

type Lines = std::iter::MapWhile<
    std::io::Lines<BufReader<std::process::ChildStdout>>,
    fn(std::io::Result<String>) -> Option<String>,
>;

/// Returns the lines that a child prints.
fn lines(child: &mut Child) -> Lines {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

impl Server {
    /// Starts an example on a free port.
    pub(crate) fn example(name: &str, engine: Engine, arguments: &[&str]) -> Self {
        let mut command = Command::new(example(name));
        command.args(arguments);
        command.env("TORONI_PROACTOR", format!("[[processor]]\n{}", engine.configuration));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = lines(&mut child);
        let first = lines.next().expect("says where it listens");
        let address = first.strip_prefix("listening on ").unwrap().parse().unwrap();
        let server = Self { child, address };
        let effective = lines.next().unwrap();
        // Without a note: every value is the configured one.
        assert_eq!(effective, engine.effective);
        server
    }

    /// Starts `iperf3 --server`. The channel receives a value each time that it listens. It cannot choose a
    /// port itself.
    pub(crate) fn iperf3() -> (Self, Receiver<()>) {
        for _ in 0..20 {
            let address = free_address();
            let mut command = Command::new("iperf3");
            let port = address.port().to_string();
            command.args(["--server", "--forceflush", "--bind", "127.0.0.1", "--port", &port]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut listens = lines(&mut child).filter(|line| line.contains("Server listening"));
            let mut server = Self { child, address };
            if listens.next().is_some() {
                let (tell, told) = channel();
                tell.send(()).unwrap();
                // It ends with the server.
                std::thread::spawn(move || listens.for_each(|_| _ = tell.send(())));
                return (server, told);
            }
            // Another program has taken the port.
            let _ = server.child.wait();
        }
        panic!("no port for iperf3 in 20 attempts");
    }

    /// Returns how many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Waits until it has this many open.
    #[track_caller]
    pub(crate) fn closes_all_but(&self, before: usize) {
        until(|| self.descriptors() == before);
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address that is free now, perhaps not for long.
fn free_address() -> SocketAddr {
    TcpListener::bind(crate::common::ANY).unwrap().local_addr().unwrap()
}

/// Runs a client to its end, and returns its output.
#[track_caller]
pub(crate) fn client(program: &str, arguments: &[&str]) -> String {
    // `timeout` ends a client that hangs.
    let output = Command::new("timeout")
        .args(["--signal", "KILL", &LOST.as_secs().to_string(), program])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{said}\n{errors}",
        output.status
    );
    said
}

/// Returns whether the clients that a test needs are installed: programs, and their packages. If one is
/// missing, the test is skipped and reports that; with `TORONI_CLIENTS=required`, as in CI, it fails.
#[track_caller]
pub(crate) fn has(clients: &[(&str, &str)]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    let Some((program, package)) = clients.iter().find(|(program, _)| !is_there(program)) else {
        return true;
    };
    let said = format!("{program} is missing: apt-get install {package}");
    assert!(std::env::var_os("TORONI_CLIENTS").is_none_or(|it| it != "required"), "{said}");
    // Not `eprintln!`: the test runner hides what passing tests print with it.
    let _ = writeln!(std::io::stderr(), "skipped: {said}");
    false
}

/// Returns the path of an example, which `cargo build --examples` or `cargo test` of the whole package builds.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    let path_text = path.display();
    assert!(path.exists(), "{path_text} is not built: cargo build -p toroni-proactor --examples");
    path
}
