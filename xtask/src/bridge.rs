//! `cargo xtask bridge`: builds and tests the bridge to Zenoh, which is a workspace of its own (`bridges/zenoh`).
//!
//! Its tests run the program `toroni` of the main workspace and Zenoh's Python module, which this task installs into an
//! environment below `target`. With `--router` they also run Zenoh's router, which takes longer to build than all else. Most of them need root, because they make network namespaces; see
//! `bridges/zenoh/tests/between_hosts/main.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, cargo, of_workspace, run as run_command, run_tests};
use crate::metadata;

const FOLDER: &str = "bridges/zenoh";
const REQUIREMENTS: &str = "tests/requirements.txt";

#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose names contain this
    filter: Option<String>,
    /// Skip format and lints
    #[arg(long)]
    only_test: bool,
    /// Test with Zenoh's router `zenohd` as well. Builds it below `target` if it is not there, which takes 10 min
    #[arg(long)]
    router: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut steps = Steps::default();
    if !options.only_test {
        steps.step("bridge: format", || step(in_folder("cargo").args(["fmt", "--all", "--check"])));
        steps.step("bridge: lints", || {
            let lints =
                ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
            step(in_folder("cargo").args(lints))
        });
    }
    let programs = metadata::members()?.target_directory;
    let toroni = programs.join("debug/toroni");
    // It finds `toroni-node` beside itself.
    steps.step("bridge: the programs toroni and toroni-node", || {
        step(&mut of_workspace("build", &["--bin", "toroni", "--bin", "toroni-node"]))
    });
    let environment = programs.join("bridge-python");
    steps.step("bridge: Zenoh for Python", || make(&environment));
    let router = Router::of(&programs)?;
    if options.router {
        steps.step("bridge: Zenoh's router", || router.make());
    }
    steps.step("bridge: tests", || {
        let mut command = in_folder("cargo");
        command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
        command.args(&options.filter);
        command.env("TORONI_PROGRAM", &toroni);
        command.env("TORONI_ZENOH_PYTHON", python(&environment));
        if router.exists() {
            command.env("TORONI_ZENOHD", router.program());
        }
        run_tests(&mut command)?;
        Ok(String::new())
    });
    steps.finish()
}

/// Makes the environment of Python, unless it exists with these requirements.
fn make(environment: &Path) -> Result<String, Failure> {
    let wanted = std::fs::read(folder().join(REQUIREMENTS))
        .map_err(|error| Failure(format!("cannot read {REQUIREMENTS}: {error}")))?;
    let stamp = environment.join("requirements.txt");
    if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok("exists".to_owned());
    }
    run_command(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
    let mut install = in_folder(python(environment));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run_command(install.args(["-r", REQUIREMENTS]))?;
    std::fs::write(&stamp, wanted)
        .map(|()| String::new())
        .map_err(|error| Failure(format!("cannot write {}: {error}", stamp.display())))
}

/// Zenoh's router, of the version of the lock file.
struct Router {
    version: String,
    root: PathBuf,
}

impl Router {
    fn of(target: &Path) -> Result<Self, Failure> {
        let lock = folder().join("Cargo.lock");
        let text = std::fs::read_to_string(&lock)
            .map_err(|error| Failure(format!("cannot read {}: {error}", lock.display())))?;
        let mut lines = text.lines().skip_while(|line| *line != "name = \"zenoh\"").skip(1);
        let version = lines.next().and_then(|line| line.strip_prefix("version = "));
        let Some(version) = version.map(|version| version.trim_matches('"').to_owned()) else {
            return Err(Failure(format!("{} does not name zenoh", lock.display())));
        };
        let root = target.join(format!("zenohd-{version}"));
        Ok(Self { version, root })
    }

    fn program(&self) -> PathBuf {
        self.root.join("bin/zenohd")
    }

    fn exists(&self) -> bool {
        self.program().is_file()
    }

    fn make(&self) -> Result<String, Failure> {
        if self.exists() {
            return Ok("exists".to_owned());
        }
        let build = self.root.join("build");
        let mut install = cargo(["install", "zenohd", "--locked", "--no-track"]);
        install.arg("--version").arg(format!("={}", self.version));
        run_command(install.arg("--root").arg(&self.root).arg("--target-dir").arg(&build))?;
        // A gigabyte that nothing needs again.
        std::fs::remove_dir_all(&build)
            .map_err(|error| Failure(format!("cannot remove {}: {error}", build.display())))?;
        Ok(String::new())
    }
}

fn python(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn folder() -> PathBuf {
    metadata::root().join(FOLDER)
}

fn in_folder(program: impl AsRef<Path>) -> Command {
    let program = program.as_ref();
    let mut command = match std::env::var_os("CARGO") {
        Some(cargo) if program == Path::new("cargo") => Command::new(cargo),
        _ => Command::new(program),
    };
    command.current_dir(folder());
    command
}

fn step(command: &mut Command) -> Result<String, Failure> {
    run_command(command)?;
    Ok(String::new())
}
