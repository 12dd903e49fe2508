//! Finds the `toroni` program, and prepares its commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The `toroni` program: `$TORONI_BIN` if set, else the one in the target directory of this very test
/// program, built if it is missing or older than its sources.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("TORONI_BIN") {
        Some(path) => PathBuf::from(path),
        None => built(),
    })
}

/// `toroni --dir DIRECTORY ARGUMENTS`, with no input and piped output, free of what the environment
/// says about buses.
#[must_use]
pub fn toroni(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path());
    command
        .env_remove("TORONI_BUS")
        .env_remove("TORONI_DIR")
        .env_remove("TORONI_CRASH")
        .arg("--dir")
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The folder of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the workspace around this crate")
}

fn built() -> PathBuf {
    // <target>/<profile>/deps/<test>, or <target>/<profile>/<worker>.
    let test = std::env::current_exe().expect("the path of this program");
    let profile = test
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"))
        .expect("a folder of the profile");
    let program = profile.join("toroni");
    // With the feature, the one that lies there may be without.
    let with_crash_points = cfg!(feature = "crash-points");
    if is_current(&program) && !with_crash_points {
        return program;
    }
    let target = profile.parent().expect("a target directory");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--locked", "-p", "toroni-cli", "--bin", "toroni", "--target-dir"]);
    command.arg(target).current_dir(workspace()).stdin(Stdio::null());
    if with_crash_points {
        command.args(["--features", "toroni-cli/crash-points"]);
    }
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && program.exists(),
        "cannot build {}: {said}",
        program.display()
    );
    program
}

/// Whether the program exists and is no older than what it is made of.
fn is_current(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Some(made) = changed(program) else { return false };
    let sources = ["toroni", "toroni-cli", "toroni-recording", "toroni-shell"];
    sources.iter().all(|folder| newest(&workspace().join("crates").join(folder)) <= made)
}

/// The latest change below a folder, tests and examples left out.
fn newest(folder: &Path) -> SystemTime {
    let mut latest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let changed = if path.is_dir() {
            let left_out = ["tests", "examples", "benches"];
            if left_out.iter().any(|name| path.ends_with(name)) { continue } else { newest(&path) }
        } else {
            entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(latest)
        };
        latest = latest.max(changed);
    }
    latest
}
