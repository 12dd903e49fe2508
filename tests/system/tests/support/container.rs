//! Containers as far as a bus can tell: a PID namespace, a mount namespace in which the directory of
//! buses lies at another place, and perhaps a network namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use system_tests::TempRoot;

/// Where a container is to be.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    host: PathBuf,
    inside: PathBuf,
    own_network: bool,
}

/// Mounts the buses at $2, hides the host's place $1, and runs the rest as a child of the first process
/// of the namespace, which no signal from within can stop.
const SCRIPT: &str = r#"
host=$1; inside=$2; shift 2
mount --bind "$host" "$inside" && mount -t tmpfs none "$host" || exit 99
"$@"
exit $?"#;

impl Container {
    /// One that sees the buses of the root, at a place of its own.
    pub(crate) fn new(root: &TempRoot, name: &str) -> Self {
        let inside = root.file(name);
        fs::create_dir(&inside).expect("a place to mount the buses");
        Self { host: root.buses(), inside, own_network: false }
    }

    /// With a network of its own.
    pub(crate) fn with_own_network(mut self) -> Self {
        self.own_network = true;
        self
    }

    /// Where the buses are, inside.
    pub(crate) fn buses(&self) -> &Path {
        &self.inside
    }

    /// The words that, in front of a program and its arguments, run it in a new container. It ends with
    /// the process that these words start.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec!["unshare", "--mount", "--propagation", "private"];
        words.extend(["--pid", "--fork", "--kill-child=KILL", "--mount-proc"]);
        if self.own_network {
            words.push("--net");
        }
        words.extend(["--", "sh", "-c", SCRIPT, "sh"]);
        let text = |path: &Path| path.to_str().expect("a path of a test").to_owned();
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words.extend([text(&self.host), text(&self.inside)]);
        words
    }

    /// `toroni --dir <buses inside> ARGUMENTS` in a new container.
    pub(crate) fn toroni(&self, arguments: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(system_tests::program::path());
        command.arg("--dir").arg(&self.inside).args(arguments);
        command.env_remove("TORONI_BUS").env_remove("TORONI_DIR").env_remove("TORONI_CRASH");
        command
    }
}

/// The process of a program that was started by [`Container::words`], as this namespace numbers it; the
/// started process is `unshare`, its child the shell, and its child the program.
pub(crate) fn program_in(unshare: u32) -> Option<u32> {
    only_child(only_child(unshare)?)
}

fn only_child(process: u32) -> Option<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).ok()?;
    let mut children = children.split_whitespace();
    let child = children.next()?.parse().ok()?;
    // The shell runs one program at a time.
    children.next().is_none().then_some(child)
}
