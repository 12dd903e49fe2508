//! Finds the `toroni` program, and prepares its commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The `toroni` program: `$TORONI_BIN` if set, else the one in the target directory of this very test program. There it
/// and `toroni-node`, which it finds beside itself, are built if they are missing or older than their sources.
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

/// The library that stands between nodes and the kernel (`shim/lib.rs`), beside this very test program. It is built there if it is
/// missing or older than its sources.
pub(crate) fn shim() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let profile = profile();
        let library = profile.join("examples/libtoroni_shim.so");
        if !is_current(&library) {
            build(&profile, &["-p", "system-tests", "--example", "toroni_shim"]);
        }
        library
    })
}

/// The folder of the profile: <target>/<profile>/deps/<test>, or <target>/<profile>/<worker>.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    let mut folders = test.ancestors().skip(1);
    folders.find(|folder| !folder.ends_with("deps")).expect("a folder of the profile").to_owned()
}

fn built() -> PathBuf {
    let profile = profile();
    let program = profile.join("toroni");
    // With the feature, those that lie there may be without.
    let with_crash_points = cfg!(feature = "crash-points");
    if is_current(&program) && is_current(&profile.join("toroni-node")) && !with_crash_points {
        return program;
    }
    let mut arguments = vec!["-p", "toroni-cli", "-p", "toroni-node", "--bins"];
    if with_crash_points {
        arguments.extend(["--features", "toroni-cli/crash-points"]);
    }
    build(&profile, &arguments);
    program
}

/// Builds something into the folder of a profile.
fn build(profile: &Path, arguments: &[&str]) {
    let target = profile.parent().expect("a target directory");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--locked"]).args(arguments);
    command.arg("--target-dir").arg(target).current_dir(workspace()).stdin(Stdio::null());
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot build {arguments:?}: {said}");
}

/// Whether a program or a library exists and is no older than its sources, which Cargo lists in a file beside it: its own path, a
/// colon, and theirs.
fn is_current(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Some(made) = changed(program) else { return false };
    let listed = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let mut sources = listed.split_ascii_whitespace().skip(1).peekable();
    // A source that is gone, or that has a space in its path, counts as changed.
    sources.peek().is_some()
        && sources.all(|path| changed(Path::new(path)).is_some_and(|changed| changed <= made))
}
